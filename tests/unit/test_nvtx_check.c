/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The balance checker: what it counts, and what it says of whom. */
#include "nvtx_play.h"

/* ---- what was said ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char said[256 * 1024];

static void keep_line(void *context, enum gpusys_log_level level, const char *text)
{
    CHECK(context == NULL && level == GPUSYS_LOG_WARN);
    pthread_mutex_lock(&lock);
    size_t length = strlen(said);
    snprintf(said + length, sizeof said - length, "%s\n", text);
    pthread_mutex_unlock(&lock);
}

/* A place in this file, as it is shown. */
static const char *place(int line)
{
    enum { SHOWN = 63 };
    static char texts[8][128];
    static unsigned next;
    const char *whole = __FILE__, *file = strlen(whole) > SHOWN ? whole + strlen(whole) - SHOWN : whole;
    char *text = texts[next++ % COUNT_OF(texts)];
    snprintf(text, sizeof texts[0], "%s:%d", file, line);
    return text;
}

/* This is the next line that was said; "": there is none. */
__attribute__((format(printf, 1, 2))) static void check_said(const char *format, ...)
{
    char expected[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    size_t length = strlen(expected);
    if (strncmp(said, expected, length) != 0)
        fprintf(stderr, "said: %s\nexpected: %s\n", said, expected);
    CHECK(strncmp(said, expected, length) == 0);
    CHECK(length == 0 || said[length] == '\n');
    CHECK(length || !said[0]);
    memmove(said, said + length + !!length, strlen(said + length) + 1 - !!length);
}

static void check_counts(uint64_t pushes, uint64_t open, uint64_t unmatched, uint64_t crossed,
                         uint64_t unpopped)
{
    struct gpusys_nvtx_balance balance = {.size = sizeof balance};
    CHECK(gpusys_nvtx_check(&balance) == 0);
    CHECK(balance.size == sizeof balance);
    CHECK(balance.pushes == pushes);
    CHECK(balance.open == open);
    CHECK(balance.unmatched == unmatched);
    CHECK(balance.crossed == crossed);
    CHECK(balance.unpopped == unpopped);
}

static void run(void (*body)(void))
{
    gpusys_log_set(keep_line, NULL, GPUSYS_LOG_DEBUG);
    play_in_child(body, (const char *const[]){"GPUSYS_NVTX_CHECK", "1", NULL});
    gpusys_log_set(NULL, NULL, GPUSYS_LOG_ERROR);
}

static void in_thread(void *(*body)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- balanced ---- */

static void is_balanced(void)
{
    CHECK(gpusys_nvtx_enabled());
    struct gpusys_nvtx_domain *mine = gpusys_nvtx_domain_open("mine");
    const struct gpusys_nvtx_event event = {.string = gpusys_nvtx_register(mine, "step")};
    CHECK(mine && event.string);
    gpusys_nvtx_push("a");
    gpusys_nvtx_push_event(mine, &event);
    gpusys_nvtx_pushf("c %d", 1);
    gpusys_nvtx_mark("no range");
    gpusys_nvtx_pop();
    gpusys_nvtx_pop_in(mine);
    gpusys_nvtx_pop();
    struct gpusys_nvtx_range *first = gpusys_nvtx_start("first"), *second = gpusys_nvtx_start("second"),
                             *third = gpusys_nvtx_start_in(mine, "third");
    gpusys_nvtx_end(second);
    gpusys_nvtx_end(first);
    gpusys_nvtx_end(third);
    gpusys_nvtx_domain_close(mine);
    check_counts(6, 0, 0, 0, 0);
    check_said("%s", "");
}

static void what_is_balanced_is_not_mentioned(void **state)
{
    (void)state;
    run(is_balanced);
}

/* ---- not balanced ---- */

static void pops_too_much(void)
{
    struct gpusys_nvtx_domain *mine = gpusys_nvtx_domain_open("mine");
    int line = __LINE__ + 1;
    gpusys_nvtx_pop();
    gpusys_nvtx_pop_in(mine);
    check_said("NVTX: a pop at %s in the default domain has no push on its thread", place(line));
    check_said("NVTX: a pop at %s in domain \"mine\" has no push on its thread", place(line + 1));
    check_counts(0, 0, 2, 0, 0);
    check_said("%s", "");
    gpusys_nvtx_domain_close(mine);
}

static void a_pop_without_a_push(void **state)
{
    (void)state;
    run(pops_too_much);
}

static void crosses_domains(void)
{
    struct gpusys_nvtx_domain *mine = gpusys_nvtx_domain_open("mine");
    int line = __LINE__ + 1;
    gpusys_nvtx_push("outer");
    gpusys_nvtx_push_in(mine, "inner");
    gpusys_nvtx_pop();
    check_said(
        "NVTX: \"outer\" (pushed at %s in the default domain) was popped at %s, but \"inner\" (pushed at "
        "%s in domain \"mine\") is still open and came later",
        place(line), place(line + 2), place(line + 1));
    gpusys_nvtx_pop_in(mine);
    check_counts(2, 0, 0, 1, 0);
    check_said("%s", "");
    gpusys_nvtx_domain_close(mine);
}

static void domains_that_cross(void **state)
{
    (void)state;
    run(crosses_domains);
}

static int pushed_at, popped_at;

static void *pop_here(void *unused)
{
    popped_at = __LINE__ + 1;
    gpusys_nvtx_pop();
    return unused;
}

static void crosses_threads(void)
{
    pushed_at = __LINE__ + 1;
    gpusys_nvtx_push("step");
    in_thread(pop_here);
    check_said(
        "NVTX: a pop at %s in the default domain has no push on its thread; \"step\" (pushed at %s in the "
        "default domain) is open on another",
        place(popped_at), place(pushed_at));
    gpusys_nvtx_pop();
    check_counts(1, 0, 0, 1, 0);
    check_said("%s", "");
}

static void a_range_popped_on_another_thread(void **state)
{
    (void)state;
    run(crosses_threads);
}

static void *forget(void *unused)
{
    pushed_at = __LINE__ + 1;
    gpusys_nvtx_push("decode");
    gpusys_nvtx_pushf("layer %d", 12);
    gpusys_nvtx_push("closed");
    gpusys_nvtx_pop();
    return unused;
}

static void forgets(void)
{
    in_thread(forget);
    check_said("NVTX: \"decode\" (pushed at %s in the default domain) was open when its thread ended",
               place(pushed_at));
    check_said("NVTX: \"layer 12\" (pushed at %s in the default domain) was open when its thread ended",
               place(pushed_at + 1));
    check_counts(3, 0, 0, 0, 2);
    check_said("%s", "");
}

static void a_thread_that_ends_with_open_ranges(void **state)
{
    (void)state;
    run(forgets);
}

static void leaves_open(void)
{
    struct gpusys_nvtx_domain *mine = gpusys_nvtx_domain_open("mine");
    int line = __LINE__ + 1;
    gpusys_nvtx_push("pushed");
    struct gpusys_nvtx_range *range = gpusys_nvtx_start_in(mine, "started");
    check_counts(2, 2, 0, 0, 0);
    check_said("NVTX: \"pushed\" (pushed at %s in the default domain) is open", place(line));
    check_said("NVTX: \"started\" (started at %s in domain \"mine\") is open", place(line + 1));
    gpusys_nvtx_end(range);
    gpusys_nvtx_domain_close(mine);
    check_counts(2, 1, 0, 0, 0);
    check_said("NVTX: \"pushed\" (pushed at %s in the default domain) is open", place(line));
    gpusys_nvtx_pop();
    check_counts(2, 0, 0, 0, 0);
    check_said("%s", "");
}

static void a_report_names_what_is_open(void **state)
{
    (void)state;
    run(leaves_open);
}

/* A domain that comes to lie where a closed one was is not taken for it. */
static void uses_memory_again(void)
{
    struct gpusys_nvtx_domain *first = gpusys_nvtx_domain_open("first");
    gpusys_nvtx_push_in(first, "x");
    gpusys_nvtx_domain_close(first);
    for (int i = 0; i < 100; i++) {
        struct gpusys_nvtx_domain *next = gpusys_nvtx_domain_open("next");
        gpusys_nvtx_pop_in(next);
        gpusys_nvtx_domain_close(next);
    }
    check_counts(1, 1, 100, 0, 0);
}

static void a_closed_domain_is_not_another(void **state)
{
    (void)state;
    run(uses_memory_again);
}

/* ---- bounds ---- */

static void goes_deep(void)
{
    enum { KEPT = 1024, DEPTH = 5000 };
    int line = __LINE__ + 2;
    for (int i = 0; i < DEPTH; i++)
        gpusys_nvtx_push("deep");
    check_counts(DEPTH, DEPTH, 0, 0, 0);
    CHECK(strstr(said, "NVTX: 3976 more ranges, too deep to be remembered, are open\n"));
    said[0] = 0;
    for (int i = 0; i < DEPTH - KEPT; i++)
        gpusys_nvtx_pop();
    check_said("%s", "");
    for (int i = 0; i < KEPT - 1; i++)
        gpusys_nvtx_pop();
    check_counts(DEPTH, 1, 0, 0, 0);
    check_said("NVTX: \"deep\" (pushed at %s in the default domain) is open", place(line));
}

static void what_is_too_deep_is_counted(void **state)
{
    (void)state;
    run(goes_deep);
}

static void has_long_names(void)
{
    char name[200], file[200];
    memset(name, 'n', sizeof name);
    memset(file, 'f', sizeof file);
    name[sizeof name - 1] = file[sizeof file - 1] = 0;
    memcpy(file + sizeof file - 6, "end.c", 5);
    gpusys_nvtx_do_push(NULL, name, NULL, file, 5);
    memset(name, 'x', sizeof name - 1); /* they are copied */
    memset(file, 'x', sizeof file - 1);
    check_counts(1, 1, 0, 0, 0);
    check_said("NVTX: \"%.63s\" (pushed at %.58send.c:5 in the default domain) is open",
               "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
               "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff");
}

static void long_names_are_cut(void **state)
{
    (void)state;
    run(has_long_names);
}

/* ---- threads and processes ---- */

enum { THREADS = 8, TURNS = 200 };

static void *push_and_pop(void *unused)
{
    struct gpusys_nvtx_balance balance = {.size = sizeof balance};
    for (int i = 0; i < TURNS; i++) {
        gpusys_nvtx_push("x");
        struct gpusys_nvtx_range *range = gpusys_nvtx_start("y");
        gpusys_nvtx_pop();
        gpusys_nvtx_end(range);
        if (i % 50 == 0)
            CHECK(gpusys_nvtx_check(&balance) == 0 && balance.unmatched == 0);
    }
    gpusys_nvtx_push("left");
    return unused;
}

static void all_at_once(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, push_and_pop, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    said[0] = 0;
    check_counts(THREADS * (2 * TURNS + 1), 0, 0, 0, THREADS);
    check_said("%s", "");
}

static void many_threads(void **state)
{
    (void)state;
    run(all_at_once);
}

static void forks(void)
{
    int status;
    gpusys_nvtx_push("before");
    said[0] = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        gpusys_nvtx_push("in the child");
        gpusys_nvtx_pop();
        gpusys_nvtx_pop(); /* this thread's stack came along */
        check_counts(2, 0, 0, 0, 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gpusys_nvtx_pop();
    check_counts(1, 0, 0, 0, 0);
    check_said("%s", "");
}

static void a_child_goes_on(void **state)
{
    (void)state;
    run(forks);
}

/* ---- a file ---- */

static void *end_with_one(void *unused)
{
    gpusys_nvtx_push("thread's\n");
    return unused;
}

enum { FIRST = 1000 }; /* lines are given, so that the parent knows them too */

static void writes(void)
{
    gpusys_nvtx_do_pop(NULL, "a.c", FIRST);
    in_thread(end_with_one);
    gpusys_nvtx_do_push(NULL, "main's", NULL, "a.c", FIRST + 1);
    gpusys_nvtx_do_start(NULL, "started", NULL, "a.c", FIRST + 2);
    gpusys_nvtx_do_push(NULL, "closed", NULL, "a.c", FIRST + 3);
    gpusys_nvtx_do_pop(NULL, "a.c", FIRST + 4);
}

static void a_path_has_what_was_found_and_what_was_open_at_the_end(void **state)
{
    (void)state;
    const char *path = play_file_of_words();
    int id = play_in_child(writes, (const char *const[]){"GPUSYS_NVTX_CHECK", path, NULL});
    const char *words = play_words(path);
    char expected[1024];
    int length = snprintf(expected, sizeof expected,
                          "%d: NVTX: a pop at a.c:1000 in the default domain has no push on its thread\n"
                          "%d: NVTX: \"thread's?\" (pushed at ",
                          id, id);
    assert_memory_equal(words, expected, (size_t)length);
    words = strchr(words + length, '\n') + 1;
    snprintf(
        expected, sizeof expected,
        "%d: NVTX: \"main's\" (pushed at a.c:1001 in the default domain) was open when the process ended\n"
        "%d: NVTX: \"started\" (started at a.c:1002 in the default domain) was open when the process ended\n",
        id, id);
    assert_string_equal(words, expected);
}

static void ends_well(void)
{
    gpusys_nvtx_push("x");
    gpusys_nvtx_pop();
}

static void a_path_stays_empty_when_all_is_well(void **state)
{
    (void)state;
    const char *path = play_file_of_words();
    play_in_child(ends_well, (const char *const[]){"GPUSYS_NVTX_CHECK", path, NULL});
    assert_string_equal(play_words(path), "");
}

static const char *redirected;

static void writes_to_stderr(void)
{
    int fd = open(redirected, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    CHECK(write(STDERR_FILENO, "before\n", 7) == 7);
    gpusys_nvtx_do_pop(NULL, "a.c", 1);
    CHECK(write(STDERR_FILENO, "after\n", 6) == 6);
}

/* Into a file that was not opened for appending, where each must go behind the other. */
static void a_path_may_be_stderr(void **state)
{
    (void)state;
    char expected[128];
    redirected = play_file_of_words();
    int id = play_in_child(writes_to_stderr, (const char *const[]){"GPUSYS_NVTX_CHECK", "/dev/stderr", NULL});
    snprintf(expected, sizeof expected,
             "before\n%d: NVTX: a pop at a.c:1 in the default domain has no push on its thread\nafter\n", id);
    assert_string_equal(play_words(redirected), expected);
}

static void goes_on_unwritten(void)
{
    struct gpusys_nvtx_balance balance = {.size = sizeof balance};
    gpusys_nvtx_pop();
    CHECK(gpusys_nvtx_check(&balance) == 0 && balance.unmatched == 1);
    gpusys_nvtx_push("x");
}

static void a_path_that_cannot_be_opened_is_no_harm(void **state)
{
    (void)state;
    play_in_child(goes_on_unwritten, (const char *const[]){"GPUSYS_NVTX_CHECK", "/nowhere/at/all", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_balanced_is_not_mentioned),
        cmocka_unit_test(a_pop_without_a_push),
        cmocka_unit_test(domains_that_cross),
        cmocka_unit_test(a_range_popped_on_another_thread),
        cmocka_unit_test(a_thread_that_ends_with_open_ranges),
        cmocka_unit_test(a_report_names_what_is_open),
        cmocka_unit_test(a_closed_domain_is_not_another),
        cmocka_unit_test(what_is_too_deep_is_counted),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(a_child_goes_on),
        cmocka_unit_test(a_path_has_what_was_found_and_what_was_open_at_the_end),
        cmocka_unit_test(a_path_stays_empty_when_all_is_well),
        cmocka_unit_test(a_path_may_be_stderr),
        cmocka_unit_test(a_path_that_cannot_be_opened_is_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
