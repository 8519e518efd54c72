/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A verbs rail is opened over a connection of its own (docs/protocol.md): ATTACH, then both sides say their end of
 * the queue pair, then a read shows that packets flow. The same connection gives the keys of regions, and its end is
 * the end of the rail.
 */
#include "rail/verbs_open.h"

#include "base/deadline.h"
#include "rail/verbs_end.h"
#include "rail/verbs_rail.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static const int64_t probe_ns = 2000000000;

void gs_rail_record_of(const struct gpusys_qp *qp, struct gs_rail_record *ret_record)
{
    struct gpusys_qp_end end = {.size = sizeof end};
    gpusys_qp_end(qp, &end);
    *ret_record =
        (struct gs_rail_record){.transport = GPUSYS_TRANSPORT_VERBS,
                                .link_layer = gs_record_link_layer(end.link_layer, end.grh_required),
                                .lid = (uint16_t)end.lid,
                                .gid_index = (uint16_t)end.gid_index,
                                .mtu_bytes = (uint16_t)end.mtu_bytes,
                                .reads_out = (uint8_t)(end.reads_out < 255 ? end.reads_out : 255),
                                .reads_in = (uint8_t)(end.reads_in < 255 ? end.reads_in : 255),
                                .numa_node = -1,
                                .qpn = end.qpn,
                                .psn = end.psn};
    memcpy(ret_record->gid, end.gid, sizeof ret_record->gid);
}

void gs_rail_end_of(const struct gs_rail_record *record, struct gpusys_qp_end *ret_end)
{
    *ret_end = (struct gpusys_qp_end){.size = sizeof *ret_end,
                                      .qpn = record->qpn,
                                      .psn = record->psn,
                                      .lid = record->lid,
                                      .link_layer = gs_link_layer_of(record),
                                      .grh_required = record->link_layer == GS_LINK_INFINIBAND_GRH,
                                      .mtu_bytes = record->mtu_bytes,
                                      .reads_out = record->reads_out,
                                      .reads_in = record->reads_in,
                                      .gid_index = record->gid_index};
    memcpy(ret_end->gid, record->gid, sizeof ret_end->gid);
}

/* ---- what every verbs rail has ---- */

static int watch(const struct gs_verbs_rail *self, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    return fd < 0 || epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int make_bounce(struct gs_verbs_rail *self, struct gpusys_error *error)
{
    size_t bytes = (size_t)GS_BOUNCE_BYTES * self->n_slots;
    struct gpusys_mr_info info = {.size = sizeof info};
    self->bounce = aligned_alloc(4096, bytes);
    if (!self->bounce)
        return gpusys_error_set_errno(error, -ENOMEM, "a verbs rail");
    int result =
        gpusys_mr_open(&self->bounce_mr, self->end->pd, self->bounce, bytes, GPUSYS_MR_LANDING, error);
    if (result)
        return result;
    gpusys_mr_info(self->bounce_mr, &info);
    self->bounce_lkey = info.lkey;
    return 0;
}

static int new_rail(struct gs_verbs_rail **ret_rail, struct gs_verbs_end *end, struct gpusys_error *error)
{
    struct gs_verbs_rail *self = calloc(1, sizeof *self);
    if (!self)
        return gpusys_error_set_errno(error, -ENOMEM, "a verbs rail");
    self->rail.ops = &gs_rail_verbs;
    self->end = gs_verbs_end_hold(end);
    self->control = -1;
    self->spins = true;
    self->keys = &self->own_keys;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->epoll < 0) {
        int code = gpusys_error_set_errno(error, -errno, "a verbs rail");
        gs_rail_verbs.close(&self->rail);
        return code;
    }
    *ret_rail = self;
    return 0;
}

