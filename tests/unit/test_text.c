/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Text of others: what counts as a character, and what reaches a terminal. */
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <gpusys/error.h>
#include <stdlib.h>
#include <string.h>

static void characters(void **state)
{
    (void)state;
    assert_int_equal(gs_text_character("a", 1), 1);
    assert_int_equal(gs_text_character("\xc3\xa9", 2), 2);
    assert_int_equal(gs_text_character("\xe2\x82\xac", 3), 3);
    assert_int_equal(gs_text_character("\xf0\x9f\x98\x80", 4), 4);
    assert_int_equal(gs_text_character("", 0), 0);
}

static void what_is_none(void **state)
{
    static const struct {
        const char *bytes;
        size_t left;
    } none[] = {{"\x80", 1},
                {"\xc0\x80", 2},
                {"\xc1\xbf", 2},
                {"\xc3", 1},
                {"\xc3(", 2},
                {"\xe0\x9f\xbf", 3},
                {"\xed\xa0\x80", 3},
                {"\xe2\x82", 2},
                {"\xe2\x82(", 3},
                {"\xf0\x8f\xbf\xbf", 4},
                {"\xf4\x90\x80\x80", 4},
                {"\xf0\x9f\x98", 3},
                {"\xf5\x80\x80\x80", 4},
                {"\xff", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(gs_text_character(none[i].bytes, none[i].left), 0);
}

/* It is looked at no further than it goes: the page behind a text may not be there. */
static void the_end(void **state)
{
    (void)state;
    char *cut = malloc(2);
    assert_non_null(cut);
    memcpy(cut, "\xf0\x9f", 2);
    assert_int_equal(gs_text_character(cut, 2), 0);
    assert_false(gs_text_is_clean(cut, 2));
    gs_text_clean(cut, 2);
    assert_memory_equal(cut, "??", 2);
    free(cut);
}

static void cleaned(const char *text, const char *wanted)
{
    char copy[64];
    strcpy(copy, text);
    assert_int_equal(gs_text_is_clean(text, strlen(text)), strcmp(text, wanted) == 0);
    gs_text_clean(copy, strlen(copy));
    assert_string_equal(copy, wanted);
    assert_true(gs_text_is_clean(copy, strlen(copy)));
}

static void what_is_shown(void **state)
{
    (void)state;
    cleaned("plain", "plain");
    cleaned("caf\xc3\xa9 \xe2\x82\xac", "caf\xc3\xa9 \xe2\x82\xac");
    cleaned("\x1b[2J\n\x7f", "?[2J??");
    cleaned("\xc2\x9b"
            "2J",
            "??2J"); /* the one-character CSI of some terminals */
    cleaned("\x9b"
            "2J",
            "?2J");
    cleaned("\xc2\xa0", "\xc2\xa0"); /* the first above the controls */
    cleaned("\xc3", "?");
    cleaned("", "");
}

static void errors_are_clean(void **state)
{
    struct gpusys_error error;
    char text[256];
    (void)state;
    gpusys_error_set(&error, -1,
                     "host \xc2\x9b"
                     "2J\x9b"
                     "1m");
    gpusys_error_add_detail(&error, "peer", "\xc2\x85 caf\xc3\xa9");
    gpusys_error_format(&error, text, sizeof text);
    assert_null(strstr(text, "\xc2\x9b"));
    assert_non_null(strstr(text, "host ??2J?1m"));
    assert_non_null(strstr(text, "?? caf\xc3\xa9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters),    cmocka_unit_test(what_is_none),     cmocka_unit_test(the_end),
        cmocka_unit_test(what_is_shown), cmocka_unit_test(errors_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
