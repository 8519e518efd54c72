/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an operation of a communicator costs beside the bare call of NCCL's function: as it is without a trace, and with
 * the ring. The function is that of the library given (a stand-in that does nothing when FAKE_NCCL_ZERO=1), or one of our
 * own that returns 0. No GPU and no other rank is needed: the communicator is put together here, with what the data path
 * reads and nothing else.
 *
 * Output: for each round a line of JSON, {"library": …, "bare_ns": …, "plain_ns": …, "ring_ns": …}: medians for a call, the
 * three measured in turn.
 */
#include "gpu/comm.h"
#include "support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 20000, SLICES = 101, KINDS = 3 };

static int nothing(const void *send, void *receive, size_t count, int type, int op, struct ncclComm *comm,
                   struct CUstream_st *stream)
{
    (void)send, (void)receive, (void)count, (void)type, (void)op, (void)comm, (void)stream;
    return 0;
}

/* A library whose operations return 0 at once has no use for a real communicator. */
static void take_library(struct gpusys_nccl *table, const char *path)
{
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    if (path && !library)
        die(NULL, dlerror());
    if (library)
        *(void **)&table->all_reduce = dlsym(library, "ncclAllReduce");
    else
        table->all_reduce = nothing;
    if (!table->all_reduce)
        die(NULL, "the library has no ncclAllReduce");
}

/* Nanoseconds for a call; `comm` NULL: of the bare function. */
static double time_calls(const struct gpusys_nccl *table, struct gpusys_comm *comm)
{
    static char send[4], receive[4];
    int failed = 0;
    int64_t start = gpusys_now_ns();
    if (comm)
        for (int i = 0; i < CALLS; i++)
            failed |=
                gpusys_comm_all_reduce(comm, send, receive, 1, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SUM, NULL);
    else
        for (int i = 0; i < CALLS; i++)
            failed |= table->all_reduce(send, receive, 1, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SUM, NULL, NULL);
    if (failed)
        die(NULL, "a call failed (is FAKE_NCCL_ZERO=1 set?)");
    return (double)(gpusys_now_ns() - start) / CALLS;
}

/* Prints nothing without a name. */
static void round_of(const struct gpusys_nccl *table, struct gpusys_comm *const comms[KINDS],
                     const char *name)
{
    double values[KINDS][SLICES];
    for (int i = 0; i < SLICES; i++)
        for (int j = 0; j < KINDS; j++) {
            int kind = (i + j) % KINDS;
            values[kind][i] = time_calls(table, comms[kind]);
        }
    for (int kind = 0; kind < KINDS; kind++)
        sort_values(values[kind], SLICES);
    if (name)
        printf("{\"library\": \"%s\", \"bare_ns\": %.3f, \"plain_ns\": %.3f, \"ring_ns\": %.3f}\n", name,
               values[0][SLICES / 2], values[1][SLICES / 2], values[2][SLICES / 2]);
}

int main(int argc, char **argv)
{
    struct gpusys_nccl table = {.size = sizeof table};
    struct gpusys_comm plain = {.n_ranks = 2, .nccl = &table, .version = 22809}, ring = plain;
    struct gpusys_comm *const comms[KINDS] = {NULL, &plain, &ring};
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s ROUNDS [LIBNCCL]\n", argv[0]);
        return 2;
    }
    take_library(&table, argc > 2 ? argv[2] : NULL);
    if (gs_trace_new(&ring.trace, 1024))
        die(NULL, "no memory");
    round_of(&table, comms, NULL); /* warms up */
    for (int round = atoi(argv[1]); round > 0; round--)
        round_of(&table, comms, argc > 2 ? "given" : "none");
    gs_trace_free(ring.trace);
    return 0;
}
