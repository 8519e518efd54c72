/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Communicators over a table of functions that only write down how they were called, and answer as they are told. */
#ifndef COMM_SCRIPT_H
#define COMM_SCRIPT_H

#include "gpu/comm_ops.h"
#include "gpu/trace.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- what was called, and what it answers ---- */

static char seen[8192];
static struct {
    const char *name; /* the call of that name, */
    int at, result;   /* from this number of it on (0: each), answers this */
} answer;
static int calls_of_answer;
static int polls[4], n_polls, polled; /* what the polls say, one after the other; then 0 */
static const struct gpusys_comm *fails_while_polled;

GPUSYS_PRINTF(1, 2)
static void note(const char *format, ...)
{
    size_t used = strlen(seen);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(seen + used, sizeof seen - used, format, arguments);
    va_end(arguments);
}

static int result_of(const char *name)
{
    if (!answer.name || strcmp(answer.name, name) != 0)
        return 0;
    return ++calls_of_answer >= answer.at ? answer.result : 0;
}

static void assert_seen(const char *expected)
{
    assert_string_equal(seen, expected);
    seen[0] = 0;
}

static unsigned number(const void *pointer)
{
    return (unsigned)(uintptr_t)pointer;
}

static void *pointer(unsigned number)
{
    return (void *)(uintptr_t)number;
}

static int all_reduce(const void *send, void *receive, size_t count, int type, int op, struct ncclComm *comm,
                      struct CUstream_st *stream)
{
    note("all_reduce %x %x %zu %d %d %x %x\n", number(send), number(receive), count, type, op, number(comm),
         number(stream));
    return result_of("all_reduce");
}

static int broadcast(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                     struct CUstream_st *stream)
{
    note("broadcast %x %x %zu %d %d %x %x\n", number(send), number(receive), count, type, root, number(comm),
         number(stream));
    return result_of("broadcast");
}

static int reduce(const void *send, void *receive, size_t count, int type, int op, int root,
                  struct ncclComm *comm, struct CUstream_st *stream)
{
    note("reduce %x %x %zu %d %d %d %x %x\n", number(send), number(receive), count, type, op, root,
         number(comm), number(stream));
    return result_of("reduce");
}

static int all_gather(const void *send, void *receive, size_t count, int type, struct ncclComm *comm,
                      struct CUstream_st *stream)
{
    note("all_gather %x %x %zu %d %x %x\n", number(send), number(receive), count, type, number(comm),
         number(stream));
    return result_of("all_gather");
}

static int reduce_scatter(const void *send, void *receive, size_t count, int type, int op,
                          struct ncclComm *comm, struct CUstream_st *stream)
{
    note("reduce_scatter %x %x %zu %d %d %x %x\n", number(send), number(receive), count, type, op,
         number(comm), number(stream));
    return result_of("reduce_scatter");
}

static int send_to(const void *send, size_t count, int type, int peer, struct ncclComm *comm,
                   struct CUstream_st *stream)
{
    note("send %x %zu %d %d %x %x\n", number(send), count, type, peer, number(comm), number(stream));
    return result_of("send");
}

static int recv_from(void *receive, size_t count, int type, int peer, struct ncclComm *comm,
                     struct CUstream_st *stream)
{
    note("recv %x %zu %d %d %x %x\n", number(receive), count, type, peer, number(comm), number(stream));
    return result_of("recv");
}

static int all_to_all(const void *send, void *receive, size_t count, int type, struct ncclComm *comm,
                      struct CUstream_st *stream)
{
    note("all_to_all %x %x %zu %d %x %x\n", number(send), number(receive), count, type, number(comm),
         number(stream));
    return result_of("all_to_all");
}

static int gather(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    note("gather %x %x %zu %d %d %x %x\n", number(send), number(receive), count, type, root, number(comm),
         number(stream));
    return result_of("gather");
}

static int scatter(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                   struct CUstream_st *stream)
{
    note("scatter %x %x %zu %d %d %x %x\n", number(send), number(receive), count, type, root, number(comm),
         number(stream));
    return result_of("scatter");
}

static int group_start(void)
{
    note("start\n");
    return result_of("start");
}

static int group_end(void)
{
    note("end\n");
    return result_of("end");
}

static int get_async_error(struct ncclComm *comm, int *result)
{
    note("poll %x\n", number(comm));
    *result = polled < n_polls ? polls[polled] : 0;
    polled++;
    if (fails_while_polled)
        atomic_store(&((struct gpusys_comm *)(uintptr_t)fails_while_polled)->code, -ECONNRESET);
    return 0;
}

static int forever(struct ncclComm *comm, int *result)
{
    (void)comm;
    *result = GPUSYS_NCCL_IN_PROGRESS;
    return 0;
}

static struct gpusys_nccl table; /* what the tests do not need stays NULL: it must not be called */
static struct gpusys_comm comms[2];

/* ---- in place of the rest of gpusys ---- */

int __wrap_gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error);
int __wrap_gpusys_nccl_missing(const char *function, struct gpusys_error *error);
int __wrap_gpusys_comm_failure(const struct gpusys_comm *comm, struct gpusys_error *error);
int __wrap_gs_comm_fail(struct gpusys_comm *comm, int code, const struct gpusys_error *error, bool judge);
void __wrap_gs_comm_watch_op(struct gpusys_comm *comm, struct CUstream_st *stream, uint64_t sequence);

