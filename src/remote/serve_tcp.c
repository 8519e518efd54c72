/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A tcp rail at the peer: requests in, replies and payload out, in the order of the requests.
 *
 * Short reads are copied behind their reply headers into one buffer and leave together; long ones go by
 * sendfile from the page cache. A write's payload is received straight into the region. What would wait for a
 * disk is first read by the pool (`warm`), so that the loop never does.
 */
#include "remote/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    IN_BYTES = 64 * 1024,
    OUT_BYTES = 256 * 1024,
    SHORT_BYTES = 32 * 1024, /* reads up to here leave together … */
    GATHER_BYTES = 1024,     /* … below this copied, memory from here on from where it lies */
    PIECES = 512,
    STEP_BYTES = 1024 * 1024,       /* of a long one, at a time */
    WARM_BYTES = 4 * 1024 * 1024,   /* read by the pool in one job … */
    AHEAD_BYTES = 8 * 1024 * 1024,  /* … and asked for behind it */
    BULK_BYTES = 2 * 1024 * 1024,   /* moved in one round by long transfers only */
    ROUND_BYTES = 16 * 1024 * 1024, /* moved for one connection before the others have their turn */
};

struct gs_tcp_serve {
    struct gs_job job; /* reads for `warm` */
    struct gs_conn *conn;
    int job_fd;
    uint64_t job_offset;
    size_t job_bytes;
    struct gs_region *job_region;
    bool warm; /* what comes next was read just now */

    struct gs_region *pinned; /* the file whose descriptor is kept at hand */
    int pinned_fd;
    bool checked; /* since the last input */

    struct gs_region *sending; /* a long read under way */
    uint64_t send_offset, send_left;

    bool writing;              /* a write is under way … */
    struct gs_region *landing; /* … into this; NULL: its payload is thrown away */
    uint64_t land_offset, land_left;
    struct gs_reply land_reply;

    uint64_t moved; /* in this round */
    size_t in_head, in_tail, out_tail;
    struct gs_region *gathered;  /* whose memory the pieces point into */
    struct iovec pieces[PIECES]; /* what goes out: of `out`, and of the region */
    unsigned piece_head, piece_tail;
    unsigned char in[IN_BYTES], out[OUT_BYTES];
};

int gs_tcp_serve_new(struct gs_conn *conn)
{
    struct gs_tcp_serve *tcp = malloc(sizeof *tcp);
    if (!tcp)
        return -ENOMEM;
    memset(tcp, 0, offsetof(struct gs_tcp_serve, in));
    tcp->conn = conn;
    conn->tcp = tcp;
    return 0;
}

static void unpin(struct gs_tcp_serve *tcp)
{
    if (!tcp->pinned)
        return;
    gs_file_unpin(tcp->pinned->files, &tcp->pinned->file);
    gs_region_drop(tcp->pinned);
    tcp->pinned = NULL;
}

void gs_tcp_serve_free(struct gs_conn *conn)
{
    struct gs_tcp_serve *tcp = conn->tcp;
    if (!tcp)
        return;
    unpin(tcp);
    gs_region_drop(tcp->sending);
    gs_region_drop(tcp->gathered);
    gs_region_drop(tcp->landing);
    free(tcp);
    conn->tcp = NULL;
}

/* Steps return 0 to go on, one of these to stop for now, or a negative errno that ends the connection. */
enum { WANT_IN = 1, WANT_OUT, PARKED, TURN_OVER };

/* ---- files ---- */

/* The region's descriptor, checked once for each batch of input. */
static int pin(struct gs_tcp_serve *tcp, struct gs_region *region)
{
    int fd, error;
    if (tcp->pinned == region && tcp->checked)
        return 0;
    if (tcp->pinned != region) {
        unpin(tcp);
        error = gs_file_pin(region->files, &region->file, &fd);
        if (error)
            return error;
        tcp->pinned = gs_region_hold(region);
        tcp->pinned_fd = fd;
    }
    error = gs_file_check(&region->file, tcp->pinned_fd);
    tcp->checked = !error;
    return error;
}

