/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "wire/message.h"

#include "wire/message_rail.h"

#include <errno.h>
#include <gpusys/remote.h>

/* ---- shared ---- */

struct gs_text gs_text_of(const char *text)
{
    size_t length = text ? strlen(text) : 0;
    return (struct gs_text){.at = text, .length = (uint16_t)(length < GS_TEXT_MAX ? length : GS_TEXT_MAX)};
}

static void put_frame(unsigned char **at, enum gs_message_type type, uint64_t serial, size_t body_bytes)
{
    gs_put_u32(at, (uint32_t)body_bytes);
    gs_put_u16(at, (uint16_t)type);
    gs_put_u16(at, 0);
    gs_put_u64(at, serial);
}

unsigned char *gs_message_begin(struct gs_bytes *out, enum gs_message_type type, uint64_t serial,
                                size_t body_bytes)
{
    unsigned char *at = gs_bytes_grow(out, GS_FRAME_BYTES + body_bytes);
    if (at)
        put_frame(&at, type, serial, body_bytes);
    return at;
}

int gs_frame_decode(const unsigned char bytes[GS_FRAME_BYTES], struct gs_frame *ret_frame)
{
    const unsigned char *at = bytes;
    uint32_t body_bytes = gs_get_u32(&at);
    uint16_t type = gs_get_u16(&at), zero = gs_get_u16(&at);
    if (body_bytes > GS_BODY_MAX || zero != 0)
        return -EBADMSG;
    *ret_frame = (struct gs_frame){.body_bytes = body_bytes, .type = type, .serial = gs_get_u64(&at)};
    return 0;
}

enum { TEXT_HEAD_BYTES = 2 };

static void put_text(unsigned char **at, struct gs_text text)
{
    gs_put_u16(at, text.length);
    gs_put_bytes(at, text.at, text.length);
}

/* A text at the cursor; it may not hold a NUL, since it will become a C string. */
static int take_text(struct gs_cursor *cursor, uint16_t limit, struct gs_text *ret_text)
{
    const unsigned char *head = gs_cursor_take(cursor, TEXT_HEAD_BYTES);
    if (!head)
        return -EBADMSG;
    uint16_t length = gs_get_u16(&head);
    const unsigned char *at = gs_cursor_take(cursor, length);
    if (!at || length > limit || memchr(at, 0, length))
        return -EBADMSG;
    *ret_text = (struct gs_text){.at = (const char *)at, .length = length};
    return 0;
}

/* A text that people will read: no control bytes (C0, DEL, and C1 in UTF-8), which a terminal would obey. */
static int take_line(struct gs_cursor *cursor, struct gs_text *ret_line)
{
    struct gs_text line;
    if (take_text(cursor, GS_TEXT_MAX, &line))
        return -EBADMSG;
    for (unsigned i = 0, before = 0, now; i < line.length; i++, before = now) {
        now = (unsigned char)line.at[i];
        if (now < 0x20 || now == 0x7f || (before == 0xc2 && now >= 0x80 && now < 0xa0))
            return -EBADMSG;
    }
    *ret_line = line;
    return 0;
}

/* The end of every decoder: nothing may be left over. */
static int finish(const struct gs_cursor *cursor)
{
    return gs_cursor_left(cursor) ? -EBADMSG : 0;
}

/* ---- the opening ---- */

enum { HELLO_BYTES = 8 + 8 + GS_COOKIE_BYTES / 2 };

int gs_hello_encode(struct gs_bytes *out, uint64_t serial, const struct gs_hello *hello)
{
    size_t body =
        HELLO_BYTES + 1 + (size_t)hello->n_rails * GS_RAIL_BYTES + TEXT_HEAD_BYTES + hello->name.length;
    unsigned char *at = gs_message_begin(out, GS_HELLO, serial, body);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, hello->version);
    gs_put_u32(&at, 0);
    gs_put_u64(&at, hello->features);
    gs_put_bytes(&at, hello->cookie, sizeof hello->cookie);
    gs_rails_put(&at, hello->rails, hello->n_rails);
    put_text(&at, hello->name);
    return 0;
}

int gs_hello_decode(const void *body, size_t size, struct gs_hello *ret_hello)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_hello hello = {0};
    const unsigned char *at = gs_cursor_take(&cursor, HELLO_BYTES);
    if (!at)
        return -EBADMSG;
    hello.version = gs_get_u32(&at);
    uint32_t zero = gs_get_u32(&at);
    hello.features = gs_get_u64(&at);
    gs_get_bytes(&at, hello.cookie, sizeof hello.cookie);
    if (zero || gs_rails_take(&cursor, hello.rails, &hello.n_rails) || take_line(&cursor, &hello.name) ||
        finish(&cursor))
        return -EBADMSG;
    *ret_hello = hello;
    return 0;
}

