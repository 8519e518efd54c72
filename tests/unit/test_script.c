/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The scripted stream itself: a judge must be judged first. */
#include "support/script_stream.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const int64_t soon = INT64_MAX - 1; /* finite, and far */

static void steps_in_order_leave_a_trace(void **state)
{
    (void)state;
    static const struct script_step steps[] = {
        SCRIPT_EXPECT("hello", 5), SCRIPT_GIVE("ab", 2), SCRIPT_AGAIN(),
        SCRIPT_DRIP("cde", 3),     SCRIPT_ANY(2),        SCRIPT_END()};
    struct script *script = script_new(steps, sizeof steps / sizeof *steps);
    struct gpusys_stream *stream = script_open(script);
    char got[6] = "";
    size_t count;
    assert_int_equal(gpusys_stream_write(stream, "hel", 3, soon, NULL), 0);
    assert_false(script_done(script));
    assert_int_equal(gpusys_stream_write(stream, "lo", 2, soon, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(gpusys_stream_read(stream, got, 5, soon, &count), -EAGAIN);
    assert_int_equal(count, 2);
    assert_int_equal(gpusys_stream_read_some(stream, got + 2, 3, soon, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(gpusys_stream_read(stream, got + 3, 2, soon, NULL), 0);
    assert_string_equal(got, "abcde");
    assert_int_equal(gpusys_stream_write(stream, "xy", 2, soon, NULL), 0);
    assert_true(script_done(script));
    assert_int_equal(gpusys_stream_read(stream, got, 1, soon, NULL), -ECONNRESET);
    assert_null(script_fault(script));
    assert_string_equal(script_trace(script), "w5 r5 w2");
    assert_int_equal(script_early_writes(script), 0);
    assert_int_equal(script_early_reads(script), 0);
    const unsigned char *written;
    assert_int_equal(script_written(script, &written), 7);
    assert_memory_equal(written, "helloxy", 7);
    assert_false(script_closed(script));
    gpusys_stream_close(stream);
    assert_true(script_closed(script));
    script_free(script);
}

static void wrong_and_surplus_bytes_are_faults(void **state)
{
    (void)state;
    static const struct script_step steps[] = {SCRIPT_EXPECT("abc", 3)};
    struct script *script = script_new(steps, 1);
    struct gpusys_stream *stream = script_open(script);
    assert_int_equal(gpusys_stream_write(stream, "abX", 3, soon, NULL), -EPROTO);
    assert_string_equal(script_fault(script), "byte 2 of what was written is 0x58 instead of 0x63");
    gpusys_stream_close(stream);
    script_free(script);
    script = script_new(steps, 1);
    stream = script_open(script);
    assert_int_equal(gpusys_stream_write(stream, "abcd", 4, soon, NULL), -EPIPE);
    assert_string_equal(script_fault(script), "1 bytes were written where none were expected, after 3");
    gpusys_stream_close(stream);
    script_free(script);
}

static void order_of_reads_against_writes_is_kept(void **state)
{
    (void)state;
    static const struct script_step steps[] = {SCRIPT_EXPECT("ab", 2), SCRIPT_GIVE("1", 1),
                                               SCRIPT_EXPECT("cd", 2)};
    struct script *script = script_new(steps, 3);
    struct gpusys_stream *stream = script_open(script);
    char byte;
    assert_int_equal(gpusys_stream_read(stream, &byte, 1, soon, NULL), -ETIMEDOUT);
    assert_int_equal(gpusys_stream_read(stream, &byte, 1, 0, NULL), -EAGAIN);
    assert_null(script_fault(script));
    assert_int_equal(gpusys_stream_read(stream, &byte, 1, GPUSYS_NO_DEADLINE, NULL), -EDEADLK);
    assert_string_equal(script_fault(script), "the client waits for ever to read");
    assert_int_equal(script_early_reads(script), 3);
    gpusys_stream_close(stream);
    script_free(script);
    script = script_new(steps, 3);
    stream = script_open(script);
    assert_int_equal(gpusys_stream_write(stream, "abcd", 4, soon, NULL), 0);
    assert_int_equal(script_early_writes(script), 2);
    assert_int_equal(gpusys_stream_read(stream, &byte, 1, soon, NULL), 0);
    assert_true(script_done(script));
    assert_string_equal(script_trace(script), "w4 r1");
    gpusys_stream_close(stream);
    script_free(script);
}

static void trouble_comes_where_the_script_has_it(void **state)
{
    (void)state;
    static const struct script_step steps[] = {SCRIPT_GIVE("1", 1), SCRIPT_FAIL(-EIO),
                                               SCRIPT_ANY(2),       SCRIPT_WRITE_AGAIN(),
                                               SCRIPT_ANY(1),       SCRIPT_WRITE_FAIL(-EPIPE)};
    struct script *script = script_new(steps, 6);
    struct gpusys_stream *stream = script_open(script);
    char bytes[2];
    size_t count;
    assert_int_equal(gpusys_stream_read(stream, bytes, 2, soon, &count), -EIO);
    assert_int_equal(count, 1);
    assert_int_equal(gpusys_stream_write(stream, "abc", 3, soon, &count), -EAGAIN);
    assert_int_equal(count, 2);
    assert_int_equal(gpusys_stream_write(stream, "cd", 2, soon, &count), -EPIPE);
    assert_int_equal(count, 1);
    assert_null(script_fault(script));
    gpusys_stream_close(stream);
    script_free(script);
}

static void stalls_last(void **state)
{
    (void)state;
    static const struct script_step steps[] = {SCRIPT_WRITE_STALL(), SCRIPT_STALL()};
    struct script *script = script_new(steps + 1, 1);
    struct gpusys_stream *stream = script_open(script);
    char byte;
    for (int i = 0; i < 3; i++)
        assert_int_equal(gpusys_stream_read(stream, &byte, 1, soon, NULL), -ETIMEDOUT);
    gpusys_stream_close(stream);
    script_free(script);
    script = script_new(steps, 1);
    stream = script_open(script);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gpusys_stream_write(stream, "x", 1, soon, NULL), -ETIMEDOUT);
    assert_int_equal(gpusys_stream_fd(stream), -EOPNOTSUPP);
    gpusys_stream_close(stream);
    script_free(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_in_order_leave_a_trace),
        cmocka_unit_test(wrong_and_surplus_bytes_are_faults),
        cmocka_unit_test(order_of_reads_against_writes_is_kept),
        cmocka_unit_test(trouble_comes_where_the_script_has_it),
        cmocka_unit_test(stalls_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
