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

enum {
    SIGNAL_EVERY = 32,
    SPINS = 64,          /* polls, each with a yield behind it, before going to sleep */
    LOOK_NS = 100000000, /* asleep, look at the port so often: another thread may have taken its event */
    ACK_EVENTS = 64,     /* at once: acknowledging takes a lock */
};

uint32_t gpusys_qp_room(const struct gpusys_qp *qp)
{
    return qp->limit ? qp->limit - (uint32_t)(qp->tail - qp->head) : 0;
}

/* ---- posting ---- */

/* The longest message. */
static inline uint64_t most_of(const struct gpusys_qp *qp, const struct gpusys_qp_op *op)
{
    return op->kind == GPUSYS_QP_WRITE ? qp->max_write_bytes : qp->max_read_bytes;
}

/* Lengths that want something: 0, those worth a completion of their own. False: longer than one message. */
static bool fill_special(const struct gpusys_qp *qp, struct ibv_send_wr *wr, const struct gpusys_qp_op *op)
{
    bool is_write = op->kind == GPUSYS_QP_WRITE;
    if (op->length > most_of(qp, op))
        return false;
    wr->num_sge = op->length > 0; /* devices take an empty piece for one of 2 GiB */
    wr->opcode = is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr->send_flags = (op->length >= GS_QP_SIGNAL_BYTES ? IBV_SEND_SIGNALED : 0u) |
                     (is_write && op->length <= qp->inline_bytes ? IBV_SEND_INLINE : 0u);
    return true;
}

/* Fill in what will be request `number` of the queue pair. False: longer than one message. */
static inline bool fill(struct gpusys_qp *qp, struct gs_qp_request *request, uint64_t number,
                        const struct gpusys_qp_op *op)
{
    struct ibv_send_wr *wr = &request->wr;
    uint64_t length = op->length;
    if (__builtin_expect(length - 1 >= qp->ordinary_bytes, 0)) {
        if (!fill_special(qp, wr, op))
            return false;
    } else if (op->kind == GPUSYS_QP_WRITE) {
        wr->num_sge = 1;
        wr->opcode = IBV_WR_RDMA_WRITE;
        wr->send_flags = 0;
        if (length <= qp->inline_bytes)
            wr->send_flags = IBV_SEND_INLINE;
    } else {
        wr->num_sge = 1;
        wr->opcode = IBV_WR_RDMA_READ;
        wr->send_flags = 0;
    }
    wr->wr_id = number;
    wr->wr.rdma.remote_addr = op->remote;
    wr->wr.rdma.rkey = op->rkey;
    request->sge.addr = op->local;
    request->sge.length = (uint32_t)length;
    request->sge.lkey = op->lkey;
    qp->ids[number & qp->mask] = op->id;
    return true;
}

static void set_part(struct gpusys_qp *qp, uint64_t number, unsigned part)
{
    uint8_t *now = &qp->parts[number & qp->mask];
    qp->n_odd += part != GS_QP_WHOLE;
    qp->n_odd -= *now != GS_QP_WHOLE;
    *now = (uint8_t)part;
}

/* Give the driver the chain's `n`; `last` is the last, and signalled. 0, or what the driver said, and where. */
static inline int give(struct gpusys_qp *qp, uint32_t n, struct gs_qp_request *last,
                       struct ibv_send_wr **ret_bad)
{
    if (__builtin_expect(n > SIGNAL_EVERY, 0))
        qp->chain[SIGNAL_EVERY - 1].wr.send_flags |= IBV_SEND_SIGNALED;
    last->wr.send_flags |= IBV_SEND_SIGNALED;
    last->wr.next = NULL;
    int result = qp->qp->context->ops.post_send(qp->qp, &qp->chain[0].wr, ret_bad);
    last->wr.next = &last[1].wr;
    return result;
}

_Static_assert(GS_QP_CHAIN <= 2 * SIGNAL_EVERY, "one in the middle of a chain is enough");

/* The driver has taken the first of the chain's `n`, and refused `bad`: how many it has taken. */
static uint32_t refused(struct gpusys_qp *qp, uint32_t n, const struct ibv_send_wr *bad, int result)
{
    uint32_t taken = 0;
    gs_qp_end_posting(qp, gs_ibv_errno(result));
    while (bad && taken < n && bad != &qp->chain[taken].wr)
        taken++;
    qp->tail += taken;
    for (uint32_t i = 0; i < n - taken; i++)
        set_part(qp, qp->tail + i, GS_QP_WHOLE);
    return taken;
}

