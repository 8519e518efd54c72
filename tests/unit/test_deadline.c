/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Points in time, and waiting for them. */
#include "base/deadline.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

static void after_adds_and_saturates(void **state)
{
    (void)state;
    int64_t before = gpusys_now_ns(), deadline = gpusys_deadline_after(1000000000), after = gpusys_now_ns();
    assert_true(before > 0);
    assert_true(deadline >= before + 1000000000 && deadline <= after + 1000000000);
    assert_true(gpusys_deadline_after(-1) == GPUSYS_NO_DEADLINE);
    assert_true(gpusys_deadline_after(INT64_MIN) == GPUSYS_NO_DEADLINE);
    assert_true(gpusys_deadline_after(INT64_MAX) == GPUSYS_NO_DEADLINE);
    assert_true(gpusys_deadline_after(INT64_MAX - 1) == GPUSYS_NO_DEADLINE);
}

static void milliseconds_are_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(gs_deadline_ms(GPUSYS_NO_DEADLINE), -1);
    assert_int_equal(gs_deadline_ms(0), 0);
    assert_int_equal(gs_deadline_ms(INT64_MIN), 0);
    assert_int_equal(gs_deadline_ms(gpusys_now_ns() - 1), 0);
    assert_int_equal(gs_deadline_ms(GPUSYS_NO_DEADLINE - 1), INT_MAX);
    int64_t deadline = gpusys_now_ns() + 3600 * INT64_C(1000000000);
    int left = gs_deadline_ms(deadline);
    assert_true(left > 0 && left <= 3600000);
    assert_true(gpusys_now_ns() + left * INT64_C(1000000) >= deadline); /* never woken before it */
}

static void wait_tells_past_from_passed(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(gs_wait_fd(ends[0], POLLIN, 0), -EAGAIN);
    assert_int_equal(gs_wait_fd(ends[0], POLLIN, gpusys_now_ns() - 1), -EAGAIN);
    int64_t deadline = gpusys_deadline_after(2000000);
    assert_int_equal(gs_wait_fd(ends[0], POLLIN, deadline), -ETIMEDOUT);
    assert_true(gpusys_now_ns() >= deadline);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(gs_wait_fd(ends[0], POLLIN, 0), 0);
    assert_int_equal(gs_wait_fd(ends[0], POLLIN, GPUSYS_NO_DEADLINE), 0);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_adds_and_saturates),
        cmocka_unit_test(milliseconds_are_rounded_up),
        cmocka_unit_test(wait_tells_past_from_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
