/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory that NCCL gives or is told of, windows, and operators of one's own. */
#include "gpu/watch.h"
#include <gpusys/deadline.h>

#include <errno.h>

/* Around every call: the communicator is healthy, and the GPU's context current on this thread. */
static int begin(struct gpusys_comm *comm, struct gpusys_error *error)
{
    if (gs_comm_enter(comm))
        return gpusys_comm_failure(comm, error);
    int code = gpusys_cuda_push(comm->cuda, error);
    if (code)
        gs_comm_leave(comm);
    return code;
}

static int end(struct gpusys_comm *comm, int result, const char *call, struct gpusys_error *error)
{
    struct gpusys_error own;
    result = gs_comm_settle(comm, comm->handle, result, gpusys_deadline_after(comm->call_timeout_ns));
    int code = result < 0 ? result : gpusys_nccl_error(result, call, comm->handle, error);
    gpusys_cuda_pop(comm->cuda);
    gs_comm_leave(comm);
    if (result >= 0)
        return code;
    if (result == -ETIMEDOUT && !atomic_load(&comm->code)) {
        gpusys_error_set(&own, -ETIMEDOUT, "%s was not through after %.3f s", call,
                         (double)comm->call_timeout_ns / 1e9);
        gs_comm_fail(comm, -ETIMEDOUT, &own, true);
    }
    return gpusys_comm_failure(comm, error);
}

static int refuse(const struct gpusys_comm *comm, struct gpusys_error *error, const char *what)
{
    return gpusys_error_set(error, -EINVAL, "communicator (rank %u): %s", comm->rank, what);
}

/* Every rank takes part in it, and waits for the others. */
static int begin_together(struct gpusys_comm *comm, struct gpusys_error *error)
{
    return gs_group_is_open() ? refuse(comm, error, "a window while a group is open on this thread")
                              : begin(comm, error);
}

int gpusys_comm_mem_alloc(struct gpusys_comm *comm, void **ret_address, size_t bytes,
                          struct gpusys_error *error)
{
    void *address = NULL;
    if (!bytes)
        return refuse(comm, error, "memory of 0 bytes");
    if (!comm->nccl->mem_alloc)
        return gpusys_nccl_missing("ncclMemAlloc", error);
    int code = begin(comm, error);
    if (!code)
        code = end(comm, comm->nccl->mem_alloc(&address, bytes), "ncclMemAlloc", error);
    if (!code)
        *ret_address = address;
    return code;
}

/* It needs no communicator that is healthy: the memory is the process's. */
int gpusys_comm_mem_free(struct gpusys_comm *comm, void *address, struct gpusys_error *error)
{
    if (!comm->nccl->mem_free)
        return gpusys_nccl_missing("ncclMemFree", error);
    int code = gpusys_cuda_push(comm->cuda, error);
    if (code)
        return code;
    int result = comm->nccl->mem_free(address);
    gpusys_cuda_pop(comm->cuda);
    return gpusys_nccl_error(result, "ncclMemFree", NULL, error);
}

int gpusys_comm_register(struct gpusys_comm *comm, void *buffer, size_t bytes, void **ret_handle,
                         struct gpusys_error *error)
{
    void *handle = NULL;
    if (!buffer || !bytes)
        return refuse(comm, error, "a buffer that is NULL or has 0 bytes cannot be registered");
    if (!comm->nccl->comm_register)
        return gpusys_nccl_missing("ncclCommRegister", error);
    int code = begin(comm, error);
    if (!code)
        code = end(comm, comm->nccl->comm_register(comm->handle, buffer, bytes, &handle), "ncclCommRegister",
                   error);
    if (!code)
        *ret_handle = handle;
    return code;
}

int gpusys_comm_deregister(struct gpusys_comm *comm, void *handle, struct gpusys_error *error)
{
    if (!comm->nccl->comm_deregister)
        return gpusys_nccl_missing("ncclCommDeregister", error);
    int code = begin(comm, error);
    if (!code)
        code = end(comm, comm->nccl->comm_deregister(comm->handle, handle), "ncclCommDeregister", error);
    return code;
}

