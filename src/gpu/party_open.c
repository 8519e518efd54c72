/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opening and closing a party; coming together, on the ranks other than 0. */
#include "gpu/party_hub.h"

#include "base/deadline.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const int64_t attempt_ns = 5000000000, first_pause_ns = 1000000, most_pause_ns = 50000000;
static const int64_t least_silence_ns = 10000000, last_word_ns = 1000000000;

/* What a member has seen of rank 0 so far. The error that goes with it is there, and clear until one is set. */
struct search {
    struct gs_party *party;
    const struct gs_party_options *options;
    int64_t began_ns, deadline_ns;
    unsigned n_attempts;
    int code;                          /* of the last attempt to connect */
    bool was_closed;                   /* connected, and thrown out without a word */
    bool is_hub;                       /* connected to what speaks as a hub does */
    bool is_refused;                   /* it said so, and why: whatever the code, that is the end */
    struct gpusys_error why;           /* of the last attempt to connect that had time */
    char missing[GS_PARTY_TEXT_BYTES]; /* as it said itself */
};

/* ---- one connection ---- */

static int say_hello(const struct search *search)
{
    static const char magic[] = GS_PARTY_MAGIC;
    const struct gs_party_options *options = search->options;
    struct gs_party_hello hello = {.version = GS_PARTY_VERSION,
                                   .n_ranks = options->n_ranks,
                                   .rank = options->rank,
                                   .member = options->self};
    struct gs_bytes bytes = {0};
    memcpy(hello.job, options->job, sizeof hello.job);
    unsigned char *at = gs_bytes_grow(&bytes, GS_PARTY_MAGIC_BYTES);
    if (!at)
        return -ENOMEM;
    memcpy(at, magic, GS_PARTY_MAGIC_BYTES);
    struct gs_party_blob *blob = NULL;
    if (gs_party_hello_encode(&bytes, &hello) == 0)
        blob = gs_party_blob_new(&bytes);
    int code = blob ? gs_party_link_send(&search->party->up, blob) : -ENOMEM;
    gs_party_blob_drop(blob);
    gs_bytes_free(&bytes);
    return code ? code : gs_party_link_flush(&search->party->up);
}

static int hear_welcome(const struct search *search, const unsigned char *body, size_t size)
{
    struct gs_party *party = search->party;
    struct gs_party_welcome welcome;
    if (gs_party_welcome_decode(body, size, &welcome) || welcome.n_ranks != party->n_ranks)
        return -EBADMSG;
    for (uint32_t rank = 0; rank < welcome.n_ranks; rank++)
        if (gs_party_member_next(&welcome, &party->members[rank]))
            return -EBADMSG;
    party->silence_ns = (int64_t)welcome.silence_ms * 1000000;
    return gs_cursor_left(&welcome.members) ? -EBADMSG : 0;
}

static int hear_refused(const struct search *search, const unsigned char *body, size_t size,
                        struct gpusys_error *error)
{
    struct gs_party_refused refused;
    if (gs_party_refused_decode(body, size, &refused))
        return -EBADMSG;
    if (refused.message[0])
        gpusys_error_set(error, refused.code, "%s", refused.message);
    else
        gpusys_error_set_errno(error, refused.code, "rank 0 at %s refuses", search->options->address);
    if (refused.cause[0])
        gpusys_error_set_cause(error, "%s", refused.cause);
    if (refused.hint[0])
        gpusys_error_set_hint(error, "%s", refused.hint);
    return refused.code;
}

/* 1: welcome. 0: go on waiting. Else it is over; -EBADMSG: by what no hub sends. */
static int hear(struct search *search, const struct gs_party_frame *frame, const unsigned char *body)
{
    int code;
    switch (frame->type) {
    case GS_PARTY_WELCOME: code = hear_welcome(search, body, frame->body_bytes); return code ? code : 1;
    case GS_PARTY_WAITING: return gs_party_waiting_decode(body, frame->body_bytes, search->missing);
    case GS_PARTY_PING: return frame->body_bytes ? -EBADMSG : 0;
    default: return -EBADMSG;
    }
}

static int no_hub(const struct search *search, struct gpusys_error *error)
{
    gpusys_error_set(error, -EPROTO, "what answers at %s is no rank 0 of a party", search->options->address);
    gpusys_error_set_hint(error, "another program has this address (`ss -ltnp` shows it): choose another");
    return -EPROTO;
}

