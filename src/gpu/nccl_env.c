/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The names that NCCL reads from the environment, and the one that was meant by a name that it does not read. */
#include "gpu/preflight.h"

#include <stdint.h>
#include <string.h>

/* Without "NCCL_". Those of 2.28, and older and newer ones; what a newer library has beyond it is looked up there. */
static const char *const names[] = {
    "ALGO",
    "ALLOC_P2P_NET_LL_BUFFERS",
    "BUFFSIZE",
    "CGA_CLUSTER_SIZE",
    "CHECKS_DISABLE",
    "CHECK_POINTERS",
    "CHUNK_SIZE",
    "COLLNET_ENABLE",
    "COLLNET_NODE_THRESHOLD",
    "COMM_BLOCKING",
    "COMM_ID",
    "COMM_SHRINK_SHARE_RESOURCES",
    "COMM_SPLIT_SHARE_RESOURCES",
    "CONF_FILE",
    "CONNECT_ROUND_MAX_PEERS",
    "CREATE_THREAD_CONTEXT",
    "CROSS_NIC",
    "CTA_POLICY",
    "CUMEM_ENABLE",
    "CUMEM_HOST_ENABLE",
    "DEBUG",
    "DEBUG_FILE",
    "DEBUG_SUBSYS",
    "DEBUG_TIMESTAMP_FORMAT",
    "DEBUG_TIMESTAMP_LEVELS",
    "DMABUF_ENABLE",
    "ENV_PLUGIN",
    "GDRCOPY_ENABLE",
    "GDRCOPY_FIFO_ENABLE",
    "GDRCOPY_FLUSH_ENABLE",
    "GDRCOPY_SYNC_ENABLE",
    "GDR_FLUSH_DISABLE",
    "GIN_COUNTER_POOL_SIZE",
    "GIN_ENABLE",
    "GIN_ERROR_QUERY_SEC",
    "GIN_GDAKI_NIC_HANDLER",
    "GIN_GDAKI_QP_DEPTH",
    "GIN_IB_ALLGATHER_TAG",
    "GIN_IB_ALLTOALL_TAG",
    "GIN_NCONTEXTS",
    "GIN_PLUGIN",
    "GIN_PROXY_QUEUE_SIZE",
    "GIN_SIGNAL_POOL_SIZE",
    "GIN_TYPE",
    "GRAPH_DUMP_FILE",
    "GRAPH_DUMP_FILE_RANK",
    "GRAPH_FILE",
    "GRAPH_HELPER_DISABLE",
    "GRAPH_MIXING_SUPPORT",
    "GRAPH_REGISTER",
    "GRAPH_STREAM_ORDERING",
    "GROUP_CUDA_STREAM",
    "HOSTID",
    "IB_ADAPTIVE_ROUTING",
    "IB_ADDR_FAMILY",
    "IB_ADDR_RANGE",
    "IB_AR_THRESHOLD",
    "IB_CUDA_SUPPORT",
    "IB_DATA_DIRECT",
    "IB_DISABLE",
    "IB_ECE_ENABLE",
    "IB_FIFO_TC",
    "IB_GDR_LEVEL",
    "IB_GID_INDEX",
    "IB_HCA",
    "IB_MERGE_NICS",
    "IB_MERGE_VFS",
    "IB_MQP_RETRY_ALL",
    "IB_MQP_RETRY_CNT",
    "IB_MQP_RETRY_SLEEP_MSEC",
    "IB_PCI_RELAXED_ORDERING",
    "IB_PKEY",
    "IB_QPS_PER_CONNECTION",
    "IB_RECEIVER_SIDE_MATCHING_SCHEME",
    "IB_RETRY_CNT",
    "IB_RETURN_ASYNC_EVENTS",
    "IB_ROCE_VERSION_NUM",
    "IB_ROUTABLE_FLID_GID_INDEX",
    "IB_SL",
    "IB_SPLIT_DATA_ON_QPS",
    "IB_TC",
    "IB_TIMEOUT",
    "IB_USE_INLINE",
    "IB_WARN_RAIL_LOCAL",
    "IGNORE_CPU_AFFINITY",
    "IGNORE_DISABLED_P2P",
    "IPC_COLLECTIVE",
    "IPC_SENDRECV",
    "L1_SHARED_MEMORY_CARVEOUT",
    "LAUNCH_MODE",
    "LAUNCH_ORDER_IMPLICIT",
    "LAUNCH_RACE_FATAL",
    "LEGACY_CUDA_REGISTER",
    "LL128_BUFFSIZE",
    "LL128_C2C",
    "LL128_NTHREADS",
    "LL_BUFFSIZE",
    "LL_THRESHOLD",
    "LOCAL_REGISTER",
    "MAX_CTAS",
    "MAX_NCHANNELS",
    "MAX_NRINGS",
    "MAX_P2P_NCHANNELS",
    "MEM_SYNC_DOMAIN",
    "MIN_CTAS",
    "MIN_NCHANNELS",
    "MIN_NRINGS",
    "MIN_P2P_NCHANNELS",
    "MNNVL_CLIQUE_ID",
    "MNNVL_ENABLE",
    "MNNVL_RAIL_PER_HOST",
    "MNNVL_SCATTER_NETS_ENABLE",
    "MNNVL_UUID",
    "NCHANNELS_PER_NET_PEER",
    "NET",
    "NETDEVS_POLICY",
    "NET_DISABLE_INTRA",
    "NET_FORCE_FLUSH",
    "NET_FORCE_MERGE",
    "NET_GDR_C2C",
    "NET_GDR_LEVEL",
    "NET_GDR_READ",
    "NET_MERGE_LEVEL",
    "NET_OPTIONAL_RECV_COMPLETION",
    "NET_OVERHEAD",
    "NET_PLUGIN",
    "NET_PLUGIN_REF_COUNT",
    "NET_SHARED_BUFFERS",
    "NET_SHARED_COMMS",
    "NO_CACHE",
    "NSOCKS_PERTHREAD",
    "NTHREADS",
    "NVB_DISABLE",
    "NVB_PRECONNECT",
    "NVLINK_UTIL_CENTRIC_SCHED_ENABLE",
    "NVLSTREE_MAX_CHUNKSIZE",
    "NVLS_CHUNKSIZE",
    "NVLS_ENABLE",
    "NVLS_NCHANNELS",
    "NVTX_DISABLE",
    "OOB_NET_ENABLE",
    "OOB_NET_IFNAME",
    "P2P_DIRECT_DISABLE",
    "P2P_DISABLE",
    "P2P_LEVEL",
    "P2P_LL_THRESHOLD",
    "P2P_NET_CHUNKSIZE",
    "P2P_NVL_CHUNKSIZE",
    "P2P_PCI_CHUNKSIZE",
    "P2P_PXN_LEVEL",
    "P2P_READ_ENABLE",
    "P2P_SCHEDULE_GROUP_SIZE",
    "P2P_USE_CUDA_MEMCPY",
    "PAT_ENABLE",
    "PROFILER_PLUGIN",
    "PROFILE_DUMP_FILE",
    "PROFILE_EVENT_MASK",
    "PROGRESS_APPENDOP_FREQ",
    "PROTO",
    "PROXY_APPEND_BATCH_SIZE",
    "PROXY_CPUSET",
    "PROXY_DUMP_SIGNAL",
    "PXN_C2C",
    "PXN_DISABLE",
    "RAS_ADDR",
    "RAS_ENABLE",
    "RAS_TIMEOUT_FACTOR",
    "REPORT_CONNECT_PROGRESS",
    "RINGS",
    "RUNTIME_CONNECT",
    "SET_CPU_STACK_SIZE",
    "SET_STACK_SIZE",
    "SET_THREAD_NAME",
    "SHM_DISABLE",
    "SHM_LOCALITY",
    "SHM_MEMCPY_MODE",
    "SHM_USE_CUDA_MEMCPY",
    "SINGLE_PROC_MEM_REG_ENABLE",
    "SINGLE_RING_THRESHOLD",
    "SOCKET_FAMILY",
    "SOCKET_IFNAME",
    "SOCKET_INLINE",
    "SOCKET_MIN_TASKSIZE",
    "SOCKET_NTHREADS",
    "SOCKET_POLL_TIMEOUT_MSEC",
    "SOCKET_RCVBUF",
    "SOCKET_RETRY_CNT",
    "SOCKET_RETRY_SLEEP_MSEC",
    "SOCKET_SNDBUF",
    "SYM_CTAS",
    "SYM_KERNEL",
    "THREAD_THRESHOLDS",
    "TOPO_DUMP_FILE",
    "TOPO_DUMP_FILE_RANK",
    "TOPO_FILE",
    "TREES",
    "TREE_THRESHOLD",
    "TUNER_CONFIG_FILE",
    "TUNER_PLUGIN",
    "UID_STAGGER_RATE",
    "UID_STAGGER_THRESHOLD",
    "UNPACK_DOUBLE_NCHANNELS",
    "WARN_ENABLE_DEBUG_INFO",
    "WIN_ENABLE",
    "WIN_STRIDE",
    "WORK_ARGS_BYTES",
    "WORK_FIFO_BYTES",
    "WORK_FIFO_DEPTH",
};
enum { N_NAMES = sizeof names / sizeof *names };

