/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files over the CUDA driver share: the table of its functions, its numbers, errors, entering a context. */
#ifndef GPUSYS_GPU_CUDA_H
#define GPUSYS_GPU_CUDA_H

#include <gpusys/cuda.h>
#include <gpusys/dl.h>
#include <sys/types.h>

struct CUuuid_st;

/*
 * The functions that we use, under the names that the driver exports: its header maps cuMemAlloc to cuMemAlloc_v2 and
 * so on. A CUresult and the driver's other enums are `unsigned` here, as C has them. The columns: rank, member,
 * symbol, the first CUDA with it, parameters.
 */
#define GS_CUDA_SYMBOLS(ROW)                                                                                 \
    ROW(REQUIRED, init, cuInit, NULL, (unsigned))                                                            \
    ROW(REQUIRED, driver_version, cuDriverGetVersion, NULL, (int *))                                         \
    ROW(REQUIRED, error_name, cuGetErrorName, "6.0", (unsigned, const char **))                              \
    ROW(REQUIRED, error_text, cuGetErrorString, "6.0", (unsigned, const char **))                            \
    ROW(REQUIRED, device_count, cuDeviceGetCount, NULL, (int *))                                             \
    ROW(REQUIRED, device_get, cuDeviceGet, NULL, (int *, int))                                               \
    ROW(REQUIRED, device_name, cuDeviceGetName, NULL, (char *, int, int))                                    \
    ROW(OPTIONAL, device_uuid_v2, cuDeviceGetUuid_v2, "11.4", (struct CUuuid_st *, int))                     \
    ROW(OPTIONAL, device_uuid, cuDeviceGetUuid, "9.2", (struct CUuuid_st *, int))                            \
    ROW(REQUIRED, device_memory, cuDeviceTotalMem_v2, "3.2", (size_t *, int))                                \
    ROW(REQUIRED, device_attribute, cuDeviceGetAttribute, NULL, (int *, unsigned, int))                      \
    ROW(REQUIRED, primary_retain, cuDevicePrimaryCtxRetain, "7.0", (struct CUctx_st **, int))                \
    ROW(OPTIONAL, primary_release_v2, cuDevicePrimaryCtxRelease_v2, "11.0", (int))                           \
    ROW(OPTIONAL, primary_release, cuDevicePrimaryCtxRelease, "7.0", (int))                                  \
    ROW(REQUIRED, ctx_push, cuCtxPushCurrent_v2, "4.0", (struct CUctx_st *))                                 \
    ROW(REQUIRED, ctx_pop, cuCtxPopCurrent_v2, "4.0", (struct CUctx_st **))                                  \
    ROW(REQUIRED, ctx_device, cuCtxGetDevice, NULL, (int *))                                                 \
    ROW(REQUIRED, memory_info, cuMemGetInfo_v2, "3.2", (size_t *, size_t *))                                 \
    ROW(REQUIRED, stream_create, cuStreamCreate, NULL, (struct CUstream_st **, unsigned))                    \
    ROW(REQUIRED, stream_destroy, cuStreamDestroy_v2, "4.0", (struct CUstream_st *))                         \
    ROW(REQUIRED, stream_query, cuStreamQuery, NULL, (struct CUstream_st *))                                 \
    ROW(REQUIRED, stream_wait, cuStreamSynchronize, NULL, (struct CUstream_st *))                            \
    ROW(REQUIRED, stream_after, cuStreamWaitEvent, "3.2",                                                    \
        (struct CUstream_st *, struct CUevent_st *, unsigned))                                               \
    ROW(OPTIONAL, stream_capturing, cuStreamIsCapturing, "10.0", (struct CUstream_st *, unsigned *))         \
    ROW(REQUIRED, event_create, cuEventCreate, NULL, (struct CUevent_st **, unsigned))                       \
    ROW(REQUIRED, event_destroy, cuEventDestroy_v2, "4.0", (struct CUevent_st *))                            \
    ROW(REQUIRED, event_record, cuEventRecord, NULL, (struct CUevent_st *, struct CUstream_st *))            \
    ROW(REQUIRED, event_query, cuEventQuery, NULL, (struct CUevent_st *))                                    \
    ROW(REQUIRED, event_wait, cuEventSynchronize, NULL, (struct CUevent_st *))                               \
    ROW(REQUIRED, alloc, cuMemAlloc_v2, "3.2", (unsigned long long *, size_t))                               \
    ROW(REQUIRED, free, cuMemFree_v2, "3.2", (unsigned long long))                                           \
    ROW(REQUIRED, host_alloc, cuMemHostAlloc, NULL, (void **, size_t, unsigned))                             \
    ROW(REQUIRED, host_free, cuMemFreeHost, NULL, (void *))                                                  \
    ROW(REQUIRED, host_register, cuMemHostRegister_v2, "6.5", (void *, size_t, unsigned))                    \
    ROW(REQUIRED, host_unregister, cuMemHostUnregister, "4.0", (void *))                                     \
    ROW(REQUIRED, copy, cuMemcpy, "4.0", (unsigned long long, unsigned long long, size_t))                   \
    ROW(REQUIRED, copy_async, cuMemcpyAsync, "4.0",                                                          \
        (unsigned long long, unsigned long long, size_t, struct CUstream_st *))                              \
    ROW(REQUIRED, fill_async, cuMemsetD8Async, "3.2",                                                        \
        (unsigned long long, unsigned char, size_t, struct CUstream_st *))                                   \
    ROW(REQUIRED, pointer_attributes, cuPointerGetAttributes, "7.0",                                         \
        (unsigned, unsigned *, void **, unsigned long long))                                                 \
    ROW(OPTIONAL, range_handle, cuMemGetHandleForAddressRange, "11.7",                                       \
        (void *, unsigned long long, size_t, unsigned, unsigned long long))

