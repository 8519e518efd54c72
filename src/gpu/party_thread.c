/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The thread of a party: what all ranks have in common, and the loop of those that are not rank 0. */
#include "gpu/party_hub.h"

#include "base/deadline.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t farewell_ns = 1000000000;

int gs_party_watch(struct gs_party *party, const struct gs_party_link *link, int64_t token, bool is_new)
{
    struct epoll_event event = {.events = EPOLLIN | (link->blocked ? (uint32_t)EPOLLOUT : 0),
                                .data.u64 = (uint64_t)token};
    return epoll_ctl(party->epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, link->fd, &event) < 0 ? -errno : 0;
}

struct gs_bytes gs_party_take(struct gs_party *party, bool *ret_closing)
{
    pthread_mutex_lock(&party->lock);
    struct gs_bytes out = party->outbox;
    party->outbox = (struct gs_bytes){0};
    *ret_closing = party->closing;
    pthread_mutex_unlock(&party->lock);
    return out;
}

/* ---- a rank that is not the hub ---- */

/* What a loop of a member knows beside the party. */
struct member {
    struct gs_party *party;
    bool closing, said_goodbye;
    int64_t turned_ns, pinged_ns;
};

static enum gs_party_state hub_state(struct gs_party *party)
{
    pthread_mutex_lock(&party->lock);
    enum gs_party_state state = party->hub_state;
    pthread_mutex_unlock(&party->lock);
    return state;
}

/* The connection is over. Unless that was said before, rank 0 is lost. */
static void lose_hub(struct member *member, int code, const char *why)
{
    struct gs_party *party = member->party;
    struct gs_failure failure = {.code = code, .n_suspects = 1};
    char name[GS_PARTY_NAME_BYTES];
    gs_party_link_end(&party->up);
    if (member->said_goodbye || hub_state(party) != GS_PARTY_THERE)
        return;
    gs_party_say_rank(name, party->members, 0);
    snprintf(failure.text, sizeof failure.text, "%s %s", name, why);
    gs_party_fell(party, &failure);
}

static void read_hub(struct member *member)
{
    struct gs_party *party = member->party;
    struct gs_party_frame frame;
    const unsigned char *body;
    int code = 0, ended = gs_party_link_read(&party->up, gpusys_now_ns());
    while ((code = gs_party_link_frame(&party->up, &frame, &body)) > 0) {
        code = gs_party_hear(party, &frame, body);
        if (code == -EBADMSG)
            break;
        gs_party_link_taken(&party->up, &frame);
    }
    if (code == -EBADMSG)
        lose_hub(member, -EPROTO, "is lost: it sent what rank 0 does not send");
    else if (ended < 0)
        lose_hub(member, -ECONNRESET, "died: its connection was closed");
    else if (hub_state(party) != GS_PARTY_THERE)
        gs_party_link_end(&party->up); /* it has said that it goes, and waits for this */
}

static void send_up(struct member *member, struct gs_bytes *bytes)
{
    struct gs_party_link *up = &member->party->up;
    struct gs_party_blob *blob = gs_bytes_queued(bytes) ? gs_party_blob_new(bytes) : NULL;
    if (blob && gs_party_link_send(up, blob))
        lose_hub(member, -EHOSTDOWN, "is lost: it does not read what it is sent");
    gs_party_blob_drop(blob);
    gs_bytes_free(bytes);
}

/* Nobody is there to hear it: of what was to be said only alarms matter, to those attached here. */
static void hear_ourselves(struct gs_party *party, struct gs_bytes *out)
{
    struct gs_party_alarm alarm;
    struct gs_party_frame frame;
    while (gs_bytes_queued(out)) {
        const unsigned char *at = out->data + out->head;
        if (gs_party_frame_decode(at, &frame))
            break;
        if (frame.type == GS_PARTY_ALARM &&
            gs_party_alarm_decode(at + GS_PARTY_FRAME_BYTES, frame.body_bytes, &alarm) == 0)
            gs_party_alarm_alone(party, alarm.key, alarm.code, alarm.text);
        gs_bytes_drop(out, GS_PARTY_FRAME_BYTES + (size_t)frame.body_bytes);
    }
}

