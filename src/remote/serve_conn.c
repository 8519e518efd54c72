/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer's connections: arriving, saying what they want, being refused, ending. */
#include "remote/serve.h"

#include "base/log.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t farewell_ns = 2000000000;

/* ---- lists and lives ---- */

static void link_conn(struct gs_conn *conn, struct gs_worker *worker)
{
    conn->worker = worker;
    conn->next = worker->conns;
    conn->link = &worker->conns;
    if (conn->next)
        conn->next->link = &conn->next;
    worker->conns = conn;
}

static void unlink_conn(struct gs_conn *conn)
{
    *conn->link = conn->next;
    if (conn->next)
        conn->next->link = conn->link;
}

static void free_conn(struct gs_task *task)
{
    struct gs_conn *conn = (struct gs_conn *)((char *)task - offsetof(struct gs_conn, task));
    gs_tcp_serve_free(conn);
    gs_channel_free(&conn->channel);
    free(conn);
}

/* It no longer counts as one that has not said what it wants. */
static void opened(struct gs_conn *conn)
{
    if (conn->opening_counted)
        atomic_fetch_sub(&conn->worker->peer->openings, 1);
    conn->opening_counted = false;
}

void gs_conn_hold_job(struct gs_conn *conn)
{
    conn->jobs++;
}

bool gs_conn_drop_job(struct gs_conn *conn)
{
    conn->jobs--;
    if (!conn->closed)
        return true;
    if (conn->jobs == 0)
        gs_loop_post(conn->worker->loop, &conn->task);
    return false;
}

void gs_conn_close(struct gs_conn *conn)
{
    if (conn->closed)
        return;
    conn->closed = true;
    gs_verbs_serve_stop(conn);
    opened(conn);
    gs_loop_forget(conn->worker->loop, &conn->source);
    shutdown(conn->source.fd, SHUT_RDWR); /* the descriptor itself is closed with the channel */
    unlink_conn(conn);
    struct gs_session *session = conn->session;
    conn->session = NULL;
    if (session && session->control == conn)
        gs_session_close(session);
    else if (session && session->rails[conn->rail] == conn)
        session->rails[conn->rail] = NULL;
    conn->task.run = free_conn;
    if (conn->jobs == 0)
        gs_loop_post(conn->worker->loop, &conn->task);
}

/* ---- words about it ---- */

void gs_conn_complain(struct gs_conn *conn, const char *format, ...)
{
    char text[512];
    if (conn->complaints++ >= GS_COMPLAINTS_MAX)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    gs_log(GPUSYS_LOG_WARN, "%s: %s%s", conn->name, text,
           conn->complaints == GS_COMPLAINTS_MAX ? " (nothing more of the kind is logged for it)" : "");
}

static void encode_refusal(struct gs_conn *conn, uint64_t serial, enum gs_refusal refusal, const char *text)
{
    struct gs_refused refused = {.refusal = refusal, .reason = gs_text_of(text)};
    gs_conn_complain(conn, "refused: %s", text);
    gs_refused_encode(&conn->channel.out, serial,
                      &refused); /* out of memory: the close alone has to say it */
}

void gs_conn_refuse(struct gs_conn *conn, uint64_t serial, enum gs_refusal refusal, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    encode_refusal(conn, serial, refusal, text);
    atomic_fetch_add(&conn->worker->peer->refused_total, 1);
    opened(conn);
    conn->role = GS_ROLE_FAREWELL;
    conn->deadline_ns = gpusys_deadline_after(farewell_ns);
}

void gs_conn_decline(struct gs_conn *conn, uint64_t serial, enum gs_refusal refusal, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    encode_refusal(conn, serial, refusal, text);
}

/* ---- opening ---- */

