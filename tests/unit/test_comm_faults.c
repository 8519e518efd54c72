/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What goes wrong in a communicator ends it on every rank, in bounded time, with the right rank named. */
#include "comm_play.h"

#include <pthread.h>
#include <stdbool.h>

enum { RANKS = 4, COUNT = 64, NOBODY = 99 };

/* What the play is about; set before the ranks are forked. */
static struct {
    uint32_t culprit, origin;
    int code;         /* that every rank is to have */
    const char *text; /* that its error is to contain, */
    const char *own;  /* or this, on the rank itself */
    const char *fail, *stall, *hang, *async;
} plot;

static void plan(uint32_t culprit, int code, const char *text, const char *own)
{
    memset(&plot, 0, sizeof plot);
    plot.culprit = culprit;
    plot.code = code;
    plot.text = text;
    plot.own = own;
}

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
}

static struct gpusys_comm_options begin(const struct seat *seat)
{
    static char path[128];
    struct gpusys_comm_options options = play_options(seat);
    snprintf(path, sizeof path, "%s/trace", seat->folder);
    options.trace_path = path;
    set("FAKE_NCCL_FAIL", plot.fail);
    set("FAKE_NCCL_STALL", plot.stall);
    set("FAKE_NCCL_HANG", plot.hang);
    set("FAKE_NCCL_ASYNC_ERROR", plot.async);
    return options;
}

static int submit(const struct seat *seat, struct gpusys_comm *comm, const struct bench *bench, size_t count)
{
    void *buffer = bench_alloc(seat, bench, count * 4);
    return gpusys_comm_all_reduce(comm, buffer, buffer, count, GPUSYS_NCCL_INT32, GPUSYS_NCCL_SUM,
                                  bench->stream);
}

/* Every line is an object, and the head says why. */
static void check_trace(const struct seat *seat)
{
    char path[160], line[4096];
    int n = 0;
    snprintf(path, sizeof path, "%s/trace.%u", seat->folder, seat->rank);
    FILE *file = fopen(path, "r");
    CHECK(seat, file);
    for (; fgets(line, sizeof line, file); n++) {
        size_t length = strlen(line);
        CHECK(seat, length > 3 && line[0] == '{' && line[length - 2] == '}' && line[length - 1] == '\n');
        if (n == 0)
            CHECK(seat, strstr(line, "\"failure\""));
    }
    fclose(file);
    CHECK(seat, n >= 1);
}

/* The failure as this rank has it is the plot's, and stays. */
static void check_failure(const struct seat *seat, struct gpusys_comm *comm, const struct bench *bench)
{
    struct gpusys_comm_status status = {.size = sizeof status};
    struct gpusys_error error = {.code = 0};
    char words[2048];
    CHECK(seat, gpusys_comm_status(comm, &status) == 0);
    CHECK_CODE(seat, gpusys_comm_failure(comm, &error), plot.code, &error);
    gpusys_error_format(&error, words, sizeof words);
    say(seat, "%s", words);
    CHECK(seat, status.code == plot.code && status.state != GPUSYS_COMM_HEALTHY);
    CHECK(seat, strstr(words, plot.text) || (plot.own && strstr(words, plot.own)));
    if (plot.culprit != NOBODY)
        CHECK(seat, status.n_suspects == 1 && status.suspects[0] == plot.culprit);
    CHECK(seat, submit(seat, comm, bench, COUNT) == plot.code);
    CHECK(seat, gpusys_comm_wait(comm, bench->stream, SECOND, &error) == plot.code);
}

static void finish(const struct seat *seat, struct gpusys_comm *comm, struct bench *bench)
{
    check_failure(seat, comm, bench);
    int64_t start_ns = gpusys_now_ns();
    gpusys_comm_close(comm);
    CHECK(seat, gpusys_now_ns() - start_ns < 60 * SECOND);
    check_trace(seat);
    bench_close(bench);
}

/* Until the communicator has failed, by itself or by word of the others. */
static void await_failure(const struct gpusys_comm *comm)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!gpusys_comm_failure(comm, NULL))
        nanosleep(&pause, NULL);
}

/* ---- a process that dies, or stops ---- */

static void run_victim(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    options.silence_timeout_ns = 4 * SECOND;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    play_sum(seat, &bench, comm, 1, RANKS);
    if (seat->rank == plot.culprit) {
        say(seat, "ready");
        for (;;)
            pause();
    }
    CHECK(seat, submit(seat, comm, &bench, COUNT) == 0);
    say(seat, "ready");
    CHECK(seat, gpusys_comm_wait(comm, bench.stream, -1, &error) == plot.code);
    finish(seat, comm, &bench);
}

