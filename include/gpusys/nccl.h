/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/nccl.h: NCCL itself, found at run time: libnccl.so.2, a copy that the process holds already before any
 * other (a framework may have brought one), or the file that GPUSYS_LIBNCCL names. It is never unloaded.
 *
 * This header is the library as it is: its types, and a table of its functions as it gave them, with no cost and no
 * safety added. gpusys/comm.h builds communicators with deadlines on it; most programs want that one.
 *
 *     const struct gpusys_nccl *nccl;
 *     struct gpusys_error error;
 *     if (gpusys_nccl_table(&nccl, &error) == 0)
 *         result = nccl->all_reduce(send, receive, count, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SUM, comm, stream);
 *
 * The types fit nccl.h's: an ncclComm_t is a `struct ncclComm *`, a cudaStream_t a `struct CUstream_st *`. Both headers
 * may be included in one file.
 *
 * Errors: -ENOENT no libnccl, -ELIBBAD, -ELIBACC, -ENOSYS it is too old to be used, or lacks a function
 * (gpusys/dl.h). Threads: any, at once; what NCCL asks of its callers stays theirs.
 *
 * Source of the ABI: nccl.h of 2.13 to 2.32; tests/abi compares with every one that can be had.
 */
#ifndef GPUSYS_NCCL_H
#define GPUSYS_NCCL_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <gpusys/finding.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ncclComm;
struct ncclWindow_vidmem;
struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- its types ---- */

/* ncclResult_t */
enum gpusys_nccl_result {
    GPUSYS_NCCL_SUCCESS = 0,
    GPUSYS_NCCL_UNHANDLED_CUDA_ERROR = 1,
    GPUSYS_NCCL_SYSTEM_ERROR = 2,
    GPUSYS_NCCL_INTERNAL_ERROR = 3,
    GPUSYS_NCCL_INVALID_ARGUMENT = 4,
    GPUSYS_NCCL_INVALID_USAGE = 5,
    GPUSYS_NCCL_REMOTE_ERROR = 6, /* since 2.13 */
    GPUSYS_NCCL_IN_PROGRESS = 7,  /* since 2.14 */
    GPUSYS_NCCL_TIMEOUT = 8,      /* since 2.30 */
};

/* ncclDataType_t */
enum gpusys_nccl_type {
    GPUSYS_NCCL_INT8 = 0,
    GPUSYS_NCCL_UINT8 = 1,
    GPUSYS_NCCL_INT32 = 2,
    GPUSYS_NCCL_UINT32 = 3,
    GPUSYS_NCCL_INT64 = 4,
    GPUSYS_NCCL_UINT64 = 5,
    GPUSYS_NCCL_FLOAT16 = 6,
    GPUSYS_NCCL_FLOAT32 = 7,
    GPUSYS_NCCL_FLOAT64 = 8,
    GPUSYS_NCCL_BFLOAT16 = 9,    /* since 2.10 */
    GPUSYS_NCCL_FLOAT8E4M3 = 10, /* since 2.24 */
    GPUSYS_NCCL_FLOAT8E5M2 = 11, /* since 2.24 */
};
#define GPUSYS_NCCL_TYPES 12

/* ncclRedOp_t: these, and what red_op_create_pre_mul_sum gives. */
enum gpusys_nccl_op {
    GPUSYS_NCCL_SUM = 0,
    GPUSYS_NCCL_PROD = 1,
    GPUSYS_NCCL_MAX = 2,
    GPUSYS_NCCL_MIN = 3,
    GPUSYS_NCCL_AVG = 4, /* since 2.10 */
};
#define GPUSYS_NCCL_OPS 5

/* ncclScalarResidence_t: where the scalar of red_op_create_pre_mul_sum lies. */
#define GPUSYS_NCCL_SCALAR_DEVICE 0
#define GPUSYS_NCCL_SCALAR_HOST   1

