/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A verbs rail behind the engine's table: slices become one-sided reads and writes.
 *
 * Buffers that the caller has registered (gpusys_remote_register) are used where they are. Others are copied
 * through a slot of registered memory when they are short, and registered for the time of the request when they
 * are long: never remembered, for memory that the caller frees and maps again is other memory at the same address.
 * Where no more memory may be locked, long ones are copied too, a part at a time.
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
    WINDOW_BYTES = 4 * 1024 * 1024, /* under way, about: more only waits in queues */
    BULK_BYTES = 64 * 1024,         /* under way: from here on a wake-up matters little */
};

static const int64_t spin_ns = 1000000, silence_ns = 10000000000, drain_ns = 1000000000;

static struct gs_verbs_rail *self_of(const struct gs_rail *rail)
{
    return (struct gs_verbs_rail *)(uintptr_t)rail; /* the first member */
}

struct gs_verbs_end *gs_verbs_rail_end(const struct gs_rail *rail)
{
    return rail && rail->ops == &gs_rail_verbs ? self_of(rail)->end : NULL;
}

int gs_verbs_rail_info(const struct gs_rail *rail, struct gpusys_qp_info *ret_info)
{
    return !self_of(rail)->qp ? -ENOTCONN : gpusys_qp_info(self_of(rail)->qp, ret_info);
}

static unsigned verbs_room(const struct gs_rail *rail)
{
    const struct gs_verbs_rail *self = self_of(rail);
    bool is_idle = self->n_free == self->n_slots;
    if (self->bytes_out >= WINDOW_BYTES || (!is_idle && self->n_free < self->n_slots / 4) || self->fault ||
        self->n_waiting || self->n_ops)
        return 0;
    return self->n_free < GS_VERBS_CHAIN / 2 ? self->n_free : GS_VERBS_CHAIN / 2;
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
    struct gs_slice *slice = empty_slot(self, slot);
    slice->status = status;
    gs_slices_push(done, slice);
}

/* ---- the ring of slots that are waiting ---- */

static void wait_last(struct gs_verbs_rail *self, unsigned slot)
{
    self->waiting[(self->waiting_at + self->n_waiting++) % GS_VERBS_SLOTS] = (uint16_t)slot;
}

static unsigned take_first(struct gs_verbs_rail *self)
{
    unsigned slot = self->waiting[self->waiting_at];
    self->waiting_at = (self->waiting_at + 1) % GS_VERBS_SLOTS;
    self->n_waiting--;
    return slot;
}

void gs_verbs_rail_give_up(struct gs_verbs_rail *self, uint32_t region, int status)
{
    for (unsigned i = self->n_waiting; i > 0; i--) {
        unsigned slot = take_first(self);
        if (self->slots[slot].slice->region == region && self->slots[slot].posted == 0)
            finish(self, slot, status, &self->ends);
        else
            wait_last(self, slot);
    }
}

/* ---- posting ---- */

/* Give the driver what was gathered, as far as it has room. What it refuses ends the rail. */
static void flush_ops(struct gs_verbs_rail *self)
{
    int count = gpusys_qp_post(self->qp, self->ops, self->n_ops);
    if (count < 0) {
        self->fault = count;
        return;
    }
    self->n_ops -= (uint32_t)count;
    if (self->n_ops)
        memmove(self->ops, self->ops + count, self->n_ops * sizeof *self->ops);
    self->armed = false;
    self->empty_polls = 0;
}

/* As much as the slot's own memory takes, from `part_at` on; of a write it is copied there. */
static void use_bounce(struct gs_verbs_rail *self, unsigned slot, uint32_t part_at)
{
    struct gs_verbs_slot *at = &self->slots[slot];
    const struct gs_slice *slice = at->slice;
    uint32_t left = slice->length - part_at;
    at->bounced = true;
    at->part_at = part_at;
    at->part_end = part_at + (left < GS_BOUNCE_BYTES ? left : GS_BOUNCE_BYTES);
    at->address = (uintptr_t)bounce_of(self, slot);
    at->lkey = self->bounce_lkey;
    if (slice->op == GPUSYS_OP_WRITE)
        memcpy(bounce_of(self, slot), (const char *)slice->buffer + part_at, at->part_end - part_at);
}

static int use_buffer(struct gs_verbs_rail *self, unsigned slot)
{
    struct gs_verbs_slot *at = &self->slots[slot];
    struct gpusys_mr_info info = {.size = sizeof info};
    uint32_t access = at->slice->op == GPUSYS_OP_WRITE ? GPUSYS_MR_SOURCE : GPUSYS_MR_LANDING;
    int result = gpusys_mr_open(&at->mr, self->end->pd, at->slice->buffer, at->slice->length, access, NULL);
    if (!result)
        result = gpusys_mr_info(at->mr, &info);
    at->lkey = info.lkey;
    return result;
}