enum { WELCOME_BYTES = 8 + 8 + GS_COOKIE_BYTES / 2 + 2 * GS_NONCE_BYTES + 8 + 8 + 4 + 4 };

int gs_welcome_encode(struct gs_bytes *out, uint64_t serial, const struct gs_welcome *welcome)
{
    size_t body = WELCOME_BYTES + 1 + (size_t)welcome->n_rails * GS_RAIL_BYTES + TEXT_HEAD_BYTES +
                  welcome->unix_path.length;
    unsigned char *at = gs_message_begin(out, GS_WELCOME, serial, body);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, welcome->version);
    gs_put_u32(&at, 0);
    gs_put_u64(&at, welcome->features);
    gs_put_bytes(&at, welcome->cookie, sizeof welcome->cookie);
    gs_put_bytes(&at, welcome->session, GS_NONCE_BYTES);
    gs_put_bytes(&at, welcome->proof, GS_NONCE_BYTES);
    gs_put_u64(&at, welcome->n_regions);
    gs_put_u64(&at, welcome->arena_bytes);
    gs_put_u32(&at, welcome->slice_max);
    gs_put_u32(&at, welcome->requests_max);
    gs_rails_put(&at, welcome->rails, welcome->n_rails);
    put_text(&at, welcome->unix_path);
    return 0;
}

int gs_welcome_decode(const void *body, size_t size, struct gs_welcome *ret_welcome)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_welcome welcome = {0};
    const unsigned char *at = gs_cursor_take(&cursor, WELCOME_BYTES);
    if (!at)
        return -EBADMSG;
    welcome.version = gs_get_u32(&at);
    uint32_t zero = gs_get_u32(&at);
    welcome.features = gs_get_u64(&at);
    gs_get_bytes(&at, welcome.cookie, sizeof welcome.cookie);
    gs_get_bytes(&at, welcome.session, GS_NONCE_BYTES);
    gs_get_bytes(&at, welcome.proof, GS_NONCE_BYTES);
    welcome.n_regions = gs_get_u64(&at);
    welcome.arena_bytes = gs_get_u64(&at);
    welcome.slice_max = gs_get_u32(&at);
    welcome.requests_max = gs_get_u32(&at);
    if (zero || welcome.slice_max == 0 || welcome.slice_max > GS_SLICE_MAX || welcome.requests_max == 0)
        return -EBADMSG;
    if (gs_rails_take(&cursor, welcome.rails, &welcome.n_rails) ||
        take_text(&cursor, GS_TEXT_MAX, &welcome.unix_path) || finish(&cursor))
        return -EBADMSG;
    *ret_welcome = welcome;
    return 0;
}

/* REFUSED and READY: one integer and a text. */

int gs_refused_encode(struct gs_bytes *out, uint64_t serial, const struct gs_refused *refused)
{
    unsigned char *at =
        gs_message_begin(out, GS_REFUSED, serial, 4 + TEXT_HEAD_BYTES + (size_t)refused->reason.length);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, refused->refusal);
    put_text(&at, refused->reason);
    return 0;
}

int gs_refused_decode(const void *body, size_t size, struct gs_refused *ret_refused)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_refused refused;
    const unsigned char *at = gs_cursor_take(&cursor, 4);
    if (!at || take_line(&cursor, &refused.reason) || finish(&cursor))
        return -EBADMSG;
    refused.refusal = gs_get_u32(&at);
    *ret_refused = refused;
    return 0;
}

int gs_ready_encode(struct gs_bytes *out, uint64_t serial, const struct gs_ready *ready)
{
    unsigned char *at =
        gs_message_begin(out, GS_READY, serial, 1 + TEXT_HEAD_BYTES + (size_t)ready->reason.length);
    if (!at)
        return -ENOMEM;
    gs_put_u8(&at, ready->transport);
    put_text(&at, ready->reason);
    return 0;
}

int gs_ready_decode(const void *body, size_t size, struct gs_ready *ret_ready)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_ready ready;
    const unsigned char *at = gs_cursor_take(&cursor, 1);
    if (!at || take_line(&cursor, &ready.reason) || finish(&cursor))
        return -EBADMSG;
    ready.transport = gs_get_u8(&at);
    *ret_ready = ready;
    return 0;
}

