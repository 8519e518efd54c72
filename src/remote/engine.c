/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The engine: batches are cut into slices, every lane takes the next slice whenever it has room, and a batch
 * ends when each of its bytes was acknowledged, with the first error, or at its deadline.
 */
#include "remote/client.h"

#include "base/deadline.h"
#include "base/range.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    CHAIN_BYTES = 4 * 1024 * 1024, /* given to a lane at once, about */
    SHARE_BYTES = 512 * 1024,      /* where there are several */
    FAILURES_MAX = 3, /* for each lane there is: when all die together, a slice may meet every one of them */
    EVENTS_AT_ONCE = 16,
    BULK_BYTES = 256 * 1024, /* from here on a slice is part of a long transfer */
    LOOK_EVERY = 16,         /* turns in which the lanes alone are polled, without a system call */
};

/* What the events of the set belong to; a lane's are its index. */
enum { TAG_CONTROL = 100, TAG_WAKE, TAG_EVENT, TAG_TIMER };

/* ---- the set of descriptors ---- */

void gs_engine_watch(struct gpusys_remote *remote, int fd, uint32_t *was, uint32_t events, uint64_t tag)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    if (*was == events)
        return;
    epoll_ctl(remote->epoll,
              *was == 0     ? EPOLL_CTL_ADD
              : events == 0 ? EPOLL_CTL_DEL
                            : EPOLL_CTL_MOD,
              fd, &event);
    *was = events;
}

