/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A queue pair's life: made with everything that belongs to it, drained, destroyed. */
#include "base/deadline.h"
#include "base/log.h"
#include "base/options.h"
#include "rail/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const int64_t close_drain_ns = 1000000000;

/* ---- options ---- */

static int check_options(const struct gpusys_qp_options *options, const char *device,
                         struct gpusys_error *error)
{
    if (options->flags & ~(GPUSYS_QP_PSN | GPUSYS_QP_GID_INDEX))
        return gpusys_error_set(error, -EINVAL, "%s: the queue pair's options: unknown flags %#x", device,
                                options->flags);
    if (options->reserved || options->pad[0] || options->pad[1] || options->pad[2])
        return gpusys_error_set(error, -EINVAL, "%s: the queue pair's options: reserved bytes are not 0",
                                device);
    if (options->psn >> 24 || options->service_level > 15 || options->ack_timeout > 31 ||
        options->retry_count > 6 || options->rnr_retry > 7 || options->hop_limit > 255 ||
        options->pkey_index > UINT16_MAX)
        return gpusys_error_set(
            error, -EINVAL,
            "%s: the queue pair's options: PSN %#x of 24 bits, service level %u of 15, ACK timeout %u of 31, "
            "retries %u of 6, RNR retries %u of 7, hop limit %u of 255, partition key index %u of 65535",
            device, options->psn, options->service_level, options->ack_timeout, options->retry_count,
            options->rnr_retry, options->hop_limit, options->pkey_index);
    return 0;
}

static int take_options(struct gpusys_qp_options *options, const struct gpusys_qp_options *given,
                        const struct gpusys_port_info *port, struct gpusys_error *error)
{
    const char *device = port->device;
    int result = gs_options_take(options, sizeof *options, given);
    if (result)
        return gpusys_error_set(error, result, "%s: the queue pair's options are of another version", device);
    result = check_options(options, device, error);
    if (result)
        return result;
    uint32_t most = port->max_requests < port->max_cqes ? port->max_requests : port->max_cqes;
    if (options->depth > most)
        return gpusys_error_set(error, -EINVAL, "%s: %u requests under way, and the device does %u", device,
                                options->depth, most);
    options->depth = options->depth ? options->depth : most < 128 ? most : 128;
    options->inline_bytes = options->inline_bytes ? options->inline_bytes : 64;
    options->ack_timeout = options->ack_timeout ? options->ack_timeout : 14;
    options->retry_count = options->retry_count ? options->retry_count : 6;
    options->rnr_retry = options->rnr_retry ? options->rnr_retry : 7;
    options->hop_limit = options->hop_limit ? options->hop_limit : 64;
    if (!(options->flags & GPUSYS_QP_PSN) && getrandom(&options->psn, sizeof options->psn, 0) < 0)
        return gpusys_error_set_errno(error, -errno, "%s: a random PSN", device);
    options->psn &= 0xFFFFFF;
    return 0;
}

/* ---- making ---- */

/* The object, with room for as many requests as a power of two. */
static struct gpusys_qp *make_object(const struct gpusys_qp_options *options)
{
    uint32_t size = 1;
    while (size < options->depth)
        size *= 2;
    struct gpusys_qp *qp = calloc(1, sizeof *qp + size * (sizeof *qp->ids + sizeof *qp->parts));
    if (!qp)
        return NULL;
    qp->options = *options;
    qp->depth = options->depth;
    qp->mask = size - 1;
    qp->parts = (uint8_t *)(qp->ids + size);
    for (unsigned i = 0; i < GS_QP_CHAIN; i++) {
        struct gs_qp_request *request = &qp->chain[i];
        request->wr.sg_list = &request->sge;
        request->wr.next = &request[1].wr; /* of the last one posted it is NULL meanwhile */
    }
    return qp;
}

