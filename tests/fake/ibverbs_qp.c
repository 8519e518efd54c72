/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: the life and the states of queue pairs. */
#include "ibverbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ACK_SECONDS = 3, QPN_SLOT_BITS = 11, PSN_MOST = 0xffffff };

struct shared_qp *fake_qp_shared(const struct qp *qp)
{
    return &fake.table->qps[qp->slot];
}

/* ---- life ---- */

static int check_capabilities(const struct device *device, const struct ibv_qp_init_attr *init)
{
    const struct ibv_qp_cap *cap = &init->cap;
    uint32_t max_wr = (uint32_t)device->attr.max_qp_wr, max_sge = (uint32_t)device->attr.max_sge;
    if (init->qp_type != IBV_QPT_RC || init->srq)
        return EOPNOTSUPP;
    if (!init->send_cq || !init->recv_cq)
        return EINVAL;
    if (cap->max_send_wr > max_wr || cap->max_recv_wr > max_wr || cap->max_recv_wr > RECV_WR)
        return EINVAL;
    if (cap->max_send_sge > max_sge || cap->max_recv_sge > max_sge || cap->max_recv_sge > RECV_SGE)
        return EINVAL;
    if (cap->max_inline_data > device->max_inline)
        return EINVAL;
    return fake.live[FAKE_IBVERBS_QPS] >= device->attr.max_qp ? ENOMEM : 0;
}

static void free_rings(struct qp *qp)
{
    free(qp->requests);
    free(qp->sges);
    free(qp->inlined);
}

/* Empty queues are given one place each, which nothing can tell from none. */
static bool make_rings(struct qp *qp)
{
    uint32_t n = qp->cap.max_send_wr ? qp->cap.max_send_wr : 1;
    uint32_t sges = qp->cap.max_send_sge ? qp->cap.max_send_sge : 1, bytes = qp->cap.max_inline_data;
    qp->requests = calloc(n, sizeof *qp->requests);
    qp->sges = calloc((size_t)n * sges, sizeof *qp->sges);
    qp->inlined = calloc((size_t)n * bytes + 1, 1);
    if (!qp->requests || !qp->sges || !qp->inlined)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        qp->requests[i].sges = qp->sges + (size_t)i * sges;
        qp->requests[i].inlined = qp->inlined + (size_t)i * bytes;
    }
    return true;
}

static void fill_shared(const struct qp *qp, struct context *context)
{
    struct shared_qp *shared = fake_qp_shared(qp);
    shared->qpn = (shared->generation << QPN_SLOT_BITS | qp->slot) & 0xffffff;
    shared->state = IBV_QPS_RESET;
    shared->pd = ((struct pd *)qp->base.pd)->id;
    shared->send_cq = ((struct cq *)qp->base.send_cq)->slot;
    shared->recv_cq = ((struct cq *)qp->base.recv_cq)->slot;
    shared->async_fd = context->async_write_fd;
    shared->cookie = (uintptr_t)&qp->base;
    shared->recv_size = qp->cap.max_recv_wr;
}

static struct qp *new_qp(struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
    struct qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return NULL;
    qp->cap = init->cap;
    qp->signal_all = init->sq_sig_all;
    bool has_rings = make_rings(qp);
    qp->slot = has_rings ? fake_qp_slot() : UINT32_MAX;
    if (qp->slot == UINT32_MAX) {
        free_rings(qp);
        free(qp);
        return NULL;
    }
    qp->base = (struct ibv_qp){.context = pd->context,
                               .qp_context = init->qp_context,
                               .pd = pd,
                               .send_cq = init->send_cq,
                               .recv_cq = init->recv_cq,
                               .handle = qp->slot,
                               .state = IBV_QPS_RESET,
                               .qp_type = init->qp_type};
    fill_shared(qp, context_of(pd->context));
    qp->base.qp_num = fake_qp_shared(qp)->qpn;
    pthread_mutex_init(&qp->base.mutex, NULL);
    pthread_cond_init(&qp->base.cond, NULL);
    return qp;
}

static void count_users(struct qp *qp, int by)
{
    struct context *context = context_of(qp->base.context);
    ((struct pd *)qp->base.pd)->users += (unsigned)by;
    ((struct cq *)qp->base.send_cq)->users += (unsigned)by;
    ((struct cq *)qp->base.recv_cq)->users += (unsigned)by;
    context->n_objects += (unsigned)by;
    fake.live[FAKE_IBVERBS_QPS] += by;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    int error = fake_enter(FN_ibv_create_qp, pd->context, NULL, NULL);
    struct context *context = context_of(pd->context);
    if (!error)
        error = check_capabilities(context->device, init);
    struct qp *qp = error ? NULL : new_qp(pd, init);
    if (qp) {
        count_users(qp, 1);
        qp->next = context->qps;
        context->qps = qp;
    }
    return fake_leave_with(qp ? &qp->base : NULL, error ? error : ENOMEM);
}

