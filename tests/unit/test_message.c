/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages of gpusys/1: golden bytes (which docs/protocol.md shows too), every truncation, every bound. */
#include "wire/message.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <gpusys/remote.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/gpusys1.h"

/* ---- hex ---- */

static void check_hex(const void *bytes, size_t size, const char *hex)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++) {
        char two[3];
        snprintf(two, sizeof two, "%02x", at[i]);
        hex += strspn(hex, " ");
        assert_memory_equal(hex, two, 2);
        hex += 2;
    }
    assert_int_equal(*hex, 0);
}

static unsigned digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* The body of a golden message on the heap, exactly as long, so that a sanitizer sees a read past its end. */
static unsigned char *body_of(const char *hex, size_t *ret_size)
{
    unsigned char bytes[1024];
    size_t n = 0;
    for (; *hex; hex += 2) {
        hex += strspn(hex, " ");
        bytes[n++] = (unsigned char)(digit(hex[0]) << 4 | digit(hex[1]));
    }
    *ret_size = n - GS_FRAME_BYTES;
    unsigned char *body = malloc(*ret_size ? *ret_size : 1);
    assert_non_null(body);
    memcpy(body, bytes + GS_FRAME_BYTES, *ret_size);
    return body;
}

/* ---- the golden messages ---- */

static struct gs_hello hello = {.version = 1};
static struct gs_hello hello_rail = {.version = 2, .features = UINT64_C(0x8000000000000001), .n_rails = 1};
static struct gs_welcome welcome = {
    .version = 1, .n_regions = 2, .arena_bytes = 1 << 20, .slice_max = GS_SLICE_MAX, .requests_max = 1024};
static struct gs_attach attach = {.transport = GPUSYS_TRANSPORT_TCP, .rail = 0, .generation = 1};
static struct gs_ready ready = {.transport = GPUSYS_TRANSPORT_TCP};
static struct gs_refused refused = {.refusal = GS_REFUSED_REGION};
static const struct gs_list list = {.first = 0, .count = UINT32_MAX};
static const struct gs_sum sum = {.region = 0, .first = 0, .count = 1};
static const struct gs_granted granted = {.region = 0x80000000, .length = 65536};
static const struct gs_fence fence = {.rail = 0, .generation = 1};
static const struct gs_mapped mapped = {.region = 1, .length = UINT64_C(1) << 40, .huge = 1};
static struct gs_region_entry entries[2] = {
    {.region = 0,
     .kind = GPUSYS_REGION_FILE,
     .access = 1,
     .place = GPUSYS_PLACE_FILE,
     .length = 5,
     .mtime_ns = 1700000000123456789,
     .mode = 0644},
    {.region = 1,
     .kind = GPUSYS_REGION_MEMORY,
     .access = 3,
     .place = GPUSYS_PLACE_MEMORY,
     .length = UINT64_C(1) << 40},
};
static uint8_t hashes[1][GPUSYS_HASH_BYTES];
static struct gs_bytes out;

static void count_up(uint8_t *bytes, size_t size, uint8_t from)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(from + i);
}