/* The pages of a range that are in the page cache, in one call where the kernel has it (6.5). */
static int cached_pages(int fd, uint64_t offset, uint64_t length, uint64_t *ret_pages)
{
    struct {
        uint64_t offset, length;
    } range = {offset, length};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } count = {0};
    enum { CACHESTAT = 451 }; /* the same number on every architecture */
    if (syscall(CACHESTAT, fd, &range, &count, 0) < 0)
        return -errno;
    *ret_pages = count.cached;
    return 0;
}

/* Where it has not: one byte in every 128 KiB, which is how far the kernel reads ahead at least. */
static bool probe_cached(int fd, uint64_t offset, uint64_t length)
{
    enum { STRIDE = 128 * 1024 };
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    for (uint64_t at = offset; at < offset + length; at += STRIDE)
        if (preadv2(fd, &iov, 1, (off_t)at, RWF_NOWAIT) < 0) /* also where a file system cannot say */
            return false;
    return true;
}

static bool is_cached(const struct gs_region *region, int fd, uint64_t offset, uint64_t length)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = 0;
    if (!gs_region_is_file(region) || region->file.in_memory)
        return true;
    if (cached_pages(fd, offset, length, &pages))
        return probe_cached(fd, offset, length);
    return pages >= (offset + length - 1) / page - offset / page + 1;
}

static void warm_work(struct gs_job *job)
{
    struct gs_tcp_serve *tcp = (struct gs_tcp_serve *)job;
    enum { PIECE = 256 * 1024 };
    char *waste = malloc(PIECE);
    for (size_t done = 0; waste && done < tcp->job_bytes;) {
        size_t size = tcp->job_bytes - done < PIECE ? tcp->job_bytes - done : PIECE;
        ssize_t count = pread(tcp->job_fd, waste, size, (off_t)(tcp->job_offset + done));
        if (count <= 0 && !(count < 0 && errno == EINTR))
            break; /* whoever sends it will meet the same fault, and say so */
        done += count > 0 ? (size_t)count : 0;
    }
    free(waste);
    posix_fadvise(tcp->job_fd, (off_t)(tcp->job_offset + tcp->job_bytes), AHEAD_BYTES, POSIX_FADV_WILLNEED);
}

static void warm_done(struct gs_task *task)
{
    struct gs_tcp_serve *tcp = (struct gs_tcp_serve *)task;
    struct gs_conn *conn = tcp->conn;
    gs_file_unpin(tcp->job_region->files, &tcp->job_region->file);
    gs_region_drop(tcp->job_region);
    tcp->warm = true;
    if (gs_conn_drop_job(conn))
        gs_tcp_serve_ready(conn);
}

/* Have the pool read it; the connection waits. */
static int park(struct gs_tcp_serve *tcp, struct gs_region *region, uint64_t offset, uint64_t length)
{
    int error = gs_file_pin(region->files, &region->file, &tcp->job_fd);
    if (error)
        return error;
    tcp->job_region = gs_region_hold(region);
    tcp->job_offset = offset;
    tcp->job_bytes = length < WARM_BYTES ? (size_t)length : WARM_BYTES;
    tcp->job.work = warm_work;
    tcp->job.done.run = warm_done;
    tcp->job.loop = tcp->conn->worker->loop;
    gs_conn_hold_job(tcp->conn);
    gs_pool_submit(tcp->conn->worker->peer->pool, &tcp->job);
    return PARKED;
}

/* ---- output ---- */

static void sent(struct gs_tcp_serve *tcp, size_t count)
{
    while (count) {
        struct iovec *piece = &tcp->pieces[tcp->piece_head];
        size_t step = count < piece->iov_len ? count : piece->iov_len;
        piece->iov_base = (char *)piece->iov_base + step;
        piece->iov_len -= step;
        count -= step;
        tcp->piece_head += piece->iov_len == 0;
    }
}

