/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Verbs rails at the peer. It sets up queue pairs and hands out keys; the bytes move without it. What the driver may
 * take its time for runs in the pool.
 */
#include "rail/verbs_rail.h"
#include "remote/serve.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* ---- ports ---- */

static int open_port(struct gpusys_peer *peer, const char *device, struct gpusys_error *error)
{
    struct gs_served_port *port = &peer->ports.at[peer->ports.n];
    struct gpusys_verbs_options options = {.size = sizeof options, .device = device};
    int result = gpusys_verbs_open(&port->verbs, &options, error);
    if (result)
        return result;
    port->info.size = sizeof port->info;
    gpusys_verbs_info(port->verbs, &port->info, NULL);
    peer->ports.n++;
    return 0;
}

/* All that can be used; a machine without any is none the worse. */
static void open_all(struct gpusys_peer *peer)
{
    struct gpusys_ports *ports;
    struct gpusys_error error = {0};
    if (gpusys_ports_new(&ports, NULL, NULL, &error)) {
        gs_log(GPUSYS_LOG_INFO, "no RDMA is offered: %s", error.message);
        return;
    }
    for (uint32_t i = 0; i < gpusys_ports_count(ports) && peer->ports.n < GS_PORTS_MAX; i++) {
        struct gpusys_port_info info = {.size = sizeof info};
        char name[96];
        gpusys_ports_port(ports, i, &info);
        snprintf(name, sizeof name, "%s:%u", info.device, info.port);
        const char *problem = info.problem[0]                 ? info.problem
                              : open_port(peer, name, &error) ? error.message
                                                              : NULL;
        if (problem)
            gs_log(GPUSYS_LOG_WARN, "%s is not offered: %s", name, problem);
    }
    gpusys_ports_free(ports);
}

int gs_verbs_serve_open(struct gpusys_peer *peer, const char *const *devices, uint32_t n_devices,
                        struct gpusys_error *error)
{
    int result = 0;
    for (uint32_t i = 0; i < n_devices && !result; i++)
        result = open_port(peer, devices[i], error);
    if (n_devices == 0)
        open_all(peer);
    return result;
}

void gs_verbs_serve_close(struct gpusys_peer *peer)
{
    for (unsigned i = 0; i < peer->ports.n; i++)
        gpusys_verbs_close(peer->ports.at[i].verbs);
    peer->ports.n = 0;
}

static void port_ready(struct gs_source *source, uint32_t events)
{
    struct gs_served_port *port =
        (struct gs_served_port *)((char *)source - offsetof(struct gs_served_port, source));
    struct gpusys_verbs_event event;
    (void)events;
    while (gpusys_verbs_event(port->verbs, &event) > 0) {
        /* it has been logged, and the port's health says the rest */
    }
}

void gs_verbs_serve_watch(struct gpusys_peer *peer)
{
    for (unsigned i = 0; i < peer->ports.n; i++) {
        struct gs_served_port *port = &peer->ports.at[i];
        port->source = (struct gs_source){.fd = gpusys_verbs_fd(port->verbs), .ready = port_ready};
        gs_loop_watch(peer->workers[0].loop, &port->source, EPOLLIN);
    }
}

/* ---- the offer ---- */

/* The GID of a port that suits this client best. */
static int choose_gid(const struct gs_conn *conn, const struct gs_served_port *port, const uint8_t *peer,
                      struct gpusys_gid_info *ret_gid)
{
    char local[GS_ADDRESS_BYTES];
    bool has_local = gs_address_of_self(conn->source.fd, local) == 0 && strncmp(local, "unix:", 5) != 0;
    *ret_gid = (struct gpusys_gid_info){.size = sizeof *ret_gid};
    return gpusys_verbs_gid_for(port->verbs, has_local ? local : NULL, peer, ret_gid);
}

