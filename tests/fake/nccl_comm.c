/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: communicators, what they say about themselves, and how they end. */
#include "fake/nccl_comm.h"
#include "fake/nccl.h"

#include <stdlib.h>
#include <string.h>

static atomic_int live_comms, live_operations;

int fake_nccl_live_comms(void)
{
    return live_comms;
}

int fake_nccl_live_operations(void)
{
    return live_operations;
}

void fake_nccl_parsed_config(const struct ncclComm *comm, struct fake_nccl_config *ret_config)
{
    *ret_config = comm->config;
}

/* ---- being there ---- */

struct ncclComm *fake_comm_new(int n_ranks, int rank, int world_rank, int device)
{
    size_t n = (size_t)n_ranks;
    struct ncclComm *comm = calloc(1, sizeof *comm);
    uint64_t *submitted = calloc(2 * n, sizeof *submitted);
    atomic_uint_fast64_t *through = calloc(2 * n, sizeof *through);
    if (!comm || !submitted || !through) {
        free(comm);
        free(submitted);
        free(through);
        return NULL;
    }
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    comm->n_ranks = n_ranks;
    comm->rank = rank;
    comm->world_rank = world_rank;
    comm->device = device;
    comm->sends = submitted;
    comm->receives = submitted + n;
    comm->sent = through;
    comm->received = through + n;
    comm->state = IN_PROGRESS;
    live_comms++;
    return comm;
}

void fake_comm_free(struct ncclComm *comm)
{
    fake_leave(&comm->memory);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->changed);
    free(comm->reductions);
    free(comm->reduction_types);
    free(comm->sends);
    free(comm->sent);
    free(comm);
    live_comms--;
}

static int not_ready(int state)
{
    const char *text = "Attempt to use communicator before the previous operation returned ncclSuccess";
    return state == IN_PROGRESS ? fake_say(INVALID_ARGUMENT, "%s", text) : state;
}

int fake_ready(struct ncclComm *comm)
{
    int state = comm->polls > 0 ? IN_PROGRESS : comm->state;
    if (comm->ended || comm->finalized || comm->suspended)
        return fake_say(INVALID_USAGE, "The communicator was aborted, revoked, finalized or suspended");
    return not_ready(state);
}

void fake_comm_ring(struct ncclComm *comm)
{
    if (comm->memory.shared)
        fake_ring(&comm->memory, comm->rank);
}

/* ---- counting what is under way ---- */

static void change(struct ncclComm *comm, int *count, int by)
{
    pthread_mutex_lock(&comm->lock);
    *count += by;
    bool last = comm->gone && comm->queued == 0 && comm->helpers == 0;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (last)
        fake_comm_free(comm);
}

void fake_comm_queued(struct ncclComm *comm)
{
    live_operations++;
    comm->queued++;
}

void fake_comm_running(struct ncclComm *comm, int by)
{
    change(comm, &comm->running, by);
}

void fake_comm_through(struct ncclComm *comm)
{
    change(comm, &comm->queued, -1);
    live_operations--;
}

void fake_comm_helped(struct ncclComm *comm, int by)
{
    change(comm, &comm->helpers, by);
}

