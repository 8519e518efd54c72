/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The hub: everybody's connection, what is sent to whom, who is lost. */
#include "gpu/party_hub.h"

#include "base/deadline.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 256, FRAMES_AT_ONCE = 256 };
static const int64_t tick_most_ns = 250000000, left_ns = 20000000, farewell_ns = 1000000000;

/* ---- sending ---- */

static void send_blob(struct gs_party_hub *hub, uint32_t rank, struct gs_party_blob *blob)
{
    struct gs_party_link *link = &hub->links[rank];
    if ((link->fd < 0 && rank != 0) || link->closing)
        return;
    if (gs_party_link_send(link, blob)) { /* it is lost when its end is read, not in the middle of this */
        link->closing = link->overrun = true;
        shutdown(link->fd, SHUT_RDWR);
        return;
    }
    if (!link->queued)
        hub->dirty[hub->n_dirty++] = rank;
    link->queued = true;
}

void gs_hub_send(struct gs_party_hub *hub, uint32_t rank, struct gs_bytes *frame)
{
    struct gs_party_blob *blob = gs_party_blob_new(frame);
    if (blob)
        send_blob(hub, rank, blob);
    gs_party_blob_drop(blob);
}

void gs_hub_send_all(struct gs_party_hub *hub, const uint8_t *map, struct gs_bytes *frame)
{
    struct gs_party_blob *blob = gs_party_blob_new(frame);
    for (uint32_t rank = 0; blob && rank < hub->party->n_ranks; rank++)
        if (!map || gs_party_map_has(map, rank))
            send_blob(hub, rank, blob);
    gs_party_blob_drop(blob);
}

void gs_hub_send_others(struct gs_party_hub *hub, struct gs_bytes *frame)
{
    struct gs_party_blob *blob = gs_party_blob_new(frame);
    for (uint32_t rank = 1; blob && rank < hub->party->n_ranks; rank++)
        send_blob(hub, rank, blob);
    gs_party_blob_drop(blob);
}

/* To ourselves there is no socket: hear it at once. What that leads to waits in the outbox. */
static void flush_self(struct gs_party_hub *hub)
{
    struct gs_party_link *self = &hub->links[0];
    while (self->out_n) {
        const struct gs_bytes *bytes = &self->out[self->out_head]->bytes;
        const unsigned char *at = bytes->data + bytes->head;
        struct gs_party_frame frame;
        if (gs_party_frame_decode(at, &frame) == 0)
            gs_party_hear(hub->party, &frame, at + GS_PARTY_FRAME_BYTES);
        gs_party_link_drop(self);
    }
}

static void flush_rank(struct gs_party_hub *hub, uint32_t rank)
{
    struct gs_party_link *link = &hub->links[rank];
    bool was_blocked = link->blocked;
    link->queued = false;
    if (rank == 0) {
        flush_self(hub);
        return;
    }
    if (link->fd < 0)
        return;
    if (gs_party_link_flush(link))
        gs_hub_lose(hub, rank, -ECONNRESET, "died: its connection was closed");
    else if (link->blocked != was_blocked)
        gs_party_watch(hub->party, link, rank, false);
}

static void flush_all(struct gs_party_hub *hub)
{
    while (hub->n_dirty)
        flush_rank(hub, hub->dirty[--hub->n_dirty]);
}

/* ---- losing ---- */

/* Its connection goes, and whatever waited for it does not any more. */
static void let_go(struct gs_party_hub *hub, uint32_t rank, enum gs_party_state state)
{
    hub->states[rank] = (uint8_t)state;
    gs_party_link_end(&hub->links[rank]); /* it may stay in the list of those to be flushed */
    gs_hub_forget_shares(hub, rank);
    gs_hub_cases_lose(hub, rank, state);
}

void gs_hub_lose(struct gs_party_hub *hub, uint32_t rank, int code, const char *why)
{
    struct gs_failure failure = {.code = code, .n_suspects = 1, .suspects = {rank}};
    char name[GS_PARTY_NAME_BYTES];
    struct gs_bytes frame = {0};
    if (hub->links[rank].fd < 0)
        return;
    if (hub->options) {
        gs_hub_unseat(hub, rank);
        return;
    }
    if (hub->closing) {
        let_go(hub, rank, GS_PARTY_LOST);
        return;
    }
    gs_party_say_rank(name, hub->party->members, rank);
    snprintf(failure.text, sizeof failure.text, "%s %s", name, why);
    if (gs_party_failure_encode(&frame, &failure) == 0)
        gs_hub_send_all(hub, NULL, &frame); /* to itself too: it may be alive, and should know why */
    if (!hub->links[rank].overrun)
        gs_party_link_flush(&hub->links[rank]);
    let_go(hub, rank, GS_PARTY_LOST);
}

