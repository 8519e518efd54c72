/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: bringing communicators up, in the call or on threads. */
#include "fake/nccl.h"
#include "fake/nccl_comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STALL_CHECK_NS = 5000000, MEETING = 1, FIRST_COLOR = 16 };

/* What each rank of a parent tells the others. */
struct offer {
    int32_t color, key;
    uint32_t has_identity;
    struct identity identity;
};
static_assert(sizeof(struct offer) <= PAYLOAD, "an offer fits");

int fake_thread(void *(*run)(void *context), void *context)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int result = pthread_create(&thread, &attributes, run, context);
    pthread_attr_destroy(&attributes);
    return result == 0 ? SUCCESS : fake_say(SYSTEM_ERROR, "No thread: %s", strerror(result));
}

static bool go_on(void *context)
{
    const struct job *job = context;
    return !(job->comm && job->comm->ended) && !(job->parent && job->parent->aborted);
}

static int stall(struct job *job)
{
    struct timespec nap = {.tv_nsec = STALL_CHECK_NS};
    while (go_on(job))
        nanosleep(&nap, NULL);
    return fake_say(INTERNAL_ERROR, "The stalled start was aborted");
}

/* ---- what the ranks of a parent find out together ---- */

/* My place among those of my color, by key and then by rank. */
static void place(struct job *job, const struct offer *offers, int n)
{
    int members = 0, before = 0, me = job->parent->rank;
    for (int rank = 0; rank < n; rank++) {
        if (offers[rank].color != job->color)
            continue;
        members++;
        before += offers[rank].key < job->key || (offers[rank].key == job->key && rank < me);
    }
    job->comm->n_ranks = members;
    job->comm->rank = before;
    job->identity =
        fake_child_identity(&job->parent->identity, job->number, (uint64_t)job->color + FIRST_COLOR);
}

static int find_identity(struct job *job, const struct offer *offers, int n)
{
    for (int rank = 0; rank < n; rank++)
        if (offers[rank].has_identity) {
            job->identity = offers[rank].identity;
            return SUCCESS;
        }
    return fake_say(INVALID_USAGE, "No rank of the parent gave a unique id");
}

static int conclude(struct job *job, struct memory *memory)
{
    int n = job->parent->n_ranks;
    struct offer *offers = calloc((size_t)n, sizeof *offers);
    if (!offers)
        return fake_say(SYSTEM_ERROR, "Out of memory");
    for (int rank = 0; rank < n; rank++)
        memcpy(&offers[rank], memory->slots[rank].payload, sizeof *offers);
    int result = SUCCESS;
    if (job->grows)
        result = find_identity(job, offers, n);
    else if (job->comm)
        place(job, offers, n);
    free(offers);
    return result;
}

static int confer(struct job *job)
{
    struct ncclComm *parent = job->parent;
    unsigned char payload[PAYLOAD] = {0};
    struct offer offer = {
        .color = job->color, .key = job->key, .has_identity = job->has_identity, .identity = job->identity};
    memcpy(payload, &offer, sizeof offer);
    struct identity meeting = fake_child_identity(&parent->identity, job->number, MEETING);
    struct memory memory;
    int result = fake_meet(&memory, &meeting, parent->n_ranks, parent->rank, payload, go_on, job);
    if (result != SUCCESS)
        return result;
    result = conclude(job, &memory);
    fake_leave(&memory);
    return result;
}

/* ---- the job ---- */

static int bring_up(struct job *job)
{
    struct ncclComm *comm = job->comm;
    if (fake_stalls_init(comm ? comm->world_rank : job->parent->world_rank))
        return stall(job);
    int result = job->confers ? confer(job) : SUCCESS;
    if (result != SUCCESS || !comm)
        return result;
    struct memory memory;
    result = fake_meet(&memory, &job->identity, comm->n_ranks, comm->rank, NULL, go_on, job);
    if (result != SUCCESS)
        return result;
    pthread_mutex_lock(&comm->lock);
    comm->memory = memory;
    comm->identity = job->identity;
    pthread_mutex_unlock(&comm->lock);
    return SUCCESS;
}

static void conclude_state(struct ncclComm *comm, int result)
{
    int expected = IN_PROGRESS;
    if (comm)
        atomic_compare_exchange_strong(&comm->state, &expected, result);
}

static void run(struct job *job)
{
    job->result = bring_up(job);
    int early = job->comm ? fake_async_error(job->comm, 0) : 0;
    conclude_state(job->comm, job->result ? job->result : early);
    conclude_state(job->parent, job->result);
}

static void *run_on_thread(void *context)
{
    run(context);
    return NULL;
}

static void *run_unattended(void *context)
{
    struct job *job = context;
    struct ncclComm *comm = job->comm, *parent = job->parent;
    run(job);
    free(job);
    if (comm)
        fake_comm_helped(comm, -1);
    if (parent)
        fake_comm_helped(parent, -1);
    return NULL;
}

static int send_off(struct job *job)
{
    struct ncclComm *comm = job->comm, *parent = job->parent;
    if (comm)
        fake_comm_helped(comm, 1);
    if (parent) {
        parent->state = IN_PROGRESS;
        fake_comm_helped(parent, 1);
    }
    return fake_thread(run_unattended, job) == SUCCESS ? IN_PROGRESS : SYSTEM_ERROR;
}

/* A blocking call that failed leaves nothing behind. */
static int finish(struct job *job)
{
    if (job->on_thread)
        pthread_join(job->thread, NULL);
    int result = job->result;
    if (result != SUCCESS && job->comm) {
        *job->place = NULL;
        fake_comm_free(job->comm);
    }
    free(job);
    return result;
}

int fake_run_jobs(struct job *jobs)
{
    bool several = jobs->next != NULL;
    struct job *attended = NULL;
    int result = SUCCESS;
    for (struct job *job = jobs, *next; job; job = next) {
        next = job->next;
        if (job->nonblocking) {
            int sent = send_off(job);
            result = result ? result : sent;
            continue;
        }
        job->on_thread = several && pthread_create(&job->thread, NULL, run_on_thread, job) == 0;
        if (!job->on_thread)
            run(job);
        job->next = attended;
        attended = job;
    }
    for (struct job *job = attended, *next; job; job = next) {
        next = job->next;
        int now = finish(job);
        result = now ? now : result;
    }
    return result;
}
