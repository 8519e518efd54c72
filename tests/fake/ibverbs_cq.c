/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: completion queues and their channels. */
#include "ibverbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ACK_SECONDS = 3 };

/* ---- channels ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    int fds[2], error = fake_enter(FN_ibv_create_comp_channel, context, NULL, NULL);
    struct channel *channel = error ? NULL : calloc(1, sizeof *channel);
    if (channel && (error = fake_pipe(fds))) {
        free(channel);
        channel = NULL;
    }
    if (channel) {
        channel->base = (struct ibv_comp_channel){.context = context, .fd = fds[0]};
        channel->write_fd = fds[1];
        context_of(context)->n_objects++;
        fake.live[FAKE_IBVERBS_CHANNELS]++;
    }
    return fake_leave_with(channel ? &channel->base : NULL, error ? error : ENOMEM);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
    struct channel *channel = (struct channel *)base;
    int error = fake_enter(FN_ibv_destroy_comp_channel, base->context, NULL, NULL);
    if (!error && base->refcnt)
        error = EBUSY;
    if (!error) {
        close(base->fd);
        close(channel->write_fd);
        context_of(base->context)->n_objects--;
        fake.live[FAKE_IBVERBS_CHANNELS]--;
        free(channel);
    }
    return fake_leave(error);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context)
{
    int error = fake_leave(fake_enter(FN_ibv_get_cq_event, channel->context, NULL, NULL));
    if (error) {
        errno = error;
        return -1;
    }
    uint64_t cookie;
    if (read(channel->fd, &cookie, sizeof cookie) != (ssize_t)sizeof cookie)
        return -1;
    struct cq *cq = (struct cq *)(uintptr_t)cookie;
    fake_lock();
    cq->comp_events++;
    fake.live[FAKE_IBVERBS_UNACKED]++;
    fake_unlock();
    *ret_cq = &cq->base;
    *ret_context = cq->base.cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    fake_lock();
    fake.live[FAKE_IBVERBS_UNACKED] -= count;
    fake_unlock();
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

/* ---- life ---- */

static struct cq *new_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel)
{
    struct cq *cq = calloc(1, sizeof *cq);
    struct cqe *ring = calloc((size_t)cqe, sizeof *ring);
    uint32_t slot = cq && ring ? fake_cq_slot() : UINT32_MAX;
    if (slot == UINT32_MAX) {
        free(cq);
        free(ring);
        return NULL;
    }
    fake.table->cqs[slot].cookie = (uintptr_t)&cq->base;
    fake.table->cqs[slot].event_fd = channel ? ((struct channel *)channel)->write_fd : -1;
    cq->ring = ring;
    cq->slot = slot;
    cq->base = (struct ibv_cq){.context = context, .channel = channel, .handle = slot, .cqe = cqe};
    pthread_mutex_init(&cq->base.mutex, NULL);
    pthread_cond_init(&cq->base.cond, NULL);
    return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    int error = fake_enter(FN_ibv_create_cq, context, NULL, NULL);
    const struct ibv_device_attr *attr = &context_of(context)->device->attr;
    if (!error && (cqe < 1 || cqe > attr->max_cqe || vector < 0 || vector >= context->num_comp_vectors))
        error = EINVAL;
    if (!error && fake.live[FAKE_IBVERBS_CQS] >= attr->max_cq)
        error = ENOMEM;
    struct cq *cq = error ? NULL : new_cq(context, cqe, channel);
    if (cq) {
        cq->base.cq_context = cq_context;
        if (channel)
            channel->refcnt++;
        context_of(context)->n_objects++;
        fake.live[FAKE_IBVERBS_CQS]++;
    }
    return fake_leave_with(cq ? &cq->base : NULL, error ? error : ENOMEM);
}

int ibv_resize_cq(struct ibv_cq *base, int cqe)
{
    struct cq *cq = (struct cq *)base;
    int error = fake_enter(FN_ibv_resize_cq, base->context, NULL, NULL);
    if (!error &&
        (cqe < 1 || cqe > context_of(base->context)->device->attr.max_cqe || (unsigned)cqe < cq->count))
        error = EINVAL;
    struct cqe *ring = error ? NULL : calloc((size_t)cqe, sizeof *ring);
    for (unsigned i = 0; ring && i < cq->count; i++)
        ring[i] = cq->ring[(cq->first + i) % (unsigned)base->cqe];
    if (ring) {
        free(cq->ring);
        cq->ring = ring;
        cq->first = 0;
        base->cqe = cqe;
    }
    return fake_leave(error ? error : ring ? 0 : ENOMEM);
}

/* As in the real library an object goes once all its events are acknowledged; that would wait for ever, we say so. */
static bool wait_for_acks(struct ibv_cq *base, uint64_t comp_events, uint64_t async_events)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACK_SECONDS;
    int code = 0;
    pthread_mutex_lock(&base->mutex);
    while (!code &&
           (base->comp_events_completed != comp_events || base->async_events_completed != async_events))
        code = pthread_cond_timedwait(&base->cond, &base->mutex, &until);
    pthread_mutex_unlock(&base->mutex);
    if (code)
        fprintf(stderr, "stand-in libibverbs: ibv_destroy_cq: events were not acknowledged\n");
    return !code;
}

