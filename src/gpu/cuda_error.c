/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the CUDA driver answers: as an errno, as a name and a text, with what to do about it. */
#include "base/log.h"
#include "gpu/cuda.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char broken[] = "the context is of no use any more: end the process";
static const char capture[] = "wait until the capture has ended";
static const char look[] = "nvidia-smi and dmesg (lines with NVRM and Xid) say more";
static const char mps[] = "look at the log of nvidia-cuda-mps-control, or run without it";

/* Names are the driver's; texts serve where there is no driver to ask. What is not here is -EIO. */
static const struct row {
    unsigned result;
    int code;
    const char *name, *text, *hint;
} rows[] = {
    {0, 0, "CUDA_SUCCESS", "no error", NULL},
    {600, -EAGAIN, "CUDA_ERROR_NOT_READY", "not done yet", NULL},
    {1, -EINVAL, "CUDA_ERROR_INVALID_VALUE", "an argument is not valid", NULL},
    {2, -ENOMEM, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "nvidia-smi shows who has the memory"},
    {3, -ENODEV, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised", NULL},
    {4, -ENODEV, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down", NULL},
    {34, -ENODEV, "CUDA_ERROR_STUB_LIBRARY", "this is the stub library", NULL},
    {36, -ENOSYS, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "a newer driver is needed", "upgrade the driver"},
    {46, -EBUSY, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is not to be had",
     "another process may have it to itself: nvidia-smi -q -d COMPUTE shows the compute mode"},
    {100, -ENODEV, "CUDA_ERROR_NO_DEVICE", "there is no device", NULL},
    {101, -ENODEV, "CUDA_ERROR_INVALID_DEVICE", "there is no such device", NULL},
    {102, -EPERM, "CUDA_ERROR_DEVICE_NOT_LICENSED", "the device has no licence", "get a vGPU licence"},
    {200, -EINVAL, "CUDA_ERROR_INVALID_IMAGE", "not a valid kernel image", NULL},
    {201, -EINVAL, "CUDA_ERROR_INVALID_CONTEXT", "not a valid context", NULL},
    {214, -EIO, "CUDA_ERROR_ECC_UNCORRECTABLE", "memory error that could not be corrected", look},
    {217, -EOPNOTSUPP, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "no access between these devices", NULL},
    {220, -EIO, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink error that could not be corrected", look},
    {304, -EIO, "CUDA_ERROR_OPERATING_SYSTEM", "the operating system refused", look},
    {400, -EINVAL, "CUDA_ERROR_INVALID_HANDLE", "not a valid stream or event", NULL},
    {700, -EIO, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal address was used on the device",
     "the context is of no use any more: end the process; compute-sanitizer finds the access"},
    {702, -EIO, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel took too long", broken},
    {709, -EIO, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed", NULL},
    {710, -EIO, "CUDA_ERROR_ASSERT", "an assertion failed on the device", broken},
    {712, -EINVAL, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "some of it is page-locked already", NULL},
    {713, -EINVAL, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "it was not page-locked", NULL},
    {714, -EIO, "CUDA_ERROR_HARDWARE_STACK_ERROR", "the device's stack is broken", broken},
    {715, -EIO, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction on the device", broken},
    {716, -EIO, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address on the device", broken},
    {717, -EIO, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "address of the wrong space", broken},
    {718, -EIO, "CUDA_ERROR_INVALID_PC", "the device ran out of its code", broken},
    {719, -EIO, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed", broken},
    {800, -EPERM, "CUDA_ERROR_NOT_PERMITTED", "not permitted", NULL},
    {801, -EOPNOTSUPP, "CUDA_ERROR_NOT_SUPPORTED", "not supported", NULL},
    {802, -ENODEV, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready for CUDA", NULL},
    {803, -ENODEV, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "kernel module and library do not match", NULL},
    {804, -ENODEV, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "no forward compatibility here", NULL},
    {805, -ENODEV, "CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS control daemon", mps},
    {806, -EIO, "CUDA_ERROR_MPS_RPC_FAILURE", "a call of the MPS server failed", mps},
    {807, -ENODEV, "CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is not ready", mps},
    {808, -EBUSY, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has too many clients", mps},
    {809, -EBUSY, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the MPS server has too many connections", mps},
    {810, -EIO, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client", mps},
    {900, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not while a stream is captured", capture},
    {901, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture was invalidated", capture},
    {902, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "two captures would be merged", capture},
    {903, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin in this stream", capture},
    {904, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture has a fork that was not joined",
     capture},
    {905, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "the capture would depend on other work", capture},
    {906, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the capture would depend on the default stream",
     capture},
    {907, -EBUSY, "CUDA_ERROR_CAPTURED_EVENT", "the event was recorded in a capture", capture},
    {908, -EBUSY, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "another thread began the capture", capture},
    {909, -ETIMEDOUT, "CUDA_ERROR_TIMEOUT", "time ran out", NULL},
    {999, -EIO, "CUDA_ERROR_UNKNOWN", "unknown error of the driver", look},
};
static const struct row other = {0, -EIO, "unknown", "unknown", NULL};

static const struct row *row_of(unsigned result)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].result == result)
            return &rows[i];
    return &other;
}

int gs_cuda_errno(unsigned result)
{
    return row_of(result)->code;
}

const char *gpusys_cuda_error_name(int result)
{
    const struct gs_cuda *driver = gs_cuda_loaded();
    const char *name = NULL;
    if (driver && driver->error_name((unsigned)result, &name) == 0 && name)
        return name;
    return row_of((unsigned)result)->name;
}

const char *gpusys_cuda_error_text(int result)
{
    const struct gs_cuda *driver = gs_cuda_loaded();
    const char *text = NULL;
    if (driver && driver->error_text((unsigned)result, &text) == 0 && text)
        return text;
    return row_of((unsigned)result)->text;
}

/* The driver only says that it is not initialised: to a child that inherited it, too. */
static void blame_fork(struct gpusys_error *error)
{
    const struct gs_cuda *driver = gs_cuda_loaded();
    if (!driver || !driver->owner || driver->owner == getpid())
        return;
    gpusys_error_set_cause(error, "process %d used the driver before it forked this one", (int)driver->owner);
    gpusys_error_set_hint(error, "fork before CUDA is used, or let the child exec");
}

int gs_cuda_fail(struct gpusys_error *error, unsigned result, const char *format, ...)
{
    const struct row *row = row_of(result);
    if (!error)
        return row->code;
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    gpusys_error_set(error, row->code, "%s: %s (%u): %s", what, gpusys_cuda_error_name((int)result), result,
                     gpusys_cuda_error_text((int)result));
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_CUDA, (int)result);
    if (row->hint)
        gpusys_error_set_hint(error, "%s", row->hint);
    if (result == GS_CUDA_NOT_INITIALIZED)
        blame_fork(error);
    return row->code;
}

void gs_cuda_warn(unsigned result, const char *what)
{
    /* At the end of a process the driver may be gone before its users. */
    if (result && result != GS_CUDA_DEINITIALIZED)
        gs_log(GPUSYS_LOG_WARN, "CUDA: %s: %s (%u): %s", what, gpusys_cuda_error_name((int)result), result,
               gpusys_cuda_error_text((int)result));
}