/* Every port has its place in the list, one that is of no use now with an MTU of 0. */
static void describe(const struct gs_conn *conn, const struct gs_served_port *port, const uint8_t *peer,
                     struct gs_rail_record *ret_record)
{
    struct gpusys_gid_info gid;
    const struct gpusys_port_info *info = &port->info;
    *ret_record =
        (struct gs_rail_record){.transport = GPUSYS_TRANSPORT_VERBS,
                                .link_layer = gs_record_link_layer(info->link_layer, info->grh_required),
                                .numa_node = (int16_t)info->numa_node};
    memcpy(ret_record->device, info->device, strnlen(info->device, sizeof ret_record->device - 1));
    if (gpusys_verbs_health(port->verbs) || choose_gid(conn, port, peer, &gid) || !gid.usable)
        return;
    ret_record->lid = (uint16_t)info->lid;
    ret_record->mtu_bytes = (uint16_t)info->mtu_bytes;
    ret_record->reads_out = (uint8_t)(info->reads_out < 255 ? info->reads_out : 255);
    ret_record->reads_in = (uint8_t)(info->reads_in < 255 ? info->reads_in : 255);
    ret_record->gid_index = (uint16_t)gid.index;
    memcpy(ret_record->gid, gid.gid, sizeof ret_record->gid);
}

void gs_verbs_serve_offer(struct gs_conn *conn, const struct gs_hello *hello, struct gs_welcome *welcome)
{
    const struct gs_served_ports *ports = &conn->worker->peer->ports;
    if (hello->n_rails == 0)
        return; /* it wants none */
    for (unsigned i = 0; i < ports->n; i++)
        describe(conn, &ports->at[i], hello->rails[0].gid, &welcome->rails[welcome->n_rails++]);
}

/* ---- the grant of a session ---- */

/* Shared by all sessions when none can have anything of its own. */
static struct gs_verbs_grant *grant_of(struct gs_session *session)
{
    struct gpusys_peer *peer = session->worker->peer;
    struct gs_verbs_grant *grant = NULL;
    if (session->grant)
        return session->grant;
    pthread_mutex_lock(&peer->lock);
    if (peer->shared_grant)
        grant = gs_verbs_grant_hold(peer->shared_grant);
    else if (gs_verbs_grant_new(&grant, &peer->ports) == 0 && peer->arena_limit == 0)
        peer->shared_grant = grant;
    pthread_mutex_unlock(&peer->lock);
    session->grant = grant;
    return grant;
}

struct free_job {
    struct gs_job job;
    struct gs_verbs_grant *grant;
};

static void free_work(struct gs_job *job)
{
    gs_verbs_grant_free(((struct free_job *)job)->grant);
}

static void free_done(struct gs_task *task)
{
    free(task);
}

/* Deregistering much memory takes a while: in the pool, unless all is being closed. */
static void drop_grant(struct gs_worker *worker, struct gs_verbs_grant *grant)
{
    struct gpusys_peer *peer = worker->peer;
    pthread_mutex_lock(&peer->lock);
    bool is_last = gs_verbs_grant_release(grant);
    if (is_last && peer->shared_grant == grant)
        peer->shared_grant = NULL;
    pthread_mutex_unlock(&peer->lock);
    if (!is_last)
        return;
    struct free_job *job = atomic_load(&peer->closing) ? NULL : calloc(1, sizeof *job);
    if (!job) {
        gs_verbs_grant_free(grant);
        return;
    }
    job->job = (struct gs_job){.loop = worker->loop, .work = free_work, .done.run = free_done};
    job->grant = grant;
    gs_pool_submit(peer->pool, &job->job);
}

void gs_verbs_serve_leave(struct gs_session *session)
{
    if (session->grant)
        drop_grant(session->worker, session->grant);
    session->grant = NULL;
}

void gs_verbs_serve_stop(struct gs_conn *conn)
{
    gpusys_qp_close(conn->qp);
    conn->qp = NULL;
}

/* ---- jobs ---- */

struct verbs_job {
    struct gs_job job;
    struct gs_conn *conn;
    struct gs_worker *worker;
    struct gs_verbs_grant *grant; /* held */
    uint64_t serial;
    unsigned port;
    int result;
    struct gpusys_error error;

    /* RAIL */
    struct gs_rail_wish wish;
    uint32_t gid_index;
    struct gpusys_qp *qp;
    struct gs_railed railed;