#define GPUSYS_NCCL_NO_COLOR         (-1)  /* of comm_split: in no part */
#define GPUSYS_NCCL_SHRINK_ABORT     1     /* of comm_shrink: end what is under way in the parent first */
#define GPUSYS_NCCL_WINDOW_SYMMETRIC 1     /* of comm_window_register */
#define GPUSYS_NCCL_WINDOW_ALIGNMENT 4096u /* of a symmetric window's address */

/* ncclUniqueId */
struct gpusys_nccl_id {
    char bytes[128];
};

/*
 * ncclConfig_t, of the newest library known here. One recipe is valid for every library since 2.14: this whole
 * struct as gpusys_nccl_config_init leaves it, `blocking` set to 0 or 1, and of min_ctas and max_ctas either both
 * set or neither. Older libraries read the front of it, newer ones know by `version` where it ends.
 */
struct gpusys_nccl_config {
    size_t size;      /* what the library may read */
    uint32_t magic;   /* 0xcafebeef */
    uint32_t version; /* the library's version whose struct this is */
    int blocking; /* 0: calls answer IN_PROGRESS, and comm_get_async_error says when they are through. 2.14 */
    int cga_cluster_size; /* 2.17, and so the three below */
    int min_ctas, max_ctas;
    const char *net_name;
    int split_share;       /* 2.18 */
    int traffic_class;     /* 2.26 */
    const char *comm_name; /* 2.27, and so the four below */
    int collnet_enable;
    int cta_policy;
    int shrink_share;
    int nvls_ctas;
    int n_channels_per_net_peer; /* 2.28 */
    int nvlink_centric_sched;    /* 2.28 */
    int graph_usage_mode;        /* 2.29 */
    int num_rma_ctx;             /* 2.29 */
    int max_p2p_peers;           /* 2.30.3 */
    int graph_stream_ordering;   /* 2.30.5 */
    int launch_order_implicit;   /* 2.31, and so the three below */
    int num_rma_sig;
    int rma_eager_init;
    int host_cft_mode;
    int nvls_host_mode; /* 2.32 */
    int reserved;       /* padding; 0 */
};
#define GPUSYS_NCCL_UNSET INT_MIN /* an integer of the config: the library's default */

/* Every field unset, `blocking` 1. */
GPUSYS_API void gpusys_nccl_config_init(struct gpusys_nccl_config *config);

/* ncclSimInfo_t */
struct gpusys_nccl_sim_info {
    size_t size;
    uint32_t magic; /* 0x74685283 */
    uint32_t version;
    float estimated_time; /* microseconds */
};
GPUSYS_API void gpusys_nccl_sim_info_init(struct gpusys_nccl_sim_info *info);

/* Bytes of one element; 0 for a type that is not known. */
GPUSYS_API uint32_t gpusys_nccl_type_bytes(int type);
/* "float32", "sum" (a made operator: "custom"), "invalid argument". Never NULL: "unknown". */
GPUSYS_API const char *gpusys_nccl_type_name(int type);
GPUSYS_API const char *gpusys_nccl_op_name(int op);
GPUSYS_API const char *gpusys_nccl_result_name(int result);

/* ---- its functions ----
 *
 * Every one returns an ncclResult_t. NULL: this library does not have it; gpusys_nccl_missing then says since
 * which version one does. Those of the first group are always there.
 *
 * Two traps of the real ones: what receives a new communicator must be NULL before the call (2.21 takes anything else
 * for one when it fails, and crashes), and where comm_init_rank_config fails before it has begun (no driver), 2.23 and
 * later leave the thread in a group: one group_end brings it out.
 */
struct gpusys_nccl {
    size_t size; /* of the table as this gpusys knows it */

