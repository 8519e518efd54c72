/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The histogram behind gpusys bench: percentiles exact where buckets are, and within 1/64 elsewhere. */
#include "bench_histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct histogram histogram;

static int clear(void **state)
{
    (void)state;
    histogram_clear(&histogram);
    return 0;
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(histogram_at(&histogram, 0), 0);
    assert_int_equal(histogram_at(&histogram, 0.5), 0);
    assert_int_equal(histogram_at(&histogram, 1), 0);
}

static void test_one_value(void **state)
{
    (void)state;
    histogram_add(&histogram, 123456789, 1);
    assert_int_equal(histogram_at(&histogram, 0.001), 123456789);
    assert_int_equal(histogram_at(&histogram, 1), 123456789);
}

/* 1 … 50 once each: small values have a bucket of their own. */
static void test_exact_below_64(void **state)
{
    (void)state;
    for (uint64_t value = 1; value <= 50; value++)
        histogram_add(&histogram, value, 1);
    assert_int_equal(histogram.samples, 50);
    assert_int_equal(histogram_at(&histogram, 0.02), 1);
    assert_int_equal(histogram_at(&histogram, 0.5), 25);
    assert_int_equal(histogram_at(&histogram, 0.98), 49);
    assert_int_equal(histogram_at(&histogram, 0.99), 50);
    assert_int_equal(histogram_at(&histogram, 1), 50);
}

static void test_counts_weigh(void **state)
{
    (void)state;
    histogram_add(&histogram, 3, 989);
    histogram_add(&histogram, 40, 10);
    histogram_add(&histogram, 50, 1);
    assert_int_equal(histogram.samples, 1000);
    assert_int_equal(histogram_at(&histogram, 0.5), 3);
    assert_int_equal(histogram_at(&histogram, 0.989), 3);
    assert_int_equal(histogram_at(&histogram, 0.99), 40);
    assert_int_equal(histogram_at(&histogram, 0.999), 40);
    assert_int_equal(histogram_at(&histogram, 0.9991), 50);
}

/* Whatever the value, the answer is not below it and at most 1/64 above; a larger value keeps it from being exact. */
static void test_error_is_bounded(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 62; bit++) {
        const uint64_t power = UINT64_C(1) << bit,
                       values[] = {power - 1, power, power + 1, power + power / 3};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            histogram_clear(&histogram);
            histogram_add(&histogram, values[i], 9);
            histogram_add(&histogram, UINT64_C(1) << 63, 1);
            uint64_t found = histogram_at(&histogram, 0.9);
            assert_true(found >= values[i]);
            assert_true(found - values[i] <= values[i] / 64);
        }
    }
}

/* Rows of the largest numbers there are: counted, and the largest is kept exactly. */
static void test_largest(void **state)
{
    (void)state;
    histogram_add(&histogram, 1, 1);
    histogram_add(&histogram, UINT64_MAX, 1);
    assert_int_equal(histogram_at(&histogram, 0.5), 1);
    assert_true(histogram_at(&histogram, 1) == UINT64_MAX);
    assert_true(histogram.largest == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_empty, clear),
        cmocka_unit_test_setup(test_one_value, clear),
        cmocka_unit_test_setup(test_exact_below_64, clear),
        cmocka_unit_test_setup(test_counts_weigh, clear),
        cmocka_unit_test_setup(test_error_is_bounded, clear),
        cmocka_unit_test_setup(test_largest, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
