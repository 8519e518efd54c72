/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Names that a peer sends, against each other; and what a file is called while it arrives. */
#include "part_name.h"
#include "pull_plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The checks run on the table that a remote has; here the entries are given. */
int gpusys_name_check(const char *name, struct gpusys_error *error)
{
    (void)name;
    (void)error;
    return 0;
}

int gpusys_remote_region(const struct gpusys_remote *remote, uint32_t region,
                         struct gpusys_region_info *ret_info)
{
    const char *const *names = (const void *)remote;
    size_t length = strlen(names[region]);
    ret_info->name = names[region];
    ret_info->region = region;
    ret_info->kind = names[region][length - 1] == '=' ? GPUSYS_REGION_MEMORY : GPUSYS_REGION_FILE;
    ret_info->length = 100;
    return 0;
}

static int plan_of(struct plan *plan, const char *const *served, size_t n_served, const char *asked,
                   struct gpusys_error *error)
{
    char *names[] = {(char *)(uintptr_t)asked};
    return plan_make(plan, (const void *)served, n_served, names, asked != NULL, error);
}

#define PLAN(asked, plan, error, ...)                                                                        \
    plan_of(plan, (const char *const[]){__VA_ARGS__},                                                        \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), asked, error)

static void a_directory_is_followed_by_what_is_in_it(void **state)
{
    (void)state;
    struct plan plan;
    assert_int_equal(PLAN(NULL, &plan, NULL, "b", "a!", "a/x", "a\x01", "a/b/c"), 0);
    static const char *const sorted[] = {"a/b/c", "a/x", "a\x01", "a!", "b"};
    assert_int_equal(plan.n_entries, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(plan.entries[i].name, sorted[i]);
    assert_int_equal(plan.bytes, 500);
    plan_free(&plan);
}

static void a_name_stands_for_what_is_below_it(void **state)
{
    (void)state;
    struct plan plan;
    static const char *const asked[] = {"m", "m/", "m//"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(PLAN(asked[i], &plan, NULL, "m/1", "m/2/3", "mm", "m.x", "n/m/1"), 0);
        assert_int_equal(plan.n_entries, 2);
        assert_string_equal(plan.entries[0].name, "m/1");
        assert_string_equal(plan.entries[1].name, "m/2/3");
        plan_free(&plan);
    }
}

static void memory_comes_when_named(void **state)
{
    (void)state;
    struct plan plan;
    assert_int_equal(PLAN(NULL, &plan, NULL, "f", "m="), 0);
    assert_int_equal(plan.n_entries, 1);
    plan_free(&plan);
    assert_int_equal(PLAN("m=", &plan, NULL, "f", "m="), 0);
    assert_string_equal(plan.entries[0].name, "m=");
    plan_free(&plan);
    struct gpusys_error error = {0};
    assert_int_equal(PLAN(NULL, &plan, &error, "m="), -ENOENT);
    assert_non_null(strstr(error.message, "no files"));
}

static void an_unknown_name_is_told(void **state)
{
    (void)state;
    struct plan plan;
    struct gpusys_error error = {0};
    assert_int_equal(PLAN("z\033[2J", &plan, &error, "a"), -ENOENT);
    assert_non_null(strstr(error.message, "nothing named \"z\\x1b[2J\""));
}

static void collisions_are_refused(void **state)
{
    (void)state;
    struct plan plan;
    struct gpusys_error error;
    assert_int_equal(PLAN(NULL, &plan, &error, "a", "b", "a"), -EEXIST);
    assert_non_null(strstr(error.message, "the same name"));
    assert_int_equal(PLAN(NULL, &plan, &error, "a/b", "a!", "a"), -EEXIST);
    assert_non_null(strstr(error.message, "lies below it"));
    static const char *const in_the_way[] = {"d/a.part", "d/a.part/x", "d/a.part.journal",
                                             "d/a.part.journal/x"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(PLAN(NULL, &plan, &error, in_the_way[i], "d/a"), -EEXIST);
        assert_non_null(strstr(error.message, "while it arrives"));
        assert_non_null(strstr(error.detail, in_the_way[i]));
    }
    assert_int_equal(PLAN(NULL, &plan, &error, "d/a", "e/a.part", "a.part", "d/a.part2", "d/aa.part"), 0);
    plan_free(&plan);
}

static void names_that_were_not_asked_for_do_not_collide(void **state)
{
    (void)state;
    struct plan plan;
    assert_int_equal(PLAN("b", &plan, NULL, "a", "a", "b"), 0);
    plan_free(&plan);
}

static void part_names_fit(void **state)
{
    (void)state;
    char leaf[256], name[PART_NAME_BYTES], other[PART_NAME_BYTES];
    assert_string_equal(part_name(name, "x"), "x.part");
    assert_string_equal(part_journal_name(name, "x"), "x.part.journal");
    for (size_t length = 240; length <= 255; length++) {
        memset(leaf, 'n', length);
        leaf[length] = 0;
        part_name(name, leaf);
        part_journal_name(other, leaf);
        assert_true(strlen(other) <= 255);
        assert_int_equal(strncmp(name, other, strlen(name)), 0);
        assert_int_equal(strncmp(name, leaf, length) == 0, length <= 242);
        leaf[length - 1] = 'm';
        assert_string_not_equal(part_name(other, leaf), name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_is_followed_by_what_is_in_it),
        cmocka_unit_test(a_name_stands_for_what_is_below_it),
        cmocka_unit_test(memory_comes_when_named),
        cmocka_unit_test(an_unknown_name_is_told),
        cmocka_unit_test(collisions_are_refused),
        cmocka_unit_test(names_that_were_not_asked_for_do_not_collide),
        cmocka_unit_test(part_names_fit),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
