/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/nccl.h beside a vendor's nccl.h of any version since 2.13, which the command line includes before it. What can be
 * compared at compile time is; the program prints the config that each header's initialiser makes, a field a line:
 * its name there, its name here, offset, bytes, value there, value here.
 */
#include <gpusys/nccl.h>

#include <stdio.h>
#include <string.h>

#define AS_BIG(theirs, ours)   _Static_assert(sizeof(theirs) == sizeof(ours), #ours)
#define THE_SAME(theirs, ours) _Static_assert((long long)(theirs) == (long long)(ours), #ours)

/* ---- constants ---- */

THE_SAME(ncclSuccess, GPUSYS_NCCL_SUCCESS);
THE_SAME(ncclUnhandledCudaError, GPUSYS_NCCL_UNHANDLED_CUDA_ERROR);
THE_SAME(ncclSystemError, GPUSYS_NCCL_SYSTEM_ERROR);
THE_SAME(ncclInternalError, GPUSYS_NCCL_INTERNAL_ERROR);
THE_SAME(ncclInvalidArgument, GPUSYS_NCCL_INVALID_ARGUMENT);
THE_SAME(ncclInvalidUsage, GPUSYS_NCCL_INVALID_USAGE);
THE_SAME(ncclRemoteError, GPUSYS_NCCL_REMOTE_ERROR);
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
THE_SAME(ncclNumResults, GPUSYS_NCCL_REMOTE_ERROR + 1);
#else
THE_SAME(ncclInProgress, GPUSYS_NCCL_IN_PROGRESS);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
THE_SAME(ncclTimeout, GPUSYS_NCCL_TIMEOUT);
THE_SAME(ncclNumResults, GPUSYS_NCCL_TIMEOUT + 1);
#elif NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
THE_SAME(ncclNumResults, GPUSYS_NCCL_IN_PROGRESS + 1);
#endif

THE_SAME(ncclInt8, GPUSYS_NCCL_INT8);
THE_SAME(ncclUint8, GPUSYS_NCCL_UINT8);
THE_SAME(ncclInt32, GPUSYS_NCCL_INT32);
THE_SAME(ncclUint32, GPUSYS_NCCL_UINT32);
THE_SAME(ncclInt64, GPUSYS_NCCL_INT64);
THE_SAME(ncclUint64, GPUSYS_NCCL_UINT64);
THE_SAME(ncclFloat16, GPUSYS_NCCL_FLOAT16);
THE_SAME(ncclFloat32, GPUSYS_NCCL_FLOAT32);
THE_SAME(ncclFloat64, GPUSYS_NCCL_FLOAT64);
THE_SAME(ncclBfloat16, GPUSYS_NCCL_BFLOAT16);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
THE_SAME(ncclFloat8e4m3, GPUSYS_NCCL_FLOAT8E4M3);
THE_SAME(ncclFloat8e5m2, GPUSYS_NCCL_FLOAT8E5M2);
THE_SAME(ncclNumTypes, GPUSYS_NCCL_TYPES);
#else
THE_SAME(ncclNumTypes, GPUSYS_NCCL_FLOAT8E4M3);
#endif

THE_SAME(ncclSum, GPUSYS_NCCL_SUM);
THE_SAME(ncclProd, GPUSYS_NCCL_PROD);
THE_SAME(ncclMax, GPUSYS_NCCL_MAX);
THE_SAME(ncclMin, GPUSYS_NCCL_MIN);
THE_SAME(ncclAvg, GPUSYS_NCCL_AVG);
THE_SAME(ncclNumOps, GPUSYS_NCCL_OPS);
THE_SAME(ncclScalarDevice, GPUSYS_NCCL_SCALAR_DEVICE);
THE_SAME(ncclScalarHostImmediate, GPUSYS_NCCL_SCALAR_HOST);

#ifdef NCCL_CONFIG_UNDEF_INT
THE_SAME(NCCL_CONFIG_UNDEF_INT, GPUSYS_NCCL_UNSET);
#endif
#ifdef NCCL_SPLIT_NOCOLOR
THE_SAME(NCCL_SPLIT_NOCOLOR, GPUSYS_NCCL_NO_COLOR);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
THE_SAME(NCCL_SHRINK_ABORT, GPUSYS_NCCL_SHRINK_ABORT);
THE_SAME(NCCL_WIN_COLL_SYMMETRIC, GPUSYS_NCCL_WINDOW_SYMMETRIC);
#endif
#ifdef NCCL_WIN_REQUIRED_ALIGNMENT
THE_SAME(NCCL_WIN_REQUIRED_ALIGNMENT, GPUSYS_NCCL_WINDOW_ALIGNMENT);
#endif

/* ---- types ---- */

AS_BIG(ncclResult_t, int);
AS_BIG(ncclDataType_t, int);
AS_BIG(ncclRedOp_t, int);
AS_BIG(ncclScalarResidence_t, int);
AS_BIG(ncclUniqueId, struct gpusys_nccl_id);
THE_SAME(_Alignof(ncclUniqueId), _Alignof(struct gpusys_nccl_id));
THE_SAME(NCCL_UNIQUE_ID_BYTES, sizeof(struct gpusys_nccl_id));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
AS_BIG(ncclCommMemStat_t, int);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
AS_BIG(ncclSimInfo_t, struct gpusys_nccl_sim_info);
THE_SAME(offsetof(ncclSimInfo_t, magic), offsetof(struct gpusys_nccl_sim_info, magic));
THE_SAME(offsetof(ncclSimInfo_t, version), offsetof(struct gpusys_nccl_sim_info, version));
THE_SAME(offsetof(ncclSimInfo_t, estimatedTime), offsetof(struct gpusys_nccl_sim_info, estimated_time));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
_Static_assert(sizeof(ncclConfig_t) <= sizeof(struct gpusys_nccl_config) ||
                   NCCL_VERSION_CODE >= NCCL_VERSION(2, 33, 0),
               "a library knows more fields than ours");
