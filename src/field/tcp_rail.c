/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A rail of the field's dialects over tcp: requests go out in runs, replies come back in their order, and payload
 * is received straight into the caller's buffer.
 *
 * A slice becomes one request for weights, and one for each record that it touches for experts: what such a record
 * has beside the slice is thrown away.
 */
#include "field/records.h"
#include "field/talk.h"

#include <gpusys/stream.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    PARTS = 1024,                    /* requests under way at most; a power of two */
    SLICES = 1024,                   /* held at most */
    WINDOW_BYTES = 16 * 1024 * 1024, /* payload under way, about */
    IN_BYTES = 256 * 1024,
    DIRECT_BYTES = 32 * 1024,      /* payload still to come from here on is received in place */
    ROUND_BYTES = 8 * 1024 * 1024, /* received in one poll */
};

/* A request under way: of its payload, `take` bytes from `skip` on go to the slice's buffer at `at`. */
struct part {
    struct gs_slice *slice;
    uint32_t payload, skip, take, at;
    bool last; /* of its slice */
};

struct tcp_rail {
    struct gs_rail rail;
    struct gpusys_stream *stream; /* owned; only its descriptor is used */
    int fd;
    uint32_t record_bytes; /* 0: weights */

    unsigned n_slices;
    uint64_t bytes_out;        /* payload of the parts under way */
    struct gs_slices finished; /* empty ones, for the next poll */
    struct gs_slices
        waiting; /* not all of the first one's requests are encoded: those before `encoded` are */
    uint32_t encoded;
    uint32_t first, last; /* parts[first … last), counted without end */
    struct part parts[PARTS];

    size_t out_head, out_tail;
    unsigned char out[PARTS * GS_FIELD_REQUEST_MAX];

    bool in_payload; /* of parts[first]; `landed` bytes of it came */
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

static unsigned tcp_room(const struct gs_rail *rail)
{
    const struct tcp_rail *self = self_of(rail);
    return self->waiting.first || self->bytes_out >= WINDOW_BYTES ? 0 : SLICES - self->n_slices;
}

static void finish(struct tcp_rail *self, struct gs_slice *slice, struct gs_slices *done)
{
    self->n_slices--;
    gs_slices_push(done, slice);
}

/* ---- out ---- */

/* The record that the slice needs next, and what of it. */
static struct part record_part(const struct tcp_rail *self, struct gs_slice *slice)
{
    uint32_t left = slice->length - self->encoded, stride = self->record_bytes;
    uint32_t skip = (uint32_t)((slice->offset + self->encoded) % stride);
    uint32_t take = left < stride - skip ? left : stride - skip;
    return (struct part){.slice = slice,
                         .payload = stride,
                         .skip = skip,
                         .take = take,
                         .at = self->encoded,
                         .last = take == left};
}

static struct part piece_part(const struct tcp_rail *self, struct gs_slice *slice)
{
    uint32_t left = slice->length - self->encoded;
    uint32_t take = left < GS_PIECE_MAX ? left : GS_PIECE_MAX;
    return (struct part){
        .slice = slice, .payload = take, .take = take, .at = self->encoded, .last = take == left};
}

static void put_request(struct tcp_rail *self, const struct part *part)
{
    uint64_t offset = part->slice->offset + part->at;
    if (self->record_bytes) {
        struct gs_experts_request request = {.layer = part->slice->region,
                                             .record = (uint32_t)(offset / self->record_bytes)};
        gs_experts_request_put(self->out + self->out_tail, &request);
        self->out_tail += GS_EXPERTS_REQUEST_BYTES;
    } else {
        struct gs_weights_request request = {
            .shard = part->slice->region, .offset = offset, .length = part->payload};
        gs_weights_request_put(self->out + self->out_tail, &request);
        self->out_tail += GS_WEIGHTS_REQUEST_BYTES;
    }
}

/* Is there a request to encode, and may it be under way already? */
static bool can_encode(const struct tcp_rail *self)
{
    return self->waiting.first && self->last - self->first < PARTS && self->bytes_out < WINDOW_BYTES;
}

static void encode_requests(struct tcp_rail *self)
{
    self->out_head = self->out_tail = 0;
    while (can_encode(self)) {
        struct gs_slice *slice = self->waiting.first;
        struct part part = self->record_bytes ? record_part(self, slice) : piece_part(self, slice);
        put_request(self, &part);
        self->parts[self->last++ % PARTS] = part;
        self->bytes_out += part.payload;
        self->encoded += part.take;
        if (part.last) {
            gs_slices_pop(&self->waiting);
            self->encoded = 0;
        }
    }
}

static int send_output(struct tcp_rail *self)
{
    for (;;) {
        if (self->out_head == self->out_tail)
            encode_requests(self);
        if (self->out_head == self->out_tail)
            return 0;
        ssize_t count = send(self->fd, self->out + self->out_head, self->out_tail - self->out_head,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno == EAGAIN ? 0 : -errno;
        self->out_head += (size_t)count;
    }
}

/* They leave with the next poll, all together. */
static void tcp_post(struct gs_rail *rail, struct gs_slices *chain)
{
    struct tcp_rail *self = self_of(rail);
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(chain))) {
        slice->status = 0;
        self->n_slices++;
        gs_slices_push(slice->length ? &self->waiting : &self->finished, slice);
    }
}