/* ---- the table ---- */

int gs_list_encode(struct gs_bytes *out, uint64_t serial, const struct gs_list *list)
{
    unsigned char *at = gs_message_begin(out, GS_LIST, serial, 12);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, list->first);
    gs_put_u32(&at, list->count);
    return 0;
}

int gs_list_decode(const void *body, size_t size, struct gs_list *ret_list)
{
    const unsigned char *at = body;
    if (size != 12)
        return -EBADMSG;
    ret_list->first = gs_get_u64(&at);
    ret_list->count = gs_get_u32(&at);
    return 0;
}

enum { PAGE_BYTES = 8 + 8 + 4, ENTRY_BYTES = 4 + 4 + 8 + 8 + 4 };

int gs_regions_begin(struct gs_bytes *out, uint64_t serial, uint64_t total, uint64_t first)
{
    unsigned char *at = gs_message_begin(out, GS_REGIONS, serial, PAGE_BYTES);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, total);
    gs_put_u64(&at, first);
    gs_put_u32(&at, 0);
    return 0;
}

/* Add `count` and `bytes` to the counters at the head of the page that starts `page_at` bytes into the queue.
 */
static void page_grew(struct gs_bytes *out, size_t page_at, size_t bytes)
{
    unsigned char *frame = out->data + out->head + page_at, *counter = frame + GS_FRAME_BYTES + 16;
    const unsigned char *old_bytes = frame, *old_count = counter;
    gs_put_u32(&frame, gs_get_u32(&old_bytes) + (uint32_t)bytes);
    gs_put_u32(&counter, gs_get_u32(&old_count) + 1);
}

int gs_regions_add(struct gs_bytes *out, size_t page_at, const struct gs_region_entry *entry)
{
    size_t bytes = ENTRY_BYTES + TEXT_HEAD_BYTES + entry->name.length;
    if (gs_bytes_queued(out) - page_at - GS_FRAME_BYTES + bytes > GS_BODY_MAX)
        return -ENOSPC;
    unsigned char *at = gs_bytes_grow(out, bytes);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, entry->region);
    gs_put_u8(&at, entry->kind);
    gs_put_u8(&at, entry->access);
    gs_put_u8(&at, entry->place);
    gs_put_u8(&at, 0);
    gs_put_u64(&at, entry->length);
    gs_put_u64(&at, (uint64_t)entry->mtime_ns);
    gs_put_u32(&at, entry->mode);
    put_text(&at, entry->name);
    page_grew(out, page_at, bytes);
    return 0;
}

/* The entry at the cursor. */
static int take_entry(struct gs_cursor *cursor, struct gs_region_entry *ret_entry)
{
    struct gs_region_entry entry;
    const unsigned char *at = gs_cursor_take(cursor, ENTRY_BYTES);
    if (!at || take_text(cursor, GPUSYS_NAME_BYTES - 1, &entry.name))
        return -EBADMSG;
    entry.region = gs_get_u32(&at);
    entry.kind = gs_get_u8(&at);
    entry.access = gs_get_u8(&at);
    entry.place = gs_get_u8(&at);
    uint8_t zero = gs_get_u8(&at);
    entry.length = gs_get_u64(&at);
    entry.mtime_ns = (int64_t)gs_get_u64(&at);
    entry.mode = gs_get_u32(&at);
    if (zero)
        return -EBADMSG;
    *ret_entry = entry;
    return 0;
}

/* Walk over all entries once, so that a page is taken whole or not at all. */
static int check_entries(struct gs_cursor cursor, uint32_t count)
{
    struct gs_region_entry entry;
    for (uint32_t i = 0; i < count; i++)
        if (take_entry(&cursor, &entry))
            return -EBADMSG;
    return finish(&cursor);
}

int gs_regions_decode(const void *body, size_t size, struct gs_regions *ret_regions)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_regions regions;
    const unsigned char *at = gs_cursor_take(&cursor, PAGE_BYTES);
    if (!at)
        return -EBADMSG;
    regions.total = gs_get_u64(&at);
    regions.first = gs_get_u64(&at);
    regions.count = gs_get_u32(&at);
    if (regions.first > regions.total || regions.count > regions.total - regions.first ||
        check_entries(cursor, regions.count))
        return -EBADMSG;
    regions.entries = cursor;
    *ret_regions = regions;
    return 0;
}

int gs_region_entry_next(struct gs_regions *regions, struct gs_region_entry *ret_entry)
{
    return take_entry(&regions->entries, ret_entry);
}