static void strike(uint32_t culprit, int with, int code)
{
    static struct play play;
    plan(culprit, code, culprit ? "rank 2 (" : "rank 0 (", NULL);
    play_begin(&play, RANKS);
    play_start_all(&play, run_victim);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        play_read(&play, rank, "ready\n", gpusys_now_ns() + 60 * SECOND);
    assert_int_equal(kill(play.pids[culprit], with), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (rank != culprit)
            play_expect(&play, rank, 0);
    kill(play.pids[culprit], SIGKILL);
    play_expect(&play, culprit, -SIGKILL);
    play_finish(&play);
}

static void rank_that_is_killed(void **state)
{
    (void)state;
    strike(2, SIGKILL, -ECONNRESET);
}

static void rank_0_that_is_killed(void **state)
{
    (void)state;
    strike(0, SIGKILL, -ECONNRESET);
}

static void rank_that_is_stopped(void **state)
{
    (void)state;
    strike(2, SIGSTOP, -EHOSTDOWN);
}

static void rank_0_that_is_stopped(void **state)
{
    (void)state;
    strike(0, SIGSTOP, -EHOSTDOWN);
}

/* ---- ranks that do not do the same ---- */

static void run_laggard(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    play_sum(seat, &bench, comm, 1, RANKS);
    if (seat->rank == plot.culprit) {
        await_failure(comm);
    } else {
        CHECK(seat, submit(seat, comm, &bench, COUNT) == 0);
        CHECK(seat, gpusys_comm_wait(comm, bench.stream, 0, &error) == -EAGAIN);
        CHECK(seat, gpusys_comm_wait(comm, bench.stream, 2 * SECOND, &error) == plot.code);
    }
    finish(seat, comm, &bench);
}

static void rank_that_never_submits(void **state)
{
    (void)state;
    plan(3, -ETIMEDOUT, "rank 3 (", NULL);
    play_all(RANKS, run_laggard);
}

static void run_wrong_count(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    play_sum(seat, &bench, comm, 1, RANKS);
    CHECK(seat, submit(seat, comm, &bench, seat->rank == plot.culprit ? COUNT / 2 : COUNT) == 0);
    CHECK(seat, gpusys_comm_wait(comm, bench.stream, 2 * SECOND, &error) == plot.code);
    finish(seat, comm, &bench);
}

static void wrong_count_on_one(void **state)
{
    (void)state;
    plan(1, -EBADMSG, "rank 1 (", NULL);
    play_all(RANKS, run_wrong_count);
}

static void run_wrong_order(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    void *buffer = bench_alloc(seat, &bench, 4 * COUNT);
    for (int turn = 0; turn < 2; turn++) {
        if ((turn == 0) != (seat->rank == plot.culprit))
            CHECK(seat, submit(seat, comm, &bench, COUNT) == 0);
        else
            CHECK(seat, gpusys_comm_broadcast(comm, buffer, buffer, COUNT, GPUSYS_NCCL_INT32, 0,
                                              bench.stream) == 0);
    }
    CHECK(seat, gpusys_comm_wait(comm, bench.stream, 2 * SECOND, &error) == plot.code);
    finish(seat, comm, &bench);
}

static void wrong_order_on_one(void **state)
{
    (void)state;
    plan(2, -EBADMSG, "rank 2 (", NULL);
    play_all(RANKS, run_wrong_order);
}

/* ---- errors of NCCL ---- */

static void run_nccl_error(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    int code = submit(seat, comm, &bench, COUNT);
    if (!code)
        code = gpusys_comm_wait(comm, bench.stream, -1, &error);
    /* The others may have been through with it before they heard. */
    CHECK(seat, code == plot.code || (code == 0 && seat->rank != plot.origin));
    await_failure(comm);
    finish(seat, comm, &bench);
}

static void call_that_fails(void **state)
{
    (void)state;
    plan(NOBODY, -EIO, "rank 1 (", "1 of 4 (");
    plot.origin = 1;
    plot.fail = "1:ncclAllReduce=1";
    play_all(RANKS, run_nccl_error);
}

static void asynchronous_error(void **state)
{
    (void)state;
    plan(NOBODY, -EIO, "rank 2 (", "2 of 4 (");
    plot.origin = 2;
    plot.async = "2:1@1";
    play_all(RANKS, run_nccl_error);
}

/* Whatever call it is, everything ends, and whoever has a code has words too. */
static void run_any_error(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error = {.code = 0};
    struct gpusys_comm *comm = NULL;
    int code = gpusys_comm_open(&comm, &options, &error);
    CHECK(seat, (code == 0) == (comm != NULL));
    if (!code) {
        struct bench bench = bench_open(seat);
        code = submit(seat, comm, &bench, COUNT);
        if (!code)
            code = gpusys_comm_wait(comm, bench.stream, 20 * SECOND, &error);
        else
            CHECK(seat, gpusys_comm_failure(comm, &error) == code);
        gpusys_comm_close(comm);
        bench_close(&bench);
    }
    CHECK(seat, code <= 0 && (code == 0) == (error.message[0] == 0));
    if (strstr(plot.fail, "Destroy"))
        _exit(0); /* what NCCL refused to free nobody can */
}

static void any_call_that_fails(void **state)
{
    static const char *const calls[] = {"1:ncclGetVersion=2",          "1:ncclCommInitRankConfig=1",
                                        "0:ncclCommInitRankConfig=5",  "1:ncclCommGetAsyncError=2",
                                        "1:ncclCommGetAsyncError=3@5", "0:ncclAllReduce=4",
                                        "1:ncclAllReduce=6",           "0:ncclCommFinalize=3",
                                        "1:ncclCommDestroy=2",         "*=1"};
    (void)state;
    plan(NOBODY, 0, "", NULL);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        plot.fail = calls[i];
        play_all(2, run_any_error);
    }
}

