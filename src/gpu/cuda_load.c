/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libcuda: found, loaded once, initialised once. */
#include "gpu/cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define SYMBOL_ROW(rank, member, symbol, since, parameters)                                                  \
    {#symbol, NULL, since, offsetof(struct gs_cuda, member), GPUSYS_DL_##rank},

static const struct gpusys_dl_symbol symbols[] = {GS_CUDA_SYMBOLS(SYMBOL_ROW)};
/* Never libcuda.so: that name is for linking, and often CUDA's stub. */
static const char *const sonames[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", NULL};
static const struct gpusys_dl_library library = {
    .size = sizeof library,
    .name = "CUDA",
    .hint = "install NVIDIA's driver; a container gets its libcuda from the host: run it with --gpus all",
    .path_variable = "GPUSYS_LIBCUDA",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof symbols / sizeof symbols[0],
    .table_bytes = offsetof(struct gs_cuda, dl),
};

static struct gs_cuda table; /* written under the lock; read by those who have it from one of these two */
static const struct gs_cuda *_Atomic loaded, *_Atomic ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned lasting; /* the result of cuInit that will stay; under the lock */

const struct gs_cuda *gs_cuda_loaded(void)
{
    return loaded;
}

static const struct gs_cuda *load_locked(int *ret_code, struct gpusys_error *error)
{
    *ret_code = loaded ? 0 : gpusys_dl_open(&table.dl, &library, &table, error);
    if (!*ret_code)
        loaded = &table;
    return loaded;
}

const struct gs_cuda *gs_cuda_load(int *ret_code, struct gpusys_error *error)
{
    *ret_code = 0;
    const struct gs_cuda *driver = loaded;
    if (driver)
        return driver;
    pthread_mutex_lock(&lock);
    driver = load_locked(ret_code, error);
    pthread_mutex_unlock(&lock);
    return driver;
}

/* Modules get loaded and daemons started, but the file that we have stays what it is. */
static bool is_lasting(unsigned result)
{
    return result == GS_CUDA_STUB_LIBRARY || result == GS_CUDA_DRIVER_MISMATCH ||
           result == GS_CUDA_COMPAT_NOT_SUPPORTED;
}

static int init_locked(struct gpusys_error *error)
{
    unsigned result = lasting ? lasting : table.init(0);
    if (!result) {
        table.owner = getpid();
        ready = &table;
        return 0;
    }
    if (is_lasting(result))
        lasting = result;
    int code = gs_cuda_fail(error, result, "CUDA: cuInit");
    gs_cuda_explain(error, result, "", gpusys_dl_path(table.dl));
    /* Whatever it was that the driver did not like: there is none. */
    code = code == -EPERM || code == -ENOMEM ? code : -ENODEV;
    if (error)
        error->code = code;
    return code;
}

const struct gs_cuda *gs_cuda(int *ret_code, struct gpusys_error *error)
{
    *ret_code = 0;
    if (ready)
        return ready;
    pthread_mutex_lock(&lock);
    if (!ready && load_locked(ret_code, error))
        *ret_code = init_locked(error);
    const struct gs_cuda *driver = ready;
    pthread_mutex_unlock(&lock);
    return driver;
}

const char *gpusys_cuda_library(void)
{
    const struct gs_cuda *driver = loaded;
    return driver ? gpusys_dl_path(driver->dl) : NULL;
}

int gpusys_cuda_status(struct gpusys_error *error)
{
    uint32_t count;
    int code = gpusys_cuda_count(&count, error);
    if (code || count)
        return code;
    code = gs_cuda_fail(error, GS_CUDA_NO_DEVICE, "CUDA");
    gs_cuda_explain(error, GS_CUDA_NO_DEVICE, "", gpusys_cuda_library());
    return code;
}

int gpusys_cuda_version(int *ret_version, struct gpusys_error *error)
{
    int code, version = 0;
    const struct gs_cuda *driver = gs_cuda_load(&code, error);
    if (!driver)
        return code;
    unsigned result = driver->driver_version(&version);
    if (result) {
        code = gs_cuda_fail(error, result, "CUDA: cuDriverGetVersion");
        gs_cuda_explain(error, result, "", gpusys_dl_path(driver->dl));
        return code;
    }
    *ret_version = version;
    return 0;
}
