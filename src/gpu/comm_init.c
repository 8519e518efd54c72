/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NCCL's own part of a communicator is brought up, until a deadline. */
#include "base/helper.h"
#include "gpu/comm_open.h"
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

/* ---- the call ----
 *
 * A helper makes it. Before 2.14 it blocks; since then it should not, and who does not trust that is right. And a call that
 * fails early on leaves its thread inside a group (2.28 and 2.32 do), where whatever is submitted next is queued without
 * a word: nobody submits anything on the helper's thread.
 */

struct init_call {
    const struct gpusys_nccl *nccl;
    struct gpusys_cuda *cuda;
    struct gpusys_nccl_id id;
    struct gpusys_nccl_config config;
    int n_ranks, rank;
    struct ncclComm *handle; /* NULL before the call: some versions read it */
};

static int run_init(void *context)
{
    struct init_call *init = context;
    const struct gpusys_nccl *nccl = init->nccl;
    if (gpusys_cuda_push(init->cuda, NULL))
        return GPUSYS_NCCL_UNHANDLED_CUDA_ERROR;
    int result =
        nccl->comm_init_rank_config
            ? nccl->comm_init_rank_config(&init->handle, init->n_ranks, init->id, init->rank, &init->config)
            : nccl->comm_init_rank(&init->handle, init->n_ranks, init->id, init->rank);
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
static int call_init(struct gpusys_comm *comm, const struct gs_opening *opening, struct ncclComm **ret_handle)
{
    struct gs_helper *helper;
    int result;
    struct init_call *init = malloc(sizeof *init);
    if (!init)
        return -ENOMEM;
    *init = (struct init_call){.nccl = comm->nccl,
                               .cuda = comm->cuda,
                               .id = opening->id,
                               .config = opening->config,
                               .n_ranks = (int)comm->n_ranks,
                               .rank = (int)comm->rank};
    int code = gs_helper_start(&helper, run_init, free, init);
    if (code) {
        free(init);
        return code;
    }
    code = await_init(comm, helper, opening->deadline_ns, &result);
    if (code)
        gs_watch_stuck(comm);
    else if (result == GPUSYS_NCCL_SUCCESS || comm->nonblocking)
        *ret_handle = init->handle;
    gs_helper_let_go(helper);
    return code ? code : result;
}

int gs_comm_init(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error)
{
    struct ncclComm *handle = NULL;
    comm->nonblocking = comm->nccl->comm_init_rank_config;
    int code = gpusys_cuda_push(comm->cuda, error);
    if (code)
        return gs_comm_fail(comm, code, error, false);
    int result = call_init(comm, opening, &handle);
    result = gs_comm_settle(comm, handle, result, opening->deadline_ns);
    if (result == GPUSYS_NCCL_SUCCESS) {
        comm->handle = handle;
        result = gs_watch_start(comm);
    }
    if (result)
        code = gs_comm_init_failed(comm, handle, result,
                                   comm->nonblocking ? "ncclCommInitRankConfig" : "ncclCommInitRank", error);
    gpusys_cuda_pop(comm->cuda);
    return code;
}
