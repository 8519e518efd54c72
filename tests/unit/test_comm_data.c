/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every collective of a communicator gives the right numbers on four ranks, in place and not; memory, operators. */
#include "comm_play.h"

#include <stdbool.h>

enum { RANKS = 4, COUNT = 1000, TYPE = GPUSYS_NCCL_INT32 };

static struct bench bench;

/* What rank `rank` gives at place `i`. */
static int32_t value(uint32_t rank, size_t i)
{
    return (int32_t)(rank * 10000 + i);
}

static int32_t sum_at(size_t i)
{
    int32_t sum = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        sum += value(rank, i);
    return sum;
}

/* Device memory of `n` numbers: mine from `from` on at `at`, -1 elsewhere. */
static int32_t *numbers(const struct seat *seat, size_t n, size_t at, size_t from, size_t count)
{
    int32_t *host = malloc(n * sizeof *host), *device = bench_alloc(seat, &bench, n * sizeof *host);
    CHECK(seat, host);
    for (size_t i = 0; i < n; i++)
        host[i] = -1;
    for (size_t i = 0; i < count; i++)
        host[at + i] = value(seat->rank, from + i);
    bench_copy(seat, &bench, device, host, n * sizeof *host);
    free(host);
    return device;
}

typedef int32_t expected_fn(const struct seat *seat, size_t i);

