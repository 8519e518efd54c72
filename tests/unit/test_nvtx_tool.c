/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a tool is told, to the letter. The tool is tests/fake/nvtx_inject.c. */
#include "nvtx_play.h"

static void expect(void (*body)(void), const char *mode, const char *expected)
{
    const char *path = play_file_of_words();
    play_in_child(body, (const char *const[]){"NVTX_INJECTION64_PATH", NVTX_INJECT, "FAKE_NVTX_LOG", path,
                                              "FAKE_NVTX_MODE", mode, NULL});
    assert_string_equal(play_words(path), expected);
}

static void plain(void)
{
    gpusys_nvtx_push("prefill");
    gpusys_nvtx_push_in(NULL, "layer");
    gpusys_nvtx_mark("here");
    gpusys_nvtx_pop();
    gpusys_nvtx_pop_in(NULL);
    gpusys_nvtx_end(gpusys_nvtx_start("request"));
    gpusys_nvtx_pop();
    CHECK(gpusys_nvtx_enabled());
}

static const char plain_words[] = "0 push - \"prefill\"\n"
                                  "0 push - \"layer\"\n"
                                  "0 mark - \"here\"\n"
                                  "0 pop -\n"
                                  "0 pop -\n"
                                  "0 start - \"request\" id=1\n"
                                  "0 end - id=1\n"
                                  "0 pop -\n";

static void plain_ranges(void **state)
{
    (void)state;
    expect(plain, "", plain_words);
}

static void what_a_push_returns_changes_nothing(void **state)
{
    (void)state;
    expect(plain, "error", plain_words);
}

static void a_tool_may_call_back_while_it_is_loaded(void **state)
{
    (void)state;
    expect(plain, "call-back", plain_words);
}

static void names_nobody(void)
{
    const struct gpusys_nvtx_event event = {.color = 0x80102030u};
    gpusys_nvtx_push(NULL);
    gpusys_nvtx_push_event(NULL, NULL);
    gpusys_nvtx_push_event(NULL, &event);
    gpusys_nvtx_mark(NULL);
    gpusys_nvtx_end(gpusys_nvtx_start(NULL));
    CHECK(gpusys_nvtx_domain_open(NULL) == NULL);
    CHECK(gpusys_nvtx_register(NULL, NULL) == NULL);
    gpusys_nvtx_name_category(NULL, 1, NULL);
    gpusys_nvtx_name_thread(NULL);
}

static void no_name_is_an_empty_one(void **state)
{
    (void)state;
    expect(names_nobody, "",
           "0 push - \"\"\n"
           "0 push - \"\"\n"
           "0 push - \"\" color=80102030\n"
           "0 mark - \"\"\n"
           "0 start - \"\" id=1\n"
           "0 end - id=1\n");
}

static void events(void)
{
    const struct gpusys_nvtx_event color = {.name = "color", .color = 0xff00ff00u, .category = 7};
    const struct gpusys_nvtx_event u64 = {
        .name = "u64", .payload_type = GPUSYS_NVTX_UINT64, .payload.u64 = UINT64_MAX};
    const struct gpusys_nvtx_event i64 = {
        .name = "i64", .payload_type = GPUSYS_NVTX_INT64, .payload.i64 = -5};
    const struct gpusys_nvtx_event f64 = {
        .name = "f64", .payload_type = GPUSYS_NVTX_DOUBLE, .payload.f64 = 2.5};
    const struct gpusys_nvtx_event unknown = {.name = "unknown", .payload_type = 99, .payload.u64 = 1};
    gpusys_nvtx_name_category(NULL, 7, "transfers");
    gpusys_nvtx_push_event(NULL, &color);
    gpusys_nvtx_push_event(NULL, &u64);
    gpusys_nvtx_push_event(NULL, &i64);
    gpusys_nvtx_mark_event(NULL, &f64);
    gpusys_nvtx_mark_event(NULL, &unknown);
    gpusys_nvtx_end(gpusys_nvtx_start_event(NULL, &color));
    gpusys_nvtx_name_thread("main");
}

static void colours_categories_payloads(void **state)
{
    (void)state;
    expect(events, "",
           "0 category - 7 \"transfers\"\n"
           "0 push - \"color\" color=ff00ff00 category=7\n"
           "0 push - \"u64\" u64=18446744073709551615\n"
           "0 push - \"i64\" i64=-5\n"
           "0 mark - \"f64\" f64=2.5\n"
           "0 mark - \"unknown\"\n"
           "0 start - \"color\" color=ff00ff00 category=7 id=1\n"
           "0 end - id=1\n"
           "0 thread this \"main\"\n");
}

static void in_domains(void)
{
    struct gpusys_nvtx_domain *mine = gpusys_nvtx_domain_open("mine");
    struct gpusys_nvtx_domain *other = gpusys_nvtx_domain_open("other");
    CHECK(mine && other);
    const struct gpusys_nvtx_string *step = gpusys_nvtx_register(mine, "step");
    const struct gpusys_nvtx_event event = {
        .string = step, .payload_type = GPUSYS_NVTX_UINT64, .payload.u64 = 42};
    const struct gpusys_nvtx_event of_default = {.string = gpusys_nvtx_register(NULL, "default")};
    gpusys_nvtx_name_category(mine, 3, "three");
    gpusys_nvtx_push_in(mine, "a");
    gpusys_nvtx_push_in(other, "b");
    gpusys_nvtx_push_event(mine, &event);
    gpusys_nvtx_push_event(NULL, &of_default);
    gpusys_nvtx_pop_in(mine);
    gpusys_nvtx_pop_in(other);
    gpusys_nvtx_mark_event(mine, &event);
    struct gpusys_nvtx_range *range = gpusys_nvtx_start_in(other, "c");
    gpusys_nvtx_end(gpusys_nvtx_start_event(mine, &event));
    gpusys_nvtx_end(range);
    gpusys_nvtx_domain_close(mine);
    gpusys_nvtx_domain_close(other);
}

