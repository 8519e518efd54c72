/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opening a communicator: the libraries and the GPU first, then the other ranks, then NCCL. */
#include "gpu/comm_open.h"
#include "gpu/cuda.h"
#include <gpusys/env.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_of_memory(const struct gpusys_comm *comm, struct gpusys_error *error)
{
    return gpusys_error_set_errno(error, -ENOMEM, "communicator: rank %u of %u", comm->rank, comm->n_ranks);
}

static void take_options(struct gpusys_comm *comm, const struct gpusys_comm_options *options)
{
    comm->n_ranks = options->n_ranks;
    comm->rank = options->rank;
    comm->flags = options->flags;
    comm->init_timeout_ns = options->init_timeout_ns;
    comm->call_timeout_ns = options->call_timeout_ns;
    comm->abort_timeout_ns = options->abort_timeout_ns;
    comm->op_timeout_ns = options->op_timeout_ns;
    comm->trace_entries = options->trace_entries;
    if (gethostname(comm->host, sizeof comm->host - 1))
        strcpy(comm->host, "localhost");
}

/* Before NCCL is asked for anything: where there is no driver it fails in ways of its own. */
static int find_libraries(struct gpusys_comm *comm, struct gpusys_error *error)
{
    int code = gpusys_nccl_table(&comm->nccl, error);
    if (!code)
        code = gpusys_nccl_version(&comm->version, error);
    return code ? code : gpusys_cuda_status(error);
}

static int choose_device(const struct gs_opening *opening, uint32_t *ret_device, struct gpusys_error *error)
{
    uint32_t count;
    if (opening->options.flags & GPUSYS_COMM_DEVICE) {
        *ret_device = opening->options.device;
        return 0;
    }
    int code = gpusys_cuda_count(&count, error);
    if (code)
        return code;
    if (opening->n_local && opening->local_rank < count && opening->n_local <= count)
        *ret_device = opening->local_rank;
    else if (gs_cuda_current_device(ret_device, NULL))
        *ret_device = 0; /* no context: the first one, as the runtime library has it */
    return 0;
}

static int take_device(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error)
{
    struct gpusys_cuda_info info = {.size = sizeof info};
    int code = choose_device(opening, &comm->device, error);
    if (!code)
        code = gpusys_cuda_info(comm->device, &info, error);
    if (!code)
        code = gpusys_cuda_open(&comm->cuda, comm->device, error);
    if (!code)
        memcpy(opening->gpu, info.uuid, sizeof opening->gpu);
    return code;
}

static int make_trace(struct gpusys_comm *comm, const struct gpusys_comm_options *options,
                      struct gpusys_error *error)
{
    static const char *const key = "GPUSYS_NCCL_TRACE";
    char path[PATH_MAX];
    if (options->flags & GPUSYS_COMM_NO_TRACE)
        return 0;
    int code = gs_trace_new(&comm->trace, options->trace_entries);
    if (code)
        return gpusys_error_set_errno(error, code, "communicator: a trace of %u entries",
                                      options->trace_entries);
    const char *pattern =
        options->trace_path ? options->trace_path : gpusys_env_first_nonempty(&key, 1, NULL);
    if (!pattern)
        return 0;
    code = gs_trace_path(pattern, comm->rank, comm->host, path, sizeof path);
    if (code)
        return gpusys_error_set_errno(error, code, "communicator: trace path %.128s", pattern);
    comm->trace_path = strdup(path);
    return comm->trace_path ? 0 : out_of_memory(comm, error);
}

static int stand(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error)
{
    take_options(comm, &opening->options);
    int code = find_libraries(comm, error);
    if (!code)
        code = take_device(comm, opening, error);
    if (!code)
        code = make_trace(comm, &opening->options, error);
    if (!code && gs_watch_new(comm))
        code = out_of_memory(comm, error);
    return code;
}

int gpusys_comm_open(struct gpusys_comm **ret_comm, const struct gpusys_comm_options *options,
                     struct gpusys_error *error)
{
    struct gs_opening opening;
    int code = gs_opening_take(&opening, options, error);
    if (code)
        return code;
    struct gpusys_comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return gpusys_error_set_errno(error, -ENOMEM, "communicator");
    code = stand(comm, &opening, error);
    if (!code)
        code = gs_comm_join(comm, &opening, error);
    if (!code)
        code = gs_comm_init(comm, &opening, error);
    if (code) {
        gs_comm_free(comm);
        return code;
    }
    *ret_comm = comm;
    return 0;
}