static void attach(struct gs_conn *conn)
{
    struct gpusys_peer *peer = conn->worker->peer;
    struct gs_session *session = gs_session_find(peer, conn->attach.session);
    uint8_t transport = conn->attach.transport;
    if (!session) {
        gs_conn_refuse(conn, conn->attach_serial, GS_REFUSED_SESSION, "no session of that name");
        return;
    }
    struct gs_conn *before = session->rails[conn->attach.rail];
    if (before && (int32_t)(conn->attach.generation - before->generation) > 0) {
        gs_conn_close(before); /* the client gave it up; we may never hear of that from a dead network */
    } else if (before) {
        gs_conn_refuse(conn, conn->attach_serial, GS_REFUSED_SESSION, "rail %u is attached already",
                       conn->attach.rail);
        return;
    }
    if (transport == GPUSYS_TRANSPORT_TCP && gs_tcp_serve_new(conn)) {
        gs_conn_refuse(conn, conn->attach_serial, GS_REFUSED_LIMIT, "out of memory");
        return;
    }
    conn->role = transport == GPUSYS_TRANSPORT_SHM     ? GS_ROLE_SHM
                 : transport == GPUSYS_TRANSPORT_VERBS ? GS_ROLE_VERBS
                                                       : GS_ROLE_TCP;
    conn->session = session;
    conn->rail = conn->attach.rail;
    conn->generation = conn->attach.generation;
    conn->deadline_ns = GPUSYS_NO_DEADLINE;
    session->rails[conn->rail] = conn;
    opened(conn);
    if (gs_attached_encode(&conn->channel.out, conn->attach_serial, session->proof))
        gs_conn_close(conn);
}

/* The first thing a connection does on a worker's thread: it was accepted, or it moved here to attach. */
static void arrive(struct gs_task *task)
{
    struct gs_conn *conn = (struct gs_conn *)((char *)task - offsetof(struct gs_conn, task));
    link_conn(conn, conn->worker);
    if (gs_loop_watch(conn->worker->loop, &conn->source, EPOLLIN)) {
        gs_conn_complain(conn, "cannot be watched: %s", strerrordesc_np(errno));
        gs_conn_close(conn);
        return;
    }
    if (atomic_load(&conn->worker->peer->closing)) {
        gs_conn_close(conn);
        return;
    }
    if (conn->attach_serial) {
        attach(conn);
        gs_conn_settle(conn);
    }
}

static void move(struct gs_conn *conn, struct gs_worker *worker)
{
    gs_loop_forget(conn->worker->loop, &conn->source);
    unlink_conn(conn);
    conn->worker = worker;
    conn->task.run = arrive;
    gs_loop_post(worker->loop, &conn->task);
}

/* True: the connection has moved to another worker and is not ours to touch. */
static bool open_rail(struct gs_conn *conn, uint64_t serial, const struct gs_attach *attachment)
{
    struct gs_worker *worker = gs_session_worker(conn->worker->peer, attachment->session);
    bool is_unix = strncmp(conn->name, "unix:", 5) == 0;
    if (!worker)
        gs_conn_refuse(conn, serial, GS_REFUSED_SESSION, "no session of that name");
    else if (attachment->transport == GPUSYS_TRANSPORT_SHM && !is_unix)
        gs_conn_refuse(conn, serial, GS_REFUSED_SESSION, "an shm rail attaches over the Unix socket");
    else if (attachment->transport == GPUSYS_TRANSPORT_VERBS && conn->worker->peer->ports.n == 0)
        gs_conn_refuse(conn, serial, GS_REFUSED_SESSION, "this peer offers no RDMA port");
    else if (attachment->transport < GPUSYS_TRANSPORT_SHM || attachment->transport > GPUSYS_TRANSPORT_VERBS)
        gs_conn_refuse(conn, serial, GS_REFUSED_SESSION, "no such transport here: %u", attachment->transport);
    else if (gs_channel_has_input(&conn->channel) || serial == 0)
        gs_conn_refuse(conn, serial, GS_REFUSED_MESSAGE, "bytes behind ATTACH, before it was answered");
    else {
        conn->attach = *attachment;
        conn->attach_serial = serial;
        if (worker != conn->worker) {
            move(conn, worker);
            return true;
        }
        attach(conn);
    }
    return false;
}