/*
 * Where the slice's bytes are for the device: in the caller's memory, or in the slot's own when it is not registered
 * and is short, or there is not enough memory that may be locked. 0, or why nowhere.
 */
static int find_memory(struct gs_verbs_rail *self, unsigned slot)
{
    struct gs_verbs_slot *at = &self->slots[slot];
    const struct gs_slice *slice = at->slice;
    const struct gs_landing *landing = gs_verbs_end_find(self->end, (uintptr_t)slice->buffer, slice->length);
    int result = 0;
    at->address = (uintptr_t)slice->buffer;
    at->part_end = slice->length;
    if (landing)
        at->lkey = landing->lkey;
    else
        result = slice->length <= GS_BOUNCE_BYTES ? -ENOMEM : use_buffer(self, slot);
    if (result == -ENOMEM)
        use_bounce(self, slot, 0);
    return result == -ENOMEM ? 0 : result;
}

/* What was under way of the slice is done. */
static void part_done(struct gs_verbs_rail *self, unsigned slot, struct gs_slices *done)
{
    const struct gs_verbs_slot *at = &self->slots[slot];
    const struct gs_slice *slice = at->slice;
    if (at->bounced && slice->op == GPUSYS_OP_READ)
        memcpy((char *)slice->buffer + at->part_at, bounce_of(self, slot), at->part_end - at->part_at);
    if (at->part_end == slice->length) {
        finish(self, slot, 0, done);
    } else {
        use_bounce(self, slot, at->part_end);
        wait_last(self, slot);
    }
}

/* The next request of a slice: up to the end of the piece of the region that it is in. */
static struct gpusys_qp_op op_of(const struct gs_verbs_rail *self, unsigned slot, const struct gs_keys *keys,
                                 const struct gs_key_entry *key, uint64_t within)
{
    const struct gs_verbs_slot *at = &self->slots[slot];
    bool is_write = at->slice->op == GPUSYS_OP_WRITE;
    uint64_t left = at->part_end - at->posted, most = keys->piece_bytes - within,
             limit = is_write ? self->write_bytes : self->read_bytes;
    most = most < limit ? most : limit;
    return (struct gpusys_qp_op){.id = (uint64_t)slot << 1 | (left <= most),
                                 .local = at->address + (at->posted - at->part_at),
                                 .remote = key->base + within,
                                 .length = left <= most ? left : most,
                                 .lkey = at->lkey,
                                 .rkey = key->rkey,
                                 .kind = is_write ? GPUSYS_QP_WRITE : GPUSYS_QP_READ};
}

static void gather_slot(struct gs_verbs_rail *self, unsigned slot, const struct gs_keys *keys)
{
    struct gs_verbs_slot *at = &self->slots[slot];
    while (at->posted < at->part_end && self->n_ops < GS_VERBS_CHAIN) {
        uint64_t offset = at->slice->offset + at->posted, piece = offset / keys->piece_bytes;
        const struct gs_key_entry *key = gs_keys_piece(keys, piece);
        if (!key) { /* the peer's keys are not those of the region that it listed */
            self->fault = -EPROTO;
            return;
        }
        const struct gpusys_qp_op *op = &self->ops[self->n_ops++];
        self->ops[self->n_ops - 1] = op_of(self, slot, keys, key, offset - piece * keys->piece_bytes);
        at->posted += (uint32_t)op->length;
        at->slice->sent = at->slice->op == GPUSYS_OP_WRITE;
    }
    if (at->posted == at->part_end)
        take_first(self);
}

/* Requests for what is waiting, as many as a chain takes. */
static void gather(struct gs_verbs_rail *self)
{
    while (self->n_waiting && self->n_ops < GS_VERBS_CHAIN && !self->fault) {
        unsigned slot = self->waiting[self->waiting_at];
        uint32_t region = self->slots[slot].slice->region;
        const struct gs_keys *keys = gs_keyring_find(self->keys, region);
        int result = keys ? 0 : gs_verbs_ask(self, region);
        if (keys) {
            gather_slot(self, slot, keys);
        } else if (result == -ENOENT) {
            gs_verbs_rail_give_up(self, region, result);
        } else {
            self->fault = result;
            return;
        }
    }
}

/* Post what is waiting, as far as keys are known and there is room. */
static void advance(struct gs_verbs_rail *self)
{
    uint32_t before;
    do {
        gather(self);
        before = self->n_ops;
        if (before && !self->fault)
            flush_ops(self);
    } while (self->n_ops < before && !self->fault && (self->n_waiting || self->n_ops));
    if (self->channel.stream && gs_channel_has_output(&self->channel) && !self->fault) {
        int result = gs_channel_flush(&self->channel, 0);
        self->fault = result == -EAGAIN ? 0 : result;
    }
}

