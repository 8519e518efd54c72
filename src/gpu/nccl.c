/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libnccl: found, loaded once, never unloaded (it has threads that go on after the last communicator). */
#include "gpu/nccl.h"

#include "base/options.h"

#include <errno.h>
#include <gpusys/dl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/*
 * Every function of NCCL up to 2.32, the oldest first: TABLE those that have a member in struct gpusys_nccl, OTHER those
 * that have not. "2.4" stands for 2.4 and what came before it: nothing older is of use.
 */
#define NCCL_FUNCTIONS(TABLE, OTHER)                                                                         \
    TABLE(REQUIRED, get_version, ncclGetVersion, "2.4")                                                      \
    TABLE(REQUIRED, get_unique_id, ncclGetUniqueId, "2.4")                                                   \
    TABLE(REQUIRED, get_error_string, ncclGetErrorString, "2.4")                                             \
    TABLE(REQUIRED, comm_init_rank, ncclCommInitRank, "2.4")                                                 \
    TABLE(REQUIRED, comm_init_all, ncclCommInitAll, "2.4")                                                   \
    TABLE(REQUIRED, comm_destroy, ncclCommDestroy, "2.4")                                                    \
    TABLE(REQUIRED, comm_abort, ncclCommAbort, "2.4")                                                        \
    TABLE(REQUIRED, comm_get_async_error, ncclCommGetAsyncError, "2.4")                                      \
    TABLE(REQUIRED, comm_count, ncclCommCount, "2.4")                                                        \
    TABLE(REQUIRED, comm_cu_device, ncclCommCuDevice, "2.4")                                                 \
    TABLE(REQUIRED, comm_user_rank, ncclCommUserRank, "2.4")                                                 \
    TABLE(REQUIRED, group_start, ncclGroupStart, "2.4")                                                      \
    TABLE(REQUIRED, group_end, ncclGroupEnd, "2.4")                                                          \
    TABLE(REQUIRED, all_reduce, ncclAllReduce, "2.4")                                                        \
    TABLE(REQUIRED, broadcast, ncclBroadcast, "2.4")                                                         \
    TABLE(REQUIRED, reduce, ncclReduce, "2.4")                                                               \
    TABLE(REQUIRED, all_gather, ncclAllGather, "2.4")                                                        \
    TABLE(REQUIRED, reduce_scatter, ncclReduceScatter, "2.4")                                                \
    OTHER(ncclBcast, "2.4")                                                                                  \
    TABLE(OPTIONAL, send, ncclSend, "2.7")                                                                   \
    TABLE(OPTIONAL, recv, ncclRecv, "2.7")                                                                   \
    TABLE(OPTIONAL, red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum, "2.11")                             \
    TABLE(OPTIONAL, red_op_destroy, ncclRedOpDestroy, "2.11")                                                \
    TABLE(OPTIONAL, get_last_error, ncclGetLastError, "2.13")                                                \
    TABLE(OPTIONAL, comm_init_rank_config, ncclCommInitRankConfig, "2.14")                                   \
    TABLE(OPTIONAL, comm_finalize, ncclCommFinalize, "2.14")                                                 \
    TABLE(OPTIONAL, comm_split, ncclCommSplit, "2.18")                                                       \
    TABLE(OPTIONAL, mem_alloc, ncclMemAlloc, "2.19")                                                         \
    TABLE(OPTIONAL, mem_free, ncclMemFree, "2.19")                                                           \
    TABLE(OPTIONAL, comm_register, ncclCommRegister, "2.19")                                                 \
    TABLE(OPTIONAL, comm_deregister, ncclCommDeregister, "2.19")                                             \
    TABLE(OPTIONAL, group_simulate_end, ncclGroupSimulateEnd, "2.22")                                        \
    TABLE(OPTIONAL, comm_init_rank_scalable, ncclCommInitRankScalable, "2.23")                               \
    OTHER(ncclResetDebugInit, "2.24")                                                                        \
    TABLE(OPTIONAL, comm_shrink, ncclCommShrink, "2.27")                                                     \
    TABLE(OPTIONAL, comm_window_register, ncclCommWindowRegister, "2.27")                                    \
    TABLE(OPTIONAL, comm_window_deregister, ncclCommWindowDeregister, "2.27")                                \
    TABLE(OPTIONAL, all_to_all, ncclAlltoAll, "2.28.3")                                                      \
    TABLE(OPTIONAL, gather, ncclGather, "2.28.3")                                                            \
    TABLE(OPTIONAL, scatter, ncclScatter, "2.28.3")                                                          \
    TABLE(OPTIONAL, comm_revoke, ncclCommRevoke, "2.28.7")                                                   \
    TABLE(OPTIONAL, comm_get_unique_id, ncclCommGetUniqueId, "2.29.2")                                       \
    TABLE(OPTIONAL, comm_grow, ncclCommGrow, "2.29.2")                                                       \
    TABLE(OPTIONAL, win_get_user_ptr, ncclWinGetUserPtr, "2.29.2")                                           \
    OTHER(ncclPutSignal, "2.29.2")                                                                           \
    OTHER(ncclSignal, "2.29.2")                                                                              \
    OTHER(ncclWaitSignal, "2.29.2")                                                                          \
    TABLE(OPTIONAL, comm_suspend, ncclCommSuspend, "2.29.7")                                                 \
    TABLE(OPTIONAL, comm_resume, ncclCommResume, "2.29.7")                                                   \
    TABLE(OPTIONAL, comm_mem_stats, ncclCommMemStats, "2.29.7")                                              \
    OTHER(ncclParamBind, "2.30.4")                                                                           \
    OTHER(ncclParamGetI8, "2.30.4")                                                                          \
    OTHER(ncclParamGetI16, "2.30.4")                                                                         \
    OTHER(ncclParamGetI32, "2.30.4")                                                                         \
    OTHER(ncclParamGetI64, "2.30.4")                                                                         \
    OTHER(ncclParamGetU8, "2.30.4")                                                                          \
    OTHER(ncclParamGetU16, "2.30.4")                                                                         \
    OTHER(ncclParamGetU32, "2.30.4")                                                                         \
    OTHER(ncclParamGetU64, "2.30.4")                                                                         \
    OTHER(ncclParamGetStr, "2.30.4")                                                                         \
    OTHER(ncclParamGet, "2.30.4")                                                                            \
    OTHER(ncclParamGetParameter, "2.30.4")                                                                   \
    OTHER(ncclParamGetAllParameterKeys, "2.30.4")                                                            \
    OTHER(ncclParamDumpAll, "2.30.4")                                                                        \
    OTHER(ncclAllReduceConfig, "2.31")                                                                       \
    OTHER(ncclBroadcastConfig, "2.31")                                                                       \
    OTHER(ncclReduceConfig, "2.31")                                                                          \
    OTHER(ncclAllGatherConfig, "2.31")                                                                       \
    OTHER(ncclReduceScatterConfig, "2.31")                                                                   \
    OTHER(ncclAlltoAllConfig, "2.31")                                                                        \
    OTHER(ncclGatherConfig, "2.31")                                                                          \
    OTHER(ncclScatterConfig, "2.31")                                                                         \
    OTHER(ncclSetEncryption, "2.32")