/* The first message. True as open_rail. */
static bool open_message(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body)
{
    struct gs_hello hello;
    struct gs_attach attachment;
    if (frame->type == GS_HELLO && gs_hello_decode(body, frame->body_bytes, &hello) == 0)
        gs_session_open(conn, frame->serial, &hello);
    else if (frame->type == GS_ATTACH && gs_attach_decode(body, frame->body_bytes, &attachment) == 0)
        return open_rail(conn, frame->serial, &attachment);
    else
        gs_conn_refuse(conn, frame->serial, GS_REFUSED_MESSAGE,
                       "neither HELLO nor ATTACH, or a malformed one");
    if (conn->role == GS_ROLE_CONTROL)
        opened(conn);
    return false;
}

/* ---- messages ---- */

static void farewell(struct gs_conn *conn)
{
    char waste[16384];
    if (gs_channel_has_output(&conn->channel))
        return;
    shutdown(conn->source.fd, SHUT_WR); /* then wait for the other side to read it and close */
    ssize_t count = recv(conn->source.fd, waste, sizeof waste, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
        gs_conn_close(conn);
}

/* Are messages what it carries, all its life? */
static bool speaks(const struct gs_conn *conn)
{
    return conn->role == GS_ROLE_CONTROL || conn->role == GS_ROLE_SHM || conn->role == GS_ROLE_VERBS;
}

static bool may_receive(const struct gs_conn *conn)
{
    return !conn->closed && conn->jobs < GS_JOBS_MAX && gs_bytes_queued(&conn->channel.out) < GS_OUTPUT_MAX &&
           (conn->role == GS_ROLE_OPENING || speaks(conn));
}

static void lost(struct gs_conn *conn, int error)
{
    if (error == -EBADMSG)
        gs_conn_complain(conn, "not gpusys/1, or a broken message: disconnected");
    else if (error != -ECONNRESET)
        gs_conn_complain(conn, "disconnected: %s", strerrordesc_np(-error));
    if (error == -EBADMSG)
        atomic_fetch_add(&conn->worker->peer->refused_total, 1);
    gs_conn_close(conn);
}

/* True as open_rail. */
static bool receive_messages(struct gs_conn *conn, unsigned *left)
{
    for (; *left && may_receive(conn); --*left) {
        struct gs_frame frame;
        const unsigned char *body;
        int error = gs_channel_receive(&conn->channel, 0, &frame, &body);
        if (error == -EAGAIN)
            return false;
        if (error) {
            lost(conn, error);
            return false;
        }
        if (conn->role == GS_ROLE_CONTROL)
            gs_session_message(conn, &frame, body);
        else if (conn->role == GS_ROLE_SHM)
            gs_shm_serve(conn, &frame, body);
        else if (conn->role == GS_ROLE_VERBS)
            gs_verbs_serve(conn, &frame, body);
        else if (open_message(conn, &frame, body))
            return true;
    }
    return false;
}

void gs_conn_settle(struct gs_conn *conn)
{
    if (conn->closed)
        return;
    int error = gs_channel_flush(&conn->channel, 0);
    if (error && error != -EAGAIN) {
        lost(conn, error);
        return;
    }
    uint32_t events = gs_channel_has_output(&conn->channel) ? EPOLLOUT : 0;
    if (speaks(conn))
        events |= EPOLLRDHUP; /* its end is noticed while we do not read from it */
    if (may_receive(conn) || conn->role == GS_ROLE_FAREWELL || (conn->role == GS_ROLE_TCP && !events))
        events |= EPOLLIN;
    gs_loop_change(conn->worker->loop, &conn->source, events);
}

static void resume_again(struct gs_task *task)
{
    struct gs_conn *conn = (struct gs_conn *)((char *)task - offsetof(struct gs_conn, again));
    conn->again_posted = false;
    if (!conn->closed)
        gs_conn_resume(conn);
}

/*
 * Input that came together with what filled our limits is still in the channel, where a poll does not see it:
 * go on until nothing moves, or until it is the others' turn.
 */
void gs_conn_resume(struct gs_conn *conn)
{
    enum { MESSAGES_AT_ONCE = 64 };
    unsigned left = MESSAGES_AT_ONCE;
    do {
        if (receive_messages(conn, &left))
            return;
        gs_conn_settle(conn);
    } while (left && may_receive(conn) && gs_channel_has_input(&conn->channel));
    if (conn->closed)
        return;
    if (conn->role == GS_ROLE_FAREWELL)
        farewell(conn);
    else if (!left && !conn->again_posted) {
        conn->again_posted = true;
        conn->again.run = resume_again;
        gs_loop_post(conn->worker->loop, &conn->again);
    }
}

/* The other side is gone, and nobody will read that from the socket as long as the pool works for it. */
static bool has_ended(const struct gs_conn *conn, uint32_t events)
{
    if (conn->role == GS_ROLE_TCP)
        return conn->jobs && (events & (EPOLLHUP | EPOLLERR));
    return !may_receive(conn) && conn->role != GS_ROLE_FAREWELL &&
           (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
}

static void conn_ready(struct gs_source *source, uint32_t events)
{
    struct gs_conn *conn = (struct gs_conn *)((char *)source - offsetof(struct gs_conn, source));
    if (conn->closed)
        return;
    if (has_ended(conn, events)) {
        gs_conn_close(conn);
        return;
    }
    if (conn->role == GS_ROLE_TCP && !gs_channel_has_output(&conn->channel)) {
        gs_tcp_serve_ready(conn);
        return;
    }
    gs_conn_resume(conn);
}

/* ---- arrival and time ---- */

/* Where it comes from; a Unix socket's client has no address, but a process. */
static void name_conn(struct gs_conn *conn, int fd, const char *address)
{
    struct ucred process;
    socklen_t size = sizeof process;
    if (strncmp(address, "unix:", 5) == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size) == 0)
        snprintf(conn->name, sizeof conn->name, "unix:pid %ld, user %u", (long)process.pid,
                 (unsigned)process.uid);
    else
        snprintf(conn->name, sizeof conn->name, "%s", address);
}

void gs_conn_accept(struct gpusys_peer *peer, int fd)
{
    struct gs_conn *conn = calloc(1, sizeof *conn);
    struct gpusys_stream *stream = NULL;
    if (atomic_load(&peer->openings) >= GS_OPENINGS_MAX) {
        gs_log(GPUSYS_LOG_WARN, "a connection was dropped: %d others have not said what they want",
               GS_OPENINGS_MAX);
        close(fd);
        free(conn);
        return;
    }
    if (!conn || gpusys_stream_open_fd(&stream, fd, NULL)) {
        gs_log(GPUSYS_LOG_WARN, "a connection was dropped: out of memory");
        if (!conn)
            close(fd);
        free(conn);
        return;
    }
    name_conn(conn, fd, gpusys_stream_name(stream));
    gs_channel_init(&conn->channel, stream, true);
    conn->source = (struct gs_source){.fd = fd, .ready = conn_ready};
    conn->role = GS_ROLE_OPENING;
    conn->deadline_ns = gpusys_deadline_after(peer->step_timeout_ns);
    conn->opening_counted = true;
    atomic_fetch_add(&peer->openings, 1);
    conn->worker = &peer->workers[peer->next_worker++ % peer->n_workers];
    conn->task.run = arrive;
    gs_loop_post(conn->worker->loop, &conn->task);
}

static struct gs_conn *find_late(const struct gs_worker *worker)
{
    int64_t now = gpusys_now_ns();
    struct gs_conn *conn = worker->conns;
    while (conn && conn->deadline_ns > now)
        conn = conn->next;
    return conn;
}

void gs_worker_tick(void *context)
{
    struct gs_worker *worker = context;
    struct gs_conn *late;
    while (
        (late = find_late(worker))) { /* from the start each time: a control stream takes its rails along */
        if (late->role != GS_ROLE_FAREWELL) {
            gs_conn_complain(late, "did not complete its opening in time: disconnected");
            atomic_fetch_add(&worker->peer->refused_total, 1);
        }
        gs_conn_close(late);
    }
}

void gs_worker_close_all(struct gs_worker *worker)
{
    while (worker->conns)
        gs_conn_close(worker->conns);
}