/* Once there is a queue pair: as many slots as it takes (a slice may be several requests), and what wakes us. */
static int fit_out(struct gs_verbs_rail *self, struct gpusys_error *error)
{
    struct gpusys_qp_info info = {.size = sizeof info};
    int result = gpusys_qp_info(self->qp, &info);
    if (result)
        return gpusys_error_set_errno(error, result, "a verbs rail");
    uint64_t slots = info.depth / 4, bounces = self->end->port.max_mr_bytes / GS_BOUNCE_BYTES;
    slots = slots < bounces ? slots : bounces; /* their memory is one registration */
    uint64_t most = info.depth < 8 ? 1 : info.depth / 8;
    self->read_bytes = most * info.max_read_bytes;
    self->write_bytes = most * info.max_write_bytes;
    self->n_slots = slots < 1 ? 1 : slots < GS_VERBS_SLOTS ? (unsigned)slots : GS_VERBS_SLOTS;
    for (unsigned i = 0; i < self->n_slots; i++)
        self->free_slots[self->n_free++] = (uint16_t)(self->n_slots - 1 - i);
    result = make_bounce(self, error);
    if (result)
        return result;
    result = watch(self, gpusys_qp_fd(self->qp), EPOLLIN)
                 ?: watch(self, gpusys_verbs_fd(self->end->verbs), EPOLLIN);
    return result ? gpusys_error_set_errno(error, result, "a verbs rail") : 0;
}

int gs_verbs_rail_adopt(struct gs_rail **ret_rail, const struct gpusys_rail *parts,
                        const struct gpusys_region_key *keys, uint32_t n_keys, int control,
                        struct gpusys_error *error)
{
    struct gs_verbs_rail *self = NULL;
    struct gs_verbs_end *end = NULL;
    int result = gs_verbs_end_new(&end, parts->verbs, parts->pd);
    if (result) {
        struct gpusys_rail all = *parts;
        gpusys_rail_close(&all);
        return gpusys_error_set_errno(error, result, "a verbs rail");
    }
    result = new_rail(&self, end, error);
    if (result)
        gpusys_qp_close(parts->qp);
    gs_verbs_end_drop(end);
    if (result)
        return result;
    self->qp = parts->qp;
    self->control = control;
    result = fit_out(self, error);
    for (uint32_t i = n_keys; i > 0 && !result; i--)
        result = gs_keyring_add_one(&self->own_keys, i - 1, keys[i - 1].base, keys[i - 1].rkey);
    if (!result)
        result = watch(self, control, EPOLLIN | EPOLLRDHUP);
    if (result) {
        gs_rail_verbs.close(&self->rail);
        return result;
    }
    *ret_rail = &self->rail;
    return 0;
}

/* ---- messages on the rail's connection ---- */

/* Send what was encoded and read the answer of that type; its body stays valid until the next. */
static int ask(struct gs_verbs_rail *self, enum gs_message_type type, const char *what, int64_t deadline_ns,
               struct gs_frame *ret_frame, const unsigned char **ret_body, struct gpusys_error *error)
{
    int result = gs_channel_flush(&self->channel, deadline_ns);
    if (!result)
        result = gs_channel_receive(&self->channel, deadline_ns, ret_frame, ret_body);
    if (result)
        return gpusys_error_set_errno(error, result == -EAGAIN ? -ETIMEDOUT : result,
                                      "%s: waiting for the answer to %s",
                                      gpusys_stream_name(self->channel.stream), what);
    if (ret_frame->type == type && ret_frame->serial == self->serial)
        return 0;
    return gs_verbs_refusal(self, ret_frame, *ret_body, what, error);
}

/* ---- opening ---- */

static int exchange_ends(struct gs_verbs_rail *self, const struct gs_rail_target *target, int64_t deadline_ns,
                         struct gs_railed *ret_railed, struct gpusys_error *error)
{
    struct gs_rail_wish wish = {.offer = target->pair->offer};
    struct gs_frame frame;
    const unsigned char *body = NULL;
    gs_rail_record_of(self->qp, &wish.rail);
    wish.rail.numa_node = (int16_t)self->end->port.numa_node;
    wish.rail.generation = target->generation;
    memcpy(wish.rail.device, self->end->port.device,
           strnlen(self->end->port.device, sizeof wish.rail.device - 1));
    int result = gs_rail_encode(&self->channel.out, ++self->serial, &wish);
    result = result ? gpusys_error_set_errno(error, result, "a verbs rail")
                    : ask(self, GS_RAILED, "RAIL", deadline_ns, &frame, &body, error);
    if (result)
        return result;
    if (gs_railed_decode(body, frame.body_bytes, ret_railed) ||
        ret_railed->rail.generation != target->generation)
        return gpusys_error_set(error, -EPROTO,
                                "%s described its end of the rail in a way that makes no sense",
                                gpusys_stream_name(self->channel.stream));
    return 0;
}

