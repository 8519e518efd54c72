/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A port that is in use: opened, watched, closed. */
#include "base/log.h"
#include "base/options.h"
#include "rail/verbs_find.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the rest of the room knows of a port, and what only this file does. */
struct watched {
    struct gpusys_verbs verbs; /* first */
    pthread_mutex_t lock;      /* over verbs.info, gid and port_attributes: an event changes them */
    pthread_mutex_t events;    /* over the taking of one */
    bool is_gone_reported;
    char netdev[16]; /* that was asked for: GIDs of this interface are meant. Empty: any */
};

static struct watched *watched_of(const struct gpusys_verbs *verbs)
{
    return (struct watched *)(uintptr_t)verbs;
}

/* ---- opening ---- */

static int take_options(struct gpusys_verbs_options *ret_options, const struct gpusys_verbs_options *options,
                        struct gpusys_error *error)
{
    int code = gs_options_take(ret_options, sizeof *ret_options, options);
    if (code)
        return gpusys_error_set(error, code, "RDMA port: the options are not of this version");
    if (ret_options->flags & ~(GPUSYS_VERBS_GID_INDEX | GPUSYS_VERBS_DOWN_OK))
        return gpusys_error_set(error, -EINVAL, "RDMA port: unknown flags 0x%x", ret_options->flags);
    return 0;
}

/* Look at the one device where it is named, else at all of them. */
static int take_snapshot(struct gpusys_ports **ret_ports, const struct gs_target *target, const char *local,
                         const uint8_t *peer, struct gpusys_error *error)
{
    struct gpusys_ports *ports;
    const char *only = target->name[0] ? target->name : NULL;
    int code = gs_ports_read(&ports, only, local, peer, error);
    if (code)
        return code;
    if (only &&
        !gs_target_is_in(target, ports)) { /* an interface, or a mistake: then the error lists them all */
        gpusys_ports_free(ports);
        code = gs_ports_read(&ports, NULL, local, peer, error);
    }
    if (!code)
        *ret_ports = ports;
    return code;
}

static const struct gs_gid *choose_gid(const struct gs_port *port, const char *netdev,
                                       const struct gpusys_verbs_options *options, struct gpusys_error *error)
{
    struct gs_gid_aim aim;
    if (!(options->flags & GPUSYS_VERBS_GID_INDEX))
        return gs_port_best_gid(port, netdev);
    gs_gid_aim(&aim, port->info.link_layer, options->local_address, options->peer);
    return gs_port_gid_at(port, options->gid_index, &aim, error);
}