    /* KEY */
    struct gs_region *region; /* held */
    struct gs_keyed keyed;
    struct gs_key_entry *keys;
};

static enum gs_refusal refusal_of(int result)
{
    return result == -ESTALE   ? GS_REFUSED_CHANGED
           : result == -EIO    ? GS_REFUSED_IO
           : result == -ENOENT ? GS_REFUSED_REGION
                               : GS_REFUSED_LIMIT;
}

/* The client is told what and why; the numbers and what to do are for whoever runs this server. */
static void decline(const struct verbs_job *self)
{
    const struct gpusys_error *error = &self->error;
    char detail[sizeof error->detail];
    snprintf(detail, sizeof detail, "%s", error->detail);
    for (char *at = detail; *at; at++)
        *at = *at == '\n' ? ';' : *at == '\t' ? ' ' : *at;
    if (error->hint[0] && self->conn->complaints < GS_COMPLAINTS_MAX)
        gs_log(GPUSYS_LOG_WARN, "%s (%s); %s", error->message, detail, error->hint);
    gs_conn_decline(self->conn, self->serial, refusal_of(self->result), "%s%s%s", error->message,
                    error->cause[0] ? ": " : "", error->cause);
}

static void free_job(struct verbs_job *self)
{
    gpusys_qp_close(self->qp);
    if (self->region)
        gs_region_drop(self->region);
    free(self->keys);
    drop_grant(self->worker, self->grant);
    free(self);
}

/* What could not be done because the port is gone can be done on another: that is the end of the rail only. */
static void reply(struct verbs_job *self, int (*answer)(struct verbs_job *self))
{
    if (self->result == -ENODEV && self->conn->qp) {
        gs_conn_complain(self->conn, "a rail ended: %s", self->error.message);
        gs_conn_close(self->conn);
    } else if (self->result)
        decline(self);
    else if (answer(self))
        gs_conn_close(self->conn);
}

/* Back on the worker: the answer, unless the rail is gone or broke the rules meanwhile. */
static void finish(struct verbs_job *self, int (*answer)(struct verbs_job *self))
{
    struct gs_conn *conn = self->conn;
    if (gs_conn_drop_job(conn)) {
        if (conn->role == GS_ROLE_VERBS)
            reply(self, answer);
        gs_conn_resume(conn);
    }
    free_job(self);
}

static struct verbs_job *new_job(struct gs_conn *conn, uint64_t serial, void (*work)(struct gs_job *job),
                                 void (*done)(struct gs_task *task))
{
    struct gs_verbs_grant *grant = grant_of(conn->session);
    struct verbs_job *self = grant ? calloc(1, sizeof *self) : NULL;
    if (!self)
        return NULL;
    self->job = (struct gs_job){.loop = conn->worker->loop, .work = work, .done.run = done};
    self->conn = conn;
    self->worker = conn->worker;
    self->grant = gs_verbs_grant_hold(grant);
    self->serial = serial;
    self->port = conn->port;
    return self;
}

static void submit(struct verbs_job *self)
{
    gs_conn_hold_job(self->conn);
    gs_pool_submit(self->worker->peer->pool, &self->job);
}

/* ---- RAIL ---- */

static void rail_work(struct gs_job *job)
{
    struct verbs_job *self = (struct verbs_job *)job;
    struct gpusys_qp_options options = {.size = sizeof options, .depth = 1};
    struct gpusys_qp_end peer;
    struct gpusys_pd *pd;
    if (self->worker->peer->ports.at[self->port].info.link_layer == GPUSYS_LINK_ETHERNET) {
        options.flags = GPUSYS_QP_GID_INDEX;
        options.gid_index = self->gid_index;
    }
    gs_rail_end_of(&self->wish.rail, &peer);
    self->result = gs_verbs_grant_port(self->grant, self->port, &pd, &self->railed, &self->error);
    if (!self->result)
        self->result = gpusys_qp_open(&self->qp, pd, &options, &self->error);
    if (!self->result)
        self->result = gpusys_qp_connect(self->qp, &peer, &self->error);
}

