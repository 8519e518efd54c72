/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: groups of a thread, and what is submitted in and outside of them. */
#include "fake/nccl.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    int depth;
    int result; /* the first failure in the group */
    struct operation *first, **end;
    struct job *jobs, **jobs_end;
} group;

int fake_nccl_group_depth(void)
{
    return group.depth;
}

void fake_group_leak(void)
{
    group.depth++;
}

int fake_group_failed(int code)
{
    if (group.depth && group.result == SUCCESS && code != IN_PROGRESS)
        group.result = code;
    return code;
}

/* ---- operations ---- */

static void discard(struct operation *list)
{
    while (list) {
        struct operation *operation = list;
        list = operation->next;
        free(operation);
    }
}

/* Its place among the communicator's. Ranks whose calls are in the same order have the same tickets. */
static void enlist(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    pthread_mutex_lock(&comm->lock);
    operation->ticket = operation->function == AT_ncclSend   ? comm->sends[operation->root]++
                        : operation->function == AT_ncclRecv ? comm->receives[operation->root]++
                                                             : comm->collectives++;
    fake_comm_queued(comm);
    int error = fake_async_error(comm, ++comm->submitted);
    pthread_mutex_unlock(&comm->lock);
    if (error)
        comm->state = error;
}

/* Cut those of the first one's stream out of the list; where there are no streams, all. */
static struct operation *one_stream(struct operation **list)
{
    struct CUstream_st *stream = (*list)->stream;
    bool has_streams = fake_cuda_has_streams();
    struct operation *batch = NULL, **end = &batch;
    while (*list) {
        struct operation *operation = *list;
        if (has_streams && operation->stream != stream) {
            list = &operation->next;
            continue;
        }
        *list = operation->next;
        operation->next = NULL;
        *end = operation;
        end = &operation->next;
    }
    return batch;
}

/* What could not be launched is through. */
static void drop(struct operation *list)
{
    while (list) {
        struct operation *operation = list;
        list = operation->next;
        fake_comm_through(operation->comm);
        free(operation);
    }
}

static int launch(struct operation *list)
{
    int result = SUCCESS;
    for (struct operation *operation = list; operation; operation = operation->next)
        enlist(operation);
    while (list) {
        struct operation *batch = one_stream(&list);
        int now = fake_cuda_launch(batch->stream, fake_run_batch, batch);
        if (now != SUCCESS)
            drop(batch);
        result = result ? result : now;
    }
    return result;
}

/* What a non-blocking communicator may answer, and be for a while. */
static int maybe_in_progress(struct ncclComm *comm, enum function function)
{
    int polls = comm->config.blocking ? 0 : fake_polls_in_progress(function, comm);
    if (polls <= 0)
        return SUCCESS;
    comm->polls = polls;
    return IN_PROGRESS;
}

int fake_submit(struct operation *operation)
{
    operation->next = NULL;
    operation->stalled = fake_stalls(operation->function, operation->comm);
    if (group.depth) {
        *(group.first ? group.end : &group.first) = operation;
        group.end = &operation->next;
        return SUCCESS;
    }
    /* It is not ours any more once launched, and its communicator only until it is destroyed. */
    int answer = maybe_in_progress(operation->comm, operation->function);
    int result = launch(operation);
    return result ? result : answer;
}

int fake_submit_job(struct job *job)
{
    job->next = NULL;
    if (!group.depth)
        return fake_run_jobs(job);
    *(group.jobs ? group.jobs_end : &group.jobs) = job;
    group.jobs_end = &job->next;
    return job->nonblocking ? IN_PROGRESS : SUCCESS;
}

/* ---- the calls ---- */

int ncclGroupStart(void)
{
    int told = fake_enter(AT_ncclGroupStart, NULL);
    if (told != NOTHING)
        return told;
    group.depth++;
    return SUCCESS;
}

/* Every communicator of the group may say that it is not ready yet. */
static int answer_of(const struct operation *list)
{
    int answer = SUCCESS;
    for (; list; list = list->next)
        if (answer == SUCCESS)
            answer = maybe_in_progress(list->comm, AT_ncclGroupEnd);
        else if (!list->comm->config.blocking && list->comm->polls == 0)
            list->comm->polls = 1;
    return answer;
}

static int end_outermost(bool simulated)
{
    int result = group.result;
    struct operation *operations = group.first;
    struct job *jobs = group.jobs;
    group.result = SUCCESS;
    group.first = NULL;
    group.jobs = NULL;
    if (jobs && (result == SUCCESS || result == IN_PROGRESS))
        result = fake_run_jobs(jobs);
    if (simulated || (result != SUCCESS && result != IN_PROGRESS)) {
        discard(operations);
        return result;
    }
    int answer = answer_of(operations), now = launch(operations);
    return result ? result : now ? now : answer;
}

static int leave(bool simulated, const char *name)
{
    if (group.depth == 0)
        return fake_say(INVALID_USAGE, "%s: not in a group call.", name);
    return --group.depth ? SUCCESS : end_outermost(simulated);
}

int ncclGroupEnd(void)
{
    int told = fake_enter(AT_ncclGroupEnd, NULL);
    return told != NOTHING ? told : leave(false, "ncclGroupEnd");
}

int ncclGroupSimulateEnd(struct fake_nccl_sim_info *info)
{
    int told = fake_enter(AT_ncclGroupSimulateEnd, NULL);
    if (told != NOTHING)
        return told;
    size_t size = 0;
    if (info)
        memcpy(&size, info, sizeof size);
    if (info && (size < sizeof *info || info->magic != 0x74685283))
        return fake_say(INVALID_ARGUMENT,
                        "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
    int result = leave(true, "ncclGroupSimulateEnd");
    if (info && result == SUCCESS)
        info->estimated_time = 1.0f;
    return result;
}
