/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The operations. What all have in common is one inline function; since the number of the operation is known when it is
 * compiled, each public function holds only its own checks and its own call of NCCL.
 */
#include "gpu/comm_ops.h"
#include "base/range.h"

#include <gpusys/deadline.h>

#include <errno.h>

#define COLD        __attribute__((noinline, cold))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

const char *gs_function_symbol(enum gs_function function)
{
    static const char *const names[] = {
        [GS_ALL_REDUCE] = "ncclAllReduce",
        [GS_BROADCAST] = "ncclBroadcast",
        [GS_REDUCE] = "ncclReduce",
        [GS_ALL_GATHER] = "ncclAllGather",
        [GS_REDUCE_SCATTER] = "ncclReduceScatter",
        [GS_ALL_TO_ALL] = "ncclAlltoAll",
        [GS_GATHER] = "ncclGather",
        [GS_SCATTER] = "ncclScatter",
        [GS_SEND] = "ncclSend",
        [GS_RECV] = "ncclRecv",
    };
    return names[function];
}

/* ---- of sends and receives, where the library has no call for it ---- */

/* Those of one rank with `peer`: NULL is a side that this rank does not have. */
static int exchange(const struct gpusys_comm *comm, const struct gs_call *call, const char *send,
                    char *receive, uint32_t peer)
{
    int result = GPUSYS_NCCL_SUCCESS;
    if (send)
        result = comm->nccl->send(send, call->count, call->type, (int)peer, comm->handle, call->stream);
    if (receive && (!result || result == GPUSYS_NCCL_IN_PROGRESS))
        result = comm->nccl->recv(receive, call->count, call->type, (int)peer, comm->handle, call->stream);
    return result == GPUSYS_NCCL_IN_PROGRESS ? GPUSYS_NCCL_SUCCESS : result;
}

/* What goes to `peer` and comes from there: a part for each rank, or all that there is. */
static int exchange_parts(const struct gpusys_comm *comm, const struct gs_call *call, uint32_t peer)
{
    size_t offset = (call->count << gs_type_shifts[call->type]) * peer;
    bool from_me = call->function == GS_GATHER ? peer == call->root
                                               : call->function == GS_ALL_TO_ALL || comm->rank == call->root;
    bool to_me = call->function == GS_SCATTER ? peer == call->root
                                              : call->function == GS_ALL_TO_ALL || comm->rank == call->root;
    const char *send = call->send;
    char *receive = call->receive;
    return exchange(comm, call, from_me ? send + (call->function == GS_GATHER ? 0 : offset) : NULL,
                    to_me ? receive + (call->function == GS_SCATTER ? 0 : offset) : NULL, peer);
}

static COLD int compose(const struct gpusys_comm *comm, const struct gs_call *call)
{
    if (!call->count)
        return GPUSYS_NCCL_SUCCESS;
    int result = comm->nccl->group_start();
    if (result)
        return result;
    for (uint32_t peer = 0; peer < comm->n_ranks && !result; peer++)
        result = exchange_parts(comm, call, peer);
    int ended = comm->nccl->group_end();
    return result ? result : ended;
}

/* ---- what all have in common ---- */

GS_ALWAYS_INLINE int call_nccl(const struct gpusys_comm *comm, const struct gs_call *call)
{
    const struct gpusys_nccl *nccl = comm->nccl;
    struct ncclComm *handle = comm->handle;
    struct CUstream_st *stream = call->stream;
    const void *send = call->send;
    void *receive = call->receive;
    size_t count = call->count;
    int type = call->type, op = call->op, root = (int)call->root;
    switch (call->function) {
    case GS_ALL_REDUCE: return nccl->all_reduce(send, receive, count, type, op, handle, stream);
    case GS_BROADCAST: return nccl->broadcast(send, receive, count, type, root, handle, stream);
    case GS_REDUCE: return nccl->reduce(send, receive, count, type, op, root, handle, stream);
    case GS_ALL_GATHER: return nccl->all_gather(send, receive, count, type, handle, stream);
    case GS_REDUCE_SCATTER: return nccl->reduce_scatter(send, receive, count, type, op, handle, stream);
    case GS_SEND: return nccl->send(send, count, type, root, handle, stream);
    case GS_RECV: return nccl->recv(receive, count, type, root, handle, stream);
    case GS_ALL_TO_ALL:
        return nccl->all_to_all ? nccl->all_to_all(send, receive, count, type, handle, stream)
                                : compose(comm, call);
    case GS_GATHER:
        return nccl->gather ? nccl->gather(send, receive, count, type, root, handle, stream)
                            : compose(comm, call);
    case GS_SCATTER:
        return nccl->scatter ? nccl->scatter(send, receive, count, type, root, handle, stream)
                             : compose(comm, call);
    }
    return GPUSYS_NCCL_INTERNAL_ERROR;
}

/* A submission on its way. */
struct passage {
    bool grouped;
    uint64_t sequence; /* 0: no trace */
    void *range;
};

static COLD int refuse(int code)
{
    gs_group_note(code);
    return code;
}

static COLD void watch(struct gpusys_comm *comm, struct CUstream_st *stream, const struct passage *passage)
{
    if (passage->grouped)
        gs_group_watch(comm, stream, passage->sequence);
    else
        gs_comm_watch_op(comm, stream, passage->sequence);
}

GS_ALWAYS_INLINE uint64_t record(struct gs_trace *trace, const struct gs_call *call)
{
    enum gs_function function = call->function;
    struct gs_submission submission = {
        .count = call->count,
        .root = gs_has_root(function) ? call->root : 0,
        .function = (uint16_t)function,
        .type = (uint8_t)call->type,
        .op = gs_has_op(function) ? (uint8_t)(call->op < GPUSYS_NCCL_OPS ? call->op : UINT8_MAX) : 0,
    };
    return gs_trace_add(trace, &submission, call->stream);
}