static bool wait_for_acks(struct ibv_qp *base, uint32_t events)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACK_SECONDS;
    int code = 0;
    pthread_mutex_lock(&base->mutex);
    while (!code && base->events_completed != events)
        code = pthread_cond_timedwait(&base->cond, &base->mutex, &until);
    pthread_mutex_unlock(&base->mutex);
    if (code)
        fprintf(stderr, "stand-in libibverbs: ibv_destroy_qp: events were not acknowledged\n");
    return !code;
}

static void unlink_qp(struct context *context, struct qp *qp)
{
    struct qp **place = &context->qps;
    while (*place != qp)
        place = &(*place)->next;
    *place = qp->next;
}

int ibv_destroy_qp(struct ibv_qp *base)
{
    struct qp *qp = (struct qp *)base;
    struct context *context = context_of(base->context);
    int error = fake_enter(FN_ibv_destroy_qp, base->context, qp, NULL);
    if (error)
        return fake_leave(error);
    fake_qp_shared(qp)->state = IBV_QPS_RESET;
    fake_qp_shared(qp)->async_fd = -1;
    if (!context->is_closed)
        fake_forget_records(base->context->async_fd, context->async_write_fd, sizeof(struct async_record),
                            (uintptr_t)base);
    uint64_t events = qp->async_events;
    fake_unlock();
    if (!wait_for_acks(base, (uint32_t)events))
        return EBUSY;
    fake_lock();
    fake_cq_purge((struct cq *)base->send_cq, qp);
    fake_cq_purge((struct cq *)base->recv_cq, qp);
    fake_qp_slot_free(qp->slot);
    unlink_qp(context, qp);
    count_users(qp, -1);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    free_rings(qp);
    free(qp);
    return fake_leave(0);
}

/* ---- states ---- */

/* What a step between states needs and may carry; IBV_QP_STATE always goes. */
static const struct {
    enum ibv_qp_state from, to;
    int required, optional;
} steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
};

static int check_mask(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
    mask &= ~IBV_QP_STATE;
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
        return mask & ~IBV_QP_CUR_STATE ? EINVAL : 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].from == from && steps[i].to == to) {
            bool lacks = (mask & steps[i].required) != steps[i].required;
            return lacks || (mask & ~(steps[i].required | steps[i].optional)) ? EINVAL : 0;
        }
    return EINVAL;
}

static int check_numbers(const struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    const struct device *device = context_of(qp->base.context)->device;
    if (mask & IBV_QP_PORT && (attr->port_num < 1 || attr->port_num > device->attr.phys_port_cnt))
        return EINVAL;
    unsigned number = mask & IBV_QP_PORT ? attr->port_num : qp->attr.port_num;
    const struct port *port = &device->ports[number ? number - 1 : 0];
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING;
    bool is_wrong =
        (mask & IBV_QP_PKEY_INDEX && attr->pkey_index >= port->attr.pkey_tbl_len) ||
        (mask & IBV_QP_ACCESS_FLAGS && attr->qp_access_flags & ~known) ||
        (mask & IBV_QP_PATH_MTU && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > port->attr.max_mtu)) ||
        (mask & IBV_QP_DEST_QPN && attr->dest_qp_num > PSN_MOST) ||
        (mask & IBV_QP_RQ_PSN && attr->rq_psn > PSN_MOST) ||
        (mask & IBV_QP_SQ_PSN && attr->sq_psn > PSN_MOST) ||
        (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > device->attr.max_qp_init_rd_atom) ||
        (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > device->attr.max_qp_rd_atom) ||
        (mask & IBV_QP_TIMEOUT && attr->timeout > 31) || (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
        (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7) ||
        (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31);
    return is_wrong ? EINVAL : 0;
}

static bool is_zero(const union ibv_gid *gid)
{
    return !memcmp(gid, &(union ibv_gid){.raw = {0}}, sizeof *gid);
}

/* Does any port that a queue pair is on have it? Only then does somebody answer for the address. */
static bool is_known(const union ibv_gid *gid)
{
    const struct table *table = fake.table;
    for (uint32_t i = 0; i < table->qp_slots.fresh; i++)
        for (unsigned k = 0; table->qps[i].pid && k < GIDS; k++)
            if (table->qps[i].gids[k].used && !memcmp(&table->qps[i].gids[k].gid, gid, sizeof *gid))
                return true;
    return false;
}

