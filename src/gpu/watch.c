/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The watchdog: a thread that asks NCCL for its asynchronous errors and the GPU for what is overdue. */
#include "gpu/watch.h"
#include "gpu/cuda.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static const int64_t look_every_ns = 100000000, look_never_below_ns = 1000000;

int gs_watch_new(struct gpusys_comm *comm)
{
    struct gs_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return -ENOMEM;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&watch->lock, NULL);
    watch->state = GPUSYS_COMM_HEALTHY;
    comm->watch = watch;
    return 0;
}

/* ---- operations that are watched ---- */

void gs_comm_watch_op(struct gpusys_comm *comm, struct CUstream_st *stream, uint64_t sequence)
{
    struct gs_watch *watch = comm->watch;
    uint32_t tail = atomic_load_explicit(&watch->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&watch->head, memory_order_acquire) == GS_WATCHED_OPS)
        return; /* those in the ring are older, and fail first */
    struct gs_watched_op *op = &watch->ops[tail % GS_WATCHED_OPS];
    if (gs_cuda_is_capturing(comm->cuda, stream, NULL) == 1)
        return; /* it runs when the graph is launched, as often as that is */
    if (!op->event && gpusys_cuda_event_open(comm->cuda, &op->event, NULL))
        return;
    if (gpusys_cuda_event_record(comm->cuda, op->event, stream, NULL))
        return; /* the next look at the stream or at NCCL says why */
    op->stream = stream;
    op->sequence = sequence;
    op->submitted_ns = gpusys_now_ns();
    op->through = false;
    atomic_store_explicit(&watch->tail, tail + 1, memory_order_release);
}

static int overdue(struct gpusys_comm *comm, const struct gs_watched_op *op)
{
    struct gpusys_error error;
    gpusys_error_set(&error, -ETIMEDOUT, "an operation (number %llu) was not through after %.3f s",
                     (unsigned long long)op->sequence, (double)comm->op_timeout_ns / 1e9);
    return gs_comm_fail(comm, -ETIMEDOUT, &error, true);
}

/* 0: go on. */
static int look_at_op(struct gpusys_comm *comm, struct gs_watched_op *op)
{
    struct gpusys_error error;
    int code = op->through ? 0 : gpusys_cuda_event_query(comm->cuda, op->event, &error);
    if (code == -EAGAIN)
        return gpusys_now_ns() - op->submitted_ns > comm->op_timeout_ns ? overdue(comm, op) : 0;
    if (code)
        return gs_comm_fail(comm, code, &error, false);
    if (!op->through && comm->trace && op->sequence)
        gs_trace_complete(comm->trace, op->stream, op->sequence);
    op->through = true;
    return 0;
}

/* All of them: one stream's operations do not wait for another's. */
static void look_at_ops(struct gpusys_comm *comm)
{
    struct gs_watch *watch = comm->watch;
    uint32_t head = atomic_load_explicit(&watch->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&watch->tail, memory_order_acquire);
    for (uint32_t at = head; at != tail; at++) {
        struct gs_watched_op *op = &watch->ops[at % GS_WATCHED_OPS];
        if (look_at_op(comm, op))
            return;
        head += op->through && at == head;
    }
    atomic_store_explicit(&watch->head, head, memory_order_release);
}

/* ---- the thread ---- */

int gs_watch_nccl(struct gpusys_comm *comm, struct gpusys_error *error, bool *ret_remote)
{
    int result = GPUSYS_NCCL_SUCCESS;
    int called = comm->nccl->comm_get_async_error(comm->handle, &result);
    if (called)
        result = called;
    if (result == GPUSYS_NCCL_SUCCESS || result == GPUSYS_NCCL_IN_PROGRESS)
        return 0;
    *ret_remote = gs_comm_is_remote(result);
    return gpusys_nccl_error(result, "an operation", comm->handle, error);
}

static void look_at_nccl(struct gpusys_comm *comm)
{
    struct gpusys_error error;
    bool remote;
    int code = gs_watch_nccl(comm, &error, &remote);
    if (code)
        gs_comm_fail(comm, code, &error, remote);
}

/* A call of NCCL that stays. */
struct stay {
    uint64_t inside;
    int64_t since_ns;
};

