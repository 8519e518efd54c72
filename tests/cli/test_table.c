/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tables that line up, and text that cannot steer a terminal. */
#include "output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What table_print writes; the caller frees it. */
static char *printed(struct table *table)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_int_equal(table_print(table, file), 0);
    fclose(file);
    return text;
}

static void columns_line_up(void **state)
{
    static const struct column columns[] = {
        {"NAME", ALIGN_LEFT}, {"TIME", ALIGN_RIGHT}, {"NOTE", ALIGN_LEFT}};
    struct table *table = table_new(columns, 3);
    (void)state;
    table_cell(table, "%s", "a");
    table_cell(table, "%d µs", 5);
    table_cell(table, "%s", "short");
    table_cell(table, "%s", "longer");
    table_cell(table, "%d ms", 500);
    table_cell(table, "%s", "");
    char *text = printed(table);
    assert_string_equal(text, "NAME      TIME  NOTE\n"
                              "a         5 µs  short\n"
                              "longer  500 ms  \n");
    free(text);
}

static void no_heading_no_rows(void **state)
{
    static const struct column columns[] = {{NULL, ALIGN_LEFT}, {NULL, ALIGN_RIGHT}};
    (void)state;
    char *text = printed(table_new(columns, 2));
    assert_string_equal(text, "");
    free(text);
}

static void many_rows(void **state)
{
    static const struct column columns[] = {{NULL, ALIGN_RIGHT}};
    struct table *table = table_new(columns, 1);
    (void)state;
    for (int i = 0; i < 1000; i++)
        table_cell(table, "%d", i);
    char *text = printed(table);
    assert_memory_equal(text, "  0\n  1\n", 8);
    assert_int_equal(strlen(text), 4000);
    free(text);
}

static void text_from_outside(void **state)
{
    char safe[64], small[8];
    (void)state;
    assert_string_equal(output_safe(safe, sizeof safe, "plain µ 模型 \360\237\230\200"),
                        "plain µ 模型 \360\237\230\200");
    assert_string_equal(output_safe(safe, sizeof safe, "a\033[31m\n\tb\177"), "a\\x1b[31m\\x0a\\x09b\\x7f");
    assert_string_equal(output_safe(safe, sizeof safe, "\xff \xc0\x80 \xe2\x82"),
                        "\\xff \\xc0\\x80 \\xe2\\x82");
    assert_string_equal(output_safe(safe, sizeof safe,
                                    "\xc2\x9b"
                                    "31m"),
                        "\\xc2\\x9b31m");
    assert_string_equal(output_safe(small, sizeof small, "abc\001def"), "abc\\x01");
    assert_string_equal(output_safe(small, sizeof small, "abcd\001"), "abcd");
    assert_string_equal(output_safe(small, sizeof small, "123456µ"), "123456");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_line_up),
        cmocka_unit_test(no_heading_no_rows),
        cmocka_unit_test(many_rows),
        cmocka_unit_test(text_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