static void take_outbox(struct member *member)
{
    struct gs_bytes out = gs_party_take(member->party, &member->closing);
    if (member->party->up.fd >= 0)
        send_up(member, &out);
    else
        hear_ourselves(member->party, &out);
    gs_bytes_free(&out);
}

static void flush_up(struct member *member)
{
    struct gs_party_link *up = &member->party->up;
    bool was_blocked = up->blocked;
    if (up->fd < 0)
        return;
    if (gs_party_link_flush(up))
        read_hub(member); /* it may have said why */
    else if (up->blocked != was_blocked)
        gs_party_watch(member->party, up, 0, false);
}

/* Pings, and the other's silence; the moment to look again. */
static int64_t keep_time(struct member *member)
{
    struct gs_party *party = member->party;
    int64_t now_ns = gpusys_now_ns(), silence_ns = party->silence_ns;
    if (party->up.fd < 0 || !silence_ns)
        return GPUSYS_NO_DEADLINE;
    if (now_ns - member->turned_ns > silence_ns / 2)
        party->up.heard_ns = now_ns; /* we slept ourselves */
    if (now_ns - party->up.heard_ns >= silence_ns) {
        char why[96];
        snprintf(why, sizeof why, "is silent: nothing was heard of it for %.1f s", (double)silence_ns / 1e9);
        lose_hub(member, -EHOSTDOWN, why);
        return GPUSYS_NO_DEADLINE;
    }
    if (now_ns - member->pinged_ns >= silence_ns / 4) {
        struct gs_bytes frame = {0};
        member->pinged_ns = now_ns;
        if (!party->up.out_n && gs_party_ping_encode(&frame) == 0)
            send_up(member, &frame);
    }
    return now_ns + silence_ns / 8;
}

static void member_turn(struct member *member, int64_t until_ns)
{
    struct gs_party *party = member->party;
    struct epoll_event events[2];
    uint64_t count;
    int n = epoll_wait(party->epoll, events, 2, gs_deadline_ms(until_ns));
    for (int i = 0; i < n; i++) {
        if ((int64_t)events[i].data.u64 == GS_PARTY_WAKE)
            while (read(party->wake, &count, sizeof count) < 0 && errno == EINTR)
                ;
        else if (party->up.fd >= 0 && events[i].events & ~(uint32_t)EPOLLOUT)
            read_hub(member);
    }
}

/* Say goodbye, and wait until the hub has closed the connection: then it has read all. */
static void member_farewell(struct member *member)
{
    struct gs_party *party = member->party;
    int64_t until_ns = gpusys_deadline_after(farewell_ns);
    struct gs_bytes frame = {0};
    if (party->up.fd >= 0 && gs_party_goodbye_encode(&frame, &party->rank, 1) == 0)
        send_up(member, &frame);
    member->said_goodbye = true;
    while (party->up.fd >= 0 && gpusys_now_ns() < until_ns) {
        flush_up(member);
        if (party->up.fd >= 0 && !party->up.out_n && !party->up.closing) {
            shutdown(party->up.fd, SHUT_WR);
            party->up.closing = true;
        }
        if (party->up.fd >= 0)
            member_turn(member, until_ns);
    }
}

void gs_party_member_run(struct gs_party *party)
{
    struct member member = {.party = party, .turned_ns = gpusys_now_ns()};
    party->up.heard_ns = member.turned_ns;
    int64_t next_ns = member.turned_ns;
    read_hub(&member); /* it may have spoken right behind its welcome */
    while (!member.closing) {
        member_turn(&member, next_ns);
        take_outbox(&member);
        next_ns = keep_time(&member);
        flush_up(&member);
        member.turned_ns = gpusys_now_ns();
    }
    member_farewell(&member);
}

/* ---- starting ---- */

static void *thread_main(void *argument)
{
    struct gs_party *party = argument;
    if (party->hub)
        gs_hub_run(party->hub);
    else
        gs_party_member_run(party);
    return NULL;
}

/* Threads of a library take no signals: those are the application's. */
int gs_party_thread_start(struct gs_party *party)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&party->thread, NULL, thread_main, party);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    party->has_thread = !error;
    return -error;
}
