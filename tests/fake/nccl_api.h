/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the stand-in libnccl exports: every function's name, the version code of the library that had it first, and its
 * prototype. nccl_map.py makes the version scripts from the list; tests/abi includes NVIDIA's header before this one, so
 * that a prototype that differs does not compile.
 */
#ifndef FAKE_NCCL_API_H
#define FAKE_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_NCCL_FUNCTIONS(X)                                                                               \
    X(ncclGetVersion, 2400)                                                                                  \
    X(ncclGetUniqueId, 2400)                                                                                 \
    X(ncclGetErrorString, 2400)                                                                              \
    X(ncclCommInitRank, 2400)                                                                                \
    X(ncclCommInitAll, 2400)                                                                                 \
    X(ncclCommDestroy, 2400)                                                                                 \
    X(ncclCommAbort, 2400)                                                                                   \
    X(ncclCommGetAsyncError, 2400)                                                                           \
    X(ncclCommCount, 2400)                                                                                   \
    X(ncclCommCuDevice, 2400)                                                                                \
    X(ncclCommUserRank, 2400)                                                                                \
    X(ncclGroupStart, 2400)                                                                                  \
    X(ncclGroupEnd, 2400)                                                                                    \
    X(ncclAllReduce, 2400)                                                                                   \
    X(ncclBroadcast, 2400)                                                                                   \
    X(ncclReduce, 2400)                                                                                      \
    X(ncclAllGather, 2400)                                                                                   \
    X(ncclReduceScatter, 2400)                                                                               \
    X(ncclSend, 2700)                                                                                        \
    X(ncclRecv, 2700)                                                                                        \
    X(ncclRedOpCreatePreMulSum, 21100)                                                                       \
    X(ncclRedOpDestroy, 21100)                                                                               \
    X(ncclGetLastError, 21300)                                                                               \
    X(ncclCommInitRankConfig, 21400)                                                                         \
    X(ncclCommFinalize, 21400)                                                                               \
    X(ncclCommSplit, 21800)                                                                                  \
    X(ncclMemAlloc, 21900)                                                                                   \
    X(ncclMemFree, 21900)                                                                                    \
    X(ncclCommRegister, 21900)                                                                               \
    X(ncclCommDeregister, 21900)                                                                             \
    X(ncclGroupSimulateEnd, 22200)                                                                           \
    X(ncclCommInitRankScalable, 22300)                                                                       \
    X(ncclCommShrink, 22700)                                                                                 \
    X(ncclCommWindowRegister, 22700)                                                                         \
    X(ncclCommWindowDeregister, 22700)                                                                       \
    X(ncclAlltoAll, 22803)                                                                                   \
    X(ncclGather, 22803)                                                                                     \
    X(ncclScatter, 22803)                                                                                    \
    X(ncclCommRevoke, 22807)                                                                                 \
    X(ncclCommGetUniqueId, 22902)                                                                            \
    X(ncclCommGrow, 22902)                                                                                   \
    X(ncclWinGetUserPtr, 22902)                                                                              \
    X(ncclCommSuspend, 22907)                                                                                \
    X(ncclCommResume, 22907)                                                                                 \
    X(ncclCommMemStats, 22907)

/* With NVIDIA's header before this one its own types are meant. */
#ifdef NCCL_H_
#define NCCL_RESULT    ncclResult_t
#define NCCL_TYPE      ncclDataType_t
#define NCCL_OP        ncclRedOp_t
#define NCCL_RESIDENCE ncclScalarResidence_t
#define NCCL_COMM      ncclComm_t
#define NCCL_WINDOW    ncclWindow_t
#define NCCL_STREAM    cudaStream_t
#define NCCL_ID        ncclUniqueId
#define NCCL_CONFIG    ncclConfig_t
#define NCCL_SIM_INFO  ncclSimInfo_t
#else
#define NCCL_RESULT    int
#define NCCL_TYPE      int
#define NCCL_OP        int
#define NCCL_RESIDENCE int
#define NCCL_COMM      struct ncclComm *
#define NCCL_WINDOW    struct ncclWindow_vidmem *
#define NCCL_STREAM    struct CUstream_st *
#define NCCL_ID        struct fake_nccl_id
#define NCCL_CONFIG    struct fake_nccl_config
#define NCCL_SIM_INFO  struct fake_nccl_sim_info
#endif
#define NCCL_API __attribute__((visibility("default")))

struct ncclComm;
struct ncclWindow_vidmem;
struct CUstream_st;

struct fake_nccl_id {
    char bytes[128];
};

struct fake_nccl_sim_info {
    size_t size;
    unsigned magic, version;
    float estimated_time;
};

/* Every field that the newest library has; older ones have the front of it. */
struct fake_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int cga_cluster_size, min_ctas, max_ctas; /* 2.17 */
    const char *net_name;
    int split_share;       /* 2.18 */
    int traffic_class;     /* 2.26 */
    const char *comm_name; /* 2.27 */
    int collnet_enable, cta_policy, shrink_share, nvls_ctas;
    int n_channels_per_net_peer, nvlink_centric_sched;                     /* 2.28 */
    int graph_usage_mode, num_rma_ctx;                                     /* 2.29 */
    int max_p2p_peers;                                                     /* 2.30.3 */
    int graph_stream_ordering;                                             /* 2.30.5 */
    int launch_order_implicit, num_rma_sig, rma_eager_init, host_cft_mode; /* 2.31 */
    int nvls_host_mode;                                                    /* 2.32 */
};

NCCL_API NCCL_RESULT ncclGetVersion(int *version);
NCCL_API NCCL_RESULT ncclGetUniqueId(NCCL_ID *id);
NCCL_API const char *ncclGetErrorString(NCCL_RESULT result);
NCCL_API const char *ncclGetLastError(NCCL_COMM comm);

