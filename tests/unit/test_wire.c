/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The records of the handshake: exact bytes, every truncation, every bound of a count. */
#include <endian.h>
#include <errno.h>
#include <gpusys/wire.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/handshake.h"

enum { UNTOUCHED = 0xA5, BIG = 512 * 1024 };

/* A copy of exactly `size` bytes on the heap, so that a sanitizer sees a read past its end. */
static unsigned char *exactly(const void *bytes, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    if (size)
        memcpy(copy, bytes, size);
    return copy;
}

static void assert_untouched(const void *object, size_t size)
{
    for (size_t i = 0; i < size; i++)
        assert_int_equal(((const unsigned char *)object)[i], UNTOUCHED);
}

static struct gpusys_region_key *make_regions(uint32_t n)
{
    struct gpusys_region_key *regions = calloc(n ? n : 1, sizeof *regions);
    assert_non_null(regions);
    for (uint32_t i = 0; i < n; i++) {
        regions[i].base = 0x8000000000000001u + 0x0101010101u * i;
        regions[i].rkey = 0xF0000000u + i;
        regions[i].reserved = 0xBADBADBA; /* must neither travel nor matter */
    }
    return regions;
}

/* ---- one record, against the golden bytes ---- */

static void test_qp_params_golden(void **state)
{
    (void)state;
    unsigned char bytes[GOLDEN_CLIENT_BYTES];
    struct gpusys_qp_params seen;
    size_t size = 0;
    assert_int_equal(gpusys_qp_params_encode(&golden_client[0], bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, GPUSYS_QP_PARAMS_BYTES);
    assert_memory_equal(bytes, golden_client_rails[1] + 1, size);
    assert_int_equal(gpusys_qp_params_decode(&seen, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, GPUSYS_QP_PARAMS_BYTES);
    assert_memory_equal(&seen, &golden_client[0], sizeof seen);
}

static void test_cache_server_params_golden(void **state)
{
    (void)state;
    unsigned char bytes[GOLDEN_CACHE_SERVER_BYTES];
    struct gpusys_cache_server_params seen;
    size_t size = 0;
    assert_int_equal(gpusys_cache_server_params_encode(&golden_server[1], bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, GPUSYS_CACHE_SERVER_PARAMS_BYTES);
    assert_memory_equal(bytes, golden_server_rails_rw[2] + 1 + GOLDEN_CACHE_SERVER_BYTES, size);
    assert_int_equal(gpusys_cache_server_params_decode(&seen, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, GPUSYS_CACHE_SERVER_PARAMS_BYTES);
    assert_memory_equal(&seen, &golden_server[1], sizeof seen);
}

static void test_verbs_server_params_golden(void **state)
{
    (void)state;
    unsigned char bytes[GOLDEN_VERBS_SERVER_BYTES];
    struct gpusys_region_key region = golden_server[0].region, room;
    struct gpusys_verbs_server_params params = {
        .qp = golden_server[0].qp, .n_regions = 1, .regions = &region};
    struct gpusys_verbs_server_params seen = {.capacity = 1, .regions = &room};
    size_t size = 0;
    assert_int_equal(gpusys_verbs_server_params_encode(&params, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, GOLDEN_VERBS_SERVER_BYTES);
    assert_memory_equal(bytes, golden_server_rails_ro[1] + 1, size);
    memset(&room, UNTOUCHED, sizeof room);
    assert_int_equal(gpusys_verbs_server_params_decode(&seen, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, GOLDEN_VERBS_SERVER_BYTES);
    assert_memory_equal(&seen.qp, &params.qp, sizeof seen.qp);
    assert_int_equal(seen.n_regions, 1);
    assert_int_equal(seen.capacity, 1);
    assert_memory_equal(&room, &region, sizeof room);
}

/* All 32 bits of a QPN and of a PSN travel, in both directions. */
static void test_all_bits_travel(void **state)
{
    (void)state;
    const struct gpusys_qp_params wide = {.qpn = 0xFEDCBA98, .psn = 0xFFFFFFFF, .gid = {0xFF}};
    struct gpusys_qp_params seen;
    unsigned char bytes[GPUSYS_QP_PARAMS_BYTES];
    size_t size;
    assert_int_equal(gpusys_qp_params_encode(&wide, bytes, sizeof bytes, &size), 0);
    assert_memory_equal(bytes, "\x98\xba\xdc\xfe\xff\xff\xff\xff\xff", 9);
    assert_int_equal(gpusys_qp_params_decode(&seen, bytes, sizeof bytes, &size), 0);
    assert_memory_equal(&seen, &wide, sizeof seen);
}

/* ---- tables ---- */

static void check_table(uint32_t n)
{
    size_t wanted = GPUSYS_VERBS_SERVER_PARAMS_BYTES(n), size = 0;
    struct gpusys_region_key *regions = make_regions(n), *room = malloc(n * sizeof *room);
    struct gpusys_verbs_server_params params = {
        .qp = golden_server[0].qp, .n_regions = n, .regions = regions};
    struct gpusys_verbs_server_params seen = {.capacity = n, .regions = room};
    unsigned char *guarded = malloc(wanted + 16);
    memset(guarded, UNTOUCHED, wanted + 16);
    assert_int_equal(gpusys_verbs_server_params_encode(&params, guarded, wanted, &size), 0);
    assert_int_equal(size, wanted);
    assert_untouched(guarded + wanted, 16);
    unsigned char *bytes = exactly(guarded, wanted);
    assert_int_equal(gpusys_verbs_server_params_decode(&seen, bytes, wanted, &size), 0);
    assert_int_equal(size, wanted);
    assert_int_equal(seen.n_regions, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t base;
        memcpy(&base, bytes + 28 + 12 * i, sizeof base);
        assert_int_equal(le64toh(base), regions[i].base);
        assert_int_equal(room[i].base, regions[i].base);
        assert_int_equal(room[i].rkey, regions[i].rkey);
        assert_int_equal(room[i].reserved, 0);
    }
    free(regions);
    free(room);
    free(bytes);
    free(guarded);
}

static void test_tables_of_many_sizes(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 70; n++)
        check_table(n);
    check_table(GPUSYS_MAX_REGIONS - 1);
    check_table(GPUSYS_MAX_REGIONS);
}

static void test_region_counts_refused_on_writing(void **state)
{
    (void)state;
    struct gpusys_region_key *regions = make_regions(GPUSYS_MAX_REGIONS + 1);
    unsigned char *bytes = malloc(BIG);
    memset(bytes, UNTOUCHED, BIG);
    const uint32_t bad[] = {0, GPUSYS_MAX_REGIONS + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gpusys_verbs_server_params rails[2] = {{.n_regions = 1, .regions = regions},
                                                      {.n_regions = bad[i], .regions = regions}};
        size_t size = 77;
        assert_int_equal(gpusys_verbs_server_params_encode(&rails[1], bytes, BIG, &size), -EINVAL);
        assert_int_equal(gpusys_server_rails_ro_encode(rails, 2, bytes, BIG, &size), -EINVAL);
        assert_int_equal(gpusys_server_rails_ro_size(rails, 2, &size), -EINVAL);
        assert_int_equal(size, 77);
    }
    assert_untouched(bytes, BIG);
    free(regions);
    free(bytes);
}

/* The count is refused before the body is looked at: here there is none. */
static void test_region_counts_refused_on_reading(void **state)
{
    (void)state;
    const uint32_t counts[] = {0, 1, GPUSYS_MAX_REGIONS, GPUSYS_MAX_REGIONS + 1, UINT32_MAX};
    const int results[] = {-EBADMSG, -ENODATA, -ENODATA, -EBADMSG, -EBADMSG};
    for (size_t i = 0; i < 5; i++) {
        struct gpusys_verbs_server_params seen;
        memset(&seen, UNTOUCHED, sizeof seen);
        const uint32_t count = htole32(counts[i]);
        unsigned char rails[29] = {1}; /* a rail count, and a record that ends with its own count */
        memcpy(rails + 25, &count, sizeof count);
        size_t size = 77;
        assert_int_equal(gpusys_server_rails_ro_decode(&seen, 1, rails, 29, &size), results[i]);
        assert_int_equal(gpusys_verbs_server_params_decode(&seen, rails + 1, 28, &size), results[i]);
        assert_int_equal(size, 77);
        assert_untouched(&seen, sizeof seen);
    }
}

static void test_too_little_storage(void **state)
{
    (void)state;
    struct gpusys_region_key *regions = make_regions(GPUSYS_MAX_REGIONS), room[2];
    struct gpusys_verbs_server_params params = {.n_regions = GPUSYS_MAX_REGIONS, .regions = regions};
    unsigned char *bytes = malloc(BIG);
    size_t size;
    assert_int_equal(gpusys_verbs_server_params_encode(&params, bytes, BIG, &size), 0);
    memset(room, UNTOUCHED, sizeof room);
    struct gpusys_verbs_server_params seen = {.qp = golden_server[0].qp, .capacity = 2, .regions = room};
    size_t left = 77;
    assert_int_equal(gpusys_verbs_server_params_decode(&seen, bytes, size, &left), -ENOSPC);
    assert_int_equal(seen.n_regions, GPUSYS_MAX_REGIONS);
    assert_int_equal(left, 77);
    assert_memory_equal(&seen.qp, &golden_server[0].qp, sizeof seen.qp);
    assert_untouched(room, sizeof room);
    free(regions);
    free(bytes);
}

/* One rail that does not fit: every rail says what it needs, so that one new attempt is enough. */
static void test_too_little_storage_in_rails(void **state)
{
    (void)state;
    struct gpusys_region_key *regions = make_regions(5), room[5];
    const struct gpusys_verbs_server_params rails[2] = {{.n_regions = 3, .regions = regions},
                                                        {.n_regions = 5, .regions = regions}};
    unsigned char bytes[256];
    size_t size, taken;
    memset(room, UNTOUCHED, sizeof room);
    assert_int_equal(gpusys_server_rails_ro_encode(rails, 2, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, 1 + 28 + 36 + 28 + 60);
    for (uint32_t small = 0; small < 2; small++) {
        struct gpusys_verbs_server_params seen[2] = {{.capacity = 3, .regions = room},
                                                     {.capacity = 5, .regions = room}};
        seen[small].capacity--;
        assert_int_equal(gpusys_server_rails_ro_decode(seen, 2, bytes, size, &taken), -ENOSPC);
        assert_int_equal(seen[0].n_regions, 3);
        assert_int_equal(seen[1].n_regions, 5);
        assert_untouched(room, sizeof room);
    }
    free(regions);
}

/* ---- rails ---- */

static void check_rails_golden(uint32_t n)
{
    struct gpusys_region_key regions[2] = {golden_server[0].region, golden_server[1].region}, room[2];
    struct gpusys_verbs_server_params tables[2], seen_tables[2];
    struct gpusys_cache_server_params seen_arenas[2];
    struct gpusys_qp_params seen_clients[2];
    unsigned char bytes[128];
    size_t size, ro = 1 + n * GOLDEN_VERBS_SERVER_BYTES, rw = 1 + n * GOLDEN_CACHE_SERVER_BYTES;
    for (uint32_t i = 0; i < 2; i++) {
        tables[i] = (struct gpusys_verbs_server_params){
            .qp = golden_server[i].qp, .n_regions = 1, .regions = &regions[i]};
        seen_tables[i] = (struct gpusys_verbs_server_params){.capacity = 1, .regions = &room[i]};
    }
    assert_int_equal(gpusys_server_rails_ro_encode(tables, n, bytes, ro, &size), 0);
    assert_int_equal(size, ro);
    assert_memory_equal(bytes, golden_server_rails_ro[n], ro);
    assert_int_equal(gpusys_server_rails_ro_decode(seen_tables, n, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, ro);
    assert_memory_equal(room, regions, n * sizeof *room);
    assert_memory_equal(&seen_tables[n - 1].qp, &golden_server[n - 1].qp, sizeof seen_tables[0].qp);

    assert_int_equal(gpusys_server_rails_rw_encode(golden_server, n, bytes, rw, &size), 0);
    assert_int_equal(size, rw);
    assert_memory_equal(bytes, golden_server_rails_rw[n], rw);
    assert_int_equal(gpusys_server_rails_rw_decode(seen_arenas, n, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, rw);
    assert_memory_equal(seen_arenas, golden_server, n * sizeof *seen_arenas);

    assert_int_equal(gpusys_client_rails_encode(golden_client, n, bytes, 1 + 24 * n, &size), 0);
    assert_int_equal(size, 1 + 24 * n);
    assert_memory_equal(bytes, golden_client_rails[n], size);
    assert_int_equal(gpusys_client_rails_decode(seen_clients, n, bytes, sizeof bytes, &size), 0);
    assert_int_equal(size, 1 + 24 * n);
    assert_memory_equal(seen_clients, golden_client, n * sizeof *seen_clients);
}

static void test_rails_golden(void **state)
{
    (void)state;
    check_rails_golden(1);
    check_rails_golden(2);
}

static void test_rail_counts_on_writing(void **state)
{
    (void)state;
    static struct gpusys_cache_server_params arenas[257];
    static struct gpusys_qp_params clients[257];
    struct gpusys_region_key region = {0};
    struct gpusys_verbs_server_params tables[9];
    for (int i = 0; i < 9; i++)
        tables[i] = (struct gpusys_verbs_server_params){.n_regions = 1, .regions = &region};
    unsigned char *bytes = malloc(BIG);
    memset(bytes, UNTOUCHED, BIG);
    size_t size = 77;
    assert_int_equal(gpusys_server_rails_ro_encode(tables, 0, bytes, BIG, &size), -EINVAL);
    assert_int_equal(gpusys_server_rails_ro_encode(tables, 9, bytes, BIG, &size), -EINVAL);
    assert_int_equal(gpusys_server_rails_rw_encode(arenas, 0, bytes, BIG, &size), -EINVAL);
    assert_int_equal(gpusys_server_rails_rw_encode(arenas, 256, bytes, BIG, &size), -EINVAL);
    assert_int_equal(gpusys_server_rails_rw_encode(arenas, 257, bytes, BIG, &size), -EINVAL);
    assert_int_equal(gpusys_client_rails_encode(clients, 0, bytes, BIG, &size), -EINVAL);
    assert_int_equal(gpusys_client_rails_encode(clients, 256, bytes, BIG, &size), -EINVAL);
    assert_int_equal(gpusys_client_rails_encode(clients, 257, bytes, BIG, &size), -EINVAL);
    assert_int_equal(size, 77);
    assert_untouched(bytes, BIG);
    assert_int_equal(gpusys_server_rails_ro_encode(tables, 8, bytes, BIG, &size), 0);
    assert_int_equal(size, 1 + 8 * 40);
    assert_int_equal(gpusys_server_rails_rw_encode(arenas, 255, bytes, BIG, &size), 0);
    assert_int_equal(size, 1 + 255 * 36);
    assert_int_equal(bytes[0], 255);
    assert_int_equal(gpusys_client_rails_encode(clients, 255, bytes, BIG, &size), 0);
    assert_int_equal(size, 1 + 255 * 24);
    free(bytes);
}

/* Counts are judged on the one byte alone: no body is there yet. */
static void test_rail_counts_on_reading(void **state)
{
    (void)state;
    static struct gpusys_verbs_server_params tables[9];
    static struct gpusys_cache_server_params arenas[255];
    static struct gpusys_qp_params clients[255];
    size_t size;
    const unsigned char none = 0, one = 1, eight = 8, nine = 9, most = 255;
    assert_int_equal(gpusys_server_rails_ro_decode(tables, 1, &none, 1, &size), -EBADMSG);
    assert_int_equal(gpusys_server_rails_ro_decode(tables, 9, &nine, 1, &size), -EBADMSG);
    assert_int_equal(gpusys_server_rails_ro_decode(tables, 8, &eight, 1, &size), -ENODATA);
    assert_int_equal(gpusys_server_rails_ro_decode(tables, 2, &one, 1, &size), -EPROTO);
    assert_int_equal(gpusys_server_rails_rw_decode(arenas, 1, &none, 1, &size), -EBADMSG);
    assert_int_equal(gpusys_server_rails_rw_decode(arenas, 255, &most, 1, &size), -ENODATA);
    assert_int_equal(gpusys_server_rails_rw_decode(arenas, 9, &eight, 1, &size), -EPROTO);
    assert_int_equal(gpusys_client_rails_decode(clients, 1, &none, 1, &size), -EBADMSG);
    assert_int_equal(gpusys_client_rails_decode(clients, 255, &most, 1, &size), -ENODATA);
    assert_int_equal(gpusys_client_rails_decode(clients, 1, &nine, 1, &size), -EPROTO);
}

/* ---- every length that is too short ---- */

static void test_truncated_server_rails_ro(void **state)
{
    (void)state;
    for (size_t length = 0; length < 1 + 2 * GOLDEN_VERBS_SERVER_BYTES; length++) {
        unsigned char *bytes = exactly(golden_server_rails_ro[2], length);
        struct gpusys_verbs_server_params seen[2];
        size_t size = 77;
        memset(seen, UNTOUCHED, sizeof seen);
        assert_int_equal(gpusys_server_rails_ro_decode(seen, 2, bytes, length, &size), -ENODATA);
        assert_int_equal(size, 77);
        assert_untouched(seen, sizeof seen);
        free(bytes);
    }
}

static void test_truncated_server_rails_rw(void **state)
{
    (void)state;
    for (size_t length = 0; length < 1 + 2 * GOLDEN_CACHE_SERVER_BYTES; length++) {
        unsigned char *bytes = exactly(golden_server_rails_rw[2], length);
        struct gpusys_cache_server_params seen[2];
        size_t size = 77;
        memset(seen, UNTOUCHED, sizeof seen);
        assert_int_equal(gpusys_server_rails_rw_decode(seen, 2, bytes, length, &size), -ENODATA);
        assert_int_equal(size, 77);
        assert_untouched(seen, sizeof seen);
        free(bytes);
    }
}

static void test_truncated_client_rails(void **state)
{
    (void)state;
    for (size_t length = 0; length < 1 + 2 * GOLDEN_CLIENT_BYTES; length++) {
        unsigned char *bytes = exactly(golden_client_rails[2], length);
        struct gpusys_qp_params seen[2];
        size_t size = 77;
        memset(seen, UNTOUCHED, sizeof seen);
        assert_int_equal(gpusys_client_rails_decode(seen, 2, bytes, length, &size), -ENODATA);
        assert_int_equal(size, 77);
        assert_untouched(seen, sizeof seen);
        free(bytes);
    }
}

static void test_truncated_verbs_server_params(void **state)
{
    (void)state;
    for (size_t length = 0; length < GOLDEN_VERBS_SERVER_BYTES; length++) {
        unsigned char *bytes = exactly(golden_server_rails_ro[1] + 1, length);
        struct gpusys_verbs_server_params seen;
        size_t size = 77;
        memset(&seen, UNTOUCHED, sizeof seen);
        assert_int_equal(gpusys_verbs_server_params_decode(&seen, bytes, length, &size), -ENODATA);
        assert_int_equal(size, 77);
        assert_untouched(&seen, sizeof seen);
        free(bytes);
    }
}

static void test_truncated_cache_server_params(void **state)
{
    (void)state;
    for (size_t length = 0; length < GOLDEN_CACHE_SERVER_BYTES; length++) {
        unsigned char *bytes = exactly(golden_server_rails_rw[1] + 1, length);
        struct gpusys_cache_server_params seen;
        size_t size = 77;
        memset(&seen, UNTOUCHED, sizeof seen);
        assert_int_equal(gpusys_cache_server_params_decode(&seen, bytes, length, &size), -ENODATA);
        assert_int_equal(size, 77);
        assert_untouched(&seen, sizeof seen);
        free(bytes);
    }
}

static void test_truncated_qp_params(void **state)
{
    (void)state;
    for (size_t length = 0; length < GOLDEN_CLIENT_BYTES; length++) {
        unsigned char *bytes = exactly(golden_client_rails[1] + 1, length);
        struct gpusys_qp_params seen;
        size_t size = 77;
        memset(&seen, UNTOUCHED, sizeof seen);
        assert_int_equal(gpusys_qp_params_decode(&seen, bytes, length, &size), -ENODATA);
        assert_int_equal(size, 77);
        assert_untouched(&seen, sizeof seen);
        free(bytes);
    }
}

static void test_buffers_one_byte_short(void **state)
{
    (void)state;
    struct gpusys_region_key regions[3] = {0};
    const struct gpusys_verbs_server_params table = {.n_regions = 3, .regions = regions};
    unsigned char bytes[128];
    size_t size = 77;
    memset(bytes, UNTOUCHED, sizeof bytes);
    assert_int_equal(gpusys_qp_params_encode(golden_client, bytes, 23, &size), -ENOSPC);
    assert_int_equal(gpusys_cache_server_params_encode(golden_server, bytes, 35, &size), -ENOSPC);
    assert_int_equal(gpusys_verbs_server_params_encode(&table, bytes, 63, &size), -ENOSPC);
    assert_int_equal(gpusys_server_rails_ro_encode(&table, 1, bytes, 64, &size), -ENOSPC);
    assert_int_equal(gpusys_server_rails_rw_encode(golden_server, 2, bytes, 72, &size), -ENOSPC);
    assert_int_equal(gpusys_client_rails_encode(golden_client, 2, bytes, 48, &size), -ENOSPC);
    assert_int_equal(size, 77);
    assert_untouched(bytes, sizeof bytes);
    assert_int_equal(gpusys_verbs_server_params_encode(&table, bytes, 64, &size), 0);
    assert_int_equal(size, 64);
    assert_untouched(bytes + 64, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qp_params_golden),
        cmocka_unit_test(test_cache_server_params_golden),
        cmocka_unit_test(test_verbs_server_params_golden),
        cmocka_unit_test(test_all_bits_travel),
        cmocka_unit_test(test_tables_of_many_sizes),
        cmocka_unit_test(test_region_counts_refused_on_writing),
        cmocka_unit_test(test_region_counts_refused_on_reading),
        cmocka_unit_test(test_too_little_storage),
        cmocka_unit_test(test_too_little_storage_in_rails),
        cmocka_unit_test(test_rails_golden),
        cmocka_unit_test(test_rail_counts_on_writing),
        cmocka_unit_test(test_rail_counts_on_reading),
        cmocka_unit_test(test_truncated_server_rails_ro),
        cmocka_unit_test(test_truncated_server_rails_rw),
        cmocka_unit_test(test_truncated_client_rails),
        cmocka_unit_test(test_truncated_verbs_server_params),
        cmocka_unit_test(test_truncated_cache_server_params),
        cmocka_unit_test(test_truncated_qp_params),
        cmocka_unit_test(test_buffers_one_byte_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
