/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* XXH3-128: known values (from xxhsum -H128), and every compilation of it agrees with every other. */
#include "base/hash.h"
#include "remote_play.h"

#include <gpusys/hash.h>

/* Of bytes i * 131 + (i >> 8) * 17. The lengths are those at which the algorithm takes another path. */
static const struct {
    size_t size;
    const char *hash;
} known[] = {
    {0, "99aa06d3014798d86001c324468d497f"},    {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
    {3, "c925ae1797c3998f6811538b444fc6dc"},    {4, "6ae518c60df23fcadb9cecd5eb59a7f1"},
    {8, "63f350efc0ba3e2e5b3f49d0f38f9d7d"},    {9, "83c871b1014e6f76d8a20b5b7aa68a37"},
    {16, "248181305d3c1039adebb1d9d080b69c"},   {17, "825a0db7d0afe2c0cfea252f6b7ed7e9"},
    {128, "08df79f520370b525cfea347ea4bb687"},  {129, "fc1d02037be48a62821740ece8839b64"},
    {240, "8406fbd017acdf4e687f00a7f64e46db"},  {241, "d894c74b1b3ea28f44dbd3180a664e27"},
    {256, "b997d11012dfe96d266a2c816cbb31c5"},  {257, "341c113f7d6195644fa4e79c081d39f5"},
    {1023, "df96af1642ce51b9e4e56ae496223a91"}, {1024, "b8c0e3eef73574e67b3d0d5804231abc"},
    {1025, "75f34330cbddd562863f46356e79e544"}, {65537, "c1b3faf13c3e598d1e1117fba9873788"},
};

enum { TOTAL = 1 << 20 };
static unsigned char bytes[TOTAL];

static void fill(void)
{
    for (size_t i = 0; i < TOTAL; i++)
        bytes[i] = (unsigned char)(i * 131 + (i >> 8) * 17);
}

static void to_text(const uint8_t hash[GPUSYS_HASH_BYTES], char text[2 * GPUSYS_HASH_BYTES + 1])
{
    for (int i = 0; i < GPUSYS_HASH_BYTES; i++)
        sprintf(text + 2 * i, "%02x", hash[i]);
}

static void test_known(void **state)
{
    (void)state;
    uint8_t hash[GPUSYS_HASH_BYTES];
    char text[2 * GPUSYS_HASH_BYTES + 1];
    fill();
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        gpusys_hash(bytes, known[i].size, hash);
        to_text(hash, text);
        assert_string_equal(text, known[i].hash);
    }
    gpusys_hash(NULL, 0, hash);
    to_text(hash, text);
    assert_string_equal(text, known[0].hash);
}

/* Whatever the pieces, and wherever they lie. */
static void test_pieces(void **state)
{
    (void)state;
    struct gpusys_hasher *hasher = NULL;
    uint8_t whole[GPUSYS_HASH_BYTES], pieced[GPUSYS_HASH_BYTES];
    uint64_t seed = 1;
    fill();
    assert_int_equal(gpusys_hasher_new(&hasher), 0);
    for (int round = 0; round < 30; round++) {
        size_t from = play_random(&seed) % 100, size = play_random(&seed) % (TOTAL - 100);
        gpusys_hasher_reset(hasher);
        for (size_t at = 0; at < size;) {
            size_t piece = play_random(&seed) % (round % 2 ? 50000 : 300);
            piece = piece < size - at ? piece : size - at;
            gpusys_hasher_add(hasher, bytes + from + at, piece);
            at += piece;
        }
        gpusys_hasher_get(hasher, pieced);
        gpusys_hash(bytes + from, size, whole);
        assert_memory_equal(pieced, whole, sizeof whole);
    }
    gpusys_hasher_free(hasher);
    gpusys_hasher_free(NULL);
}

static void check_variant(const struct gs_hash_variant *variant)
{
    uint8_t base[GPUSYS_HASH_BYTES], other[GPUSYS_HASH_BYTES];
    for (size_t size = 0; size < 3000; size += size < 600 ? 1 : 37) {
        gs_hash_base.hash(bytes + size % 64, size, base);
        variant->hash(bytes + size % 64, size, other);
        assert_memory_equal(base, other, sizeof base);
    }
    void *state = variant->state_new();
    assert_non_null(state);
    for (size_t at = 0; at < TOTAL; at += TOTAL / 16)
        variant->add(state, bytes + at, TOTAL / 16);
    variant->get(state, other);
    gs_hash_base.hash(bytes, TOTAL, base);
    assert_memory_equal(base, other, sizeof base);
    variant->reset(state);
    variant->get(state, other);
    gs_hash_base.hash(bytes, 0, base);
    assert_memory_equal(base, other, sizeof base);
    variant->state_free(state);
}

static void test_variants(void **state)
{
    (void)state;
    fill();
    check_variant(&gs_hash_base);
#ifdef GS_HASH_X86
    if (__builtin_cpu_supports("avx2"))
        check_variant(&gs_hash_avx2);
    if (__builtin_cpu_supports("avx512f"))
        check_variant(&gs_hash_avx512);
    const char *best = __builtin_cpu_supports("avx512f") ? "avx512"
                       : __builtin_cpu_supports("avx2")  ? "avx2"
                                                         : "sse2";
    assert_string_equal(gpusys_hash_variant(), best);
#else
    assert_string_equal(gpusys_hash_variant(), gs_hash_base.name);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
