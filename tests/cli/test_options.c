/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Options of every kind, in the orders and spellings that people use. */
#include "options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct values {
    bool flag, other_flag;
    unsigned count;
    const char *string;
    uint64_t number, bytes;
    int64_t duration_ns;
    struct string_list strings, list;
};

#define AT(member) offsetof(struct values, member)

static const struct option rows[] = {
    {"flag", 'f', NULL, OPTION_FLAG, AT(flag), ""},
    {"flag-too", 'F', NULL, OPTION_FLAG, AT(other_flag), ""},
    {"count", 'c', NULL, OPTION_COUNT, AT(count), ""},
    {"string", 's', "TEXT", OPTION_STRING, AT(string), ""},
    {"number", 'n', "N", OPTION_U64, AT(number), ""},
    {"bytes", 'b', "BYTES", OPTION_BYTES, AT(bytes), ""},
    {"duration", 'd', "DURATION", OPTION_DURATION, AT(duration_ns), ""},
    {"strings", 'm', "TEXT", OPTION_STRINGS, AT(strings), ""},
    {"list", 'l', "NAME,...", OPTION_LIST, AT(list), ""},
};

enum { MOST_WORDS = 32 };

/* A command line under test: the words, then what became of them. */
struct line {
    char text[256], *argv[MOST_WORDS];
    int argc;
    struct values values;
    struct option_target target;
};

/* Words are parted by single blanks. */
static int parse(struct line *line, const char *words, bool stop_at_operand)
{
    memset(line, 0, sizeof *line);
    strncat(line->text, words, sizeof line->text - 1);
    for (char *rest = line->text; rest && line->argc < MOST_WORDS;)
        line->argv[line->argc++] = strsep(&rest, " ");
    line->target = (struct option_target){OPTION_TABLE(rows), &line->values};
    return options_parse(&line->target, 1, "test", &line->argc, line->argv, stop_at_operand);
}

static void each_kind(void **state)
{
    struct line line;
    (void)state;
    assert_int_equal(
        parse(&line, "--flag -cc --string x --number=0x10 -b 4K --duration 2s -m a -m b,c --list p,q -l r",
              false),
        0);
    assert_true(line.values.flag);
    assert_false(line.values.other_flag);
    assert_int_equal(line.values.count, 2);
    assert_string_equal(line.values.string, "x");
    assert_int_equal(line.values.number, 16);
    assert_int_equal(line.values.bytes, 4096);
    assert_int_equal(line.values.duration_ns, 2000000000);
    assert_int_equal(line.values.strings.count, 2);
    assert_string_equal(line.values.strings.items[1], "b,c");
    assert_int_equal(line.values.list.count, 3);
    assert_string_equal(line.values.list.items[1], "q");
    assert_string_equal(line.values.list.items[2], "r");
    assert_int_equal(line.argc, 0);
    options_free(&line.target);
    assert_int_equal(line.values.list.count, 0);
}

static void values_that_hang_on(void **state)
{
    struct line line;
    (void)state;
    assert_int_equal(parse(&line, "-fcsx=y --string= -n7", false), 0);
    assert_true(line.values.flag);
    assert_int_equal(line.values.count, 1);
    assert_string_equal(line.values.string, "");
    assert_int_equal(line.values.number, 7);
    assert_int_equal(parse(&line, "-sx=y", false), 0);
    assert_string_equal(line.values.string, "x=y");
    assert_int_equal(parse(&line, "-s -f", false), 0); /* a value may begin with a dash */
    assert_string_equal(line.values.string, "-f");
    assert_false(line.values.flag);
}

static void operands_between(void **state)
{
    struct line line;
    (void)state;
    assert_int_equal(parse(&line, "a -f b --string x - c -- -c --flag-too", false), 0);
    assert_int_equal(line.argc, 6);
    const char *const expected[] = {"a", "b", "-", "c", "-c", "--flag-too"};
    for (int i = 0; i < 6; i++)
        assert_string_equal(line.argv[i], expected[i]);
    assert_int_equal(line.values.count, 0);
    assert_false(line.values.other_flag);
}

static void stop_at_the_first_operand(void **state)
{
    struct line line;
    (void)state;
    assert_int_equal(parse(&line, "-f word -c --nosuch -- x", true), 0);
    assert_true(line.values.flag);
    assert_int_equal(line.values.count, 0);
    assert_int_equal(line.argc, 5);
    const char *const expected[] = {"word", "-c", "--nosuch", "--", "x"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(line.argv[i], expected[i]);
}

static void refused(void **state)
{
    static const char *const lines[] = {"--nosuch",    "-x",          "-fx",           "--flag=1",   "--fla",
                                        "--string",    "-s",          "--number",      "--number x", "-n -1",
                                        "--bytes 1.5", "--list a,,b", "--duration 1x", "--=x"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct line line;
        print_message("%s\n", lines[i]);
        assert_int_equal(parse(&line, lines[i], false), -EINVAL);
        options_free(&line.target);
    }
}

static void nearest_word(void **state)
{
    static const char *const words[] = {"doctor", "help", "serve", "pull", "ls"};
    (void)state;
    assert_string_equal(near_miss("docter", words, 5), "doctor");
    assert_string_equal(near_miss("doc", words, 5), "doctor");
    assert_string_equal(near_miss("pul", words, 5), "pull");
    assert_null(near_miss("xyzzy", words, 5));
    assert_null(near_miss("", words, 5));
    assert_null(near_miss("a-word-that-is-longer-than-any-command-will-be", words, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind),        cmocka_unit_test(values_that_hang_on),
        cmocka_unit_test(operands_between), cmocka_unit_test(stop_at_the_first_operand),
        cmocka_unit_test(refused),          cmocka_unit_test(nearest_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
