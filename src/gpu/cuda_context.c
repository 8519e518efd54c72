/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A device's primary context. */
#include "gpu/cuda.h"

#include <errno.h>
#include <stdlib.h>

int gpusys_cuda_open(struct gpusys_cuda **ret_cuda, uint32_t device, struct gpusys_error *error)
{
    int code, handle = 0;
    const struct gs_cuda *driver = gs_cuda(&code, error);
    if (driver)
        code = gs_cuda_device(driver, device, &handle, error);
    if (code)
        return code;
    struct gpusys_cuda *cuda = malloc(sizeof *cuda);
    if (!cuda)
        return gpusys_error_set_errno(error, -ENOMEM, "GPU %u", device);
    *cuda = (struct gpusys_cuda){.driver = driver, .device = device, .handle = handle};
    unsigned result = driver->primary_retain(&cuda->context, handle);
    if (result) {
        free(cuda);
        return gs_cuda_fail(error, result, "GPU %u: its primary context", device);
    }
    *ret_cuda = cuda;
    return 0;
}

void gpusys_cuda_close(struct gpusys_cuda *cuda)
{
    if (!cuda)
        return;
    const struct gs_cuda *driver = cuda->driver;
    if (driver->primary_release_v2)
        gs_cuda_warn(driver->primary_release_v2(cuda->handle), "releasing the primary context");
    else if (driver->primary_release)
        gs_cuda_warn(driver->primary_release(cuda->handle), "releasing the primary context");
    free(cuda);
}

uint32_t gpusys_cuda_device(const struct gpusys_cuda *cuda)
{
    return cuda->device;
}

struct CUctx_st *gpusys_cuda_context(const struct gpusys_cuda *cuda)
{
    return cuda->context;
}

int gpusys_cuda_push(struct gpusys_cuda *cuda, struct gpusys_error *error)
{
    unsigned result = gs_cuda_enter(cuda);
    return result ? gs_cuda_fail(error, result, "GPU %u: making its context current", cuda->device) : 0;
}

void gpusys_cuda_pop(struct gpusys_cuda *cuda)
{
    gs_cuda_leave(cuda, 0);
}

int gpusys_cuda_memory(struct gpusys_cuda *cuda, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes,
                       struct gpusys_error *error)
{
    size_t free_bytes = 0, total_bytes = 0;
    unsigned result = GS_CUDA_CALL(cuda, memory_info, &free_bytes, &total_bytes);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: its free memory", cuda->device);
    *ret_free_bytes = free_bytes;
    *ret_total_bytes = total_bytes;
    return 0;
}

int gs_cuda_current_device(uint32_t *ret_device, struct gpusys_error *error)
{
    int code, handle = 0;
    const struct gs_cuda *driver = gs_cuda(&code, error);
    if (!driver)
        return code;
    unsigned result = driver->ctx_device(&handle);
    if (result == GS_CUDA_INVALID_CONTEXT) {
        gs_cuda_fail(error, result, "CUDA: the device of this thread");
        gpusys_error_set_cause(error, "no context is current on this thread");
        gpusys_error_set_hint(error, "name the device, or make its context current (cudaSetDevice)");
        if (error)
            error->code = -ENODEV;
        return -ENODEV;
    }
    if (result)
        return gs_cuda_fail(error, result, "CUDA: the device of this thread");
    *ret_device = (uint32_t)handle; /* a CUdevice is its ordinal */
    return 0;
}
