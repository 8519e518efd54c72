/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Coming together, on rank 0: who knocks, who may come in, who is missing. */
#include "gpu/party_hub.h"

#include "base/deadline.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t pending_ns = 3000000000, second_ns = 1000000000;

static const struct gs_member *self_of(const struct gs_party_hub *hub)
{
    return &hub->party->members[0];
}

/* ---- those who knock ---- */

static void drop_pending(struct gs_party_hub *hub, struct gs_party_link *link)
{
    if (link->fd < 0)
        return;
    gs_party_link_end(link);
    hub->n_pending--;
}

/* A free place; when there is none, the one that has been silent for longest has to go. */
static uint32_t free_slot(struct gs_party_hub *hub)
{
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < GS_HUB_PENDING; i++) {
        if (hub->pending[i].fd < 0)
            return i;
        if (hub->pending[i].since_ns < hub->pending[oldest].since_ns)
            oldest = i;
    }
    drop_pending(hub, &hub->pending[oldest]);
    return oldest;
}

void gs_hub_pending_expire(struct gs_party_hub *hub, int64_t now_ns)
{
    for (uint32_t i = 0; i < GS_HUB_PENDING; i++)
        if (hub->pending[i].fd >= 0 && now_ns - hub->pending[i].since_ns >= pending_ns)
            drop_pending(hub, &hub->pending[i]);
}

/* The last words on a connection. */
static void refuse(struct gs_party_link *link, const struct gpusys_error *error)
{
    struct gs_bytes frame = {0};
    struct gs_party_blob *blob = gs_party_refused_encode(&frame, error) ? NULL : gs_party_blob_new(&frame);
    if (blob && gs_party_link_send(link, blob) == 0)
        gs_party_link_flush(link);
    gs_party_blob_drop(blob);
    shutdown(link->fd, SHUT_WR);
}

static void refuse_pending(struct gs_party_hub *hub, struct gs_party_link *link,
                           const struct gpusys_error *error)
{
    gs_log(GPUSYS_LOG_WARN, "party at %s: refused: %s", hub->address, error->message);
    refuse(link, error);
    drop_pending(hub, link);
}

/* Another user may reach a Unix socket whose file was opened up; he has no business here. */
static int check_user(int fd, struct gpusys_error *error)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    int domain = 0;
    socklen_t domain_length = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_length) < 0 || domain != AF_UNIX)
        return 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
        return gpusys_error_set_errno(error, -errno, "the user at the other end of the socket");
    if (peer.uid == geteuid())
        return 0;
    gpusys_error_set(error, -EACCES, "process %d is user %u's, and rank 0 is user %u's", (int)peer.pid,
                     (unsigned)peer.uid, (unsigned)geteuid());
    gpusys_error_set_hint(error, "over a Unix socket all ranks are of one user");
    return -EACCES;
}

static void greet(struct gs_party_hub *hub, uint32_t slot)
{
    static const char magic[] = GS_PARTY_MAGIC;
    struct gs_party_link *link = &hub->pending[slot];
    struct gpusys_error error = {0};
    gs_socket_tune(link->fd);
    send(link->fd, magic, GS_PARTY_MAGIC_BYTES,
         MSG_NOSIGNAL | MSG_DONTWAIT); /* it fits, or nobody is there */
    if (check_user(link->fd, &error))
        refuse_pending(hub, link, &error);
    else if (gs_party_watch(hub->party, link, (int64_t)hub->party->n_ranks + slot, true))
        drop_pending(hub, link);
    else
        gs_hub_pending_ready(hub, slot); /* it may have spoken already */
}

void gs_hub_accept(struct gs_party_hub *hub)
{
    enum { AT_ONCE = 64 };
    for (int i = 0; i < AT_ONCE; i++) {
        int fd = accept4(hub->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                hub->code = -errno;
            return;
        }
        uint32_t slot = free_slot(hub);
        gs_party_link_init(&hub->pending[slot], fd, slot, GS_PARTY_HELLO_MOST, gpusys_now_ns());
        hub->n_pending++;
        greet(hub, slot);
    }
}

/* ---- those who say who they are ---- */

static bool is_zero(const uint8_t job[16])
{
    static const uint8_t zero[16];
    return memcmp(job, zero, sizeof zero) == 0;
}

