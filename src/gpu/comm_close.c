/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The end of a communicator: in good order where that can be, by an abort otherwise, and never for ever. */
#include "base/helper.h"
#include "base/log.h"
#include "gpu/comm_open.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the last calls: NCCL frees the handle in them, and may never come back ---- */

struct farewell {
    int (*call)(struct ncclComm *handle);
    struct ncclComm *handle;
};

static int run_farewell(void *context)
{
    const struct farewell *farewell = context;
    return farewell->call(farewell->handle);
}

/* What NCCL answered, or -ETIMEDOUT and the like: then the communicator is stuck, and the helper left behind. */
static int say_farewell(struct gpusys_comm *comm, int (*call)(struct ncclComm *handle),
                        struct ncclComm *handle, int64_t deadline_ns)
{
    struct gs_helper *helper;
    int result;
    struct farewell *farewell = malloc(sizeof *farewell);
    int code = -ENOMEM;
    if (farewell) {
        *farewell = (struct farewell){.call = call, .handle = handle};
        code = gs_helper_start(&helper, run_farewell, free, farewell);
    }
    if (code) {
        free(farewell);
    } else {
        code = gs_helper_wait(helper, deadline_ns, &result);
        gs_helper_let_go(helper);
    }
    if (code)
        gs_watch_stuck(comm);
    return code ? code : result;
}

/*
 * A call that is under way uses what the abort frees. Most come back by themselves; one that hangs in NCCL is woken by
 * the abort alone, and takes its chance. A group that is open has operations in it that NCCL will look at when it ends,
 * so that nothing but its end will do.
 */
static void wait_outside(struct gpusys_comm *comm, int64_t most_ns)
{
    const struct timespec pause = {.tv_nsec = 100000}, long_pause = {.tv_nsec = 5000000};
    while (atomic_load(&comm->held))
        nanosleep(&long_pause, NULL);
    int64_t deadline_ns = gpusys_deadline_after(most_ns);
    while (gs_inside_now(atomic_load_explicit(&comm->inside, memory_order_acquire)) &&
           gpusys_now_ns() < deadline_ns)
        nanosleep(&pause, NULL);
}

bool gs_comm_abort_handle(struct gpusys_comm *comm, struct ncclComm *handle)
{
    const int64_t second_ns = 1000000000;
    int64_t timeout_ns = comm->abort_timeout_ns;
    if (!handle)
        return true;
    wait_outside(comm, timeout_ns < 0 || timeout_ns / 2 > second_ns ? second_ns : timeout_ns / 2);
    int64_t deadline_ns = gpusys_deadline_after(timeout_ns);
    int result = say_farewell(comm, comm->nccl->comm_abort, handle, deadline_ns);
    if (result < 0)
        gs_log(
            GPUSYS_LOG_ERROR,
            "rank %u: NCCL did not come back from the abort: it is left behind, end this process with _exit",
            comm->rank);
    if (result > 0) { /* nobody knows what of it is still there */
        gs_watch_stuck(comm);
        gs_log(GPUSYS_LOG_ERROR, "rank %u: ncclCommAbort: %s: it is left behind, end this process with _exit",
               comm->rank, gpusys_nccl_result_name(result));
    }
    return result == 0;
}

/* ---- the trace ---- */

void gs_comm_dump(struct gpusys_comm *comm, const char *reason)
{
    struct gpusys_error error;
    if (!comm->trace || !comm->trace_path)
        return;
    /* Non-blocking, for a path that is a FIFO which nobody reads. */
    int fd = open(comm->trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0600);
    int code = fd < 0 ? gpusys_error_set_errno(&error, -errno, "%s", comm->trace_path)
                      : gpusys_comm_trace(comm, fd, reason, &error);
    if (fd >= 0)
        close(fd);
    if (code)
        gs_log(GPUSYS_LOG_WARN, "rank %u: no trace: %s", comm->rank, error.message);
}

/* ---- closing ---- */

/* What came of NCCL's own farewell is not success: the ranks still bound to it must end it as well. */
static void close_failed(struct gpusys_comm *comm, int result, const char *call)
{
    struct gpusys_error error;
    int code = result;
    bool judge = gs_comm_is_remote(result);
    if (result > 0) {
        code = gpusys_nccl_error(result, call, comm->handle, &error);
    } else {
        judge = result == -ETIMEDOUT;
        gpusys_error_set(&error, result, "%s: what is under way was not through %.3f s after the close", call,
                         (double)comm->call_timeout_ns / 1e9);
    }
    gs_comm_fail(comm, code, &error, judge);
}

static void close_healthy(struct gpusys_comm *comm)
{
    const struct gpusys_nccl *nccl = comm->nccl;
    int64_t deadline_ns = gpusys_deadline_after(comm->call_timeout_ns);
    int result = 0;
    if (nccl->comm_finalize) {
        result = say_farewell(comm, nccl->comm_finalize, comm->handle, deadline_ns);
        comm->watch->ended = result < 0; /* the helper is in it: an abort would free what it uses */
        result = gs_comm_settle(comm, comm->handle, result, deadline_ns);
    }
    if (result) {
        close_failed(comm, result, "ncclCommFinalize");
        return;
    }
    gs_comm_dump(comm, "close");
    result = say_farewell(comm, nccl->comm_destroy, comm->handle, deadline_ns);
    comm->handle = NULL;
    if (result < 0)
        close_failed(comm, result, "ncclCommDestroy");
    else if (result > 0)
        gs_log(GPUSYS_LOG_WARN, "rank %u: ncclCommDestroy: %s", comm->rank, gpusys_nccl_result_name(result));
}

void gs_comm_free(struct gpusys_comm *comm)
{
    bool stuck = comm->watch && comm->watch->state == GPUSYS_COMM_STUCK;
    if (comm->attached)
        gs_party_detach(comm->party, comm->key);
    gs_watch_free(comm);
    if (!stuck)
        gpusys_cuda_close(comm->cuda);
    gs_party_close(comm->party);
    gs_trace_free(comm->trace);
    free(comm->trace_path);
    free(comm->ranks);
    free(comm);
}

void gpusys_comm_close(struct gpusys_comm *comm)
{
    if (!comm)
        return;
    if (comm->next_grouped) {
        comm->close_at_end = true;
        return;
    }
    gs_watch_stop(comm);
    if (!atomic_load(&comm->code))
        close_healthy(comm);
    if (atomic_load(&comm->code)) {
        comm->flags &= ~(uint32_t)GPUSYS_COMM_KEEP;
        gs_watch_end(comm);
    }
    gs_comm_free(comm);
}