static int hear_goodbye(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size)
{
    struct gs_party_goodbye goodbye;
    uint32_t who;
    if (gs_party_goodbye_decode(body, size, &goodbye) || goodbye.n_ranks != 1 ||
        gs_party_goodbye_next(&goodbye, &who) || who != rank || rank == 0)
        return -EBADMSG;
    if (!hub->n_left)
        hub->left_at_ns = gpusys_deadline_after(left_ns);
    hub->left[hub->n_left++] = rank;
    let_go(hub, rank, GS_PARTY_LEFT);
    return 0;
}

/* Those that left lately in one message: when all leave at once there would be one from each to each. */
static void tell_left(struct gs_party_hub *hub)
{
    struct gs_bytes frame = {0};
    if (gs_party_goodbye_encode(&frame, hub->left, hub->n_left) == 0)
        gs_hub_send_all(hub, NULL, &frame);
    hub->n_left = 0;
}

/* ---- hearing ---- */

static int hear(struct gs_party_hub *hub, uint32_t rank, const struct gs_party_frame *frame,
                const unsigned char *body)
{
    size_t size = frame->body_bytes;
    if (hub->options || hub->closing)
        return hub->closing || (frame->type == GS_PARTY_PING && !size) ? 0 : -EBADMSG;
    switch (frame->type) {
    case GS_PARTY_PING: return size ? -EBADMSG : 0;
    case GS_PARTY_GATHER: return gs_hub_hear_gather(hub, rank, body, size);
    case GS_PARTY_LATE: return gs_hub_hear_late(hub, rank, body, size);
    case GS_PARTY_ALARM: return gs_hub_hear_alarm(hub, rank, body, size);
    case GS_PARTY_REPORT: return gs_hub_hear_report(hub, rank, body, size);
    case GS_PARTY_GOODBYE: return hear_goodbye(hub, rank, body, size);
    default: return -EBADMSG;
    }
}

static void read_rank(struct gs_party_hub *hub, uint32_t rank)
{
    struct gs_party_link *link = &hub->links[rank];
    struct gs_party_frame frame;
    const unsigned char *body;
    int code, ended = gs_party_link_read(link, gpusys_now_ns());
    while (link->fd >= 0 && (code = gs_party_link_frame(link, &frame, &body))) {
        if (code > 0)
            code = hear(hub, rank, &frame, body);
        if (code == -EBADMSG)
            gs_hub_lose(hub, rank, -EPROTO, "is lost: it sent what no rank sends");
        else if (code == -ENOMEM)
            gs_hub_lose(hub, rank, -ENOMEM, "is lost: rank 0 has no memory for what it sent");
        else if (link->fd >= 0)
            gs_party_link_taken(link, &frame);
    }
    if (link->fd >= 0 && link->overrun)
        gs_hub_lose(hub, rank, -EHOSTDOWN, "is lost: it does not read what it is sent");
    else if (link->fd >= 0 && ended < 0)
        gs_hub_lose(hub, rank, -ECONNRESET, "died: its connection was closed");
}

static void link_ready(struct gs_party_hub *hub, uint32_t rank, uint32_t events)
{
    struct gs_party_link *link = &hub->links[rank];
    if (link->fd >= 0 && events & EPOLLOUT)
        flush_rank(hub, rank);
    if (link->fd >= 0 && events & ~(uint32_t)EPOLLOUT)
        read_rank(hub, rank);
}

/* What this process has to say to the hub. */
static void read_self(struct gs_party_hub *hub)
{
    bool closing;
    struct gs_bytes out = gs_party_take(hub->party, &closing);
    while (gs_bytes_queued(&out)) {
        const unsigned char *at = out.data + out.head;
        struct gs_party_frame frame;
        if (gs_party_frame_decode(at, &frame))
            break; /* we made it ourselves */
        hear(hub, 0, &frame, at + GS_PARTY_FRAME_BYTES);
        gs_bytes_drop(&out, GS_PARTY_FRAME_BYTES + (size_t)frame.body_bytes);
    }
    gs_bytes_free(&out);
    hub->closing |= closing;
}

/* ---- time ---- */

static void ping_all(struct gs_party_hub *hub)
{
    struct gs_bytes frame = {0};
    struct gs_party_blob *blob = gs_party_ping_encode(&frame) ? NULL : gs_party_blob_new(&frame);
    for (uint32_t rank = 1; blob && rank < hub->party->n_ranks; rank++)
        if (!hub->links[rank].out_n) /* what waits there already does as well */
            send_blob(hub, rank, blob);
    gs_party_blob_drop(blob);
}

