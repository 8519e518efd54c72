/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: the operations as they are called. */
#include "fake/nccl.h"

#include <stdlib.h>
#include <string.h>

struct call {
    enum function function;
    const void *send;
    void *receive;
    size_t count;
    int type, op, root; /* op SUM and root 0 where there is none */
    struct ncclComm *comm;
    struct CUstream_st *stream;
};

static int resolve_op(struct reduction *ret_reduction, const struct call *call)
{
    struct ncclComm *comm = call->comm;
    int at = call->op - N_OPS, result = SUCCESS;
    *ret_reduction = (struct reduction){.op = call->op};
    if (call->op >= 0 && call->op < (fake_version >= 21000 ? N_OPS : AVG))
        return SUCCESS;
    pthread_mutex_lock(&comm->lock);
    if (at < 0 || at >= comm->n_reductions || comm->reduction_types[at] != call->type)
        result = INVALID_ARGUMENT;
    else
        *ret_reduction = comm->reductions[at];
    pthread_mutex_unlock(&comm->lock);
    return result ? fake_say(result, "Operator %d is none, or of another type than %d", call->op, call->type)
                  : SUCCESS;
}

/* Does this rank have to give, or get, anything? */
static bool has_to(const struct call *call, bool give)
{
    bool is_root = call->comm->rank == call->root;
    switch (call->function) {
    case AT_ncclBroadcast: return give ? is_root : true;
    case AT_ncclScatter: return give ? is_root : true;
    case AT_ncclReduce:
    case AT_ncclGather: return give ? true : is_root;
    case AT_ncclSend: return give;
    case AT_ncclRecv: return !give;
    default: return true;
    }
}

static int check(const struct call *call)
{
    if (!call->comm)
        return fake_say(INVALID_ARGUMENT, "comm argument is NULL");
    int ready = fake_ready(call->comm);
    if (ready != SUCCESS)
        return ready;
    if (!fake_type_known(call->type))
        return fake_say(INVALID_ARGUMENT, "Invalid type %d", call->type);
    if (call->root < 0 || call->root >= call->comm->n_ranks)
        return fake_say(INVALID_ARGUMENT, "Invalid root or peer %d of %d", call->root, call->comm->n_ranks);
    if (call->count > SIZE_MAX / 8 / (size_t)call->comm->n_ranks)
        return fake_say(INVALID_ARGUMENT, "Invalid count %zu", call->count);
    if (call->count && ((has_to(call, true) && !call->send) || (has_to(call, false) && !call->receive)))
        return fake_say(INVALID_ARGUMENT, "A buffer is NULL");
    return SUCCESS;
}

static int submit(const struct call *call)
{
    struct reduction reduction;
    int result = check(call);
    if (result == SUCCESS)
        result = resolve_op(&reduction, call);
    if (result != SUCCESS)
        return fake_group_failed(result);
    bool message = call->function == AT_ncclSend || call->function == AT_ncclRecv;
    if (call->count == 0 && !message)
        return SUCCESS;
    struct operation *operation = malloc(sizeof *operation);
    if (!operation)
        return fake_group_failed(fake_say(SYSTEM_ERROR, "Out of memory"));
    *operation = (struct operation){.comm = call->comm,
                                    .stream = call->stream,
                                    .function = call->function,
                                    .send = call->send,
                                    .receive = call->receive,
                                    .count = call->count,
                                    .type = call->type,
                                    .root = call->root,
                                    .reduction = reduction};
    return fake_submit(operation);
}

__attribute__((noinline)) static int enter_and_submit(const struct call *call)
{
    int told = fake_enter(call->function, call->comm);
    return told != NOTHING ? fake_group_failed(told) : submit(call);
}

/* Nothing but this comes before the end of a call that is to cost nothing. */
#define CALL(...)                                                                                            \
    if (__builtin_expect(fake_zero, 0))                                                                      \
        return SUCCESS;                                                                                      \
    return enter_and_submit(&(struct call){__VA_ARGS__})

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    CALL(AT_ncclAllReduce, send, receive, count, type, op, 0, comm, stream);
}

int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    CALL(AT_ncclBroadcast, send, receive, count, type, SUM, root, comm, stream);
}