static void say_job(char text[33], const uint8_t job[16])
{
    for (unsigned i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", job[i]);
}

/* "rank 3 (node7, process 4711)" of somebody who is not let in yet. */
static void say_newcomer(char text[GS_PARTY_NAME_BYTES], const struct gs_party_hello *hello)
{
    snprintf(text, GS_PARTY_NAME_BYTES, "rank %u (%s, process %u)", hello->rank, hello->member.host,
             hello->member.pid);
}

static int refuse_job(const struct gs_party_hub *hub, const struct gs_party_hello *hello, const char *from,
                      struct gpusys_error *error)
{
    char name[GS_PARTY_NAME_BYTES], own[33], other[33];
    say_newcomer(name, hello);
    say_job(other, hello->job);
    say_job(own, hub->options->job);
    gpusys_error_set(error, -EXDEV,
                     "%s at %s is of another job: %s, and rank 0 (%s, process %u) at %s is of %s", name, from,
                     other, self_of(hub)->host, self_of(hub)->pid, hub->address, own);
    gpusys_error_set_hint(error, "two jobs met at one address: give each its own");
    return -EXDEV;
}

static int refuse_twice(const struct gs_party_hub *hub, const struct gs_party_hello *hello, const char *from,
                        struct gpusys_error *error)
{
    const struct gs_member *first = &hub->party->members[hello->rank];
    gpusys_error_set(error, -EEXIST,
                     "rank %u came twice: %s, process %u, at %s, and then %s, process %u, at %s", hello->rank,
                     first->host, first->pid, first->address, hello->member.host, hello->member.pid, from);
    gpusys_error_set_hint(error, "every process needs a rank of its own; did the launcher set it?");
    return -EEXIST;
}

static int check_hello(const struct gs_party_hub *hub, const struct gs_party_hello *hello, const char *from,
                       struct gpusys_error *error)
{
    uint32_t n_ranks = hub->party->n_ranks;
    char name[GS_PARTY_NAME_BYTES];
    if (hello->version != GS_PARTY_VERSION)
        return gpusys_error_set(
            error, -EPROTONOSUPPORT,
            "%s speaks version %u of the protocol, and rank 0 (%s, process %u) version %u", from,
            hello->version, self_of(hub)->host, self_of(hub)->pid, GS_PARTY_VERSION);
    say_newcomer(name, hello);
    if (!is_zero(hello->job) && !is_zero(hub->options->job) && memcmp(hello->job, hub->options->job, 16) != 0)
        return refuse_job(hub, hello, from, error);
    if (hello->n_ranks != n_ranks)
        return gpusys_error_set(error, -EBADMSG,
                                "%s at %s counts %u ranks, and rank 0 (%s, process %u) counts %u", name, from,
                                hello->n_ranks, self_of(hub)->host, self_of(hub)->pid, n_ranks);
    if (hello->rank >= n_ranks)
        return gpusys_error_set(error, -EBADMSG, "%s at %s is none of the ranks 0 to %u", name, from,
                                n_ranks - 1);
    if (hello->rank == 0 || hub->links[hello->rank].fd >= 0)
        return refuse_twice(hub, hello, from, error);
    return 0;
}

static void seat(struct gs_party_hub *hub, struct gs_party_link *pending, const struct gs_party_hello *hello,
                 const char *from)
{
    struct gs_party_link *link = &hub->links[hello->rank];
    struct gs_member *member = &hub->party->members[hello->rank];
    bool queued = link->queued; /* it may still be in the list */
    *link = *pending;
    link->queued = queued;
    link->rank = hello->rank;
    link->body_most = GS_PARTY_MEMBER_MOST;
    *pending = (struct gs_party_link){.fd = -1};
    hub->n_pending--;
    *member = hello->member;
    snprintf(member->address, sizeof member->address, "%s", from);
    hub->n_there++;
    hub->has_changed = true;
    if (gs_party_watch(hub->party, link, hello->rank, false))
        gs_hub_unseat(hub, hello->rank);
}

void gs_hub_unseat(struct gs_party_hub *hub, uint32_t rank)
{
    gs_party_link_end(&hub->links[rank]);
    hub->n_there--;
    hub->has_changed = true;
}

static void hear_hello(struct gs_party_hub *hub, struct gs_party_link *link, const unsigned char *body,
                       size_t size)
{
    struct gs_party_hello hello = {0};
    struct gpusys_error error = {0};
    char from[GS_ADDRESS_BYTES] = "";
    gs_address_of_peer(link->fd, from);
    if (gs_party_hello_decode(body, size, &hello))
        drop_pending(hub, link);
    else if (check_hello(hub, &hello, from, &error))
        refuse_pending(hub, link, &error);
    else
        seat(hub, link, &hello, from);
}

void gs_hub_pending_ready(struct gs_party_hub *hub, uint32_t slot)
{
    struct gs_party_link *link = &hub->pending[slot];
    struct gs_party_frame frame;
    const unsigned char *body;
    if (link->fd < 0)
        return;
    int ended = gs_party_link_read(link, gpusys_now_ns());
    int code = gs_party_link_frame(link, &frame, &body);
    if (code < 0 || (code > 0 && frame.type != GS_PARTY_HELLO) || (code == 0 && ended < 0)) {
        drop_pending(hub, link);
        return;
    }
    if (code == 0)
        return;
    unsigned char copy[GS_PARTY_HELLO_MOST];
    memcpy(copy, body, frame.body_bytes);
    gs_party_link_taken(link, &frame);
    hear_hello(hub, link, copy, frame.body_bytes);
}

/* ---- those who are missing ---- */

static void say_missing(const struct gs_party_hub *hub, char text[GS_PARTY_TEXT_BYTES])
{
    uint32_t missing[GS_PARTY_SUSPECTS], n = 0, total = hub->party->n_ranks - hub->n_there;
    for (uint32_t rank = 1; rank < hub->party->n_ranks && n < GS_PARTY_SUSPECTS; rank++)
        if (hub->links[rank].fd < 0)
            missing[n++] = rank;
    gs_party_say_ranks(text, GS_PARTY_TEXT_BYTES, missing, total);
    size_t used = strlen(text);
    snprintf(text + used, GS_PARTY_TEXT_BYTES - used, " of %u", hub->party->n_ranks);
}

void gs_hub_tell_waiting(struct gs_party_hub *hub)
{
    char text[GS_PARTY_TEXT_BYTES];
    struct gs_bytes frame = {0};
    hub->has_changed = false;
    say_missing(hub, text);
    if (gs_party_waiting_encode(&frame, text) == 0)
        gs_hub_send_others(hub, &frame);
}

static int too_late(const struct gs_party_hub *hub, int64_t began_ns, struct gpusys_error *error)
{
    char text[GS_PARTY_TEXT_BYTES];
    say_missing(hub, text);
    gpusys_error_set(error, -ETIMEDOUT, "%s did not come: rank 0 (%s, process %u) waited for %.1f s at %s",
                     text, self_of(hub)->host, self_of(hub)->pid,
                     (double)(gpusys_now_ns() - began_ns) / (double)second_ns, hub->address);
    gpusys_error_set_hint(error,
                          "do these processes run, can they reach that address, and do they agree about it?");
    return -ETIMEDOUT;
}

static int no_more_room(const struct gs_party_hub *hub, struct gpusys_error *error)
{
    gpusys_error_set_errno(
        error, hub->code, "rank 0 (%s, process %u) cannot take another connection, with %u of %u ranks there",
        self_of(hub)->host, self_of(hub)->pid, hub->n_there, hub->party->n_ranks);
    gpusys_error_set_hint(error, "it needs one descriptor for each rank: raise its limit (ulimit -n)");
    return hub->code;
}

/* Everybody who is there hears why it comes to nothing. */
static void refuse_all(struct gs_party_hub *hub, const struct gpusys_error *error)
{
    for (uint32_t rank = 1; rank < hub->party->n_ranks; rank++)
        if (hub->links[rank].fd >= 0)
            refuse(&hub->links[rank], error);
}

/* ---- the whole ---- */

static void stop_listening(struct gs_party_hub *hub)
{
    if (hub->listener < 0)
        return;
    if (hub->unix_path[0])
        unlink(hub->unix_path);
    close(hub->listener);
    hub->listener = -1;
    for (uint32_t i = 0; i < GS_HUB_PENDING; i++)
        drop_pending(hub, &hub->pending[i]);
}

static int start_listening(struct gs_party_hub *hub, struct gpusys_error *error)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)GS_PARTY_LISTENER};
    struct gs_address address;
    hub->listener = gs_address_listen(hub->options->address, error);
    if (hub->listener < 0)
        return hub->listener;
    if (gs_address_parse(&address, hub->options->address, NULL) == 0 && address.is_unix)
        snprintf(hub->unix_path, sizeof hub->unix_path, "%s", address.host);
    gs_address_of_self(hub->listener, hub->address);
    snprintf(hub->party->members[0].address, sizeof hub->party->members[0].address, "%s", hub->address);
    if (!gs_socket_is_local(hub->listener))
        gs_log(GPUSYS_LOG_WARN,
               "party: rank 0 listens at %s, beyond this machine: whoever reaches that address can take part",
               hub->address);
    if (epoll_ctl(hub->party->epoll, EPOLL_CTL_ADD, hub->listener, &event) < 0)
        return gpusys_error_set_errno(error, -errno, "party: epoll");
    return 0;
}

