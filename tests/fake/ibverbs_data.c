/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: one request carried out, with the checks of both ends. */
#include "ibverbs.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

enum { PSN_MASK = 0xffffff, QPN_SLOT_MASK = QP_SLOTS - 1 };

/* A list of pieces of memory of one process. */
struct pieces {
    struct iovec iov[SEND_SGE];
    unsigned count;
};

/* ---- moving bytes ---- */

static size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

static void copy_here(const struct pieces *to, const struct pieces *from)
{
    unsigned i = 0, k = 0;
    size_t in_to = 0, in_from = 0;
    while (i < to->count && k < from->count) {
        size_t count = least(to->iov[i].iov_len - in_to, from->iov[k].iov_len - in_from);
        if (count)
            memmove((char *)to->iov[i].iov_base + in_to, (char *)from->iov[k].iov_base + in_from, count);
        in_to += count;
        in_from += count;
        if (in_to == to->iov[i].iov_len) {
            i++;
            in_to = 0;
        }
        if (k < from->count && in_from == from->iov[k].iov_len) {
            k++;
            in_from = 0;
        }
    }
}

static void skip(struct pieces *pieces, size_t count)
{
    unsigned gone = 0;
    for (; gone < pieces->count && count >= pieces->iov[gone].iov_len; gone++)
        count -= pieces->iov[gone].iov_len;
    memmove(pieces->iov, pieces->iov + gone, (pieces->count - gone) * sizeof *pieces->iov);
    pieces->count -= gone;
    if (pieces->count) {
        pieces->iov[0].iov_base = (char *)pieces->iov[0].iov_base + count;
        pieces->iov[0].iov_len -= count;
    }
}

/* Between our pieces and those of a process. 0, or why not: ESRCH where it is gone. */
static int move(struct pieces *local, struct pieces *remote, int32_t pid, bool is_read, size_t length)
{
    if (pid == fake.pid) {
        copy_here(is_read ? local : remote, is_read ? remote : local);
        return 0;
    }
    while (length) {
        ssize_t n = is_read ? process_vm_readv(pid, local->iov, local->count, remote->iov, remote->count, 0)
                            : process_vm_writev(pid, local->iov, local->count, remote->iov, remote->count, 0);
        if (n <= 0)
            return n < 0 ? errno : EFAULT;
        length -= (size_t)n;
        skip(local, (size_t)n);
        skip(remote, (size_t)n);
    }
    return 0;
}

/* ---- our side ---- */