int ncclReduce(const void *send, void *receive, size_t count, int type, int op, int root,
               struct ncclComm *comm, struct CUstream_st *stream)
{
    CALL(AT_ncclReduce, send, receive, count, type, op, root, comm, stream);
}

int ncclAllGather(const void *send, void *receive, size_t count, int type, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    CALL(AT_ncclAllGather, send, receive, count, type, SUM, 0, comm, stream);
}

int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op, struct ncclComm *comm,
                      struct CUstream_st *stream)
{
    CALL(AT_ncclReduceScatter, send, receive, count, type, op, 0, comm, stream);
}

int ncclAlltoAll(const void *send, void *receive, size_t count, int type, struct ncclComm *comm,
                 struct CUstream_st *stream)
{
    CALL(AT_ncclAlltoAll, send, receive, count, type, SUM, 0, comm, stream);
}

int ncclGather(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
               struct CUstream_st *stream)
{
    CALL(AT_ncclGather, send, receive, count, type, SUM, root, comm, stream);
}

int ncclScatter(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                struct CUstream_st *stream)
{
    CALL(AT_ncclScatter, send, receive, count, type, SUM, root, comm, stream);
}

int ncclSend(const void *send, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    CALL(AT_ncclSend, send, NULL, count, type, SUM, peer, comm, stream);
}

int ncclRecv(void *receive, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    CALL(AT_ncclRecv, NULL, receive, count, type, SUM, peer, comm, stream);
}

/* ---- operators ---- */

/* A free place in the communicator's table; its lock is held. -1: no memory. */
static int place_for_op(struct ncclComm *comm)
{
    for (int i = 0; i < comm->n_reductions; i++)
        if (comm->reduction_types[i] == NOTHING)
            return i;
    size_t n = (size_t)comm->n_reductions + 1;
    struct reduction *reductions = realloc(comm->reductions, n * sizeof *reductions);
    if (reductions)
        comm->reductions = reductions;
    int *types = realloc(comm->reduction_types, n * sizeof *types);
    if (types)
        comm->reduction_types = types;
    return reductions && types ? comm->n_reductions++ : -1;
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, struct ncclComm *comm)
{
    int told = fake_enter(AT_ncclRedOpCreatePreMulSum, comm);
    if (told != NOTHING)
        return told;
    if (!op || !scalar || !comm || !fake_type_known(type) || (residence != 0 && residence != 1))
        return fake_say(INVALID_ARGUMENT, "ncclRedOpCreatePreMulSum: an argument is NULL or unknown");
    int ready = fake_ready(comm);
    if (ready != SUCCESS)
        return ready;
    struct reduction reduction = {.op = N_OPS, .device_scalar = residence == 0 ? scalar : NULL};
    if (residence == 1)
        memcpy(reduction.scalar, scalar, fake_type_bytes(type));
    pthread_mutex_lock(&comm->lock);
    int at = place_for_op(comm);
    if (at >= 0) {
        comm->reductions[at] = reduction;
        comm->reduction_types[at] = type;
        *op = N_OPS + at;
    }
    pthread_mutex_unlock(&comm->lock);
    return at >= 0 ? SUCCESS : fake_say(SYSTEM_ERROR, "Out of memory");
}

int ncclRedOpDestroy(int op, struct ncclComm *comm)
{
    int told = fake_enter(AT_ncclRedOpDestroy, comm);
    if (told != NOTHING)
        return told;
    if (op >= 0 && op < N_OPS)
        return fake_say(INVALID_ARGUMENT, "ncclRedOpDestroy : operator %d is a NCCL builtin.", op);
    if (!comm)
        return fake_say(INVALID_ARGUMENT, "comm argument is NULL");
    pthread_mutex_lock(&comm->lock);
    int at = op - N_OPS;
    bool known = at >= 0 && at < comm->n_reductions && comm->reduction_types[at] != NOTHING;
    if (known)
        comm->reduction_types[at] = NOTHING;
    pthread_mutex_unlock(&comm->lock);
    return known ? SUCCESS : fake_say(INVALID_ARGUMENT, "ncclRedOpDestroy : operator %d unknown.", op);
}
