/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ranks that die, fall silent, leave; alarms and what is made of them. */
#include "party_crew.h"

#include <errno.h>

enum { KEY = 77, SMALL_KEY = 78 };

static void expect(bool condition, const struct gs_failure *failure, int line)
{
    if (!condition) {
        fprintf(stderr, "line %d: code %d, %u suspects, \"%s\"\n", line, failure->code, failure->n_suspects,
                failure->text);
        _exit(98);
    }
}
#define EXPECT(condition, failure) expect(condition, &(failure), __LINE__)

static bool is_about(const struct gs_failure *failure, int code, uint32_t rank)
{
    return failure->code == code && failure->n_suspects == 1 && failure->suspects[0] == rank;
}

/* ---- a rank dies ---- */

static int64_t silence_ns;
static uint32_t the_victim;

/* The victim waits for its end; the others say how they heard of it, and what they can do without it. */
static void outlive(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 4, silence_ns);
    struct crew_ear ear = {0}, small = {0}, late = {0};
    uint32_t without[3], n = 0;
    struct gpusys_error error = {0};
    for (uint32_t i = 0; i < 4; i++)
        if (i != the_victim)
            without[n++] = i;
    crew_attach(party, &ear, KEY, crew_ranks, 4);
    if (seat != the_victim)
        crew_attach(party, &small, SMALL_KEY, without, 3);
    crew_meet(crew, seat);
    crew->results[seat].failure = crew_hear(&ear);
    if (seat == the_victim) { /* it was only stopped */
        gs_party_close(party);
        return;
    }
    crew_attach(party, &late, 99, crew_ranks, 4); /* told at once */
    CHECK(crew_heard(&late) == 1 && strcmp(late.failure.text, ear.failure.text) == 0);
    CHECK(crew_gather(party, 5, crew_ranks, 4, 30 * CREW_SECOND, &error) == ear.failure.code);
    CHECK(strstr(error.message, ear.failure.text));
    if (the_victim != 0) { /* the others go on */
        CHECK(crew_gather(party, 6, without, 3, 30 * CREW_SECOND, NULL) == 0);
        CHECK(crew_heard(&small) == 0);
    } else {
        crew_hear(&small); /* without a hub it is over for all */
    }
    CHECK(crew_heard(&ear) == 1);
    gs_party_detach(party, KEY);
    gs_party_detach(party, KEY);
    gs_party_close(party);
}

static struct crew *begin_outliving(uint32_t victim, bool over_tcp, int64_t silence)
{
    struct crew *crew = crew_new(over_tcp);
    the_victim = victim;
    silence_ns = silence;
    for (uint32_t i = 0; i < 4; i++)
        crew_start(crew, i, outlive);
    crew_await(crew, 4);
    return crew;
}

/* The others end well, and all say the same. */
static void check_survivors(struct crew *crew, uint32_t victim, int code, const char *what)
{
    char text[128];
    snprintf(text, sizeof text, "rank %u (host%u, process %d) %s", victim, victim, (int)crew->pids[victim],
             what);
    for (uint32_t i = 0; i < 4; i++) {
        if (i == victim)
            continue;
        assert_int_equal(crew_end(crew, i), 0);
        const struct gs_failure *failure = &crew->results[i].failure;
        assert_true(is_about(failure, code, victim));
        assert_string_equal(failure->text, text);
        assert_true(failure->key == 0);
    }
}

static void a_rank_is_killed(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        struct crew *crew = begin_outliving(2, over_tcp, 15 * CREW_SECOND);
        crew_go(crew);
        kill(crew->pids[2], SIGKILL);
        check_survivors(crew, 2, -ECONNRESET, "died: its connection was closed");
        crew_end(crew, 2);
        crew_free(crew);
    }
}

static void rank_0_is_killed(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        struct crew *crew = begin_outliving(0, over_tcp, 0);
        crew_go(crew);
        kill(crew->pids[0], SIGKILL);
        check_survivors(crew, 0, -ECONNRESET, "died: its connection was closed");
        crew_end(crew, 0);
        crew_free(crew);
    }
}

/* Stopped, found silent by the others, and told about it when it goes on. */
static void a_rank_is_stopped(void **state)
{
    struct crew *crew = begin_outliving(3, true, CREW_SECOND);
    (void)state;
    kill(crew->pids[3], SIGSTOP);
    crew_go(crew);
    check_survivors(crew, 3, -EHOSTDOWN, "is silent: nothing was heard of it for 1.0 s");
    kill(crew->pids[3], SIGCONT);
    assert_int_equal(crew_end(crew, 3), 0);
    crew_free(crew);
}

