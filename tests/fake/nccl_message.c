/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: sends and receives, through a ring from each rank to each. */
#include "fake/nccl.h"

#include <string.h>

enum { STAGE_TURN, STAGE_MOVING };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Bytes between the ring, from `at` on, and a buffer. */
static void into_ring(struct channel *channel, uint64_t at, const unsigned char *from, size_t bytes)
{
    size_t start = at % RING, first = least(bytes, RING - start);
    memcpy(channel->ring + start, from, first);
    memcpy(channel->ring, from + first, bytes - first);
}

static void out_of_ring(unsigned char *to, const struct channel *channel, uint64_t at, size_t bytes)
{
    size_t start = at % RING, first = least(bytes, RING - start);
    memcpy(to, channel->ring + start, first);
    memcpy(to + first, channel->ring, bytes - first);
}

static enum step done(struct operation *operation, atomic_uint_fast64_t *through)
{
    through[operation->root]++;
    fake_comm_ring(operation->comm);
    return STEP_DONE;
}

static enum step step_send(struct operation *operation, size_t bytes)
{
    struct ncclComm *comm = operation->comm;
    struct channel *channel = fake_channel(&comm->memory, comm->rank, operation->root);
    if (operation->stage == STAGE_TURN) {
        if (comm->sent[operation->root] != operation->ticket)
            return STEP_BLOCKED;
        channel->bytes = bytes;
        channel->type = (uint64_t)operation->type;
        channel->offered = operation->ticket + 1;
        operation->stage = STAGE_MOVING;
        fake_ring(&comm->memory, operation->root);
        return STEP_MOVED;
    }
    if (channel->finished == operation->ticket + 1)
        return done(operation, comm->sent);
    uint64_t at = channel->written;
    size_t now = least(bytes - operation->offset, RING - (size_t)(at - channel->taken));
    if (now == 0)
        return STEP_BLOCKED;
    into_ring(channel, at, (const unsigned char *)operation->send + operation->offset, now);
    operation->offset += now;
    channel->written = at + now;
    fake_ring(&comm->memory, operation->root);
    return STEP_MOVED;
}

static enum step step_receive(struct operation *operation, size_t bytes)
{
    struct ncclComm *comm = operation->comm;
    struct channel *channel = fake_channel(&comm->memory, operation->root, comm->rank);
    if (operation->stage == STAGE_TURN) {
        if (comm->received[operation->root] != operation->ticket || channel->offered <= operation->ticket)
            return STEP_BLOCKED;
        if (channel->bytes != bytes || channel->type != (uint64_t)operation->type)
            return STEP_BLOCKED;
        operation->stage = STAGE_MOVING;
    }
    uint64_t at = channel->taken;
    size_t now = (size_t)(channel->written - at);
    if (now == 0 && operation->offset < bytes)
        return STEP_BLOCKED;
    out_of_ring((unsigned char *)operation->receive + operation->offset, channel, at, now);
    operation->offset += now;
    channel->taken = at + now;
    bool all = operation->offset == bytes;
    if (all)
        channel->finished = operation->ticket + 1;
    fake_ring(&comm->memory, operation->root);
    return all ? done(operation, comm->received) : STEP_MOVED;
}

enum step fake_step_message(struct operation *operation)
{
    size_t bytes = operation->count * fake_type_bytes(operation->type);
    if (operation->stalled)
        return STEP_BLOCKED;
    return operation->function == AT_ncclSend ? step_send(operation, bytes) : step_receive(operation, bytes);
}