/* An event queue that never blocks, and a completion queue with room for every request, signalled or not. */
static int make_queue(struct gpusys_qp *qp)
{
    const struct gs_ibv *ibv = qp->verbs->ibv;
    errno = 0;
    qp->channel = ibv->create_comp_channel(qp->verbs->context);
    if (!qp->channel)
        return gs_ibv_errno(0);
    int flags = fcntl(qp->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(qp->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    errno = 0;
    qp->cq = ibv->create_cq(qp->verbs->context, (int)qp->depth, NULL, qp->channel, 0);
    return qp->cq ? 0 : gs_ibv_errno(0);
}

/* Some devices copy less into a request than asked for, some nothing, and say so by refusing. */
static uint32_t less_inline(uint32_t bytes)
{
    return bytes >= 32 ? bytes / 2 : 0;
}

static int make_pair(struct gpusys_qp *qp, struct gpusys_pd *pd)
{
    const struct gs_ibv *ibv = qp->verbs->ibv;
    struct ibv_qp_init_attr attributes = {
        .send_cq = qp->cq,
        .recv_cq = qp->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = qp->depth, .max_send_sge = 1, .max_inline_data = qp->options.inline_bytes}};
    for (uint32_t bytes = qp->options.inline_bytes;; bytes = less_inline(bytes)) {
        struct ibv_qp_init_attr attempt = attributes;
        attempt.cap.max_inline_data = bytes;
        errno = 0;
        qp->qp = ibv->create_qp(pd->pd, &attempt);
        if (qp->qp) {
            uint32_t had = attempt.cap.max_inline_data;
            qp->inline_bytes = had < qp->options.inline_bytes ? had : qp->options.inline_bytes;
            return 0;
        }
        if (!bytes || (errno != EINVAL && errno != ENOMEM))
            return gs_ibv_errno(0);
    }
}

static int explain_making(const struct gpusys_qp *qp, int code, struct gpusys_error *error)
{
    const struct gpusys_port_info *info = &qp->info;
    const char *part = !qp->channel ? "a completion channel"
                       : !qp->cq    ? "a completion queue"
                                    : "a queue pair";
    gpusys_error_set_errno(error, code, "%s port %u: %s for %u requests", info->device, info->port, part,
                           qp->depth);
    gpusys_error_add_detail(error, "device", "at most %u queue pairs, %u requests each, %u completions",
                            info->max_qps, info->max_requests, info->max_cqes);
    if (code == -ENOMEM)
        gpusys_error_set_hint(
            error, "raise the limit on locked memory (ulimit -l), ask for a smaller depth, or look "
                   "who holds queue pairs (rdma resource show qp)");
    return code;
}

/* The GID that the peer is told: the port's, or the one asked for. */
static int fill_local(struct gpusys_qp *qp, struct gpusys_error *error)
{
    const struct gpusys_verbs *verbs = qp->verbs;
    const struct gpusys_port_info *info = &qp->info;
    struct gpusys_gid_info chosen = {.size = sizeof chosen};
    gpusys_verbs_info(verbs, NULL, &chosen); /* a copy: an event may change it any time */
    qp->local = (struct gpusys_qp_end){.size = sizeof qp->local,
                                       .qpn = qp->qp->qp_num,
                                       .psn = qp->options.psn,
                                       .lid = info->lid,
                                       .link_layer = info->link_layer,
                                       .mtu_bytes = info->mtu_bytes,
                                       .reads_out = info->reads_out,
                                       .reads_in = info->reads_in,
                                       .gid_index = chosen.index,
                                       .grh_required = info->grh_required};
    if (qp->options.mtu_bytes && qp->options.mtu_bytes < info->mtu_bytes)
        qp->local.mtu_bytes = gs_mtu_bytes(gs_mtu_enum(qp->options.mtu_bytes));
    if (qp->local.mtu_bytes == 0)
        return gpusys_error_set(error, -EINVAL, "%s: an MTU of %u is below the smallest there is, 256",
                                info->device, qp->options.mtu_bytes);
    memcpy(qp->local.gid, chosen.gid, sizeof qp->local.gid);
    if (!(qp->options.flags & GPUSYS_QP_GID_INDEX))
        return 0;
    union ibv_gid gid;
    static const union ibv_gid none;
    if (qp->options.gid_index >= GS_GIDS_MAX ||
        verbs->ibv->query_gid(verbs->context, (uint8_t)verbs->port, (int)qp->options.gid_index, &gid) ||
        memcmp(&gid, &none, sizeof gid) == 0)
        return gpusys_error_set(error, -EINVAL, "%s port %u: there is no GID %u", info->device, info->port,
                                qp->options.gid_index);
    memcpy(qp->local.gid, &gid, sizeof qp->local.gid);
    qp->local.gid_index = qp->options.gid_index;
    return 0;
}

static int make(struct gpusys_qp *qp, struct gpusys_pd *pd, struct gpusys_error *error)
{
    int result = make_queue(qp);
    if (!result)
        result = make_pair(qp, pd);
    if (result)
        return explain_making(qp, result, error);
    result = fill_local(qp, error);
    return result ? result : gs_qp_to_init(qp, error);
}

int gpusys_qp_open(struct gpusys_qp **ret_qp, struct gpusys_pd *pd, const struct gpusys_qp_options *given,
                   struct gpusys_error *error)
{
    struct gpusys_qp_options options;
    struct gpusys_port_info info = {.size = sizeof info};
    gpusys_verbs_info(pd->verbs, &info, NULL);
    int result = take_options(&options, given, &info, error);
    if (result)
        return result;
    result = gpusys_verbs_health(pd->verbs);
    if (result)
        return gpusys_error_set(error, result, "%s port %u %s", info.device, info.port,
                                result == -ENETDOWN ? "is down" : "is gone");
    struct gpusys_qp *qp = make_object(&options);
    if (!qp)
        return gpusys_error_set_errno(error, -ENOMEM, "%s: a queue pair for %u requests", info.device,
                                      options.depth);
    qp->verbs = pd->verbs;
    qp->info = info;
    gpusys_qp_limit(qp, info.max_message_bytes, info.max_message_bytes);
    result = make(qp, pd, error);
    if (result) {
        gpusys_qp_close(qp);
        return result;
    }
    *ret_qp = qp;
    return 0;
}

int gpusys_qp_limit(struct gpusys_qp *qp, uint64_t read_bytes, uint64_t write_bytes)
{
    uint64_t most = qp->info.max_message_bytes;
    if (read_bytes == 0 || read_bytes > most || write_bytes == 0 || write_bytes > most)
        return -EINVAL;
    qp->max_read_bytes = read_bytes;
    qp->max_write_bytes = write_bytes;
    uint64_t least = read_bytes < write_bytes ? read_bytes : write_bytes;
    qp->ordinary_bytes = least < GS_QP_SIGNAL_BYTES ? least : GS_QP_SIGNAL_BYTES - 1;
    return 0;
}

int gpusys_qp_end(const struct gpusys_qp *qp, struct gpusys_qp_end *ret_end)
{
    struct gpusys_qp_end end = qp->local;
    return gs_info_give(ret_end, &end, sizeof end);
}

int gpusys_qp_info(const struct gpusys_qp *qp, struct gpusys_qp_info *ret_info)
{
    struct gpusys_qp_info info = {.local = qp->local,
                                  .remote = qp->remote,
                                  .connected = qp->is_connected,
                                  .mtu_bytes = qp->mtu_bytes,
                                  .reads_out = qp->reads_out,
                                  .reads_in = qp->reads_in,
                                  .depth = qp->depth,
                                  .inline_bytes = qp->inline_bytes,
                                  .uses_grh = qp->uses_grh,
                                  .outstanding = (uint32_t)(qp->tail - qp->head),
                                  .dead = qp->dead ? qp->dead : qp->broken,
                                  .max_read_bytes = qp->max_read_bytes,
                                  .max_write_bytes = qp->max_write_bytes};
    return gs_info_give(ret_info, &info, sizeof info);
}

/* ---- ending ---- */

/* Every request under way comes back flushed. */
static int reap(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max,
                uint32_t *ret_count, int64_t deadline_ns)
{
    struct gpusys_qp_completion scratch[16];
    uint32_t count = 0;
    int result = 0;
    while (qp->head != qp->tail && !result) {
        bool keep = ret_completions && count < max;
        int got = gpusys_qp_poll(qp, keep ? ret_completions + count : scratch, keep ? max - count : 16);
        if (got > 0) {
            count += keep || !ret_completions ? (uint32_t)got : 0;
            continue;
        }
        struct pollfd fd = {.fd = qp->channel->fd, .events = POLLIN};
        result = got < 0 ? got : gpusys_now_ns() >= deadline_ns ? -ETIMEDOUT : 0;
        if (!result && gpusys_qp_arm(qp) == 0)
            poll(&fd, 1, 1); /* an event that came just before, or none at all, costs a millisecond a round */
    }
    *ret_count = count;
    return result;
}

int gpusys_qp_drain(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max,
                    uint32_t *ret_count, int64_t deadline_ns)
{
    uint32_t count = 0;
    int refused = gs_qp_to_error(qp); /* by a device that is gone: what it flushed is there at once */
    gs_qp_end_posting(qp, -ECANCELED);
    int result = reap(qp, ret_completions, max, &count, refused ? 0 : deadline_ns);
    if (ret_count)
        *ret_count = count;
    return result && refused ? refused : result;
}

/* Destroying waits for every event to be acknowledged. */
static void ack_events(struct gpusys_qp *qp)
{
    if (qp->events_unacked)
        qp->verbs->ibv->ack_cq_events(qp->cq, qp->events_unacked);
    qp->events_unacked = 0;
}

static void complain(const struct gpusys_qp *qp, const char *what, int result)
{
    if (result)
        gs_log(GPUSYS_LOG_WARN, "%s: %s could not be destroyed: %s", qp->info.device, what,
               strerrordesc_np(-gs_ibv_errno(result)));
}

void gpusys_qp_close(struct gpusys_qp *qp)
{
    if (!qp)
        return;
    const struct gs_ibv *ibv = qp->verbs->ibv;
    if (qp->qp && qp->head != qp->tail && !qp->broken)
        gpusys_qp_drain(qp, NULL, 0, NULL, gpusys_deadline_after(close_drain_ns));
    if (qp->qp)
        complain(qp, "a queue pair", ibv->destroy_qp(qp->qp));
    if (qp->cq) {
        ack_events(qp);
        complain(qp, "a completion queue", ibv->destroy_cq(qp->cq));
    }
    if (qp->channel)
        complain(qp, "a completion channel", ibv->destroy_comp_channel(qp->channel));
    free(qp);
}
