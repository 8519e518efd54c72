/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ranks as processes: every one runs a function and says what it found; the test reads that and the exit status. A
 * rank that is not done by the deadline is killed, and the test fails with what all had said.
 *
 * The processes are forked before the test itself touches gpusys, and so may use threads and the stand-ins.
 */
#ifndef COMM_PLAY_H
#define COMM_PLAY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <gpusys/comm.h>
#include <gpusys/cuda.h>
#include <gpusys/deadline.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND (INT64_C(1000000000))
enum { PLAY_RANKS = 8, PLAY_TEXT = 16384 };

/* What a rank's process knows. */
struct seat {
    uint32_t rank, n_ranks;
    char folder[64];   /* fresh, of this play */
    char address[128]; /* in it */
    int out;
};

struct play {
    uint32_t n_ranks;
    struct seat seats[PLAY_RANKS];
    pid_t pids[PLAY_RANKS];
    int pipes[PLAY_RANKS];
    size_t used[PLAY_RANKS];
    char texts[PLAY_RANKS][PLAY_TEXT];
};

/* ---- in a rank's process ---- */

GPUSYS_PRINTF(2, 3)
static inline void say(const struct seat *seat, const char *format, ...)
{
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length] = '\n';
    if (write(seat->out, line, (size_t)length + 1) != length + 1)
        _exit(99);
}

/* In the place of assertions, which only work in the test's own process. */
#define CHECK(seat, condition)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            say(seat, "%s:%d: not so: %s", __FILE__, __LINE__, #condition);                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