static int add_event_fd(struct gpusys_remote *remote, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};
    return fd < 0 || epoll_ctl(remote->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int gs_engine_open(struct gpusys_remote *remote)
{
    remote->event = remote->timer = remote->wake = -1;
    remote->next_deadline_ns = GPUSYS_NO_DEADLINE;
    remote->last_done = &remote->first_done;
    remote->last_ask = &remote->asks;
    remote->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (remote->epoll < 0)
        return -errno;
    remote->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return add_event_fd(remote, remote->wake, TAG_WAKE);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void drain(int event)
{
    uint64_t count;
    if (read(event, &count, sizeof count) < 0) {
        /* nothing was in it */
    }
}

static void raise_event(int event)
{
    uint64_t one = 1;
    if (write(event, &one, sizeof one) < 0) {
        /* it is raised already */
    }
}

static bool is_busy(const struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < remote->n_lanes; i++)
        if (remote->lanes[i].rail && remote->lanes[i].ops->busy(remote->lanes[i].rail))
            return true;
    return false;
}

static int64_t due_of(const struct gs_lane *lane)
{
    return lane->rail && lane->ops->due ? lane->ops->due(lane->rail) : GPUSYS_NO_DEADLINE;
}

/* When the engine has something to do even if no descriptor says so, but not after `deadline_ns`. */
static int64_t earliest(const struct gpusys_remote *remote, int64_t deadline_ns)
{
    if (remote->next_deadline_ns < deadline_ns)
        deadline_ns = remote->next_deadline_ns;
    for (unsigned i = 0; i < remote->n_lanes; i++) {
        const struct gs_lane *lane = &remote->lanes[i];
        int64_t retry_at = gs_lane_retry_at(lane), due = due_of(lane);
        deadline_ns = retry_at < deadline_ns ? retry_at : deadline_ns;
        deadline_ns = due < deadline_ns ? due : deadline_ns;
    }
    return deadline_ns;
}

/*
 * Keep the caller's descriptor truthful: readable when there are completions, work at hand, or the time has
 * come for a deadline or for a dead lane's next attempt.
 */
void gs_engine_signal(struct gpusys_remote *remote)
{
    if (remote->event < 0)
        return;
    if (remote->first_done || is_busy(remote) || remote->dead || gs_control_has_input(remote))
        raise_event(remote->event);
    else
        drain(remote->event);
    int64_t at = earliest(remote, GPUSYS_NO_DEADLINE);
    if (remote->timer_at == at)
        return;
    remote->timer_at = at;
    struct itimerspec when = {0};
    if (remote->timer_at != GPUSYS_NO_DEADLINE) {
        when.it_value.tv_sec = remote->timer_at / 1000000000;
        when.it_value.tv_nsec = remote->timer_at % 1000000000;
    }
    timerfd_settime(remote->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

int gpusys_remote_fd(struct gpusys_remote *remote)
{
    if (remote->event >= 0)
        return remote->epoll;
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int error = add_event_fd(remote, event, TAG_EVENT) ?: add_event_fd(remote, timer, TAG_TIMER);
    if (error) {
        close_fd(event);
        close_fd(timer);
        return error;
    }
    remote->event = event;
    remote->timer = timer;
    gs_engine_signal(remote);
    return remote->epoll;
}

/* ---- slices and batches ---- */

static struct gs_slice *new_slice(struct gpusys_remote *remote)
{
    struct gs_slice *slice = remote->spare_slices;
    if (!slice)
        return malloc(sizeof *slice);
    remote->spare_slices = slice->next;
    return slice;
}

static void free_slice(struct gpusys_remote *remote, struct gs_slice *slice)
{
    slice->next = remote->spare_slices;
    remote->spare_slices = slice;
}

/* A batch with room for `n_ios`; those of one small batch are used again and again. */
struct gs_batch *gs_engine_batch(struct gpusys_remote *remote, size_t n_ios)
{
    enum { ROOM_MIN = 8 };
    struct gs_batch *batch = remote->spare;
    size_t room = n_ios < ROOM_MIN ? ROOM_MIN : n_ios;
    if (batch && batch->room >= room) {
        remote->spare = batch->next;
        room = batch->room;
    } else {
        if (room > (SIZE_MAX - sizeof *batch) / sizeof *batch->ios)
            return NULL;
        batch = malloc(sizeof *batch + room * sizeof *batch->ios);
    }
    if (batch) {
        memset(batch, 0, offsetof(struct gs_batch, note));
        batch->room = room;
    }
    return batch;
}

void gs_engine_free(struct gpusys_remote *remote, struct gs_batch *batch)
{
    batch->next = remote->spare;
    remote->spare = batch;
}

/* What the batch is for profilers, and how many bytes. */
static void *start_range(const struct gs_batch *batch)
{
    uint64_t bytes = 0;
    unsigned reads = 0;
    if (!gs_range_ops)
        return NULL;
    for (size_t i = 0; i < batch->n_ios; i++) {
        bytes += batch->ios[i].length;
        reads += batch->ios[i].op == GPUSYS_OP_READ;
    }
    const char *name = !batch->n_ios          ? "note"
                       : !reads               ? "write"
                       : reads < batch->n_ios ? "read and write"
                                              : "read";
    return gs_range_start(name, bytes);
}

static void link_batch(struct gpusys_remote *remote, struct gs_batch *batch)
{
    batch->range = start_range(batch);
    batch->older = remote->newest;
    *(batch->older ? &batch->older->newer : &remote->oldest) = batch;
    remote->newest = batch;
    if (!remote->cutting)
        remote->cutting = batch;
    if (batch->deadline_ns < remote->next_deadline_ns)
        remote->next_deadline_ns = batch->deadline_ns;
}

static void end_batch(struct gpusys_remote *remote, struct gs_batch *batch)
{
    if (remote->cutting == batch)
        remote->cutting = batch->newer;
    *(batch->newer ? &batch->newer->older : &remote->newest) = batch->older;
    *(batch->older ? &batch->older->newer : &remote->oldest) = batch->newer;
    batch->next = NULL;
    gs_range_end(batch->range);
    *remote->last_done = batch;
    remote->last_done = &batch->next;
    remote->news++;
}

/* Every byte is there: the note goes out, and the batch ends with the peer's word that it was delivered. */
static int send_note(struct gpusys_remote *remote, struct gs_batch *batch)
{
    batch->note_serial = gs_control_serial(remote);
    if (gs_note_encode(&remote->channel.out, batch->note_serial, batch->note, batch->note_bytes))
        return -ENOMEM;
    return 0;
}

static void end_if_done(struct gpusys_remote *remote, struct gs_batch *batch)
{
    if (batch->pending || (batch->at < batch->n_ios && !batch->status) || batch->note_serial)
        return;
    if (!batch->status && batch->note_bytes) {
        batch->status = send_note(remote, batch);
        if (!batch->status)
            return;
    }
    end_batch(remote, batch);
}

static void complete(struct gpusys_remote *remote, struct gs_slice *slice)
{
    struct gs_batch *batch = slice->owner;
    remote->bulk = slice->length >= BULK_BYTES;
    if (batch) {
        batch->pending--;
        if (slice->status == 0)
            batch->bytes += slice->length;
        else if (batch->status == 0)
            batch->status = slice->status;
        end_if_done(remote, batch);
    }
    free_slice(remote, slice);
}

static void complete_all(struct gpusys_remote *remote, struct gs_slices *done)
{
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(done)))
        complete(remote, slice);
}

void gs_engine_again(struct gpusys_remote *remote, struct gs_slice *slice, int why)
{
    const struct gs_listed *listed = gs_listed_at(remote, slice->region);
    slice->status = !listed ? -ENOENT : listed->changed ? -ESTALE : why;
    if (slice->owner && !remote->dead && listed && !listed->changed &&
        slice->failures++ < FAILURES_MAX * remote->n_lanes) {
        gs_slices_push(&remote->again, slice);
        return;
    }
    struct gs_batch *batch = slice->owner;
    if (batch && slice->op == GPUSYS_OP_WRITE)
        batch->flags |= GPUSYS_COMPLETION_REMOTE_UNDEFINED; /* a dead rail may have carried some of it */
    complete(remote, slice);
}

bool gs_engine_noted(struct gpusys_remote *remote, uint64_t serial, int status)
{
    struct gs_batch *batch = serial ? remote->oldest : NULL; /* 0 is what batches without a note have */
    while (batch && batch->note_serial != serial)
        batch = batch->newer;
    if (!batch)
        return serial <= remote->serial && status == 0; /* the batch timed out meanwhile */
    batch->status = status;
    end_batch(remote, batch);
    return true;
}

bool gs_engine_fenced(struct gpusys_remote *remote, uint64_t serial)
{
    for (unsigned i = 0; i < remote->n_lanes; i++)
        if (remote->lanes[i].fence_serial == serial && serial) {
            gs_lane_fenced(remote, &remote->lanes[i]);
            return true;
        }
    return false;
}

/* ---- cutting ---- */

/* The next piece of the batch that is being cut: a slice, or NULL when there is nothing left or no memory. */
static struct gs_slice *cut(struct gpusys_remote *remote, uint64_t slice_bytes)
{
    struct gs_batch *batch = remote->cutting;
    while (batch && (batch->at == batch->n_ios || batch->status))
        batch = batch->newer;
    remote->cutting = batch;
    struct gs_slice *slice = batch ? new_slice(remote) : NULL;
    if (!slice) {
        if (batch && !batch->pending) { /* nothing of it is under way that would bring us here again */
            batch->status = -ENOMEM;
            end_if_done(remote, batch);
        }
        return NULL;
    }
    const struct gpusys_io *io = &batch->ios[batch->at];
    uint64_t left = io->length - batch->at_offset,
             most = slice_bytes + slice_bytes / 4; /* no crumbs at the end */
    if (most > remote->target.slice_max)
        most = remote->target.slice_max;
    uint32_t length = (uint32_t)(left <= most ? left : slice_bytes);
    *slice = (struct gs_slice){.owner = batch,
                               .buffer = (char *)io->buffer + batch->at_offset,
                               .offset = io->offset + batch->at_offset,
                               .length = length,
                               .region = io->region,
                               .op = (uint8_t)io->op};
    batch->pending++;
    batch->at_offset += length;
    if (batch->at_offset == io->length) {
        batch->at++;
        batch->at_offset = 0;
    }
    return slice;
}

/* Give the lane a chain of what is next, if it has room. False: it took nothing. */
static bool feed(struct gpusys_remote *remote, struct gs_lane *lane, uint64_t chain_bytes)
{
    unsigned room = lane->rail ? lane->ops->room(lane->rail) : 0;
    struct gs_slices chain = {0};
    for (uint64_t bytes = 0; room > 0 && bytes < chain_bytes; room--) {
        struct gs_slice *slice = gs_slices_pop(&remote->again);
        if (!slice && !(slice = cut(remote, remote->slice_bytes)))
            break;
        gs_slices_push(&chain, slice);
        bytes += slice->length;
    }
    if (!chain.first)
        return false;
    lane->ops->post(lane->rail, &chain);
    return true;
}

/* ---- deadlines ---- */

static unsigned drop_all(struct gpusys_remote *remote, struct gs_slices *slices)
{
    struct gs_slice *slice;
    unsigned count = 0;
    for (; (slice = gs_slices_pop(slices)); count++)
        free_slice(remote, slice);
    return count;
}

/* Take the batch's slices out of a chain. */
static unsigned drop_from(struct gpusys_remote *remote, struct gs_slices *chain, const struct gs_batch *batch)
{
    struct gs_slices all = *chain, dropped = {0};
    struct gs_slice *slice;
    *chain = (struct gs_slices){0};
    while ((slice = gs_slices_pop(&all)))
        gs_slices_push(slice->owner == batch ? &dropped : chain, slice);
    return drop_all(remote, &dropped);
}

static bool has_writes(const struct gs_batch *batch)
{
    for (size_t i = 0; i < batch->n_ios; i++)
        if (batch->ios[i].op == GPUSYS_OP_WRITE)
            return true;
    return false;
}

/* After this nothing of the session touches the batch's buffers. */
static void expire(struct gpusys_remote *remote, struct gs_batch *batch)
{
    batch->pending++; /* a lane that dies here must not end it */
    for (unsigned i = 0; i < remote->n_lanes; i++) {
        struct gs_lane *lane = &remote->lanes[i];
        struct gs_slices dropped = {0};
        int error = lane->rail ? lane->ops->abandon(lane->rail, batch, &dropped) : 0;
        batch->pending -= drop_all(remote, &dropped);
        if (error)
            gs_lane_died(remote, lane, error);
        if (remote->dead)
            return; /* which ended every batch */
    }
    bool undefined = batch->pending > 1;
    drop_from(remote, &remote->again, batch);
    for (unsigned i = 0; i < remote->n_lanes; i++)
        drop_from(remote, &remote->lanes[i].fenced, batch);
    batch->pending = 0;
    batch->status = -ETIMEDOUT;
    if (undefined && has_writes(batch))
        batch->flags |= GPUSYS_COMPLETION_REMOTE_UNDEFINED;
    end_batch(remote, batch);
}

static void expire_due(struct gpusys_remote *remote)
{
    if (remote->next_deadline_ns == GPUSYS_NO_DEADLINE)
        return;
    int64_t now = gpusys_now_ns(), next = GPUSYS_NO_DEADLINE;
    if (now < remote->next_deadline_ns)
        return;
    for (struct gs_batch *batch = remote->oldest; batch;) {
        if (batch->deadline_ns <= now) {
            expire(remote, batch);
            next = GPUSYS_NO_DEADLINE;
            batch = remote->oldest; /* it may have taken others with it */
            continue;
        }
        if (batch->deadline_ns < next)
            next = batch->deadline_ns;
        batch = batch->newer;
    }
    remote->next_deadline_ns = next;
}

void gs_engine_fail_all(struct gpusys_remote *remote, int status)
{
    drop_all(remote, &remote->again);
    for (unsigned i = 0; i < remote->n_lanes; i++) {
        struct gs_slices outstanding = {0};
        if (remote->lanes[i].rail)
            remote->lanes[i].ops->quiesce(remote->lanes[i].rail, &outstanding);
        drop_all(remote, &outstanding);
        drop_all(remote, &remote->lanes[i].fenced);
    }
    while (remote->oldest) {
        struct gs_batch *batch = remote->oldest;
        if (batch->pending && has_writes(batch))
            batch->flags |= GPUSYS_COMPLETION_REMOTE_UNDEFINED;
        batch->status = batch->status ? batch->status : status;
        batch->pending = 0;
        end_batch(remote, batch);
    }
}

/* ---- turns ---- */

static void poll_lane(struct gpusys_remote *remote, struct gs_lane *lane)
{
    struct gs_slices done = {0};
    if (!lane->rail)
        return;
    int error = lane->ops->poll(lane->rail, &done);
    for (const struct gs_slice *slice = done.first; slice; slice = slice->next)
        lane->bytes += slice->status ? 0 : slice->length;
    if (done.first)
        lane->failures = 0;
    complete_all(remote, &done);
    if (error && lane->rail)
        gs_lane_died(remote, lane, error);
}

static void handle(struct gpusys_remote *remote, uint64_t tag)
{
    if (tag < GS_RAILS_MAX)
        poll_lane(remote, &remote->lanes[tag]);
    else if (tag == TAG_CONTROL)
        gs_control_progress(remote);
    else if (tag == TAG_WAKE)
        drain(remote->wake);
    else if (tag == TAG_TIMER)
        drain(remote->timer);
}

static void watch_all(struct gpusys_remote *remote)
{
    int fd = remote->channel.stream ? gpusys_stream_fd(remote->channel.stream) : -1;
    uint32_t events = EPOLLIN | (gs_channel_has_output(&remote->channel) ? EPOLLOUT : 0u);
    if (fd >= 0)
        gs_engine_watch(remote, fd, &remote->control_watched, remote->dead ? 0 : events, TAG_CONTROL);
    for (unsigned i = 0; i < remote->n_lanes; i++) {
        struct gs_lane *lane = &remote->lanes[i];
        if (lane->rail && lane->ops->fd(lane->rail) >= 0)
            gs_engine_watch(remote, lane->ops->fd(lane->rail), &lane->watched, lane->ops->events(lane->rail),
                            i);
    }
}

/*
 * The control stream first: what it brings may give the lanes something to do. Then the lanes in turn, each a share
 * at a time, so that little work is spread as well as much.
 */
static void feed_all(struct gpusys_remote *remote)
{
    uint64_t chain_bytes = remote->n_lanes > 1 ? SHARE_BYTES : CHAIN_BYTES;
    if (gs_channel_has_output(&remote->channel))
        gs_control_progress(remote);
    for (unsigned refused = 0; refused < remote->n_lanes && (remote->cutting || remote->again.first);) {
        struct gs_lane *lane = &remote->lanes[remote->next_lane];
        remote->next_lane = remote->next_lane + 1 < remote->n_lanes ? remote->next_lane + 1 : 0;
        refused = feed(remote, lane, chain_bytes) ? 0 : refused + 1;
    }
    watch_all(remote);
}

void gs_engine_begin(struct gpusys_remote *remote, struct gs_batch *batch)
{
    link_batch(remote, batch);
    if (batch->n_ios == 0)
        end_if_done(remote, batch);
    feed_all(remote);
    gs_engine_signal(remote);
}

static void start_all(struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < remote->n_lanes; i++)
        if (remote->lanes[i].rail && remote->lanes[i].ops->start)
            remote->lanes[i].ops->start(remote->lanes[i].rail);
    watch_all(remote);
}

