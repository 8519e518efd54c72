/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Errors: filled, formatted, cut; and the log's one sink. */
#include "base/log.h"
#include <gpusys/error.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void format_is_one_paragraph(void **state)
{
    (void)state;
    struct gpusys_error error;
    memset(&error, 0xaa, sizeof error);
    assert_int_equal(gpusys_error_set(&error, -EIO, "rail %d: no answer", 1), -EIO);
    gpusys_error_add_detail(&error, "local", "MTU %d", 4096);
    gpusys_error_add_detail(&error, "remote", "MTU %d", 1024);
    gpusys_error_set_cause(&error, "the port is %s", "down");
    gpusys_error_set_hint(&error, "gpusys doctor --peer %s", "10.78.0.1");
    char text[256];
    static const char expected[] = "rail 1: no answer\n"
                                   "  local   MTU 4096\n"
                                   "  remote  MTU 1024\n"
                                   "  cause   the port is down\n"
                                   "  try     gpusys doctor --peer 10.78.0.1";
    assert_int_equal(gpusys_error_format(&error, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
    assert_int_equal(error.domain, GPUSYS_DOMAIN_NONE);
    assert_int_equal(error.foreign, 0);
    assert_int_equal(error.code, -EIO);
    assert_int_equal(error.reserved, 0);
}

static void format_leaves_out_what_is_empty(void **state)
{
    (void)state;
    struct gpusys_error error;
    char text[64];
    gpusys_error_set(&error, -EINVAL, "no name");
    assert_int_equal(gpusys_error_format(&error, text, sizeof text), 7);
    assert_string_equal(text, "no name");
}

static void format_cuts_at_every_size(void **state)
{
    (void)state;
    struct gpusys_error error;
    char whole[128], text[128];
    gpusys_error_set(&error, -EINVAL, "message");
    gpusys_error_add_detail(&error, "a-long-name", "value");
    gpusys_error_set_hint(&error, "hint");
    int length = gpusys_error_format(&error, whole, sizeof whole);
    assert_string_equal(whole, "message\n  a-long-name value\n  try     hint");
    for (size_t size = 0; size <= (size_t)length + 1; size++) {
        memset(text, '#', sizeof text);
        assert_int_equal(gpusys_error_format(&error, text, size), length);
        assert_int_equal(text[size], '#');
        if (size) {
            assert_int_equal(text[size - 1], 0);
            assert_memory_equal(text, whole, size - 1);
        }
    }
    assert_int_equal(gpusys_error_format(&error, NULL, 0), length);
}

static void errno_text_is_appended(void **state)
{
    (void)state;
    struct gpusys_error error;
    assert_int_equal(gpusys_error_set_errno(&error, -ECONNREFUSED, "%s", "host:1"), -ECONNREFUSED);
    assert_string_equal(error.message, "host:1: Connection refused");
    assert_int_equal(error.domain, GPUSYS_DOMAIN_SYSTEM);
    assert_int_equal(error.foreign, ECONNREFUSED);
    assert_int_equal(error.code, -ECONNREFUSED);
    gpusys_error_set_errno(&error, -12345, "odd");
    assert_string_equal(error.message, "odd: unknown error");
    gpusys_error_set_foreign(&error, GPUSYS_DOMAIN_PEER, 7);
    assert_int_equal(error.domain, GPUSYS_DOMAIN_PEER);
    assert_int_equal(error.foreign, 7);
}

static void setting_again_starts_afresh(void **state)
{
    (void)state;
    struct gpusys_error error;
    gpusys_error_set_errno(&error, -EIO, "first");
    gpusys_error_add_detail(&error, "row", "1");
    gpusys_error_set_cause(&error, "cause");
    gpusys_error_set_hint(&error, "hint");
    gpusys_error_set(&error, -EINVAL, "second");
    assert_string_equal(error.message, "second");
    assert_string_equal(error.detail, "");
    assert_string_equal(error.cause, "");
    assert_string_equal(error.hint, "");
    assert_int_equal(error.domain, GPUSYS_DOMAIN_NONE);
    assert_int_equal(error.foreign, 0);
}

static void long_text_is_cut(void **state)
{
    (void)state;
    struct gpusys_error error;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    gpusys_error_set(&error, -EIO, "%s", text);
    gpusys_error_set_cause(&error, "%s", text);
    gpusys_error_set_hint(&error, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_int_equal(strlen(error.cause), sizeof error.cause - 1);
    assert_int_equal(strlen(error.hint), sizeof error.hint - 1);
    gpusys_error_set_errno(&error, -EIO, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

static void rows_that_do_not_fit_are_cut_or_left_out(void **state)
{
    (void)state;
    struct gpusys_error error;
    char filler[600];
    memset(filler, 'y', sizeof filler - 1);
    filler[sizeof filler - 1] = 0;
    gpusys_error_set(&error, -EIO, "m");
    gpusys_error_add_detail(&error, "a", "%.505s", filler);
    assert_int_equal(strlen(error.detail), 507);
    gpusys_error_add_detail(&error, "nam", "value");
    assert_int_equal(strlen(error.detail), 507); /* the name and its tab do not fit */
    gpusys_error_add_detail(&error, "n", "value");
    assert_string_equal(error.detail + 507, "\nn\tv");
}

static void control_characters_are_tamed(void **state)
{
    (void)state;
    struct gpusys_error error;
    gpusys_error_set(&error, -EIO, "%s",
                     "a\nb\x1b[2Jc\x7f"
                     "ü");
    gpusys_error_add_detail(&error, "row", "%s", "x\ty\nz");
    gpusys_error_add_detail(&error, "next", "1");
    gpusys_error_set_cause(&error, "%s", "\r");
    gpusys_error_set_hint(&error, "%s", "\x01");
    assert_string_equal(error.message, "a?b?[2Jc?ü");
    assert_string_equal(error.detail, "row\tx?y?z\nnext\t1");
    assert_string_equal(error.cause, "?");
    assert_string_equal(error.hint, "?");
}

static void null_is_ignored(void **state)
{
    (void)state;
    assert_int_equal(gpusys_error_set(NULL, -EIO, "x"), -EIO);
    assert_int_equal(gpusys_error_set_errno(NULL, -EPERM, "x"), -EPERM);
    gpusys_error_set_foreign(NULL, GPUSYS_DOMAIN_PEER, 1);
    gpusys_error_add_detail(NULL, "a", "b");
    gpusys_error_set_cause(NULL, "a");
    gpusys_error_set_hint(NULL, "a");
}

struct seen {
    int count;
    enum gpusys_log_level level;
    char line[2048];
};

static void see(void *context, enum gpusys_log_level level, const char *line)
{
    struct seen *seen = context;
    seen->count++;
    seen->level = level;
    snprintf(seen->line, sizeof seen->line, "%s", line);
}

static void log_goes_to_the_sink_up_to_its_level(void **state)
{
    (void)state;
    struct seen seen = {0};
    gs_log(GPUSYS_LOG_ERROR, "nobody listens");
    gpusys_log_set(see, &seen, GPUSYS_LOG_WARN);
    gs_log(GPUSYS_LOG_INFO, "too quiet");
    assert_int_equal(seen.count, 0);
    gs_log(GPUSYS_LOG_WARN, "%s %d", "rail", 1);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.level, GPUSYS_LOG_WARN);
    assert_string_equal(seen.line, "rail 1");
    gpusys_log_set(NULL, NULL, GPUSYS_LOG_DEBUG);
    gs_log(GPUSYS_LOG_ERROR, "nobody listens");
    assert_int_equal(seen.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format_is_one_paragraph),
        cmocka_unit_test(format_leaves_out_what_is_empty),
        cmocka_unit_test(format_cuts_at_every_size),
        cmocka_unit_test(errno_text_is_appended),
        cmocka_unit_test(setting_again_starts_afresh),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(rows_that_do_not_fit_are_cut_or_left_out),
        cmocka_unit_test(control_characters_are_tamed),
        cmocka_unit_test(null_is_ignored),
        cmocka_unit_test(log_goes_to_the_sink_up_to_its_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
