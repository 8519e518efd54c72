/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: operations of one stream under way together, which wait for the other ranks. */
#include "fake/nccl.h"

#include <stdlib.h>

static enum step step(struct operation *operation)
{
    if (operation->comm->ended)
        return STEP_DONE;
    if (!operation->running) {
        operation->running = true;
        fake_comm_running(operation->comm, 1);
        return STEP_MOVED;
    }
    bool message = operation->function == AT_ncclSend || operation->function == AT_ncclRecv;
    return message ? fake_step_message(operation) : fake_step_collective(operation);
}

static void finish(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    if (operation->running)
        fake_comm_running(comm, -1);
    free(operation);
    fake_comm_through(comm);
}

/* One step of each. Did any move? */
static bool pass(struct operation **list)
{
    bool moved = false;
    while (*list) {
        struct operation *operation = *list;
        enum step came = step(operation);
        moved |= came != STEP_BLOCKED;
        if (came == STEP_DONE) {
            *list = operation->next;
            finish(operation);
        } else {
            list = &operation->next;
        }
    }
    return moved;
}

static bool one_comm(const struct operation *list)
{
    for (const struct operation *operation = list; operation; operation = operation->next)
        if (operation->comm != list->comm)
            return false;
    return true;
}

void fake_run_batch(void *operations)
{
    struct operation *list = operations;
    while (list) {
        /* The communicator of the first one stays as long as it is in the list. With several the others' bells are
         * not heard: then sleep briefly. */
        struct ncclComm *comm = list->comm;
        uint32_t seen = comm->memory.slots[comm->rank].bell;
        if (!pass(&list))
            fake_wait(&comm->memory, comm->rank, seen, one_comm(list) ? 0 : 1);
    }
}
