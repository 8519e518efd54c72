/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Communicators from communicators: parts of one, and one without some of its ranks. */
#include "comm_play.h"

#include <stdbool.h>

enum { RANKS = 4 };

static void check_place(const struct seat *seat, const struct gpusys_comm *comm, uint32_t rank,
                        uint32_t n_ranks)
{
    struct gpusys_comm_status status = {.size = sizeof status};
    CHECK(seat, gpusys_comm_status(comm, &status) == 0);
    say(seat, "rank %u of %u", status.rank, status.n_ranks);
    CHECK(seat, status.rank == rank && status.n_ranks == n_ranks && status.state == GPUSYS_COMM_HEALTHY);
}

/* Until the communicator has failed. */
static void await_failure(const struct gpusys_comm *comm)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!gpusys_comm_failure(comm, NULL))
        nanosleep(&pause, NULL);
}

/* ---- split ---- */

/* Even and odd ranks, in reverse order; the children outlive the parent. */
static void run_split(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options), *child = NULL;
    struct gpusys_error error = {.code = 0};
    struct bench bench = bench_open(seat);
    CHECK_CODE(seat, gpusys_comm_split(comm, (int)seat->rank % 2, -(int)seat->rank, &child, &error), 0,
               &error);
    check_place(seat, child, seat->rank < 2 ? 1 : 0, 2);
    play_sum(seat, &bench, child, (int32_t)seat->rank, seat->rank % 2 ? 1 + 3 : 0 + 2);
    play_sum(seat, &bench, comm, 1, RANKS);
    gpusys_comm_close(comm);
    play_sum(seat, &bench, child, (int32_t)seat->rank, seat->rank % 2 ? 1 + 3 : 0 + 2);
    gpusys_comm_close(child);
    bench_close(&bench);
}

static void split_in_two(void **state)
{
    (void)state;
    play_all(RANKS, run_split);
}

static void run_no_color(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options), *child = comm, *grandchild = NULL;
    struct gpusys_error error = {.code = 0};
    struct bench bench = bench_open(seat);
    int color = seat->rank == 1 ? GPUSYS_NCCL_NO_COLOR : 7;
    CHECK(seat, gpusys_comm_split(comm, -5, 0, &child, &error) == -EINVAL && strstr(error.message, "-5"));
    CHECK_CODE(seat, gpusys_comm_split(comm, color, 0, &child, &error), 0, &error);
    if (seat->rank == 1) {
        CHECK(seat, child == NULL);
    } else {
        check_place(seat, child, seat->rank ? seat->rank - 1 : 0, 3);
        CHECK_CODE(seat, gpusys_comm_split(child, 0, 0, &grandchild, &error), 0, &error);
        play_sum(seat, &bench, grandchild, 5, 15);
    }
    gpusys_comm_close(grandchild);
    gpusys_comm_close(child);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void split_without_one(void **state)
{
    (void)state;
    play_all(RANKS, run_no_color);
}

/* One that dies is noticed in every communicator that it was in, by its number there, and in no other. */
static void run_split_death(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options), *child = NULL;
    struct gpusys_comm_status status = {.size = sizeof status};
    struct gpusys_error error = {.code = 0};
    struct bench bench = bench_open(seat);
    CHECK_CODE(seat, gpusys_comm_split(comm, (int)seat->rank / 2, 0, &child, &error), 0, &error);
    play_sum(seat, &bench, child, 1, 2);
    say(seat, "ready");
    if (seat->rank == 3)
        for (;;)
            pause();
    await_failure(comm);
    CHECK(seat, gpusys_comm_failure(comm, &error) == -ECONNRESET && strstr(error.message, "rank 3 ("));
    if (seat->rank == 2) {
        await_failure(child);
        CHECK(seat, gpusys_comm_status(child, &status) == 0 && status.code == -ECONNRESET);
        CHECK(seat, status.n_suspects == 1 && status.suspects[0] == 1);
        CHECK(seat, gpusys_comm_failure(child, &error) == -ECONNRESET && strstr(error.detail, "rank 1 ("));
    } else {
        play_sum(seat, &bench, child, 1, 2);
    }
    gpusys_comm_close(child);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void death_in_one_part(void **state)
{
    static struct play play;
    (void)state;
    play_begin(&play, RANKS);
    play_start_all(&play, run_split_death);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        play_read(&play, rank, "ready\n", gpusys_now_ns() + 60 * SECOND);
    kill(play.pids[3], SIGKILL);
    play_expect(&play, 3, -SIGKILL);
    play_finish(&play);
}

/* ---- shrink ---- */

