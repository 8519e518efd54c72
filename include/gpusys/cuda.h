/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/cuda.h: the CUDA driver, as much of it as moving memory and driving NCCL take: devices, primary
 * contexts, streams, events, memory, copies, dmabuf. libcuda.so.1 is found at run time (or the file that
 * GPUSYS_LIBCUDA names); nothing of NVIDIA's is needed at build time, and nothing here needs the runtime
 * library (libcudart).
 *
 * Streams, events and contexts are the driver's own, under the driver's own struct tags: a CUstream, a
 * cudaStream_t and a `struct CUstream_st *` are one and the same, whoever made it. Device addresses are `void
 * *`.
 *
 * A `struct gpusys_cuda` stands for the primary context of a device, the one that the runtime library and
 * frameworks use too. Every call that takes one makes its context current for the length of the call and puts
 * back what was there; the calling thread needs no set-up.
 *
 * Errors: every call takes a nullable `struct gpusys_error *`; its domain is GPUSYS_DOMAIN_CUDA, its foreign
 * code the CUresult and its message has the driver's name and text for it. Codes: -ENOENT no libcuda,
 * -ELIBBAD, -ELIBACC, -ENOSYS it cannot be used, or lacks an optional function (gpusys/dl.h), -ENODEV no
 * driver, no device or none of that number, -ENOMEM, -EINVAL, -EPERM, -ETIMEDOUT, -EAGAIN not yet,
 * -EOPNOTSUPP, -EBUSY a stream is being captured, or another process has the device to itself, -EIO
 * everything else that the driver says (an illegal address, a device that fell off the bus). After -EIO a
 * context is often of no use any more.
 *
 * Threads: any, at once; but not while what they use is being closed.
 *
 * fork: a child of a process that has used the driver must not use it.
 *
 * Source of the ABI: cuda.h of CUDA 11.8 to 13.0; tests/abi compares.
 */
#ifndef GPUSYS_CUDA_H
#define GPUSYS_CUDA_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the driver ---- */

/* Can it be used: 0, or the first thing that is missing (the library, the driver, a device), with what to do. */
GPUSYS_API int gpusys_cuda_status(struct gpusys_error *error);

/* The file that was loaded; NULL when none was. */
GPUSYS_API const char *gpusys_cuda_library(void);

/* The CUDA version that the driver serves: 1000 × major + 10 × minor. Needs the library, but no device. */
GPUSYS_API int gpusys_cuda_version(int *ret_version, struct gpusys_error *error);

/* The driver's name ("CUDA_ERROR_OUT_OF_MEMORY") and text for a CUresult. Never NULL: "unknown" where neither the
 * driver nor this library knows it. Static storage. */
GPUSYS_API const char *gpusys_cuda_error_name(int result);
GPUSYS_API const char *gpusys_cuda_error_text(int result);

/* ---- devices ---- */

struct gpusys_cuda_info {
    size_t size;        /* in: sizeof(struct gpusys_cuda_info) */
    uint32_t device;    /* CUDA's ordinal, which CUDA_VISIBLE_DEVICES changes */
    char name[96];      /* "NVIDIA H200" */
    uint8_t uuid[16];   /* of the MIG instance where it is one */
    char uuid_text[48]; /* "GPU-2bf3…", as nvidia-smi has it */
    char pci[16];       /* "0000:1b:00.0" */
    uint64_t memory_bytes;
    int32_t compute_major, compute_minor;
    int32_t multiprocessors;
    int32_t compute_mode; /* 0 default, 2 prohibited, 3 exclusive process */
    int32_t integrated;   /* shares the host's memory. Here and below 1 yes, 0 no, -1 the driver cannot say */
    int32_t dmabuf;       /* memory can be exported as a dmabuf */
    int32_t gpudirect_rdma;     /* other devices can reach its memory */
    int32_t gpudirect_flush;    /* bits of CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION; -1 unknown */
    int32_t gpudirect_ordering; /* 0 none, 100 to the owner, 200 to all devices; -1 unknown */
    int32_t host_numa_node;     /* -1 unknown */
};

GPUSYS_API int gpusys_cuda_count(uint32_t *ret_count, struct gpusys_error *error);
GPUSYS_API int gpusys_cuda_info(uint32_t device, struct gpusys_cuda_info *ret_info,
                                struct gpusys_error *error);
/* One attribute, by CUdevice_attribute's number. */
GPUSYS_API int gpusys_cuda_attribute(uint32_t device, int attribute, int *ret_value,
                                     struct gpusys_error *error);

/* ---- a device's primary context ---- */

struct gpusys_cuda;

/* Retain it. Not current afterwards. */
GPUSYS_API int gpusys_cuda_open(struct gpusys_cuda **ret_cuda, uint32_t device, struct gpusys_error *error);
/* Release it. What was made from it must be gone. NULL is fine. */
GPUSYS_API void gpusys_cuda_close(struct gpusys_cuda *cuda);
GPUSYS_API uint32_t gpusys_cuda_device(const struct gpusys_cuda *cuda);
GPUSYS_API struct CUctx_st *gpusys_cuda_context(const struct gpusys_cuda *cuda);

/* Make it current on this thread until the matching pop; pairs nest. For calls into other libraries. */
GPUSYS_API int gpusys_cuda_push(struct gpusys_cuda *cuda, struct gpusys_error *error);
GPUSYS_API void gpusys_cuda_pop(struct gpusys_cuda *cuda);

/* Free and total bytes of the device's memory. */
GPUSYS_API int gpusys_cuda_memory(struct gpusys_cuda *cuda, uint64_t *ret_free_bytes,
                                  uint64_t *ret_total_bytes, struct gpusys_error *error);

