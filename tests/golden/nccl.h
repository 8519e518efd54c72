/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * NCCL's ncclConfig_t in every version that we have seen, as `tests/abi/nccl-headers --golden` prints it.
 *
 * NCCL_GOLDEN_FIELDS(ROW): ROW(name in nccl.h, name of ours, offset, bytes, the first version that has it).
 * NCCL_GOLDEN_LAYOUTS(ROW): ROW(version, size of the struct, fields in it); 0 and 0: there is none.
 */
#ifndef GPUSYS_GOLDEN_NCCL_H
#define GPUSYS_GOLDEN_NCCL_H

/* clang-format off */
#define NCCL_GOLDEN_FIELDS(ROW)                                                                               \
    ROW(size, size, 0, 8, 21403)                                                                              \
    ROW(magic, magic, 8, 4, 21403)                                                                            \
    ROW(version, version, 12, 4, 21403)                                                                       \
    ROW(blocking, blocking, 16, 4, 21403)                                                                     \
    ROW(cgaClusterSize, cga_cluster_size, 20, 4, 21701)                                                       \
    ROW(minCTAs, min_ctas, 24, 4, 21701)                                                                      \
    ROW(maxCTAs, max_ctas, 28, 4, 21701)                                                                      \
    ROW(netName, net_name, 32, 8, 21701)                                                                      \
    ROW(splitShare, split_share, 40, 4, 21801)                                                                \
    ROW(trafficClass, traffic_class, 44, 4, 22602)                                                            \
    ROW(commName, comm_name, 48, 8, 22703)                                                                    \
    ROW(collnetEnable, collnet_enable, 56, 4, 22703)                                                          \
    ROW(CTAPolicy, cta_policy, 60, 4, 22703)                                                                  \
    ROW(shrinkShare, shrink_share, 64, 4, 22703)                                                              \
    ROW(nvlsCTAs, nvls_ctas, 68, 4, 22703)                                                                    \
    ROW(nChannelsPerNetPeer, n_channels_per_net_peer, 72, 4, 22803)                                           \
    ROW(nvlinkCentricSched, nvlink_centric_sched, 76, 4, 22803)                                               \
    ROW(graphUsageMode, graph_usage_mode, 80, 4, 22902)                                                       \
    ROW(numRmaCtx, num_rma_ctx, 84, 4, 22902)                                                                 \
    ROW(maxP2pPeers, max_p2p_peers, 88, 4, 23003)                                                             \
    ROW(graphStreamOrdering, graph_stream_ordering, 92, 4, 23007)                                             \
    ROW(launchOrderImplicit, launch_order_implicit, 96, 4, 23102)                                             \
    ROW(numRmaSig, num_rma_sig, 100, 4, 23102)                                                                \
    ROW(rmaEagerInit, rma_eager_init, 104, 4, 23102)                                                          \
    ROW(hostCftMode, host_cft_mode, 108, 4, 23102)                                                            \
    ROW(nvlsHostMode, nvls_host_mode, 112, 4, 23203)

#define NCCL_GOLDEN_LAYOUTS(ROW)                                                                              \
    ROW(21304, 0, 0)                                                                                          \
    ROW(21403, 24, 4)                                                                                         \
    ROW(21505, 24, 4)                                                                                         \
    ROW(21602, 24, 4)                                                                                         \
    ROW(21605, 24, 4)                                                                                         \
    ROW(21701, 40, 8)                                                                                         \
    ROW(21801, 48, 9)                                                                                         \
    ROW(21803, 48, 9)                                                                                         \
    ROW(21903, 48, 9)                                                                                         \
    ROW(22003, 48, 9)                                                                                         \
    ROW(22005, 48, 9)                                                                                         \
    ROW(22105, 48, 9)                                                                                         \
    ROW(22203, 48, 9)                                                                                         \
    ROW(22304, 48, 9)                                                                                         \
    ROW(22403, 48, 9)                                                                                         \
    ROW(22501, 48, 9)                                                                                         \
    ROW(22602, 48, 10)                                                                                        \
    ROW(22605, 48, 10)                                                                                        \
    ROW(22703, 72, 15)                                                                                        \
    ROW(22705, 72, 15)                                                                                        \
    ROW(22706, 72, 15)                                                                                        \
    ROW(22707, 72, 15)                                                                                        \
    ROW(22803, 80, 17)                                                                                        \
    ROW(22807, 80, 17)                                                                                        \
    ROW(22809, 80, 17)                                                                                        \
    ROW(22902, 88, 19)                                                                                        \
    ROW(22903, 88, 19)                                                                                        \
    ROW(22907, 88, 19)                                                                                        \
    ROW(23003, 96, 20)                                                                                        \
    ROW(23004, 96, 20)                                                                                        \
    ROW(23007, 96, 21)                                                                                        \
    ROW(23102, 112, 25)                                                                                       \
    ROW(23203, 120, 26)
/* clang-format on */

#endif