/* Answers that are there, and what they let be posted. */
static int take_answers(struct gs_verbs_rail *self)
{
    unsigned asked = self->n_asked;
    int result = gs_verbs_listen(self);
    if (!result && self->n_asked < asked)
        advance(self);
    return result ? result : self->fault;
}

static void verbs_post(struct gs_rail *rail, struct gs_slices *chain)
{
    struct gs_verbs_rail *self = self_of(rail);
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(chain))) {
        unsigned slot = self->free_slots[--self->n_free];
        self->slots[slot].slice = slice;
        self->bytes_out += slice->length;
        int result = find_memory(self, slot);
        if (result == -EFAULT || result == -EINVAL || result == -EMSGSIZE)
            finish(self, slot, result, &self->ends); /* the caller's memory is none */
        else if (result)
            self->fault = result; /* the port is gone; the slice comes back with the others */
        else
            wait_last(self, slot);
    }
    if (!self->fault)
        advance(self);
}

/* ---- completions ---- */

/* In one line: what failed, why, and both sides' values. */
static int complain(const struct gs_verbs_rail *self, const struct gpusys_qp_completion *completion)
{
    struct gpusys_error error = {0};
    int status = gpusys_qp_explain(self->qp, completion, &error);
    for (char *at = error.detail; *at; at++)
        *at = *at == '\n' ? ';' : *at == '\t' ? ' ' : *at;
    gs_log(GPUSYS_LOG_WARN, "%s: %s (%s)", error.message, error.cause, error.detail);
    return status;
}

/*
 * A failed request ends the rail. If it was refused for what it asked for, that is the end of its slice too: on another
 * rail it would fare no better. Otherwise the slice is still outstanding, and comes back with the others.
 */
static int failed(struct gs_verbs_rail *self, const struct gpusys_qp_completion *completion,
                  struct gs_slices *done)
{
    int status = completion->status == -ECANCELED ? -ECONNRESET : complain(self, completion);
    if (status != -EREMOTEIO && status != -EFAULT && status != -EMSGSIZE)
        return status;
    if (gpusys_qp_drain(self->qp, NULL, 0, NULL, gpusys_deadline_after(drain_ns)) == 0)
        finish(self, (unsigned)(completion->id >> 1), status, done); /* and nothing touches its buffer now */
    return status;
}

/* Up to a batch of completions; how many. */
static int reap(struct gs_verbs_rail *self, struct gs_slices *done)
{
    struct gpusys_qp_completion completions[GS_VERBS_CHAIN];
    int count = gpusys_qp_poll(self->qp, completions, GS_VERBS_CHAIN);
    for (int i = 0; i < count; i++) {
        if (completions[i].status)
            return failed(self, &completions[i], done);
        if (completions[i].id & 1)
            part_done(self, (unsigned)(completions[i].id >> 1), done);
    }
    return count;
}

/* Has the other side's connection ended, or said what nobody asked for? */
static int look_at_control(struct gs_verbs_rail *self)
{
    char byte;
    if (self->channel.stream)
        return take_answers(self);
    ssize_t count = self->control < 0 ? -1 : recv(self->control, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (self->control < 0 || (count < 0 && (errno == EAGAIN || errno == EINTR)))
        return 0;
    return count > 0 ? -EPROTO : -ECONNRESET;
}

/* What woke us, beside the completion channel. */
static int look_around(struct gs_verbs_rail *self)
{
    struct gpusys_verbs_event event;
    while (gpusys_verbs_event(self->end->verbs, &event) > 0) {
        /* it has been logged, and what it changes shows in the port's health */
    }
    return look_at_control(self);
}

/* Is it the device that we wait for, and not the peer, which may take its time to register a region? */
static bool waits_for_device(const struct gs_verbs_rail *self)
{
    return self->n_free < self->n_slots && self->n_asked == 0;
}

/* A device that neither completes nor fails for so long will not: a lost packet ends in retries, far sooner. */
static int check_silence(const struct gs_verbs_rail *self)
{
    if (!waits_for_device(self) || gpusys_now_ns() < self->quiet_since_ns + silence_ns)
        return 0;
    gs_log(GPUSYS_LOG_WARN, "%s port %u: no completion in %d s, and no error either", self->end->port.device,
           self->end->port.port, (int)(silence_ns / 1000000000));
    return -ETIMEDOUT;
}

/*
 * Nothing for a while: have the device tell us, and look once more, for it may have come in between. The first time
 * in a row the silence begins.
 */
static int go_to_sleep(struct gs_verbs_rail *self, struct gs_slices *done, bool was_armed)
{
    int result = was_armed ? check_silence(self) : 0;
    if (!was_armed)
        self->quiet_since_ns = gpusys_now_ns();
    self->spins = false;
    if (!result)
        result = gpusys_qp_arm(self->qp);
    if (!result)
        result = reap(self, done);
    self->armed = result == 0;
    return result < 0 ? result : 0;
}

/* Completions, keys, and what could not be posted before. How many completions there were. */
static int work(struct gs_verbs_rail *self, struct gs_slices *done)
{
    int count = reap(self, done);
    int result = count < 0 || !self->n_asked ? 0 : take_answers(self);
    if (count < 0 || result)
        return count < 0 ? count : result;
    if (self->n_waiting || self->n_ops)
        advance(self);
    return self->fault ? self->fault : count;
}

static void give_ends(struct gs_verbs_rail *self, struct gs_slices *done)
{
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(&self->ends)))
        gs_slices_push(done, slice);
}

