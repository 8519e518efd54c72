/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: the driver whose streams it works in, if there is one. */
#include "fake/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>

struct driver {
    int (*init)(unsigned flags);
    int (*ctx_get_device)(int *device);
    int (*launch_host_func)(struct CUstream_st *stream, void (*call)(void *context), void *context);
    int (*mem_alloc)(uint64_t *address, size_t bytes);
    int (*mem_free)(uint64_t address);
};

static struct driver driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *find(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

static void load(void)
{
    const char *file = getenv("GPUSYS_LIBCUDA");
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library && file && *file)
        library = dlopen(file, RTLD_NOW);
    driver.init = (int (*)(unsigned))find(library, "cuInit");
    driver.ctx_get_device = (int (*)(int *))find(library, "cuCtxGetDevice");
    driver.launch_host_func =
        (int (*)(struct CUstream_st *, void (*)(void *), void *))find(library, "cuLaunchHostFunc");
    driver.mem_alloc = (int (*)(uint64_t *, size_t))find(library, "cuMemAlloc_v2");
    driver.mem_free = (int (*)(uint64_t))find(library, "cuMemFree_v2");
}

int fake_cuda_start(int *ret_device)
{
    pthread_once(&once, load);
    if (fake_no_cuda || (driver.init && driver.init(0) != 0))
        return fake_say(CUDA_ERROR,
                        "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'");
    int device;
    *ret_device = driver.ctx_get_device && driver.ctx_get_device(&device) == 0 ? device : 0;
    return SUCCESS;
}

bool fake_cuda_has_streams(void)
{
    pthread_once(&once, load);
    return driver.launch_host_func != NULL;
}

int fake_cuda_launch(struct CUstream_st *stream, void (*call)(void *context), void *context)
{
    pthread_once(&once, load);
    if (!driver.launch_host_func) {
        call(context);
        return SUCCESS;
    }
    int result = driver.launch_host_func(stream, call, context);
    return result == 0 ? SUCCESS : fake_say(CUDA_ERROR, "Cuda failure %d of cuLaunchHostFunc", result);
}

void *fake_cuda_alloc(size_t bytes)
{
    pthread_once(&once, load);
    uint64_t address;
    if (driver.mem_alloc && driver.mem_free)
        return driver.mem_alloc(&address, bytes) == 0 ? (void *)(uintptr_t)address : NULL;
    return aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
}

bool fake_cuda_free(void *address)
{
    pthread_once(&once, load);
    if (driver.mem_alloc && driver.mem_free)
        return driver.mem_free((uint64_t)(uintptr_t)address) == 0;
    free(address);
    return true;
}
