/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A verbs rail behind the engine's table: slices become one-sided reads and writes.
 *
 * Buffers that the caller has registered (gpusys_remote_register) are used where they are. Others are copied
 * through a slot of registered memory when they are short, and registered for the time of the request when they
 * are long: never remembered, for memory that the caller frees and maps again is other memory at the same address.
 */
#include "rail/verbs_rail.h"

#include "base/deadline.h"
#include "base/log.h"
#include "rail/verbs_end.h"
#include "rail/verbs_keys.h"
#include "rail/verbs_open.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CHAIN = 64,                     /* requests given to the driver at once */
    WINDOW_BYTES = 4 * 1024 * 1024, /* under way, about: more only waits in queues */
    EMPTY_POLLS = 32,               /* in a row, before we sleep */
};

static const int64_t drain_ns = 1000000000, keys_ns = 5000000000;

static struct gs_verbs_rail *self_of(const struct gs_rail *rail)
{
    return (struct gs_verbs_rail *)(uintptr_t)rail; /* the first member */
}

struct gs_verbs_end *gs_verbs_rail_end(const struct gs_rail *rail)
{
    return rail && rail->ops == &gs_rail_verbs ? self_of(rail)->end : NULL;
}

bool gs_verbs_rail_has_key(const struct gs_rail *rail, uint32_t region)
{
    return gs_keyring_find(self_of(rail)->keys, region);
}

int gs_verbs_rail_info(const struct gs_rail *rail, struct gpusys_qp_info *ret_info)
{
    return !self_of(rail)->qp ? -ENOTCONN : gpusys_qp_info(self_of(rail)->qp, ret_info);
}

static unsigned verbs_room(const struct gs_rail *rail)
{
    const struct gs_verbs_rail *self = self_of(rail);
    bool is_idle = self->n_free == self->n_slots;
    if (self->bytes_out >= WINDOW_BYTES || (!is_idle && self->n_free < self->n_slots / 4) || self->fault)
        return 0;
    return self->n_free < CHAIN / 2 ? self->n_free : CHAIN / 2;
}

/* ---- slots ---- */

static void *bounce_of(const struct gs_verbs_rail *self, unsigned slot)
{
    return self->bounce + (size_t)slot * GS_BOUNCE_BYTES;
}

/* The slice leaves its slot. */
static struct gs_slice *empty_slot(struct gs_verbs_rail *self, unsigned slot)
{
    struct gs_slice *slice = self->slots[slot].slice;
    gpusys_mr_close(self->slots[slot].mr);
    self->slots[slot] = (struct gs_verbs_slot){0};
    self->free_slots[self->n_free++] = (uint16_t)slot;
    self->bytes_out -= slice->length;
    return slice;
}

static void finish(struct gs_verbs_rail *self, unsigned slot, int status, struct gs_slices *done)
{
    bool copy = self->slots[slot].bounced && status == 0;
    struct gs_slice *slice = self->slots[slot].slice;
    if (copy && slice->op == GPUSYS_OP_READ && slice->buffer)
        memcpy(slice->buffer, bounce_of(self, slot), slice->length);
    empty_slot(self, slot)->status = status;
    gs_slices_push(done, slice);
}

/* ---- posting ---- */

/* Give the driver what was gathered; what it refuses ends the rail. */
static void flush_ops(struct gs_verbs_rail *self)
{
    if (self->n_ops == 0 || self->fault)
        return;
    int count = gpusys_qp_post(self->qp, self->ops, self->n_ops);
    if (count != (int)self->n_ops)
        self->fault = count < 0 ? count : -EIO;
    self->n_ops = 0;
    self->armed = false;
    self->empty_polls = 0;
}

/* Where the slice's bytes are for the device: in the caller's memory or in the slot's. 0, or why not. */
static int find_memory(struct gs_verbs_rail *self, unsigned slot, uint64_t *ret_address, uint32_t *ret_lkey)
{
    struct gs_slice *slice = self->slots[slot].slice;
    uint64_t address = (uintptr_t)slice->buffer;
    const struct gs_landing *landing = gs_verbs_end_find(self->end, address, slice->length);
    bool is_write = slice->op == GPUSYS_OP_WRITE;
    *ret_address = address;
    *ret_lkey = landing ? landing->lkey : 0;
    if (landing)
        return 0;
    if (slice->length <= GS_BOUNCE_BYTES) {
        if (is_write)
            memcpy(bounce_of(self, slot), slice->buffer, slice->length);
        self->slots[slot].bounced = true;
        *ret_address = (uintptr_t)bounce_of(self, slot);
        *ret_lkey = self->bounce_lkey;
        return 0;
    }
    struct gpusys_mr_info info = {.size = sizeof info};
    int result = gpusys_mr_open(&self->slots[slot].mr, self->end->pd, slice->buffer, slice->length,
                                is_write ? GPUSYS_MR_SOURCE : GPUSYS_MR_LANDING, NULL);
    if (!result)
        result = gpusys_mr_info(self->slots[slot].mr, &info);
    *ret_lkey = info.lkey;
    return result;
}