    int (*get_version)(int *version);
    int (*get_unique_id)(struct gpusys_nccl_id *id);
    const char *(*get_error_string)(int result);
    int (*comm_init_rank)(struct ncclComm **comm, int n_ranks, struct gpusys_nccl_id id, int rank);
    int (*comm_init_all)(struct ncclComm **comms, int n_devices, const int *devices);
    int (*comm_destroy)(struct ncclComm *comm);
    int (*comm_abort)(struct ncclComm *comm);
    int (*comm_get_async_error)(struct ncclComm *comm, int *result);
    int (*comm_count)(const struct ncclComm *comm, int *count);
    int (*comm_cu_device)(const struct ncclComm *comm, int *device);
    int (*comm_user_rank)(const struct ncclComm *comm, int *rank);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *send, void *receive, size_t count, int type, int op, struct ncclComm *comm,
                      struct CUstream_st *stream);
    int (*broadcast)(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                     struct CUstream_st *stream);
    int (*reduce)(const void *send, void *receive, size_t count, int type, int op, int root,
                  struct ncclComm *comm, struct CUstream_st *stream);
    int (*all_gather)(const void *send, void *receive, size_t send_count, int type, struct ncclComm *comm,
                      struct CUstream_st *stream);
    int (*reduce_scatter)(const void *send, void *receive, size_t receive_count, int type, int op,
                          struct ncclComm *comm, struct CUstream_st *stream);

    /* 2.7 */
    int (*send)(const void *send, size_t count, int type, int peer, struct ncclComm *comm,
                struct CUstream_st *stream);
    int (*recv)(void *receive, size_t count, int type, int peer, struct ncclComm *comm,
                struct CUstream_st *stream);
    /* 2.11 */
    int (*red_op_create_pre_mul_sum)(int *op, void *scalar, int type, int residence, struct ncclComm *comm);
    int (*red_op_destroy)(int op, struct ncclComm *comm);
    /* 2.13 */
    const char *(*get_last_error)(struct ncclComm *comm);
    /* 2.14 */
    int (*comm_init_rank_config)(struct ncclComm **comm, int n_ranks, struct gpusys_nccl_id id, int rank,
                                 struct gpusys_nccl_config *config);
    int (*comm_finalize)(struct ncclComm *comm);
    /* 2.18 */
    int (*comm_split)(struct ncclComm *comm, int color, int key, struct ncclComm **new_comm,
                      struct gpusys_nccl_config *config);
    /* 2.19 */
    int (*mem_alloc)(void **address, size_t bytes);
    int (*mem_free)(void *address);
    int (*comm_register)(const struct ncclComm *comm, void *buffer, size_t bytes, void **handle);
    int (*comm_deregister)(const struct ncclComm *comm, void *handle);
    /* 2.22 */
    int (*group_simulate_end)(struct gpusys_nccl_sim_info *info);
    /* 2.23 */
    int (*comm_init_rank_scalable)(struct ncclComm **comm, int n_ranks, int rank, int n_ids,
                                   struct gpusys_nccl_id *ids, struct gpusys_nccl_config *config);
    /* 2.27 */
    int (*comm_shrink)(struct ncclComm *comm, int *exclude, int n_exclude, struct ncclComm **new_comm,
                       struct gpusys_nccl_config *config, int flags);
    int (*comm_window_register)(struct ncclComm *comm, void *buffer, size_t bytes,
                                struct ncclWindow_vidmem **window, int flags);
    int (*comm_window_deregister)(struct ncclComm *comm, struct ncclWindow_vidmem *window);
    /* 2.28.3 */
    int (*all_to_all)(const void *send, void *receive, size_t count, int type, struct ncclComm *comm,
                      struct CUstream_st *stream);
    int (*gather)(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                  struct CUstream_st *stream);
    int (*scatter)(const void *send, void *receive, size_t count, int type, int root, struct ncclComm *comm,
                   struct CUstream_st *stream);
    /* 2.28.7 */
    int (*comm_revoke)(struct ncclComm *comm, int flags);
    /* 2.29.2 */
    int (*comm_get_unique_id)(struct ncclComm *comm, struct gpusys_nccl_id *id);
    int (*comm_grow)(struct ncclComm *comm, int n_ranks, const struct gpusys_nccl_id *id, int rank,
                     struct ncclComm **new_comm, struct gpusys_nccl_config *config);
    int (*win_get_user_ptr)(struct ncclComm *comm, struct ncclWindow_vidmem *window, void **address);
    /* 2.29.7 */
    int (*comm_suspend)(struct ncclComm *comm, int flags);
    int (*comm_resume)(struct ncclComm *comm);
    int (*comm_mem_stats)(struct ncclComm *comm, int stat, uint64_t *value);
};