/* ---- checksums ---- */

enum { SUM_BYTES = 16 };

static void put_sum(unsigned char **at, uint32_t region, uint64_t first, uint32_t count)
{
    gs_put_u32(at, region);
    gs_put_u64(at, first);
    gs_put_u32(at, count);
}

int gs_sum_encode(struct gs_bytes *out, uint64_t serial, const struct gs_sum *sum)
{
    unsigned char *at = gs_message_begin(out, GS_SUM, serial, SUM_BYTES);
    if (!at)
        return -ENOMEM;
    put_sum(&at, sum->region, sum->first, sum->count);
    return 0;
}

int gs_sum_decode(const void *body, size_t size, struct gs_sum *ret_sum)
{
    const unsigned char *at = body;
    if (size != SUM_BYTES)
        return -EBADMSG;
    struct gs_sum sum = {.region = gs_get_u32(&at)};
    sum.first = gs_get_u64(&at);
    sum.count = gs_get_u32(&at);
    if (sum.count == 0 || sum.count > GS_CHECKSUMS_MAX || sum.first > UINT64_MAX - sum.count)
        return -EBADMSG;
    *ret_sum = sum;
    return 0;
}

int gs_sums_encode(struct gs_bytes *out, uint64_t serial, const struct gs_sums *sums)
{
    unsigned char *at =
        gs_message_begin(out, GS_SUMS, serial, SUM_BYTES + (size_t)sums->count * GPUSYS_HASH_BYTES);
    if (!at)
        return -ENOMEM;
    put_sum(&at, sums->region, sums->first, sums->count);
    gs_put_bytes(&at, sums->hashes, (size_t)sums->count * GPUSYS_HASH_BYTES);
    return 0;
}

int gs_sums_decode(const void *body, size_t size, struct gs_sums *ret_sums)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    const unsigned char *head = gs_cursor_take(&cursor, SUM_BYTES);
    struct gs_sum sum;
    if (!head || gs_sum_decode(head, SUM_BYTES, &sum))
        return -EBADMSG;
    const unsigned char *hashes = gs_cursor_take(&cursor, (size_t)sum.count * GPUSYS_HASH_BYTES);
    if (!hashes || finish(&cursor))
        return -EBADMSG;
    *ret_sums = (struct gs_sums){.region = sum.region,
                                 .first = sum.first,
                                 .count = sum.count,
                                 .hashes = (const uint8_t(*)[GPUSYS_HASH_BYTES])hashes};
    return 0;
}

/* ---- arenas, rails, notes ---- */

int gs_arena_encode(struct gs_bytes *out, uint64_t serial, uint64_t bytes)
{
    unsigned char *at = gs_message_begin(out, GS_ARENA, serial, 8);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, bytes);
    return 0;
}

int gs_arena_decode(const void *body, size_t size, uint64_t *ret_bytes)
{
    const unsigned char *at = body;
    if (size != 8)
        return -EBADMSG;
    *ret_bytes = gs_get_u64(&at);
    return 0;
}

int gs_granted_encode(struct gs_bytes *out, uint64_t serial, const struct gs_granted *granted)
{
    unsigned char *at = gs_message_begin(out, GS_GRANTED, serial, 12);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, granted->region);
    gs_put_u64(&at, granted->length);
    return 0;
}

int gs_granted_decode(const void *body, size_t size, struct gs_granted *ret_granted)
{
    const unsigned char *at = body;
    if (size != 12)
        return -EBADMSG;
    ret_granted->region = gs_get_u32(&at);
    ret_granted->length = gs_get_u64(&at);
    return 0;
}

int gs_fence_encode(struct gs_bytes *out, uint64_t serial, const struct gs_fence *fence)
{
    unsigned char *at = gs_message_begin(out, GS_FENCE, serial, 8);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, fence->rail);
    gs_put_u32(&at, fence->generation);
    return 0;
}

int gs_fence_decode(const void *body, size_t size, struct gs_fence *ret_fence)
{
    const unsigned char *at = body;
    if (size != 8)
        return -EBADMSG;
    uint32_t rail = gs_get_u32(&at);
    if (rail >= GS_RAILS_MAX)
        return -EBADMSG;
    *ret_fence = (struct gs_fence){.rail = (uint8_t)rail, .generation = gs_get_u32(&at)};
    return 0;
}

int gs_note_encode(struct gs_bytes *out, uint64_t serial, const void *note, uint32_t note_bytes)
{
    unsigned char *at = gs_message_begin(out, GS_NOTE, serial, note_bytes);
    if (!at)
        return -ENOMEM;
    gs_put_bytes(&at, note, note_bytes);
    return 0;
}

