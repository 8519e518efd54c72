/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages on a verbs rail's connection: golden bytes (which docs/protocol.md shows too), every bound, and the keyring
 * that KEYED goes into. */
#include "rail/verbs_keys.h"
#include "wire/message_rail.h"

#include <ctype.h>
#include <errno.h>
#include <gpusys/remote.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/gpusys1.h"

static struct gs_bytes out;

static int tear_down(void **state)
{
    (void)state;
    gs_bytes_free(&out);
    return 0;
}

/* ---- hex ---- */

static size_t bytes_of(const char *hex, unsigned char *bytes)
{
    size_t n = 0;
    for (; *hex; hex += 2) {
        char two[3] = {0};
        hex += strspn(hex, " ");
        memcpy(two, hex, 2);
        bytes[n++] = (unsigned char)strtoul(two, NULL, 16);
    }
    return n;
}

/* A golden body on the heap, exactly as long, so that a sanitizer sees a read past its end. */
static unsigned char *body_of(const char *hex, size_t *ret_size)
{
    unsigned char bytes[256];
    size_t size = bytes_of(hex, bytes) - GS_FRAME_BYTES;
    unsigned char *body = malloc(size);
    assert_non_null(body);
    memcpy(body, bytes + GS_FRAME_BYTES, size);
    *ret_size = size;
    return body;
}

static void expect(int code, const char *hex)
{
    unsigned char bytes[256];
    size_t size = bytes_of(hex, bytes);
    assert_int_equal(code, 0);
    assert_int_equal(gs_bytes_queued(&out), size);
    assert_memory_equal(out.data + out.head, bytes, size);
    gs_bytes_drop(&out, size);
}

/* ---- golden ---- */

static const struct gs_rail_wish wish = {
    .rail = {.transport = GPUSYS_TRANSPORT_VERBS,
             .link_layer = 2,
             .gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1},
             .gid_index = 3,
             .mtu_bytes = 4096,
             .reads_out = 16,
             .reads_in = 16,
             .numa_node = 0,
             .qpn = 0x112233,
             .psn = 0xaabbcc,
             .generation = 1,
             .device = "mlx5_0"},
    .offer = 1,
};
static const struct gs_railed railed = {
    .rail = {.transport = GPUSYS_TRANSPORT_VERBS,
             .link_layer = 2,
             .gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2},
             .gid_index = 5,
             .mtu_bytes = 1024,
             .reads_out = 16,
             .reads_in = 8,
             .numa_node = 1,
             .qpn = 0x445566,
             .psn = 0x778899,
             .generation = 1,
             .device = "mlx5_1"},
    .probe = {.base = 0x7060504030201000, .rkey = 0xdeadbeef},
    .probe_bytes = 8192,
};
static const struct gs_keyed keyed = {.region = 1, .piece_bytes = UINT64_C(1) << 39, .n_keys = 2};
static const struct gs_key_entry keys[2] = {{.base = UINT64_C(0x100000000000), .rkey = 0x1111},
                                            {.base = UINT64_C(0x108000000000), .rkey = 0x2222}};

static void golden(void **state)
{
    (void)state;
    expect(gs_rail_encode(&out, 1, &wish), GOLDEN_RAIL);
    expect(gs_railed_encode(&out, 1, &railed), GOLDEN_RAILED);
    expect(gs_region_message_encode(&out, GS_KEY, 2, 1), GOLDEN_KEY);
    expect(gs_keyed_encode(&out, 2, &keyed, keys), GOLDEN_KEYED);
}

static void golden_and_back(void **state)
{
    size_t size;
    struct gs_rail_wish wish_back;
    struct gs_railed railed_back;
    struct gs_keyed keyed_back;
    (void)state;
    unsigned char *body = body_of(GOLDEN_RAIL, &size);
    assert_int_equal(gs_rail_decode(body, size, &wish_back), 0);
    assert_memory_equal(&wish_back.rail, &wish.rail, sizeof wish.rail);
    assert_int_equal(wish_back.offer, 1);
    free(body);
    body = body_of(GOLDEN_RAILED, &size);
    assert_int_equal(gs_railed_decode(body, size, &railed_back), 0);
    assert_memory_equal(&railed_back.rail, &railed.rail, sizeof railed.rail);
    assert_true(railed_back.probe.base == railed.probe.base && railed_back.probe.rkey == railed.probe.rkey);
    assert_int_equal(railed_back.probe_bytes, 8192);
    free(body);
    body = body_of(GOLDEN_KEYED, &size);
    assert_int_equal(gs_keyed_decode(body, size, &keyed_back), 0);
    assert_true(keyed_back.region == 1 && keyed_back.place == GPUSYS_PLACE_MEMORY && keyed_back.n_keys == 2);
    assert_true(keyed_back.piece_bytes == keyed.piece_bytes);
    for (uint32_t i = 0; i < 2; i++) {
        struct gs_key_entry key;
        assert_int_equal(gs_keyed_get(&keyed_back, i, &key), 0);
        assert_true(key.base == keys[i].base && key.rkey == keys[i].rkey);
    }
    free(body);
}

