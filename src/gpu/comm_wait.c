/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waiting for a communicator, asking how it is, ending it. */
#include "base/options.h"
#include "base/pause.h"
#include "gpu/watch.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <string.h>

int gs_comm_settle(struct gpusys_comm *comm, struct ncclComm *handle, int result, int64_t deadline_ns)
{
    struct gs_pause pause = gs_pause_start();
    while (result == GPUSYS_NCCL_IN_PROGRESS) {
        int code = atomic_load_explicit(&comm->code, memory_order_acquire);
        if (code)
            return code;
        if (!gs_pause_once(&pause, deadline_ns))
            return -ETIMEDOUT;
        int called = comm->nccl->comm_get_async_error(handle, &result);
        if (called)
            result = called;
    }
    return result;
}

/* ---- waiting ---- */

static int wait_expired(struct gpusys_comm *comm, int64_t timeout_ns, struct gpusys_error *error)
{
    struct gpusys_error own;
    gpusys_error_set(&own, -ETIMEDOUT, "what is in the stream was not through after %.3f s",
                     (double)timeout_ns / 1e9);
    gs_comm_fail(comm, -ETIMEDOUT, &own, true);
    int code = gpusys_comm_failure(comm, error);
    gpusys_error_add_detail(error, "waited", "%.3f s for the stream, on rank %u", (double)timeout_ns / 1e9,
                            comm->rank);
    return code;
}

/* The GPU itself says that it went wrong. */
static int wait_failed(struct gpusys_comm *comm, int code, const struct gpusys_error *why,
                       struct gpusys_error *error)
{
    if (code == -EBUSY) { /* a stream that is captured: the caller's mistake, and no harm done */
        if (error)
            *error = *why;
        return code;
    }
    gs_comm_fail(comm, code, why, false);
    return gpusys_comm_failure(comm, error);
}

/* The stream is through. That counts if NCCL knows of no error. */
static int wait_done(struct gpusys_comm *comm, struct CUstream_st *stream, uint64_t last,
                     struct gpusys_error *error)
{
    struct gpusys_error why;
    bool remote;
    if (gs_comm_enter(comm))
        return gpusys_comm_failure(comm, error);
    int code = gs_watch_nccl(comm, &why, &remote);
    gs_comm_leave(comm);
    if (code) {
        gs_comm_fail(comm, code, &why, remote);
        return gpusys_comm_failure(comm, error);
    }
    if (last)
        gs_trace_complete(comm->trace, stream, last);
    return 0;
}

int gpusys_comm_wait(struct gpusys_comm *comm, struct CUstream_st *stream, int64_t timeout_ns,
                     struct gpusys_error *error)
{
    int64_t deadline_ns = gpusys_deadline_after(timeout_ns);
    uint64_t last = comm->trace ? gs_trace_last(comm->trace) : 0;
    struct gs_pause pause = gs_pause_start();
    struct gpusys_error why;
    for (;;) {
        int code = gpusys_cuda_stream_query(comm->cuda, stream, &why);
        /* After the query: what an abort cut short looks done. */
        if (atomic_load(&comm->code))
            return gpusys_comm_failure(comm, error);
        if (code && code != -EAGAIN)
            return wait_failed(comm, code, &why, error);
        if (!code)
            return wait_done(comm, stream, last, error);
        if (timeout_ns == 0)
            return gpusys_error_set(error, -EAGAIN, "rank %u: what is in the stream is not through",
                                    comm->rank);
        if (!gs_pause_once(&pause, deadline_ns))
            return wait_expired(comm, timeout_ns, error);
    }
}

/* ---- ending it, and how it is ---- */

void gpusys_comm_abort(struct gpusys_comm *comm)
{
    struct gpusys_error error;
    gpusys_error_set(&error, -ECANCELED, "the communicator was aborted by its program");
    gs_comm_fail(comm, -ECANCELED, &error, false);
}

int gpusys_comm_status(const struct gpusys_comm *comm, struct gpusys_comm_status *ret_status)
{
    struct gs_watch *watch = comm->watch;
    struct gpusys_comm_status status = {.n_ranks = comm->n_ranks, .rank = comm->rank, .device = comm->device};
    if (!ret_status)
        return -EINVAL;
    if (comm->trace) {
        status.submitted = gs_trace_last(comm->trace);
        status.completed = gs_trace_completed(comm->trace);
    }
    pthread_mutex_lock(&watch->lock);
    status.state = watch->state;
    status.code = atomic_load(&comm->code);
    status.n_suspects = watch->n_suspects;
    memcpy(status.suspects, watch->suspects, sizeof status.suspects);
    pthread_mutex_unlock(&watch->lock);
    return gs_info_give(ret_status, &status, sizeof status);
}

int gpusys_comm_failure(const struct gpusys_comm *comm, struct gpusys_error *error)
{
    int code = atomic_load_explicit(&comm->code, memory_order_acquire);
    if (!code || !error)
        return code;
    pthread_mutex_lock(&comm->watch->lock);
    *error = comm->watch->failure;
    pthread_mutex_unlock(&comm->watch->lock);
    return code;
}

struct ncclComm *gpusys_comm_nccl(const struct gpusys_comm *comm)
{
    bool aborted = atomic_load(&comm->code) && !(comm->flags & GPUSYS_COMM_KEEP);
    return aborted ? NULL : comm->handle;
}

int gpusys_comm_trace(const struct gpusys_comm *comm, int fd, const char *reason, struct gpusys_error *error)
{
    struct gpusys_error failure;
    if (!comm->trace)
        return gpusys_error_set(error, -ENODATA, "rank %u: no trace is kept (GPUSYS_COMM_NO_TRACE)",
                                comm->rank);
    struct gs_trace_head head = {.reason = reason ? reason : "request",
                                 .host = comm->host,
                                 .rank = comm->rank,
                                 .n_ranks = comm->n_ranks,
                                 .key = comm->key,
                                 .version = comm->version};
    if (gpusys_comm_failure(comm, &failure))
        head.error = failure.message;
    int code = gs_trace_write(comm->trace, &head, fd);
    return code ? gpusys_error_set_errno(error, code, "rank %u: writing the trace", comm->rank) : 0;
}