static void rank_0_is_stopped(void **state)
{
    struct crew *crew = begin_outliving(0, false, CREW_SECOND);
    (void)state;
    kill(crew->pids[0], SIGSTOP);
    crew_go(crew);
    check_survivors(crew, 0, -EHOSTDOWN, "is silent: nothing was heard of it for 1.0 s");
    kill(crew->pids[0], SIGCONT); /* it finds itself alone */
    kill(crew->pids[0], SIGKILL);
    crew_end(crew, 0);
    crew_free(crew);
}

/* Nobody is silent for long enough while pings go: nothing happens. */
static void stay_quiet(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 3, CREW_SECOND);
    struct crew_ear ear = {0};
    struct timespec time = {.tv_sec = 2, .tv_nsec = 500000000}; /* what is tested is that time passes */
    crew_attach(party, &ear, KEY, crew_ranks, 3);
    nanosleep(&time, NULL);
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    CHECK(crew_heard(&ear) == 0);
    gs_party_close(party);
}

static void pings(void **state)
{
    struct crew *crew = crew_new(true);
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        crew_start(crew, i, stay_quiet);
    crew_join(crew);
}

/* ---- leaving ---- */

static struct gs_record record_of(uint64_t sequence, uint64_t count)
{
    return (struct gs_record){.sequence = sequence, .count = count, .function = 1, .type = 7};
}

static void fill(struct gs_report *report, uint64_t submitted)
{
    *report = (struct gs_report){.submitted = submitted, .completed = submitted - 1};
    for (uint64_t i = submitted > 32 ? submitted - 31 : 1; i <= submitted; i++)
        report->records[report->n_records++] = record_of(i, 1024);
}

static void leave(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 3, 15 * CREW_SECOND);
    struct crew_ear ear = {0};
    struct gpusys_error error = {0};
    crew_attach(party, &ear, KEY, crew_ranks, 3);
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    if (seat != 2) {
        CHECK(crew_gather(party, 2, crew_ranks, 3, 30 * CREW_SECOND, &error) == -ECONNRESET);
        CHECK(strstr(error.message, "rank 2 (host2, process ") && strstr(error.message, ") has left"));
        CHECK(crew_gather(party, 3, crew_ranks, 3, 30 * CREW_SECOND, &error) == -ECONNRESET);
        CHECK(crew_gather(party, 4, crew_ranks, 2, 30 * CREW_SECOND, NULL) == 0);
        CHECK(crew_heard(&ear) == 0);
        CHECK(crew_gather(party, 5, crew_ranks, 2, 30 * CREW_SECOND, NULL) == 0);
        /* An alarm finds out that it has left. */
        if (seat == 1)
            gs_party_alarm(party, KEY, -ETIMEDOUT, "a wait ran out", true);
        struct gs_failure failure = crew_hear(&ear);
        EXPECT(is_about(&failure, -ETIMEDOUT, 2) && strstr(failure.text, "rank 2 (host2, process "), failure);
        EXPECT(strstr(failure.text, "takes no part in it") && failure.key == KEY, failure);
    }
    gs_party_close(party);
}

static void goodbye(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        crew_start(crew, i, leave);
    crew_join(crew);
}

static void stay_behind(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 3, 15 * CREW_SECOND);
    struct crew_ear ear = {0};
    struct gpusys_error error = {0};
    crew_attach(party, &ear, KEY, crew_ranks, 3);
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    if (seat) {
        CHECK(crew_gather(party, 2, crew_ranks, 3, 30 * CREW_SECOND, &error) == -ECONNRESET);
        CHECK(strstr(error.message, "rank 0 (host0, process ") && strstr(error.message, ") has left"));
        CHECK(crew_heard(&ear) == 0);
        gs_party_alarm(party, KEY, -EIO, "NCCL says no", true);
        struct gs_failure failure = crew_hear(&ear);
        EXPECT(failure.code == -EIO && failure.n_suspects == 0, failure);
        EXPECT(strstr(failure.text, "NCCL says no; rank 0 (host0, process ") &&
                   strstr(failure.text, "has left"),
               failure);
    }
    gs_party_close(party);
}

static void goodbye_of_rank_0(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        struct crew *crew = crew_new(over_tcp);
        for (uint32_t i = 0; i < 3; i++)
            crew_start(crew, i, stay_behind);
        crew_join(crew);
    }
}

/* An alarm crosses rank 0's goodbye: one way or the other there is an answer, on every rank but the one that left. */
static void cross(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 3, 15 * CREW_SECOND);
    struct crew_ear ear = {0};
    fill(&ear.report, 5);
    crew_attach(party, &ear, KEY, crew_ranks, 3);
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    if (seat == 1) {
        gs_party_alarm(party, KEY, -EIO, "NCCL says no", true);
        int code = crew_hear(&ear).code; /* -ETIMEDOUT: rank 2 had gone when it was asked */
        CHECK(code == -EIO || code == -ETIMEDOUT);
    }
    gs_party_close(party);
}

