/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A tcp rail at the client: requests go out in runs, replies come back in the order the peer likes, and
 * payload is received straight into the caller's buffer together with what follows it.
 */
#include "rail/rail.h"

#include <gpusys/stream.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    SLOTS = 1024,                    /* slices under way at most */
    WINDOW_BYTES = 16 * 1024 * 1024, /* payload under way, about */
    IN_BYTES = 256 * 1024,
    DIRECT_BYTES = 32 * 1024,      /* payload still to come from here on is received in place */
    ROUND_BYTES = 8 * 1024 * 1024, /* received in one poll */
    OUT_SLICES = 512,              /* requests encoded ahead of the socket */
};

struct tcp_rail {
    struct gs_rail rail;
    struct gpusys_stream *stream; /* owned; after the opening only its descriptor is used */
    int fd;
    int fault; /* found while posting */
    unsigned slots_max;
    struct gs_slice
        *slots[SLOTS]; /* by tag, from the moment the request is written: only then can it be answered */
    uint16_t free_tags[SLOTS];
    unsigned n_free;
    uint64_t bytes_out; /* payload of what is outstanding */

    struct gs_slices waiting; /* posted, the request not encoded yet */
    unsigned char out[OUT_SLICES * GS_REQUEST_BYTES];
    size_t out_head, out_tail;
    struct gs_slice *writing; /* its payload goes behind what is in `out` */
    uint32_t written;

    struct gs_slice *landing; /* its payload is being received */
    uint32_t landed;
    size_t in_head, in_tail;
    unsigned char in[IN_BYTES];
};

static struct tcp_rail *self_of(const struct gs_rail *rail)
{
    return (struct tcp_rail *)(uintptr_t)rail; /* the first member */
}

static void tcp_close(struct gs_rail *rail)
{
    struct tcp_rail *self = self_of(rail);
    gpusys_stream_close(self->stream);
    free(self);
}

static int tcp_connect(struct gs_rail **ret_rail, const struct gs_rail_target *target, int64_t deadline_ns,
                       struct gpusys_error *error)
{
    struct tcp_rail *self = malloc(sizeof *self);
    if (!self)
        return gpusys_error_set_errno(error, -ENOMEM, "a tcp rail");
    memset(self, 0, offsetof(struct tcp_rail, in));
    self->rail.ops = &gs_rail_tcp;
    int result = gpusys_stream_connect(&self->stream, target->address, deadline_ns, error);
    if (!result)
        result = gs_rail_attach(self->stream, target, GPUSYS_TRANSPORT_TCP, deadline_ns, error);
    if (!result && gpusys_stream_buffered(self->stream))
        result = gpusys_error_set(error, -EPROTO, "%s: bytes behind ATTACHED that nobody asked for",
                                  target->address);
    if (result) {
        tcp_close(&self->rail);
        return result;
    }
    self->fd = gpusys_stream_fd(self->stream);
    self->slots_max = target->requests_max < SLOTS ? target->requests_max : SLOTS;
    for (unsigned i = 0; i < self->slots_max; i++)
        self->free_tags[self->n_free++] = (uint16_t)(self->slots_max - 1 - i);
    *ret_rail = &self->rail;
    return 0;
}

/* Short slices are taken when half of the slots are free, so that they go out in runs. */
static unsigned tcp_room(const struct gs_rail *rail)
{
    const struct tcp_rail *self = self_of(rail);
    if (self->n_free < (self->slots_max + 1) / 2 || self->bytes_out >= WINDOW_BYTES)
        return 0;
    return self->n_free;
}

/* The slice is no longer ours. */
static void forget(struct tcp_rail *self, struct gs_slice *slice)
{
    self->slots[slice->tag] = NULL;
    self->free_tags[self->n_free++] = (uint16_t)slice->tag;
    self->bytes_out -= slice->length;
}

/* ---- out ---- */

/* Encode requests until there is no more room or a payload has to follow. */
static void encode_requests(struct tcp_rail *self)
{
    self->out_head = self->out_tail = 0;
    while (self->waiting.first && !self->writing && sizeof self->out - self->out_tail >= GS_REQUEST_BYTES) {
        struct gs_slice *slice = gs_slices_pop(&self->waiting);
        struct gs_request request = {.op = slice->op,
                                     .region = slice->region,
                                     .offset = slice->offset,
                                     .length = slice->length,
                                     .tag = slice->tag};
        gs_request_put(self->out + self->out_tail, &request);
        self->out_tail += GS_REQUEST_BYTES;
        self->slots[slice->tag] = slice;
        if (slice->op != GPUSYS_OP_WRITE)
            continue;
        slice->sent = true;
        self->writing = slice;
        self->written = 0;
    }
}