/* ---- a GPU that stands still, and the operations that are watched ---- */

static void run_watched(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    options.op_timeout_ns = 2 * SECOND;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    if (seat->rank == plot.culprit)
        await_failure(comm);
    else
        CHECK(seat, submit(seat, comm, &bench, COUNT) == 0);
    CHECK(seat, gpusys_comm_wait(comm, bench.stream, -1, &error) == plot.code);
    finish(seat, comm, &bench);
}

static void operation_that_is_overdue(void **state)
{
    (void)state;
    plan(1, -ETIMEDOUT, "rank 1 (", NULL);
    play_all(RANKS, run_watched);
}

/* Those that are through are marked so, without anybody waiting. */
static void run_completions(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm_status status = {.size = sizeof status};
    const struct timespec pause = {.tv_nsec = 1000000};
    options.op_timeout_ns = 60 * SECOND;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    for (int i = 0; i < 600; i++)
        CHECK(seat, submit(seat, comm, &bench, 1) == 0);
    do {
        nanosleep(&pause, NULL);
        CHECK(seat, gpusys_comm_status(comm, &status) == 0 && status.code == 0);
    } while (status.completed < 256);
    CHECK(seat, status.submitted == 600);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void completions_of_watched_operations(void **state)
{
    (void)state;
    plan(NOBODY, 0, "", NULL);
    play_all(2, run_completions);
}

/* ---- ends ---- */

static void run_abort(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    if (seat->rank == 1)
        gpusys_comm_abort(comm);
    else if (submit(seat, comm, &bench, COUNT) == 0)
        CHECK(seat, gpusys_comm_wait(comm, bench.stream, -1, &error) == plot.code);
    await_failure(comm);
    finish(seat, comm, &bench);
}

static void abort_on_one_rank(void **state)
{
    (void)state;
    plan(NOBODY, -ECANCELED, "rank 1 (", "1 of 4 (");
    play_all(RANKS, run_abort);
}

static void *abort_from_outside(void *context)
{
    gpusys_comm_abort(context);
    return NULL;
}

static void run_abort_from_outside(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    pthread_t thread;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    if (seat->rank != 1)
        CHECK(seat, submit(seat, comm, &bench, COUNT) == 0 || gpusys_comm_failure(comm, NULL));
    if (seat->rank == 0)
        CHECK(seat, pthread_create(&thread, NULL, abort_from_outside, comm) == 0);
    if (seat->rank != 1)
        CHECK(seat, gpusys_comm_wait(comm, bench.stream, -1, &error) == plot.code);
    if (seat->rank == 0)
        pthread_join(thread, NULL);
    await_failure(comm);
    finish(seat, comm, &bench);
}

static void abort_by_another_thread(void **state)
{
    (void)state;
    plan(NOBODY, -ECANCELED, "rank 0 (", "0 of 4 (");
    play_all(RANKS, run_abort_from_outside);
}

static void run_stuck(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_comm_status status = {.size = sizeof status};
    const struct timespec pause = {.tv_nsec = 1000000};
    options.abort_timeout_ns = SECOND / 2;
    struct gpusys_comm *comm = play_open(seat, &options);
    if (seat->rank == 0)
        gpusys_comm_abort(comm);
    await_failure(comm);
    do {
        nanosleep(&pause, NULL);
        CHECK(seat, gpusys_comm_status(comm, &status) == 0);
    } while (seat->rank == 1 && status.state != GPUSYS_COMM_STUCK);
    CHECK(seat, status.code == -ECANCELED);
    gpusys_comm_close(comm);
    check_trace(seat);
    say(seat, "closed");
    _exit(0);
}

static void abort_that_hangs(void **state)
{
    (void)state;
    plan(NOBODY, 0, "", NULL);
    plot.hang = "1:ncclCommAbort";
    play_all(2, run_stuck);
}

static void run_close_hangs(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    options.call_timeout_ns = SECOND / 2;
    options.abort_timeout_ns = SECOND / 2;
    struct gpusys_comm *comm = play_open(seat, &options);
    int64_t start_ns = gpusys_now_ns();
    gpusys_comm_close(comm);
    CHECK(seat, gpusys_now_ns() - start_ns < 30 * SECOND);
    _exit(0);
}

static void close_that_hangs(void **state)
{
    (void)state;
    plan(NOBODY, 0, "", NULL);
    plot.hang = "0:ncclCommDestroy";
    play_all(2, run_close_hangs);
    plot.hang = "0:ncclCommFinalize";
    play_all(2, run_close_hangs);
}

/* What is under way when it is closed has its time, and no more. */
static void run_close_early(const struct seat *seat)
{
    struct gpusys_comm_options options = begin(seat);
    options.call_timeout_ns = SECOND;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    if (seat->rank)
        await_failure(comm);
    else
        CHECK(seat, submit(seat, comm, &bench, COUNT) == 0);
    if (seat->rank)
        check_failure(seat, comm, &bench);
    gpusys_comm_close(comm);
    check_trace(seat);
    bench_close(&bench);
}

static void close_with_work_under_way(void **state)
{
    (void)state;
    plan(1, -ETIMEDOUT, "rank 1", NULL);
    play_all(2, run_close_early);
}

/* ---- with nothing between the ranks but NCCL ---- */

static void run_alone(const struct seat *seat)
{
    const struct gpusys_nccl_id id = play_id(seat);
    struct gpusys_comm_options options = begin(seat);
    struct gpusys_error error;
    options.address = NULL;
    options.id = &id;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    if (seat->rank == 0) {
        CHECK(seat, submit(seat, comm, &bench, COUNT) == 0);
        CHECK(seat, gpusys_comm_wait(comm, bench.stream, SECOND / 2, &error) == -ETIMEDOUT);
        CHECK(seat, strstr(error.message, "after 0.500 s"));
        finish(seat, comm, &bench);
    } else {
        gpusys_comm_abort(comm); /* nobody hears of it */
        gpusys_comm_close(comm);
        bench_close(&bench);
    }
}

static void timeout_without_a_party(void **state)
{
    (void)state;
    plan(NOBODY, -ETIMEDOUT, "the stream", NULL);
    play_all(2, run_alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_that_is_killed),       cmocka_unit_test(rank_0_that_is_killed),
        cmocka_unit_test(rank_that_is_stopped),      cmocka_unit_test(rank_0_that_is_stopped),
        cmocka_unit_test(rank_that_never_submits),   cmocka_unit_test(wrong_count_on_one),
        cmocka_unit_test(wrong_order_on_one),        cmocka_unit_test(call_that_fails),
        cmocka_unit_test(asynchronous_error),        cmocka_unit_test(any_call_that_fails),
        cmocka_unit_test(operation_that_is_overdue), cmocka_unit_test(completions_of_watched_operations),
        cmocka_unit_test(abort_on_one_rank),         cmocka_unit_test(abort_by_another_thread),
        cmocka_unit_test(abort_that_hangs),          cmocka_unit_test(close_that_hangs),
        cmocka_unit_test(close_with_work_under_way), cmocka_unit_test(timeout_without_a_party),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