int ibv_destroy_cq(struct ibv_cq *base)
{
    struct cq *cq = (struct cq *)base;
    int error = fake_enter(FN_ibv_destroy_cq, base->context, NULL, NULL);
    if (!error && cq->users)
        error = EBUSY;
    if (error)
        return fake_leave(error);
    fake.table->cqs[cq->slot].armed = 0;
    struct context *context = context_of(base->context);
    fake_forget_records(base->context->async_fd, context->async_write_fd, sizeof(struct async_record),
                        (uintptr_t)base);
    if (base->channel)
        fake_forget_records(base->channel->fd, ((struct channel *)base->channel)->write_fd, sizeof(uint64_t),
                            (uintptr_t)base);
    uint64_t comp_events = cq->comp_events, async_events = cq->async_events;
    fake_unlock();
    if (!wait_for_acks(base, (uint32_t)comp_events, (uint32_t)async_events))
        return EBUSY;
    fake_lock();
    fake_cq_slot_free(cq->slot);
    if (base->channel)
        base->channel->refcnt--;
    context->n_objects--;
    fake.live[FAKE_IBVERBS_CQS]--;
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    free(cq->ring);
    free(cq);
    return fake_leave(0);
}

/* ---- completions ---- */

void fake_cq_notify(uint32_t slot, bool solicited)
{
    struct shared_cq *shared = &fake.table->cqs[slot];
    if (shared->armed == 1 || (shared->armed == 2 && solicited)) {
        shared->armed = 0;
        fake_write_to(shared->pid, shared->event_fd, &shared->cookie, sizeof shared->cookie);
    }
}

static void overrun(struct cq *cq)
{
    cq->is_overrun = true;
    fake_cq_event(cq, IBV_EVENT_CQ_ERR);
    for (struct qp *qp = context_of(cq->base.context)->qps; qp; qp = qp->next)
        if (qp->base.send_cq == &cq->base || qp->base.recv_cq == &cq->base) {
            fake_qp_enter_error(fake_qp_shared(qp));
            fake_qp_event(fake_qp_shared(qp), IBV_EVENT_QP_FATAL);
        }
}

void fake_cq_push(struct cq *cq, const struct ibv_wc *wc, struct qp *qp, uint64_t retires, bool solicited)
{
    if (cq->is_overrun)
        return;
    if (cq->count == (unsigned)cq->base.cqe) {
        overrun(cq);
        return;
    }
    cq->ring[(cq->first + cq->count++) % (unsigned)cq->base.cqe] = (struct cqe){*wc, qp, retires};
    fake_cq_notify(cq->slot, solicited || wc->status != IBV_WC_SUCCESS);
}

void fake_cq_purge(struct cq *cq, const struct qp *qp)
{
    unsigned kept = 0, size = (unsigned)cq->base.cqe;
    for (unsigned i = 0; i < cq->count; i++) {
        const struct cqe *entry = &cq->ring[(cq->first + i) % size];
        if (entry->qp != qp)
            cq->ring[(cq->first + kept++) % size] = *entry;
    }
    cq->count = kept;
}

static void progress(struct cq *cq)
{
    for (struct qp *qp = context_of(cq->base.context)->qps; qp; qp = qp->next)
        if (qp->base.send_cq == &cq->base || qp->base.recv_cq == &cq->base)
            fake_qp_progress(qp);
}

/* The places of a request and of all before it are free once its completion is taken. */
static void retire(struct qp *qp, uint64_t until)
{
    for (; qp->retired < until; qp->retired++)
        qp->reads -= qp->requests[qp->retired % qp->cap.max_send_wr].opcode == IBV_WR_RDMA_READ;
}

int fake_poll_cq(struct ibv_cq *base, int entries, struct ibv_wc *wc)
{
    struct cq *cq = (struct cq *)base;
    int taken = 0, error = fake_enter(FN_ibv_poll_cq, base->context, NULL, cq);
    if (!error && cq->is_overrun)
        error = EOVERFLOW;
    if (error)
        return -fake_leave(error);
    cq->polls++;
    progress(cq);
    while (taken < entries && cq->count) {
        const struct cqe *entry = &cq->ring[cq->first];
        wc[taken++] = entry->wc;
        if (entry->retires)
            retire(entry->qp, entry->retires);
        cq->first = (cq->first + 1) % (unsigned)base->cqe;
        cq->count--;
    }
    return fake_leave(taken);
}

int fake_req_notify_cq(struct ibv_cq *base, int solicited_only)
{
    struct cq *cq = (struct cq *)base;
    int error = fake_enter(FN_ibv_req_notify_cq, base->context, NULL, cq);
    if (!error) {
        progress(cq);
        fake.table->cqs[cq->slot].armed = solicited_only ? 2 : 1;
        /* Whoever arms means to sleep: what waits for polls comes now, just after it. */
        for (struct qp *qp = context_of(base->context)->qps; qp; qp = qp->next)
            for (uint64_t i = qp->executed; qp->base.send_cq == base && i < qp->posted; i++)
                qp->requests[i % qp->cap.max_send_wr].due_polls = 0;
        progress(cq);
    }
    return fake_leave(error);
}
