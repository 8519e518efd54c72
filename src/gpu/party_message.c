/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The opening's messages, and what all messages are made of. */
#include "gpu/party_message.h"

#include "base/text.h"
#include "gpu/party_text.h"

#include <errno.h>
#include <string.h>

size_t gs_party_hub_most(uint32_t n_ranks)
{
    enum { MEMBER = 4 + 4 + 16 + 2 + 63 + 2 + 63, SHARE = 4 + 4 + GS_PARTY_SHARE_BYTES, HEAD = 2048 };
    _Static_assert((int)SHARE > (int)MEMBER, "the largest message is GATHERED");
    return HEAD + (size_t)n_ranks * SHARE;
}

int gs_party_frame_decode(const unsigned char bytes[GS_PARTY_FRAME_BYTES], struct gs_party_frame *ret_frame)
{
    uint32_t body_bytes = gs_get_u32(&bytes);
    uint16_t type = gs_get_u16(&bytes);
    if (gs_get_u16(&bytes) || type < GS_PARTY_HELLO || type > GS_PARTY_GOODBYE)
        return -EBADMSG;
    *ret_frame = (struct gs_party_frame){.body_bytes = body_bytes, .type = type};
    return 0;
}

unsigned char *gs_party_frame_begin(struct gs_bytes *out, enum gs_party_type type, size_t body_bytes)
{
    unsigned char *at = gs_bytes_grow(out, GS_PARTY_FRAME_BYTES + body_bytes);
    if (!at)
        return NULL;
    gs_put_u32(&at, (uint32_t)body_bytes);
    gs_put_u16(&at, (uint16_t)type);
    gs_put_u16(&at, 0);
    return at;
}

size_t gs_party_text_bytes(const char *text, size_t size)
{
    return 2 + strnlen(text, size - 1);
}

void gs_party_text_put(unsigned char **at, const char *text, size_t size)
{
    size_t length = strnlen(text, size - 1);
    gs_put_u16(at, (uint16_t)length);
    gs_put_bytes(at, text, length);
    gs_text_clean((char *)*at - length, length);
}

int gs_party_text_get(struct gs_cursor *cursor, char *text, size_t size)
{
    const unsigned char *head = gs_cursor_take(cursor, 2);
    size_t length = head ? gs_get_u16(&head) : size;
    const unsigned char *at = length < size ? gs_cursor_take(cursor, length) : NULL;
    if (!at || !gs_text_is_clean((const char *)at, length))
        return -EBADMSG;
    memcpy(text, at, length);
    memset(text + length, 0, size - length);
    return 0;
}

int gs_party_code_get(const unsigned char **at, int *ret_code)
{
    enum { MOST = 4095 };
    uint32_t code = gs_get_u32(at);
    if (code == 0 || code > MOST || code == EAGAIN) /* which says "not yet" to callers */
        return -EBADMSG;
    *ret_code = -(int)code;
    return 0;
}

/* ---- HELLO ---- */

enum { HELLO_BYTES = 4 + 16 + 4 + 4, MEMBER_BYTES = 4 + 4 + 16 };

static void put_member(unsigned char **at, const struct gs_member *member)
{
    gs_put_u32(at, member->pid);
    gs_put_u32(at, (uint32_t)member->version);
    gs_put_bytes(at, member->gpu, sizeof member->gpu);
    gs_party_text_put(at, member->host, sizeof member->host);
}

static int get_member(struct gs_cursor *cursor, struct gs_member *ret_member)
{
    struct gs_member member = {0};
    const unsigned char *at = gs_cursor_take(cursor, MEMBER_BYTES);
    if (!at)
        return -EBADMSG;
    member.pid = gs_get_u32(&at);
    member.version = (int32_t)gs_get_u32(&at);
    gs_get_bytes(&at, member.gpu, sizeof member.gpu);
    if (gs_party_text_get(cursor, member.host, sizeof member.host))
        return -EBADMSG;
    *ret_member = member;
    return 0;
}

int gs_party_hello_encode(struct gs_bytes *out, const struct gs_party_hello *hello)
{
    size_t host = gs_party_text_bytes(hello->member.host, sizeof hello->member.host);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_HELLO, HELLO_BYTES + MEMBER_BYTES + host);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, hello->version);
    gs_put_bytes(&at, hello->job, sizeof hello->job);
    gs_put_u32(&at, hello->n_ranks);
    gs_put_u32(&at, hello->rank);
    put_member(&at, &hello->member);
    return 0;
}