/* One request for each piece of the region that the slice touches; the last one carries the slot. */
static int gather(struct gs_verbs_rail *self, unsigned slot, const struct gs_keys *keys)
{
    const struct gs_slice *slice = self->slots[slot].slice;
    uint64_t local;
    uint32_t lkey;
    int result = find_memory(self, slot, &local, &lkey);
    for (uint32_t at = 0; at < slice->length && !result;) {
        uint64_t offset = slice->offset + at, piece = offset / keys->piece_bytes,
                 within = offset - piece * keys->piece_bytes, left = slice->length - at;
        const struct gs_key_entry *key = gs_keys_piece(keys, piece);
        if (!key)
            return -ERANGE;
        uint64_t length = left < keys->piece_bytes - within ? left : keys->piece_bytes - within;
        if (self->n_ops == CHAIN)
            flush_ops(self);
        self->ops[self->n_ops++] =
            (struct gpusys_qp_op){.id = length == left ? slot + 1u : 0,
                                  .local = local + at,
                                  .remote = key->base + within,
                                  .length = length,
                                  .lkey = lkey,
                                  .rkey = key->rkey,
                                  .kind = slice->op == GPUSYS_OP_WRITE ? GPUSYS_QP_WRITE : GPUSYS_QP_READ};
        at += (uint32_t)length;
    }
    return result;
}

/* A rail that was down when the others were given the region's keys asks for them now, and waits. */
static const struct gs_keys *fetch_keys(struct gs_verbs_rail *self, uint32_t region)
{
    struct gs_rail_region wanted = {.number = region};
    struct gpusys_error error;
    if (gs_verbs_rail_prepare(&self->rail, &wanted, gpusys_deadline_after(keys_ns), &error))
        gs_log(GPUSYS_LOG_WARN, "%s", error.message);
    return gs_keyring_find(self->keys, region);
}

static void post_slice(struct gs_verbs_rail *self, struct gs_slice *slice)
{
    const struct gs_keys *keys = gs_keyring_find(self->keys, slice->region);
    if (!keys)
        keys = fetch_keys(self, slice->region);
    unsigned slot = self->free_slots[--self->n_free];
    self->slots[slot].slice = slice;
    self->bytes_out += slice->length;
    int result = keys ? gather(self, slot, keys) : -ENOKEY;
    if (result)
        finish(self, slot, result, &self->refused);
    else if (slice->op == GPUSYS_OP_WRITE)
        slice->sent = true;
}

static void verbs_post(struct gs_rail *rail, struct gs_slices *chain)
{
    struct gs_verbs_rail *self = self_of(rail);
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(chain)))
        post_slice(self, slice);
    flush_ops(self);
}

/* ---- completions ---- */

static int complain(const struct gs_verbs_rail *self, const struct gpusys_qp_completion *completion)
{
    struct gpusys_error error = {0};
    char text[1024];
    int status = gpusys_qp_explain(self->qp, completion, &error);
    gpusys_error_format(&error, text, sizeof text);
    gs_log(GPUSYS_LOG_WARN, "%s", text);
    return status;
}

/*
 * A failed request ends the rail. If it was refused for what it asked for, that is its own end too: on another rail
 * it would fare no better. Otherwise it is still outstanding, and comes back with the others.
 */
static int failed(struct gs_verbs_rail *self, const struct gpusys_qp_completion *completion,
                  struct gs_slices *done)
{
    int status = completion->status == -ECANCELED ? -ECONNRESET : complain(self, completion);
    bool is_its_own = status == -EREMOTEIO || status == -EFAULT || status == -EMSGSIZE;
    if (is_its_own && completion->id)
        finish(self, (unsigned)completion->id - 1, status, done);
    return status;
}

/* Up to a batch of completions; how many. */
static int reap(struct gs_verbs_rail *self, struct gs_slices *done)
{
    struct gpusys_qp_completion completions[CHAIN];
    int count = gpusys_qp_poll(self->qp, completions, CHAIN);
    for (int i = 0; i < count; i++) {
        if (completions[i].status)
            return failed(self, &completions[i], done);
        if (completions[i].id)
            finish(self, (unsigned)completions[i].id - 1, 0, done);
    }
    return count;
}

