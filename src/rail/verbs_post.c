/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The data path of a queue pair: lists in, completions out.
 *
 * Requests are signalled sparsely: the last of each list, long ones, and one in SIGNAL_EVERY. A connection
 * completes in order, so a good completion stands for everything before it, and the caller is given each
 * operation all the same.
 */
#include "base/deadline.h"
#include "base/log.h"
#include "rail/verbs.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

enum {
    SIGNAL_EVERY = 32,
    SIGNAL_BYTES = 64 * 1024, /* what is this long is worth a completion of its own */
    SPINS = 64,               /* polls, each with a yield behind it, before going to sleep */
    ACK_EVENTS = 64,          /* at once: acknowledging takes a lock */
};

uint32_t gpusys_qp_room(const struct gpusys_qp *qp)
{
    return qp->dead || !qp->is_connected ? 0 : qp->depth - (uint32_t)(qp->tail - qp->head);
}

/* ---- posting ---- */

/* Fill request number `tail` of the queue pair, the next of the chain. */
static inline void put(struct gpusys_qp *qp, struct ibv_send_wr *wr, const struct gpusys_qp_op *op,
                       uint64_t at, uint32_t length, bool last)
{
    struct gs_qp_slot *slot = &qp->slots[qp->tail & qp->mask];
    bool is_write = op->kind == GPUSYS_QP_WRITE;
    unsigned flags = is_write && length <= qp->inline_bytes ? IBV_SEND_INLINE : 0;
    if (++qp->unsignalled >= SIGNAL_EVERY || length >= SIGNAL_BYTES) {
        flags |= IBV_SEND_SIGNALED;
        qp->unsignalled = 0;
    }
    slot->id = op->id;
    slot->last = last;
    slot->given = false;
    wr->sg_list->addr = op->local + at;
    wr->sg_list->length = length;
    wr->sg_list->lkey = op->lkey;
    wr->wr_id = qp->tail++;
    wr->num_sge = length > 0;
    wr->opcode = is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr->send_flags = flags;
    wr->wr.rdma.remote_addr = op->remote + at;
    wr->wr.rdma.rkey = op->rkey;
}

/* Give the driver the first `n` of the chain; the last is signalled. */
static int give(struct gpusys_qp *qp, uint32_t n)
{
    struct ibv_send_wr *last = &qp->wrs[n - 1], *next = last->next, *bad = NULL;
    last->send_flags |= IBV_SEND_SIGNALED;
    last->next = NULL;
    qp->unsignalled = 0;
    int result = qp->qp->context->ops.post_send(qp->qp, qp->wrs, &bad);
    last->next = next;
    if (__builtin_expect(result == 0, 1))
        return 0;
    /* What stands before the bad one is under way; the rest never was. */
    uint32_t posted = bad ? (uint32_t)(bad - qp->wrs) : 0;
    qp->tail -= n - posted;
    qp->dead = gs_ibv_errno(result);
    return qp->dead;
}

static uint32_t pieces_of(const struct gpusys_qp *qp, const struct gpusys_qp_op *op)
{
    uint64_t most = qp->max_message_bytes;
    uint64_t pieces = op->length <= most ? 1 : (op->length - 1) / most + 1;
    return pieces > qp->depth ? UINT32_MAX : (uint32_t)pieces;
}

/* An operation of several messages; a chain of them at a time. */
static int post_pieces(struct gpusys_qp *qp, const struct gpusys_qp_op *op)
{
    uint32_t n = 0;
    for (uint64_t at = 0; at < op->length;) {
        uint64_t left = op->length - at;
        uint32_t length = (uint32_t)(left < qp->max_message_bytes ? left : qp->max_message_bytes);
        put(qp, &qp->wrs[n++], op, at, length, left == length);
        at += length;
        if (n == GS_QP_CHAIN || at == op->length) {
            int result = give(qp, n);
            if (result)
                return result;
            n = 0;
        }
    }
    return 0;
}

static int may_post(const struct gpusys_qp *qp)
{
    int health = atomic_load_explicit(&qp->verbs->health, memory_order_relaxed);
    return qp->dead ? qp->dead : qp->broken ? qp->broken : !qp->is_connected ? -ENOTCONN : health;
}