/* All of `n` numbers are as expected; what is waited for is through. */
static void check_numbers(const struct seat *seat, struct gpusys_comm *comm, const char *what, int queued,
                          const int32_t *device, size_t n, expected_fn *expected)
{
    struct gpusys_error error = {.code = 0};
    int32_t *host = malloc(n * sizeof *host);
    CHECK(seat, host);
    if (queued)
        say(seat, "%s", what);
    CHECK_CODE(seat, queued, 0, &error);
    CHECK_CODE(seat, gpusys_comm_wait(comm, bench.stream, 60 * SECOND, &error), 0, &error);
    bench_copy(seat, &bench, host, device, n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        if (host[i] != expected(seat, i)) {
            say(seat, "%s: number %zu is %d, not %d", what, i, host[i], expected(seat, i));
            CHECK(seat, false);
        }
    free(host);
}

static int32_t all_sums(const struct seat *seat, size_t i)
{
    (void)seat;
    return sum_at(i);
}

static int32_t of_rank_1(const struct seat *seat, size_t i)
{
    (void)seat;
    return value(1, i);
}

static int32_t sums_on_2(const struct seat *seat, size_t i)
{
    return seat->rank == 2 ? sum_at(i) : -1;
}

static int32_t everybodys(const struct seat *seat, size_t i)
{
    (void)seat;
    return value((uint32_t)(i / COUNT), i % COUNT);
}

static int32_t everybodys_on_3(const struct seat *seat, size_t i)
{
    return seat->rank == 3 ? value((uint32_t)(i / COUNT), i % COUNT) : -1;
}

static int32_t my_part_of_sums(const struct seat *seat, size_t i)
{
    return sum_at(seat->rank * COUNT + i);
}

/* Of rank r its part number (my rank). */
static int32_t transposed(const struct seat *seat, size_t i)
{
    return value((uint32_t)(i / COUNT), seat->rank * COUNT + i % COUNT);
}

static int32_t my_part_of_0(const struct seat *seat, size_t i)
{
    return value(0, seat->rank * COUNT + i);
}

static int32_t of_the_one_before(const struct seat *seat, size_t i)
{
    return value((seat->rank + RANKS - 1) % RANKS, i);
}

static void one_to_all(const struct seat *seat, struct gpusys_comm *comm)
{
    int32_t *from = numbers(seat, COUNT, 0, 0, COUNT), *to = numbers(seat, COUNT, 0, 0, 0);
    check_numbers(seat, comm, "all_reduce",
                  gpusys_comm_all_reduce(comm, from, to, COUNT, TYPE, GPUSYS_NCCL_SUM, bench.stream), to,
                  COUNT, all_sums);
    to = numbers(seat, COUNT, 0, 0, COUNT);
    check_numbers(seat, comm, "all_reduce in place",
                  gpusys_comm_all_reduce(comm, to, to, COUNT, TYPE, GPUSYS_NCCL_SUM, bench.stream), to, COUNT,
                  all_sums);
    to = numbers(seat, COUNT, 0, 0, 0);
    check_numbers(seat, comm, "broadcast",
                  gpusys_comm_broadcast(comm, from, to, COUNT, TYPE, 1, bench.stream), to, COUNT, of_rank_1);
    to = numbers(seat, COUNT, 0, 0, COUNT);
    check_numbers(seat, comm, "broadcast in place",
                  gpusys_comm_broadcast(comm, to, to, COUNT, TYPE, 1, bench.stream), to, COUNT, of_rank_1);
    to = numbers(seat, COUNT, 0, 0, 0);
    check_numbers(seat, comm, "reduce",
                  gpusys_comm_reduce(comm, from, to, COUNT, TYPE, GPUSYS_NCCL_SUM, 2, bench.stream), to,
                  COUNT, sums_on_2);
}

static void parts(const struct seat *seat, struct gpusys_comm *comm)
{
    size_t all = RANKS * COUNT;
    int32_t *from = numbers(seat, COUNT, 0, 0, COUNT), *to = numbers(seat, all, 0, 0, 0);
    check_numbers(seat, comm, "all_gather", gpusys_comm_all_gather(comm, from, to, COUNT, TYPE, bench.stream),
                  to, all, everybodys);
    to = numbers(seat, all, seat->rank * COUNT, 0, COUNT);
    check_numbers(seat, comm, "all_gather in place",
                  gpusys_comm_all_gather(comm, to + seat->rank * COUNT, to, COUNT, TYPE, bench.stream), to,
                  all, everybodys);
    to = numbers(seat, all, 0, 0, 0);
    check_numbers(seat, comm, "gather", gpusys_comm_gather(comm, from, to, COUNT, TYPE, 3, bench.stream), to,
                  all, everybodys_on_3);
    from = numbers(seat, all, 0, 0, all);
    to = numbers(seat, COUNT, 0, 0, 0);
    check_numbers(seat, comm, "reduce_scatter",
                  gpusys_comm_reduce_scatter(comm, from, to, COUNT, TYPE, GPUSYS_NCCL_SUM, bench.stream), to,
                  COUNT, my_part_of_sums);
    to = numbers(seat, all, 0, 0, all);
    check_numbers(seat, comm, "reduce_scatter in place",
                  gpusys_comm_reduce_scatter(comm, to, to + seat->rank * COUNT, COUNT, TYPE, GPUSYS_NCCL_SUM,
                                             bench.stream),
                  to + seat->rank * COUNT, COUNT, my_part_of_sums);
    to = numbers(seat, COUNT, 0, 0, 0);
    check_numbers(seat, comm, "scatter", gpusys_comm_scatter(comm, from, to, COUNT, TYPE, 0, bench.stream),
                  to, COUNT, my_part_of_0);
    to = numbers(seat, all, 0, 0, 0);
    check_numbers(seat, comm, "all_to_all", gpusys_comm_all_to_all(comm, from, to, COUNT, TYPE, bench.stream),
                  to, all, transposed);
}

static void ring(const struct seat *seat, struct gpusys_comm *comm)
{
    int32_t *from = numbers(seat, COUNT, 0, 0, COUNT), *to = numbers(seat, COUNT, 0, 0, 0);
    CHECK(seat, gpusys_comm_group_start() == 0);
    CHECK(seat, gpusys_comm_send(comm, from, COUNT, TYPE, (seat->rank + 1) % RANKS, bench.stream) == 0);
    CHECK(seat, gpusys_comm_recv(comm, to, COUNT, TYPE, (seat->rank + RANKS - 1) % RANKS, bench.stream) == 0);
    check_numbers(seat, comm, "send and recv", gpusys_comm_group_end(), to, COUNT, of_the_one_before);
}

static int32_t weighted(const struct seat *seat, size_t i)
{
    (void)seat;
    int32_t sum = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        sum += value(rank, i) * (int32_t)(rank + 1);
    return sum;
}

static void own_operator(const struct seat *seat, struct gpusys_comm *comm)
{
    struct gpusys_error error = {.code = 0};
    int32_t scalar = (int32_t)seat->rank + 1, *to = numbers(seat, COUNT, 0, 0, COUNT);
    int op = -1;
    CHECK_CODE(seat, gpusys_comm_op_open(comm, &scalar, TYPE, GPUSYS_NCCL_SCALAR_HOST, &op, &error), 0,
               &error);
    check_numbers(seat, comm, "an operator",
                  gpusys_comm_all_reduce(comm, to, to, COUNT, TYPE, op, bench.stream), to, COUNT, weighted);
    CHECK_CODE(seat, gpusys_comm_op_close(comm, op, &error), 0, &error);
    op = -1;
    CHECK(seat, gpusys_comm_op_open(comm, &scalar, 77, GPUSYS_NCCL_SCALAR_HOST, &op, &error) == -EINVAL);
    CHECK(seat, strstr(error.message, "77") && op == -1);
    CHECK(seat, gpusys_comm_op_open(comm, NULL, TYPE, GPUSYS_NCCL_SCALAR_HOST, &op, &error) == -EINVAL);
    CHECK(seat, gpusys_comm_op_open(comm, &scalar, TYPE, 5, &op, &error) == -EINVAL && op == -1);
}

static void memory(const struct seat *seat, struct gpusys_comm *comm)
{
    struct gpusys_error error = {.code = 0};
    struct ncclWindow_vidmem *window = NULL;
    void *buffer = NULL, *handle = NULL;
    CHECK_CODE(seat, gpusys_comm_mem_alloc(comm, &buffer, 65536, &error), 0, &error);
    CHECK_CODE(seat, gpusys_comm_register(comm, buffer, 65536, &handle, &error), 0, &error);
    CHECK_CODE(seat, gpusys_comm_deregister(comm, handle, &error), 0, &error);
    CHECK_CODE(seat,
               gpusys_comm_window_open(comm, buffer, 65536, GPUSYS_NCCL_WINDOW_SYMMETRIC, &window, &error), 0,
               &error);
    CHECK_CODE(seat, gpusys_comm_window_close(comm, window, &error), 0, &error);
    window = NULL;
    CHECK(seat, gpusys_comm_window_open(comm, (char *)buffer + 256, 4096, GPUSYS_NCCL_WINDOW_SYMMETRIC,
                                        &window, &error) == -EINVAL);
    CHECK(seat, !window && strstr(error.message, "256 bytes past a multiple of 4096"));
    CHECK(seat, gpusys_comm_register(comm, NULL, 1, &handle, &error) == -EINVAL);
    CHECK(seat, gpusys_comm_mem_alloc(comm, &buffer, 0, &error) == -EINVAL);
    CHECK_CODE(seat, gpusys_comm_mem_free(comm, buffer, &error), 0, &error);
}

static void run(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options);
    bench = bench_open(seat);
    one_to_all(seat, comm);
    parts(seat, comm);
    ring(seat, comm);
    own_operator(seat, comm);
    memory(seat, comm);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void every_collective(void **state)
{
    (void)state;
    play_all(RANKS, run);
}

/* 2.18: no all_to_all and gather, so they are made of sends and receives; no memory of its own, and it says so. */
static void run_older(const struct seat *seat)
{
    char path[512];
    const char *now = getenv("GPUSYS_LIBNCCL");
    struct gpusys_error error = {.code = 0};
    void *buffer = NULL;
    CHECK(seat, now && strrchr(now, '/'));
    snprintf(path, sizeof path, "%.*s/libnccl_218.so", (int)(strrchr(now, '/') - now), now);
    setenv("GPUSYS_LIBNCCL", path, 1);
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_comm *comm = play_open(seat, &options);
    bench = bench_open(seat);
    one_to_all(seat, comm);
    parts(seat, comm);
    CHECK(seat, gpusys_comm_mem_alloc(comm, &buffer, 4096, &error) == -ENOSYS);
    CHECK(seat, strstr(error.message, "ncclMemAlloc"));
    CHECK(seat, gpusys_comm_window_open(comm, &bench, 4096, 0, NULL, &error) == -ENOSYS);
    gpusys_comm_close(comm);
    bench_close(&bench);
}

static void older_library(void **state)
{
    (void)state;
    play_all(RANKS, run_older);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective),
        cmocka_unit_test(older_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