/* Events must never make a caller wait. */
static int make_events_non_blocking(const struct ibv_context *context)
{
    int flags = fcntl(context->async_fd, F_GETFL);
    return flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

static struct watched *watched_new(const struct gs_ibv *ibv, const struct gs_port *port,
                                   const struct gs_gid *gid, const char *netdev,
                                   const struct gpusys_verbs_options *options)
{
    struct watched *watched = calloc(1, sizeof *watched);
    if (!watched)
        return NULL;
    struct gpusys_verbs *verbs = &watched->verbs;
    verbs->ibv = ibv;
    verbs->context = port->context;
    verbs->port = port->info.port;
    verbs->info = port->info;
    verbs->port_attributes = port->attributes;
    verbs->gid = gid ? gid->info : (struct gpusys_gid_info){.size = sizeof verbs->gid};
    verbs->fixed_gid = (options->flags & GPUSYS_VERBS_GID_INDEX) != 0;
    verbs->has_peer = options->peer != NULL;
    if (options->peer)
        memcpy(verbs->peer, options->peer, sizeof verbs->peer);
    if (options->local_address)
        snprintf(verbs->local_address, sizeof verbs->local_address, "%s", options->local_address);
    if (verbs->gid.netdev[0])
        memcpy(verbs->info.netdev, verbs->gid.netdev, sizeof verbs->info.netdev);
    if (netdev)
        snprintf(watched->netdev, sizeof watched->netdev, "%.15s", netdev);
    atomic_init(&verbs->health, gs_port_is_up(port->info.state) ? 0 : -ENETDOWN);
    pthread_mutex_init(&watched->lock, NULL);
    pthread_mutex_init(&watched->events, NULL);
    return watched;
}

/* Make the port of a snapshot ours. */
static int open_port(struct gpusys_verbs **ret_verbs, struct gpusys_ports *ports, struct gs_port *port,
                     const char *netdev, const struct gpusys_verbs_options *options,
                     struct gpusys_error *error)
{
    const struct gpusys_port_info *info = &port->info;
    const struct gs_gid *gid = choose_gid(port, netdev, options, error);
    if (!gid && (options->flags & GPUSYS_VERBS_GID_INDEX))
        return -EINVAL;
    struct ibv_device_attr attributes = {0};
    int code = make_events_non_blocking(port->context);
    int result = code ? 0 : ports->ibv->query_device(port->context, &attributes);
    if (result)
        code = gs_ibv_errno(result);
    if (code)
        return gpusys_error_set_errno(error, code, "%s port %u", info->device, info->port);
    struct watched *watched = watched_new(ports->ibv, port, gid, netdev, options);
    if (!watched)
        return gpusys_error_set_errno(error, -ENOMEM, "%s port %u", info->device, info->port);
    watched->verbs.device_attributes = attributes;
    gs_ports_take_context(ports, port);
    gs_log(GPUSYS_LOG_INFO, "%s port %u: %u Mb/s, MTU %u, GID %u %s: %s", info->device, info->port,
           info->rate_mbps, info->mtu_bytes, watched->verbs.gid.index, watched->verbs.gid.text,
           watched->verbs.gid.reason);
    *ret_verbs = &watched->verbs;
    return 0;
}

int gpusys_verbs_open(struct gpusys_verbs **ret_verbs, const struct gpusys_verbs_options *caller_options,
                      struct gpusys_error *error)
{
    struct gpusys_verbs_options options;
    struct gs_target target;
    struct gpusys_ports *ports;
    int code = take_options(&options, caller_options, error);
    if (!code)
        code = gs_target_parse(&target, options.device, error);
    if (code)
        return code;
    if (!options.local_address)
        options.local_address = target.address;
    code = take_snapshot(&ports, &target, options.local_address, options.peer, error);
    if (code)
        return code;
    struct gs_port *port = gs_port_find(ports, &target, options.flags, &code, error);
    if (port)
        code = open_port(ret_verbs, ports, port, gs_target_netdev(&target, port), &options, error);
    gpusys_ports_free(ports);
    return code;
}

void gpusys_verbs_close(struct gpusys_verbs *verbs)
{
    if (!verbs)
        return;
    struct watched *watched = watched_of(verbs);
    int result = verbs->ibv->close_device(verbs->context);
    if (result)
        gs_log(GPUSYS_LOG_WARN, "%s: the device is still in use: %s", verbs->info.device,
               strerrordesc_np(-gs_ibv_errno(result)));
    pthread_mutex_destroy(&watched->lock);
    pthread_mutex_destroy(&watched->events);
    free(watched);
}

int gpusys_verbs_info(const struct gpusys_verbs *verbs, struct gpusys_port_info *ret_port,
                      struct gpusys_gid_info *ret_gid)
{
    struct watched *watched = watched_of(verbs);
    pthread_mutex_lock(&watched->lock);
    int code = ret_port ? gs_info_give(ret_port, &verbs->info, sizeof *ret_port) : 0;
    if (!code && ret_gid)
        code = gs_info_give(ret_gid, &verbs->gid, sizeof *ret_gid);
    pthread_mutex_unlock(&watched->lock);
    return code;
}

/* ---- events ---- */

int gpusys_verbs_fd(const struct gpusys_verbs *verbs)
{
    return verbs->context->async_fd;
}

int gpusys_verbs_health(const struct gpusys_verbs *verbs)
{
    return atomic_load(&verbs->health);
}

/* A device that is gone does not come back, whatever its ports still say. */
static void set_health(struct gpusys_verbs *verbs, int health)
{
    int now = atomic_load(&verbs->health);
    while (now != -ENODEV && !atomic_compare_exchange_weak(&verbs->health, &now, health))
        continue;
}

/* The GID that counts now, among those just read: the fixed one, or the best. */
static struct gpusys_gid_info current_gid(const struct watched *watched, const struct gs_port *port)
{
    const struct gpusys_verbs *verbs = &watched->verbs;
    const struct gs_gid *gid = NULL;
    if (verbs->fixed_gid) {
        for (uint32_t i = 0; i < port->info.n_gids; i++)
            if (port->gids[i].info.index == verbs->gid.index)
                gid = &port->gids[i];
    } else {
        gid = gs_port_best_gid(port, watched->netdev[0] ? watched->netdev : NULL);
    }
    return gid ? gid->info
               : (struct gpusys_gid_info){.size = sizeof verbs->gid,
                                          .index = verbs->gid.index,
                                          .reason = "not usable: the table has it no more"};
}

static bool is_other_gid(const struct gpusys_gid_info *a, const struct gpusys_gid_info *b)
{
    return a->index != b->index || a->type != b->type || memcmp(a->gid, b->gid, sizeof a->gid) != 0;
}

/* Read the port again. With `gids`, choose among its GIDs again: was another one chosen? */
static bool reread(struct watched *watched, bool gids)
{
    struct gpusys_verbs *verbs = &watched->verbs;
    struct gs_port port = {.context = verbs->context};
    int code =
        gs_port_read(&port, verbs->ibv, verbs->port, verbs->local_address[0] ? verbs->local_address : NULL,
                     verbs->has_peer ? verbs->peer : NULL);
    if (code)
        return false;
    struct gpusys_gid_info gid = gids ? current_gid(watched, &port) : verbs->gid;
    bool changed = is_other_gid(&gid, &verbs->gid);
    pthread_mutex_lock(&watched->lock);
    verbs->gid = gid;
    verbs->info = port.info;
    verbs->port_attributes = port.attributes;
    if (gid.netdev[0])
        memcpy(verbs->info.netdev, gid.netdev, sizeof gid.netdev);
    pthread_mutex_unlock(&watched->lock);
    free(port.gids);
    return changed;
}

static bool is_of_port(int type)
{
    return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_LID_CHANGE ||
           type == IBV_EVENT_PKEY_CHANGE || type == IBV_EVENT_SM_CHANGE ||
           type == IBV_EVENT_CLIENT_REREGISTER || type == IBV_EVENT_GID_CHANGE;
}

static uint32_t kind_of(int type)
{
    switch (type) {
    case IBV_EVENT_PORT_ERR: return GPUSYS_EVENT_PORT_DOWN;
    case IBV_EVENT_PORT_ACTIVE: return GPUSYS_EVENT_PORT_UP;
    case IBV_EVENT_DEVICE_FATAL: return GPUSYS_EVENT_DEVICE_GONE;
    case IBV_EVENT_GID_CHANGE: return GPUSYS_EVENT_GID_CHANGE;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: return GPUSYS_EVENT_QP_FATAL;
    case IBV_EVENT_CQ_ERR: return GPUSYS_EVENT_CQ_ERROR;
    default: return GPUSYS_EVENT_OTHER;
    }
}

/* An interface that comes back has its GIDs anew, and perhaps at other indices. */
static void apply(struct watched *watched, struct gpusys_verbs_event *event)
{
    struct gpusys_verbs *verbs = &watched->verbs;
    bool gids = event->kind == GPUSYS_EVENT_GID_CHANGE || event->kind == GPUSYS_EVENT_PORT_UP;
    if (is_of_port(event->foreign))
        event->gid_changed = reread(watched, gids);
    if (event->kind == GPUSYS_EVENT_PORT_DOWN)
        set_health(verbs, -ENETDOWN);
    else if (event->kind == GPUSYS_EVENT_PORT_UP)
        set_health(verbs, 0);
    else if (event->kind == GPUSYS_EVENT_DEVICE_GONE)
        set_health(verbs, -ENODEV);
}

/* The event queue itself is broken: the device was taken away. Said once. */
static int device_gone(struct watched *watched, int error, struct gpusys_verbs_event *ret_event)
{
    set_health(&watched->verbs, -ENODEV);
    if (watched->is_gone_reported)
        return -ENODEV;
    watched->is_gone_reported = true;
    *ret_event =
        (struct gpusys_verbs_event){.kind = GPUSYS_EVENT_DEVICE_GONE, .foreign = IBV_EVENT_DEVICE_FATAL};
    snprintf(ret_event->text, sizeof ret_event->text, "reading events: %s", strerrordesc_np(error));
    return 1;
}

static int next_event(struct watched *watched, struct gpusys_verbs_event *ret_event)
{
    struct gpusys_verbs *verbs = &watched->verbs;
    const struct gs_ibv *ibv = verbs->ibv;
    struct ibv_async_event foreign;
    do {
        errno = 0;
        if (ibv->get_async_event(verbs->context, &foreign)) {
            if (errno == EAGAIN || errno == EINTR)
                return 0;
            return device_gone(watched, errno ? errno : EIO, ret_event);
        }
        ibv->ack_async_event(&foreign); /* at once: what it is about cannot be destroyed before */
    } while (is_of_port((int)foreign.event_type) && foreign.element.port_num != (int)verbs->port);
    struct gpusys_verbs_event event = {.kind = kind_of((int)foreign.event_type),
                                       .foreign = (int32_t)foreign.event_type};
    snprintf(event.text, sizeof event.text, "%s",
             ibv->event_type_str ? ibv->event_type_str(foreign.event_type) : "asynchronous event");
    if (event.kind == GPUSYS_EVENT_DEVICE_GONE)
        watched->is_gone_reported = true;
    apply(watched, &event);
    gs_log(GPUSYS_LOG_INFO, "%s port %u: %s", verbs->info.device, verbs->port, event.text);
    *ret_event = event;
    return 1;
}

/* Queue pairs of one port may wait in several threads, and each looks for events. */
int gpusys_verbs_event(struct gpusys_verbs *verbs, struct gpusys_verbs_event *ret_event)
{
    struct watched *watched = watched_of(verbs);
    pthread_mutex_lock(&watched->events);
    int count = next_event(watched, ret_event);
    pthread_mutex_unlock(&watched->events);
    return count;
}