static void find_silent(struct gs_party_hub *hub, int64_t now_ns)
{
    int64_t silence_ns = hub->party->silence_ns;
    bool we_slept = now_ns - hub->turned_ns > silence_ns / 2;
    char why[96];
    snprintf(why, sizeof why, "is silent: nothing was heard of it for %.1f s", (double)silence_ns / 1e9);
    for (uint32_t rank = 1; rank < hub->party->n_ranks; rank++) {
        struct gs_party_link *link = &hub->links[rank];
        if (link->fd < 0)
            continue;
        if (we_slept)
            link->heard_ns = now_ns;
        else if (now_ns - link->heard_ns >= silence_ns)
            gs_hub_lose(hub, rank, -EHOSTDOWN, why);
    }
}

/* All that is due; the moment when something will be next. */
static int64_t keep_time(struct gs_party_hub *hub)
{
    int64_t now_ns = gpusys_now_ns(), silence_ns = hub->options ? 0 : hub->party->silence_ns;
    int64_t tick_ns = silence_ns && silence_ns / 8 < tick_most_ns ? silence_ns / 8 : tick_most_ns;
    int64_t next_ns = gs_hub_cases_expire(hub, now_ns);
    if (hub->n_left && now_ns >= hub->left_at_ns)
        tell_left(hub);
    if (hub->n_left && hub->left_at_ns < next_ns)
        next_ns = hub->left_at_ns;
    if (!hub->options && !silence_ns)
        return next_ns;
    if (now_ns - hub->ticked_ns >= tick_ns && !hub->is_busy) {
        if (hub->options && hub->has_changed)
            gs_hub_tell_waiting(hub);
        if (silence_ns)
            find_silent(hub, now_ns);
        if (silence_ns && now_ns - hub->pinged_ns >= silence_ns / 4) {
            ping_all(hub);
            hub->pinged_ns = now_ns;
        }
        hub->ticked_ns = now_ns;
    }
    if (hub->n_pending)
        gs_hub_pending_expire(hub, now_ns);
    return hub->ticked_ns + tick_ns < next_ns ? hub->ticked_ns + tick_ns : next_ns;
}

/* ---- the loop ---- */

static void event(struct gs_party_hub *hub, const struct epoll_event *one)
{
    uint64_t count;
    int64_t token = (int64_t)one->data.u64;
    if (token == GS_PARTY_WAKE)
        while (read(hub->party->wake, &count, sizeof count) < 0 && errno == EINTR)
            ;
    else if (token == GS_PARTY_LISTENER)
        gs_hub_accept(hub);
    else if (token < hub->party->n_ranks)
        link_ready(hub, (uint32_t)token, one->events);
    else
        gs_hub_pending_ready(hub, (uint32_t)(token - hub->party->n_ranks));
}

void gs_hub_turn(struct gs_party_hub *hub, int64_t until_ns)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    flush_all(hub);
    int n = epoll_wait(hub->party->epoll, events, EVENTS_AT_ONCE, gs_deadline_ms(until_ns));
    for (int i = 0; i < n; i++)
        event(hub, &events[i]);
    if (!hub->options)
        read_self(hub);
    hub->is_busy = n == EVENTS_AT_ONCE;
    int64_t next_ns = keep_time(hub);
    flush_all(hub);
    hub->turned_ns = gpusys_now_ns();
    hub->next_ns = next_ns;
}

static bool anybody_there(const struct gs_party_hub *hub)
{
    for (uint32_t rank = 1; rank < hub->party->n_ranks; rank++)
        if (hub->links[rank].fd >= 0)
            return true;
    return false;
}

/* Say goodbye, then wait until they have read it, for a bounded time: a connection closed with bytes unread would take
 * the goodbye with it. */
static void farewell(struct gs_party_hub *hub)
{
    static const uint32_t self;
    int64_t until_ns = gpusys_deadline_after(farewell_ns);
    struct gs_bytes frame = {0};
    gs_hub_cases_end(hub);
    if (gs_party_goodbye_encode(&frame, &self, 1) == 0)
        gs_hub_send_all(hub, NULL, &frame);
    while (anybody_there(hub) && gpusys_now_ns() < until_ns) {
        flush_all(hub);
        for (uint32_t rank = 1; rank < hub->party->n_ranks; rank++)
            if (hub->links[rank].fd >= 0 && !hub->links[rank].out_n && !hub->links[rank].closing) {
                shutdown(hub->links[rank].fd, SHUT_WR);
                hub->links[rank].closing = true;
            }
        gs_hub_turn(hub, until_ns);
    }
}

void gs_hub_run(struct gs_party_hub *hub)
{
    int64_t now_ns = gpusys_now_ns();
    hub->turned_ns = hub->ticked_ns = hub->pinged_ns = hub->next_ns = now_ns;
    for (uint32_t rank = 1; rank < hub->party->n_ranks; rank++)
        hub->links[rank].heard_ns = now_ns;
    while (!hub->closing)
        gs_hub_turn(hub, hub->next_ns);
    farewell(hub);
}
