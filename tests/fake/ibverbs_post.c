/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: posting requests, and when they run and end. */
#include "ibverbs.h"

#include <errno.h>
#include <string.h>

enum { VENDOR_ERROR = 0x81, NO_OPCODE = 0x6e6f, RECEIVER_WAIT_NS = 500000 };

/* ---- the end of requests ---- */

static enum ibv_wc_opcode completion_opcode(enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    default: return IBV_WC_SEND;
    }
}

/* Of a completion that failed only wr_id, status, qp_num and vendor_err count: the others lead astray on purpose. */
static struct ibv_wc failure(uint64_t wr_id, enum ibv_wc_status status, uint32_t qpn)
{
    return (struct ibv_wc){.wr_id = wr_id,
                           .status = status,
                           .opcode = (enum ibv_wc_opcode)NO_OPCODE,
                           .vendor_err = VENDOR_ERROR,
                           .byte_len = UINT32_MAX,
                           .qp_num = qpn};
}

static void push_sent(struct qp *qp, const struct request *request, enum ibv_wc_status status)
{
    struct ibv_wc wc = failure(request->wr_id, status, qp->base.qp_num);
    if (status == IBV_WC_SUCCESS) {
        wc.opcode = completion_opcode(request->opcode);
        wc.byte_len = (uint32_t)request->length;
        wc.vendor_err = 0;
    }
    fake_cq_push((struct cq *)qp->base.send_cq, &wc, qp, qp->executed, false);
}

static void finish(struct qp *qp, const struct request *request, enum ibv_wc_status status)
{
    qp->executed++;
    if (status != IBV_WC_SUCCESS || qp->signal_all || request->flags & IBV_SEND_SIGNALED)
        push_sent(qp, request, status);
    if (status != IBV_WC_SUCCESS)
        fake_qp_enter_error(fake_qp_shared(qp));
}

void fake_qp_enter_error(struct shared_qp *shared)
{
    uint32_t flushed = 0;
    shared->state = IBV_QPS_ERR;
    for (; shared->recv_done != shared->recv_posted; shared->recv_done++, flushed++) {
        struct shared_recv *recv = &shared->recvs[shared->recv_done % RECV_WR];
        recv->wc = failure(recv->wr_id, IBV_WC_WR_FLUSH_ERR, shared->qpn);
    }
    if (flushed)
        fake_cq_notify(shared->recv_cq, true);
    if (shared->send_waiting)
        fake_cq_notify(shared->send_cq, true);
}

/* ---- the run of requests ---- */

static bool is_due(const struct qp *qp, const struct request *request)
{
    if (request->is_held || request->is_hung)
        return false;
    if (request->due_polls > ((struct cq *)qp->base.send_cq)->polls)
        return false;
    return !request->due_ns || fake_now_ns() >= request->due_ns;
}

static void wait_until(struct request *request, uint64_t due_ns)
{
    request->due_ns = due_ns;
    fake_start_timer();
}

/* False where it waits on. */
static bool run(struct qp *qp, struct request *request)
{
    enum ibv_wc_status status = request->verdict;
    enum outcome outcome = request->has_verdict ? OUTCOME_DONE : fake_execute(qp, request, &status);
    if (outcome == OUTCOME_HANGS) {
        if (!request->is_hung)
            wait_until(request, fake_now_ns() + RECEIVER_WAIT_NS);
        return false;
    }
    if (outcome == OUTCOME_NO_ANSWER) {
        status = IBV_WC_RETRY_EXC_ERR;
        if (fake.config.retry_us) {
            request->has_verdict = true;
            request->verdict = status;
            wait_until(request, fake_now_ns() + fake.config.retry_us * 1000);
            return false;
        }
    }
    finish(qp, request, status);
    return true;
}

static void take_received(struct qp *qp, struct shared_qp *shared)
{
    for (; shared->recv_taken != shared->recv_done; shared->recv_taken++)
        fake_cq_push((struct cq *)qp->base.recv_cq, &shared->recvs[shared->recv_taken % RECV_WR].wc, qp, 0,
                     false);
}

static struct request *first_request(const struct qp *qp)
{
    return &qp->requests[qp->executed % qp->cap.max_send_wr];
}