static void run_shrink(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options), *child = NULL;
    struct gpusys_error error = {.code = 0};
    struct bench bench = bench_open(seat);
    const uint32_t without[] = {1}, wrong[] = {9}, twice[] = {1, 1};
    if (seat->rank != 1) {
        CHECK(seat, gpusys_comm_shrink(comm, wrong, 1, 0, &child, &error) == -EINVAL);
        CHECK(seat, strstr(error.message, "rank 9: it is not in the communicator"));
        CHECK(seat, gpusys_comm_shrink(comm, twice, 2, 0, &child, &error) == -EINVAL);
        CHECK(seat, gpusys_comm_shrink(comm, &seat->rank, 1, 0, &child, &error) == -EINVAL);
        CHECK(seat, gpusys_comm_shrink(comm, NULL, 0, 0, &child, &error) == -EINVAL && child == NULL);
        CHECK_CODE(seat, gpusys_comm_shrink(comm, without, 1, 0, &child, &error), 0, &error);
        check_place(seat, child, seat->rank ? seat->rank - 1 : 0, 3);
        play_sum(seat, &bench, child, (int32_t)seat->rank, 0 + 2 + 3);
    }
    play_sum(seat, &bench, comm, 1, RANKS);
    gpusys_comm_close(child);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void shrink_healthy(void **state)
{
    (void)state;
    play_all(RANKS, run_shrink);
}

static uint32_t extra_flags;

/* Rank 2 dies in the middle of a collective. */
static void run_shrink_death(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    options.flags = extra_flags;
    struct gpusys_comm *comm = play_open(seat, &options), *child = NULL;
    struct gpusys_error error = {.code = 0};
    struct bench bench = bench_open(seat), other = bench_open(seat);
    const uint32_t without[] = {2};
    void *buffer = bench_alloc(seat, &bench, 4096);
    if (seat->rank != 2)
        CHECK(seat, gpusys_comm_all_reduce(comm, buffer, buffer, 1024, GPUSYS_NCCL_INT32, GPUSYS_NCCL_SUM,
                                           bench.stream) == 0);
    say(seat, "ready");
    if (seat->rank == 2)
        for (;;)
            pause();
    CHECK(seat, gpusys_comm_wait(comm, bench.stream, -1, &error) == -ECONNRESET);
    CHECK(seat, gpusys_comm_shrink(comm, without, 1, 0, &child, &error) == -ECONNRESET && !child);
    int code = gpusys_comm_shrink(comm, without, 1, GPUSYS_NCCL_SHRINK_ABORT, &child, &error);
    if (extra_flags & GPUSYS_COMM_KEEP) {
        CHECK_CODE(seat, code, 0, &error);
        check_place(seat, child, seat->rank > 2 ? 2 : seat->rank, 3);
        play_sum(seat, &other, child, (int32_t)seat->rank, 0 + 1 + 3);
    } else {
        CHECK(seat, code == -ECONNRESET && !child && strstr(error.hint, "GPUSYS_COMM_KEEP"));
    }
    gpusys_comm_close(comm);
    if (child)
        play_sum(seat, &other, child, 2, 6);
    gpusys_comm_close(child);
    bench_close(&bench);
    bench_close(&other);
}

static void shrink_after(uint32_t flags)
{
    static struct play play;
    extra_flags = flags;
    play_begin(&play, RANKS);
    play_start_all(&play, run_shrink_death);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        play_read(&play, rank, "ready\n", gpusys_now_ns() + 60 * SECOND);
    kill(play.pids[2], SIGKILL);
    play_expect(&play, 2, -SIGKILL);
    play_finish(&play);
}

static void shrink_after_a_death(void **state)
{
    (void)state;
    shrink_after(GPUSYS_COMM_KEEP);
}

static void shrink_of_what_was_aborted(void **state)
{
    (void)state;
    shrink_after(0);
}

/* ---- libraries that are too old ---- */

static void run_too_old(const struct seat *seat)
{
    char path[512];
    const char *now = getenv("GPUSYS_LIBNCCL");
    struct gpusys_error error = {.code = 0};
    const uint32_t without[] = {1};
    CHECK(seat, now && strrchr(now, '/'));
    snprintf(path, sizeof path, "%.*s/libnccl_214.so", (int)(strrchr(now, '/') - now), now);
    setenv("GPUSYS_LIBNCCL", path, 1);
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options), *child = NULL;
    CHECK(seat,
          gpusys_comm_split(comm, 0, 0, &child, &error) == -ENOSYS && strstr(error.message, "ncclCommSplit"));
    CHECK(seat, gpusys_comm_shrink(comm, without, 1, 0, &child, &error) == -ENOSYS);
    CHECK(seat, strstr(error.message, "ncclCommShrink") && !child);
    gpusys_comm_close(comm);
}

static void too_old(void **state)
{
    (void)state;
    play_all(2, run_too_old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_in_two),
        cmocka_unit_test(split_without_one),
        cmocka_unit_test(death_in_one_part),
        cmocka_unit_test(shrink_healthy),
        cmocka_unit_test(shrink_after_a_death),
        cmocka_unit_test(shrink_of_what_was_aborted),
        cmocka_unit_test(too_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
