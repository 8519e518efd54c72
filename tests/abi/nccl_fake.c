/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The stand-in libnccl against NVIDIA's nccl.h: a prototype or a struct that differs does not compile; and a config that
 * this header's initialiser made is read by the stand-in of its version. The argument is the stand-in's file. Exit
 * status 77: the header is too old to have it all.
 */
#include <nccl.h>

#if NCCL_VERSION_CODE < 22803
int main(void)
{
    return 77;
}
#else
#include "fake/nccl_control.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define CONFIG_SAME(theirs, ours)                                                                            \
    _Static_assert(offsetof(ncclConfig_t, theirs) == offsetof(struct fake_nccl_config, ours), #ours);        \
    _Static_assert(sizeof((ncclConfig_t){0}.theirs) == sizeof((struct fake_nccl_config){0}.ours), #ours)

_Static_assert(sizeof(ncclUniqueId) == sizeof(struct fake_nccl_id), "unique id");
_Static_assert(sizeof(ncclSimInfo_t) == sizeof(struct fake_nccl_sim_info), "simulation");
_Static_assert(offsetof(ncclSimInfo_t, estimatedTime) == offsetof(struct fake_nccl_sim_info, estimated_time),
               "simulation");
CONFIG_SAME(size, size);
CONFIG_SAME(magic, magic);
CONFIG_SAME(version, version);
CONFIG_SAME(blocking, blocking);
CONFIG_SAME(cgaClusterSize, cga_cluster_size);
CONFIG_SAME(minCTAs, min_ctas);
CONFIG_SAME(maxCTAs, max_ctas);
CONFIG_SAME(netName, net_name);
CONFIG_SAME(splitShare, split_share);
CONFIG_SAME(trafficClass, traffic_class);
CONFIG_SAME(commName, comm_name);
CONFIG_SAME(collnetEnable, collnet_enable);
CONFIG_SAME(CTAPolicy, cta_policy);
CONFIG_SAME(shrinkShare, shrink_share);
CONFIG_SAME(nvlsCTAs, nvls_ctas);
CONFIG_SAME(nChannelsPerNetPeer, n_channels_per_net_peer);
CONFIG_SAME(nvlinkCentricSched, nvlink_centric_sched);
#if NCCL_VERSION_CODE >= 22902
CONFIG_SAME(graphUsageMode, graph_usage_mode);
CONFIG_SAME(numRmaCtx, num_rma_ctx);
#endif
#if NCCL_VERSION_CODE >= 23003
CONFIG_SAME(maxP2pPeers, max_p2p_peers);
#endif
#if NCCL_VERSION_CODE >= 23007
CONFIG_SAME(graphStreamOrdering, graph_stream_ordering);
#endif
#if NCCL_VERSION_CODE >= 23102
CONFIG_SAME(launchOrderImplicit, launch_order_implicit);
CONFIG_SAME(numRmaSig, num_rma_sig);
CONFIG_SAME(rmaEagerInit, rma_eager_init);
CONFIG_SAME(hostCftMode, host_cft_mode);
#endif
#if NCCL_VERSION_CODE >= 23203
CONFIG_SAME(nvlsHostMode, nvls_host_mode);
_Static_assert(sizeof(ncclConfig_t) == sizeof(struct fake_nccl_config), "the whole config");
#endif

#define FIND(library, name) __typeof__(name) *find_##name = (__typeof__(name) *)dlsym(library, #name)
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                                  \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static int check_config(void *library)
{
    FIND(library, ncclGetUniqueId);
    FIND(library, ncclCommInitRankConfig);
    FIND(library, ncclCommDestroy);
    FIND(library, fake_nccl_parsed_config);
    CHECK(find_ncclGetUniqueId && find_ncclCommInitRankConfig && find_ncclCommDestroy &&
          find_fake_nccl_parsed_config);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm;
    struct fake_nccl_config parsed;
    config.splitShare = 1;
    config.nChannelsPerNetPeer = 3;
    CHECK(find_ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(find_ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclSuccess);
    find_fake_nccl_parsed_config(comm, &parsed);
    CHECK(parsed.size == sizeof config && parsed.version == NCCL_VERSION_CODE && parsed.blocking == 1);
    CHECK(parsed.split_share == 1 && parsed.n_channels_per_net_peer == 3 &&
          parsed.traffic_class == NCCL_CONFIG_UNDEF_INT);
    CHECK(find_ncclCommDestroy(comm) == ncclSuccess);
    return 0;
}

int main(int argc, char **argv)
{
    char version[16];
    snprintf(version, sizeof version, "%d", NCCL_VERSION_CODE);
    setenv("FAKE_NCCL_VERSION", version, 1);
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        fprintf(stderr, "cannot load the stand-in: %s\n", argc == 2 ? dlerror() : "it was not named");
        return 1;
    }
    return check_config(library);
}
#endif