static void wait_for(struct ncclComm *comm, const int *count)
{
    pthread_mutex_lock(&comm->lock);
    while (*count)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

/* Whoever is last frees it. */
static void let_go(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->gone = true;
    bool last = comm->queued == 0 && comm->helpers == 0;
    pthread_mutex_unlock(&comm->lock);
    if (last)
        fake_comm_free(comm);
}

/* ---- ending ---- */

void fake_comm_end_operations(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->ended = true;
    fake_comm_ring(comm);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    wait_for(comm, &comm->running);
}

int ncclCommAbort(struct ncclComm *comm)
{
    int told = fake_enter(AT_ncclCommAbort, comm);
    if (told != NOTHING)
        return told;
    if (!comm)
        return SUCCESS;
    comm->aborted = true;
    fake_comm_end_operations(comm);
    wait_for(comm, &comm->helpers);
    let_go(comm);
    return SUCCESS;
}

int ncclCommRevoke(struct ncclComm *comm, int flags)
{
    int told = fake_enter(AT_ncclCommRevoke, comm);
    if (told != NOTHING)
        return told;
    if (!comm || flags != 0)
        return fake_say(INVALID_ARGUMENT, "ncclCommRevoke: comm is NULL or flags %d is not 0", flags);
    fake_comm_end_operations(comm);
    return SUCCESS;
}

int ncclCommDestroy(struct ncclComm *comm)
{
    int told = fake_enter(AT_ncclCommDestroy, comm);
    if (told != NOTHING)
        return told;
    if (!comm)
        return SUCCESS;
    if (comm->state == IN_PROGRESS && !comm->ended && !comm->finalized)
        return not_ready(IN_PROGRESS);
    if (!comm->ended)
        wait_for(comm, &comm->queued);
    wait_for(comm, &comm->helpers);
    let_go(comm);
    return SUCCESS;
}

static void *finalize(void *context)
{
    struct ncclComm *comm = context;
    pthread_mutex_lock(&comm->lock);
    while (comm->queued && !comm->ended)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    int expected = IN_PROGRESS;
    atomic_compare_exchange_strong(&comm->state, &expected, SUCCESS);
    fake_comm_helped(comm, -1);
    return NULL;
}

int ncclCommFinalize(struct ncclComm *comm)
{
    int told = fake_enter(AT_ncclCommFinalize, comm);
    if (told != NOTHING)
        return told;
    if (!comm)
        return SUCCESS;
    int ready = comm->finalized ? fake_say(INVALID_ARGUMENT, "The communicator was finalized before")
                                : fake_ready(comm);
    if (ready != SUCCESS)
        return ready;
    comm->finalized = true;
    if (comm->config.blocking) {
        wait_for(comm, &comm->queued);
        return SUCCESS;
    }
    comm->state = IN_PROGRESS;
    fake_comm_helped(comm, 1);
    if (fake_thread(finalize, comm) != SUCCESS) {
        fake_comm_helped(comm, -1);
        return SYSTEM_ERROR;
    }
    return IN_PROGRESS;
}

int ncclCommSuspend(struct ncclComm *comm, int flags)
{
    int told = fake_enter(AT_ncclCommSuspend, comm);
    if (told != NOTHING)
        return told;
    if (!comm || flags != 1)
        return fake_say(INVALID_ARGUMENT, "ncclCommSuspend: comm is NULL or flags %d is not 1", flags);
    int ready = fake_ready(comm);
    if (ready == SUCCESS)
        comm->suspended = true;
    return ready;
}

int ncclCommResume(struct ncclComm *comm)
{
    int told = fake_enter(AT_ncclCommResume, comm);
    if (told != NOTHING)
        return told;
    if (!comm)
        return fake_say(INVALID_ARGUMENT, "comm argument is NULL");
    if (!atomic_exchange(&comm->suspended, false))
        return fake_say(INVALID_USAGE, "The communicator is not suspended");
    return SUCCESS;
}

/* ---- asking ---- */

int ncclCommGetAsyncError(struct ncclComm *comm, int *result)
{
    int told = fake_enter(AT_ncclCommGetAsyncError, comm);
    if (told != NOTHING)
        return told;
    if (!comm || !result)
        return fake_say(INVALID_ARGUMENT, "comm or asyncError argument is NULL");
    int polls = comm->polls;
    while (polls > 0 && !atomic_compare_exchange_weak(&comm->polls, &polls, polls - 1))
        ;
    *result = polls > 0 ? IN_PROGRESS : comm->state;
    return SUCCESS;
}

static int ask(enum function function, const struct ncclComm *comm, int *ret_value, int value)
{
    int told = fake_enter(function, comm);
    if (told != NOTHING)
        return told;
    if (!ret_value)
        return fake_say(INVALID_ARGUMENT, "The place for the answer is NULL");
    int state = comm->state;
    if (state != SUCCESS)
        return not_ready(state);
    *ret_value = value;
    return SUCCESS;
}

static int no_comm(void)
{
    return fake_say(INVALID_ARGUMENT, "comm argument is NULL");
}

int ncclCommCount(struct ncclComm *comm, int *count)
{
    return comm ? ask(AT_ncclCommCount, comm, count, comm->n_ranks) : no_comm();
}

int ncclCommCuDevice(struct ncclComm *comm, int *device)
{
    return comm ? ask(AT_ncclCommCuDevice, comm, device, comm->device) : no_comm();
}

int ncclCommUserRank(struct ncclComm *comm, int *rank)
{
    return comm ? ask(AT_ncclCommUserRank, comm, rank, comm->rank) : no_comm();
}