/* Take what has come. As `hear`; -EAGAIN: it was closed, and another attempt may do better. */
static int listen_once(struct search *search, struct gpusys_error *error)
{
    struct gs_party_link *up = &search->party->up;
    struct gs_party_frame frame;
    const unsigned char *body;
    int code, ended = gs_party_link_read(up, gpusys_now_ns());
    while ((code = gs_party_link_frame(up, &frame, &body)) > 0) {
        if (frame.type == GS_PARTY_REFUSED) {
            code = hear_refused(search, body, frame.body_bytes, error);
            search->is_refused = error->code != 0;
            return search->is_refused ? code : no_hub(search, error);
        }
        code = hear(search, &frame, body);
        if (code < 0)
            return no_hub(search, error);
        gs_party_link_taken(up, &frame);
        if (code)
            return code;
    }
    search->is_hub |= up->greeted;
    if (code < 0)
        return no_hub(search, error);
    search->was_closed = ended < 0;
    return ended < 0 ? -EAGAIN : 0;
}

/* Time is up for all ranks at once, and who leaves before the hub has looked would seem never to have come: a hub
 * that has greeted gets a little longer for its last word. */
static int64_t patience_ns(const struct search *search)
{
    bool longer = search->party->up.greeted && search->deadline_ns < GPUSYS_NO_DEADLINE - last_word_ns;
    return search->deadline_ns + (longer ? last_word_ns : 0);
}

/* 1: welcome; -EAGAIN: try again; else an error that was set; -ETIMEDOUT: not set. */
static int talk(struct search *search, struct gpusys_error *error)
{
    struct gs_party_link *up = &search->party->up;
    int code = say_hello(search);
    if (code == -ENOMEM)
        return gpusys_error_set_errno(error, code, "party");
    if (code && code != -EPIPE && code != -ECONNRESET)
        return -EAGAIN;
    while (!search->is_refused &&
           (code == 0 || code == -EPIPE || code == -ECONNRESET)) { /* it may have said why it closed */
        if (gpusys_now_ns() >= patience_ns(search) || gs_wait_fd(up->fd, POLLIN, patience_ns(search)))
            return -ETIMEDOUT;
        code = listen_once(search, error);
    }
    return code;
}

static int check_user(const struct search *search, int fd, struct gpusys_error *error)
{
    struct ucred peer;
    int domain = 0;
    socklen_t length = sizeof peer, domain_length = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_length) < 0 || domain != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 || peer.uid == geteuid())
        return 0;
    return gpusys_error_set(error, -EACCES, "what listens at %s is user %u's, and this process user %u's",
                            search->options->address, (unsigned)peer.uid, (unsigned)geteuid());
}

/* ---- until there is one ---- */

static bool may_pass(int code)
{
    switch (-code) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOENT:
    case ENOTCONN:
    case ETIMEDOUT:
    case EAGAIN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL: return true;
    default: return false;
    }
}

static int too_late(const struct search *search, struct gpusys_error *error)
{
    const char *address = search->options->address;
    double seconds = (double)(gpusys_now_ns() - search->began_ns) / 1e9;
    if (search->is_hub) {
        gpusys_error_set(error, -ETIMEDOUT, "rank 0 at %s still waits for %s, after %.1f s", address,
                         search->missing[0] ? search->missing : "other ranks", seconds);
        gpusys_error_set_hint(error, "do these processes run, and were they given that address?");
        return -ETIMEDOUT;
    }
    if (search->was_closed)
        gpusys_error_set(error, -ETIMEDOUT, "no rank 0 answered at %s: what listens there closes connections",
                         address);
    else if (search->code)
        gpusys_error_set(error, -ETIMEDOUT, "no rank 0 answered at %s in %.1f s (%u attempts): %s", address,
                         seconds, search->n_attempts,
                         search->why.domain == GPUSYS_DOMAIN_RESOLVER ? search->why.message
                                                                      : strerrordesc_np(-search->code));
    else
        gpusys_error_set(error, -ETIMEDOUT, "no rank 0 answered at %s: what listens there says nothing",
                         address);
    gpusys_error_set_hint(error,
                          "does rank 0 run, was it given the same address, does a firewall refuse it?");
    return -ETIMEDOUT;
}

/* A connection, and what comes of it: as `talk`. */
static int attempt(struct search *search, struct gpusys_error *error)
{
    struct gs_party *party = search->party;
    struct gpusys_error why = {0};
    int64_t until_ns = gpusys_deadline_after(attempt_ns);
    search->n_attempts++;
    search->is_hub = search->was_closed = false;
    int fd = gs_address_connect(search->options->address,
                                until_ns < search->deadline_ns ? until_ns : search->deadline_ns, &why);
    search->code = fd < 0 ? fd : 0;
    if (fd < 0 && fd != -EAGAIN)
        search->why = why;
    if (fd < 0 && may_pass(fd))
        return -EAGAIN;
    if (fd < 0) {
        *error = why;
        return fd;
    }
    if (gs_socket_is_self(fd)) { /* nobody listens, and the kernel chose the very port that was called */
        close(fd);
        search->code = -ECONNREFUSED;
        return -EAGAIN;
    }
    int code = check_user(search, fd, error);
    gs_party_link_init(&party->up, fd, 0, gs_party_hub_most(party->n_ranks), gpusys_now_ns());
    if (!code)
        code = talk(search, error);
    if (code != 1)
        gs_party_link_end(&party->up);
    return code;
}