NCCL_API NCCL_RESULT ncclCommInitRank(NCCL_COMM *comm, int n_ranks, NCCL_ID id, int rank);
NCCL_API NCCL_RESULT ncclCommInitRankConfig(NCCL_COMM *comm, int n_ranks, NCCL_ID id, int rank,
                                            NCCL_CONFIG *config);
NCCL_API NCCL_RESULT ncclCommInitRankScalable(NCCL_COMM *comm, int n_ranks, int rank, int n_ids, NCCL_ID *ids,
                                              NCCL_CONFIG *config);
NCCL_API NCCL_RESULT ncclCommInitAll(NCCL_COMM *comms, int n_devices, const int *devices);
NCCL_API NCCL_RESULT ncclCommSplit(NCCL_COMM comm, int color, int key, NCCL_COMM *new_comm,
                                   NCCL_CONFIG *config);
NCCL_API NCCL_RESULT ncclCommShrink(NCCL_COMM comm, int *exclude, int n_exclude, NCCL_COMM *new_comm,
                                    NCCL_CONFIG *config, int flags);
NCCL_API NCCL_RESULT ncclCommGetUniqueId(NCCL_COMM comm, NCCL_ID *id);
NCCL_API NCCL_RESULT ncclCommGrow(NCCL_COMM comm, int n_ranks, const NCCL_ID *id, int rank,
                                  NCCL_COMM *new_comm, NCCL_CONFIG *config);

NCCL_API NCCL_RESULT ncclCommFinalize(NCCL_COMM comm);
NCCL_API NCCL_RESULT ncclCommDestroy(NCCL_COMM comm);
NCCL_API NCCL_RESULT ncclCommAbort(NCCL_COMM comm);
NCCL_API NCCL_RESULT ncclCommRevoke(NCCL_COMM comm, int flags);
NCCL_API NCCL_RESULT ncclCommSuspend(NCCL_COMM comm, int flags);
NCCL_API NCCL_RESULT ncclCommResume(NCCL_COMM comm);
NCCL_API NCCL_RESULT ncclCommGetAsyncError(NCCL_COMM comm, NCCL_RESULT *result);
NCCL_API NCCL_RESULT ncclCommCount(NCCL_COMM comm, int *count);
NCCL_API NCCL_RESULT ncclCommCuDevice(NCCL_COMM comm, int *device);
NCCL_API NCCL_RESULT ncclCommUserRank(NCCL_COMM comm, int *rank);

NCCL_API NCCL_RESULT ncclMemAlloc(void **address, size_t bytes);
NCCL_API NCCL_RESULT ncclMemFree(void *address);
NCCL_API NCCL_RESULT ncclCommRegister(NCCL_COMM comm, void *buffer, size_t bytes, void **handle);
NCCL_API NCCL_RESULT ncclCommDeregister(NCCL_COMM comm, void *handle);
/* What NVIDIA's header of 2.28 does not have cannot be compared, nor named with its types. */
#if !defined(NCCL_H_) || NCCL_VERSION_CODE >= 22700
NCCL_API NCCL_RESULT ncclCommWindowRegister(NCCL_COMM comm, void *buffer, size_t bytes, NCCL_WINDOW *window,
                                            int flags);
NCCL_API NCCL_RESULT ncclCommWindowDeregister(NCCL_COMM comm, NCCL_WINDOW window);
NCCL_API NCCL_RESULT ncclWinGetUserPtr(NCCL_COMM comm, NCCL_WINDOW window, void **address);
#endif
#if !defined(NCCL_H_)
NCCL_API NCCL_RESULT ncclCommMemStats(NCCL_COMM comm, int stat, uint64_t *value);
#elif NCCL_VERSION_CODE >= 22907
NCCL_API NCCL_RESULT ncclCommMemStats(NCCL_COMM comm, ncclCommMemStat_t stat, uint64_t *value);
#endif

NCCL_API NCCL_RESULT ncclRedOpCreatePreMulSum(NCCL_OP *op, void *scalar, NCCL_TYPE type,
                                              NCCL_RESIDENCE residence, NCCL_COMM comm);
NCCL_API NCCL_RESULT ncclRedOpDestroy(NCCL_OP op, NCCL_COMM comm);

NCCL_API NCCL_RESULT ncclGroupStart(void);
NCCL_API NCCL_RESULT ncclGroupEnd(void);
NCCL_API NCCL_RESULT ncclGroupSimulateEnd(NCCL_SIM_INFO *info);

NCCL_API NCCL_RESULT ncclAllReduce(const void *send, void *receive, size_t count, NCCL_TYPE type, NCCL_OP op,
                                   NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclBroadcast(const void *send, void *receive, size_t count, NCCL_TYPE type, int root,
                                   NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclReduce(const void *send, void *receive, size_t count, NCCL_TYPE type, NCCL_OP op,
                                int root, NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclAllGather(const void *send, void *receive, size_t count, NCCL_TYPE type,
                                   NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclReduceScatter(const void *send, void *receive, size_t count, NCCL_TYPE type,
                                       NCCL_OP op, NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclAlltoAll(const void *send, void *receive, size_t count, NCCL_TYPE type,
                                  NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclGather(const void *send, void *receive, size_t count, NCCL_TYPE type, int root,
                                NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclScatter(const void *send, void *receive, size_t count, NCCL_TYPE type, int root,
                                 NCCL_COMM comm, NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclSend(const void *send, size_t count, NCCL_TYPE type, int peer, NCCL_COMM comm,
                              NCCL_STREAM stream);
NCCL_API NCCL_RESULT ncclRecv(void *receive, size_t count, NCCL_TYPE type, int peer, NCCL_COMM comm,
                              NCCL_STREAM stream);

#endif