/* ---- in ---- */

static struct part *current(struct tcp_rail *self)
{
    return &self->parts[self->first % PARTS];
}

static void end_part(struct tcp_rail *self, int status, struct gs_slices *done)
{
    struct part *part = current(self);
    struct gs_slice *slice = part->slice;
    if (status && !slice->status)
        slice->status = status;
    self->bytes_out -= part->payload;
    self->in_payload = false;
    if (part->last)
        finish(self, slice, done);
    self->first++;
}

static void landed(struct tcp_rail *self, size_t count, struct gs_slices *done)
{
    self->landed += (uint32_t)count;
    if (self->landed == current(self)->payload)
        end_part(self, 0, done);
}

/* How much payload may come next before its place changes, and that place: NULL where it is thrown away. */
static uint32_t next_run(struct tcp_rail *self, char **ret_place)
{
    const struct part *part = current(self);
    uint32_t end = part->skip + part->take;
    char *buffer = part->slice->buffer;
    *ret_place = NULL;
    if (self->landed < part->skip)
        return part->skip - self->landed;
    if (self->landed >= end)
        return part->payload - self->landed;
    if (buffer)
        *ret_place = buffer + part->at + (self->landed - part->skip);
    return end - self->landed;
}

static void land_buffered(struct tcp_rail *self, struct gs_slices *done)
{
    char *place;
    uint32_t run = next_run(self, &place);
    size_t count = self->in_tail - self->in_head < run ? self->in_tail - self->in_head : run;
    if (place && count)
        memcpy(place, self->in + self->in_head, count);
    self->in_head += count;
    landed(self, count, done);
}

/* The status byte of a reply; a byte that nothing was asked for ends the rail. */
static int take_status(struct tcp_rail *self, struct gs_slices *done)
{
    uint8_t status = self->in[self->in_head++];
    if (self->first == self->last || status > GPUSYS_STATUS_ERR)
        return -EPROTO;
    self->landed = 0;
    self->in_payload = true;
    if (status == GPUSYS_STATUS_ERR)
        end_part(self, -EIO, done);
    return 0;
}

static int parse(struct tcp_rail *self, struct gs_slices *done)
{
    while (self->in_head < self->in_tail) {
        if (self->in_payload) {
            land_buffered(self, done);
            continue;
        }
        int error = take_status(self, done);
        if (error)
            return error;
    }
    return 0;
}

/* 1: there may be more. */
static int receive_once(struct tcp_rail *self, struct gs_slices *done, size_t *total)
{
    char *place = NULL;
    uint32_t run = self->in_payload ? next_run(self, &place) : 0;
    size_t direct = place && run >= DIRECT_BYTES ? run : 0;
    struct iovec iov[2] = {{.iov_base = place, .iov_len = direct},
                           {.iov_base = self->in, .iov_len = IN_BYTES}};
    struct msghdr message = {.msg_iov = direct ? iov : iov + 1, .msg_iovlen = direct ? 2 : 1};
    ssize_t count = recvmsg(self->fd, &message, MSG_DONTWAIT);
    if (count == 0)
        return -ECONNRESET;
    if (count < 0)
        return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -errno;
    size_t placed = (size_t)count < direct ? (size_t)count : direct;
    *total += (size_t)count;
    if (placed)
        landed(self, placed, done);
    self->in_head = 0;
    self->in_tail = (size_t)count - placed;
    int error = parse(self, done);
    return error ? error : (size_t)count == direct + IN_BYTES;
}

static int tcp_poll(struct gs_rail *rail, struct gs_slices *done)
{
    struct tcp_rail *self = self_of(rail);
    struct gs_slice *slice;
    size_t total = 0;
    int more;
    while ((slice = gs_slices_pop(&self->finished)))
        finish(self, slice, done);
    do {
        more = send_output(self);
        if (more == 0)
            more = receive_once(self, done, &total);
    } while (more > 0 && total < ROUND_BYTES);
    return more < 0 ? more : 0;
}

/* ---- waiting ---- */

static int tcp_fd(const struct gs_rail *rail)
{
    return self_of(rail)->fd;
}

