/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A queue pair's states: RESET, INIT, RTR, RTS, ERR; and why it may not pass from one to the next. */
#include "base/gid.h"
#include "base/options.h"
#include "rail/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    SPOKEN_READS = 16,      /* of peers that do not say how many they answer at once */
    MOST_READS = UINT8_MAX, /* the attribute has one byte */
    RNR_TIMER = 12,         /* 0.64 ms */
};

/* ---- words ---- */

static void add_end(struct gpusys_error *error, const char *name, const struct gpusys_qp_end *end,
                    bool has_index)
{
    char gid[GS_GID_TEXT_BYTES], index[16] = "", mtu[32] = "MTU not said", lid[24] = "";
    if (has_index)
        snprintf(index, sizeof index, " %u", end->gid_index);
    if (end->mtu_bytes)
        snprintf(mtu, sizeof mtu, "MTU %u", end->mtu_bytes);
    if (end->lid)
        snprintf(lid, sizeof lid, ", LID %u", end->lid);
    gpusys_error_add_detail(error, name, "QPN %#x, PSN %#x, GID%s %s, %s%s", end->qpn, end->psn, index,
                            gs_gid_text(gid, end->gid), mtu, lid);
}

void gs_qp_add_ends(const struct gpusys_qp *qp, struct gpusys_error *error)
{
    add_end(error, "local", &qp->local, true);
    add_end(error, "remote", &qp->remote, false);
}

/* ---- transitions ---- */

static int modify(const struct gpusys_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    errno = 0;
    int result = qp->verbs->ibv->modify_qp(qp->qp, attributes, mask);
    return result ? gs_ibv_errno(result) : 0;
}

int gs_qp_to_init(struct gpusys_qp *qp, struct gpusys_error *error)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .pkey_index = (uint16_t)qp->options.pkey_index,
                                     .port_num = (uint8_t)qp->verbs->port,
                                     .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                                        IBV_ACCESS_REMOTE_WRITE};
    int result =
        modify(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (!result)
        return 0;
    gpusys_error_set_errno(error, result, "%s port %u: a queue pair to INIT", qp->info.device,
                           qp->verbs->port);
    gpusys_error_add_detail(error, "local", "partition key index %u", qp->options.pkey_index);
    if (result == -EINVAL && qp->options.pkey_index)
        gpusys_error_set_cause(error, "the port's table of partition keys has no such index");
    return result;
}

int gs_qp_to_error(struct gpusys_qp *qp)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    return modify(qp, &attributes, IBV_QP_STATE);
}

static bool same_subnet_prefix(const uint8_t a[16], const uint8_t b[16])
{
    return memcmp(a, b, 8) == 0;
}

/* RoCE is always routed by GID; InfiniBand by LID, with the GRH where a port or the subnets want it. */
static bool needs_grh(const struct gpusys_qp *qp)
{
    if (qp->local.link_layer != GPUSYS_LINK_INFINIBAND)
        return true;
    return qp->local.grh_required || qp->remote.grh_required || !qp->remote.lid ||
           !same_subnet_prefix(qp->local.gid, qp->remote.gid);
}

static struct ibv_ah_attr path_to_peer(const struct gpusys_qp *qp)
{
    struct ibv_ah_attr path = {.port_num = (uint8_t)qp->verbs->port,
                               .sl = qp->options.service_level,
                               .dlid = (uint16_t)qp->remote.lid,
                               .is_global = qp->uses_grh};
    if (!qp->uses_grh)
        return path;
    path.grh = (struct ibv_global_route){.sgid_index = (uint8_t)qp->local.gid_index,
                                         .hop_limit = (uint8_t)qp->options.hop_limit,
                                         .traffic_class = qp->options.traffic_class};
    memcpy(&path.grh.dgid, qp->remote.gid, sizeof path.grh.dgid);
    return path;
}