/* Has the other side's connection ended, or said what nobody asked for? */
static int look_at_control(const struct gs_verbs_rail *self)
{
    char byte;
    ssize_t count = self->control < 0 ? -1 : recv(self->control, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (self->control < 0 || (count < 0 && (errno == EAGAIN || errno == EINTR)))
        return 0;
    return count > 0 ? -EPROTO : -ECONNRESET;
}

/* What woke us, beside the completion channel. */
static int look_around(struct gs_verbs_rail *self)
{
    struct gpusys_verbs_event event;
    while (gpusys_verbs_event(self->end->verbs, &event) > 0)
        gs_log(GPUSYS_LOG_WARN, "%s port %u: %s", self->end->port.device, self->end->port.port, event.text);
    return look_at_control(self);
}

/* Nothing for a while: have the device tell us, and look once more, for it may have come in between. */
static int go_to_sleep(struct gs_verbs_rail *self, struct gs_slices *done)
{
    int result = gpusys_qp_arm(self->qp);
    if (!result)
        result = reap(self, done);
    self->armed = result == 0;
    return result < 0 ? result : 0;
}

static int verbs_poll(struct gs_rail *rail, struct gs_slices *done)
{
    struct gs_verbs_rail *self = self_of(rail);
    struct gs_slice *slice;
    bool was_armed = self->armed;
    while ((slice = gs_slices_pop(&self->refused)))
        gs_slices_push(done, slice);
    int count = self->fault ? self->fault : reap(self, done);
    if (count == 0 && (was_armed || self->empty_polls >= EMPTY_POLLS))
        count = look_around(self) ?: go_to_sleep(self, done);
    if (count < 0)
        return self->fault = count;
    self->empty_polls = count ? 0 : self->empty_polls + 1;
    if (count)
        self->armed = false;
    return self->fault = gpusys_verbs_health(self->end->verbs);
}

static int verbs_fd(const struct gs_rail *rail)
{
    return self_of(rail)->epoll;
}

static uint32_t verbs_events(const struct gs_rail *rail)
{
    (void)rail;
    return EPOLLIN;
}

static bool verbs_busy(const struct gs_rail *rail)
{
    const struct gs_verbs_rail *self = self_of(rail);
    return self->fault || self->refused.first || (self->n_free < self->n_slots && !self->armed);
}

/* ---- ends ---- */

/* The device reads or writes the buffers of what is under way until the queue pair is stopped. */
static int verbs_abandon(struct gs_rail *rail, const void *owner, struct gs_slices *dropped)
{
    const struct gs_verbs_rail *self = self_of(rail);
    (void)dropped;
    for (unsigned i = 0; i < self->n_slots; i++)
        if (self->slots[i].slice && self->slots[i].slice->owner == owner)
            return -EBUSY;
    return 0;
}

static void verbs_quiesce(struct gs_rail *rail, struct gs_slices *outstanding)
{
    struct gs_verbs_rail *self = self_of(rail);
    struct gs_slice *slice;
    int result = !self->qp ? 0 : gpusys_qp_drain(self->qp, NULL, 0, NULL, gpusys_deadline_after(drain_ns));
    if (result)
        gs_log(GPUSYS_LOG_WARN, "%s port %u: requests that did not come back: %s", self->end->port.device,
               self->end->port.port, strerrordesc_np(-result));
    gpusys_qp_close(self->qp); /* once it is destroyed the device touches nothing, whatever it reported */
    self->qp = NULL;
    self->fault = -ENOTCONN;
    while ((slice = gs_slices_pop(&self->refused)))
        gs_slices_push(outstanding, slice);
    for (unsigned i = 0; i < self->n_slots; i++)
        if (self->slots[i].slice)
            gs_slices_push(outstanding, empty_slot(self, i));
}

static void verbs_close(struct gs_rail *rail)
{
    struct gs_verbs_rail *self = self_of(rail);
    gpusys_qp_close(self->qp);
    for (unsigned i = 0; i < self->n_slots; i++)
        gpusys_mr_close(self->slots[i].mr);
    gpusys_mr_close(self->bounce_mr);
    free(self->bounce);
    gs_verbs_end_drop(self->end);
    gs_keyring_free(&self->own_keys);
    gpusys_stream_close(self->stream);
    if (self->epoll >= 0)
        close(self->epoll);
    free(self);
}

const struct gs_rail_ops gs_rail_verbs = {
    .transport = GPUSYS_TRANSPORT_VERBS,
    .slice_bytes = 512 * 1024,
    .connect = gs_verbs_rail_connect,
    .prepare = gs_verbs_rail_prepare,
    .room = verbs_room,
    .post = verbs_post,
    .poll = verbs_poll,
    .fd = verbs_fd,
    .events = verbs_events,
    .busy = verbs_busy,
    .abandon = verbs_abandon,
    .quiesce = verbs_quiesce,
    .close = verbs_close,
};