/* How many of the list were taken; a refusal only counts when nothing was. */
static int post_long(struct gpusys_qp *qp, const struct gpusys_qp_op *op, uint32_t room)
{
    uint32_t pieces = pieces_of(qp, op);
    if (pieces == UINT32_MAX)
        return -EMSGSIZE;
    return pieces > room ? 0 : post_pieces(qp, op) ?: 1;
}

int gpusys_qp_post(struct gpusys_qp *qp, const struct gpusys_qp_op *ops, uint32_t n)
{
    uint32_t done = 0;
    int result = may_post(qp);
    while (done < n && !result) {
        uint32_t room = qp->depth - (uint32_t)(qp->tail - qp->head), chain = 0;
        uint32_t most = n - done < room ? n - done : room;
        most = most < GS_QP_CHAIN ? most : GS_QP_CHAIN;
        while (chain < most && ops[done + chain].length <= qp->max_message_bytes) {
            const struct gpusys_qp_op *op = &ops[done + chain];
            put(qp, &qp->wrs[chain++], op, 0, (uint32_t)op->length, true);
        }
        if (chain > 0) {
            uint64_t tail = qp->tail - chain;
            result = give(qp, chain);
            done += (uint32_t)(qp->tail - tail);
        } else if (most > 0) {
            result = post_long(qp, &ops[done], room);
            if (result <= 0)
                break;
            done++;
            result = 0;
        } else {
            break;
        }
    }
    return done ? (int)done : result;
}

/* ---- completions ---- */

static int status_of(const struct ibv_wc *wc)
{
    return wc->status == IBV_WC_SUCCESS ? 0 : gpusys_wc_status_errno(wc->status);
}

/* The operation that this request belongs to has failed: its other pieces bring nothing more. */
static void mark_given(struct gpusys_qp *qp, uint64_t number)
{
    while (!qp->slots[number & qp->mask].last && number + 1 < qp->tail)
        qp->slots[++number & qp->mask].given = true;
}

static uint32_t give_failed(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completion)
{
    struct gs_qp_slot *slot = &qp->slots[qp->head & qp->mask];
    qp->has_failed = false;
    bool given = slot->given;
    if (!given) {
        *ret_completion = (struct gpusys_qp_completion){.id = slot->id,
                                                        .status = status_of(&qp->failed),
                                                        .foreign = qp->failed.status,
                                                        .vendor = qp->failed.vendor_err};
        mark_given(qp, qp->head);
    }
    qp->head++;
    qp->done_until = qp->head;
    return !given;
}

/* Hand out what is known to be done, in order. */
static uint32_t give_done(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max)
{
    uint32_t n = 0;
    uint64_t head = qp->head;
    for (; head < qp->done_until && n < max; head++) {
        const struct gs_qp_slot *slot = &qp->slots[head & qp->mask];
        ret_completions[n].id = slot->id;
        ret_completions[n].status = 0;
        ret_completions[n].foreign = 0;
        ret_completions[n].vendor = 0;
        ret_completions[n].reserved = 0;
        n += slot->last && !slot->given;
    }
    qp->head = head;
    if (qp->has_failed && head == qp->done_until && n < max)
        n += give_failed(qp, &ret_completions[n]);
    return n;
}

static int unknown_id(struct gpusys_qp *qp, uint64_t number)
{
    gs_log(GPUSYS_LOG_WARN,
           "%s: queue pair %#x: a completion of request %llu, and %llu to %llu are under way",
           qp->verbs->info.device, qp->local.qpn, (unsigned long long)number, (unsigned long long)qp->head,
           (unsigned long long)qp->tail);
    qp->dead = qp->broken = -EPROTO;
    return -EPROTO;
}

/* Take in one completion. */
static int take(struct gpusys_qp *qp, const struct ibv_wc *wc)
{
    if (__builtin_expect(wc->wr_id - qp->done_until >= qp->tail - qp->done_until, 0))
        return unknown_id(qp, wc->wr_id);
    if (__builtin_expect(wc->status == IBV_WC_SUCCESS, 1)) {
        qp->done_until = wc->wr_id + 1;
        return 0;
    }
    qp->done_until = wc->wr_id; /* those before it had no completion of their own, so they are done */
    qp->has_failed = true;
    qp->failed = *wc;
    if (!qp->dead)
        qp->dead = status_of(wc);
    return 0;
}