/* Pieces of a process's memory by local keys, as far as `most` bytes. */
static bool gather(struct pieces *pieces, const struct ibv_sge *sges, uint32_t count,
                   const struct shared_qp *qp, bool is_written, uint64_t most)
{
    pieces->count = 0;
    for (uint32_t i = 0; i < count && most; i++) {
        uint64_t length = sges[i].length < most ? sges[i].length : most;
        if (!length)
            continue;
        const struct shared_mr *mr = fake_mr_find(sges[i].lkey, false, qp->pid);
        if (!mr || mr->pd != qp->pd || (is_written && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
            return false;
        uint64_t offset = sges[i].addr - mr->start;
        if (sges[i].addr < mr->start || offset > mr->length || sges[i].length > mr->length - offset)
            return false;
        pieces->iov[pieces->count++] = (struct iovec){(void *)(uintptr_t)(mr->address + offset), length};
        most -= length;
    }
    return true;
}

static enum ibv_wc_status check_here(struct qp *qp, const struct request *request, struct pieces *local)
{
    const struct port *port = &context_of(qp->base.context)->device->ports[qp->attr.port_num - 1];
    if (request->length > port->attr.max_msg_sz)
        return IBV_WC_LOC_LEN_ERR;
    if (request->flags & IBV_SEND_INLINE) {
        local->count = request->length ? 1 : 0;
        local->iov[0] = (struct iovec){request->inlined, request->length};
        return IBV_WC_SUCCESS;
    }
    bool is_read = request->opcode == IBV_WR_RDMA_READ;
    return gather(local, request->sges, request->n_sge, fake_qp_shared(qp), is_read, UINT64_MAX)
               ? IBV_WC_SUCCESS
               : IBV_WC_LOC_PROT_ERR;
}

/* ---- the way there ---- */

static bool has_gid(const struct shared_qp *qp, const union ibv_gid *gid, uint32_t type)
{
    for (unsigned i = 0; i < GIDS; i++)
        if (qp->gids[i].used && qp->gids[i].type == type && !memcmp(&qp->gids[i].gid, gid, sizeof *gid))
            return true;
    return false;
}

/* Do the packets of one arrive at the other's port, by the address it was given? */
static bool reaches(const struct shared_qp *from, const struct shared_qp *to)
{
    if (!from->port_active || !to->port_active || from->link_layer != to->link_layer)
        return false;
    if (!from->av.is_global)
        return (uint32_t)from->av.dlid >> to->port_lmc == to->port_lid >> to->port_lmc;
    unsigned index = from->av.grh.sgid_index;
    return index < GIDS && from->gids[index].used && has_gid(to, &from->av.grh.dgid, from->gids[index].type);
}

/* The other queue pair, if it would answer to us. */
static struct shared_qp *find_target(const struct shared_qp *own)
{
    struct shared_qp *target = &fake.table->qps[own->dest_qpn & QPN_SLOT_MASK];
    bool listens =
        target->pid && target->qpn == own->dest_qpn &&
        (target->state == IBV_QPS_RTR || target->state == IBV_QPS_RTS || target->state == IBV_QPS_SQD);
    if (!listens || target->dest_qpn != own->qpn || target->rq_psn != own->sq_psn)
        return NULL;
    return reaches(own, target) && reaches(target, own) && fake_is_alive(target->pid) ? target : NULL;
}

static uint32_t packets(uint64_t length, uint32_t mtu)
{
    return length ? (uint32_t)((length + mtu - 1) / mtu) : 1;
}

static uint32_t after(uint32_t psn, uint32_t count)
{
    return (psn + count) & PSN_MASK;
}

/*
 * What Soft-RoCE was seen to do where the sides were given different MTUs: the answer to a read comes in packets of
 * the other's size; with fewer surplus ones than retries the read waits for ever, with more it fails; pieces of a write
 * that are not of the size expected are refused.
 */
static enum outcome check_mtu(const struct shared_qp *own, struct shared_qp *target, uint32_t retry_count,
                              struct request *request, enum ibv_wc_status *ret_status)
{
    uint32_t smaller = own->mtu < target->mtu ? own->mtu : target->mtu;
    uint32_t of_links = own->port_mtu < target->port_mtu ? own->port_mtu : target->port_mtu;
    bool is_read = request->opcode == IBV_WR_RDMA_READ;
    if (request->length > of_links && (is_read ? target : own)->mtu > of_links)
        return OUTCOME_NO_ANSWER;
    if (own->mtu == target->mtu || request->length <= smaller)
        return OUTCOME_DONE;
    if (!is_read) {
        *ret_status = IBV_WC_REM_INV_REQ_ERR;
        return OUTCOME_DONE;
    }
    if (own->mtu < target->mtu)
        return OUTCOME_DONE;
    uint32_t theirs = packets(request->length, target->mtu), ours = packets(request->length, own->mtu);
    target->rq_psn = after(target->rq_psn, theirs);
    request->is_hung = theirs - ours < retry_count;
    return request->is_hung ? OUTCOME_HANGS : OUTCOME_NO_ANSWER;
}

/* ---- the other side ---- */

static enum ibv_wc_status check_remote(const struct shared_qp *own, const struct shared_qp *target,
                                       const struct qp *qp, const struct request *request,
                                       struct pieces *remote)
{
    bool is_read = request->opcode == IBV_WR_RDMA_READ;
    uint32_t right = is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (!(target->access & right))
        return IBV_WC_REM_INV_REQ_ERR;
    bool is_deeper =
        own->max_rd_atomic > target->max_dest_rd_atomic && qp->reads > target->max_dest_rd_atomic;
    if (is_read && is_deeper)
        return IBV_WC_REM_INV_REQ_ERR;
    remote->count = 0;
    if (!request->length)
        return IBV_WC_SUCCESS;
    const struct shared_mr *mr = fake_mr_find(request->rkey, true, target->pid);
    if (!mr || mr->pd != target->pd || !(mr->access & right))
        return IBV_WC_REM_ACCESS_ERR;
    uint64_t offset = request->remote_address - mr->start;
    if (request->remote_address < mr->start || offset > mr->length || request->length > mr->length - offset)
        return IBV_WC_REM_ACCESS_ERR;
    remote->iov[0] = (struct iovec){(void *)(uintptr_t)(mr->address + offset), request->length};
    remote->count = 1;
    return IBV_WC_SUCCESS;
}

/* A refusal ends the other's queue pair as well. */
static enum ibv_wc_status refuse(struct shared_qp *target, enum ibv_wc_status status)
{
    fake_qp_event(target, status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    fake_qp_enter_error(target);
    return status;
}

static void end_receive(struct shared_qp *target, const struct request *request, enum ibv_wc_status status)
{
    struct shared_recv *recv = &target->recvs[target->recv_done++ % RECV_WR];
    bool has_imm = request->opcode == IBV_WR_SEND_WITH_IMM || request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    bool is_write = request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    recv->wc = (struct ibv_wc){.wr_id = recv->wr_id,
                               .status = status,
                               .qp_num = target->qpn,
                               .opcode = is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
                               .byte_len = (uint32_t)request->length,
                               .src_qp = target->dest_qpn,
                               .imm_data = has_imm ? request->imm : 0,
                               .wc_flags = has_imm ? IBV_WC_WITH_IMM : 0};
    fake_cq_notify(target->recv_cq, status != IBV_WC_SUCCESS || request->flags & IBV_SEND_SOLICITED);
}

/* Where a message goes: the next receive's memory. */
static enum ibv_wc_status check_receive(struct shared_qp *target, const struct request *request,
                                        struct pieces *remote)
{
    const struct shared_recv *recv = &target->recvs[target->recv_done % RECV_WR];
    uint64_t room = 0;
    for (uint32_t i = 0; i < recv->n_sge; i++)
        room += recv->sges[i].length;
    if (room < request->length) {
        end_receive(target, request, IBV_WC_LOC_LEN_ERR);
        return refuse(target, IBV_WC_REM_INV_REQ_ERR);
    }
    if (!gather(remote, recv->sges, recv->n_sge, target, true, request->length)) {
        end_receive(target, request, IBV_WC_LOC_PROT_ERR);
        return refuse(target, IBV_WC_REM_OP_ERR);
    }
    return IBV_WC_SUCCESS;
}

static bool needs_receive(const struct request *request)
{
    return request->opcode != IBV_WR_RDMA_READ && request->opcode != IBV_WR_RDMA_WRITE;
}

static bool is_message(const struct request *request)
{
    return request->opcode == IBV_WR_SEND || request->opcode == IBV_WR_SEND_WITH_IMM;
}

/* The bytes, and what they do to the counters of both. */
static enum outcome transfer(struct shared_qp *own, struct shared_qp *target, const struct request *request,
                             struct pieces *local, struct pieces *remote, enum ibv_wc_status *ret_status)
{
    int error = move(local, remote, target->pid, request->opcode == IBV_WR_RDMA_READ, request->length);
    if (error == ESRCH)
        return OUTCOME_NO_ANSWER;
    if (error) {
        *ret_status = refuse(target, IBV_WC_REM_OP_ERR);
        return OUTCOME_DONE;
    }
    uint32_t count = packets(request->length, own->mtu);
    own->sq_psn = after(own->sq_psn, count);
    /* Each side counts a read's answer in packets of its own MTU: where those differ, the numbers part. */
    if (fake.config.numbers_part && request->opcode == IBV_WR_RDMA_READ)
        count = packets(request->length, target->mtu);
    target->rq_psn = after(target->rq_psn, count);
    if (needs_receive(request))
        end_receive(target, request, IBV_WC_SUCCESS);
    return OUTCOME_DONE;
}

enum outcome fake_execute(struct qp *qp, struct request *request, enum ibv_wc_status *ret_status)
{
    struct pieces local, remote;
    struct shared_qp *own = fake_qp_shared(qp);
    *ret_status = check_here(qp, request, &local);
    if (*ret_status != IBV_WC_SUCCESS)
        return OUTCOME_DONE;
    request->is_hung = request->opcode == IBV_WR_RDMA_READ && !own->max_rd_atomic;
    if (request->is_hung)
        return OUTCOME_HANGS;
    struct shared_qp *target = find_target(own);
    if (!target)
        return OUTCOME_NO_ANSWER;
    enum outcome outcome = check_mtu(own, target, qp->attr.retry_cnt, request, ret_status);
    if (outcome != OUTCOME_DONE)
        return outcome;
    if (*ret_status == IBV_WC_SUCCESS && !is_message(request))
        *ret_status = check_remote(own, target, qp, request, &remote);
    if (*ret_status != IBV_WC_SUCCESS) {
        refuse(target, *ret_status);
        return OUTCOME_DONE;
    }
    if (needs_receive(request) && target->recv_done == target->recv_posted) {
        *ret_status = IBV_WC_RNR_RETRY_EXC_ERR;
        return qp->attr.rnr_retry == 7 ? OUTCOME_HANGS : OUTCOME_DONE;
    }
    if (is_message(request))
        *ret_status = check_receive(target, request, &remote);
    return *ret_status == IBV_WC_SUCCESS ? transfer(own, target, request, &local, &remote, ret_status)
                                         : OUTCOME_DONE;
}
