/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is wrong with the arguments of an operation, in words. */
#include "base/options.h"
#include "gpu/comm_ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* 0: there is no function of that name. */
static enum gs_function find_function(const char *name)
{
    for (unsigned i = GS_ALL_REDUCE; i <= GS_RECV; i++)
        if (name && strcmp(gs_function(i)->name, name) == 0)
            return (enum gs_function)i;
    return 0;
}

static int no_function(const char *name, struct gpusys_error *error)
{
    char names[256] = "";
    size_t used = 0;
    for (unsigned i = GS_ALL_REDUCE; i <= GS_RECV; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 gs_function(i)->name);
    if (name)
        gpusys_error_set(error, -EINVAL, "there is no operation \"%.64s\"", name);
    else
        gpusys_error_set(error, -EINVAL, "no operation is named");
    gpusys_error_set_hint(error, "it is one of %s", names);
    return -EINVAL;
}

static void explain_type(const struct gpusys_comm *comm, int type, struct gpusys_error *error)
{
    int known = gs_types_known(comm->version), major, minor, patch;
    gpusys_nccl_version_parts(comm->version, &major, &minor, &patch);
    gpusys_error_add_detail(error, "type", "%d: NCCL %d.%d.%d knows 0 (%s) to %d (%s)%s", type, major, minor,
                            patch, gpusys_nccl_type_name(0), known - 1, gpusys_nccl_type_name(known - 1),
                            type < known || type >= GPUSYS_NCCL_TYPES ? ""
                            : type == GPUSYS_NCCL_BFLOAT16            ? "; bfloat16 since 2.10"
                                                                      : "; float8 since 2.24");
}

static void explain_op(const struct gpusys_comm *comm, int op, struct gpusys_error *error)
{
    if (op < 0)
        gpusys_error_add_detail(error, "op", "%d: 0 (sum) to 4 (avg), or what gpusys_comm_op_open gave", op);
    else
        gpusys_error_add_detail(error, "op", "%d: %s since NCCL %s, this is %d", op,
                                op == GPUSYS_NCCL_AVG ? "avg" : "made operators",
                                op == GPUSYS_NCCL_AVG ? "2.10" : "2.11", comm->version);
}

static void explain_buffers(const struct gs_call *call, unsigned faults, struct gpusys_error *error)
{
    if (faults & GS_FAULT_SEND)
        gpusys_error_add_detail(error, "send", "NULL, with a count of %zu that this rank gives", call->count);
    if (faults & GS_FAULT_RECEIVE)
        gpusys_error_add_detail(error, "receive", "NULL, with a count of %zu that this rank gets",
                                call->count);
}

static void explain_count(const struct gpusys_comm *comm, const struct gs_call *call,
                          struct gpusys_error *error)
{
    uint32_t bytes = gpusys_nccl_type_bytes(call->type),
             parts = gs_is_multiplied(call->function) ? comm->n_ranks : 1;
    gpusys_error_add_detail(error, "count", "%zu elements of %u bytes for %u ranks: at most %zu", call->count,
                            bytes ? bytes : 1, parts, SIZE_MAX / (bytes ? bytes : 1) / parts);
}

static int explain(const struct gpusys_comm *comm, const struct gs_call *call, unsigned faults,
                   struct gpusys_error *error)
{
    const char *name = gs_function(call->function)->name;
    int n = __builtin_popcount(faults);
    gpusys_error_set(error, -EINVAL, "%s on rank %u of %u: %d argument%s wrong", name, comm->rank,
                     comm->n_ranks, n, n == 1 ? " is" : "s are");
    explain_buffers(call, faults, error);
    if (faults & GS_FAULT_COUNT)
        explain_count(comm, call, error);
    if (faults & GS_FAULT_TYPE)
        explain_type(comm, call->type, error);
    if (faults & GS_FAULT_OP)
        explain_op(comm, call->op, error);
    if (faults & GS_FAULT_ROOT)
        gpusys_error_add_detail(error, gs_function(call->function)->collective ? "root" : "peer",
                                "%u: ranks are 0 to %u", call->root, comm->n_ranks - 1);
    return -EINVAL;
}

int gpusys_comm_check(const struct gpusys_comm *comm, const struct gpusys_comm_call *asked,
                      struct gpusys_error *error)
{
    int code = gs_options_check(asked, sizeof *asked);
    if (code)
        return gpusys_error_set(error, code, "check: the call's `size` is not that of its struct");
    struct gs_call call = {
        .function = find_function(asked->function),
        .send = asked->send,
        .receive = (void *)(uintptr_t)asked->receive, /* nothing is written to */
        .count = asked->count,
        .type = asked->type,
        .op = asked->op,
        .root = asked->root,
    };
    code = gpusys_comm_failure(comm, error);
    if (code)
        return code;
    if (!call.function)
        return no_function(asked->function, error);
    unsigned faults = gs_call_faults(comm, &call);
    if (faults)
        return explain(comm, &call, faults, error);
    return gs_call_lacks(comm->nccl, call.function)
               ? gpusys_nccl_missing(comm->nccl->send ? "ncclRecv" : "ncclSend", error)
               : 0;
}
