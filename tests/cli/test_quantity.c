/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Amounts with units, both ways. */
#include "quantity.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void bytes_from_text(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"1", 1},
        {"512B", 512},
        {"4K", 4096},
        {"4k", 4096},
        {"4Ki", 4096},
        {"4KiB", 4096},
        {"4kB", 4000},
        {"1M", 1 << 20},
        {"1MB", 1000000},
        {"1.5G", 3ull << 29},
        {"2T", 2ull << 40},
        {"0.5K", 512},
        {"15E", 15ull << 60},
        {"18446744073709551615", UINT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 77;
        print_message("%s\n", rows[i].text);
        assert_int_equal(quantity_parse_bytes(rows[i].text, &bytes), 0);
        assert_int_equal(bytes, rows[i].bytes);
    }
}

static void bytes_refused(void **state)
{
    static const struct {
        const char *text;
        int error;
    } rows[] = {
        {"", -EINVAL},      {"K", -EINVAL},
        {"-1", -EINVAL},    {"+1", -EINVAL},
        {" 1", -EINVAL},    {"1 K", -EINVAL},
        {"1X", -EINVAL},    {"1Kx", -EINVAL},
        {"1KiBs", -EINVAL}, {"0.3", -EINVAL},
        {"0.1K", -EINVAL},  {"1.0000000001G", -EINVAL},
        {"16E", -ERANGE},   {"18446744073709551616", -ERANGE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 77;
        print_message("%s\n", rows[i].text);
        assert_int_equal(quantity_parse_bytes(rows[i].text, &bytes), rows[i].error);
        assert_int_equal(bytes, 77);
    }
}

static void whole_numbers(void **state)
{
    uint64_t value = 77;
    (void)state;
    assert_int_equal(quantity_parse_u64("18446744073709551615", &value), 0);
    assert_int_equal(value, UINT64_MAX);
    assert_int_equal(quantity_parse_u64("0x1fF", &value), 0);
    assert_int_equal(value, 0x1ff);
    assert_int_equal(quantity_parse_u64("010", &value), 0);
    assert_int_equal(value, 10);
    assert_int_equal(quantity_parse_u64("18446744073709551616", &value), -ERANGE);
    assert_int_equal(quantity_parse_u64("-1", &value), -EINVAL);
    assert_int_equal(quantity_parse_u64("1x", &value), -EINVAL);
    assert_int_equal(quantity_parse_u64("", &value), -EINVAL);
    assert_int_equal(value, 10);
}

static void bytes_to_text(void **state)
{
    char text[QUANTITY_BYTES];
    (void)state;
    assert_string_equal(quantity_of_bytes(text, 0), "0 B");
    assert_string_equal(quantity_of_bytes(text, 1023), "1023 B");
    assert_string_equal(quantity_of_bytes(text, 1024), "1.00 KiB");
    assert_string_equal(quantity_of_bytes(text, 1536 * 1024), "1.50 MiB");
    assert_string_equal(quantity_of_bytes(text, (1024 << 20) - 1), "1.00 GiB");
    assert_string_equal(quantity_of_bytes(text, 64 << 20), "64.0 MiB");
    assert_string_equal(quantity_of_bytes(text, UINT64_MAX), "16.0 EiB");
}

static void rates_to_text(void **state)
{
    char text[QUANTITY_BYTES];
    (void)state;
    assert_string_equal(quantity_of_rate(text, 0), "0 B/s");
    assert_string_equal(quantity_of_rate(text, 999), "999 B/s");
    assert_string_equal(quantity_of_rate(text, 950e3), "950 kB/s");
    assert_string_equal(quantity_of_rate(text, 999.9e6), "1.00 GB/s");
    assert_string_equal(quantity_of_rate(text, 12.42e9), "12.4 GB/s");
}

static void durations_to_text(void **state)
{
    char text[QUANTITY_BYTES];
    (void)state;
    assert_string_equal(quantity_of_duration(text, 3), "3 ns");
    assert_string_equal(quantity_of_duration(text, 2100), "2.10 µs");
    assert_string_equal(quantity_of_duration(text, 15000000), "15.0 ms");
    assert_string_equal(quantity_of_duration(text, 3900000000), "3.90 s");
    assert_string_equal(quantity_of_duration(text, 125000000000), "2 m 05 s");
    assert_string_equal(quantity_of_duration(text, 3720000000000), "1 h 02 m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_from_text), cmocka_unit_test(bytes_refused),
        cmocka_unit_test(whole_numbers),   cmocka_unit_test(bytes_to_text),
        cmocka_unit_test(rates_to_text),   cmocka_unit_test(durations_to_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
