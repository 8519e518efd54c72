/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The stand-in libnccl: collectives. Every rank lays a chunk of what it gives into the shared memory, waits until all
 * have, takes what it is to get from all the chunks, waits again, and so on to the end. The chunks of one round are the same
 * range of every giver's elements.
 */
#include "fake/nccl.h"

#include <string.h>

/* Before an operation's first round its turn among the communicator's collectives has to come. */
enum { STAGE_TURN, STAGE_GIVEN, STAGE_TAKEN };

/* A range of a giver's elements. */
struct range {
    size_t from, count;
};

static bool gives_a_block_each(enum function function)
{
    return function == AT_ncclReduceScatter || function == AT_ncclAlltoAll || function == AT_ncclScatter;
}

/* Elements that a rank which gives anything gives. */
static size_t given(const struct operation *operation)
{
    return operation->count *
           (gives_a_block_each(operation->function) ? (size_t)operation->comm->n_ranks : 1);
}

static struct range round_of(const struct operation *operation)
{
    size_t most = CHUNK / fake_type_bytes(operation->type), left = given(operation) - operation->offset;
    return (struct range){operation->offset, left < most ? left : most};
}

static struct signature signature_of(const struct operation *operation)
{
    return (struct signature){.function = (uint64_t)operation->function,
                              .count = operation->count,
                              .type = (uint64_t)operation->type,
                              .op = (uint64_t)operation->reduction.op,
                              .root = (uint64_t)operation->root};
}

static unsigned char *chunk_of(const struct operation *operation, int rank)
{
    return operation->comm->memory.chunks + (size_t)rank * CHUNK;
}

static bool agreed(const struct operation *operation)
{
    struct memory *memory = &operation->comm->memory;
    struct signature mine = signature_of(operation);
    for (uint32_t rank = 0; rank < memory->n_ranks; rank++)
        if (memcmp(&mine, &memory->slots[rank].signature, sizeof mine) != 0)
            return false;
    return true;
}

/* ---- barriers ---- */

static void arrive(struct ncclComm *comm)
{
    comm->barriers++;
    if (atomic_fetch_add(&comm->memory.shared->arrived, 1) + 1 == comm->barriers * comm->memory.n_ranks)
        fake_ring_all(&comm->memory);
}

static bool all_arrived(const struct ncclComm *comm)
{
    return comm->memory.shared->arrived >= comm->barriers * comm->memory.n_ranks;
}

/* ---- a round ---- */

static void give(const struct operation *operation)
{
    const struct ncclComm *comm = operation->comm;
    bool root_alone = operation->function == AT_ncclBroadcast || operation->function == AT_ncclScatter;
    if (root_alone && comm->rank != operation->root)
        return;
    struct range range = round_of(operation);
    const unsigned char *from = operation->send;
    fake_contribute(chunk_of(operation, comm->rank), from + range.from * fake_type_bytes(operation->type),
                    range.count, operation->type, &operation->reduction);
}

/* What of this round lies in this rank's block, when there is one for each. */
static struct range mine_of(const struct operation *operation, struct range range)
{
    size_t begin = operation->count * (size_t)operation->comm->rank, end = begin + operation->count;
    size_t from = range.from > begin ? range.from : begin;
    size_t to = range.from + range.count < end ? range.from + range.count : end;
    return (struct range){from, to > from ? to - from : 0};
}

static void take_reduced(const struct operation *operation, struct range round, struct range mine, size_t at)
{
    size_t bytes = fake_type_bytes(operation->type);
    fake_reduce((unsigned char *)operation->receive + at * bytes,
                chunk_of(operation, 0) + (mine.from - round.from) * bytes, CHUNK, operation->comm->n_ranks,
                mine.count, operation->type, operation->reduction.op);
}

static void take_from(const struct operation *operation, int rank, struct range round, struct range mine,
                      size_t at)
{
    size_t bytes = fake_type_bytes(operation->type);
    if (mine.count)
        memcpy((unsigned char *)operation->receive + at * bytes,
               chunk_of(operation, rank) + (mine.from - round.from) * bytes, mine.count * bytes);
}

static void take_from_all(const struct operation *operation, struct range round, struct range mine, size_t at)
{
    for (int rank = 0; rank < operation->comm->n_ranks; rank++)
        take_from(operation, rank, round, mine, (size_t)rank * operation->count + at);
}

static void take(const struct operation *operation)
{
    struct range round = round_of(operation), mine = mine_of(operation, round);
    size_t block = operation->count * (size_t)operation->comm->rank;
    bool is_root = operation->comm->rank == operation->root;
    switch (operation->function) {
    case AT_ncclReduce:
        if (!is_root)
            break;
        /* fall through */
    case AT_ncclAllReduce: take_reduced(operation, round, round, round.from); break;
    case AT_ncclReduceScatter:
        if (mine.count)
            take_reduced(operation, round, mine, mine.from - block);
        break;
    case AT_ncclGather:
        if (!is_root)
            break;
        /* fall through */
    case AT_ncclAllGather: take_from_all(operation, round, round, round.from); break;
    case AT_ncclAlltoAll:
        if (mine.count)
            take_from_all(operation, round, mine, mine.from - block);
        break;
    case AT_ncclScatter:
        if (mine.count)
            take_from(operation, operation->root, round, mine, mine.from - block);
        break;
    default: take_from(operation, operation->root, round, round, round.from); break;
    }
}

/* ---- the whole ---- */

static void begin_round(struct operation *operation)
{
    give(operation);
    arrive(operation->comm);
    operation->stage = STAGE_GIVEN;
}

static enum step begin(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    if (operation->stalled || comm->turn != operation->ticket)
        return STEP_BLOCKED;
    comm->memory.slots[comm->rank].signature = signature_of(operation);
    begin_round(operation);
    return STEP_MOVED;
}

static enum step end_round(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    operation->offset += round_of(operation).count;
    if (operation->offset < given(operation)) {
        begin_round(operation);
        return STEP_MOVED;
    }
    comm->turn++;
    fake_comm_ring(comm);
    return STEP_DONE;
}

enum step fake_step_collective(struct operation *operation)
{
    if (operation->stage == STAGE_TURN)
        return begin(operation);
    if (!all_arrived(operation->comm))
        return STEP_BLOCKED;
    if (operation->stage == STAGE_TAKEN)
        return end_round(operation);
    if (operation->offset == 0 && !agreed(operation))
        return STEP_BLOCKED;
    take(operation);
    arrive(operation->comm);
    operation->stage = STAGE_TAKEN;
    return STEP_MOVED;
}