#endif

/* ---- functions ----
 *
 * The list says with distinct words what each parameter is. nccl.h's enumerations are types of their own, so that the
 * first pass proves the list right to the last word; the second holds our table against the list.
 */

#define RESULT     ncclResult_t
#define TYPE       ncclDataType_t
#define OP         ncclRedOp_t
#define RESIDENCE  ncclScalarResidence_t
#define COMM       ncclComm_t
#define CONST_COMM const ncclComm_t
#define STREAM     cudaStream_t
#define ID         ncclUniqueId
#define CONFIG     ncclConfig_t
#define SIM_INFO   ncclSimInfo_t
#define WINDOW     ncclWindow_t
#define MEM_STAT   ncclCommMemStat_t
#define FUNCTION(member, name, result, parameters)                                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) parameters), #name);
#include "nccl_functions.h"
#undef RESULT
#undef TYPE
#undef OP
#undef RESIDENCE
#undef COMM
#undef CONST_COMM
#undef STREAM
#undef ID
#undef CONFIG
#undef SIM_INFO
#undef WINDOW
#undef MEM_STAT
#undef FUNCTION

#define RESULT     int
#define TYPE       int
#define OP         int
#define RESIDENCE  int
#define MEM_STAT   int
#define COMM       struct ncclComm *
#define CONST_COMM const struct ncclComm *
#define STREAM     struct CUstream_st *
#define ID         struct gpusys_nccl_id
#define CONFIG     struct gpusys_nccl_config
#define SIM_INFO   struct gpusys_nccl_sim_info
#define WINDOW     struct ncclWindow_vidmem *
#define FUNCTION(member, name, result, parameters)                                                           \
    _Static_assert(                                                                                          \
        __builtin_types_compatible_p(__typeof__(((struct gpusys_nccl *)0)->member), result(*) parameters),   \
        #member);
#include "nccl_functions.h"

/* The pointers in the list are the vendor's own: the tags are the same. */
#define SAME_TYPE(one, other) _Static_assert(__builtin_types_compatible_p(one, other), #one)
SAME_TYPE(ncclComm_t, struct ncclComm *);
SAME_TYPE(cudaStream_t, struct CUstream_st *);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME_TYPE(ncclWindow_t, struct ncclWindow_vidmem *);
#endif

/* ---- the config ---- */

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
#define FIELD(theirs_name, ours_name)                                                                        \
    do {                                                                                                     \
        THE_SAME(offsetof(ncclConfig_t, theirs_name), offsetof(struct gpusys_nccl_config, ours_name));       \
        AS_BIG(theirs.theirs_name, ours.ours_name);                                                          \
        printf("%s %s %zu %zu %lld %lld\n", #theirs_name, #ours_name, offsetof(ncclConfig_t, theirs_name),   \
               sizeof theirs.theirs_name, (long long)theirs.theirs_name, (long long)ours.ours_name);         \
    } while (0)

static void print_config(void)
{
    ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    struct gpusys_nccl_config ours;
    gpusys_nccl_config_init(&ours);
    FIELD(size, size);
    FIELD(magic, magic);
    FIELD(version, version);
    FIELD(blocking, blocking);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
    FIELD(cgaClusterSize, cga_cluster_size);
    FIELD(minCTAs, min_ctas);
    FIELD(maxCTAs, max_ctas);
    FIELD(netName, net_name);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
    FIELD(splitShare, split_share);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 0)
    FIELD(trafficClass, traffic_class);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    FIELD(commName, comm_name);
    FIELD(collnetEnable, collnet_enable);
    FIELD(CTAPolicy, cta_policy);
    FIELD(shrinkShare, shrink_share);
    FIELD(nvlsCTAs, nvls_ctas);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    FIELD(nChannelsPerNetPeer, n_channels_per_net_peer);
    FIELD(nvlinkCentricSched, nvlink_centric_sched);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
    FIELD(graphUsageMode, graph_usage_mode);
    FIELD(numRmaCtx, num_rma_ctx);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
    FIELD(maxP2pPeers, max_p2p_peers);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 5)
    FIELD(graphStreamOrdering, graph_stream_ordering);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
    FIELD(launchOrderImplicit, launch_order_implicit);
    FIELD(numRmaSig, num_rma_sig);
    FIELD(rmaEagerInit, rma_eager_init);
    FIELD(hostCftMode, host_cft_mode);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
    FIELD(nvlsHostMode, nvls_host_mode);
#endif
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
static int check_sim_info(void)
{
    ncclSimInfo_t theirs = NCCL_SIM_INFO_INITIALIZER;
    struct gpusys_nccl_sim_info ours;
    gpusys_nccl_sim_info_init(&ours);
    return theirs.size != ours.size || theirs.magic != ours.magic ||
           theirs.estimatedTime != ours.estimated_time;
}
#endif

int main(void)
{
    int major, minor, patch;
    gpusys_nccl_version_parts(NCCL_VERSION_CODE, &major, &minor, &patch);
    if (major != NCCL_MAJOR || minor != NCCL_MINOR || patch != NCCL_PATCH)
        return 2;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
    print_config();
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
    if (check_sim_info())
        return 3;
#endif
    return 0;
}