/* ---- bounds ---- */

static int decode_rail(const void *body, size_t size)
{
    struct gs_rail_wish back;
    return gs_rail_decode(body, size, &back);
}

static int decode_railed(const void *body, size_t size)
{
    struct gs_railed back;
    return gs_railed_decode(body, size, &back);
}

static int decode_key(const void *body, size_t size)
{
    uint32_t region;
    return gs_region_message_decode(body, size, &region);
}

static int decode_keyed(const void *body, size_t size)
{
    struct gs_keyed back;
    struct gs_key_entry key;
    int code = gs_keyed_decode(body, size, &back);
    for (uint32_t i = 0; code == 0 && i < back.n_keys; i++)
        code = gs_keyed_get(&back, i, &key);
    return code;
}

static const struct {
    const char *name, *hex;
    int (*decode)(const void *body, size_t size);
} goldens[] = {
    {"RAIL", GOLDEN_RAIL, decode_rail},
    {"RAILED", GOLDEN_RAILED, decode_railed},
    {"KEY", GOLDEN_KEY, decode_key},
    {"KEYED", GOLDEN_KEYED, decode_keyed},
};
enum { N_GOLDENS = sizeof goldens / sizeof *goldens };

static void every_length_but_the_right_one(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        size_t whole;
        unsigned char *body = body_of(goldens[i].hex, &whole);
        for (size_t size = 0; size <= whole + 16; size++) {
            unsigned char *cut = calloc(1, size ? size : 1);
            assert_non_null(cut);
            memcpy(cut, body, size < whole ? size : whole);
            int code = goldens[i].decode(cut, size);
            if (code != (size == whole ? 0 : -EBADMSG))
                fail_msg("%s: %zu of %zu bytes give %d", goldens[i].name, size, whole, code);
            free(cut);
        }
        free(body);
    }
}

/* Offsets in a body where `count` bytes are set to `value`, and what that gives: rail records stand at 0. */
static void check_bytes(unsigned golden_at, size_t at, size_t count, uint64_t value, int code)
{
    size_t size;
    unsigned char *body = body_of(goldens[golden_at].hex, &size);
    for (size_t i = 0; i < count; i++)
        body[at + i] = (unsigned char)(value >> 8 * i);
    int got = goldens[golden_at].decode(body, size);
    if (got != code)
        fail_msg("%s with %#llx at %zu gives %d", goldens[golden_at].name, (unsigned long long)value, at,
                 got);
    free(body);
}

enum { AT_RAIL, AT_RAILED, AT_KEY, AT_KEYED };