#define GS_CUDA_MEMBER(rank, member, symbol, since, parameters) unsigned(*member) parameters;

struct gs_cuda {
    GS_CUDA_SYMBOLS(GS_CUDA_MEMBER)
    struct gpusys_dl *dl;
    pid_t owner; /* the process that initialised the driver; 0: none yet */
};

/* CUresult: those that are told apart by name. cuda_error.c has all. */
enum {
    GS_CUDA_INVALID_VALUE = 1,
    GS_CUDA_NOT_INITIALIZED = 3,
    GS_CUDA_DEINITIALIZED = 4,
    GS_CUDA_STUB_LIBRARY = 34,
    GS_CUDA_NO_DEVICE = 100,
    GS_CUDA_INVALID_DEVICE = 101,
    GS_CUDA_INVALID_CONTEXT = 201,
    GS_CUDA_OPERATING_SYSTEM = 304,
    GS_CUDA_NOT_READY = 600,
    GS_CUDA_NOT_SUPPORTED = 801,
    GS_CUDA_SYSTEM_NOT_READY = 802,
    GS_CUDA_DRIVER_MISMATCH = 803,
    GS_CUDA_COMPAT_NOT_SUPPORTED = 804,
    GS_CUDA_MPS_CONNECTION_FAILED = 805,
    GS_CUDA_MPS_SERVER_NOT_READY = 807,
    GS_CUDA_UNKNOWN_ERROR = 999,
};

/* CUdevice_attribute. */
enum {
    GS_CUDA_MULTIPROCESSORS = 16,
    GS_CUDA_INTEGRATED = 18,
    GS_CUDA_COMPUTE_MODE = 20,
    GS_CUDA_PCI_BUS = 33,
    GS_CUDA_PCI_DEVICE = 34,
    GS_CUDA_PCI_DOMAIN = 50,
    GS_CUDA_COMPUTE_MAJOR = 75,
    GS_CUDA_COMPUTE_MINOR = 76,
    GS_CUDA_GPUDIRECT_RDMA = 116,
    GS_CUDA_GPUDIRECT_FLUSH = 117,
    GS_CUDA_GPUDIRECT_ORDERING = 118,
    GS_CUDA_DMABUF = 124,
    GS_CUDA_HOST_NUMA_NODE = 134,
};