static void an_alarm_crosses_a_goodbye(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct crew *crew = crew_new(false);
        for (uint32_t k = 0; k < 3; k++)
            crew_start(crew, k, cross);
        crew_join(crew);
    }
}

/* Rank 0 raises one and leaves at once: it is told as it was raised. */
static void raise_and_leave(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 3, 15 * CREW_SECOND);
    struct crew_ear ear = {0};
    fill(&ear.report, 5);
    crew_attach(party, &ear, KEY, crew_ranks, 3);
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    if (seat == 0) {
        gs_party_alarm(party, KEY, -EIO, "NCCL says no", true);
    } else {
        struct gs_failure failure = crew_hear(&ear);
        EXPECT(failure.code == -EIO && strstr(failure.text, "NCCL says no"), failure);
    }
    gs_party_close(party);
}

static void a_last_alarm(void **state)
{
    struct crew *crew = crew_new(true);
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        crew_start(crew, i, raise_and_leave);
    crew_join(crew);
}

/* Nobody hangs on closing because another does not answer. */
static void close_alone(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 2, 0);
    crew_meet(crew, seat);
    int64_t began_ns = gpusys_now_ns();
    gs_party_close(party);
    CHECK(gpusys_now_ns() - began_ns < 10 * CREW_SECOND);
}

static void closing_is_bounded(void **state)
{
    (void)state;
    for (uint32_t stopped = 0; stopped < 2; stopped++) {
        struct crew *crew = crew_new(true);
        crew_start(crew, 0, close_alone);
        crew_start(crew, 1, close_alone);
        crew_await(crew, 2);
        kill(crew->pids[stopped], SIGSTOP);
        crew_go(crew);
        assert_int_equal(crew_end(crew, 1 - stopped), 0);
        kill(crew->pids[stopped], SIGCONT);
        assert_int_equal(crew_end(crew, stopped), 0);
        crew_free(crew);
    }
}

/* ---- alarms ---- */

/* Everybody raises the alarm, on both keys; each key ends in one failure. */
static void lag(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 4, 15 * CREW_SECOND);
    struct crew_ear ear = {0}, small = {0};
    fill(&ear.report, seat == 2 ? 41 : 42);
    fill(&small.report, 3);
    small.report.records[1].count += seat == 3;
    crew_attach(party, &ear, KEY, crew_ranks, 4);
    if (seat != 2)
        crew_attach(party, &small, SMALL_KEY, (const uint32_t[]){3, 0, 1}, 3);
    CHECK(crew_gather(party, 1, crew_ranks, 4, 30 * CREW_SECOND, NULL) == 0); /* all are attached */
    gs_party_alarm(party, KEY, -ETIMEDOUT, "a wait ran out", true);
    if (seat != 2)
        gs_party_alarm(party, SMALL_KEY, -ETIMEDOUT, "a wait ran out", true);
    crew->results[seat].failure = crew_hear(&ear);
    if (seat != 2) {
        struct gs_failure failure = crew_hear(&small);
        EXPECT(is_about(&failure, -EBADMSG, 3) && failure.key == SMALL_KEY, failure);
        EXPECT(strstr(failure.text, "rank 3 (host3, process ") &&
                   strstr(failure.text,
                          ") differs at collective 2: it submitted all_reduce of 1025 float32, sum, "
                          "the others all_reduce of 1024 float32, sum"),
               failure);
    }
    CHECK(crew_gather(party, 2, crew_ranks, 4, 30 * CREW_SECOND, NULL) == 0);
    CHECK(crew_heard(&ear) == 1 && ear.n_asked == 1);
    CHECK(seat == 2 || (crew_heard(&small) == 1 && small.n_asked == 1));
    gs_party_close(party);
}

static void alarms(void **state)
{
    struct crew *crew = crew_new(false);
    char text[256];
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        crew_start(crew, i, lag);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(crew_end(crew, i), 0);
    snprintf(
        text, sizeof text,
        "rank 2 (host2, process %d) lags: it has submitted 41 collectives, the others 42; it never came to "
        "all_reduce of 1024 float32, sum (collective 42)",
        (int)crew->pids[2]);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(is_about(&crew->results[i].failure, -ETIMEDOUT, 2));
        assert_string_equal(crew->results[i].failure.text, text);
    }
    crew_free(crew);
}