static int answer_rail(struct verbs_job *self)
{
    struct gs_conn *conn = self->conn;
    const struct gs_served_port *port = &self->worker->peer->ports.at[self->port];
    gs_rail_record_of(self->qp, &self->railed.rail);
    self->railed.rail.numa_node = (int16_t)port->info.numa_node;
    self->railed.rail.generation = conn->generation;
    memcpy(self->railed.rail.device, port->info.device,
           strnlen(port->info.device, sizeof self->railed.rail.device - 1));
    conn->qp = self->qp;
    self->qp = NULL;
    atomic_fetch_add(&self->worker->peer->rails_total, 1);
    gs_log(GPUSYS_LOG_INFO, "client %llu has rail %u between %.23s and our %s",
           (unsigned long long)conn->session->number, conn->rail, self->wish.rail.device, port->info.device);
    return gs_railed_encode(&conn->channel.out, self->serial, &self->railed);
}

static void rail_done(struct gs_task *task)
{
    finish((struct verbs_job *)task, answer_rail);
}

static int rail(struct gs_conn *conn, uint64_t serial, const struct gs_rail_wish *wish)
{
    struct gpusys_peer *peer = conn->worker->peer;
    struct gpusys_gid_info gid;
    if (conn->qp || conn->jobs || wish->rail.generation != conn->generation)
        return -EBADMSG; /* once is enough */
    if (wish->offer >= peer->ports.n) {
        gs_conn_decline(conn, serial, GS_REFUSED_RANGE, "there is no RDMA port %u here", wish->offer);
        return 0;
    }
    struct gs_served_port *port = &peer->ports.at[wish->offer];
    conn->port = wish->offer;
    if (gpusys_verbs_health(port->verbs) || choose_gid(conn, port, wish->rail.gid, &gid)) {
        gs_conn_decline(conn, serial, GS_REFUSED_LIMIT, "%s port %u is down, or gone", port->info.device,
                        port->info.port);
        return 0;
    }
    struct verbs_job *self = new_job(conn, serial, rail_work, rail_done);
    if (!self)
        return -ENOMEM;
    self->wish = *wish;
    self->gid_index = gid.index;
    submit(self);
    return 0;
}

/* ---- KEY ---- */

static void key_work(struct gs_job *job)
{
    struct verbs_job *self = (struct verbs_job *)job;
    self->result =
        gs_verbs_grant_keys(self->grant, self->port, self->region, &self->keyed, &self->keys, &self->error);
}

static int answer_key(struct verbs_job *self)
{
    return gs_keyed_encode(&self->conn->channel.out, self->serial, &self->keyed, self->keys);
}

static void key_done(struct gs_task *task)
{
    finish((struct verbs_job *)task, answer_key);
}

static int key(struct gs_conn *conn, uint64_t serial, uint32_t number)
{
    struct gs_region *region = gs_session_region(conn->session, number);
    if (!conn->qp)
        return -EBADMSG; /* RAIL comes first */
    if (!region || region->length == 0) {
        gs_conn_decline(conn, serial, GS_REFUSED_REGION, "there are no bytes in region %u", number);
        return 0;
    }
    struct verbs_job *self = new_job(conn, serial, key_work, key_done);
    if (!self)
        return -ENOMEM;
    self->region = gs_region_hold(region);
    submit(self);
    return 0;
}

void gs_verbs_serve(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body)
{
    struct gs_rail_wish wish;
    uint32_t region;
    int error = -EBADMSG;
    if (frame->type == GS_RAIL)
        error = gs_rail_decode(body, frame->body_bytes, &wish) ?: rail(conn, frame->serial, &wish);
    else if (frame->type == GS_KEY)
        error =
            gs_region_message_decode(body, frame->body_bytes, &region) ?: key(conn, frame->serial, region);
    if (error == -EBADMSG) {
        gs_conn_refuse(conn, frame->serial, GS_REFUSED_MESSAGE, "message %u makes no sense on a verbs rail",
                       frame->type);
        gs_verbs_serve_stop(conn);
    } else if (error) {
        gs_conn_complain(conn, "disconnected: %s", strerrordesc_np(-error));
        gs_conn_close(conn);
    }
}
