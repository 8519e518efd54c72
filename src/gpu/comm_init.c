/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NCCL's own part of a communicator is brought up, until a deadline. */
#include "gpu/comm_open.h"
#include "gpu/helper.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <stdlib.h>

/* ---- when it comes to nothing ---- */

int gs_comm_init_failed(struct gpusys_comm *comm, struct ncclComm *handle, int result, const char *call,
                        struct gpusys_error *error)
{
    struct gpusys_error own;
    if (result > 0) {
        int code = gpusys_nccl_error(result, call, handle, &own);
        gs_comm_fail(comm, code, &own, gs_comm_is_remote(result));
    } else if (result == -ETIMEDOUT) {
        gpusys_error_set(&own, -ETIMEDOUT, "%s: NCCL was not up by the deadline (%.3f s from the start)",
                         call, (double)comm->init_timeout_ns / 1e9);
        gpusys_error_set_hint(&own,
                              "run again with NCCL_DEBUG=INFO: is NCCL_SOCKET_IFNAME the interface that "
                              "joins the hosts, and do firewalls let its ports through?");
        gs_comm_fail(comm, -ETIMEDOUT, &own, true);
    } else {
        gpusys_error_set_errno(&own, result, "%s: rank %u", call, comm->rank);
        gs_comm_fail(comm, result, &own, false);
    }
    int code = gpusys_comm_failure(comm, error);
    gs_comm_abort_handle(comm, handle);
    return code;
}

/* ---- libraries since 2.14: without blocking ---- */

static int init_config(struct gpusys_comm *comm, struct gs_opening *opening, struct ncclComm **ret_handle)
{
    struct ncclComm *handle = NULL; /* some read it */
    int result = comm->nccl->comm_init_rank_config(&handle, (int)comm->n_ranks, opening->id, (int)comm->rank,
                                                   &opening->config);
    comm->nonblocking = true;
    *ret_handle = handle;
    return gs_comm_settle(comm, handle, result, opening->deadline_ns);
}

/*
 * A call that fails early on leaves this thread inside a group (2.28 and 2.32 do; older ones that were looked at do not),
 * and what is submitted later would be queued without a word. One end more repairs that. Outside of a group it does
 * nothing, but takes the place of the last error, and so comes after that was read.
 */
static void leave_leaked_group(const struct gpusys_comm *comm)
{
    comm->nccl->group_end();
}

/* ---- older ones: the call blocks, so a helper makes it ---- */

struct blocking_init {
    const struct gpusys_nccl *nccl;
    struct gpusys_cuda *cuda;
    struct gpusys_nccl_id id;
    int n_ranks, rank;
    struct ncclComm *handle;
};

static int run_blocking_init(void *context)
{
    struct blocking_init *init = context;
    if (gpusys_cuda_push(init->cuda, NULL))
        return GPUSYS_NCCL_UNHANDLED_CUDA_ERROR;
    int result = init->nccl->comm_init_rank(&init->handle, init->n_ranks, init->id, init->rank);
    gpusys_cuda_pop(init->cuda);
    return result;
}

/* By the deadline, or until another rank fails. */
static int await_init(struct gpusys_comm *comm, struct gs_helper *helper, int64_t deadline_ns,
                      int *ret_result)
{
    const int64_t look_every_ns = 10000000;
    for (;;) {
        int64_t until_ns = gpusys_deadline_after(look_every_ns);
        bool last = until_ns >= deadline_ns;
        if (gs_helper_wait(helper, last ? deadline_ns : until_ns, ret_result) == 0)
            return 0;
        int code = atomic_load(&comm->code);
        if (code || last)
            return code ? code : -ETIMEDOUT;
    }
}

/* Who does not come back from this cannot be aborted, for nobody has the handle: he is left behind, and the GPU's
 * context with him. */
static int init_blocking(struct gpusys_comm *comm, struct gs_opening *opening, struct ncclComm **ret_handle)
{
    struct gs_helper *helper;
    int result;
    struct blocking_init *init = malloc(sizeof *init);
    if (!init)
        return -ENOMEM;
    *init = (struct blocking_init){.nccl = comm->nccl,
                                   .cuda = comm->cuda,
                                   .id = opening->id,
                                   .n_ranks = (int)comm->n_ranks,
                                   .rank = (int)comm->rank};
    int code = gs_helper_start(&helper, run_blocking_init, free, init);
    if (code) {
        free(init);
        return code;
    }
    code = await_init(comm, helper, opening->deadline_ns, &result);
    if (code)
        gs_watch_stuck(comm);
    else
        *ret_handle = result == GPUSYS_NCCL_SUCCESS ? init->handle : NULL;
    gs_helper_let_go(helper);
    return code ? code : result;
}

int gs_comm_init(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error)
{
    bool old = !comm->nccl->comm_init_rank_config;
    struct ncclComm *handle = NULL;
    int code = gpusys_cuda_push(comm->cuda, error);
    if (code)
        return gs_comm_fail(comm, code, error, false);
    int result = old ? init_blocking(comm, opening, &handle) : init_config(comm, opening, &handle);
    if (result == GPUSYS_NCCL_SUCCESS) {
        comm->handle = handle;
        result = gs_watch_start(comm);
    }
    if (result) {
        code = gs_comm_init_failed(comm, handle, result, old ? "ncclCommInitRank" : "ncclCommInitRankConfig",
                                   error);
        if (!old && !handle)
            leave_leaked_group(comm);
    }
    gpusys_cuda_pop(comm->cuda);
    return code;
}