enum { ATTACH_BYTES = GS_NONCE_BYTES + 8 };

int gs_attach_encode(struct gs_bytes *out, uint64_t serial, const struct gs_attach *attach)
{
    unsigned char *at = gs_message_begin(out, GS_ATTACH, serial, ATTACH_BYTES);
    if (!at)
        return -ENOMEM;
    gs_put_bytes(&at, attach->session, GS_NONCE_BYTES);
    gs_put_u8(&at, attach->transport);
    gs_put_u8(&at, attach->rail);
    gs_put_u16(&at, 0);
    gs_put_u32(&at, attach->generation);
    return 0;
}

int gs_attach_decode(const void *body, size_t size, struct gs_attach *ret_attach)
{
    const unsigned char *at = body;
    struct gs_attach attach;
    if (size != ATTACH_BYTES)
        return -EBADMSG;
    gs_get_bytes(&at, attach.session, GS_NONCE_BYTES);
    attach.transport = gs_get_u8(&at);
    attach.rail = gs_get_u8(&at);
    uint16_t zero = gs_get_u16(&at);
    attach.generation = gs_get_u32(&at);
    if (attach.rail >= GS_RAILS_MAX || zero)
        return -EBADMSG;
    *ret_attach = attach;
    return 0;
}

int gs_attached_encode(struct gs_bytes *out, uint64_t serial, const uint8_t proof[GS_NONCE_BYTES])
{
    unsigned char *at = gs_message_begin(out, GS_ATTACHED, serial, GS_NONCE_BYTES);
    if (!at)
        return -ENOMEM;
    gs_put_bytes(&at, proof, GS_NONCE_BYTES);
    return 0;
}

int gs_attached_decode(const void *body, size_t size, uint8_t ret_proof[GS_NONCE_BYTES])
{
    if (size != GS_NONCE_BYTES)
        return -EBADMSG;
    memcpy(ret_proof, body, GS_NONCE_BYTES);
    return 0;
}

enum { MAPPED_BYTES = 16 };

int gs_mapped_encode(struct gs_bytes *out, uint64_t serial, const struct gs_mapped *mapped)
{
    unsigned char *at = gs_message_begin(out, GS_MAPPED, serial, MAPPED_BYTES);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, mapped->region);
    gs_put_u32(&at, mapped->huge);
    gs_put_u64(&at, mapped->length);
    return 0;
}

int gs_mapped_decode(const void *body, size_t size, struct gs_mapped *ret_mapped)
{
    const unsigned char *at = body;
    if (size != MAPPED_BYTES)
        return -EBADMSG;
    struct gs_mapped mapped = {.region = gs_get_u32(&at)};
    uint32_t huge = gs_get_u32(&at);
    mapped.length = gs_get_u64(&at);
    if (huge > 1)
        return -EBADMSG;
    mapped.huge = (uint8_t)huge;
    *ret_mapped = mapped;
    return 0;
}

int gs_region_message_encode(struct gs_bytes *out, enum gs_message_type type, uint64_t serial,
                             uint32_t region)
{
    unsigned char *at = gs_message_begin(out, type, serial, 4);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, region);
    return 0;
}

int gs_region_message_decode(const void *body, size_t size, uint32_t *ret_region)
{
    const unsigned char *at = body;
    if (size != 4)
        return -EBADMSG;
    *ret_region = gs_get_u32(&at);
    return 0;
}

int gs_empty_encode(struct gs_bytes *out, enum gs_message_type type, uint64_t serial)
{
    return gs_message_begin(out, type, serial, 0) ? 0 : -ENOMEM;
}

int gs_refusal_errno(uint32_t refusal)
{
    switch (refusal) {
    case GS_REFUSED_VERSION: return -EPROTONOSUPPORT;
    case GS_REFUSED_COOKIE: return -EACCES;
    case GS_REFUSED_BUSY: return -EBUSY;
    case GS_REFUSED_SESSION: return -ENOTCONN;
    case GS_REFUSED_REGION: return -ENOENT;
    case GS_REFUSED_RANGE: return -ERANGE;
    case GS_REFUSED_LIMIT: return -EDQUOT;
    case GS_REFUSED_CHANGED: return -ESTALE;
    case GS_REFUSED_IO: return -EIO;
    default: return -EPROTO; /* MESSAGE, and codes that a newer peer may have */
    }
}