static int check_window(const struct gpusys_comm *comm, const void *buffer, size_t bytes, int flags,
                        struct gpusys_error *error)
{
    uintptr_t past = (uintptr_t)buffer % GPUSYS_NCCL_WINDOW_ALIGNMENT;
    if (!buffer || !bytes)
        return refuse(comm, error, "a window over a buffer that is NULL or has 0 bytes");
    if (!(flags & GPUSYS_NCCL_WINDOW_SYMMETRIC) || !past)
        return 0;
    gpusys_error_set(error, -EINVAL,
                     "communicator (rank %u): a symmetric window starts %zu bytes past a multiple of %u",
                     comm->rank, (size_t)past, GPUSYS_NCCL_WINDOW_ALIGNMENT);
    gpusys_error_set_hint(error, "gpusys_comm_mem_alloc gives memory that is aligned");
    return -EINVAL;
}

int gpusys_comm_window_open(struct gpusys_comm *comm, void *buffer, size_t bytes, int flags,
                            struct ncclWindow_vidmem **ret_window, struct gpusys_error *error)
{
    struct ncclWindow_vidmem *window = NULL;
    int code = check_window(comm, buffer, bytes, flags, error);
    if (code)
        return code;
    if (!comm->nccl->comm_window_register)
        return gpusys_nccl_missing("ncclCommWindowRegister", error);
    code = begin_together(comm, error);
    if (!code)
        code = end(comm, comm->nccl->comm_window_register(comm->handle, buffer, bytes, &window, flags),
                   "ncclCommWindowRegister", error);
    if (!code)
        *ret_window = window;
    return code;
}

int gpusys_comm_window_close(struct gpusys_comm *comm, struct ncclWindow_vidmem *window,
                             struct gpusys_error *error)
{
    if (!comm->nccl->comm_window_deregister)
        return gpusys_nccl_missing("ncclCommWindowDeregister", error);
    int code = begin_together(comm, error);
    if (!code)
        code = end(comm, comm->nccl->comm_window_deregister(comm->handle, window), "ncclCommWindowDeregister",
                   error);
    return code;
}

int gpusys_comm_op_open(struct gpusys_comm *comm, const void *scalar, int type, int residence, int *ret_op,
                        struct gpusys_error *error)
{
    int op = 0;
    if (!scalar)
        return refuse(comm, error, "an operator without a scalar");
    if (!gpusys_nccl_type_bytes(type))
        return gpusys_error_set(error, -EINVAL, "communicator (rank %u): type %d is none of NCCL's",
                                comm->rank, type);
    if (residence != GPUSYS_NCCL_SCALAR_DEVICE && residence != GPUSYS_NCCL_SCALAR_HOST)
        return gpusys_error_set(
            error, -EINVAL,
            "communicator (rank %u): residence %d of the scalar: 0 is device memory, 1 the host's",
            comm->rank, residence);
    if (!comm->nccl->red_op_create_pre_mul_sum)
        return gpusys_nccl_missing("ncclRedOpCreatePreMulSum", error);
    void *value = (void *)(uintptr_t)scalar; /* NCCL only reads it */
    int code = begin(comm, error);
    if (!code)
        code = end(comm, comm->nccl->red_op_create_pre_mul_sum(&op, value, type, residence, comm->handle),
                   "ncclRedOpCreatePreMulSum", error);
    if (!code)
        *ret_op = op;
    return code;
}

int gpusys_comm_op_close(struct gpusys_comm *comm, int op, struct gpusys_error *error)
{
    if (!comm->nccl->red_op_destroy)
        return gpusys_nccl_missing("ncclRedOpDestroy", error);
    int code = begin(comm, error);
    if (!code)
        code = end(comm, comm->nccl->red_op_destroy(op, comm->handle), "ncclRedOpDestroy", error);
    return code;
}