static void domains_and_registered_names(void **state)
{
    (void)state;
    expect(in_domains, "",
           "0 domain \"mine\"\n"
           "0 domain \"other\"\n"
           "0 string mine \"step\"\n"
           "0 string - \"default\"\n"
           "0 category mine 3 \"three\"\n"
           "0 push mine \"a\"\n"
           "0 push other \"b\"\n"
           "0 push mine registered:\"step\" u64=42\n"
           "0 push - registered:\"default\"\n"
           "0 pop mine\n"
           "0 pop other\n"
           "0 mark mine registered:\"step\" u64=42\n"
           "0 start other \"c\" id=1\n"
           "0 start mine registered:\"step\" u64=42 id=2\n"
           "0 end mine id=2\n"
           "0 end other id=1\n"
           "0 domain-end mine\n"
           "0 domain-end other\n");
}

static void domain_for_nobody(void)
{
    struct gpusys_nvtx_domain *mine = gpusys_nvtx_domain_open("mine");
    CHECK(mine && gpusys_nvtx_register(mine, "step"));
    gpusys_nvtx_push_in(mine, "a");
    gpusys_nvtx_pop_in(mine);
    gpusys_nvtx_domain_close(mine);
}

static void a_tool_without_domains_sees_the_default_one(void **state)
{
    (void)state;
    expect(domain_for_nobody, "few", "0 push - \"a\"\n0 pop -\n");
}

static void formatted(void)
{
    gpusys_nvtx_pushf("layer %d of %s", 12, "the model");
    gpusys_nvtx_pushf("%0400d", 7);
    gpusys_nvtx_pop();
    gpusys_nvtx_pop();
}

static void formatted_names_are_cut(void **state)
{
    (void)state;
    char expected[512];
    snprintf(expected, sizeof expected,
             "0 push - \"layer 12 of the model\"\n0 push - \"%0255d\"\n0 pop -\n0 pop -\n", 0);
    expect(formatted, "", expected);
}

/* ---- threads ---- */

static void *end_it(void *range)
{
    gpusys_nvtx_push("on the other");
    gpusys_nvtx_end(range);
    gpusys_nvtx_pop();
    return NULL;
}

static void across(void)
{
    pthread_t thread;
    struct gpusys_nvtx_range *range = gpusys_nvtx_start("request");
    CHECK(pthread_create(&thread, NULL, end_it, range) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void a_range_ends_on_another_thread(void **state)
{
    (void)state;
    expect(across, "",
           "0 start - \"request\" id=1\n"
           "1 push - \"on the other\"\n"
           "1 end - id=1\n"
           "1 pop -\n");
}

enum { THREADS = 8, TURNS = 50 };

static void *push_and_pop(void *gate)
{
    pthread_barrier_wait(gate);
    for (int i = 0; i < TURNS; i++) {
        struct gpusys_nvtx_domain *domain = gpusys_nvtx_domain_open("mine");
        CHECK(domain && gpusys_nvtx_register(NULL, "kept"));
        gpusys_nvtx_push_in(domain, "x");
        gpusys_nvtx_pop_in(domain);
        gpusys_nvtx_domain_close(domain);
    }
    return NULL;
}

static void all_at_once(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, push_and_pop, &gate) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* The first call is made by all at once, and none of it is lost. */
static void many_threads(void **state)
{
    (void)state;
    const char *path = play_file_of_words();
    play_in_child(all_at_once,
                  (const char *const[]){"NVTX_INJECTION64_PATH", NVTX_INJECT, "FAKE_NVTX_LOG", path, NULL});
    assert_int_equal(play_lines(play_words(path)), THREADS * TURNS * 5);
}

/* ---- who is no tool, and who is one more ---- */

static void is_not_enabled(void)
{
    gpusys_nvtx_push("x");
    CHECK(gpusys_nvtx_listening_ == 0);
}

static void a_tool_that_refuses_is_nobody(void **state)
{
    (void)state;
    expect(is_not_enabled, "refuse", "");
}

static void is_seen_by_both(void)
{
    struct gpusys_nvtx_balance balance = {.size = sizeof balance};
    gpusys_nvtx_push("prefill");
    CHECK(gpusys_nvtx_check(&balance) == 0);
    CHECK(balance.pushes == 1 && balance.open == 1);
    gpusys_nvtx_pop();
}

static void the_checker_looks_beside_the_tool(void **state)
{
    (void)state;
    const char *path = play_file_of_words();
    play_in_child(is_seen_by_both,
                  (const char *const[]){"NVTX_INJECTION64_PATH", NVTX_INJECT, "FAKE_NVTX_LOG", path,
                                        "GPUSYS_NVTX_CHECK", "1", NULL});
    assert_string_equal(play_words(path), "0 push - \"prefill\"\n0 pop -\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_ranges),
        cmocka_unit_test(what_a_push_returns_changes_nothing),
        cmocka_unit_test(a_tool_may_call_back_while_it_is_loaded),
        cmocka_unit_test(no_name_is_an_empty_one),
        cmocka_unit_test(colours_categories_payloads),
        cmocka_unit_test(domains_and_registered_names),
        cmocka_unit_test(a_tool_without_domains_sees_the_default_one),
        cmocka_unit_test(formatted_names_are_cut),
        cmocka_unit_test(a_range_ends_on_another_thread),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(a_tool_that_refuses_is_nobody),
        cmocka_unit_test(the_checker_looks_beside_the_tool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