void fake_qp_progress(struct qp *qp)
{
    struct shared_qp *shared = fake_qp_shared(qp);
    while (shared->state == IBV_QPS_RTS && qp->executed < qp->posted && is_due(qp, first_request(qp)))
        if (!run(qp, first_request(qp)))
            break;
    for (; shared->state == IBV_QPS_ERR && qp->executed < qp->posted;) {
        const struct request *request = first_request(qp);
        qp->executed++;
        push_sent(qp, request, IBV_WC_WR_FLUSH_ERR);
    }
    shared->send_waiting = (uint32_t)(qp->posted - qp->executed);
    take_received(qp, shared);
}

/* ---- posting ---- */

static int check_send(const struct qp *qp, const struct ibv_send_wr *wr, uint64_t length)
{
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
        return EINVAL;
    switch (wr->opcode) {
    case IBV_WR_RDMA_READ:
        if (wr->send_flags & IBV_SEND_INLINE)
            return EINVAL;
        break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM: break;
    default: return EINVAL;
    }
    if (wr->send_flags & IBV_SEND_INLINE && length > qp->cap.max_inline_data)
        return EINVAL;
    return qp->posted - qp->retired >= qp->cap.max_send_wr ? ENOMEM : 0;
}

static void take_payload(struct request *request, const struct ibv_send_wr *wr)
{
    unsigned char *to = request->inlined;
    request->n_sge = (uint32_t)wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++)
        if (!(wr->send_flags & IBV_SEND_INLINE)) {
            request->sges[i] = wr->sg_list[i];
        } else if (wr->sg_list[i].length) {
            memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
            to += wr->sg_list[i].length;
        }
}

static void set_waiting(const struct qp *qp, struct request *request)
{
    request->is_held = fake.waiting.hold;
    if (fake.waiting.polls)
        request->due_polls = ((struct cq *)qp->base.send_cq)->polls + fake.waiting.polls;
    if (fake.waiting.delay_ns)
        wait_until(request, fake_now_ns() + fake.waiting.delay_ns);
    if (fake.next_verdict_set) {
        request->has_verdict = true;
        request->verdict = fake.next_verdict;
        fake.next_verdict_set = false;
    }
}

static int post_one(struct qp *qp, const struct ibv_send_wr *wr)
{
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++)
        length += wr->sg_list[i].length;
    int error = check_send(qp, wr, length);
    if (error)
        return error;
    struct request *request = &qp->requests[qp->posted % qp->cap.max_send_wr];
    *request = (struct request){.wr_id = wr->wr_id,
                                .remote_address = wr->wr.rdma.remote_addr,
                                .length = length,
                                .rkey = wr->wr.rdma.rkey,
                                .imm = wr->imm_data,
                                .flags = wr->send_flags,
                                .opcode = wr->opcode,
                                .sges = request->sges,
                                .inlined = request->inlined};
    take_payload(request, wr);
    set_waiting(qp, request);
    qp->posted++;
    qp->reads += wr->opcode == IBV_WR_RDMA_READ;
    fake_qp_progress(qp);
    return 0;
}

int fake_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
    struct qp *qp = (struct qp *)base;
    int error = fake_enter(FN_ibv_post_send, base->context, qp, NULL);
    uint32_t state = fake_qp_shared(qp)->state;
    if (!error && (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR))
        error = EINVAL;
    for (; wr && !error; wr = wr->next) {
        error = post_one(qp, wr);
        if (error)
            break;
    }
    if (error)
        *ret_bad = wr;
    return fake_leave(error);
}

static int post_recv_one(struct shared_qp *shared, const struct qp *qp, const struct ibv_recv_wr *wr)
{
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_recv_sge)
        return EINVAL;
    if (shared->recv_posted - shared->recv_taken >= shared->recv_size)
        return ENOMEM;
    struct shared_recv *recv = &shared->recvs[shared->recv_posted++ % RECV_WR];
    recv->wr_id = wr->wr_id;
    recv->n_sge = (uint32_t)wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++)
        recv->sges[i] = wr->sg_list[i];
    return 0;
}

int fake_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
    struct qp *qp = (struct qp *)base;
    struct shared_qp *shared = fake_qp_shared(qp);
    int error = fake_enter(FN_ibv_post_recv, base->context, qp, NULL);
    if (!error && shared->state == IBV_QPS_RESET)
        error = EINVAL;
    for (; wr && !error; wr = wr->next) {
        error = post_recv_one(shared, qp, wr);
        if (error)
            break;
    }
    if (error)
        *ret_bad = wr;
    if (shared->state == IBV_QPS_ERR) {
        fake_qp_enter_error(shared);
        fake_qp_progress(qp);
    }
    return fake_leave(error);
}
