/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What an address is, and a dmabuf descriptor for memory of a device. */
#include "base/options.h"
#include "gpu/cuda.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <unistd.h>

/* What the driver writes for one address; zeros where it has nothing to say. */
struct answers {
    unsigned type, managed;
    int device;
    unsigned long long start;
    size_t bytes;
};

static uint32_t kind_of(const struct answers *answers)
{
    if (answers->managed)
        return GPUSYS_CUDA_MANAGED;
    switch (answers->type) {
    case GS_CUDA_TYPE_HOST: return GPUSYS_CUDA_HOST;
    case GS_CUDA_TYPE_DEVICE: return GPUSYS_CUDA_DEVICE;
    case GS_CUDA_TYPE_UNIFIED: return GPUSYS_CUDA_MANAGED;
    default: return GPUSYS_CUDA_UNKNOWN;
    }
}

static unsigned ask(const struct gs_cuda *driver, const void *address, struct answers *answers)
{
    unsigned attributes[] = {GS_CUDA_POINTER_TYPE, GS_CUDA_POINTER_MANAGED, GS_CUDA_POINTER_DEVICE,
                             GS_CUDA_POINTER_START, GS_CUDA_POINTER_BYTES};
    void *places[] = {&answers->type, &answers->managed, &answers->device, &answers->start, &answers->bytes};
    *answers = (struct answers){0};
    unsigned result = driver->pointer_attributes(sizeof attributes / sizeof attributes[0], attributes, places,
                                                 gs_cuda_address(address));
    if (result == GS_CUDA_INVALID_VALUE || result == GS_CUDA_INVALID_CONTEXT) {
        *answers = (struct answers){0}; /* how older drivers say that they do not know it */
        result = 0;
    }
    return result;
}

int gpusys_cuda_pointer(const void *address, struct gpusys_cuda_pointer *ret_pointer,
                        struct gpusys_error *error)
{
    int code;
    struct answers answers;
    const struct gs_cuda *driver = gs_cuda(&code, error);
    if (!driver)
        return code;
    unsigned result = ask(driver, address, &answers);
    if (result)
        return gs_cuda_fail(error, result, "CUDA: what an address is");
    struct gpusys_cuda_pointer pointer = {.size = sizeof pointer, .kind = kind_of(&answers), .device = -1};
    if (pointer.kind != GPUSYS_CUDA_UNKNOWN) {
        pointer.device = answers.device;
        pointer.start = (void *)(uintptr_t)answers.start;
        pointer.bytes = answers.start ? answers.bytes : 0;
    }
    if (gs_info_give(ret_pointer, &pointer, sizeof pointer))
        return gpusys_error_set(error, -EINVAL, "CUDA: the size of the pointer's information is not set");
    return 0;
}

/* ---- dmabuf ---- */

static int unsupported(const struct gpusys_cuda *cuda, struct gpusys_error *error)
{
    int code = gs_cuda_fail(error, GS_CUDA_NOT_SUPPORTED, "GPU %u: its memory as a dmabuf", cuda->device);
    gpusys_error_set_hint(error, "NVIDIA's open kernel modules and Linux 5.12 or newer are needed; else load "
                                 "nvidia-peermem and register the memory without a dmabuf");
    return code;
}

/* 0, or what stands against it before anything is tried. */
static int check_dmabuf(const struct gpusys_cuda *cuda, struct gpusys_error *error)
{
    int value = 0;
    if (!cuda->driver->range_handle) {
        gpusys_dl_missing(cuda->driver->dl, "cuMemGetHandleForAddressRange", error);
        if (error)
            error->code = -EOPNOTSUPP;
        return -EOPNOTSUPP;
    }
    bool known = cuda->driver->device_attribute(&value, GS_CUDA_DMABUF, cuda->handle) == 0;
    return known && !value ? unsupported(cuda, error) : 0;
}

int gpusys_cuda_dmabuf(struct gpusys_cuda *cuda, void *device, uint64_t bytes, int *ret_fd,
                       uint64_t *ret_offset, struct gpusys_error *error)
{
    int fd = -1, code = check_dmabuf(cuda, error);
    if (code)
        return code;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), address = gs_cuda_address(device), end;
    if (!bytes || __builtin_add_overflow(address, bytes, &end) || __builtin_add_overflow(end, page - 1, &end))
        return gs_cuda_fail(error, GS_CUDA_INVALID_VALUE, "GPU %u: a dmabuf of %" PRIu64 " bytes",
                            cuda->device, bytes);
    uint64_t start = address & ~(page - 1);
    end &= ~(page - 1);
    unsigned result =
        GS_CUDA_CALL(cuda, range_handle, &fd, start, (size_t)(end - start), GS_CUDA_RANGE_DMABUF, 0);
    if (result == GS_CUDA_NOT_SUPPORTED)
        return unsupported(cuda, error);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: a dmabuf of %" PRIu64 " bytes", cuda->device, bytes);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *ret_fd = fd;
    *ret_offset = address - start;
    return 0;
}
