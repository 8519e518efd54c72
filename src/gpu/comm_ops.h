/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What submitting, groups and explaining share: what an operation takes, and whether its arguments are right. */
#ifndef GPUSYS_GPU_COMM_OPS_H
#define GPUSYS_GPU_COMM_OPS_H

#include "gpu/comm.h"

/* Inline even where the function's number is not known when compiling, so that it costs nothing where it is. */
#define GS_ALWAYS_INLINE static inline __attribute__((always_inline))

enum gs_fault {
    GS_FAULT_TYPE = 1,
    GS_FAULT_OP = 2,
    GS_FAULT_ROOT = 4,
    GS_FAULT_SEND = 8,
    GS_FAULT_RECEIVE = 16,
    GS_FAULT_COUNT = 32,
};

/* One submission as the caller gave it. */
struct gs_call {
    enum gs_function function;
    const void *send;
    void *receive;
    size_t count;
    int type, op;
    uint32_t root; /* or peer */
    struct CUstream_st *stream;
};

GS_ALWAYS_INLINE bool gs_has_op(enum gs_function function)
{
    return function == GS_ALL_REDUCE || function == GS_REDUCE || function == GS_REDUCE_SCATTER;
}

GS_ALWAYS_INLINE bool gs_has_root(enum gs_function function)
{
    return function == GS_BROADCAST || function == GS_REDUCE || function >= GS_GATHER;
}

/* Is one side n_ranks times as long as the count says? */
GS_ALWAYS_INLINE bool gs_is_multiplied(enum gs_function function)
{
    return function >= GS_ALL_GATHER && function <= GS_SCATTER;
}

GS_ALWAYS_INLINE bool gs_reads_send(enum gs_function function, bool at_root)
{
    return function == GS_BROADCAST || function == GS_SCATTER ? at_root : function != GS_RECV;
}

GS_ALWAYS_INLINE bool gs_writes_receive(enum gs_function function, bool at_root)
{
    return function == GS_REDUCE || function == GS_GATHER ? at_root : function != GS_SEND;
}

/* bfloat16 and avg came with 2.10, made operators with 2.11, float8 with 2.24. */
enum { GS_NCCL_2_10 = 21000, GS_NCCL_2_11 = 21100, GS_NCCL_2_24 = 22400 };

static inline int gs_types_known(int version)
{
    if (version >= GS_NCCL_2_24)
        return GPUSYS_NCCL_TYPES;
    return version >= GS_NCCL_2_10 ? GPUSYS_NCCL_FLOAT8E4M3 : GPUSYS_NCCL_BFLOAT16;
}

/* Of an operator that is none of the first four. */
static inline bool gs_op_known(int version, int op)
{
    return op == GPUSYS_NCCL_AVG ? version >= GS_NCCL_2_10 : op > GPUSYS_NCCL_AVG && version >= GS_NCCL_2_11;
}

/* Powers of two, in the order of enum gpusys_nccl_type. */
static const uint8_t gs_type_shifts[GPUSYS_NCCL_TYPES] = {0, 0, 2, 2, 3, 3, 1, 2, 3, 1, 0, 0};

/* The arguments that are wrong, enum gs_fault. */
GS_ALWAYS_INLINE unsigned gs_call_faults(const struct gpusys_comm *comm, const struct gs_call *call)
{
    enum gs_function function = call->function;
    bool at_root = comm->rank == call->root;
    unsigned faults = 0, type = (unsigned)call->type;
    size_t elements = call->count;
    if (__builtin_expect(type >= GPUSYS_NCCL_BFLOAT16, 0) &&
        type >= (unsigned)gs_types_known(comm->version)) {
        faults = GS_FAULT_TYPE;
        type = GPUSYS_NCCL_INT8; /* the narrowest, for the count */
    }
    if (gs_has_op(function) && (unsigned)call->op >= GPUSYS_NCCL_AVG && !gs_op_known(comm->version, call->op))
        faults |= GS_FAULT_OP;
    if (gs_has_root(function) && call->root >= comm->n_ranks)
        faults |= GS_FAULT_ROOT;
    if (gs_reads_send(function, at_root) && !call->send && call->count)
        faults |= GS_FAULT_SEND;
    if (gs_writes_receive(function, at_root) && !call->receive && call->count)
        faults |= GS_FAULT_RECEIVE;
    if ((gs_is_multiplied(function) && __builtin_mul_overflow(elements, comm->n_ranks, &elements)) ||
        elements > SIZE_MAX >> gs_type_shifts[type])
        faults |= GS_FAULT_COUNT;
    return faults;
}

/* Can this library do it, of sends and receives at worst? */
GS_ALWAYS_INLINE bool gs_call_lacks(const struct gpusys_nccl *nccl, enum gs_function function)
{
    return function >= GS_ALL_TO_ALL && !(nccl->send && nccl->recv);
}

/* "ncclAllReduce". */
const char *gs_function_symbol(enum gs_function function);

/* ---- comm_group.c ---- */

/* Groups that are open, of all threads: while it is 0, no thread needs to look at its own. */
extern _Atomic uint32_t gs_groups_open;

/* gs_comm_enter, but in an open group of this thread only once for each communicator: the group's end leaves. */
int gs_group_enter(struct gpusys_comm *comm, bool *ret_grouped);
/* An operation was refused or failed: `code` is what the group's end returns, if nothing before it failed. */
void gs_group_note(int code);
/* NCCL itself refused it: `comm` fails at the group's end. */
void gs_group_note_result(struct gpusys_comm *comm, int result, enum gs_function function);
/* To be watched when the group has been submitted. */
void gs_group_watch(struct gpusys_comm *comm, struct CUstream_st *stream, uint64_t sequence);

/* Leave a communicator and let it fail by what NCCL (or gs_comm_settle) answered to the call of that name. The code. */
int gs_comm_leave_failed(struct gpusys_comm *comm, int result, const char *name);

#endif
