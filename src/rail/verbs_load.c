/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libibverbs: found, loaded once, made safe for fork. */
#include "base/log.h"
#include "rail/verbs.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define SYMBOL_ROW(rank, member, symbol, version, since)                                                     \
    {#symbol, version, since, offsetof(struct gs_ibv, member), GPUSYS_DL_##rank},

static const struct gpusys_dl_symbol symbols[] = {GS_IBV_SYMBOLS(SYMBOL_ROW)};
static const char *const sonames[] = {"libibverbs.so.1", NULL};
static const struct gpusys_dl_library library = {
    .size = sizeof library,
    .name = "libibverbs",
    .hint = "install the packages libibverbs1 and ibverbs-providers",
    .path_variable = "GPUSYS_LIBIBVERBS",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof symbols / sizeof symbols[0],
    .table_bytes = offsetof(struct gs_ibv, dl),
};

static struct gs_ibv table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int gs_ibv_errno(int result)
{
    int code = result > 0 ? result : errno;
    return code > 0 ? -code : -EIO;
}

/* Since 5.12 the kernel copies pinned pages at fork, and the library's own way only costs. */
static bool kernel_copies_at_fork(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 12));
}

static void init_fork(void)
{
    if (kernel_copies_at_fork() ||
        (table.is_fork_initialized && table.is_fork_initialized() != IBV_FORK_DISABLED))
        return;
    int result = table.fork_init();
    if (result)
        gs_log(GPUSYS_LOG_WARN, "libibverbs: ibv_fork_init: %s; a child must not run before its exec",
               strerrordesc_np(-gs_ibv_errno(result)));
}

const struct gs_ibv *gs_ibv(int *ret_code, struct gpusys_error *error)
{
    pthread_mutex_lock(&lock);
    int code = table.dl ? 0 : gpusys_dl_open(&table.dl, &library, &table, error);
    if (!code && !table.is_ready) {
        table.is_ready = true;
        init_fork();
    }
    pthread_mutex_unlock(&lock);
    *ret_code = code;
    return code ? NULL : &table;
}

bool gpusys_verbs_enabled(void)
{
    return true;
}

const char *gpusys_verbs_library(void)
{
    pthread_mutex_lock(&lock);
    const char *path = table.dl ? gpusys_dl_path(table.dl) : NULL;
    pthread_mutex_unlock(&lock);
    return path;
}