#define CHECK_CODE(seat, got, expected, error)                                                               \
    do {                                                                                                     \
        int code_ = (got);                                                                                   \
        if (code_ != (expected)) {                                                                           \
            char text_[1600] = "";                                                                           \
            if (code_)                                                                                       \
                gpusys_error_format(error, text_, sizeof text_);                                             \
            say(seat, "%s:%d: %s is %d, not %d: %s", __FILE__, __LINE__, #got, code_, (expected), text_);    \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* Options that fit a machine that has much else to do. */
static inline struct gpusys_comm_options play_options(const struct seat *seat)
{
    return (struct gpusys_comm_options){.size = sizeof(struct gpusys_comm_options),
                                        .n_ranks = seat->n_ranks,
                                        .rank = seat->rank,
                                        .address = seat->address,
                                        .init_timeout_ns = 60 * SECOND,
                                        .call_timeout_ns = 30 * SECOND,
                                        .abort_timeout_ns = 10 * SECOND,
                                        .silence_timeout_ns = 60 * SECOND};
}

static inline struct gpusys_comm *play_open(const struct seat *seat,
                                            const struct gpusys_comm_options *options)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_comm *comm = NULL;
    CHECK_CODE(seat, gpusys_comm_open(&comm, options, &error), 0, &error);
    return comm;
}

/* A GPU of one's own to put buffers and streams on. */
struct bench {
    struct gpusys_cuda *cuda;
    struct CUstream_st *stream;
};

static inline struct bench bench_open(const struct seat *seat)
{
    struct bench bench = {.cuda = NULL};
    struct gpusys_error error = {.code = 0};
    CHECK_CODE(seat, gpusys_cuda_open(&bench.cuda, 0, &error), 0, &error);
    CHECK_CODE(seat, gpusys_cuda_stream_open(bench.cuda, &bench.stream, &error), 0, &error);
    return bench;
}

static inline void bench_close(struct bench *bench)
{
    gpusys_cuda_stream_close(bench->cuda, bench->stream);
    gpusys_cuda_close(bench->cuda);
}

static inline void *bench_alloc(const struct seat *seat, const struct bench *bench, size_t bytes)
{
    struct gpusys_error error = {.code = 0};
    void *device = NULL;
    CHECK_CODE(seat, gpusys_cuda_alloc(bench->cuda, &device, bytes, &error), 0, &error);
    return device;
}

static inline void bench_copy(const struct seat *seat, const struct bench *bench, void *to, const void *from,
                              size_t bytes)
{
    struct gpusys_error error = {.code = 0};
    CHECK_CODE(seat, gpusys_cuda_copy(bench->cuda, to, from, bytes, &error), 0, &error);
}

/* The sum of every rank's number plus one comes back: the communicator works. */
static inline void play_sum(const struct seat *seat, const struct bench *bench, struct gpusys_comm *comm,
                            int32_t mine, int32_t sum)
{
    struct gpusys_error error = {.code = 0};
    int32_t *buffer = bench_alloc(seat, bench, sizeof mine), got = 0;
    bench_copy(seat, bench, buffer, &mine, sizeof mine);
    CHECK_CODE(
        seat,
        gpusys_comm_all_reduce(comm, buffer, buffer, 1, GPUSYS_NCCL_INT32, GPUSYS_NCCL_SUM, bench->stream), 0,
        &error);
    CHECK_CODE(seat, gpusys_comm_wait(comm, bench->stream, 60 * SECOND, &error), 0, &error);
    bench_copy(seat, bench, &got, buffer, sizeof got);
    if (got != sum)
        say(seat, "the sum is %d, not %d", got, sum);
    CHECK(seat, got == sum);
    gpusys_cuda_free(bench->cuda, buffer);
}

/* Wait for a file of the play's folder, which another process makes. */
static inline void play_await_file(const struct seat *seat, const char *name)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", seat->folder, name);
    while (access(path, F_OK))
        nanosleep(&pause, NULL);
}

/* A unique id that rank 0 makes and hands out in a file, as callers without an address do. */
static inline struct gpusys_nccl_id play_id(const struct seat *seat)
{
    const struct gpusys_nccl *nccl;
    struct gpusys_nccl_id id;
    char path[128], made[128];
    snprintf(path, sizeof path, "%s/id", seat->folder);
    snprintf(made, sizeof made, "%s/made", seat->folder);
    if (seat->rank == 0) {
        CHECK(seat, gpusys_nccl_table(&nccl, NULL) == 0 && nccl->get_unique_id(&id) == 0);
        FILE *file = fopen(made, "w");
        CHECK(seat, file && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
        CHECK(seat, rename(made, path) == 0);
    }
    play_await_file(seat, "id");
    FILE *file = fopen(path, "r");
    CHECK(seat, file && fread(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
    return id;
}

/* ---- in the test ---- */

static inline void play_begin(struct play *play, uint32_t n_ranks)
{
    char folder[] = "/tmp/gpusys-play-XXXXXX";
    assert_in_range(n_ranks, 1, PLAY_RANKS);
    assert_non_null(mkdtemp(folder));
    memset(play, 0, sizeof *play);
    play->n_ranks = n_ranks;
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        struct seat *seat = &play->seats[rank];
        seat->rank = rank;
        seat->n_ranks = n_ranks;
        play->pipes[rank] = -1;
        snprintf(seat->folder, sizeof seat->folder, "%s", folder);
        snprintf(seat->address, sizeof seat->address, "unix:%s/meet", folder);
    }
}

static inline void play_start(struct play *play, uint32_t rank, void (*run)(const struct seat *seat))
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(110); /* the test may be killed, and nobody is left to end this one */
        static const int caught_by_cmocka[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};
        for (size_t i = 0; i < sizeof caught_by_cmocka / sizeof caught_by_cmocka[0]; i++)
            signal(caught_by_cmocka[i], SIG_DFL);
        play->seats[rank].out = ends[1];
        run(&play->seats[rank]);
        exit(0);
    }
    close(ends[1]);
    play->pids[rank] = pid;
    play->pipes[rank] = ends[0];
}

static inline void play_start_all(struct play *play, void (*run)(const struct seat *seat))
{
    for (uint32_t rank = 0; rank < play->n_ranks; rank++)
        play_start(play, rank, run);
}

/* It came out wrong: end all, and show what they had said. */
static inline void play_stop(struct play *play)
{
    for (uint32_t rank = 0; rank < play->n_ranks; rank++) {
        size_t used = play->used[rank];
        if (play->pids[rank] > 0)
            kill(play->pids[rank], SIGKILL);
        ssize_t got = play->pipes[rank] < 0
                          ? 0
                          : read(play->pipes[rank], play->texts[rank] + used, PLAY_TEXT - 1 - used);
        play->texts[rank][used + (got > 0 ? (size_t)got : 0)] = 0;
        print_message("---- rank %u\n%s", rank, play->texts[rank]);
    }
}

/* Take in what ranks say, until `rank` has said `text` (NULL: until it has closed its pipe). */
static inline void play_read(struct play *play, uint32_t rank, const char *text, int64_t deadline_ns)
{
    while (play->pipes[rank] >= 0 && !(text && strstr(play->texts[rank], text))) {
        struct pollfd entry = {.fd = play->pipes[rank], .events = POLLIN};
        int64_t left_ns = deadline_ns - gpusys_now_ns();
        if (left_ns <= 0 || poll(&entry, 1, (int)(left_ns / 1000000) + 1) < 0) {
            play_stop(play);
            fail_msg("rank %u was not through by the deadline", rank);
        }
        if (!entry.revents)
            continue;
        char *at = play->texts[rank] + play->used[rank];
        ssize_t got = read(play->pipes[rank], at, PLAY_TEXT - 1 - play->used[rank]);
        if (got <= 0) {
            close(play->pipes[rank]);
            play->pipes[rank] = -1;
        } else {
            play->used[rank] += (size_t)got;
            at[got] = 0;
        }
    }
    if (text && !strstr(play->texts[rank], text)) {
        play_stop(play);
        fail_msg("rank %u never said \"%s\"", rank, text);
    }
}

/* How it ended: its exit status, or minus the signal. */
static inline int play_end(struct play *play, uint32_t rank, int64_t timeout_ns)
{
    int status;
    play_read(play, rank, NULL, gpusys_now_ns() + timeout_ns);
    assert_int_equal(waitpid(play->pids[rank], &status, 0), play->pids[rank]);
    play->pids[rank] = 0;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static inline void play_expect(struct play *play, uint32_t rank, int expected)
{
    int status = play_end(play, rank, 100 * SECOND);
    if (status != expected) {
        play_stop(play);
        fail_msg("rank %u ended with %d, not %d", rank, status, expected);
    }
}

/* Every rank that was started and has not ended yet is through, and content. */
static inline void play_expect_all(struct play *play)
{
    for (uint32_t rank = 0; rank < play->n_ranks; rank++)
        if (play->pids[rank])
            play_expect(play, rank, 0);
}

static inline void play_expect_text(struct play *play, uint32_t rank, const char *text)
{
    if (strstr(play->texts[rank], text))
        return;
    play_stop(play);
    fail_msg("rank %u did not say \"%s\"", rank, text);
}

/* For play_await_file. */
static inline void play_make_file(const struct play *play, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", play->seats[0].folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static inline void play_finish(struct play *play)
{
    char command[128];
    play_expect_all(play);
    snprintf(command, sizeof command, "rm -rf %s", play->seats[0].folder);
    assert_int_equal(system(command), 0);
}

static inline void play_all(uint32_t n_ranks, void (*run)(const struct seat *seat))
{
    static struct play play;
    play_begin(&play, n_ranks);
    play_start_all(&play, run);
    play_finish(&play);
}

#endif