int __wrap_gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error)
{
    (void)error;
    *ret_nccl = &table;
    return 0;
}

int __wrap_gpusys_nccl_missing(const char *function, struct gpusys_error *error)
{
    return gpusys_error_set(error, -ENOSYS, "%s is not there", function);
}

int __wrap_gpusys_comm_failure(const struct gpusys_comm *comm, struct gpusys_error *error)
{
    int code = atomic_load(&((struct gpusys_comm *)(uintptr_t)comm)->code);
    return code ? gpusys_error_set(error, code, "the failure") : 0;
}

static char last_failure[512];

int __wrap_gs_comm_fail(struct gpusys_comm *comm, int code, const struct gpusys_error *error, bool judge)
{
    assert_int_equal(gs_inside_now(comm->inside), 0); /* not between enter and leave */
    note("fail %x %d%s\n", number(comm->handle), code, judge ? " judge" : "");
    snprintf(last_failure, sizeof last_failure, "%s", error->message);
    assert_int_equal(error->code, code);
    atomic_store(&comm->code, code);
    return code;
}

void __wrap_gs_comm_watch_op(struct gpusys_comm *comm, struct CUstream_st *stream, uint64_t sequence)
{
    note("watch %x %x %" PRIu64 "\n", number(comm->handle), number(stream), sequence);
}

static void comm_init(struct gpusys_comm *comm, unsigned handle)
{
    gs_trace_free(comm->trace);
    *comm = (struct gpusys_comm){
        .n_ranks = 4,
        .rank = 1,
        .nccl = &table,
        .handle = pointer(handle),
        .call_timeout_ns = INT64_C(60000000000),
        .nonblocking = true,
        .version = 22809,
    };
}

static int begin(void **state)
{
    (void)state;
    table = (struct gpusys_nccl){
        .size = sizeof table,
        .comm_get_async_error = get_async_error,
        .group_start = group_start,
        .group_end = group_end,
        .all_reduce = all_reduce,
        .broadcast = broadcast,
        .reduce = reduce,
        .all_gather = all_gather,
        .reduce_scatter = reduce_scatter,
        .send = send_to,
        .recv = recv_from,
        .all_to_all = all_to_all,
        .gather = gather,
        .scatter = scatter,
    };
    comm_init(&comms[0], 0xc0);
    comm_init(&comms[1], 0xc1);
    seen[0] = last_failure[0] = 0;
    memset(&answer, 0, sizeof answer);
    calls_of_answer = n_polls = polled = 0;
    fails_while_polled = NULL;
    return 0;
}

/* Whatever a test does: nothing stays entered, no group open, no communicator in one. */
static int end(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (gs_inside_now(comms[i].inside) || comms[i].next_grouped)
            return -1;
        gs_trace_free(comms[i].trace);
        comms[i].trace = NULL;
    }
    return gs_groups_open ? -1 : 0;
}

static void answers(const char *name, int at, int result)
{
    answer.name = name;
    answer.at = at;
    answer.result = result;
    calls_of_answer = 0;
}

/* The operation of that number, with the arguments of a plain call where `of` says nothing else. */
static int call_of(struct gpusys_comm *comm, const struct gs_call *of)
{
    switch (of->function) {
    case GS_ALL_REDUCE:
        return gpusys_comm_all_reduce(comm, of->send, of->receive, of->count, of->type, of->op, of->stream);
    case GS_BROADCAST:
        return gpusys_comm_broadcast(comm, of->send, of->receive, of->count, of->type, of->root, of->stream);
    case GS_REDUCE:
        return gpusys_comm_reduce(comm, of->send, of->receive, of->count, of->type, of->op, of->root,
                                  of->stream);
    case GS_ALL_GATHER:
        return gpusys_comm_all_gather(comm, of->send, of->receive, of->count, of->type, of->stream);
    case GS_REDUCE_SCATTER:
        return gpusys_comm_reduce_scatter(comm, of->send, of->receive, of->count, of->type, of->op,
                                          of->stream);
    case GS_ALL_TO_ALL:
        return gpusys_comm_all_to_all(comm, of->send, of->receive, of->count, of->type, of->stream);
    case GS_GATHER:
        return gpusys_comm_gather(comm, of->send, of->receive, of->count, of->type, of->root, of->stream);
    case GS_SCATTER:
        return gpusys_comm_scatter(comm, of->send, of->receive, of->count, of->type, of->root, of->stream);
    case GS_SEND: return gpusys_comm_send(comm, of->send, of->count, of->type, of->root, of->stream);
    case GS_RECV: return gpusys_comm_recv(comm, of->receive, of->count, of->type, of->root, of->stream);
    }
    return -1;
}

static struct gs_call plain(enum gs_function function)
{
    return (struct gs_call){.function = function,
                            .send = pointer(0x5e),
                            .receive = pointer(0x7e),
                            .count = 9,
                            .type = GPUSYS_NCCL_FLOAT64,
                            .op = GPUSYS_NCCL_MAX,
                            .root = 3,
                            .stream = pointer(0x57)};
}

static void compose_only(void)
{
    table.all_to_all = NULL;
    table.gather = table.scatter = NULL;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

#endif