static bool has_output(const struct tcp_rail *self)
{
    return self->out_head < self->out_tail || self->writing || self->waiting.first;
}

static void sent(struct tcp_rail *self, size_t count)
{
    size_t requests = self->out_tail - self->out_head;
    if (requests > count)
        requests = count;
    self->out_head += requests;
    self->written += (uint32_t)(count - requests);
    if (self->writing && self->written == self->writing->length)
        self->writing = NULL;
}

static int send_output(struct tcp_rail *self)
{
    while (has_output(self)) {
        if (self->out_head == self->out_tail && !self->writing)
            encode_requests(self);
        struct iovec iov[2] = {
            {.iov_base = self->out + self->out_head, .iov_len = self->out_tail - self->out_head}};
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = 1};
        if (self->writing)
            iov[message.msg_iovlen++] =
                (struct iovec){.iov_base = (char *)self->writing->buffer + self->written,
                               .iov_len = self->writing->length - self->written};
        ssize_t count = sendmsg(self->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno == EAGAIN ? 0 : -errno;
        sent(self, (size_t)count);
    }
    return 0;
}

/* Send what was posted. What goes wrong, the next poll tells. */
static void tcp_start(struct gs_rail *rail)
{
    struct tcp_rail *self = self_of(rail);
    if (self->waiting.first && !self->fault)
        self->fault = send_output(self);
}

/* Short slices behind others that are out already wait for the next turn: what is posted until then leaves
 * together. */
static void tcp_post(struct gs_rail *rail, struct gs_slices *chain)
{
    struct tcp_rail *self = self_of(rail);
    bool now = self->n_free == self->slots_max;
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(chain))) {
        slice->tag = self->free_tags[--self->n_free];
        self->bytes_out += slice->length;
        now |= slice->length >= DIRECT_BYTES;
        gs_slices_push(&self->waiting, slice);
    }
    if (now)
        tcp_start(rail);
}

/* ---- in ---- */

static void finish(struct tcp_rail *self, struct gs_slice *slice, int status, struct gs_slices *done)
{
    forget(self, slice);
    slice->status = status;
    gs_slices_push(done, slice);
}

/* A reply's header. What the peer may not say ends the rail. */
static int take_reply(struct tcp_rail *self, struct gs_slices *done)
{
    struct gs_reply reply;
    if (gs_reply_get(self->in + self->in_head, &reply) || reply.tag >= self->slots_max)
        return -EPROTO;
    struct gs_slice *slice = self->slots[reply.tag];
    bool ok = reply.status == GS_STATUS_OK;
    if (!slice || slice == self->writing || reply.length != (ok ? slice->length : 0))
        return -EPROTO;
    self->in_head += GS_REPLY_BYTES;
    if (ok && slice->op == GPUSYS_OP_READ && slice->length) {
        self->landing = slice;
        self->landed = 0;
    } else {
        finish(self, slice, gs_status_errno(reply.status), done);
    }
    return 0;
}

static void landed(struct tcp_rail *self, size_t count, struct gs_slices *done)
{
    self->landed += (uint32_t)count;
    if (self->landed < self->landing->length)
        return;
    finish(self, self->landing, 0, done);
    self->landing = NULL;
}

/* Payload that has come already. */
static void land_buffered(struct tcp_rail *self, struct gs_slices *done)
{
    size_t count = self->in_tail - self->in_head, left = self->landing->length - self->landed;
    if (count > left)
        count = left;
    if (self->landing->buffer && count)
        memcpy((char *)self->landing->buffer + self->landed, self->in + self->in_head, count);
    self->in_head += count;
    landed(self, count, done);
}

static int parse(struct tcp_rail *self, struct gs_slices *done)
{
    while (self->in_head < self->in_tail) {
        if (self->landing) {
            land_buffered(self, done);
        } else {
            if (self->in_tail - self->in_head < GS_REPLY_BYTES)
                return 0;
            int error = take_reply(self, done);
            if (error)
                return error;
        }
    }
    return 0;
}