/* ---- streams and events ----
 *
 * A query is 0 when all is done, -EAGAIN when it is not, and so is a wait with a timeout of 0. A wait with another
 * timeout polls (-ETIMEDOUT); one without (-1) sleeps in the driver and ends when the work does, or with the
 * context. A stream NULL is the device's default stream.
 */

/* Non-blocking: not ordered with the default stream. */
GPUSYS_API int gpusys_cuda_stream_open(struct gpusys_cuda *cuda, struct CUstream_st **ret_stream,
                                       struct gpusys_error *error);
/* Work under way goes on, and the driver frees the stream after it. NULL stream is fine. */
GPUSYS_API void gpusys_cuda_stream_close(struct gpusys_cuda *cuda, struct CUstream_st *stream);
GPUSYS_API int gpusys_cuda_stream_query(struct gpusys_cuda *cuda, struct CUstream_st *stream,
                                        struct gpusys_error *error);
GPUSYS_API int gpusys_cuda_stream_wait(struct gpusys_cuda *cuda, struct CUstream_st *stream,
                                       int64_t timeout_ns, struct gpusys_error *error);
/* What is put into `stream` from now on starts after `event`. */
GPUSYS_API int gpusys_cuda_stream_after(struct gpusys_cuda *cuda, struct CUstream_st *stream,
                                        struct CUevent_st *event, struct gpusys_error *error);

/* Without timing. */
GPUSYS_API int gpusys_cuda_event_open(struct gpusys_cuda *cuda, struct CUevent_st **ret_event,
                                      struct gpusys_error *error);
GPUSYS_API void gpusys_cuda_event_close(struct gpusys_cuda *cuda, struct CUevent_st *event);
/* The event happens when what is in `stream` now is done. */
GPUSYS_API int gpusys_cuda_event_record(struct gpusys_cuda *cuda, struct CUevent_st *event,
                                        struct CUstream_st *stream, struct gpusys_error *error);
GPUSYS_API int gpusys_cuda_event_query(struct gpusys_cuda *cuda, struct CUevent_st *event,
                                       struct gpusys_error *error);
GPUSYS_API int gpusys_cuda_event_wait(struct gpusys_cuda *cuda, struct CUevent_st *event, int64_t timeout_ns,
                                      struct gpusys_error *error);

/* ---- memory ---- */

/* Of the device, at least 256-byte aligned. */
GPUSYS_API int gpusys_cuda_alloc(struct gpusys_cuda *cuda, void **ret_device, uint64_t bytes,
                                 struct gpusys_error *error);
GPUSYS_API void gpusys_cuda_free(struct gpusys_cuda *cuda, void *device);

/* Of the host, page-locked, usable by every device. */
GPUSYS_API int gpusys_cuda_host_alloc(struct gpusys_cuda *cuda, void **ret_host, uint64_t bytes,
                                      struct gpusys_error *error);
GPUSYS_API void gpusys_cuda_host_free(struct gpusys_cuda *cuda, void *host);

/* Page-lock memory that is there already; until it is unregistered it must not be freed. */
GPUSYS_API int gpusys_cuda_host_register(struct gpusys_cuda *cuda, void *host, uint64_t bytes,
                                         struct gpusys_error *error);
GPUSYS_API int gpusys_cuda_host_unregister(struct gpusys_cuda *cuda, void *host, struct gpusys_error *error);

/*
 * Copy and fill; either end may be host or device memory. The ones without a stream return when it is done. The
 * others return once it is queued, and the buffers are the driver's until the stream has come past it; host memory
 * that is not page-locked is slow, and may make the call wait.
 */
GPUSYS_API int gpusys_cuda_copy(struct gpusys_cuda *cuda, void *to, const void *from, uint64_t bytes,
                                struct gpusys_error *error);
GPUSYS_API int gpusys_cuda_copy_async(struct gpusys_cuda *cuda, void *to, const void *from, uint64_t bytes,
                                      struct CUstream_st *stream, struct gpusys_error *error);
GPUSYS_API int gpusys_cuda_fill_async(struct gpusys_cuda *cuda, void *device, uint8_t byte, uint64_t bytes,
                                      struct CUstream_st *stream, struct gpusys_error *error);

enum gpusys_cuda_kind {
    GPUSYS_CUDA_UNKNOWN = 0, /* the driver does not know it: ordinary host memory */
    GPUSYS_CUDA_HOST = 1,    /* page-locked host memory */
    GPUSYS_CUDA_DEVICE = 2,
    GPUSYS_CUDA_MANAGED = 3, /* moves between both */
};

struct gpusys_cuda_pointer {
    size_t size;    /* in: sizeof(struct gpusys_cuda_pointer) */
    uint32_t kind;  /* enum gpusys_cuda_kind */
    int32_t device; /* that owns it; -1 for GPUSYS_CUDA_UNKNOWN */
    void *start;    /* of the allocation that it lies in; NULL: not known */
    uint64_t bytes; /* of that allocation; 0: not known */
};

/* What an address is. Needs no context. */
GPUSYS_API int gpusys_cuda_pointer(const void *address, struct gpusys_cuda_pointer *ret_pointer,
                                   struct gpusys_error *error);

/*
 * A dmabuf descriptor (the caller's to close) through which other devices reach `bytes` at `device`: exported in
 * whole pages of the host, `*ret_offset` is where `device` lies in it. For gpusys_mr_open_gpu (gpusys/verbs.h).
 * -EOPNOTSUPP: the device or the driver has none.
 */
GPUSYS_API int gpusys_cuda_dmabuf(struct gpusys_cuda *cuda, void *device, uint64_t bytes, int *ret_fd,
                                  uint64_t *ret_offset, struct gpusys_error *error);

#ifdef __cplusplus
}
#endif

#endif