/* Whole names of others: of frameworks that read them themselves, and of builds. */
static const char *const others[] = {
    "ASYNC_ERROR_HANDLING",
    "BLOCKING_WAIT",
    "DESYNC_DEBUG",
    "DIR",
    "ENABLE_TIMING",
    "HOME",
    "INCLUDE_DIR",
    "INCLUDE_DIRS",
    "INCLUDE_PATH",
    "LIBRARIES",
    "LIBRARY",
    "LIBRARY_PATH",
    "LIB_DIR",
    "LINK_TYPE",
    "PATH",
    "ROOT",
    "ROOT_DIR",
    "VERSION",
};

/* Beginnings of names of plugins and tools. */
static const char *const families[] = {"FASTRAK_",   "GPUDIRECTTCPX_", "GPUDIRECTTCPXO_", "IBEXT_",
                                       "INSPECTOR_", "SHARP_",         "TCPX_",           "TESTS_",
                                       "TEST_",      "UCX_",           "TELEMETRY_",      "SOCKET_PLUGIN_"};

/* The name behind "NCCL_", or NULL. */
static const char *own_part(const char *name)
{
    return strncmp(name, "NCCL_", 5) == 0 && name[5] ? name + 5 : NULL;
}

static bool is_in(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0)
            return true;
    return false;
}