static int to_rtr(struct gpusys_qp *qp)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR,
                                     .path_mtu = gs_mtu_enum(qp->mtu_bytes),
                                     .dest_qp_num = qp->remote.qpn,
                                     .rq_psn = qp->remote.psn,
                                     .max_dest_rd_atomic = (uint8_t)qp->reads_in,
                                     .min_rnr_timer = RNR_TIMER,
                                     .ah_attr = path_to_peer(qp)};
    return modify(qp, &attributes,
                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct gpusys_qp *qp, uint32_t psn)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTS,
                                     .timeout = qp->options.ack_timeout,
                                     .retry_cnt = qp->options.retry_count,
                                     .rnr_retry = qp->options.rnr_retry,
                                     .sq_psn = psn,
                                     .max_rd_atomic = (uint8_t)qp->reads_out};
    return modify(qp, &attributes,
                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                      IBV_QP_MAX_QP_RD_ATOMIC);
}

/* ---- connecting ---- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int refuse_end(const struct gpusys_qp *qp, const char *what, const char *hint,
                      struct gpusys_error *error)
{
    gpusys_error_set(error, -EINVAL, "%s port %u: %s", qp->info.device, qp->verbs->port, what);
    gs_qp_add_ends(qp, error);
    gpusys_error_set_hint(error, "%s", hint);
    return -EINVAL;
}

/* What can be seen to be wrong without asking the driver, which has one errno for all of it. */
static int check_peer(const struct gpusys_qp *qp, struct gpusys_error *error)
{
    static const uint8_t none[16];
    const struct gpusys_qp_end *local = &qp->local, *remote = &qp->remote;
    if (remote->qpn >> 24 || remote->qpn == 0)
        return refuse_end(qp, "the peer's queue pair number is none", "the peer sent a damaged handshake",
                          error);
    if (remote->psn >> 24)
        return refuse_end(qp, "the peer's packet number has more than 24 bits",
                          "the peer sent a damaged handshake", error);
    if (remote->mtu_bytes &&
        (remote->mtu_bytes < 256 || gs_mtu_bytes(gs_mtu_enum(remote->mtu_bytes)) != remote->mtu_bytes))
        return refuse_end(qp, "the peer's MTU is none", "it is one of 256, 512, 1024, 2048 and 4096", error);
    if (remote->link_layer && local->link_layer && remote->link_layer != local->link_layer)
        return refuse_end(qp, "InfiniBand on one side and Ethernet on the other",
                          "pair ports of the same kind (gpusys rails on both hosts)", error);
    if (!qp->uses_grh)
        return 0;
    if (memcmp(remote->gid, none, sizeof none) == 0)
        return refuse_end(qp, "the peer's GID is empty",
                          "the peer chose a GID index that is not set; look at gpusys rails there", error);
    if (local->link_layer == GPUSYS_LINK_ETHERNET &&
        gs_gid_is_ipv4(local->gid) != gs_gid_is_ipv4(remote->gid))
        return refuse_end(qp, "an IPv4 GID on one side and an IPv6 GID on the other",
                          "choose GIDs of one family (gpusys rails ADDR says which)", error);
    return 0;
}

/* At RTR an EINVAL can be the MTU, the QPN, the PSN or the way to the peer; all but the last were checked. */
static const char *cause_of(const struct gpusys_qp *qp, int code)
{
    switch (-code) {
    case EINVAL:
        return qp->uses_grh
                   ? "MTU, QPN and PSN are in range, so it is the GID: our index and the peer's do not "
                     "go together"
                   : "MTU, QPN and PSN are in range, so it is the way by LID: the port may want the GRH";
    case ENODATA: return "our GID has been taken off the port since it was chosen";
    case ETIMEDOUT: return "the peer's GID did not resolve to a hardware address: it is not on this network";
    case ENETUNREACH:
    case EHOSTUNREACH: return "there is no route to the peer's GID from ours";
    case ENODEV: return "our GID's interface is gone, or belongs to another network namespace";
    default: return NULL;
    }
}