static int flush(struct gs_tcp_serve *tcp, bool more)
{
    while (tcp->piece_head < tcp->piece_tail) {
        struct msghdr message = {.msg_iov = tcp->pieces + tcp->piece_head,
                                 .msg_iovlen = tcp->piece_tail - tcp->piece_head};
        ssize_t count =
            sendmsg(tcp->conn->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno == EAGAIN ? WANT_OUT : -errno;
        sent(tcp, (size_t)count);
    }
    tcp->piece_head = tcp->piece_tail = 0;
    tcp->out_tail = 0;
    gs_region_drop(tcp->gathered);
    tcp->gathered = NULL;
    return 0;
}

/* Room for a reply header with `size` bytes behind it in the buffer, and for a piece that lies elsewhere. */
static int make_room(struct gs_tcp_serve *tcp, size_t size)
{
    bool room = OUT_BYTES - tcp->out_tail >= GS_REPLY_BYTES + size && tcp->piece_tail + 2 <= PIECES;
    return room ? 0 : flush(tcp, false);
}

/* `size` bytes were written at the end of the buffer. */
static void put_buffered(struct gs_tcp_serve *tcp, size_t size)
{
    unsigned char *start = tcp->out + tcp->out_tail;
    struct iovec *last = tcp->piece_tail > tcp->piece_head ? &tcp->pieces[tcp->piece_tail - 1] : NULL;
    if (last && (unsigned char *)last->iov_base + last->iov_len == start)
        last->iov_len += size;
    else
        tcp->pieces[tcp->piece_tail++] = (struct iovec){.iov_base = start, .iov_len = size};
    tcp->out_tail += size;
}

static void put_reply(struct gs_tcp_serve *tcp, enum gs_status status, uint32_t length, uint32_t tag)
{
    struct gs_reply reply = {.status = (uint8_t)status, .length = length, .tag = tag};
    gs_reply_put(tcp->out + tcp->out_tail, &reply);
    put_buffered(tcp, GS_REPLY_BYTES);
}

static void count_read(struct gs_tcp_serve *tcp, uint64_t bytes)
{
    tcp->moved += bytes;
    atomic_fetch_add_explicit(&tcp->conn->worker->peer->read_bytes, bytes, memory_order_relaxed);
}

static enum gs_status status_of(int error)
{
    return error == -ESTALE ? GS_STATUS_CHANGED : GS_STATUS_IO;
}

/* A long read broke after its header was sent: nothing honest can follow on this connection. */
static int broken_read(struct gs_tcp_serve *tcp, int error)
{
    struct gs_conn *conn = tcp->conn;
    if (error == -ESTALE)
        gs_session_changed(conn->session, tcp->sending);
    else
        gs_conn_complain(conn, "\"%s\" cannot be read: %s", tcp->sending->name, strerrordesc_np(-error));
    return -ECONNABORTED;
}

static ssize_t send_step(struct gs_tcp_serve *tcp, size_t size)
{
    struct gs_region *region = tcp->sending;
    int socket = tcp->conn->source.fd;
    off_t offset = (off_t)tcp->send_offset;
    if (gs_region_is_file(region))
        return sendfile(socket, tcp->pinned_fd, &offset, size);
    return sendfile(socket, region->memory.fd, &offset, size);
}

static int finish_sending(struct gs_tcp_serve *tcp)
{
    struct gs_region *region = tcp->sending;
    int error = gs_region_is_file(region) ? gs_file_check(&region->file, tcp->pinned_fd) : 0;
    if (error)
        return broken_read(tcp, error);
    gs_region_drop(region);
    tcp->sending = NULL;
    return 0;
}

static int send_long(struct gs_tcp_serve *tcp)
{
    int result = flush(tcp, true);
    if (result)
        return result;
    size_t size = tcp->send_left < STEP_BYTES ? (size_t)tcp->send_left : STEP_BYTES;
    if (!tcp->warm && !is_cached(tcp->sending, tcp->pinned_fd, tcp->send_offset, size)) {
        result = park(tcp, tcp->sending, tcp->send_offset, tcp->send_left);
        return result < 0 ? broken_read(tcp, result) : result;
    }
    tcp->warm = false;
    ssize_t count = send_step(tcp, size);
    if (count < 0 && errno == EINTR)
        return 0;
    if (count < 0 && (errno == EAGAIN || errno == EPIPE || errno == ECONNRESET))
        return errno == EAGAIN ? WANT_OUT : -errno;
    if (count <= 0) /* the file ends before it should, or its disk fails */
        return broken_read(tcp, count == 0 ? -ESTALE : -errno);
    tcp->send_offset += (uint64_t)count;
    tcp->send_left -= (uint64_t)count;
    count_read(tcp, (uint64_t)count);
    return tcp->send_left ? 0 : finish_sending(tcp);
}

/* ---- reads ---- */

/* Copy a short piece of a file to `to` without waiting for its disk. */
static int copy_file(struct gs_tcp_serve *tcp, struct gs_region *region, const struct gs_request *request,
                     void *to)
{
    struct iovec iov = {.iov_base = to, .iov_len = request->length};
    bool at_once = tcp->warm || region->file.in_memory;
    ssize_t count = preadv2(tcp->pinned_fd, &iov, 1, (off_t)request->offset, at_once ? 0 : RWF_NOWAIT);
    if (count == (ssize_t)request->length) {
        tcp->warm = false;
        return 0;
    }
    if (!at_once && (count >= 0 || errno == EAGAIN || errno == EOPNOTSUPP))
        return park(tcp, region, request->offset, request->length);
    tcp->warm = false; /* slow, but it tells a short read from a file that ended */
    return gs_region_pread(region, tcp->pinned_fd, to, request->length, request->offset);
}

/* Memory can be sent from where it lies. A long read of base pages is left to sendfile, which need not copy
 * it. */
static bool may_gather(const struct gs_region *region, uint32_t length)
{
    return !gs_region_is_file(region) && length >= GATHER_BYTES &&
           (length <= SHORT_BYTES || region->memory.huge);
}

/* A read of memory: its bytes go from where they lie. */
static int gather(struct gs_tcp_serve *tcp, struct gs_region *region, const struct gs_request *request)
{
    if (tcp->gathered != region) {
        int result = flush(tcp, false);
        if (result)
            return result;
        tcp->gathered = gs_region_hold(region);
    }
    put_reply(tcp, GS_STATUS_OK, request->length, request->tag);
    tcp->pieces[tcp->piece_tail++] =
        (struct iovec){.iov_base = (char *)region->memory.map + request->offset, .iov_len = request->length};
    count_read(tcp, request->length);
    return 0;
}

/* A shorter one, or a short one of a file: its bytes are copied behind the reply's header. */
static int read_short(struct gs_tcp_serve *tcp, struct gs_region *region, const struct gs_request *request)
{
    unsigned char *to = tcp->out + tcp->out_tail + GS_REPLY_BYTES;
    int error = 0;
    if (!gs_region_is_file(region))
        error = gs_region_load(region, request->offset, to, request->length);
    else if (request->length)
        error = copy_file(tcp, region, request, to);
    if (error == PARKED)
        return PARKED;
    put_reply(tcp, error ? status_of(error) : GS_STATUS_OK, error ? 0 : request->length, request->tag);
    if (!error)
        put_buffered(tcp, request->length);
    count_read(tcp, request->length);
    return 0;
}

static int start_read(struct gs_tcp_serve *tcp, struct gs_region *region, const struct gs_request *request)
{
    bool is_short = request->length <= SHORT_BYTES;
    int result = make_room(tcp, is_short ? request->length : 0);
    if (result)
        return result;
    if (gs_region_is_file(region) && request->length && (result = pin(tcp, region)) != 0) {
        gs_conn_complain(tcp->conn, "\"%s\": %s", region->name,
                         result == -ESTALE ? "changed while it was served" : strerrordesc_np(-result));
        put_reply(tcp, status_of(result), 0, request->tag);
        return 0;
    }
    if (may_gather(region, request->length))
        return gather(tcp, region, request);
    if (is_short)
        return read_short(tcp, region, request);
    put_reply(tcp, GS_STATUS_OK, request->length, request->tag);
    tcp->sending = gs_region_hold(region);
    tcp->send_offset = request->offset;
    tcp->send_left = request->length;
    return 0;
}

/* ---- writes ---- */

static int start_write(struct gs_tcp_serve *tcp, struct gs_region *region, enum gs_status status,
                       const struct gs_request *request)
{
    tcp->writing = true;
    tcp->landing = region ? gs_region_hold(region) : NULL;
    tcp->land_offset = request->offset;
    tcp->land_left = request->length;
    tcp->land_reply = (struct gs_reply){.status = (uint8_t)status,
                                        .length = status == GS_STATUS_OK ? request->length : 0,
                                        .tag = request->tag};
    return 0;
}

static void landed(struct gs_tcp_serve *tcp, size_t count)
{
    tcp->land_offset += count;
    tcp->land_left -= count;
    tcp->moved += count;
    if (tcp->landing)
        atomic_fetch_add_explicit(&tcp->conn->worker->peer->write_bytes, count, memory_order_relaxed);
}

/* Payload that came together with its request. */
static int land_buffered(struct gs_tcp_serve *tcp)
{
    int error = 0;
    size_t count = tcp->in_tail - tcp->in_head;
    if (count > tcp->land_left)
        count = (size_t)tcp->land_left;
    if (count && tcp->landing)
        error = gs_region_store(tcp->landing, tcp->land_offset, tcp->in + tcp->in_head, count);
    tcp->in_head += count;
    landed(tcp, count);
    return error;
}

/* The rest, straight from the socket; `in` is empty then, and takes what follows the payload. */
static int land_socket(struct gs_tcp_serve *tcp)
{
    size_t want = tcp->land_left < ROUND_BYTES ? (size_t)tcp->land_left : ROUND_BYTES;
    struct iovec iov[2];
    int n_iov = 0;
    if (tcp->landing) {
        iov[n_iov++] =
            (struct iovec){.iov_base = (char *)tcp->landing->memory.map + tcp->land_offset, .iov_len = want};
    } else if (want > IN_BYTES) {
        want = IN_BYTES; /* thrown away: the buffer is as good a place as any */
    }
    if (want == tcp->land_left || !tcp->landing)
        iov[n_iov++] = (struct iovec){.iov_base = tcp->in, .iov_len = tcp->landing ? IN_BYTES : want};
    ssize_t count = readv(tcp->conn->source.fd, iov, n_iov);
    if (count < 0)
        return errno == EAGAIN ? WANT_IN : errno == EINTR ? 0 : -errno;
    if (count == 0)
        return -EPIPE;
    tcp->in_head = 0;
    tcp->in_tail = (size_t)count > want ? (size_t)count - want : 0;
    tcp->checked = false;
    landed(tcp, (size_t)count - tcp->in_tail);
    return 0;
}

static int land(struct gs_tcp_serve *tcp)
{
    int error = land_buffered(tcp);
    return error ? error : tcp->land_left ? land_socket(tcp) : 0;
}

static int finish_landing(struct gs_tcp_serve *tcp)
{
    int result = make_room(tcp, 0);
    if (result)
        return result;
    put_reply(tcp, tcp->land_reply.status, tcp->land_reply.length, tcp->land_reply.tag);
    gs_region_drop(tcp->landing);
    tcp->landing = NULL;
    tcp->writing = false;
    return 0;
}

/* ---- requests ---- */

static enum gs_status judge(struct gs_conn *conn, struct gs_region *region, const struct gs_request *request)
{
    uint32_t needed = request->op == GPUSYS_OP_WRITE ? GPUSYS_ACCESS_WRITE : GPUSYS_ACCESS_READ;
    const char *what = request->op == GPUSYS_OP_WRITE ? "write" : "read";
    if (!region || region->kind == GPUSYS_REGION_DIRECTORY) {
        gs_conn_complain(conn, "refused: a %s of region %u, which has no bytes", what, request->region);
        return GS_STATUS_REGION;
    }
    if (!(region->access & needed)) {
        gs_conn_complain(conn, "refused: a %s of \"%s\", which may not be", what, region->name);
        return GS_STATUS_ACCESS;
    }
    if (!gs_range_fits(region->length, request->offset, request->length)) {
        gs_conn_complain(conn, "refused: a %s of %u bytes at %llu of \"%s\", which has %llu", what,
                         request->length, (unsigned long long)request->offset, region->name,
                         (unsigned long long)region->length);
        return GS_STATUS_RANGE;
    }
    return GS_STATUS_OK;
}

static int serve_request(struct gs_tcp_serve *tcp, const struct gs_request *request)
{
    struct gs_region *region = gs_session_region(tcp->conn->session, request->region);
    enum gs_status status = judge(tcp->conn, region, request);
    if (request->op == GPUSYS_OP_WRITE)
        return start_write(tcp, status == GS_STATUS_OK ? region : NULL, status, request);
    if (status == GS_STATUS_OK)
        return start_read(tcp, region, request);
    int result = make_room(tcp, 0);
    if (!result)
        put_reply(tcp, status, 0, request->tag);
    return result;
}

/* Read what is there. The short count says that the socket is empty, which spares asking again. */
static int fill(struct gs_tcp_serve *tcp)
{
    size_t left = tcp->in_tail - tcp->in_head;
    if (left)
        memmove(tcp->in, tcp->in + tcp->in_head, left);
    tcp->in_head = 0;
    tcp->in_tail = left;
    ssize_t count = recv(tcp->conn->source.fd, tcp->in + left, IN_BYTES - left, MSG_DONTWAIT);
    if (count < 0)
        return errno == EAGAIN ? WANT_IN : errno == EINTR ? 0 : -errno;
    if (count == 0)
        return left ? -EPIPE : -ECONNRESET;
    tcp->in_tail += (size_t)count;
    tcp->checked = false;
    return 0;
}

static int next_request(struct gs_tcp_serve *tcp, bool *dry)
{
    struct gs_request request;
    if (tcp->in_tail - tcp->in_head < GS_REQUEST_BYTES) {
        if (*dry)
            return flush(tcp, false) ?: WANT_IN;
        *dry = true; /* one look at the socket in a round: the loop comes back when there is more */
        return flush(tcp, false) ?: fill(tcp);
    }
    if (gs_request_get(tcp->in + tcp->in_head, &request))
        return -EBADMSG;
    int result = serve_request(tcp, &request);
    if (result == 0)
        tcp->in_head += GS_REQUEST_BYTES; /* otherwise the same request is served again later */
    return result;
}

static int step(struct gs_tcp_serve *tcp, bool *dry)
{
    if (tcp->moved >= ROUND_BYTES)
        return TURN_OVER;
    if (tcp->sending)
        return send_long(tcp);
    if (tcp->land_left)
        return land(tcp);
    if (tcp->writing)
        return finish_landing(tcp);
    return next_request(tcp, dry);
}

static void ended(struct gs_conn *conn, int error)
{
    if (error == -EBADMSG)
        gs_conn_complain(conn, "not a request of a tcp rail: disconnected");
    else if (error != -ECONNRESET && error != -ECONNABORTED)
        gs_conn_complain(conn, "a rail ended: %s", strerrordesc_np(-error));
    if (error == -EBADMSG)
        atomic_fetch_add(&conn->worker->peer->refused_total, 1);
    gs_conn_close(conn);
}

void gs_tcp_serve_ready(struct gs_conn *conn)
{
    struct gs_tcp_serve *tcp = conn->tcp;
    int result;
    bool dry = false;
    if (conn->jobs) /* parked */
        return;
    tcp->moved = 0;
    do
        result = step(tcp, &dry);
    while (result == 0 && !conn->closed);
    gs_loop_set_bulk(conn->worker->loop, tcp->moved >= BULK_BYTES);
    if (conn->closed)
        return; /* its session ended under our hands */
    if (result < 0)
        ended(conn, result);
    else
        gs_loop_change(conn->worker->loop, &conn->source,
                       result == WANT_IN    ? EPOLLIN
                       : result == WANT_OUT ? EPOLLOUT
                       : result == PARKED   ? 0
                                            : EPOLLIN | EPOLLOUT);
}