/*
 * The driver has taken a part of what it was given, and the last of that may be unsignalled: nobody would ever hear
 * of it. So the queue pair is stopped, and an empty request goes behind, whose flush says that all before it is over.
 * `op` (may be NULL) is an operation of which some pieces were taken: the empty request is its completion.
 */
static int stop_behind(struct gpusys_qp *qp, const struct gpusys_qp_op *op)
{
    const struct gpusys_qp_op empty = {.id = op ? op->id : 0, .kind = GPUSYS_QP_WRITE};
    struct ibv_send_wr *bad = NULL;
    int result = gs_qp_to_error(qp);
    if (result)
        return result;
    fill(qp, &qp->chain[0], qp->tail, &empty);
    set_part(qp, qp->tail, op ? GS_QP_WHOLE : GS_QP_GIVEN);
    result = give(qp, 1, &qp->chain[0], &bad);
    qp->tail += result == 0;
    return result;
}

/* An operation that was not taken after all, though some of its pieces were: they bring nothing. */
static void give_nothing(struct gpusys_qp *qp, uint64_t first)
{
    for (; first < qp->tail; first++)
        set_part(qp, first, GS_QP_PIECE | GS_QP_GIVEN);
}

/* Fill the chain with pieces of a long operation, from byte `at` on. Their number. */
static uint32_t fill_pieces(struct gpusys_qp *qp, const struct gpusys_qp_op *op, uint64_t at)
{
    struct gpusys_qp_op piece = *op;
    uint64_t most = most_of(qp, op);
    uint32_t n = 0;
    for (; n < GS_QP_CHAIN && at < op->length; n++, at += most) {
        piece.local = op->local + at;
        piece.remote = op->remote + at;
        piece.length = op->length - at < most ? op->length - at : most;
        fill(qp, &qp->chain[n], qp->tail + n, &piece);
        set_part(qp, qp->tail + n, op->length - at > most ? GS_QP_PIECE : GS_QP_WHOLE);
    }
    return n;
}

/* An operation of several messages; a chain of them at a time. */
static int post_pieces(struct gpusys_qp *qp, const struct gpusys_qp_op *op)
{
    uint64_t first = qp->tail;
    for (uint64_t at = 0; at < op->length;) {
        struct ibv_send_wr *bad = NULL;
        uint32_t n = fill_pieces(qp, op, at);
        int result = give(qp, n, &qp->chain[n - 1], &bad);
        if (result) {
            refused(qp, n, bad, result);
            if (qp->tail != first && stop_behind(qp, op) == 0)
                return 0;
            give_nothing(qp, first);
            return qp->dead;
        }
        qp->tail += n;
        at += n * most_of(qp, op);
    }
    return 0;
}

/* 1, or 0 when there is no room for it now. */
static int post_long(struct gpusys_qp *qp, const struct gpusys_qp_op *op, uint32_t room)
{
    uint64_t pieces = (op->length - 1) / most_of(qp, op) + 1;
    if (pieces > qp->depth)
        return -EMSGSIZE;
    return pieces > room ? 0 : post_pieces(qp, op) ?: 1;
}

static inline int may_post(const struct gpusys_qp *qp)
{
    if (!qp->limit)
        return qp->dead ? qp->dead : -ENOTCONN;
    return atomic_load_explicit(&qp->verbs->health, memory_order_relaxed);
}

static __attribute__((noinline)) int refused_list(struct gpusys_qp *qp, uint32_t n,
                                                  const struct ibv_send_wr *bad, int result)
{
    uint32_t taken = refused(qp, n, bad, result);
    if (!taken)
        return qp->dead;
    stop_behind(qp, NULL);
    return (int)taken;
}

/*
 * Fill the chain from a list, as far as that is of single messages. How many of `most` (1 … GS_QP_CHAIN) are left, and
 * the end of what is filled.
 */
static inline uint32_t fill_chain(struct gpusys_qp *qp, const struct gpusys_qp_op *op, uint32_t most,
                                  struct gs_qp_request **ret_end)
{
    struct gs_qp_request *request = qp->chain;
    for (uint64_t number = qp->tail; fill(qp, request, number, op); number++, op++) {
        request++;
        if (--most == 0)
            break;
    }
    *ret_end = request;
    return most;
}