static bool is_ipv4(const union ibv_gid *gid)
{
    return !memcmp(gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* What resolving the other's address meets. */
static int resolve(const union ibv_gid *source, const union ibv_gid *target)
{
    if (is_link_local(target))
        return 0; /* the address of the link is part of it */
    if (is_ipv4(source) != is_ipv4(target))
        return EINVAL;
    return fake.config.resolve && !is_known(target) ? ETIMEDOUT : 0;
}

static int check_av(const struct qp *qp, const struct ibv_ah_attr *av)
{
    const struct device *device = context_of(qp->base.context)->device;
    if (av->port_num < 1 || av->port_num > device->attr.phys_port_cnt)
        return EINVAL;
    const struct port *port = &device->ports[av->port_num - 1];
    bool is_ethernet = port->attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (!av->is_global)
        return is_ethernet || port->attr.flags & IBV_QPF_GRH_REQUIRED || !av->dlid ? EINVAL : 0;
    unsigned index = av->grh.sgid_index;
    if (index >= (unsigned)port->attr.gid_tbl_len)
        return EINVAL;
    if (index >= GIDS || !port->gids[index].used)
        return ENODATA;
    if (is_zero(&av->grh.dgid))
        return EINVAL;
    return is_ethernet ? resolve(&port->gids[index].entry.gid, &av->grh.dgid) : 0;
}

void fake_qp_set_port(struct qp *qp)
{
    const struct port *port = &context_of(qp->base.context)->device->ports[qp->attr.port_num - 1];
    struct shared_qp *shared = fake_qp_shared(qp);
    shared->port_active = port->attr.state == IBV_PORT_ACTIVE;
    shared->port_lid = port->attr.lid;
    shared->port_lmc = port->attr.lmc;
    shared->port_mtu = 128u << port->attr.active_mtu;
    shared->link_layer = port->attr.link_layer;
    for (unsigned i = 0; i < GIDS; i++) {
        shared->gids[i].gid = port->gids[i].entry.gid;
        shared->gids[i].type = port->gids[i].entry.gid_type;
        shared->gids[i].used = port->gids[i].used;
    }
}

static void take_attributes(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *own = &qp->attr;
#define TAKE(bit, member) (mask & (bit) ? (void)(own->member = attr->member) : (void)0)
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
#undef TAKE
}

/* The other side reads these. */
static void share_attributes(struct qp *qp, int mask)
{
    struct shared_qp *shared = fake_qp_shared(qp);
    shared->access = qp->attr.qp_access_flags;
    shared->dest_qpn = qp->attr.dest_qp_num;
    shared->mtu = 128u << qp->attr.path_mtu;
    shared->max_rd_atomic = qp->attr.max_rd_atomic;
    shared->max_dest_rd_atomic = qp->attr.max_dest_rd_atomic;
    shared->av = qp->attr.ah_attr;
    if (mask & IBV_QP_RQ_PSN)
        shared->rq_psn = qp->attr.rq_psn;
    if (mask & IBV_QP_SQ_PSN)
        shared->sq_psn = qp->attr.sq_psn;
    if (qp->attr.port_num)
        fake_qp_set_port(qp);
}

/* Everything posted is gone, and so are its completions. */
static void reset(struct qp *qp)
{
    struct shared_qp *shared = fake_qp_shared(qp);
    fake_cq_purge((struct cq *)qp->base.send_cq, qp);
    fake_cq_purge((struct cq *)qp->base.recv_cq, qp);
    qp->executed = qp->retired = qp->posted;
    qp->reads = 0;
    shared->recv_posted = shared->recv_done = shared->recv_taken = 0;
    memset(&qp->attr, 0, sizeof qp->attr);
    shared->state = IBV_QPS_RESET;
}

static void go(struct qp *qp, enum ibv_qp_state to)
{
    struct shared_qp *shared = fake_qp_shared(qp);
    if (to == IBV_QPS_RESET)
        reset(qp);
    else if (to == IBV_QPS_ERR)
        fake_qp_enter_error(shared);
    else
        shared->state = to;
    qp->base.state = to;
    fake_qp_progress(qp);
}

static int modify(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    enum ibv_qp_state from = (enum ibv_qp_state)fake_qp_shared(qp)->state;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
        return EINVAL;
    int error = check_mask(from, to, mask);
    if (!error)
        error = check_numbers(qp, attr, mask);
    if (!error && mask & IBV_QP_AV)
        error = check_av(qp, &attr->ah_attr);
    if (error)
        return error;
    take_attributes(qp, attr, mask);
    share_attributes(qp, mask);
    go(qp, to);
    return 0;
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
    struct qp *qp = (struct qp *)base;
    int error = fake_enter(FN_ibv_modify_qp, base->context, qp, NULL);
    return fake_leave(error ? error : modify(qp, attr, mask));
}

int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *ret_attr, int mask,
                 struct ibv_qp_init_attr *ret_init)
{
    struct qp *qp = (struct qp *)base;
    (void)mask; /* all of it is cheap */
    int error = fake_enter(FN_ibv_query_qp, base->context, qp, NULL);
    if (!error) {
        const struct shared_qp *shared = fake_qp_shared(qp);
        fake_qp_progress(qp);
        *ret_attr = qp->attr;
        ret_attr->qp_state = ret_attr->cur_qp_state = base->state = (enum ibv_qp_state)shared->state;
        ret_attr->rq_psn = shared->rq_psn;
        ret_attr->sq_psn = shared->sq_psn;
        ret_attr->cap = qp->cap;
        *ret_init = (struct ibv_qp_init_attr){.qp_context = base->qp_context,
                                              .send_cq = base->send_cq,
                                              .recv_cq = base->recv_cq,
                                              .cap = qp->cap,
                                              .qp_type = base->qp_type,
                                              .sq_sig_all = qp->signal_all};
    }
    return fake_leave(error);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
    (void)qp, (void)opcode, (void)flags;
    return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    (void)qp;
    return NULL;
}
