/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which names a region may have. */
#include "remote_play.h"

static const char *const good[] = {
    "a",
    "a/b",
    "model/shard-0.safetensors",
    ".hidden",
    "..a",
    "a..",
    "...",
    "a/.b/..c",
    " ",
    "a b",
    "-rf",
    "*?[",
    "\\",
    "~",
    "C:",
    "a:b",
    "\xc3\xa9",
    "\xe2\x82\xac/\xf0\x9f\x98\x80",
    "\xef\xbf\xbf",
    "\xf4\x8f\xbf\xbf",
    "\xc2\xa0",
};

static const struct {
    const char *name, *words;
} bad[] = {
    {"", "is empty"},
    {"/", "is absolute"},
    {"/etc/passwd", "is absolute"},
    {"//a", "is absolute"},
    {"a/", "empty component"},
    {"a//b", "empty component"},
    {".", "\".\" component"},
    {"./a", "\".\" component"},
    {"a/.", "\".\" component"},
    {"a/./b", "\".\" component"},
    {"..", "\"..\" component"},
    {"../a", "\"..\" component"},
    {"a/..", "\"..\" component"},
    {"a/../b", "\"..\" component"},
    {"a\nb", "control byte"},
    {"a\tb", "control byte"},
    {"\x1b[31m", "control byte"},
    {"a\x7f", "control byte"},
    {"a\xc2\x80", "control byte"},
    {"a\xc2\x9f", "control byte"},
    {"\x80", "not UTF-8"},
    {"\xff", "not UTF-8"},
    {"\xc3", "not UTF-8"},
    {"\xc3/", "not UTF-8"},
    {"\xc0\xae\xc0\xae/a", "not UTF-8"}, /* ".." the long way round */
    {"\xc1\x81", "not UTF-8"},
    {"\xe0\x80\xaf", "not UTF-8"},
    {"\xe0\x9f\xbf", "not UTF-8"},
    {"\xe2\x82", "not UTF-8"},
    {"\xe2\x28\xa1", "not UTF-8"},
    {"\xed\xa0\x80", "not UTF-8"}, /* a surrogate */
    {"\xed\xbf\xbf", "not UTF-8"},
    {"\xf0\x8f\xbf\xbf", "not UTF-8"},
    {"\xf0\x9f\x98", "not UTF-8"},
    {"\xf4\x90\x80\x80", "not UTF-8"}, /* above U+10FFFF */
    {"\xf5\x80\x80\x80", "not UTF-8"},
};

static void test_good(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 77};
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(gpusys_name_check(good[i], &error), 0);
        assert_int_equal(error.code, 77);
    }
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct gpusys_error error = {0};
        if (gpusys_name_check(bad[i].name, &error) != -EINVAL || !strstr(error.message, bad[i].words))
            fail_msg("entry %zu (%s) gave \"%s\"", i, bad[i].words, error.message);
        assert_int_equal(gpusys_name_check(bad[i].name, NULL), -EINVAL);
        for (const char *at = error.message; *at; at++)
            assert_true(*at >= 0x20 && *at < 0x7f);
    }
    assert_int_equal(gpusys_name_check(NULL, NULL), -EINVAL);
}

static void test_lengths(void **state)
{
    (void)state;
    char name[GPUSYS_NAME_BYTES + 2];
    struct gpusys_error error;
    memset(name, 'a', sizeof name);
    name[255] = 0;
    assert_int_equal(gpusys_name_check(name, &error), 0);
    name[255] = 'a';
    name[256] = 0;
    assert_int_equal(gpusys_name_check(name, &error), -EINVAL);
    assert_non_null(strstr(error.message, "above 255 bytes"));
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = i % 2 ? '/' : 'b';
    name[GPUSYS_NAME_BYTES - 1] = 0;
    assert_int_equal(gpusys_name_check(name, &error), 0);
    name[GPUSYS_NAME_BYTES - 1] = 'b';
    name[GPUSYS_NAME_BYTES] = 0;
    assert_int_equal(gpusys_name_check(name, &error), -EINVAL);
    assert_non_null(strstr(error.message, "above 4095 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