enum gs_nccl_name gs_nccl_name(const char *name)
{
    const char *word = own_part(name);
    if (!word)
        return GS_NAME_UNKNOWN;
    if (is_in(word, names, N_NAMES))
        return GS_NAME_NCCL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strncmp(word, families[i], strlen(families[i])) == 0)
            return GS_NAME_OTHERS;
    return is_in(word, others, sizeof others / sizeof *others) ? GS_NAME_OTHERS : GS_NAME_UNKNOWN;
}

/* ---- the nearest ---- */

enum { MOST_LETTERS = 40 };

static unsigned least(unsigned a, unsigned b, unsigned c)
{
    unsigned low = a < b ? a : b;
    return low < c ? low : c;
}

/* How many letters to insert, drop or replace. */
static unsigned distance(const char *from, size_t n_from, const char *to, size_t n_to)
{
    unsigned row[MOST_LETTERS + 1];
    for (size_t j = 0; j <= n_to; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n_from; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_to; j++) {
            unsigned above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (from[i - 1] != to[j - 1]));
            diagonal = above;
        }
    }
    return row[n_to];
}

/* The words of a name in any order, "DISABLE_IB": a sum that does not care for it. */
static uint64_t sum_of_words(const char *name)
{
    uint64_t sum = 0;
    while (*name) {
        uint64_t word = 14695981039346656037u; /* FNV-1a */
        for (; *name && *name != '_'; name++)
            word = (word ^ (unsigned char)*name) * 1099511628211u;
        sum += word;
        name += *name == '_';
    }
    return sum;
}

const char *gs_nccl_name_near(const char *name)
{
    const char *word = own_part(name), *best = NULL;
    size_t n_word = word ? strlen(word) : 0;
    if (n_word == 0 || n_word > MOST_LETTERS)
        return NULL;
    unsigned best_distance = n_word < 6 ? 2 : n_word < 10 ? 3 : 4; /* one must be nearer than this */
    for (size_t i = 0; i < N_NAMES; i++) {
        size_t length = strlen(names[i]);
        if (length > MOST_LETTERS)
            continue;
        unsigned away = distance(word, n_word, names[i], length);
        if (away > 1 && sum_of_words(word) == sum_of_words(names[i]))
            away = 1;
        if (away < best_distance) {
            best_distance = away;
            best = names[i];
        }
    }
    return best;
}
