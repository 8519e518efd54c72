/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Our numbers and the types of our functions against NVIDIA's cuda.h: it is enough that this compiles. */
#include <cuda.h>

#include "gpu/cuda.h"

#if CUDA_VERSION < 11080
#error this cuda.h is older than what we compare with
#endif

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours)

SAME(GS_CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(GS_CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(GS_CUDA_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(GS_CUDA_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(GS_CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(GS_CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(GS_CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(GS_CUDA_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(GS_CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(GS_CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(GS_CUDA_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(GS_CUDA_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(GS_CUDA_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(GS_CUDA_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED);
SAME(GS_CUDA_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_SERVER_NOT_READY);
SAME(GS_CUDA_UNKNOWN_ERROR, CUDA_ERROR_UNKNOWN);

SAME(GS_CUDA_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(GS_CUDA_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME(GS_CUDA_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
SAME(GS_CUDA_PCI_BUS, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
SAME(GS_CUDA_PCI_DEVICE, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
SAME(GS_CUDA_PCI_DOMAIN, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
SAME(GS_CUDA_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(GS_CUDA_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(GS_CUDA_GPUDIRECT_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
SAME(GS_CUDA_GPUDIRECT_FLUSH, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
SAME(GS_CUDA_GPUDIRECT_ORDERING, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
SAME(GS_CUDA_DMABUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
#if CUDA_VERSION >= 12020
SAME(GS_CUDA_HOST_NUMA_NODE, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
#endif

SAME(GS_CUDA_POINTER_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(GS_CUDA_POINTER_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(GS_CUDA_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(GS_CUDA_POINTER_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(GS_CUDA_POINTER_BYTES, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(GS_CUDA_TYPE_HOST, CU_MEMORYTYPE_HOST);
SAME(GS_CUDA_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(GS_CUDA_TYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED);

SAME(GS_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(GS_CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(GS_CUDA_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(GS_CUDA_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(GS_CUDA_RANGE_DMABUF, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);

/* What info says in the driver's numbers. */
SAME(0, CU_COMPUTEMODE_DEFAULT);
SAME(2, CU_COMPUTEMODE_PROHIBITED);
SAME(3, CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
SAME(0, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE);
SAME(100, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
SAME(200, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES);
_Static_assert(sizeof(CUuuid) == sizeof((struct gpusys_cuda_info *)0)->uuid, "a UUID");

/* The driver's names are those that the header maps to, so that a macro here stands for the function of that name. */
#define CHECK(rank, member, symbol, since, parameters)                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), __typeof__(unsigned(*) parameters)),    \
                   #symbol);
GS_CUDA_SYMBOLS(CHECK)

/* Every name that the header has a newer variant of is bound by that variant. */
#define NAME_(symbol) #symbol
#define NAME(symbol)  NAME_(symbol)
#define BOUND(symbol)                                                                                        \
    {                                                                                                        \
        NAME(symbol), #symbol                                                                                \
    }
#define WANTED(rank, member, symbol, since, parameters) #symbol,

static const char *const ours[] = {GS_CUDA_SYMBOLS(WANTED)};
static const struct {
    const char *mapped, *plain;
} theirs[] = {
    BOUND(cuDeviceGetUuid),
    BOUND(cuDeviceTotalMem),
    BOUND(cuDevicePrimaryCtxRelease),
    BOUND(cuCtxPushCurrent),
    BOUND(cuCtxPopCurrent),
    BOUND(cuMemGetInfo),
    BOUND(cuStreamCreate),
    BOUND(cuStreamDestroy),
    BOUND(cuStreamQuery),
    BOUND(cuStreamSynchronize),
    BOUND(cuStreamWaitEvent),
    BOUND(cuEventCreate),
    BOUND(cuEventDestroy),
    BOUND(cuEventRecord),
    BOUND(cuEventQuery),
    BOUND(cuMemAlloc),
    BOUND(cuMemFree),
    BOUND(cuMemHostAlloc),
    BOUND(cuMemFreeHost),
    BOUND(cuMemHostRegister),
    BOUND(cuMemHostUnregister),
    BOUND(cuMemcpy),
    BOUND(cuMemcpyAsync),
    BOUND(cuMemsetD8Async),
    BOUND(cuPointerGetAttributes),
    BOUND(cuMemGetHandleForAddressRange),
    BOUND(cuDevicePrimaryCtxRetain),
};

#include <stdio.h>
#include <string.h>

int main(void)
{
    int missing = 0;
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
        int found = 0;
        for (size_t j = 0; j < sizeof ours / sizeof ours[0]; j++)
            found |= strcmp(ours[j], theirs[i].mapped) == 0;
        if (!found)
            printf("cuda.h maps %s to %s, which we do not bind\n", theirs[i].plain, theirs[i].mapped);
        missing += !found;
    }
    return missing != 0;
}