/* Receive into `in`, and before it into the caller's buffer when much of a payload is still to come. */
static ssize_t receive(struct tcp_rail *self, size_t *direct)
{
    size_t left = self->landing ? self->landing->length - self->landed : 0,
           kept = self->in_tail - self->in_head;
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    *direct = left >= DIRECT_BYTES && self->landing->buffer ? left : 0;
    if (kept)
        memmove(self->in, self->in + self->in_head, kept); /* less than a reply's header */
    self->in_head = 0;
    self->in_tail = kept;
    if (*direct)
        iov[message.msg_iovlen++] =
            (struct iovec){.iov_base = (char *)self->landing->buffer + self->landed, .iov_len = *direct};
    iov[message.msg_iovlen++] = (struct iovec){.iov_base = self->in + kept, .iov_len = IN_BYTES - kept};
    return recvmsg(self->fd, &message, MSG_DONTWAIT);
}

/* 1: there may be more. */
static int receive_once(struct tcp_rail *self, struct gs_slices *done, size_t *total)
{
    size_t direct, room;
    ssize_t count = receive(self, &direct);
    if (count == 0)
        return -ECONNRESET;
    if (count < 0)
        return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -errno;
    room = direct + IN_BYTES - self->in_tail;
    *total += (size_t)count;
    bool full = (size_t)count == room;
    size_t placed = (size_t)count < direct ? (size_t)count : direct;
    if (placed)
        landed(self, placed, done);
    self->in_tail += (size_t)count - placed;
    int error = parse(self, done);
    return error ? error : full;
}

static int tcp_poll(struct gs_rail *rail, struct gs_slices *done)
{
    struct tcp_rail *self = self_of(rail);
    size_t total = 0;
    int more = self->fault ? self->fault : send_output(self);
    if (more)
        return more;
    do
        more = receive_once(self, done, &total);
    while (more > 0 && total < ROUND_BYTES);
    return more < 0 ? more : 0;
}

static int tcp_fd(const struct gs_rail *rail)
{
    return self_of(rail)->fd;
}

/* Is the socket full? */
static bool is_blocked(const struct tcp_rail *self)
{
    return self->out_head < self->out_tail || self->writing;
}

static uint32_t tcp_events(const struct gs_rail *rail)
{
    return is_blocked(self_of(rail)) ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

static bool tcp_busy(const struct gs_rail *rail)
{
    const struct tcp_rail *self = self_of(rail);
    return self->fault || (self->waiting.first && !is_blocked(self));
}

/* ---- ends ---- */

/* Take the owner's slices out of those that wait. */
static void drop_waiting(struct tcp_rail *self, const void *owner, struct gs_slices *dropped)
{
    struct gs_slices all = self->waiting;
    struct gs_slice *slice;
    self->waiting = (struct gs_slices){0};
    while ((slice = gs_slices_pop(&all))) {
        if (slice->owner == owner) {
            forget(self, slice);
            gs_slices_push(dropped, slice);
        } else {
            gs_slices_push(&self->waiting, slice);
        }
    }
}

static int tcp_abandon(struct gs_rail *rail, const void *owner, struct gs_slices *dropped)
{
    struct tcp_rail *self = self_of(rail);
    drop_waiting(self, owner, dropped);
    if (self->writing && self->writing->owner == owner)
        return -EBUSY;
    for (unsigned i = 0; i < self->slots_max; i++) {
        struct gs_slice *slice = self->slots[i];
        if (slice && slice->owner == owner) {
            slice->owner = NULL;
            slice->buffer = NULL;
        }
    }
    return 0;
}

static void tcp_quiesce(struct gs_rail *rail, struct gs_slices *outstanding)
{
    struct tcp_rail *self = self_of(rail);
    struct gs_slice *slice;
    shutdown(self->fd, SHUT_RDWR);
    for (unsigned i = 0; i < self->slots_max; i++)
        if (self->slots[i])
            gs_slices_push(outstanding, self->slots[i]);
    memset(self->slots, 0, sizeof self->slots);
    while ((slice = gs_slices_pop(&self->waiting)))
        gs_slices_push(outstanding, slice);
    self->writing = self->landing = NULL;
    self->out_head = self->out_tail = 0;
}

const struct gs_rail_ops gs_rail_tcp = {
    .transport = GPUSYS_TRANSPORT_TCP,
    .slice_bytes = 4 * 1024 * 1024,
    .connect = tcp_connect,
    .room = tcp_room,
    .post = tcp_post,
    .start = tcp_start,
    .poll = tcp_poll,
    .fd = tcp_fd,
    .events = tcp_events,
    .busy = tcp_busy,
    .abandon = tcp_abandon,
    .quiesce = tcp_quiesce,
    .close = tcp_close,
};
