/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ranges where nobody listens. */
#include "nvtx_play.h"

#include <errno.h>
#include <gpusys/api.h>

static unsigned evaluated;

static int evaluate(void)
{
    return (int)++evaluated;
}

static void everything(void)
{
    const struct gpusys_nvtx_event event = {.name = "event", .color = 0xff00ff00u};
    gpusys_nvtx_pushf("layer %d", evaluate());
    CHECK(evaluated == 0);
    CHECK(gpusys_nvtx_listening_ == 0); /* that call has looked */
    CHECK(!gpusys_nvtx_enabled());
    gpusys_nvtx_pop();
    gpusys_nvtx_push("name");
    gpusys_nvtx_push(NULL);
    gpusys_nvtx_push_in(NULL, "name");
    gpusys_nvtx_push_event(NULL, &event);
    gpusys_nvtx_push_event(NULL, NULL);
    gpusys_nvtx_pop_in(NULL);
    gpusys_nvtx_mark("name");
    gpusys_nvtx_mark_event(NULL, &event);
    CHECK(gpusys_nvtx_start("name") == NULL);
    CHECK(gpusys_nvtx_start_in(NULL, "name") == NULL);
    CHECK(gpusys_nvtx_start_event(NULL, &event) == NULL);
    gpusys_nvtx_end(NULL);
    CHECK(gpusys_nvtx_domain_open("mine") == NULL);
    gpusys_nvtx_domain_close(NULL);
    CHECK(gpusys_nvtx_register(NULL, "text") == NULL);
    gpusys_nvtx_name_category(NULL, 1, "category");
    gpusys_nvtx_name_thread("thread");
    gpusys_nvtx_own_ranges(true);
    gpusys_nvtx_own_ranges(false);
    CHECK(evaluated == 0);
    struct gpusys_nvtx_balance balance = {.size = sizeof balance};
    CHECK(gpusys_nvtx_check(&balance) == -ENOENT);
}

static void the_functions_themselves(void)
{
    gpusys_nvtx_do_push(NULL, NULL, NULL, NULL, 0);
    gpusys_nvtx_do_pushf(NULL, NULL, 0, "%d", 1);
    gpusys_nvtx_do_pop(NULL, NULL, 0);
    gpusys_nvtx_do_mark(NULL, NULL, NULL);
    CHECK(gpusys_nvtx_do_start(NULL, NULL, NULL, NULL, 0) == NULL);
    CHECK(gpusys_nvtx_listening_ == 0);
}

static void is_not_enabled(void)
{
    CHECK(gpusys_nvtx_listening_ == 1); /* nobody has looked */
    CHECK(!gpusys_nvtx_enabled());
    CHECK(gpusys_nvtx_listening_ == 0);
}

static char line[1024];

static void keep_line(void *context, enum gpusys_log_level level, const char *text)
{
    CHECK(context == NULL && level == GPUSYS_LOG_DEBUG);
    snprintf(line, sizeof line, "%s", text);
}

static void is_not_enabled_and_says_so(void)
{
    gpusys_log_set(keep_line, NULL, GPUSYS_LOG_DEBUG);
    is_not_enabled();
    CHECK(strstr(line, "/nowhere/libtool.so"));
}

static void nobody_listens(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    play_in_child(everything, none);
    play_in_child(the_functions_themselves, none);
    play_in_child(is_not_enabled, none);
}

static void a_tool_that_is_not_there_is_nobody(void **state)
{
    (void)state;
    static const char *const nowhere[] = {"NVTX_INJECTION64_PATH", "/nowhere/libtool.so", NULL};
    play_in_child(is_not_enabled_and_says_so, nowhere);
    play_in_child(everything, nowhere);
}

static void a_library_that_is_no_tool_is_nobody(void **state)
{
    (void)state;
    static const char *const no_tool[] = {"NVTX_INJECTION64_PATH", "libc.so.6", NULL};
    play_in_child(is_not_enabled, no_tool);
}

static void the_checker_wants_to_be_asked_for(void **state)
{
    (void)state;
    static const char *const values[] = {"0", "", "no", "11"};
    for (size_t i = 0; i < COUNT_OF(values); i++)
        play_in_child(is_not_enabled, (const char *const[]){"GPUSYS_NVTX_CHECK", values[i], NULL});
}

static void the_build_says_whether_it_has_nvtx(void **state)
{
    (void)state;
    assert_int_equal(gpusys_nvtx_built(), strstr(gpusys_build_info(), ", nvtx") != NULL);
    assert_int_equal(gpusys_nvtx_built(), GS_HAS_NVTX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_tool_that_is_not_there_is_nobody),
        cmocka_unit_test(a_library_that_is_no_tool_is_nobody),
        cmocka_unit_test(the_checker_wants_to_be_asked_for),
        cmocka_unit_test(the_build_says_whether_it_has_nvtx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
