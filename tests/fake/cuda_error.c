/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: names and texts of results, and functions by name. */
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>

static const struct {
    unsigned result;
    const char *name, *text;
} results[] = {
    {0, "CUDA_SUCCESS", "fake: fine"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "fake: bad argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "fake: memory is full"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "fake: cuInit comes first"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "fake: a stub"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "fake: taken"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "fake: none there"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "fake: none of that number"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "fake: no context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "fake: not mine"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "fake: not now"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "fake: not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "fake: busy"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "fake: illegal address"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "fake: registered"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "fake: not registered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "fake: a kernel failed"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "fake: not permitted"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "fake: not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "fake: not ready"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "fake: mismatch"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "fake: being captured"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "fake: not being captured"},
    {999, "CUDA_ERROR_UNKNOWN", "fake: who knows"},
};

enum { COUNT = sizeof results / sizeof results[0] };

static size_t find(unsigned result)
{
    size_t i = 0;
    while (i < COUNT && results[i].result != result)
        i++;
    return i;
}

unsigned cuGetErrorName(unsigned result, const char **name)
{
    size_t i = find(result);
    *name = i < COUNT ? results[i].name : NULL;
    return i < COUNT ? 0 : INVALID_VALUE;
}

unsigned cuGetErrorString(unsigned result, const char **text)
{
    size_t i = find(result);
    *text = i < COUNT ? results[i].text : NULL;
    return i < COUNT ? 0 : INVALID_VALUE;
}

/* The newest variant that we have, whatever version is asked for. */
unsigned cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             unsigned *status)
{
    char variant[96];
    Dl_info self;
    (void)version;
    (void)flags;
    void *library = dladdr((void *)(uintptr_t)&cuGetProcAddress_v2, &self)
                        ? dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                        : NULL;
    if (!library)
        return NOT_FOUND;
    snprintf(variant, sizeof variant, "%s_v2", symbol);
    *function = dlsym(library, variant);
    if (!*function)
        *function = dlsym(library, symbol);
    dlclose(library);
    if (status)
        *status = *function ? 0 : 1; /* found; no such symbol */
    return *function ? 0 : NOT_FOUND;
}