/* The table, loading the library the first time. It lives as long as the process. */
GPUSYS_API int gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error);

/* The library's version code (22809 is 2.28.9, 2708 is 2.7.8), and the parts of one. */
GPUSYS_API int gpusys_nccl_version(int *ret_code, struct gpusys_error *error);
GPUSYS_API void gpusys_nccl_version_parts(int code, int *ret_major, int *ret_minor, int *ret_patch);

/* The file that was loaded (NULL: none was), whether it was in the process before, and every copy that is mapped, as
 * gpusys_dl_copies has them: more than one means trouble. */
GPUSYS_API const char *gpusys_nccl_library(void);
GPUSYS_API bool gpusys_nccl_reused(void);
GPUSYS_API int gpusys_nccl_copies(char *text, size_t size);

/* -ENOSYS with an error that names the function ("ncclCommShrink"), the file, and the version to have; 0 when the
 * library has it. -EINVAL: no function of NCCL's that this gpusys knows of. */
GPUSYS_API int gpusys_nccl_missing(const char *function, struct gpusys_error *error);

/* Functions of NCCL that this gpusys knows of, whether in the table or not. */
struct gpusys_nccl_symbol {
    size_t size;       /* in: sizeof(struct gpusys_nccl_symbol) */
    const char *name;  /* "ncclCommSplit"; static */
    const char *since; /* "2.18"; static */
    uint32_t present;  /* this library has it */
    uint32_t in_table; /* and the table has a member for it */
};
/* Symbol number `at`, oldest first. -ENOENT behind the last; the errors of gpusys_nccl_table. */
GPUSYS_API int gpusys_nccl_symbol(uint32_t at, struct gpusys_nccl_symbol *ret_symbol,
                                  struct gpusys_error *error);

/*
 * Fill an error for a result of a call named `call` ("ncclCommInitRank"): NCCL's text, its last error (of `comm`, or
 * NULL) and, where that is known, the cause and what to do (NCCL_SOCKET_IFNAME is read from the environment for
 * that). NCCL keeps its last error until the next one, so it may be about an earlier call. Returns the negative
 * errno: -EIO CUDA, system and remote errors, network trouble, -EINVAL argument and usage, -ETIMEDOUT, -EAGAIN in
 * progress, -EPROTO internal; 0 for success.
 */
GPUSYS_API int gpusys_nccl_error(int result, const char *call, struct ncclComm *comm,
                                 struct gpusys_error *error);

/* ---- is this machine fit for it? ----
 *
 * One look at a time, each a row with evidence and fix: the driver, GPUs seen twice, the environment's names
 * and interface, /dev/shm, limits, IOMMU and PCIe access control, the fabric manager, what a container lacks.
 * Looks load libcuda and libnccl; a host without a GPU gets "not needed" where that is the truth.
 */

/* What look number `at` is called and what it looks at, static, without looking. -ENOENT behind the last. */
GPUSYS_API int gpusys_nccl_look_name(uint32_t at, const char **ret_name, const char **ret_title);

/* Look number `at`. -ENOENT behind the last. */
GPUSYS_API int gpusys_nccl_preflight(uint32_t at, struct gpusys_finding *ret_finding);

/* The look of that name. -ENOENT: there is none. */
GPUSYS_API int gpusys_nccl_look(const char *name, struct gpusys_finding *ret_finding);

#ifdef __cplusplus
}
#endif

#endif