/* Post the chain's `n`, which end before `end`. How many were taken. */
static inline int post_chain(struct gpusys_qp *qp, uint32_t n, struct gs_qp_request *end)
{
    struct ibv_send_wr *bad = NULL;
    int result = give(qp, n, end - 1, &bad);
    if (__builtin_expect(result != 0, 0))
        return refused_list(qp, n, bad, result);
    qp->tail += n;
    return (int)n;
}

/* Lists of all lengths, with operations of several messages among them, as far as there is room. */
static __attribute__((noinline)) int post_list(struct gpusys_qp *qp, const struct gpusys_qp_op *ops,
                                               uint32_t n)
{
    uint32_t done = 0;
    while (done < n) {
        int result = may_post(qp);
        uint32_t room = qp->depth - (uint32_t)(qp->tail - qp->head);
        uint32_t most = n - done < room ? n - done : room;
        most = most < GS_QP_CHAIN ? most : GS_QP_CHAIN;
        if (!result && most > 0) {
            struct gs_qp_request *end;
            uint32_t chain = most - fill_chain(qp, &ops[done], most, &end);
            result = chain > 0 ? post_chain(qp, chain, end) : post_long(qp, &ops[done], room);
        }
        if (result <= 0)
            return done ? (int)done : result;
        done += (uint32_t)result;
    }
    return (int)done;
}

/* The short way, and whatever it cannot do. */
int gpusys_qp_post(struct gpusys_qp *qp, const struct gpusys_qp_op *ops, uint32_t n)
{
    bool fits = n - 1 < GS_QP_CHAIN && (uint32_t)(qp->tail - qp->head) + n <= qp->limit;
    if (__builtin_expect(!fits || atomic_load_explicit(&qp->verbs->health, memory_order_relaxed) != 0, 0))
        return n ? post_list(qp, ops, n) : may_post(qp);
    struct gs_qp_request *end;
    uint32_t left = fill_chain(qp, ops, n, &end);
    return __builtin_expect(left == 0, 1) ? post_chain(qp, n, end) : post_list(qp, ops, n);
}

/* ---- completions ---- */

/* The operation that this request belongs to has failed: its other pieces bring nothing more. */
static void mark_given(struct gpusys_qp *qp, uint64_t number)
{
    while (qp->parts[number & qp->mask] & GS_QP_PIECE && number + 1 < qp->tail) {
        number++;
        set_part(qp, number, qp->parts[number & qp->mask] | GS_QP_GIVEN);
    }
}

static uint32_t give_failed(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completion)
{
    bool given = qp->parts[qp->head & qp->mask] & GS_QP_GIVEN;
    qp->has_failed = false;
    qp->n_odd--;
    if (!given) {
        *ret_completion = (struct gpusys_qp_completion){.id = qp->ids[qp->head & qp->mask],
                                                        .status = gpusys_wc_status_errno(qp->failed.status),
                                                        .foreign = qp->failed.status,
                                                        .vendor = qp->failed.vendor_err};
        mark_given(qp, qp->head);
    }
    set_part(qp, qp->head, GS_QP_WHOLE);
    qp->head++;
    qp->done_until = qp->head;
    return !given;
}

/* Hand out what is known to be done, in order, also where some of the requests are no operations, and the one that has failed. */
static uint32_t give_odd(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max)
{
    uint32_t n = 0;
    for (; qp->head < qp->done_until && n < max; qp->head++) {
        if (qp->parts[qp->head & qp->mask] == GS_QP_WHOLE)
            ret_completions[n++] = (struct gpusys_qp_completion){.id = qp->ids[qp->head & qp->mask]};
        set_part(qp, qp->head, GS_QP_WHOLE);
    }
    if (qp->has_failed && n < max)
        n += give_failed(qp, ret_completions + n);
    return n;
}

static int break_off(struct gpusys_qp *qp, int why)
{
    qp->broken = why;
    qp->n_odd++;
    gs_qp_end_posting(qp, why);
    return why;
}

static int unknown_id(struct gpusys_qp *qp, uint64_t number)
{
    gs_log(GPUSYS_LOG_WARN,
           "%s: queue pair %#x: a completion of request %llu, and %llu up to %llu are under way",
           qp->info.device, qp->local.qpn, (unsigned long long)number, (unsigned long long)qp->head,
           (unsigned long long)qp->tail);
    return break_off(qp, -EPROTO);
}

