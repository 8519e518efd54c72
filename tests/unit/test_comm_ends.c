/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Communicators that end at an awkward moment: in an open group, in a call that does not come back, with an NCCL that does
 * not let go. */
#include "comm_play.h"

enum { COUNT = 64 };

static int submit(const struct seat *seat, struct gpusys_comm *comm, const struct bench *bench)
{
    void *buffer = bench_alloc(seat, bench, COUNT * 4);
    return gpusys_comm_all_reduce(comm, buffer, buffer, COUNT, GPUSYS_NCCL_INT32, GPUSYS_NCCL_SUM,
                                  bench->stream);
}

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

static void say_in_a_file(const struct seat *seat, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", seat->folder, name);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(seat, fd >= 0);
    close(fd);
}

/* ---- in a group ---- */

/* The abort has all the time it likes, and must not take away what the group's end needs: a sanitizer sees if it does. */
static void run_abort_in_group(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    CHECK(seat, gpusys_comm_group_start() == 0);
    CHECK(seat, submit(seat, comm, &bench) == 0);
    if (seat->rank == 1) {
        say_in_a_file(seat, "submitted");
    } else {
        play_await_file(seat, "submitted");
        gpusys_comm_abort(comm);
    }
    while (gpusys_comm_failure(comm, NULL) != -ECANCELED)
        pause_ms(1);
    pause_ms(1500); /* more than the abort grants a call that is under way */
    CHECK(seat, gpusys_comm_group_end() == -ECANCELED);
    gpusys_comm_close(comm);
    CHECK(seat, gpusys_comm_left_behind() == 0);
    bench_close(&bench);
}

static void abort_in_a_group(void **state)
{
    (void)state;
    play_all(2, run_abort_in_group);
}

/* A rank dies while the others hold a group open. */
static void run_death_in_group(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    CHECK(seat, gpusys_comm_group_start() == 0);
    CHECK(seat, submit(seat, comm, &bench) == 0);
    if (seat->rank == 1) {
        play_await_file(seat, "submitted");
        _exit(0);
    }
    say_in_a_file(seat, "submitted");
    while (!gpusys_comm_failure(comm, NULL))
        pause_ms(1);
    pause_ms(1500);
    CHECK(seat, gpusys_comm_group_end() == -ECONNRESET);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void death_in_a_group(void **state)
{
    (void)state;
    play_all(2, run_death_in_group);
}

/* It is closed when the group ends, and what was in it was submitted before. */
static void run_close_in_group(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    int32_t mine = 1, sum = 0, *buffer = bench_alloc(seat, &bench, sizeof mine);
    bench_copy(seat, &bench, buffer, &mine, sizeof mine);
    CHECK(seat, gpusys_comm_group_start() == 0);
    CHECK(seat, gpusys_comm_all_reduce(comm, buffer, buffer, 1, GPUSYS_NCCL_INT32, GPUSYS_NCCL_SUM,
                                       bench.stream) == 0);
    gpusys_comm_close(comm);
    CHECK(seat, gpusys_comm_group_end() == 0);
    bench_copy(seat, &bench, &sum, buffer, sizeof sum);
    CHECK(seat, sum == 2);
    gpusys_cuda_free(bench.cuda, buffer);
    bench_close(&bench);
}

static void close_in_a_group(void **state)
{
    (void)state;
    play_all(2, run_close_in_group);
}

static void run_refused_in_group(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options), *child = NULL;
    struct gpusys_error error = {.code = 0};
    struct ncclWindow_vidmem *window = NULL;
    static _Alignas(4096) char memory[4096];
    const uint32_t out = 1 - seat->rank;
    CHECK(seat, gpusys_comm_group_start() == 0);
    CHECK(seat, gpusys_comm_split(comm, 0, 0, &child, &error) == -EINVAL);
    CHECK(seat, strstr(error.message, "split while a group is open on this thread"));
    CHECK(seat, gpusys_comm_shrink(comm, &out, 1, 0, &child, &error) == -EINVAL);
    CHECK(seat, strstr(error.message, "shrink while a group is open on this thread"));
    CHECK(seat, gpusys_comm_window_open(comm, memory, sizeof memory, 0, &window, &error) == -EINVAL);
    CHECK(seat, strstr(error.message, "a window while a group is open on this thread"));
    CHECK(seat, gpusys_comm_group_end() == 0);
    CHECK(seat, gpusys_comm_shrink(comm, NULL, 1, 0, &child, &error) == -EINVAL);
    CHECK_CODE(seat, gpusys_comm_split(comm, 0, 0, &child, &error), 0, &error); /* nothing is broken by it */
    gpusys_comm_close(child);
    gpusys_comm_close(comm);
}

static void refused_in_a_group(void **state)
{
    (void)state;
    play_all(2, run_refused_in_group);
}

/* ---- a call that does not come back ---- */