static void pause_for(int64_t pause_ns, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - gpusys_now_ns();
    if (left_ns < pause_ns)
        pause_ns = left_ns > 0 ? left_ns : 0;
    struct timespec pause = {.tv_nsec = pause_ns};
    nanosleep(&pause, NULL);
}

static int join(struct gs_party *party, const struct gs_party_options *options, struct gpusys_error *error)
{
    struct search search = {
        .party = party, .options = options, .began_ns = gpusys_now_ns(), .deadline_ns = options->deadline_ns};
    int64_t pause_ns = first_pause_ns;
    int code;
    while ((code = attempt(&search, error)) == -EAGAIN && gpusys_now_ns() < search.deadline_ns) {
        pause_for(pause_ns, search.deadline_ns);
        pause_ns = 2 * pause_ns < most_pause_ns ? 2 * pause_ns : most_pause_ns;
    }
    if (code == -EAGAIN || (code == -ETIMEDOUT && error->code != code))
        return too_late(&search, error);
    if (code != 1)
        return code;
    code = gs_party_watch(party, &party->up, 0, true);
    return code ? gpusys_error_set_errno(error, code, "party: epoll") : 0;
}

/* ---- the party ---- */

static int check(const struct gs_party_options *options, struct gpusys_error *error)
{
    if (options->n_ranks == 0 || options->n_ranks > GS_PARTY_MAX_RANKS)
        return gpusys_error_set(error, -EINVAL, "party: %u ranks, and 1 to %u can be", options->n_ranks,
                                GS_PARTY_MAX_RANKS);
    if (options->rank >= options->n_ranks)
        return gpusys_error_set(error, -EINVAL, "party: rank %u of %u ranks, which are 0 to %u",
                                options->rank, options->n_ranks, options->n_ranks - 1);
    if (!options->address && options->n_ranks > 1)
        return gpusys_error_set(error, -EINVAL, "party: no address for rank 0");
    return 0;
}

static int64_t silence_of(const struct gs_party_options *options)
{
    if (options->silence_ns <= 0 || options->silence_ns / 1000000 >= UINT32_MAX)
        return 0;
    return options->silence_ns < least_silence_ns ? least_silence_ns : options->silence_ns;
}

static int prepare(struct gs_party *party, const struct gs_party_options *options)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(int64_t)GS_PARTY_WAKE};
    party->n_ranks = options->n_ranks;
    party->rank = options->rank;
    party->silence_ns = silence_of(options);
    party->up.fd = party->epoll = party->wake = -1;
    atomic_init(&party->holds, 1);
    if (gs_party_local_init(party))
        return -ENOMEM;
    party->members[options->rank] = options->self;
    party->epoll = epoll_create1(EPOLL_CLOEXEC);
    party->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (party->epoll < 0 || party->wake < 0 ||
        epoll_ctl(party->epoll, EPOLL_CTL_ADD, party->wake, &event) < 0)
        return -errno;
    return 0;
}

static void end(struct gs_party *party)
{
    gs_hub_end(party->hub);
    gs_party_link_end(&party->up);
    if (party->epoll >= 0)
        close(party->epoll);
    if (party->wake >= 0)
        close(party->wake);
    gs_party_local_end(party);
    free(party);
}

int gs_party_open(struct gs_party **ret_party, const struct gs_party_options *options,
                  struct gpusys_error *error)
{
    struct gpusys_error own = {0};
    int code = check(options, error);
    if (code)
        return code;
    struct gs_party *party = calloc(1, sizeof *party);
    if (!party)
        return gpusys_error_set_errno(error, -ENOMEM, "party");
    code = prepare(party, options);
    if (code)
        gpusys_error_set_errno(&own, code, "party");
    else
        code = options->rank == 0 ? gs_hub_open(party, options, &own) : join(party, options, &own);
    if (!code) {
        code = gs_party_thread_start(party);
        if (code)
            gpusys_error_set_errno(&own, code, "party: no thread");
    }
    if (code) {
        end(party);
        if (error)
            *error = own;
        return code;
    }
    *ret_party = party;
    return 0;
}

void gs_party_close(struct gs_party *party)
{
    if (!party || atomic_fetch_sub(&party->holds, 1) > 1)
        return;
    pthread_mutex_lock(&party->lock);
    party->closing = true;
    pthread_mutex_unlock(&party->lock);
    gs_party_wake(party);
    pthread_join(party->thread, NULL);
    end(party);
}
