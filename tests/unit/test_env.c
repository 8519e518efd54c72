/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Settings looked up over a list of keys. */
#include <gpusys/env.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const keys[] = {"GPUSYS_TEST_A", "GPUSYS_TEST_B", "GPUSYS_TEST_C"};

static void set(const char *a, const char *b, const char *c)
{
    const char *values[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (values[i])
            setenv(keys[i], values[i], 1);
        else
            unsetenv(keys[i]);
}

static void first_set_counts_the_empty_one(void **state)
{
    (void)state;
    set(NULL, "", "c");
    assert_string_equal(gpusys_env_first_set(keys, 3, "fallback"), "");
    set(NULL, NULL, "c");
    assert_string_equal(gpusys_env_first_set(keys, 3, "fallback"), "c");
    assert_string_equal(gpusys_env_first_set(keys, 2, "fallback"), "fallback");
    assert_null(gpusys_env_first_set(keys, 2, NULL));
    assert_null(gpusys_env_first_set(NULL, 0, NULL));
}

static void first_nonempty_skips_the_empty_one(void **state)
{
    (void)state;
    set("", "", "c");
    assert_string_equal(gpusys_env_first_nonempty(keys, 3, "fallback"), "c");
    assert_string_equal(gpusys_env_first_nonempty(keys, 2, "fallback"), "fallback");
    set("a", "b", NULL);
    assert_string_equal(gpusys_env_first_nonempty(keys, 3, "fallback"), "a");
}

static void u32_takes_whole_decimals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t value;
    } good[] = {{"0", 0},
                {"7", 7},
                {"+7", 7},
                {"007", 7},
                {"4294967295", UINT32_MAX},
                {"+0", 0},
                {"0000000000000000000000012", 12}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        set(good[i].text, NULL, NULL);
        assert_int_equal(gpusys_env_first_u32(keys, 3, 99), good[i].value);
    }
}

static void u32_skips_what_is_no_number(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "+",          "-1",
                                      "-0",  "++1",        " 1",
                                      "1 ",  "1x",         "0x10",
                                      "1.0", "1e3",        "\t1",
                                      "1\n", "4294967296", "99999999999999999999999",
                                      "١",   "+ 1",        "18446744073709551617"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set(bad[i], NULL, "5");
        assert_int_equal(gpusys_env_first_u32(keys, 3, 99), 5);
        set(bad[i], NULL, NULL);
        assert_int_equal(gpusys_env_first_u32(keys, 3, 99), 99);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_set_counts_the_empty_one),
        cmocka_unit_test(first_nonempty_skips_the_empty_one),
        cmocka_unit_test(u32_takes_whole_decimals),
        cmocka_unit_test(u32_skips_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
