/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: how a library of the emulated version reads a config. */
#include "fake/nccl.h"

#include <string.h>

enum { MAGIC = (int)0xcafebeefu };
#define CONFIG struct fake_nccl_config

/* The bytes that a library of some version knows; its own fields end there. */
static size_t own_size(void)
{
    static const struct {
        int since;
        size_t bytes;
    } sizes[] = {{23200, 120}, {23100, 112}, {23003, 96}, {22900, 88}, {22800, 80},
                 {22700, 72},  {21800, 48},  {21700, 40}, {0, 24}};
    size_t i = 0;
    while (fake_version < sizes[i].since)
        i++;
    return sizes[i].bytes;
}

static void clear(CONFIG *config)
{
    *config = (CONFIG){.blocking = UNSET,
                       .cga_cluster_size = UNSET,
                       .min_ctas = UNSET,
                       .max_ctas = UNSET,
                       .split_share = UNSET,
                       .traffic_class = UNSET,
                       .collnet_enable = UNSET,
                       .cta_policy = UNSET,
                       .shrink_share = UNSET,
                       .nvls_ctas = UNSET,
                       .n_channels_per_net_peer = UNSET,
                       .nvlink_centric_sched = UNSET,
                       .graph_usage_mode = UNSET,
                       .num_rma_ctx = UNSET,
                       .max_p2p_peers = UNSET,
                       .graph_stream_ordering = UNSET,
                       .launch_order_implicit = UNSET,
                       .num_rma_sig = UNSET,
                       .rma_eager_init = UNSET,
                       .host_cft_mode = UNSET,
                       .nvls_host_mode = UNSET};
}

/* Fields that the caller's header did not have yet: since when, and where. Those in former padding are told apart by this
 * alone. */
static const struct {
    unsigned since;
    size_t offset, bytes;
} fields[] = {
    {21400, offsetof(CONFIG, blocking), sizeof(int)},
    {21700, offsetof(CONFIG, cga_cluster_size), 3 * sizeof(int)},
    {21700, offsetof(CONFIG, net_name), sizeof(char *)},
    {22500, offsetof(CONFIG, traffic_class), sizeof(int)},
    {22700, offsetof(CONFIG, comm_name), sizeof(char *)},
    {22700, offsetof(CONFIG, collnet_enable), 4 * sizeof(int)},
    {22800, offsetof(CONFIG, n_channels_per_net_peer), 2 * sizeof(int)},
    {22900, offsetof(CONFIG, graph_usage_mode), 2 * sizeof(int)},
    {23000, offsetof(CONFIG, max_p2p_peers), sizeof(int)},
    {23005, offsetof(CONFIG, graph_stream_ordering), sizeof(int)},
    {23100, offsetof(CONFIG, launch_order_implicit), 4 * sizeof(int)},
    {23200, offsetof(CONFIG, nvls_host_mode), sizeof(int)},
};

/* The padding at the end of a layout became a field later: a library that does not have that yet does not see it. */
static void forget(CONFIG *config, unsigned version)
{
    CONFIG unset;
    clear(&unset);
    if (fake_version < 21700)
        config->cga_cluster_size = UNSET;
    if (fake_version < 22600)
        config->traffic_class = UNSET;
    if (fake_version < 23005)
        config->graph_stream_ordering = UNSET;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (version < fields[i].since)
            memcpy((char *)config + fields[i].offset, (char *)&unset + fields[i].offset, fields[i].bytes);
}

static bool is_switch(int value)
{
    return value == UNSET || value == 0 || value == 1;
}

static int check(const CONFIG *config)
{
    bool must = fake_version < 21700; /* blocking has to be said */
    if (!is_switch(config->blocking) || (must && config->blocking == UNSET))
        return fake_say(INVALID_ARGUMENT, "Invalid config blocking attribute value %d", config->blocking);
    if (config->cga_cluster_size != UNSET && config->cga_cluster_size < 0)
        return fake_say(INVALID_ARGUMENT, "Invalid config cgaClusterSize attribute value %d",
                        config->cga_cluster_size);
    if ((config->min_ctas != UNSET && config->min_ctas <= 0) ||
        (config->max_ctas != UNSET && config->max_ctas <= 0) || config->min_ctas > config->max_ctas)
        return fake_say(INVALID_ARGUMENT, "Invalid config min/max channels attribute value %d/%d",
                        config->min_ctas, config->max_ctas);
    if (!is_switch(config->split_share))
        return fake_say(INVALID_ARGUMENT, "Invalid config splitShare attribute value %d",
                        config->split_share);
    if (!is_switch(config->collnet_enable))
        return fake_say(INVALID_ARGUMENT, "Invalid config collnetEnable attribute value %d",
                        config->collnet_enable);
    if (config->cta_policy != UNSET && (config->cta_policy < 0 || config->cta_policy > 2))
        return fake_say(INVALID_ARGUMENT, "Invalid config policy attribute value %d", config->cta_policy);
    if (!is_switch(config->shrink_share))
        return fake_say(INVALID_ARGUMENT, "Invalid config shrinkShare attribute value %d",
                        config->shrink_share);
    if (config->nvls_ctas != UNSET && config->nvls_ctas <= 0)
        return fake_say(INVALID_ARGUMENT, "Invalid config nvlsCTAs attribute value %d", config->nvls_ctas);
    return SUCCESS;
}

int fake_parse_config(CONFIG *ret_config, const void *config)
{
    CONFIG parsed;
    clear(&parsed);
    parsed.magic = (unsigned)MAGIC;
    parsed.version = (unsigned)fake_version;
    if (config) {
        size_t size;
        memcpy(&size, config, sizeof size);
        memcpy(&parsed, config, size < own_size() ? size : own_size());
        if (parsed.magic != (unsigned)MAGIC)
            return fake_say(INVALID_ARGUMENT,
                            "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
        forget(&parsed, parsed.version);
        /* The oldest layout's own default. */
        if (parsed.version < 21400)
            parsed.blocking = 1;
    } else {
        parsed.blocking = 1;
    }
    parsed.size = own_size();
    int result = check(&parsed);
    if (result == SUCCESS) {
        if (parsed.blocking == UNSET)
            parsed.blocking = 1;
        *ret_config = parsed;
    }
    return result;
}
