/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory of a device and page-locked memory of the host: having it, copying, filling. */
#include "gpu/cuda.h"

#include <inttypes.h>

int gpusys_cuda_alloc(struct gpusys_cuda *cuda, void **ret_device, uint64_t bytes, struct gpusys_error *error)
{
    unsigned long long address = 0;
    unsigned result = GS_CUDA_CALL(cuda, alloc, &address, bytes);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: %" PRIu64 " bytes of its memory", cuda->device, bytes);
    *ret_device = (void *)(uintptr_t)address;
    return 0;
}

void gpusys_cuda_free(struct gpusys_cuda *cuda, void *device)
{
    if (device)
        gs_cuda_warn(GS_CUDA_CALL(cuda, free, gs_cuda_address(device)), "freeing memory of a GPU");
}

int gpusys_cuda_host_alloc(struct gpusys_cuda *cuda, void **ret_host, uint64_t bytes,
                           struct gpusys_error *error)
{
    void *host = NULL;
    unsigned result = GS_CUDA_CALL(cuda, host_alloc, &host, bytes, GS_CUDA_HOST_ALLOC_PORTABLE);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: %" PRIu64 " bytes of page-locked memory", cuda->device,
                            bytes);
    *ret_host = host;
    return 0;
}

void gpusys_cuda_host_free(struct gpusys_cuda *cuda, void *host)
{
    if (host)
        gs_cuda_warn(GS_CUDA_CALL(cuda, host_free, host), "freeing page-locked memory");
}

int gpusys_cuda_host_register(struct gpusys_cuda *cuda, void *host, uint64_t bytes,
                              struct gpusys_error *error)
{
    unsigned result = GS_CUDA_CALL(cuda, host_register, host, bytes, GS_CUDA_HOST_REGISTER_PORTABLE);
    return result ? gs_cuda_fail(error, result, "GPU %u: page-locking %" PRIu64 " bytes", cuda->device, bytes)
                  : 0;
}

int gpusys_cuda_host_unregister(struct gpusys_cuda *cuda, void *host, struct gpusys_error *error)
{
    unsigned result = GS_CUDA_CALL(cuda, host_unregister, host);
    return result ? gs_cuda_fail(error, result, "GPU %u: unlocking memory", cuda->device) : 0;
}

/* cuMemcpy may return while a copy within the device, or the last part of one from pageable memory, is under way. */
static unsigned copy_and_wait(const struct gpusys_cuda *cuda, void *to, const void *from, uint64_t bytes)
{
    unsigned result = cuda->driver->copy(gs_cuda_address(to), gs_cuda_address(from), bytes);
    return result ? result : cuda->driver->stream_wait(NULL);
}

int gpusys_cuda_copy(struct gpusys_cuda *cuda, void *to, const void *from, uint64_t bytes,
                     struct gpusys_error *error)
{
    unsigned result = bytes ? gs_cuda_enter(cuda) : 0;
    if (bytes && !result)
        result = gs_cuda_leave(cuda, copy_and_wait(cuda, to, from, bytes));
    return result ? gs_cuda_fail(error, result, "GPU %u: copying %" PRIu64 " bytes", cuda->device, bytes) : 0;
}

int gpusys_cuda_copy_async(struct gpusys_cuda *cuda, void *to, const void *from, uint64_t bytes,
                           struct CUstream_st *stream, struct gpusys_error *error)
{
    unsigned result = 0;
    if (bytes)
        result = GS_CUDA_CALL(cuda, copy_async, gs_cuda_address(to), gs_cuda_address(from), bytes, stream);
    return result ? gs_cuda_fail(error, result, "GPU %u: copying %" PRIu64 " bytes", cuda->device, bytes) : 0;
}

int gpusys_cuda_fill_async(struct gpusys_cuda *cuda, void *device, uint8_t byte, uint64_t bytes,
                           struct CUstream_st *stream, struct gpusys_error *error)
{
    unsigned result = 0;
    if (bytes)
        result = GS_CUDA_CALL(cuda, fill_async, gs_cuda_address(device), byte, bytes, stream);
    return result ? gs_cuda_fail(error, result, "GPU %u: filling %" PRIu64 " bytes", cuda->device, bytes) : 0;
}