/*
 * Short requests are polled for, since to be woken would be most of their time: for as long as waits of late have been
 * short. Never with much under way: there the packets' own threads need the processor more than we do.
 */
static bool is_patient(struct gs_verbs_rail *self)
{
    enum { CLOCK_EVERY = 16 }; /* polls */
    if (!self->spins || self->bytes_out >= BULK_BYTES)
        return false;
    if (self->empty_polls == 0)
        self->spin_from_ns = gpusys_now_ns();
    return self->empty_polls % CLOCK_EVERY || gpusys_now_ns() - self->spin_from_ns < spin_ns;
}

static int verbs_poll(struct gs_rail *rail, struct gs_slices *done)
{
    struct gs_verbs_rail *self = self_of(rail);
    bool was_armed = self->armed;
    int count = self->fault ? self->fault : work(self, done);
    if (count == 0 && (was_armed || !is_patient(self)))
        count = look_around(self) ?: go_to_sleep(self, done, was_armed);
    give_ends(self, done);
    if (count < 0)
        return self->fault = count;
    self->empty_polls = count ? 0 : self->empty_polls + 1;
    if (count && was_armed)
        self->spins = gpusys_now_ns() - self->quiet_since_ns < spin_ns;
    if (count)
        self->armed = false;
    return self->fault = gpusys_verbs_health(self->end->verbs);
}

static int64_t verbs_due(const struct gs_rail *rail)
{
    const struct gs_verbs_rail *self = self_of(rail);
    return self->armed && waits_for_device(self) ? self->quiet_since_ns + silence_ns : GPUSYS_NO_DEADLINE;
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
    return self->fault || self->ends.first || (self->n_free < self->n_slots && !self->armed);
}

/* ---- ends ---- */

/* What has not been posted is let go. The device reads or writes the buffers of the rest until the queue pair is
 * stopped. */
static int verbs_abandon(struct gs_rail *rail, const void *owner, struct gs_slices *dropped)
{
    struct gs_verbs_rail *self = self_of(rail);
    struct gs_slices ends = self->ends;
    struct gs_slice *slice;
    self->ends = (struct gs_slices){0};
    while ((slice = gs_slices_pop(&ends)))
        gs_slices_push(slice->owner == owner ? dropped : &self->ends, slice);
    for (unsigned i = self->n_waiting; i > 0; i--) {
        unsigned slot = take_first(self);
        if (self->slots[slot].slice->owner == owner && self->slots[slot].posted == 0)
            gs_slices_push(dropped, empty_slot(self, slot));
        else
            wait_last(self, slot);
    }
    for (unsigned i = 0; i < self->n_slots; i++)
        if (self->slots[i].slice && self->slots[i].slice->owner == owner)
            return -EBUSY;
    return 0;
}

static void verbs_quiesce(struct gs_rail *rail, struct gs_slices *outstanding)
{
    struct gs_verbs_rail *self = self_of(rail);
    int result = !self->qp ? 0 : gpusys_qp_drain(self->qp, NULL, 0, NULL, gpusys_deadline_after(drain_ns));
    if (result)
        gs_log(GPUSYS_LOG_WARN, "%s port %u: requests that did not come back: %s", self->end->port.device,
               self->end->port.port, strerrordesc_np(-result));
    gpusys_qp_close(self->qp); /* once it is destroyed the device touches nothing, whatever it reported */
    self->qp = NULL;
    self->fault = -ENOTCONN;
    self->n_waiting = self->n_ops = 0;
    give_ends(self, outstanding);
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
    gs_channel_free(&self->channel);
    if (self->epoll >= 0)
        close(self->epoll);
    free(self);
}

const struct gs_rail_ops gs_rail_verbs = {
    .transport = GPUSYS_TRANSPORT_VERBS,
    .slice_bytes = 512 * 1024,
    .connect = gs_verbs_rail_connect,
    .room = verbs_room,
    .post = verbs_post,
    .poll = verbs_poll,
    .fd = verbs_fd,
    .events = verbs_events,
    .busy = verbs_busy,
    .due = verbs_due,
    .abandon = verbs_abandon,
    .quiesce = verbs_quiesce,
    .close = verbs_close,
};
