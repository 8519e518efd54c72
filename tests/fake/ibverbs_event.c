/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: asynchronous events, and the changes of devices that cause them. */
#include "ibverbs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int fake_pipe(int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) < 0)
        return errno;
    fcntl(fds[1], F_SETFL, O_NONBLOCK); /* nobody waits here for a slow reader */
    return 0;
}

/* The kernel drops what was not read of an object that goes. */
void fake_forget_records(int read_fd, int write_fd, size_t record_bytes, uint64_t element)
{
    unsigned char record[sizeof(struct async_record)];
    int available = 0;
    if (ioctl(read_fd, FIONREAD, &available) < 0)
        return;
    for (; available >= (int)record_bytes; available -= (int)record_bytes) {
        uint64_t its_element;
        if (read(read_fd, record, record_bytes) != (ssize_t)record_bytes)
            return;
        memcpy(&its_element, record, sizeof its_element);
        if (its_element != element)
            fake_write_to(fake.pid, write_fd, record, record_bytes);
    }
}

struct device *fake_device(const char *name)
{
    for (unsigned i = 0; i < fake.config.n_devices; i++)
        if (strcmp(fake.config.devices[i].base.name, name) == 0)
            return &fake.config.devices[i];
    return NULL;
}

static void set_ports(const struct device *device)
{
    for (struct context *context = fake.contexts; context; context = context->next)
        for (struct qp *qp = context->device == device ? context->qps : NULL; qp; qp = qp->next)
            if (qp->attr.port_num)
                fake_qp_set_port(qp);
}

static void end_queues(const struct device *device)
{
    for (struct context *context = fake.contexts; context; context = context->next)
        for (struct qp *qp = context->device == device ? context->qps : NULL; qp; qp = qp->next) {
            fake_qp_enter_error(fake_qp_shared(qp));
            fake_qp_progress(qp);
        }
}

static void tell(struct context *context, enum ibv_event_type type, uint64_t element, int port)
{
    struct async_record record = {.element = element, .type = (int32_t)type, .port = port};
    fake_write_to(fake.pid, context->async_write_fd, &record, sizeof record);
}

static bool is_of_a_queue(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED: return true;
    default: return false;
    }
}

static void tell_context(struct context *context, enum ibv_event_type type, int port)
{
    if (!is_of_a_queue(type) && type != IBV_EVENT_CQ_ERR)
        tell(context, type, 0, port);
    for (struct qp *qp = context->qps; qp; qp = qp->next)
        if (is_of_a_queue(type))
            fake_qp_event(fake_qp_shared(qp), type);
        else if (type == IBV_EVENT_CQ_ERR)
            fake_cq_event((struct cq *)qp->base.send_cq, type);
}

void fake_device_event(struct device *device, enum ibv_event_type type, int port)
{
    struct ibv_port_attr *attr = &device->ports[port >= 1 && port <= PORTS ? port - 1 : 0].attr;
    if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE) {
        attr->state = type == IBV_EVENT_PORT_ERR ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
        attr->phys_state = type == IBV_EVENT_PORT_ERR ? 3 : 5;
        set_ports(device);
    }
    if (type == IBV_EVENT_DEVICE_FATAL)
        end_queues(device);
    for (struct context *context = fake.contexts; context; context = context->next)
        if (context->device == device)
            tell_context(context, type, port);
}

void fake_qp_event(const struct shared_qp *qp, enum ibv_event_type type)
{
    struct async_record record = {.element = qp->cookie, .type = (int32_t)type};
    fake_write_to(qp->pid, qp->async_fd, &record, sizeof record);
}

void fake_cq_event(struct cq *cq, enum ibv_event_type type)
{
    tell(context_of(cq->base.context), type, (uint64_t)(uintptr_t)&cq->base, 0);
}

void fake_remove_device(struct device *device)
{
    if (device->is_removed)
        return;
    fake_device_event(device, IBV_EVENT_DEVICE_FATAL, 0);
    device->is_removed = true;
}

/* ---- what tests call ---- */

int fake_ibverbs_event(const char *name, int type, int port)
{
    fake_lock();
    struct device *device = fake_device(name);
    if (device)
        fake_device_event(device, (enum ibv_event_type)type, port);
    return fake_leave(device ? 0 : -1);
}

int fake_ibverbs_remove(const char *name)
{
    fake_lock();
    struct device *device = fake_device(name);
    if (device)
        fake_remove_device(device);
    return fake_leave(device ? 0 : -1);
}

int fake_ibverbs_set_gid(const char *name, int port, int index, const char *address)
{
    union ibv_gid gid = {.raw = {0}};
    fake_lock();
    struct device *device = fake_device(name);
    bool is_good = device && port >= 1 && port <= PORTS && index >= 0 && index < GIDS &&
                   (!address || fake_gid_parse(&gid, address));
    if (is_good) {
        struct ibv_gid_entry *entry = &device->ports[port - 1].gids[index].entry;
        entry->gid = gid;
        entry->gid_index = (uint32_t)index;
        entry->port_num = (uint32_t)port;
        entry->gid_type = device->ports[port - 1].gids[index].used ? entry->gid_type : IBV_GID_TYPE_ROCE_V2;
        device->ports[port - 1].gids[index].used = address;
        set_ports(device);
        fake_device_event(device, IBV_EVENT_GID_CHANGE, port);
    }
    return fake_leave(is_good ? 0 : -1);
}

int fake_ibverbs_set_lid(const char *name, int port, uint16_t lid)
{
    fake_lock();
    struct device *device = fake_device(name);
    bool is_good = device && port >= 1 && port <= PORTS;
    if (is_good) {
        device->ports[port - 1].attr.lid = lid;
        set_ports(device);
        fake_device_event(device, IBV_EVENT_LID_CHANGE, port);
    }
    return fake_leave(is_good ? 0 : -1);
}

/* ---- what programs call ---- */

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int error = fake_leave(fake_enter(FN_ibv_get_async_event, context, NULL, NULL));
    if (error) {
        errno = error;
        return -1;
    }
    struct async_record record;
    if (read(context->async_fd, &record, sizeof record) != (ssize_t)sizeof record)
        return -1;
    event->event_type = (enum ibv_event_type)record.type;
    fake_lock();
    fake.live[FAKE_IBVERBS_UNACKED]++;
    if (is_of_a_queue(event->event_type)) {
        event->element.qp = (struct ibv_qp *)(uintptr_t)record.element;
        ((struct qp *)event->element.qp)->async_events++;
    } else if (event->event_type == IBV_EVENT_CQ_ERR) {
        event->element.cq = (struct ibv_cq *)(uintptr_t)record.element;
        ((struct cq *)event->element.cq)->async_events++;
    } else {
        event->element.port_num = record.port;
    }
    fake_unlock();
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    fake_lock();
    fake.live[FAKE_IBVERBS_UNACKED]--;
    fake_unlock();
    if (is_of_a_queue(event->event_type)) {
        struct ibv_qp *qp = event->element.qp;
        pthread_mutex_lock(&qp->mutex);
        qp->events_completed++;
        pthread_cond_signal(&qp->cond);
        pthread_mutex_unlock(&qp->mutex);
    } else if (event->event_type == IBV_EVENT_CQ_ERR) {
        struct ibv_cq *cq = event->element.cq;
        pthread_mutex_lock(&cq->mutex);
        cq->async_events_completed++;
        pthread_cond_signal(&cq->cond);
        pthread_mutex_unlock(&cq->mutex);
    }
}