/* As it is said, without asking; and who comes to that communicator later is told at once. */
static void tell(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 3, 15 * CREW_SECOND);
    struct crew_ear ear = {0}, other = {0};
    struct gs_failure failure;
    if (seat != 2)
        crew_attach(party, &ear, KEY, crew_ranks, 3);
    crew_attach(party, &other, SMALL_KEY, crew_ranks, 3);
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    if (seat == 1) {
        gs_party_alarm(party, KEY, -EIO, "NCCL says no", false);
        gs_party_alarm(party, SMALL_KEY, -ECANCELED, "it was aborted", false);
    }
    failure = crew_hear(&other);
    EXPECT(failure.code == -ECANCELED && !failure.n_suspects && !strcmp(failure.text, "it was aborted"),
           failure);
    if (seat == 2) {
        crew_attach(party, &ear, KEY, crew_ranks, 3);
        CHECK(crew_heard(&ear) == 1);
    }
    failure = crew_hear(&ear);
    EXPECT(is_about(&failure, -EIO, 1) && strcmp(failure.text, "NCCL says no") == 0, failure);
    CHECK(ear.n_asked == 0);
    CHECK(crew_gather(party, 2, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    gs_party_close(party);
}

static void alarms_that_are_told_on(void **state)
{
    struct crew *crew = crew_new(true);
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        crew_start(crew, i, tell);
    crew_join(crew);
}

/* A stopped rank does not answer, and is named long before it counts as silent. */
static void ask_the_stopped(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 3, 0);
    struct crew_ear ear = {0};
    fill(&ear.report, 5);
    crew_attach(party, &ear, KEY, crew_ranks, 3);
    crew_meet(crew, seat);
    if (seat == 0)
        gs_party_alarm(party, KEY, -ETIMEDOUT, "a wait ran out", true);
    struct gs_failure failure = crew_hear(&ear);
    EXPECT(is_about(&failure, -EHOSTDOWN, 1) && strstr(failure.text, "does not answer"), failure);
    gs_party_close(party);
}

static void a_stopped_rank_is_asked(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        crew_start(crew, i, ask_the_stopped);
    crew_await(crew, 3);
    kill(crew->pids[1], SIGSTOP);
    crew_go(crew);
    assert_int_equal(crew_end(crew, 0), 0);
    assert_int_equal(crew_end(crew, 2), 0);
    kill(crew->pids[1], SIGCONT); /* what was sent to it waits there */
    assert_int_equal(crew_end(crew, 1), 0);
    crew_free(crew);
}

/* Nobody is at fault. */
static void agree(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 2, 15 * CREW_SECOND);
    struct crew_ear ear = {0};
    fill(&ear.report, 5);
    crew_attach(party, &ear, KEY, crew_ranks, 2);
    CHECK(crew_gather(party, 1, crew_ranks, 2, 30 * CREW_SECOND, NULL) == 0);
    if (seat == 1)
        gs_party_alarm(party, KEY, -ETIMEDOUT, "a wait ran out", true);
    struct gs_failure failure = crew_hear(&ear);
    EXPECT(failure.code == -ETIMEDOUT && failure.n_suspects == 0, failure);
    EXPECT(strcmp(failure.text,
                  "a wait ran out; all 2 ranks submitted the same 5 collectives, so that it is the "
                  "network or a GPU") == 0,
           failure);
    gs_party_close(party);
}

static void nobody_is_at_fault(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        crew_start(crew, i, agree);
    crew_join(crew);
}

/* Alone, and still a party. */
static void alone(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 1, 15 * CREW_SECOND);
    struct crew_ear ear = {0};
    crew_attach(party, &ear, KEY, crew_ranks, 1);
    gs_party_alarm(party, KEY, -EIO, "NCCL says no", true);
    struct gs_failure failure = crew_hear(&ear);
    EXPECT(failure.code == -EIO && strstr(failure.text, "NCCL says no; all 1 rank"), failure);
    gs_party_detach(party, KEY);
    gs_party_close(party);
}

static void a_party_of_one(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    crew_start(crew, 0, alone);
    crew_join(crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_is_killed),
        cmocka_unit_test(rank_0_is_killed),
        cmocka_unit_test(a_rank_is_stopped),
        cmocka_unit_test(rank_0_is_stopped),
        cmocka_unit_test(pings),
        cmocka_unit_test(goodbye),
        cmocka_unit_test(goodbye_of_rank_0),
        cmocka_unit_test(an_alarm_crosses_a_goodbye),
        cmocka_unit_test(a_last_alarm),
        cmocka_unit_test(closing_is_bounded),
        cmocka_unit_test(alarms),
        cmocka_unit_test(alarms_that_are_told_on),
        cmocka_unit_test(a_stopped_rank_is_asked),
        cmocka_unit_test(nobody_is_at_fault),
        cmocka_unit_test(a_party_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