static int explain(const struct gpusys_qp *qp, const char *state, int code, struct gpusys_error *error)
{
    gpusys_error_set_errno(error, code, "%s port %u: the queue pair to %s", qp->info.device, qp->verbs->port,
                           state);
    gs_qp_add_ends(qp, error);
    gpusys_error_add_detail(error, "path", "MTU %u, %u reads out, %u in, %s", qp->mtu_bytes, qp->reads_out,
                            qp->reads_in, qp->uses_grh ? "by GID" : "by LID");
    const char *cause = strcmp(state, "RTR") == 0 ? cause_of(qp, code) : NULL;
    if (cause)
        gpusys_error_set_cause(error, "%s", cause);
    gpusys_error_set_hint(error, "gpusys rails ADDR ranks the GIDs against a peer and says why");
    return code;
}

static int reach_rts(struct gpusys_qp *qp, uint32_t psn, struct gpusys_error *error)
{
    int result = to_rtr(qp);
    if (result)
        return explain(qp, "RTR", result, error);
    result = to_rts(qp, psn);
    if (result)
        return explain(qp, "RTS", result, error);
    qp->is_connected = true;
    qp->limit = qp->depth;
    return 0;
}

static int connect_to(struct gpusys_qp *qp, struct gpusys_error *error)
{
    const struct gpusys_qp_end *local = &qp->local, *remote = &qp->remote;
    qp->uses_grh = needs_grh(qp);
    int result = check_peer(qp, error);
    if (result)
        return result;
    qp->mtu_bytes = remote->mtu_bytes ? smaller(remote->mtu_bytes, local->mtu_bytes) : local->mtu_bytes;
    qp->reads_out = smaller(local->reads_out, remote->reads_in ? remote->reads_in : SPOKEN_READS);
    qp->reads_in = smaller(local->reads_in, remote->reads_out ? remote->reads_out : SPOKEN_READS);
    qp->reads_out = smaller(qp->reads_out, MOST_READS);
    qp->reads_in = smaller(qp->reads_in, MOST_READS);
    return reach_rts(qp, local->psn, error);
}

int gpusys_qp_connect(struct gpusys_qp *qp, const struct gpusys_qp_end *peer, struct gpusys_error *error)
{
    struct gpusys_qp_end end;
    int result = peer ? gs_options_take(&end, sizeof end, peer) : -EINVAL;
    if (result)
        return gpusys_error_set(error, result, "the peer's end is of another version");
    if (qp->is_connected)
        return gpusys_error_set(error, -EISCONN, "%s: the queue pair is connected already", qp->info.device);
    qp->remote = end;
    result = connect_to(qp, error);
    if (result)
        qp->remote = (struct gpusys_qp_end){.size = 0}; /* there is no such connection to take up again */
    return result;
}

int gpusys_qp_reconnect(struct gpusys_qp *qp, uint32_t mtu_bytes, uint32_t packets,
                        struct gpusys_error *error)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    enum ibv_mtu mtu = gs_mtu_enum(mtu_bytes);
    if (!qp->remote.qpn)
        return gpusys_error_set(error, -ENOTCONN, "%s: the queue pair was never connected", qp->info.device);
    if (!mtu || gs_mtu_bytes(mtu) != mtu_bytes || mtu_bytes > qp->local.mtu_bytes)
        return gpusys_error_set(error, -EINVAL, "%s: an MTU of %u is none, or above the port's %u",
                                qp->info.device, mtu_bytes, qp->local.mtu_bytes);
    if (qp->head != qp->tail)
        return gpusys_error_set(error, -EBUSY, "%s: %u requests are under way", qp->info.device,
                                (uint32_t)(qp->tail - qp->head));
    if (qp->broken)
        return gpusys_error_set_errno(error, qp->broken, "%s: the completion queue", qp->info.device);
    int result = modify(qp, &reset, IBV_QP_STATE);
    if (result)
        return explain(qp, "RESET", result, error);
    qp->is_connected = false;
    qp->limit = 0;
    qp->dead = 0;
    qp->wc_at = qp->wc_count = 0; /* the completion queue has been emptied too */
    qp->mtu_bytes = mtu_bytes;
    qp->options.psn = (qp->options.psn + packets) & 0xFFFFFF;
    result = gs_qp_to_init(qp, error);
    return result ? result : reach_rts(qp, qp->options.psn, error);
}