/* The table, and behind it where those without a member lie: the loader wants a place for each. */
#define NO_MEMBER(rank, member, symbol, since)
#define POINTER(symbol, since) void *symbol;
struct loaded {
    struct gpusys_nccl table;
    NCCL_FUNCTIONS(NO_MEMBER, POINTER)
};

#define TABLE_ROW(rank, member, symbol, since)                                                               \
    {#symbol, NULL, since, offsetof(struct loaded, table.member), GPUSYS_DL_##rank},
#define OTHER_ROW(symbol, since) {#symbol, NULL, since, offsetof(struct loaded, symbol), GPUSYS_DL_OPTIONAL},
static const struct gpusys_dl_symbol symbols[] = {NCCL_FUNCTIONS(TABLE_ROW, OTHER_ROW)};
enum { N_SYMBOLS = sizeof symbols / sizeof symbols[0] };

static const char *const sonames[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                      "/usr/local/cuda/lib/libnccl.so.2", NULL};
static const struct gpusys_dl_library library = {
    .size = sizeof library,
    .name = "NCCL",
    .hint = "install the package libnccl2 or the wheel nvidia-nccl-cu12, or name the file in GPUSYS_LIBNCCL",
    .path_variable = "GPUSYS_LIBNCCL",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = N_SYMBOLS,
    .table_bytes = sizeof(struct loaded),
};

static struct loaded loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpusys_dl
    *_Atomic ready; /* set last: what it stands for is complete, and does not change any more */

static int load(struct gpusys_error *error)
{
    struct gpusys_dl *dl = NULL;
    pthread_mutex_lock(&lock);
    int code = ready ? 0 : gpusys_dl_open(&dl, &library, &loaded, error);
    if (dl) {
        loaded.table.size = sizeof loaded.table;
        ready = dl;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error)
{
    int code = ready ? 0 : load(error);
    if (!code)
        *ret_nccl = &loaded.table;
    return code;
}

const struct gpusys_nccl *gs_nccl_loaded(void)
{
    return ready ? &loaded.table : NULL;
}

int gpusys_nccl_version(int *ret_code, struct gpusys_error *error)
{
    const struct gpusys_nccl *nccl;
    int version = 0, code = gpusys_nccl_table(&nccl, error);
    if (!code)
        code = gpusys_nccl_error(nccl->get_version(&version), "ncclGetVersion", NULL, error);
    if (!code)
        *ret_code = version;
    return code;
}

const char *gpusys_nccl_library(void)
{
    struct gpusys_dl *dl = ready;
    return dl ? gpusys_dl_path(dl) : NULL;
}

bool gpusys_nccl_reused(void)
{
    struct gpusys_dl *dl = ready;
    return dl && gpusys_dl_reused(dl);
}

int gpusys_nccl_copies(char *text, size_t size)
{
    struct gpusys_dl *dl = ready;
    if (dl)
        return gpusys_dl_copies(dl, text, size);
    if (size)
        text[0] = 0;
    return 0;
}

int gpusys_nccl_missing(const char *function, struct gpusys_error *error)
{
    const struct gpusys_nccl *nccl;
    size_t at = 0;
    if (!function)
        return gpusys_error_set(error, -EINVAL, "NCCL: no name of a function was given");
    while (at < N_SYMBOLS && strcmp(symbols[at].name, function) != 0)
        at++;
    if (at == N_SYMBOLS)
        return gpusys_error_set(error, -EINVAL, "NCCL: gpusys knows of no function %s", function);
    int code = gpusys_nccl_table(&nccl, error);
    return code ? code : gpusys_dl_missing(ready, function, error);
}

static bool is_present(const struct gpusys_dl_symbol *symbol)
{
    void *address;
    memcpy(&address, (const char *)&loaded + symbol->offset, sizeof address);
    return address != NULL;
}

int gpusys_nccl_symbol(uint32_t at, struct gpusys_nccl_symbol *ret_symbol, struct gpusys_error *error)
{
    const struct gpusys_nccl *nccl;
    int code = gpusys_nccl_table(&nccl, error);
    if (code)
        return code;
    if (at >= N_SYMBOLS)
        return gpusys_error_set(error, -ENOENT, "NCCL: no function number %u, there are %u", at, N_SYMBOLS);
    struct gpusys_nccl_symbol symbol = {
        .name = symbols[at].name,
        .since = symbols[at].since,
        .present = is_present(&symbols[at]),
        .in_table = symbols[at].offset < sizeof loaded.table,
    };
    code = gs_info_give(ret_symbol, &symbol, sizeof symbol);
    return code ? gpusys_error_set(error, code, "NCCL: the caller's struct has no size in it") : 0;
}