static int set_up(void **state)
{
    (void)state;
    count_up(hello.cookie, sizeof hello.cookie, 0x40);
    count_up(welcome.cookie, sizeof welcome.cookie, 0x50);
    count_up(welcome.session, sizeof welcome.session, 0x60);
    count_up(welcome.proof, sizeof welcome.proof, 0x70);
    count_up(attach.session, sizeof attach.session, 0x60);
    hello.name = gs_text_of("golden");
    hello_rail.name = gs_text_of("v");
    hello_rail.rails[0] = (struct gs_rail_record){.transport = GPUSYS_TRANSPORT_VERBS,
                                                  .link_layer = 2,
                                                  .lid = 0x0102,
                                                  .gid_index = 3,
                                                  .mtu_bytes = 4096,
                                                  .reads_out = 16,
                                                  .reads_in = 8,
                                                  .numa_node = -1,
                                                  .qpn = 0x112233,
                                                  .psn = 0xaabbcc,
                                                  .generation = 5,
                                                  .device = "mlx5_0:1"};
    count_up(hello_rail.rails[0].gid, 16, 0x20);
    welcome.unix_path = gs_text_of("/run/gpusys/tcp-127.0.0.1-7471.sock");
    ready.reason = gs_text_of("tcp: as required");
    refused.reason = gs_text_of("there is no region 9");
    entries[0].name = gs_text_of("model/hello.txt");
    entries[1].name = gs_text_of("kv");
    gpusys_hash("hello", 5, hashes[0]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gs_bytes_free(&out);
    return 0;
}

static struct gs_sums golden_sums(void)
{
    return (struct gs_sums){.count = 1, .hashes = (const uint8_t(*)[GPUSYS_HASH_BYTES])hashes};
}

/* What was just encoded is this. */
static void expect(int code, const char *hex)
{
    assert_int_equal(code, 0);
    check_hex(out.data + out.head, gs_bytes_queued(&out), hex);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
}

static void golden_opening(void **state)
{
    (void)state;
    check_hex(GS_MAGIC, GS_MAGIC_BYTES, GOLDEN_MAGIC);
    expect(gs_hello_encode(&out, 1, &hello), GOLDEN_HELLO);
    expect(gs_hello_encode(&out, 2, &hello_rail), GOLDEN_HELLO_RAIL);
    expect(gs_welcome_encode(&out, 1, &welcome), GOLDEN_WELCOME);
    expect(gs_attach_encode(&out, 1, &attach), GOLDEN_ATTACH);
    expect(gs_attached_encode(&out, 1, welcome.proof), GOLDEN_ATTACHED);
    expect(gs_ready_encode(&out, 2, &ready), GOLDEN_READY);
    expect(gs_empty_encode(&out, GS_GO, 2), GOLDEN_GO);
}

static void golden_requests(void **state)
{
    struct gs_sums sums = golden_sums();
    (void)state;
    expect(gs_list_encode(&out, 3, &list), GOLDEN_LIST);
    expect(gs_sum_encode(&out, 4, &sum), GOLDEN_SUM);
    expect(gs_sums_encode(&out, 4, &sums), GOLDEN_SUMS);
    expect(gs_arena_encode(&out, 5, 65536), GOLDEN_ARENA);
    expect(gs_granted_encode(&out, 5, &granted), GOLDEN_GRANTED);
    expect(gs_region_message_encode(&out, GS_ARENA_FREE, 6, 0x80000000), GOLDEN_ARENA_FREE);
    expect(gs_empty_encode(&out, GS_FREED, 6), GOLDEN_FREED);
    expect(gs_fence_encode(&out, 7, &fence), GOLDEN_FENCE);
    expect(gs_empty_encode(&out, GS_FENCED, 7), GOLDEN_FENCED);
    expect(gs_note_encode(&out, 8, "done", 4), GOLDEN_NOTE);
    expect(gs_empty_encode(&out, GS_NOTED, 8), GOLDEN_NOTED);
    expect(gs_empty_encode(&out, GS_PING, 9), GOLDEN_PING);
    expect(gs_empty_encode(&out, GS_PONG, 9), GOLDEN_PONG);
    expect(gs_region_message_encode(&out, GS_CHANGED, 0, 0), GOLDEN_CHANGED);
    expect(gs_refused_encode(&out, 10, &refused), GOLDEN_REFUSED);
    expect(gs_region_message_encode(&out, GS_MAP, 1, 1), GOLDEN_MAP);
    expect(gs_mapped_encode(&out, 1, &mapped), GOLDEN_MAPPED);
}

static void golden_page(void **state)
{
    (void)state;
    assert_int_equal(gs_regions_begin(&out, 3, 2, 0), 0);
    assert_int_equal(gs_regions_add(&out, 0, &entries[0]), 0);
    expect(gs_regions_add(&out, 0, &entries[1]), GOLDEN_REGIONS);
}

static void golden_data_frames(void **state)
{
    unsigned char at[GS_REQUEST_BYTES];
    (void)state;
    gs_request_put(at, &(struct gs_request){.op = GPUSYS_OP_READ, .length = 5, .tag = 7});
    check_hex(at, GS_REQUEST_BYTES, GOLDEN_REQUEST);
    gs_request_put(at, &(struct gs_request){.op = GPUSYS_OP_WRITE,
                                            .region = 1,
                                            .offset = 0x0102030405060708,
                                            .length = 0x10000,
                                            .tag = 0x3ff});
    check_hex(at, GS_REQUEST_BYTES, GOLDEN_REQUEST_WRITE);
    gs_reply_put(at, &(struct gs_reply){.status = GS_STATUS_OK, .length = 5, .tag = 7});
    check_hex(at, GS_REPLY_BYTES, GOLDEN_REPLY);
    gs_reply_put(at, &(struct gs_reply){.status = GS_STATUS_RANGE, .tag = 0x3ff});
    check_hex(at, GS_REPLY_BYTES, GOLDEN_REPLY_BAD);
}

/* A weight peer takes the first u32 for a length of at most 8192. */
static void the_magic_is_no_length(void **state)
{
    uint32_t first;
    (void)state;
    memcpy(&first, GS_MAGIC, sizeof first);
    assert_true(le32toh(first) > 8192);
}

/* ---- and back ---- */

static bool same_text(struct gs_text a, struct gs_text b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static void opening_comes_back(void **state)
{
    size_t size;
    unsigned char *body = body_of(GOLDEN_HELLO_RAIL, &size);
    struct gs_hello hello_back;
    struct gs_welcome welcome_back;
    struct gs_attach attach_back;
    struct gs_ready ready_back;
    uint8_t proof[GS_NONCE_BYTES];
    (void)state;
    assert_int_equal(gs_hello_decode(body, size, &hello_back), 0);
    assert_int_equal(hello_back.version, 2);
    assert_true(hello_back.features == hello_rail.features && hello_back.n_rails == 1);
    assert_memory_equal(&hello_back.rails[0], &hello_rail.rails[0], sizeof hello_rail.rails[0]);
    assert_true(same_text(hello_back.name, hello_rail.name));
    free(body);
    body = body_of(GOLDEN_WELCOME, &size);
    assert_int_equal(gs_welcome_decode(body, size, &welcome_back), 0);
    assert_memory_equal(welcome_back.cookie, welcome.cookie, sizeof welcome.cookie);
    assert_memory_equal(welcome_back.session, welcome.session, sizeof welcome.session);
    assert_memory_equal(welcome_back.proof, welcome.proof, sizeof welcome.proof);
    assert_true(welcome_back.version == 1 && welcome_back.n_regions == 2 &&
                welcome_back.arena_bytes == 1 << 20);
    assert_true(welcome_back.slice_max == GS_SLICE_MAX && welcome_back.requests_max == 1024);
    assert_true(same_text(welcome_back.unix_path, welcome.unix_path));
    free(body);
    body = body_of(GOLDEN_ATTACH, &size);
    assert_int_equal(gs_attach_decode(body, size, &attach_back), 0);
    assert_memory_equal(attach_back.session, attach.session, sizeof attach.session);
    assert_true(attach_back.transport == attach.transport && attach_back.rail == 0 &&
                attach_back.generation == 1);
    free(body);
    body = body_of(GOLDEN_ATTACHED, &size);
    assert_int_equal(gs_attached_decode(body, size, proof), 0);
    assert_memory_equal(proof, welcome.proof, sizeof proof);
    free(body);
    body = body_of(GOLDEN_READY, &size);
    assert_int_equal(gs_ready_decode(body, size, &ready_back), 0);
    assert_true(ready_back.transport == ready.transport && same_text(ready_back.reason, ready.reason));
    free(body);
}

static void requests_come_back(void **state)
{
    size_t size;
    unsigned char *body = body_of(GOLDEN_LIST, &size);
    struct gs_list list_back;
    struct gs_sum sum_back;
    struct gs_sums sums_back;
    struct gs_refused refused_back;
    (void)state;
    assert_int_equal(gs_list_decode(body, size, &list_back), 0);
    assert_true(list_back.first == 0 && list_back.count == UINT32_MAX);
    free(body);
    body = body_of(GOLDEN_SUM, &size);
    assert_int_equal(gs_sum_decode(body, size, &sum_back), 0);
    assert_true(sum_back.region == 0 && sum_back.first == 0 && sum_back.count == 1);
    free(body);
    body = body_of(GOLDEN_SUMS, &size);
    assert_int_equal(gs_sums_decode(body, size, &sums_back), 0);
    assert_true(sums_back.region == 0 && sums_back.first == 0 && sums_back.count == 1);
    assert_memory_equal(sums_back.hashes[0], hashes[0], GPUSYS_HASH_BYTES);
    free(body);
    body = body_of(GOLDEN_REFUSED, &size);
    assert_int_equal(gs_refused_decode(body, size, &refused_back), 0);
    assert_true(refused_back.refusal == GS_REFUSED_REGION && same_text(refused_back.reason, refused.reason));
    free(body);
}

static void small_ones_come_back(void **state)
{
    size_t size;
    uint64_t bytes;
    uint32_t region;
    struct gs_granted granted_back;
    struct gs_fence fence_back;
    struct gs_mapped mapped_back;
    unsigned char *body = body_of(GOLDEN_ARENA, &size);
    (void)state;
    assert_int_equal(gs_arena_decode(body, size, &bytes), 0);
    assert_true(bytes == 65536);
    free(body);
    body = body_of(GOLDEN_GRANTED, &size);
    assert_int_equal(gs_granted_decode(body, size, &granted_back), 0);
    assert_true(granted_back.region == granted.region && granted_back.length == granted.length);
    free(body);
    body = body_of(GOLDEN_FENCE, &size);
    assert_int_equal(gs_fence_decode(body, size, &fence_back), 0);
    assert_true(fence_back.rail == 0 && fence_back.generation == 1);
    free(body);
    body = body_of(GOLDEN_MAPPED, &size);
    assert_int_equal(gs_mapped_decode(body, size, &mapped_back), 0);
    assert_true(mapped_back.region == 1 && mapped_back.length == mapped.length && mapped_back.huge == 1);
    free(body);
    body = body_of(GOLDEN_ARENA_FREE, &size);
    assert_int_equal(gs_region_message_decode(body, size, &region), 0);
    assert_true(region == 0x80000000);
    free(body);
}

static void a_page_comes_back(void **state)
{
    size_t size;
    unsigned char *body = body_of(GOLDEN_REGIONS, &size);
    struct gs_regions page;
    struct gs_region_entry entry;
    (void)state;
    assert_int_equal(gs_regions_decode(body, size, &page), 0);
    assert_true(page.total == 2 && page.first == 0 && page.count == 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(gs_region_entry_next(&page, &entry), 0);
        assert_true(entry.region == i && entry.kind == entries[i].kind && entry.access == entries[i].access);
        assert_true(entry.place == entries[i].place && entry.length == entries[i].length);
        assert_true(entry.mtime_ns == entries[i].mtime_ns && entry.mode == entries[i].mode);
        assert_true(same_text(entry.name, entries[i].name));
    }
    assert_int_equal(gs_region_entry_next(&page, &entry), -EBADMSG);
    free(body);
}

/* ---- too short, too long ---- */

/* Every decoder as one type; what it gives is of no interest here. */
#define DECODER(name, type)                                                                                  \
    static int decode_##name(const void *body, size_t size)                                                  \
    {                                                                                                        \
        type message;                                                                                        \
        return gs_##name##_decode(body, size, &message);                                                     \
    }
DECODER(hello, struct gs_hello)
DECODER(welcome, struct gs_welcome)
DECODER(refused, struct gs_refused)
DECODER(ready, struct gs_ready)
DECODER(list, struct gs_list)
DECODER(regions, struct gs_regions)
DECODER(sum, struct gs_sum)
DECODER(sums, struct gs_sums)
DECODER(arena, uint64_t)
DECODER(granted, struct gs_granted)
DECODER(fence, struct gs_fence)
DECODER(attach, struct gs_attach)
DECODER(mapped, struct gs_mapped)
DECODER(region_message, uint32_t)

static int decode_attached(const void *body, size_t size)
{
    uint8_t proof[GS_NONCE_BYTES];
    return gs_attached_decode(body, size, proof);
}

static const struct {
    const char *name, *hex;
    int (*decode)(const void *body, size_t size); /* NULL: no body, or any */
} goldens[] = {
    {"magic", GOLDEN_MAGIC, NULL},
    {"HELLO", GOLDEN_HELLO, decode_hello},
    {"HELLO with a rail", GOLDEN_HELLO_RAIL, decode_hello},
    {"WELCOME", GOLDEN_WELCOME, decode_welcome},
    {"REFUSED", GOLDEN_REFUSED, decode_refused},
    {"READY", GOLDEN_READY, decode_ready},
    {"GO", GOLDEN_GO, NULL},
    {"LIST", GOLDEN_LIST, decode_list},
    {"REGIONS", GOLDEN_REGIONS, decode_regions},
    {"SUM", GOLDEN_SUM, decode_sum},
    {"SUMS", GOLDEN_SUMS, decode_sums},
    {"ARENA", GOLDEN_ARENA, decode_arena},
    {"GRANTED", GOLDEN_GRANTED, decode_granted},
    {"ARENA_FREE", GOLDEN_ARENA_FREE, decode_region_message},
    {"FREED", GOLDEN_FREED, NULL},
    {"FENCE", GOLDEN_FENCE, decode_fence},
    {"FENCED", GOLDEN_FENCED, NULL},
    {"NOTE", GOLDEN_NOTE, NULL},
    {"NOTED", GOLDEN_NOTED, NULL},
    {"PING", GOLDEN_PING, NULL},
    {"PONG", GOLDEN_PONG, NULL},
    {"CHANGED", GOLDEN_CHANGED, decode_region_message},
    {"ATTACH", GOLDEN_ATTACH, decode_attach},
    {"ATTACHED", GOLDEN_ATTACHED, decode_attached},
    {"MAP", GOLDEN_MAP, decode_region_message},
    {"MAPPED", GOLDEN_MAPPED, decode_mapped},
    {"a read", GOLDEN_REQUEST, NULL},
    {"a write", GOLDEN_REQUEST_WRITE, NULL},
    {"a reply", GOLDEN_REPLY, NULL},
    {"a refusing reply", GOLDEN_REPLY_BAD, NULL},
};
enum { N_GOLDENS = sizeof goldens / sizeof *goldens };

/* A copy of `size` bytes, the rest zero, exactly `room` long. */
static unsigned char *exactly(const void *bytes, size_t size, size_t room)
{
    unsigned char *copy = calloc(1, room ? room : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    return copy;
}

static void every_length_but_the_right_one(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        size_t whole;
        if (!goldens[i].decode)
            continue;
        unsigned char *body = body_of(goldens[i].hex, &whole);
        for (size_t size = 0; size <= whole + 1; size++) {
            unsigned char *cut = exactly(body, size < whole ? size : whole, size);
            int code = goldens[i].decode(cut, size);
            if (code != (size == whole ? 0 : -EBADMSG))
                fail_msg("%s: %zu of %zu bytes give %d", goldens[i].name, size, whole, code);
            free(cut);
        }
        free(body);
    }
}

/* ---- bounds ---- */

/* Encode with `encode`, change one byte of the body, decode with `decode`. */
static int with_byte(const char *hex, int (*decode)(const void *, size_t), size_t at, unsigned char value)
{
    size_t size;
    unsigned char *body = body_of(hex, &size);
    assert_true(at < size);
    body[at] = value;
    int code = decode(body, size);
    free(body);
    return code;
}

static void reserved_fields_are_0(void **state)
{
    static const struct {
        const char *hex;
        int (*decode)(const void *body, size_t size);
        size_t from, to;
    } reserved[] = {
        {GOLDEN_HELLO, decode_hello, 4, 8},       {GOLDEN_WELCOME, decode_welcome, 4, 8},
        {GOLDEN_REGIONS, decode_regions, 27, 28}, {GOLDEN_ATTACH, decode_attach, 18, 20},
        {GOLDEN_MAPPED, decode_mapped, 5, 8},     {GOLDEN_FENCE, decode_fence, 1, 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        for (size_t at = reserved[i].from; at < reserved[i].to; at++)
            for (unsigned value = 1; value < 256; value <<= 1)
                assert_int_equal(with_byte(reserved[i].hex, reserved[i].decode, at, (unsigned char)value),
                                 -EBADMSG);
}

/* A body of HELLO with that many rails, and a name. */
static int hello_of(uint8_t n_rails, uint16_t name_bytes, char filling)
{
    enum { HEAD = 32, RAIL = 64 };
    size_t size = HEAD + 1 + (size_t)n_rails * RAIL + 2 + name_bytes;
    struct gs_hello message;
    unsigned char *body = calloc(1, size), *at = body + HEAD;
    assert_non_null(body);
    gs_put_u8(&at, n_rails);
    at += (size_t)n_rails * RAIL;
    gs_put_u16(&at, name_bytes);
    memset(at, filling, name_bytes);
    int code = gs_hello_decode(body, size, &message);
    if (code == 0)
        assert_true(message.n_rails == n_rails && message.name.length == name_bytes);
    free(body);
    return code;
}

static void rails_and_texts(void **state)
{
    (void)state;
    assert_int_equal(hello_of(0, 0, 'n'), 0);
    assert_int_equal(hello_of(GS_RAILS_MAX, 5, 'n'), 0);
    assert_int_equal(hello_of(GS_RAILS_MAX + 1, 5, 'n'), -EBADMSG);
    assert_int_equal(hello_of(255, 5, 'n'), -EBADMSG);
    assert_int_equal(hello_of(1, GS_TEXT_MAX, 'n'), 0);
    assert_int_equal(hello_of(1, GS_TEXT_MAX + 1, 'n'), -EBADMSG);
    for (int byte = 0; byte < 0x20; byte++)
        assert_int_equal(hello_of(0, 3, (char)byte), -EBADMSG);
    assert_int_equal(hello_of(0, 3, 0x7f), -EBADMSG);
    assert_int_equal(hello_of(0, 3, ' '), 0);
    assert_int_equal(hello_of(0, 3, (char)0xe4), 0); /* not UTF-8, but no terminal obeys it */
}

/* What a terminal would obey is in no reason and no name. */
static void control_bytes_in_texts(void **state)
{
    (void)state;
    assert_int_equal(with_byte(GOLDEN_REFUSED, decode_refused, 8, 0x1b), -EBADMSG);
    assert_int_equal(with_byte(GOLDEN_REFUSED, decode_refused, 8, 0), -EBADMSG);
    assert_int_equal(with_byte(GOLDEN_READY, decode_ready, 5, '\n'), -EBADMSG);
    assert_int_equal(with_byte(GOLDEN_WELCOME, decode_welcome, 93, 0),
                     -EBADMSG); /* a path: only NUL is refused */
    assert_int_equal(with_byte(GOLDEN_WELCOME, decode_welcome, 93, '\t'), 0);
    struct gs_refused csi = {.refusal = 1,
                             .reason = gs_text_of("\xc2\x9b"
                                                  "2J")},
                      umlaut = {.reason = gs_text_of("\xc3\x9c")};
    struct gs_refused back;
    assert_int_equal(gs_refused_encode(&out, 1, &csi), 0);
    assert_int_equal(
        gs_refused_decode(out.data + GS_FRAME_BYTES, gs_bytes_queued(&out) - GS_FRAME_BYTES, &back),
        -EBADMSG);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    assert_int_equal(gs_refused_encode(&out, 1, &umlaut), 0);
    assert_int_equal(
        gs_refused_decode(out.data + GS_FRAME_BYTES, gs_bytes_queued(&out) - GS_FRAME_BYTES, &back), 0);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
}

static void long_texts_are_cut(void **state)
{
    static char text[GS_TEXT_MAX + 100];
    (void)state;
    memset(text, 't', sizeof text - 1);
    assert_int_equal(gs_text_of(text).length, GS_TEXT_MAX);
    text[GS_TEXT_MAX] = 0;
    assert_int_equal(gs_text_of(text).length, GS_TEXT_MAX);
    assert_int_equal(gs_text_of("").length, 0);
    assert_int_equal(gs_text_of(NULL).length, 0);
}

static void a_device_name_ends(void **state)
{
    size_t size, last = 33 + 64 - 1;
    unsigned char *body = body_of(GOLDEN_HELLO_RAIL, &size);
    struct gs_hello back;
    (void)state;
    body[last] = 'x';
    assert_int_equal(gs_hello_decode(body, size, &back), -EBADMSG);
    free(body);
}

static int welcome_of(uint32_t slice_max, uint32_t requests_max)
{
    struct gs_welcome message = welcome, back;
    message.slice_max = slice_max;
    message.requests_max = requests_max;
    assert_int_equal(gs_welcome_encode(&out, 1, &message), 0);
    int code = gs_welcome_decode(out.data + GS_FRAME_BYTES, gs_bytes_queued(&out) - GS_FRAME_BYTES, &back);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    return code;
}

static void slices_and_requests(void **state)
{
    (void)state;
    assert_int_equal(welcome_of(0, 1), -EBADMSG);
    assert_int_equal(welcome_of(1, 1), 0);
    assert_int_equal(welcome_of(GS_SLICE_MAX, UINT32_MAX), 0);
    assert_int_equal(welcome_of(GS_SLICE_MAX + 1, 1), -EBADMSG);
    assert_int_equal(welcome_of(UINT32_MAX, 1), -EBADMSG);
    assert_int_equal(welcome_of(1, 0), -EBADMSG);
}

static int sum_of(uint64_t first, uint32_t count)
{
    struct gs_sum message = {.region = 1, .first = first, .count = count}, back;
    assert_int_equal(gs_sum_encode(&out, 1, &message), 0);
    int code = gs_sum_decode(out.data + GS_FRAME_BYTES, gs_bytes_queued(&out) - GS_FRAME_BYTES, &back);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    return code;
}

static void counts_of_checksums(void **state)
{
    static uint8_t many[GS_CHECKSUMS_MAX + 1][GPUSYS_HASH_BYTES];
    (void)state;
    assert_int_equal(sum_of(0, 0), -EBADMSG);
    assert_int_equal(sum_of(0, 1), 0);
    assert_int_equal(sum_of(0, GS_CHECKSUMS_MAX), 0);
    assert_int_equal(sum_of(0, GS_CHECKSUMS_MAX + 1), -EBADMSG);
    assert_int_equal(sum_of(UINT64_MAX, 1), -EBADMSG);
    assert_int_equal(sum_of(UINT64_MAX - GS_CHECKSUMS_MAX, GS_CHECKSUMS_MAX), 0);
    assert_int_equal(sum_of(UINT64_MAX - GS_CHECKSUMS_MAX + 1, GS_CHECKSUMS_MAX), -EBADMSG);
    for (uint32_t count = GS_CHECKSUMS_MAX; count <= GS_CHECKSUMS_MAX + 1; count++) {
        struct gs_sums sums = {.count = count, .hashes = (const uint8_t(*)[GPUSYS_HASH_BYTES])many}, back;
        assert_int_equal(gs_sums_encode(&out, 1, &sums), 0);
        int code = gs_sums_decode(out.data + GS_FRAME_BYTES, gs_bytes_queued(&out) - GS_FRAME_BYTES, &back);
        assert_int_equal(code, count == GS_CHECKSUMS_MAX ? 0 : -EBADMSG);
        gs_bytes_drop(&out, gs_bytes_queued(&out));
    }
}

static void rails_by_number(void **state)
{
    (void)state;
    assert_int_equal(with_byte(GOLDEN_FENCE, decode_fence, 0, GS_RAILS_MAX - 1), 0);
    assert_int_equal(with_byte(GOLDEN_FENCE, decode_fence, 0, GS_RAILS_MAX), -EBADMSG);
    assert_int_equal(with_byte(GOLDEN_ATTACH, decode_attach, 17, GS_RAILS_MAX - 1), 0);
    assert_int_equal(with_byte(GOLDEN_ATTACH, decode_attach, 17, GS_RAILS_MAX), -EBADMSG);
    assert_int_equal(with_byte(GOLDEN_MAPPED, decode_mapped, 4, 0), 0);
    assert_int_equal(with_byte(GOLDEN_MAPPED, decode_mapped, 4, 2), -EBADMSG);
}

static void frames(void **state)
{
    unsigned char bytes[GS_FRAME_BYTES] = {0};
    struct gs_frame frame;
    (void)state;
    bytes[2] = 4; /* 0x40000 */
    assert_int_equal(gs_frame_decode(bytes, &frame), 0);
    assert_int_equal(frame.body_bytes, GS_BODY_MAX);
    bytes[0] = 1;
    assert_int_equal(gs_frame_decode(bytes, &frame), -EBADMSG);
    bytes[2] = 0;
    assert_int_equal(gs_frame_decode(bytes, &frame), 0);
    for (unsigned at = 6; at < 8; at++) {
        bytes[at] = 1;
        assert_int_equal(gs_frame_decode(bytes, &frame), -EBADMSG);
        bytes[at] = 0;
    }
    bytes[4] = 0xff; /* of any type: that is for those who know its role */
    bytes[15] = 0x80;
    assert_int_equal(gs_frame_decode(bytes, &frame), 0);
    assert_true(frame.type == 0xff && frame.serial == UINT64_C(1) << 63);
}

/* ---- pages ---- */

static int add_entry(const char *name, uint16_t length)
{
    struct gs_region_entry entry = {.name = {.at = name, .length = length}};
    return gs_regions_add(&out, 0, &entry);
}

static int decode_page(struct gs_regions *ret_page)
{
    int code = gs_regions_decode(out.data + GS_FRAME_BYTES, gs_bytes_queued(&out) - GS_FRAME_BYTES, ret_page);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    return code;
}

static void names_of_regions(void **state)
{
    static char name[GPUSYS_NAME_BYTES];
    struct gs_regions page;
    (void)state;
    memset(name, 'n', sizeof name);
    assert_int_equal(gs_regions_begin(&out, 1, 1, 0), 0);
    assert_int_equal(add_entry(name, GPUSYS_NAME_BYTES - 1), 0);
    assert_int_equal(decode_page(&page), 0);
    assert_int_equal(gs_regions_begin(&out, 1, 1, 0), 0);
    assert_int_equal(add_entry(name, GPUSYS_NAME_BYTES), 0);
    assert_int_equal(decode_page(&page), -EBADMSG);
    name[1] = 0;
    assert_int_equal(gs_regions_begin(&out, 1, 1, 0), 0);
    assert_int_equal(add_entry(name, 3), 0);
    assert_int_equal(decode_page(&page), -EBADMSG);
}

/* A page takes entries up to the longest body, to the byte; what does not fit leaves it as it was. */
static void a_full_page(void **state)
{
    enum { HEAD = 20, ENTRY = 30 };
    static char name[4096];
    struct gs_regions page;
    size_t left = GS_BODY_MAX - HEAD;
    uint32_t count = 0;
    (void)state;
    memset(name, 'n', sizeof name);
    assert_int_equal(gs_regions_begin(&out, 1, UINT64_MAX, 0), 0);
    for (; left >= 2 * (ENTRY + 1000); left -= ENTRY + 1000, count++)
        assert_int_equal(add_entry(name, 1000), 0);
    assert_int_equal(add_entry(name, (uint16_t)(left - ENTRY + 1)), -ENOSPC);
    size_t before = gs_bytes_queued(&out);
    unsigned char *copy = exactly(out.data, before, before);
    assert_int_equal(add_entry(name, 4095), -ENOSPC);
    assert_int_equal(gs_bytes_queued(&out), before);
    assert_memory_equal(out.data, copy, before);
    free(copy);
    assert_int_equal(add_entry(name, (uint16_t)(left - ENTRY)), 0);
    assert_int_equal(gs_bytes_queued(&out), GS_FRAME_BYTES + GS_BODY_MAX);
    assert_int_equal(add_entry(name, 0), -ENOSPC);
    assert_int_equal(decode_page(&page), 0);
    assert_int_equal(page.count, count + 1);
}

/* The page need not be the first thing in the queue, nor lie at its start. */
static void a_page_behind_something_else(void **state)
{
    struct gs_regions page;
    (void)state;
    assert_int_equal(gs_empty_encode(&out, GS_PONG, 1), 0);
    assert_int_equal(gs_empty_encode(&out, GS_PONG, 2), 0);
    gs_bytes_drop(&out, GS_FRAME_BYTES);
    assert_int_equal(gs_regions_begin(&out, 1, 2, 0), 0);
    assert_int_equal(gs_regions_add(&out, GS_FRAME_BYTES, &entries[0]), 0);
    assert_int_equal(gs_regions_add(&out, GS_FRAME_BYTES, &entries[1]), 0);
    gs_bytes_drop(&out, GS_FRAME_BYTES);
    size_t size = gs_bytes_queued(&out) - GS_FRAME_BYTES;
    assert_int_equal(gs_regions_decode(out.data + out.head + GS_FRAME_BYTES, size, &page), 0);
    assert_int_equal(page.count, 2);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
}

/* [u64 total][u64 first][u32 count] and no entries, or as many bytes of zeros as 30 · `entries` are. */
static int page_of(uint64_t total, uint64_t first, uint32_t count, size_t n_entries)
{
    size_t size = 20 + 30 * n_entries;
    struct gs_regions page;
    unsigned char *body = calloc(1, size), *at = body;
    assert_non_null(body);
    gs_put_u64(&at, total);
    gs_put_u64(&at, first);
    gs_put_u32(&at, count);
    int code = gs_regions_decode(body, size, &page);
    free(body);
    return code;
}

static void counts_of_pages(void **state)
{
    (void)state;
    assert_int_equal(page_of(0, 0, 0, 0), 0);
    assert_int_equal(page_of(9, 9, 0, 0), 0);
    assert_int_equal(page_of(9, 10, 0, 0), -EBADMSG);
    assert_int_equal(page_of(9, 8, 1, 1), 0);
    assert_int_equal(page_of(9, 8, 2, 2), -EBADMSG);
    assert_int_equal(page_of(UINT64_MAX, UINT64_MAX - 1, 1, 1), 0);
    assert_int_equal(page_of(UINT64_MAX, UINT64_MAX, UINT32_MAX, 1), -EBADMSG);
    assert_int_equal(page_of(UINT64_MAX, 0, UINT32_MAX, 3), -EBADMSG);
    assert_int_equal(page_of(9, 0, 2, 1), -EBADMSG);
    assert_int_equal(page_of(9, 0, 1, 2), -EBADMSG); /* bytes behind the last entry */
}

/* ---- codes ---- */

static void refusals_and_statuses(void **state)
{
    static const int refusals[] = {-EPROTO, -EPROTONOSUPPORT, -EACCES, -EBUSY, -ENOTCONN, -ENOENT,
                                   -ERANGE, -EDQUOT,          -ESTALE, -EIO,   -EPROTO,   -EPROTO};
    static const int statuses[] = {0, -ERANGE, -EACCES, -ENOENT, -ESTALE, -EIO, -EIO};
    (void)state;
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++)
        assert_int_equal(gs_refusal_errno(i), refusals[i]);
    assert_int_equal(gs_refusal_errno(UINT32_MAX), -EPROTO);
    for (unsigned i = 0; i < sizeof statuses / sizeof *statuses; i++)
        assert_int_equal(gs_status_errno((uint8_t)i), statuses[i]);
    assert_int_equal(gs_status_errno(255), -EIO);
}

/* ---- data frames ---- */

static int request_of(uint32_t op, uint32_t length)
{
    unsigned char at[GS_REQUEST_BYTES] = {0}, *cursor = at;
    struct gs_request back;
    gs_put_u32(&cursor, op);
    cursor += 12;
    gs_put_u32(&cursor, length);
    return gs_request_get(at, &back);
}

static int reply_of(uint32_t status, uint32_t length)
{
    unsigned char at[GS_REPLY_BYTES] = {0}, *cursor = at;
    struct gs_reply back;
    gs_put_u32(&cursor, status);
    gs_put_u32(&cursor, length);
    return gs_reply_get(at, &back);
}

static void bounds_of_data_frames(void **state)
{
    (void)state;
    assert_int_equal(request_of(GPUSYS_OP_READ, 0), 0);
    assert_int_equal(request_of(GPUSYS_OP_WRITE, GS_SLICE_MAX), 0);
    assert_int_equal(request_of(GPUSYS_OP_READ, GS_SLICE_MAX + 1), -EBADMSG);
    assert_int_equal(request_of(GPUSYS_OP_WRITE, UINT32_MAX), -EBADMSG);
    assert_int_equal(request_of(2, 0), -EBADMSG);
    assert_int_equal(request_of(0x100, 0), -EBADMSG); /* its reserved bytes */
    assert_int_equal(request_of(0x80000000, 0), -EBADMSG);
    assert_int_equal(reply_of(GS_STATUS_OK, GS_SLICE_MAX), 0);
    assert_int_equal(reply_of(GS_STATUS_OK, GS_SLICE_MAX + 1), -EBADMSG);
    assert_int_equal(reply_of(255, 0), 0); /* a status that a newer peer may have */
    assert_int_equal(reply_of(256, 0), -EBADMSG);
    assert_int_equal(reply_of(UINT32_MAX, 0), -EBADMSG);
}

static void data_frames_come_back(void **state)
{
    struct gs_request request = {
        .op = 1, .region = 0xfedcba98, .offset = UINT64_MAX, .length = GS_SLICE_MAX, .tag = 77};
    struct gs_request request_back;
    struct gs_reply reply = {.status = 4, .length = 9, .tag = UINT32_MAX}, reply_back;
    unsigned char at[GS_REQUEST_BYTES];
    (void)state;
    gs_request_put(at, &request);
    assert_int_equal(gs_request_get(at, &request_back), 0);
    assert_true(request_back.op == 1 && request_back.region == request.region &&
                request_back.offset == UINT64_MAX);
    assert_true(request_back.length == GS_SLICE_MAX && request_back.tag == 77);
    gs_reply_put(at, &reply);
    assert_int_equal(gs_reply_get(at, &reply_back), 0);
    assert_true(reply_back.status == 4 && reply_back.length == 9 && reply_back.tag == UINT32_MAX);
}

/* ---- the document ---- */

/* The text without its white space. */
static char *packed(const char *text)
{
    char *copy = malloc(strlen(text) + 1), *to = copy;
    assert_non_null(copy);
    for (; *text; text++)
        if (!isspace((unsigned char)*text))
            *to++ = *text;
    *to = 0;
    return copy;
}

static char *read_document(void)
{
    FILE *file = fopen(PROTOCOL_DOCUMENT, "rb");
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST);
    if (!file)
        fail_msg("%s is not there", PROTOCOL_DOCUMENT);
    assert_true(text && fread(text, 1, MOST - 1, file) > 0);
    fclose(file);
    char *all = packed(text);
    free(text);
    return all;
}

static void the_document_shows_these_bytes(void **state)
{
    char *document = read_document();
    (void)state;
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        char *hex = packed(goldens[i].hex);
        if (!strstr(document, hex))
            fail_msg("docs/protocol.md does not show %s: %s", goldens[i].name, goldens[i].hex);
        free(hex);
    }
    free(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_opening),
        cmocka_unit_test(golden_requests),
        cmocka_unit_test(golden_page),
        cmocka_unit_test(golden_data_frames),
        cmocka_unit_test(the_magic_is_no_length),
        cmocka_unit_test(opening_comes_back),
        cmocka_unit_test(requests_come_back),
        cmocka_unit_test(small_ones_come_back),
        cmocka_unit_test(a_page_comes_back),
        cmocka_unit_test(every_length_but_the_right_one),
        cmocka_unit_test(reserved_fields_are_0),
        cmocka_unit_test(rails_and_texts),
        cmocka_unit_test(control_bytes_in_texts),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(a_device_name_ends),
        cmocka_unit_test(slices_and_requests),
        cmocka_unit_test(counts_of_checksums),
        cmocka_unit_test(rails_by_number),
        cmocka_unit_test(frames),
        cmocka_unit_test(names_of_regions),
        cmocka_unit_test(a_full_page),
        cmocka_unit_test(a_page_behind_something_else),
        cmocka_unit_test(counts_of_pages),
        cmocka_unit_test(refusals_and_statuses),
        cmocka_unit_test(bounds_of_data_frames),
        cmocka_unit_test(data_frames_come_back),
        cmocka_unit_test(the_document_shows_these_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