static void take_failure(struct gpusys_qp *qp, const struct ibv_wc *wc)
{
    qp->done_until = wc->wr_id; /* those before it had no completion of their own, so they are done */
    qp->has_failed = true;
    qp->n_odd++;
    qp->failed = *wc;
    gs_qp_end_posting(qp, gpusys_wc_status_errno(wc->status));
}

/* Take in one completion; all before `done` were taken in. 0 a good one, 1 a failed one, or why there will be no more. */
static inline int take(struct gpusys_qp *qp, const struct ibv_wc *wc, uint64_t done)
{
    uint64_t number = wc->wr_id;
    if (__builtin_expect(number < done || number >= qp->tail, 0))
        return unknown_id(qp, number);
    if (__builtin_expect(wc->status != IBV_WC_SUCCESS, 0)) {
        take_failure(qp, wc);
        return 1;
    }
    qp->done_until = number + 1;
    return 0;
}

/* The same with the next one; -EAGAIN when there is none. */
static inline int take_next(struct gpusys_qp *qp)
{
    if (qp->wc_at != qp->wc_count)
        return take(qp, &qp->wcs[qp->wc_at++], qp->done_until);
    int count = qp->cq->context->ops.poll_cq(qp->cq, GS_QP_WCS, qp->wcs);
    if (__builtin_expect(count <= 0, 0))
        return count < 0 ? break_off(qp, -EIO) : -EAGAIN;
    qp->wc_at = 1;
    qp->wc_count = (uint32_t)count;
    return take(qp, &qp->wcs[0], qp->done_until);
}

/* `n` are given already. */
static __attribute__((noinline)) int
poll_more(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t n, uint32_t max)
{
    int result = 0;
    while (n < max && result >= 0) {
        n += give_odd(qp, ret_completions + n, max - n);
        if (n == max || (n > 0 && qp->head == qp->tail))
            break;
        result = qp->broken ? qp->broken : take_next(qp);
    }
    return n ? (int)n : result == -EAGAIN ? 0 : result;
}

int gpusys_qp_poll(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max)
{
    if (__builtin_expect(qp->n_odd != 0, 0))
        return poll_more(qp, ret_completions, 0, max);
    if (qp->done_until == qp->head) {
        int result = take_next(qp);
        if (__builtin_expect(result != 0, 0))
            return result == 1 ? poll_more(qp, ret_completions, 0, max) : result == -EAGAIN ? 0 : result;
    }
    uint64_t head = qp->head, most = qp->done_until - head;
    uint32_t n = most < max ? (uint32_t)most : max;
    for (uint32_t i = 0; i < n; i++)
        ret_completions[i] = (struct gpusys_qp_completion){.id = qp->ids[(head + i) & qp->mask]};
    qp->head = head + n;
    return n == max || head + n == qp->tail ? (int)n : poll_more(qp, ret_completions, n, max);
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

/* What can end a wait, beside a completion. Of the control stream only the end is looked for: bytes of the next
 * protocol may be waiting there, before it as well. */
static int look_around(struct gpusys_qp *qp, const struct pollfd *fds)
{
    struct gpusys_verbs_event event;
    if (fds[1].revents)
        while (gpusys_verbs_event(qp->verbs, &event) > 0)
            ;
    int health = gpusys_verbs_health(qp->verbs);
    return health ? health : fds[2].revents ? -ECONNRESET : 0;
}

/* Until the channel, the port or the control stream has something, or the deadline. */
static int sleep_once(struct gpusys_qp *qp, struct gpusys_stream *control, int64_t deadline_ns)
{
    struct pollfd fds[3] = {{.fd = qp->channel->fd, .events = POLLIN},
                            {.fd = gpusys_verbs_fd(qp->verbs), .events = POLLIN},
                            {.fd = control ? gpusys_stream_fd(control) : -1, .events = POLLRDHUP}};
    int64_t look_ns = gpusys_deadline_after(LOOK_NS);
    int count = poll(fds, 3, gs_deadline_ms(deadline_ns < look_ns ? deadline_ns : look_ns));
    if (count < 0)
        return errno == EINTR ? 0 : -errno;
    return look_around(qp, fds);
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
        if (qp->head == qp->tail)
            return -ENOENT;
        if (!result && gpusys_now_ns() >= deadline_ns)
            result = -ETIMEDOUT;
        if (!result)
            result = sleep_once(qp, control, deadline_ns);
    }
    count = gpusys_qp_poll(qp, ret_completions, max); /* what came together with it is given first */
    return count ? count : result;
}