/* CUpointer_attribute and CUmemorytype. */
enum {
    GS_CUDA_POINTER_TYPE = 2,
    GS_CUDA_POINTER_MANAGED = 8,
    GS_CUDA_POINTER_DEVICE = 9,
    GS_CUDA_POINTER_START = 11,
    GS_CUDA_POINTER_BYTES = 12,
    GS_CUDA_TYPE_HOST = 1,
    GS_CUDA_TYPE_DEVICE = 2,
    GS_CUDA_TYPE_UNIFIED = 4,
};

/* Flags: CU_STREAM_, CU_EVENT_, CU_MEMHOSTALLOC_, CU_MEMHOSTREGISTER_, CUmemRangeHandleType. */
enum {
    GS_CUDA_STREAM_NON_BLOCKING = 1,
    GS_CUDA_EVENT_DISABLE_TIMING = 2,
    GS_CUDA_HOST_ALLOC_PORTABLE = 1,
    GS_CUDA_HOST_REGISTER_PORTABLE = 1,
    GS_CUDA_RANGE_DMABUF = 1,
};

/* ---- the driver (cuda_load.c) ---- */

/* Loaded, but perhaps of no use. NULL with the error and *ret_code; a later call tries again. */
const struct gs_cuda *gs_cuda_load(int *ret_code, struct gpusys_error *error);
/* Loaded and initialised. A failure that cannot pass in the life of this process is not tried again. */
const struct gs_cuda *gs_cuda(int *ret_code, struct gpusys_error *error);
/* The one that was loaded; NULL: none yet. Loads nothing. */
const struct gs_cuda *gs_cuda_loaded(void);

/* ---- errors (cuda_error.c, cuda_explain.c) ---- */

/* The one place where a CUresult becomes a negative errno; 0 for 0. */
int gs_cuda_errno(unsigned result);
/* Fill in an error: ": ", the driver's name and text, and what to do are appended. Gives the errno. */
int gs_cuda_fail(struct gpusys_error *error, unsigned result, const char *format, ...) GPUSYS_PRINTF(3, 4);
/* For calls that cannot fail: the log hears of it. */
void gs_cuda_warn(unsigned result, const char *what);

/*
 * Why there is no driver: add cause and hint to the error of cuInit. `root` is put before the paths that are looked
 * at ("" outside tests); `library` is the file that was loaded.
 */
void gs_cuda_explain(struct gpusys_error *error, unsigned result, const char *root, const char *library);

/* ---- the primary context (cuda_context.c) ---- */

struct gpusys_cuda {
    const struct gs_cuda *driver;
    struct CUctx_st *context;
    uint32_t device;
    int handle; /* the CUdevice */
};

static inline unsigned gs_cuda_enter(const struct gpusys_cuda *cuda)
{
    return cuda->driver->ctx_push(cuda->context);
}

/* Put back what was current before. Gives `result`. */
static inline unsigned gs_cuda_leave(const struct gpusys_cuda *cuda, unsigned result)
{
    struct CUctx_st *left;
    cuda->driver->ctx_pop(&left);
    return result;
}

/* One call within the context: its CUresult. */
#define GS_CUDA_CALL(cuda, member, ...)                                                                      \
    ({                                                                                                       \
        unsigned result_ = gs_cuda_enter(cuda);                                                              \
        if (!result_)                                                                                        \
            result_ = gs_cuda_leave(cuda, (cuda)->driver->member(__VA_ARGS__));                              \
        result_;                                                                                             \
    })

/* Device addresses are pointers for us and numbers for the driver. */
static inline unsigned long long gs_cuda_address(const void *pointer)
{
    return (unsigned long long)(uintptr_t)pointer;
}

/* A device by its ordinal. -ENODEV says how many there are. */
int gs_cuda_device(const struct gs_cuda *driver, uint32_t device, int *ret_handle,
                   struct gpusys_error *error);

/* The device whose context is current on this thread. -ENODEV: none is. */
int gs_cuda_current_device(uint32_t *ret_device, struct gpusys_error *error);

/* ---- streams (cuda_stream.c) ---- */

/* Is what is put into the stream captured into a graph rather than run? 1 or 0, or an error. */
int gs_cuda_is_capturing(struct gpusys_cuda *cuda, struct CUstream_st *stream, struct gpusys_error *error);

#endif