/* Those that are busy, and after a wait in which nothing happened those whose time has come. */
static void poll_lanes(struct gpusys_remote *remote, bool waited)
{
    int64_t now = waited ? gpusys_now_ns() : 0;
    for (unsigned i = 0; i < remote->n_lanes; i++) {
        struct gs_lane *lane = &remote->lanes[i];
        if (lane->rail && (lane->ops->busy(lane->rail) || (waited && due_of(lane) <= now)))
            poll_lane(remote, lane);
    }
}

int gs_engine_turn(struct gpusys_remote *remote, int64_t deadline_ns)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    if (remote->dead)
        return remote->dead;
    uint64_t news = remote->news;
    feed_all(remote);
    start_all(remote);
    if (remote->dead)
        return remote->dead;
    bool busy = is_busy(remote) || remote->news != news || gs_control_has_input(remote);
    int timeout = busy ? 0 : gs_deadline_ms(earliest(remote, deadline_ns));
    bool skip = busy && remote->transport == GPUSYS_TRANSPORT_VERBS && remote->unlooked++ < LOOK_EVERY;
    if (!skip)
        remote->unlooked = 0;
    int count =
        skip ? 0 : gs_spin_wait(&remote->spin, remote->bulk, remote->epoll, events, EVENTS_AT_ONCE, timeout);
    for (int i = 0; i < count; i++)
        handle(remote, events[i].data.u64);
    if (gs_control_has_input(remote))
        gs_control_progress(remote);
    poll_lanes(remote, count == 0 && timeout != 0);
    gs_lanes_tend(remote);
    expire_due(remote);
    feed_all(remote);
    gs_engine_signal(remote);
    return deadline_ns != GPUSYS_NO_DEADLINE && gpusys_now_ns() >= deadline_ns ? -ETIMEDOUT : 0;
}

void gs_engine_close(struct gpusys_remote *remote)
{
    gs_engine_fail_all(remote, -ENOTCONN);
    for (unsigned i = 0; i < remote->n_lanes; i++)
        gs_lane_close(remote, &remote->lanes[i]);
    while (remote->first_done) {
        struct gs_batch *next = remote->first_done->next;
        free(remote->first_done);
        remote->first_done = next;
    }
    while (remote->spare) {
        struct gs_batch *next = remote->spare->next;
        free(remote->spare);
        remote->spare = next;
    }
    while (remote->spare_slices) {
        struct gs_slice *next = remote->spare_slices->next;
        free(remote->spare_slices);
        remote->spare_slices = next;
    }
    close_fd(remote->event);
    close_fd(remote->timer);
    close_fd(remote->wake);
    close_fd(remote->epoll);
}