static COLD void *start_range(const struct gs_call *call)
{
    return gs_range_start(gs_function(call->function)->name, call->count << gs_type_shifts[call->type]);
}

GS_ALWAYS_INLINE int arrive(struct gpusys_comm *comm, const struct gs_call *call,
                            const struct passage *passage)
{
    if (UNLIKELY(passage->range != NULL))
        gs_range_end(passage->range);
    if (UNLIKELY(comm->op_timeout_ns > 0))
        watch(comm, call->stream, passage);
    if (!passage->grouped)
        gs_comm_leave(comm);
    return 0;
}

/* NCCL has not simply said yes. */
static COLD int settle(struct gpusys_comm *comm, const struct gs_call *call, const struct passage *passage,
                       int result)
{
    if (result == GPUSYS_NCCL_IN_PROGRESS)
        result = passage->grouped ? GPUSYS_NCCL_SUCCESS /* the group's end waits */
                                  : gs_comm_settle(comm, comm->handle, result,
                                                   gpusys_deadline_after(comm->call_timeout_ns));
    if (!result)
        return arrive(comm, call, passage);
    gs_range_end(passage->range);
    if (!passage->grouped)
        return gs_comm_leave_failed(comm, result, gs_function_symbol(call->function));
    gs_group_note_result(comm, result, call->function);
    return gpusys_nccl_error(result, gs_function_symbol(call->function), comm->handle, NULL);
}

GS_ALWAYS_INLINE int submit(struct gpusys_comm *comm, const struct gs_call *call)
{
    struct passage passage = {0};
    int code = atomic_load_explicit(&comm->code, memory_order_relaxed);
    if (UNLIKELY(code))
        return refuse(code);
    if (UNLIKELY(gs_call_faults(comm, call)))
        return refuse(-EINVAL);
    if (UNLIKELY(gs_call_lacks(comm->nccl, call->function)))
        return refuse(-ENOSYS);
    if (UNLIKELY(atomic_load_explicit(&gs_groups_open, memory_order_relaxed)))
        code = gs_group_enter(comm, &passage.grouped);
    else
        code = gs_comm_enter(comm);
    if (UNLIKELY(code))
        return refuse(code);
    if (UNLIKELY(atomic_load_explicit(&gs_range_ops, memory_order_relaxed) != NULL))
        passage.range = start_range(call);
    if (comm->trace)
        passage.sequence = record(comm->trace, call);
    int result = call_nccl(comm, call);
    if (UNLIKELY(result))
        return settle(comm, call, &passage, result);
    return arrive(comm, call, &passage);
}

/* ---- the public ones ---- */

int gpusys_comm_all_reduce(struct gpusys_comm *comm, const void *send, void *receive, size_t count, int type,
                           int op, struct CUstream_st *stream)
{
    const struct gs_call call = {GS_ALL_REDUCE, send, receive, count, type, op, 0, stream};
    return submit(comm, &call);
}

int gpusys_comm_broadcast(struct gpusys_comm *comm, const void *send, void *receive, size_t count, int type,
                          uint32_t root, struct CUstream_st *stream)
{
    const struct gs_call call = {GS_BROADCAST, send, receive, count, type, 0, root, stream};
    return submit(comm, &call);
}

int gpusys_comm_reduce(struct gpusys_comm *comm, const void *send, void *receive, size_t count, int type,
                       int op, uint32_t root, struct CUstream_st *stream)
{
    const struct gs_call call = {GS_REDUCE, send, receive, count, type, op, root, stream};
    return submit(comm, &call);
}

int gpusys_comm_all_gather(struct gpusys_comm *comm, const void *send, void *receive, size_t count, int type,
                           struct CUstream_st *stream)
{
    const struct gs_call call = {GS_ALL_GATHER, send, receive, count, type, 0, 0, stream};
    return submit(comm, &call);
}

int gpusys_comm_reduce_scatter(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                               int type, int op, struct CUstream_st *stream)
{
    const struct gs_call call = {GS_REDUCE_SCATTER, send, receive, count, type, op, 0, stream};
    return submit(comm, &call);
}

int gpusys_comm_send(struct gpusys_comm *comm, const void *send, size_t count, int type, uint32_t peer,
                     struct CUstream_st *stream)
{
    const struct gs_call call = {GS_SEND, send, NULL, count, type, 0, peer, stream};
    return submit(comm, &call);
}

int gpusys_comm_recv(struct gpusys_comm *comm, void *receive, size_t count, int type, uint32_t peer,
                     struct CUstream_st *stream)
{
    const struct gs_call call = {GS_RECV, NULL, receive, count, type, 0, peer, stream};
    return submit(comm, &call);
}

int gpusys_comm_all_to_all(struct gpusys_comm *comm, const void *send, void *receive, size_t count, int type,
                           struct CUstream_st *stream)
{
    const struct gs_call call = {GS_ALL_TO_ALL, send, receive, count, type, 0, 0, stream};
    return submit(comm, &call);
}

int gpusys_comm_gather(struct gpusys_comm *comm, const void *send, void *receive, size_t count, int type,
                       uint32_t root, struct CUstream_st *stream)
{
    const struct gs_call call = {GS_GATHER, send, receive, count, type, 0, root, stream};
    return submit(comm, &call);
}

int gpusys_comm_scatter(struct gpusys_comm *comm, const void *send, void *receive, size_t count, int type,
                        uint32_t root, struct CUstream_st *stream)
{
    const struct gs_call call = {GS_SCATTER, send, receive, count, type, 0, root, stream};
    return submit(comm, &call);
}