/* Is the socket full? */
static bool is_blocked(const struct tcp_rail *self)
{
    return self->out_head < self->out_tail;
}

static uint32_t tcp_events(const struct gs_rail *rail)
{
    return is_blocked(self_of(rail)) ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

static bool tcp_busy(const struct gs_rail *rail)
{
    const struct tcp_rail *self = self_of(rail);
    return self->finished.first || (!is_blocked(self) && can_encode(self));
}

/* ---- ends ---- */

static void drop_from(struct tcp_rail *self, struct gs_slices *chain, const void *owner,
                      struct gs_slices *dropped)
{
    struct gs_slices all = *chain;
    struct gs_slice *slice;
    *chain = (struct gs_slices){0};
    while ((slice = gs_slices_pop(&all))) {
        if (slice->owner == owner)
            finish(self, slice, dropped);
        else
            gs_slices_push(chain, slice);
    }
}

static void disown(struct gs_slice *slice, const void *owner)
{
    if (slice->owner != owner)
        return;
    slice->owner = NULL;
    slice->buffer = NULL;
}

static int tcp_abandon(struct gs_rail *rail, const void *owner, struct gs_slices *dropped)
{
    struct tcp_rail *self = self_of(rail);
    struct gs_slice *begun = self->encoded ? gs_slices_pop(&self->waiting) : NULL;
    drop_from(self, &self->waiting, owner, dropped);
    drop_from(self, &self->finished, owner, dropped);
    if (begun) { /* back to the front: some of its requests are out */
        disown(begun, owner);
        begun->next = self->waiting.first;
        self->waiting.first = begun;
        if (!self->waiting.last)
            self->waiting.last = begun;
    }
    for (uint32_t i = self->first; i != self->last; i++)
        disown(self->parts[i % PARTS].slice, owner);
    return 0;
}

/* Nothing may be half sent then. */
static void say_goodbye(const struct tcp_rail *self)
{
    unsigned char bytes[GS_FIELD_REQUEST_MAX];
    struct gs_experts_request experts = {.layer = GS_GOODBYE, .record = GS_GOODBYE};
    struct gs_weights_request weights = {.shard = GS_GOODBYE};
    if (self->record_bytes)
        gs_experts_request_put(bytes, &experts);
    else
        gs_weights_request_put(bytes, &weights);
    size_t size = self->record_bytes ? GS_EXPERTS_REQUEST_BYTES : GS_WEIGHTS_REQUEST_BYTES;
    if (send(self->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* the end of the stream says the same */
    }
}

static void tcp_quiesce(struct gs_rail *rail, struct gs_slices *outstanding)
{
    struct tcp_rail *self = self_of(rail);
    struct gs_slice *slice;
    if (!is_blocked(self))
        say_goodbye(self);
    shutdown(self->fd, SHUT_RDWR);
    for (; self->first != self->last; self->first++)
        if (current(self)->last)
            gs_slices_push(outstanding, current(self)->slice);
    while ((slice = gs_slices_pop(&self->waiting)) || (slice = gs_slices_pop(&self->finished)))
        gs_slices_push(outstanding, slice);
    self->n_slices = self->encoded = 0;
    self->bytes_out = 0;
    self->in_payload = false;
    self->out_head = self->out_tail = 0;
}

static const struct gs_rail_ops tcp_ops = {
    .transport = GPUSYS_TRANSPORT_TCP,
    .slice_bytes = 4 * 1024 * 1024,
    .room = tcp_room,
    .post = tcp_post,
    .poll = tcp_poll,
    .fd = tcp_fd,
    .events = tcp_events,
    .busy = tcp_busy,
    .abandon = tcp_abandon,
    .quiesce = tcp_quiesce,
    .close = tcp_close,
};

int gs_field_tcp_open(struct gs_rail **ret_rail, struct gpusys_stream *stream, uint32_t record_bytes,
                      struct gpusys_error *error)
{
    struct tcp_rail *self = NULL;
    int result = 0;
    if (gpusys_stream_buffered(stream))
        result = gpusys_error_set(error, -EPROTO, "%s sent bytes that nobody asked for",
                                  gpusys_stream_name(stream));
    else if (!(self = malloc(sizeof *self)))
        result = gpusys_error_set_errno(error, -ENOMEM, "a tcp rail");
    if (result) {
        gpusys_stream_close(stream);
        return result;
    }
    memset(self, 0, offsetof(struct tcp_rail, in));
    self->rail.ops = &tcp_ops;
    self->stream = stream;
    self->fd = gpusys_stream_fd(stream);
    self->record_bytes = record_bytes;
    *ret_rail = &self->rail;
    return 0;
}