static void an_end_that_can_be(void **state)
{
    static const struct {
        size_t at, count;
        uint64_t value;
        int code;
    } rows[] = {
        {0, 1, 0, -EBADMSG}, /* transport */
        {0, 1, 2, -EBADMSG},
        {0, 1, 4, -EBADMSG},
        {1, 1, 0, -EBADMSG}, /* link layer */
        {1, 1, 1, 0},
        {1, 1, 3, 0},
        {1, 1, 4, -EBADMSG},
        {22, 2, 0, -EBADMSG}, /* MTU */
        {22, 2, 255, -EBADMSG},
        {22, 2, 256, 0},
        {24, 1, 0, -EBADMSG}, /* reads */
        {24, 1, 255, 0},
        {25, 1, 0, -EBADMSG},
        {25, 1, 255, 0},
        {28, 4, 0, -EBADMSG}, /* QPN */
        {28, 4, 1, 0},
        {28, 4, 0xffffff, 0},
        {28, 4, 0x1000000, -EBADMSG},
        {28, 4, 0xffffffff, -EBADMSG},
        {32, 4, 0, 0}, /* PSN */
        {32, 4, 0xffffff, 0},
        {32, 4, 0x1000000, -EBADMSG},
        {32, 4, 0x80000000, -EBADMSG},
        {36, 4, 0xffffffff, 0}, /* generation: for those who know theirs */
        {63, 1, 'x', -EBADMSG}, /* the device's name ends */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (unsigned message = AT_RAIL; message <= AT_RAILED; message++)
            check_bytes(message, rows[i].at, rows[i].count, rows[i].value, rows[i].code);
}

static void the_rest_of_rail_and_railed(void **state)
{
    (void)state;
    check_bytes(AT_RAIL, 64, 1, GS_RAILS_MAX - 1, 0);
    check_bytes(AT_RAIL, 64, 1, GS_RAILS_MAX, -EBADMSG);
    check_bytes(AT_RAIL, 64, 1, 255, -EBADMSG);
    for (size_t at = 65; at < 72; at++)
        check_bytes(AT_RAIL, at, 1, 1, -EBADMSG);
    check_bytes(AT_RAILED, 76, 4, 0, -EBADMSG);
    check_bytes(AT_RAILED, 76, 4, 0xffffffff, 0);
}

static void bounds_of_keyed(void **state)
{
    (void)state;
    check_bytes(AT_KEYED, 4, 4, GPUSYS_PLACE_COPY, 0);
    check_bytes(AT_KEYED, 4, 4, GPUSYS_PLACE_COPY + 1, -EBADMSG);
    check_bytes(AT_KEYED, 8, 8, 0, -EBADMSG);
    check_bytes(AT_KEYED, 8, 8, UINT64_MAX, 0);
    check_bytes(AT_KEYED, 16, 4, 0, -EBADMSG);
    check_bytes(AT_KEYED, 16, 4, 1, -EBADMSG);
    check_bytes(AT_KEYED, 16, 4, 3, -EBADMSG);
    check_bytes(AT_KEYED, 16, 4, 0x10000002, -EBADMSG); /* times 16 it is 32, in 32 bits */
    check_bytes(AT_KEYED, 20, 4, 1, -EBADMSG);
    check_bytes(AT_KEYED, 36, 4, 1, -EBADMSG); /* behind the first key */
    check_bytes(AT_KEYED, 52, 4, 1, -EBADMSG);
}

/* As many pieces as the document says fit into a body, and not one more. */
static void the_most_keys(void **state)
{
    (void)state;
    assert_int_equal(GS_KEYS_MAX, 16382);
    struct gs_key_entry *many = calloc(GS_KEYS_MAX + 1, sizeof *many);
    assert_non_null(many);
    for (uint32_t n = GS_KEYS_MAX; n <= GS_KEYS_MAX + 1; n++) {
        struct gs_keyed message = {.piece_bytes = 1, .n_keys = n}, back;
        struct gs_frame frame;
        assert_int_equal(gs_keyed_encode(&out, 1, &message, many), 0);
        bool fits = n == GS_KEYS_MAX;
        assert_int_equal(gs_frame_decode(out.data + out.head, &frame), fits ? 0 : -EBADMSG);
        assert_int_equal(gs_keyed_decode(out.data + out.head + GS_FRAME_BYTES,
                                         gs_bytes_queued(&out) - GS_FRAME_BYTES, &back),
                         fits ? 0 : -EBADMSG);
        gs_bytes_drop(&out, gs_bytes_queued(&out));
    }
    free(many);
}

static void link_layers(void **state)
{
    struct gs_rail_record record = {0};
    (void)state;
    static const struct {
        uint32_t link_layer;
        bool grh_required;
        uint8_t recorded;
    } rows[] = {{0, false, 0}, {1, false, 1}, {1, true, 3}, {2, false, 2}, {2, true, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        record.link_layer = gs_record_link_layer(rows[i].link_layer, rows[i].grh_required);
        assert_int_equal(record.link_layer, rows[i].recorded);
        assert_int_equal(gs_link_layer_of(&record), rows[i].link_layer);
    }
}

/* ---- the keyring ---- */

/* Keys as they come: `n` pieces, piece i at 1000 · i with rkey i + 1. */
static int add(struct gs_keyring *ring, uint32_t region, uint64_t piece_bytes, uint32_t n)
{
    struct gs_key_entry *many = calloc(n, sizeof *many);
    struct gs_keyed message = {.region = region, .piece_bytes = piece_bytes, .n_keys = n}, back;
    assert_non_null(many);
    for (uint32_t i = 0; i < n; i++)
        many[i] = (struct gs_key_entry){.base = UINT64_C(1000) * i, .rkey = i + 1};
    assert_int_equal(gs_keyed_encode(&out, 1, &message, many), 0);
    assert_int_equal(
        gs_keyed_decode(out.data + out.head + GS_FRAME_BYTES, gs_bytes_queued(&out) - GS_FRAME_BYTES, &back),
        0);
    int code = gs_keyring_add(ring, &back);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    free(many);
    return code;
}

static void keys_that_add_up(void **state)
{
    static const struct {
        uint64_t length, piece_bytes;
        uint32_t n;
        int code;
    } rows[] = {
        {1, 1, 1, 0},
        {1, UINT64_MAX, 1, 0},
        {1, 1, 2, -EPROTO},
        {100, 50, 2, 0},
        {100, 50, 1, -EPROTO},
        {100, 50, 3, -EPROTO},
        {100, 99, 2, 0},
        {100, 100, 2, -EPROTO},
        {101, 50, 3, 0},
        {101, 50, 2, -EPROTO},
        {UINT64_MAX, UINT64_MAX, 1, 0},
        {UINT64_MAX, UINT64_C(1) << 63, 2, 0},
        {UINT64_MAX, UINT64_C(1) << 63, 1, -EPROTO},
        {UINT64_MAX, 1, 16382, -EPROTO},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gs_keyring ring = {0};
        assert_int_equal(gs_keyring_expect(&ring, 5, rows[i].length), 0);
        assert_null(gs_keyring_find(&ring, 5));
        int code = add(&ring, 5, rows[i].piece_bytes, rows[i].n);
        if (code != rows[i].code)
            fail_msg("row %zu gives %d", i, code);
        assert_int_equal(gs_keyring_find(&ring, 5) != NULL, code == 0);
        gs_keyring_free(&ring);
    }
}

static void pieces(void **state)
{
    struct gs_keyring ring = {0};
    (void)state;
    assert_int_equal(add(&ring, 0, 10, 3), 0);
    assert_int_equal(add(&ring, 7, 10, 1), 0);
    const struct gs_keys *three = gs_keyring_find(&ring, 0), *one = gs_keyring_find(&ring, 7);
    assert_int_equal(gs_keys_piece(three, 2)->base, 2000);
    assert_int_equal(gs_keys_piece(three, 2)->rkey, 3);
    assert_null(gs_keys_piece(three, 3));
    assert_int_equal(gs_keys_piece(one, 0)->rkey, 1);
    assert_null(gs_keys_piece(one, 1));
    assert_int_equal(add(&ring, 0, 10, 1), 0); /* once more: the new ones count */
    assert_int_equal(gs_keyring_find(&ring, 0)->n, 1);
    gs_keyring_free(&ring);
}

static void arenas_and_numbers(void **state)
{
    struct gs_keyring ring = {0};
    (void)state;
    assert_int_equal(add(&ring, 0x80000000 + GS_KEY_ARENAS - 1, 10, 2), 0);
    assert_int_equal(add(&ring, 0x80000000 + GS_KEY_ARENAS, 10, 1), -EPROTO);
    assert_int_equal(add(&ring, 0xffffffff, 10, 1), -EPROTO);
    assert_int_equal(gs_keyring_expect(&ring, 0xffffffff, 1), -EPROTO);
    assert_null(gs_keyring_find(&ring, 0xffffffff));
    assert_non_null(gs_keyring_find(&ring, 0x80000000 + GS_KEY_ARENAS - 1));
    gs_keyring_forget(&ring, 0x80000000 + GS_KEY_ARENAS - 1);
    gs_keyring_forget(&ring, 3);
    assert_null(gs_keyring_find(&ring, 0x80000000 + GS_KEY_ARENAS - 1));
    assert_int_equal(gs_keyring_add_one(&ring, 2, 77, 88), 0);
    const struct gs_keys *keys_of = gs_keyring_find(&ring, 2);
    assert_true(keys_of->piece_bytes == UINT64_MAX && gs_keys_piece(keys_of, 0)->base == 77);
    assert_null(gs_keyring_find(&ring, 1)); /* its neighbours are not known */
    assert_null(gs_keyring_find(&ring, 4));
    assert_null(gs_keyring_find(&ring, 0x7fffffff));
    gs_keyring_free(&ring);
}

/* ---- the document ---- */

static char *packed(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (!isspace((unsigned char)*from))
            *to++ = *from;
    *to = 0;
    return text;
}

static void the_document_shows_these_bytes(void **state)
{
    enum { MOST = 1 << 20 };
    FILE *file = fopen(PROTOCOL_DOCUMENT, "rb");
    char *document = calloc(1, MOST);
    (void)state;
    if (!file)
        fail_msg("%s is not there", PROTOCOL_DOCUMENT);
    assert_true(document && fread(document, 1, MOST - 1, file) > 0);
    fclose(file);
    packed(document);
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        char *hex = packed(strdup(goldens[i].hex));
        if (!strstr(document, hex))
            fail_msg("docs/protocol.md does not show %s: %s", goldens[i].name, goldens[i].hex);
        free(hex);
    }
    free(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(golden_and_back),
        cmocka_unit_test(every_length_but_the_right_one),
        cmocka_unit_test(an_end_that_can_be),
        cmocka_unit_test(the_rest_of_rail_and_railed),
        cmocka_unit_test(bounds_of_keyed),
        cmocka_unit_test(the_most_keys),
        cmocka_unit_test(link_layers),
        cmocka_unit_test(keys_that_add_up),
        cmocka_unit_test(pieces),
        cmocka_unit_test(arenas_and_numbers),
        cmocka_unit_test(the_document_shows_these_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