/* Rank 1 sits inside NCCL until an abort: its watchdog finds that, all hear of it, and the abort wakes it. */
static void run_spin(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm_status status = {.size = sizeof status};
    struct gpusys_error error = {.code = 0};
    options.init_timeout_ns = options.call_timeout_ns = 2 * SECOND;
    setenv("FAKE_NCCL_SPIN", "1:ncclAllReduce", 1);
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    int code = submit(seat, comm, &bench);
    CHECK(seat, code == (seat->rank == 1 ? -ETIMEDOUT : 0));
    if (seat->rank == 0)
        CHECK(seat, gpusys_comm_wait(comm, bench.stream, -1, &error) == -ETIMEDOUT);
    CHECK(seat, gpusys_comm_status(comm, &status) == 0);
    CHECK(seat, status.n_suspects == 1 && status.suspects[0] == 1);
    CHECK(seat, gpusys_comm_failure(comm, &error) == -ETIMEDOUT && strstr(error.message, "rank 1 ("));
    CHECK(seat, strstr(error.message, "it never came to all_reduce"));
    if (seat->rank == 1)
        CHECK(seat, strstr(error.detail, "a call of NCCL did not come back within 2.000 s"));
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void call_that_does_not_come_back(void **state)
{
    (void)state;
    play_all(2, run_spin);
}

/* The same, found by the wait of another rank: who has not left the call has not submitted it. */
static void run_spin_found(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_error error = {.code = 0};
    setenv("FAKE_NCCL_SPIN", "1:ncclAllReduce", 1);
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    int code = submit(seat, comm, &bench);
    if (seat->rank == 0)
        code = gpusys_comm_wait(comm, bench.stream, 2 * SECOND, &error);
    CHECK(seat, code == -ETIMEDOUT && gpusys_comm_failure(comm, &error) == -ETIMEDOUT);
    CHECK(seat, strstr(error.message, "rank 1 (") && strstr(error.message, "it never came to all_reduce"));
    if (seat->rank == 0)
        CHECK(seat, strstr(error.detail, "what is in the stream was not through after 2.000 s"));
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void wait_that_finds_it(void **state)
{
    (void)state;
    play_all(2, run_spin_found);
}

/* ---- an NCCL that does not let go ---- */

static void run_abort_fails(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    setenv("FAKE_NCCL_FAIL", "ncclCommAbort=2", 1);
    struct gpusys_comm *comm = play_open(seat, &options);
    CHECK(seat, gpusys_comm_left_behind() == 0);
    gpusys_comm_abort(comm);
    gpusys_comm_close(comm);
    CHECK(seat, gpusys_comm_left_behind() == 1);
    _exit(0);
}

static void abort_that_fails(void **state)
{
    (void)state;
    play_all(2, run_abort_fails);
}

/* The helper is in ncclCommFinalize: nothing else may touch the handle. */
static void run_finalize_hangs(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    options.call_timeout_ns = options.abort_timeout_ns = SECOND / 2;
    setenv("FAKE_NCCL_SPIN", "ncclCommFinalize", 1); /* an abort would let it go on with what was freed */
    struct gpusys_comm *comm = play_open(seat, &options);
    gpusys_comm_close(comm);
    CHECK(seat, gpusys_comm_left_behind() == 1);
    _exit(0);
}

static void finalize_that_hangs(void **state)
{
    (void)state;
    play_all(2, run_finalize_hangs);
}

/* ---- the trace ---- */

static void run_fifo(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    char path[128], made[144];
    snprintf(path, sizeof path, "%s/trace", seat->folder);
    snprintf(made, sizeof made, "%s.0", path);
    CHECK(seat, mkfifo(made, 0600) == 0);
    options.trace_path = path;
    struct gpusys_comm *comm = play_open(seat, &options);
    gpusys_comm_close(comm); /* nobody reads it: there is no trace, and no waiting */
}

static void trace_into_a_fifo(void **state)
{
    (void)state;
    play_all(1, run_fifo);
}

static void run_huge_trace(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_error error = {.code = 0};
    struct gpusys_comm *comm;
    options.trace_entries = UINT32_MAX;
    CHECK(seat, gpusys_comm_open(&comm, &options, &error) == -EINVAL);
    CHECK(seat, strstr(error.message, "a trace of 4294967295 entries"));
}

static void trace_that_is_too_large(void **state)
{
    (void)state;
    play_all(1, run_huge_trace);
}

/* ---- blame ---- */

/* Without traces nobody can say who lags, and nobody is made up. */
static void run_no_trace(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm_status status = {.size = sizeof status};
    struct gpusys_error error = {.code = 0};
    if (seat->rank == 1)
        options.flags = GPUSYS_COMM_NO_TRACE;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct bench bench = bench_open(seat);
    if (seat->rank == 0) {
        CHECK(seat, submit(seat, comm, &bench) == 0);
        CHECK(seat, gpusys_comm_wait(comm, bench.stream, SECOND, &error) == -ETIMEDOUT);
        CHECK(seat, strstr(error.message, "1 of 2 ranks keep no trace"));
    }
    while (!gpusys_comm_failure(comm, &error))
        pause_ms(1);
    CHECK(seat, gpusys_comm_status(comm, &status) == 0 && status.n_suspects == 0);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void no_trace_no_blame(void **state)
{
    (void)state;
    play_all(2, run_no_trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_in_a_group),
        cmocka_unit_test(death_in_a_group),
        cmocka_unit_test(close_in_a_group),
        cmocka_unit_test(refused_in_a_group),
        cmocka_unit_test(call_that_does_not_come_back),
        cmocka_unit_test(wait_that_finds_it),
        cmocka_unit_test(abort_that_fails),
        cmocka_unit_test(finalize_that_hangs),
        cmocka_unit_test(trace_into_a_fifo),
        cmocka_unit_test(trace_that_is_too_large),
        cmocka_unit_test(no_trace_no_blame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