int gs_party_hello_decode(const void *body, size_t size, struct gs_party_hello *ret_hello)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_party_hello hello = {0};
    if (size < 4)
        return -EBADMSG;
    const unsigned char *at = cursor.at;
    hello.version = gs_get_u32(&at);
    if (hello.version != GS_PARTY_VERSION) {
        ret_hello->version = hello.version;
        return hello.version ? 0 : -EBADMSG;
    }
    at = gs_cursor_take(&cursor, HELLO_BYTES);
    if (!at)
        return -EBADMSG;
    at += 4;
    gs_get_bytes(&at, hello.job, sizeof hello.job);
    hello.n_ranks = gs_get_u32(&at);
    hello.rank = gs_get_u32(&at);
    if (get_member(&cursor, &hello.member) || gs_cursor_left(&cursor))
        return -EBADMSG;
    *ret_hello = hello;
    return 0;
}

/* ---- WELCOME ---- */

int gs_party_welcome_encode(struct gs_bytes *out, const struct gs_member *members, uint32_t n_ranks,
                            uint32_t silence_ms)
{
    size_t size = 8;
    for (uint32_t i = 0; i < n_ranks; i++)
        size += MEMBER_BYTES + gs_party_text_bytes(members[i].host, sizeof members[i].host) +
                gs_party_text_bytes(members[i].address, sizeof members[i].address);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_WELCOME, size);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, n_ranks);
    gs_put_u32(&at, silence_ms);
    for (uint32_t i = 0; i < n_ranks; i++) {
        put_member(&at, &members[i]);
        gs_party_text_put(&at, members[i].address, sizeof members[i].address);
    }
    return 0;
}

int gs_party_welcome_decode(const void *body, size_t size, struct gs_party_welcome *ret_welcome)
{
    struct gs_party_welcome welcome = {.members = gs_cursor_over(body, size)};
    const unsigned char *at = gs_cursor_take(&welcome.members, 8);
    if (!at)
        return -EBADMSG;
    welcome.n_ranks = gs_get_u32(&at);
    welcome.silence_ms = gs_get_u32(&at);
    if (welcome.n_ranks == 0 || welcome.n_ranks > GS_PARTY_MAX_RANKS)
        return -EBADMSG;
    *ret_welcome = welcome;
    return 0;
}

int gs_party_member_next(struct gs_party_welcome *welcome, struct gs_member *ret_member)
{
    struct gs_member member;
    if (get_member(&welcome->members, &member) ||
        gs_party_text_get(&welcome->members, member.address, sizeof member.address))
        return -EBADMSG;
    *ret_member = member;
    return 0;
}

/* ---- REFUSED, WAITING ---- */

int gs_party_refused_encode(struct gs_bytes *out, const struct gpusys_error *error)
{
    size_t size = 4 + gs_party_text_bytes(error->message, sizeof error->message) +
                  gs_party_text_bytes(error->cause, sizeof error->cause) +
                  gs_party_text_bytes(error->hint, sizeof error->hint);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_REFUSED, size);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, (uint32_t)-error->code);
    gs_party_text_put(&at, error->message, sizeof error->message);
    gs_party_text_put(&at, error->cause, sizeof error->cause);
    gs_party_text_put(&at, error->hint, sizeof error->hint);
    return 0;
}

int gs_party_refused_decode(const void *body, size_t size, struct gs_party_refused *ret_refused)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_party_refused refused;
    const unsigned char *at = gs_cursor_take(&cursor, 4);
    if (!at || gs_party_code_get(&at, &refused.code) ||
        gs_party_text_get(&cursor, refused.message, sizeof refused.message) ||
        gs_party_text_get(&cursor, refused.cause, sizeof refused.cause) ||
        gs_party_text_get(&cursor, refused.hint, sizeof refused.hint) || gs_cursor_left(&cursor))
        return -EBADMSG;
    *ret_refused = refused;
    return 0;
}

int gs_party_waiting_encode(struct gs_bytes *out, const char *text)
{
    unsigned char *at =
        gs_party_frame_begin(out, GS_PARTY_WAITING, gs_party_text_bytes(text, GS_PARTY_TEXT_BYTES));
    if (!at)
        return -ENOMEM;
    gs_party_text_put(&at, text, GS_PARTY_TEXT_BYTES);
    return 0;
}

int gs_party_waiting_decode(const void *body, size_t size, char text[GS_PARTY_TEXT_BYTES])
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    char copy[GS_PARTY_TEXT_BYTES];
    if (gs_party_text_get(&cursor, copy, sizeof copy) || gs_cursor_left(&cursor))
        return -EBADMSG;
    memcpy(text, copy, sizeof copy);
    return 0;
}