static int allocate(struct gs_party_hub *hub, uint32_t n_ranks)
{
    hub->pending = calloc(GS_HUB_PENDING, sizeof *hub->pending);
    hub->links = calloc(n_ranks, sizeof *hub->links);
    hub->dirty = calloc(n_ranks, sizeof *hub->dirty);
    hub->states = calloc(n_ranks, sizeof *hub->states);
    hub->n_open = calloc(n_ranks, sizeof *hub->n_open);
    hub->left = calloc(n_ranks, sizeof *hub->left);
    for (uint32_t i = 0; hub->pending && i < GS_HUB_PENDING; i++)
        hub->pending[i].fd = -1;
    for (uint32_t i = 0; hub->links && i < n_ranks; i++)
        hub->links[i].fd = -1;
    return hub->pending && hub->links && hub->dirty && hub->states && hub->n_open && hub->left ? 0 : -ENOMEM;
}

/* The last one may have come in the same moment as another went, whose end was not read yet: look once more. */
static bool is_complete(struct gs_party_hub *hub)
{
    do {
        if (hub->n_there < hub->party->n_ranks)
            return false;
        gs_hub_turn(hub, 0);
    } while (hub->is_busy);
    return hub->n_there == hub->party->n_ranks;
}

static int await_all(struct gs_party_hub *hub, struct gpusys_error *error)
{
    int64_t began_ns = gpusys_now_ns(), deadline_ns = hub->options->deadline_ns;
    hub->ticked_ns = hub->turned_ns = hub->next_ns = began_ns;
    while (!is_complete(hub)) {
        if (hub->code)
            return no_more_room(hub, error);
        if (gpusys_now_ns() >= deadline_ns)
            return too_late(hub, began_ns, error);
        gs_hub_turn(hub, hub->next_ns < deadline_ns ? hub->next_ns : deadline_ns);
    }
    return 0;
}