static int fetch(struct gpusys_qp *qp)
{
    int count = qp->cq->context->ops.poll_cq(qp->cq, GS_QP_WCS, qp->wcs);
    qp->wc_at = 0;
    qp->wc_count = count > 0 ? (uint32_t)count : 0;
    if (__builtin_expect(count < 0, 0))
        qp->dead = qp->broken = -EIO;
    return count < 0 ? qp->broken : count;
}

int gpusys_qp_poll(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max)
{
    uint32_t n = 0;
    while (n < max) {
        n += give_done(qp, ret_completions + n, max - n);
        if (n == max || (n > 0 && qp->wc_at == qp->wc_count && qp->head == qp->tail))
            break;
        int result = qp->broken;
        if (!result && qp->wc_at == qp->wc_count)
            result = fetch(qp) ?: -EAGAIN;
        if (result >= 0)
            result = take(qp, &qp->wcs[qp->wc_at++]);
        if (result < 0)
            return n ? (int)n : result == -EAGAIN ? 0 : result;
    }
    return (int)n;
}

/* ---- waiting ---- */

int gpusys_qp_fd(const struct gpusys_qp *qp)
{
    return qp->channel->fd;
}

/* Take the events that are there; the queue is polled anyway. */
static void take_events(struct gpusys_qp *qp)
{
    struct ibv_cq *cq;
    void *context;
    while (qp->verbs->ibv->get_cq_event(qp->channel, &cq, &context) == 0)
        if (++qp->events_unacked == ACK_EVENTS) {
            qp->verbs->ibv->ack_cq_events(qp->cq, ACK_EVENTS);
            qp->events_unacked = 0;
        }
}

int gpusys_qp_arm(struct gpusys_qp *qp)
{
    take_events(qp);
    int result = qp->cq->context->ops.req_notify_cq(qp->cq, 0);
    return result ? gs_ibv_errno(result) : 0;
}

/* What can end a wait, beside a completion. */
static int look_around(struct gpusys_qp *qp, struct gpusys_stream *control, const struct pollfd *fds)
{
    struct gpusys_verbs_event event;
    char byte;
    if (fds[1].revents)
        while (gpusys_verbs_event(qp->verbs, &event) > 0)
            ;
    int health = gpusys_verbs_health(qp->verbs);
    if (health)
        return health;
    if (!control || !fds[2].revents)
        return 0;
    /* Bytes of the next protocol may be waiting there: only the end of the stream is looked for. */
    ssize_t count = recv(fds[2].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR) ? -ECONNRESET : 0;
}

/* Until the channel, the port or the control stream has something, or the deadline. */
static int sleep_once(struct gpusys_qp *qp, struct gpusys_stream *control, int64_t deadline_ns)
{
    struct pollfd fds[3] = {{.fd = qp->channel->fd, .events = POLLIN},
                            {.fd = gpusys_verbs_fd(qp->verbs), .events = POLLIN},
                            {.fd = control ? gpusys_stream_fd(control) : -1, .events = POLLRDHUP}};
    int count = poll(fds, 3, gs_deadline_ms(deadline_ns));
    if (count < 0 && errno != EINTR)
        return -errno;
    return count > 0 ? look_around(qp, control, fds) : 0;
}

int gpusys_qp_wait(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max,
                   struct gpusys_stream *control, int64_t deadline_ns)
{
    int count = 0, result = 0;
    for (unsigned i = 0; i < SPINS; i++) {
        count = gpusys_qp_poll(qp, ret_completions, max);
        if (count != 0)
            return count;
        if (qp->head == qp->tail)
            return -ENOENT;
        sched_yield(); /* on a small machine the packets are carried by threads that want this core */
    }
    while (!result) {
        result = gpusys_qp_arm(qp);
        count = gpusys_qp_poll(qp, ret_completions, max);
        if (count != 0)
            return count;
        if (!result && gpusys_now_ns() >= deadline_ns)
            result = -ETIMEDOUT;
        if (!result)
            result = sleep_once(qp, control, deadline_ns);
    }
    return result;
}
