/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NCCL's types by name and size, its version numbers, and its structs as a library of any version reads them. */
#include <gpusys/nccl.h>

#define MAGIC_CONFIG   0xcafebeefu
#define MAGIC_SIM_INFO 0x74685283u
#define NEWEST_LAYOUT  23203 /* the nccl.h that our structs are like */

#define COUNT_OF(array) (int)(sizeof(array) / sizeof *(array))

static const struct {
    const char *name;
    uint32_t bytes;
} types[GPUSYS_NCCL_TYPES] = {
    [GPUSYS_NCCL_INT8] = {"int8", 1},
    [GPUSYS_NCCL_UINT8] = {"uint8", 1},
    [GPUSYS_NCCL_INT32] = {"int32", 4},
    [GPUSYS_NCCL_UINT32] = {"uint32", 4},
    [GPUSYS_NCCL_INT64] = {"int64", 8},
    [GPUSYS_NCCL_UINT64] = {"uint64", 8},
    [GPUSYS_NCCL_FLOAT16] = {"float16", 2},
    [GPUSYS_NCCL_FLOAT32] = {"float32", 4},
    [GPUSYS_NCCL_FLOAT64] = {"float64", 8},
    [GPUSYS_NCCL_BFLOAT16] = {"bfloat16", 2},
    [GPUSYS_NCCL_FLOAT8E4M3] = {"float8e4m3", 1},
    [GPUSYS_NCCL_FLOAT8E5M2] = {"float8e5m2", 1},
};

static const char *const ops[GPUSYS_NCCL_OPS] = {"sum", "prod", "max", "min", "avg"};

static const char *const results[] = {
    "success",       "unhandled CUDA error", "system error", "internal error", "invalid argument",
    "invalid usage", "remote error",         "in progress",  "timeout",
};

uint32_t gpusys_nccl_type_bytes(int type)
{
    return type >= 0 && type < GPUSYS_NCCL_TYPES ? types[type].bytes : 0;
}

const char *gpusys_nccl_type_name(int type)
{
    return type >= 0 && type < GPUSYS_NCCL_TYPES ? types[type].name : "unknown";
}

const char *gpusys_nccl_op_name(int op)
{
    if (op < 0)
        return "unknown";
    return op < GPUSYS_NCCL_OPS ? ops[op] : "custom";
}

const char *gpusys_nccl_result_name(int result)
{
    return result >= 0 && result < COUNT_OF(results) ? results[result] : "unknown";
}

/* X.Y.Z is X·1000 + Y·100 + Z up to 2.8, and X·10000 + Y·100 + Z since 2.9. */
void gpusys_nccl_version_parts(int code, int *ret_major, int *ret_minor, int *ret_patch)
{
    int thousands = code < 10000 ? 1000 : 10000;
    *ret_major = code / thousands;
    *ret_minor = code % thousands / 100;
    *ret_patch = code % 100;
}

void gpusys_nccl_config_init(struct gpusys_nccl_config *config)
{
    *config = (struct gpusys_nccl_config){
        .size = sizeof *config,
        .magic = MAGIC_CONFIG,
        .version = NEWEST_LAYOUT,
        .blocking = 1, /* libraries before 2.17 refuse one that is not set */
        .cga_cluster_size = GPUSYS_NCCL_UNSET,
        .min_ctas = GPUSYS_NCCL_UNSET,
        .max_ctas = GPUSYS_NCCL_UNSET,
        .split_share = GPUSYS_NCCL_UNSET,
        .traffic_class = GPUSYS_NCCL_UNSET,
        .collnet_enable = GPUSYS_NCCL_UNSET,
        .cta_policy = GPUSYS_NCCL_UNSET,
        .shrink_share = GPUSYS_NCCL_UNSET,
        .nvls_ctas = GPUSYS_NCCL_UNSET,
        .n_channels_per_net_peer = GPUSYS_NCCL_UNSET,
        .nvlink_centric_sched = GPUSYS_NCCL_UNSET,
        .graph_usage_mode = GPUSYS_NCCL_UNSET,
        .num_rma_ctx = GPUSYS_NCCL_UNSET,
        .max_p2p_peers = GPUSYS_NCCL_UNSET,
        .graph_stream_ordering = GPUSYS_NCCL_UNSET,
        .launch_order_implicit = GPUSYS_NCCL_UNSET,
        .num_rma_sig = GPUSYS_NCCL_UNSET,
        .rma_eager_init = GPUSYS_NCCL_UNSET,
        .host_cft_mode = GPUSYS_NCCL_UNSET,
        .nvls_host_mode = GPUSYS_NCCL_UNSET,
    };
}

void gpusys_nccl_sim_info_init(struct gpusys_nccl_sim_info *info)
{
    *info = (struct gpusys_nccl_sim_info){
        .size = sizeof *info,
        .magic = MAGIC_SIM_INFO,
        .version = NEWEST_LAYOUT,
        .estimated_time = -1.0f,
    };
}