static int welcome_all(struct gs_party_hub *hub, struct gpusys_error *error)
{
    struct gs_bytes frame = {0};
    uint32_t silence_ms = (uint32_t)(hub->party->silence_ns / 1000000);
    if (gs_party_welcome_encode(&frame, hub->party->members, hub->party->n_ranks, silence_ms))
        return gpusys_error_set_errno(error, -ENOMEM, "party");
    gs_hub_send_others(hub, &frame);
    return 0;
}

int gs_hub_open(struct gs_party *party, const struct gs_party_options *options, struct gpusys_error *error)
{
    struct gs_party_hub *hub = calloc(1, sizeof *hub);
    struct gpusys_error own = {0};
    if (!hub)
        return gpusys_error_set_errno(error, -ENOMEM, "party");
    *hub = (struct gs_party_hub){.party = party, .options = options, .listener = -1, .n_there = 1};
    party->hub = hub;
    if (allocate(hub, party->n_ranks))
        return gpusys_error_set_errno(error, -ENOMEM, "party");
    int code = party->n_ranks > 1 ? start_listening(hub, &own) : 0;
    if (!code)
        code = await_all(hub, &own);
    if (!code && options->admit)
        code = options->admit(party->members, party->n_ranks, &own);
    stop_listening(hub);
    if (!code)
        code = welcome_all(hub, &own);
    if (code)
        refuse_all(hub, &own);
    if (code && error)
        *error = own;
    hub->options = NULL;
    return code;
}

void gs_hub_end(struct gs_party_hub *hub)
{
    if (!hub)
        return;
    stop_listening(hub);
    if (hub->n_open)
        gs_hub_free_gathers(hub);
    gs_hub_free_cases(hub);
    for (uint32_t rank = 0; hub->links && rank < hub->party->n_ranks; rank++)
        gs_party_link_end(&hub->links[rank]);
    free(hub->pending);
    free(hub->links);
    free(hub->dirty);
    free(hub->states);
    free(hub->n_open);
    free(hub->left);
    free(hub);
}