/* Calls that are polled end by themselves, at these deadlines at the latest. One that does not can be woken by the abort alone. */
static void look_at_calls(struct gpusys_comm *comm, struct stay *stay)
{
    struct gpusys_error error;
    int64_t now_ns = gpusys_now_ns();
    uint64_t inside = atomic_load(&comm->inside);
    int64_t most_ns =
        comm->call_timeout_ns > comm->init_timeout_ns ? comm->call_timeout_ns : comm->init_timeout_ns;
    if (inside != stay->inside || !gs_inside_now(inside) || atomic_load(&comm->held)) {
        *stay = (struct stay){inside, now_ns};
        return;
    }
    if (comm->call_timeout_ns < 0 || comm->init_timeout_ns < 0 || now_ns - stay->since_ns <= most_ns)
        return;
    gpusys_error_set(&error, -ETIMEDOUT, "a call of NCCL did not come back within %.3f s",
                     (double)most_ns / 1e9);
    gs_comm_fail(comm, -ETIMEDOUT, &error, true);
}

/* false: enough looked. */
static bool next_look(struct gpusys_comm *comm, int64_t pause_ns)
{
    struct gs_watch *watch = comm->watch;
    int64_t until_ns = gpusys_now_ns() + pause_ns;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int late = 0;
    pthread_mutex_lock(&watch->lock);
    while (!watch->stop && !atomic_load_explicit(&comm->code, memory_order_relaxed) && !late)
        late = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    bool go_on = !watch->stop && !atomic_load_explicit(&comm->code, memory_order_relaxed);
    pthread_mutex_unlock(&watch->lock);
    return go_on;
}

static void *watchdog(void *context)
{
    struct gpusys_comm *comm = context;
    int64_t pause_ns = look_every_ns;
    if (comm->op_timeout_ns > 0 && comm->op_timeout_ns / 4 < pause_ns)
        pause_ns = comm->op_timeout_ns / 4;
    if (pause_ns < look_never_below_ns)
        pause_ns = look_never_below_ns;
    struct stay stay = {0};
    while (next_look(comm, pause_ns)) {
        look_at_calls(comm, &stay);
        look_at_nccl(comm);
        if (comm->op_timeout_ns > 0)
            look_at_ops(comm);
    }
    if (atomic_load(&comm->code))
        gs_watch_end(comm);
    return NULL;
}

int gs_watch_start(struct gpusys_comm *comm)
{
    sigset_t all;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setsigmask_np(&attributes, &all);
    int error = pthread_create(&comm->watch->thread, &attributes, watchdog, comm);
    pthread_attr_destroy(&attributes);
    comm->watch->running = !error;
    return -error;
}

void gs_watch_stop(struct gpusys_comm *comm)
{
    struct gs_watch *watch = comm->watch;
    if (!watch->running)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    watch->running = false;
}

void gs_watch_end(struct gpusys_comm *comm)
{
    struct gs_watch *watch = comm->watch;
    if (!watch->dumped)
        gs_comm_dump(comm, "failure");
    watch->dumped = true;
    if (watch->ended || (comm->flags & GPUSYS_COMM_KEEP))
        return;
    watch->ended = true;
    gs_comm_abort_handle(comm, comm->handle);
}

static _Atomic uint32_t left_behind;

uint32_t gpusys_comm_left_behind(void)
{
    return atomic_load(&left_behind);
}

void gs_watch_stuck(struct gpusys_comm *comm)
{
    pthread_mutex_lock(&comm->watch->lock);
    bool first = comm->watch->state != GPUSYS_COMM_STUCK;
    comm->watch->state = GPUSYS_COMM_STUCK;
    pthread_mutex_unlock(&comm->watch->lock);
    if (first)
        atomic_fetch_add(&left_behind, 1);
}

/* Events of work that NCCL is stuck with cannot be closed without waiting for it. */
static void free_ops(struct gpusys_comm *comm)
{
    for (uint32_t i = 0; i < GS_WATCHED_OPS && comm->watch->ops[i].event; i++)
        gpusys_cuda_event_close(comm->cuda, comm->watch->ops[i].event);
}

void gs_watch_free(struct gpusys_comm *comm)
{
    struct gs_watch *watch = comm->watch;
    if (!watch)
        return;
    if (watch->state != GPUSYS_COMM_STUCK)
        free_ops(comm);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
    comm->watch = NULL;
}