/* One read of memory that means nothing: only then is it known that packets flow both ways. */
static int probe(struct gs_verbs_rail *self, const struct gs_railed *railed, int64_t deadline_ns,
                 struct gpusys_error *error)
{
    size_t room = (size_t)GS_BOUNCE_BYTES * self->n_slots;
    struct gpusys_qp_op op = {.local = (uintptr_t)self->bounce,
                              .remote = railed->probe.base,
                              .length = railed->probe_bytes < room ? railed->probe_bytes : room,
                              .lkey = self->bounce_lkey,
                              .rkey = railed->probe.rkey,
                              .kind = GPUSYS_QP_READ};
    struct gpusys_qp_completion completion;
    int64_t limit = gpusys_deadline_after(probe_ns);
    int result = gpusys_qp_post(self->qp, &op, 1);
    if (result == 1)
        result = gpusys_qp_wait(self->qp, &completion, 1, self->channel.stream,
                                deadline_ns < limit ? deadline_ns : limit);
    if (result == 1 && completion.status == 0)
        return 0;
    if (result == 1)
        return gpusys_qp_explain(self->qp, &completion, error);
    result = result < 0 ? result : -EIO;
    gpusys_error_set_errno(error, result, "%s port %u: a first read of the peer's memory did not arrive",
                           self->end->port.device, self->end->port.port);
    gpusys_error_set_hint(error,
                          "do the two ports reach each other? gpusys rails on both hosts; firewalls must let "
                          "UDP port 4791 through");
    return result;
}

static int open_queue_pair(struct gs_verbs_rail *self, const struct gs_rail_target *target,
                           struct gpusys_error *error)
{
    const struct gpusys_port_info *port = &self->end->port;
    uint32_t most = port->max_requests < port->max_cqes ? port->max_requests : port->max_cqes;
    uint32_t depth = 4 * GS_VERBS_SLOTS;
    bool by_gid = port->link_layer == GPUSYS_LINK_ETHERNET;
    struct gpusys_qp_options options = {.size = sizeof options,
                                        .depth = depth < most ? depth : most,
                                        .flags = by_gid ? GPUSYS_QP_GID_INDEX : 0,
                                        .gid_index = by_gid ? target->pair->gid_index : 0};
    return gpusys_qp_open(&self->qp, self->end->pd, &options, error);
}

static int set_up(struct gs_verbs_rail *self, const struct gs_rail_target *target, int64_t deadline_ns,
                  struct gpusys_error *error)
{
    struct gs_railed railed;
    struct gpusys_qp_end end;
    struct gpusys_stream *stream;
    int result = open_queue_pair(self, target, error);
    if (!result)
        result = fit_out(self, error);
    if (!result)
        result = gpusys_stream_connect(&stream, target->address, deadline_ns, error);
    if (result)
        return result;
    gs_channel_init(&self->channel, stream, false);
    result = gs_rail_attach(stream, target, GPUSYS_TRANSPORT_VERBS, deadline_ns, error);
    if (!result)
        result = exchange_ends(self, target, deadline_ns, &railed, error);
    if (result)
        return result;
    gs_rail_end_of(&railed.rail, &end);
    result = gpusys_qp_connect(self->qp, &end, error);
    if (!result)
        result = probe(self, &railed, deadline_ns, error);
    if (result)
        return result;
    self->control = gpusys_stream_fd(stream);
    result = watch(self, self->control, EPOLLIN | EPOLLRDHUP);
    return result ? gpusys_error_set_errno(error, result, "a verbs rail") : 0;
}

int gs_verbs_rail_connect(struct gs_rail **ret_rail, const struct gs_rail_target *target, int64_t deadline_ns,
                          struct gpusys_error *error)
{
    struct gs_verbs_rail *self;
    struct gpusys_verbs_event event;
    while (gpusys_verbs_event(target->pair->end->verbs, &event) > 0)
        ; /* while there was no rail nobody looked whether the port had come back */
    int result = gpusys_verbs_health(target->pair->end->verbs);
    if (result)
        return gpusys_error_set_errno(error, result, "%s port %u", target->pair->end->port.device,
                                      target->pair->end->port.port);
    result = new_rail(&self, target->pair->end, error);
    if (result)
        return result;
    self->keys = target->pair->keys;
    result = set_up(self, target, deadline_ns, error);
    if (result) {
        gs_rail_verbs.close(&self->rail);
        return result;
    }
    *ret_rail = &self->rail;
    return 0;
}
