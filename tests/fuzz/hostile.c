/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "hostile.h"

#include "wire/message.h"

#include <errno.h>
#include <fcntl.h>
#include <gpusys/deadline.h>
#include <gpusys/remote.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNS = 24, CALL_NS = 5000000, PATIENCE_S = 10 };

const uint8_t hostile_session[16] = "a hostile sessio", hostile_proof[16] = "proof of nothing";

/* One connection of the client. */
struct conn {
    int fd;
    struct gs_bytes in;
    unsigned n_messages; /* that came whole … */
    unsigned n_used;     /* … and that a record has waited for */
    uint64_t serial;     /* of the last one */
    bool greeted, done;
    size_t at; /* in the script */
};

static char folder[64], address[128], cookie_path[128];
static int listener, wake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stopped = PTHREAD_COND_INITIALIZER;
static struct hostile script;
static bool playing;
static struct conn conns[CONNS];
static unsigned n_conns, n_rail_news, n_rail_used;

/* ---- what it says ---- */

static void say(struct conn *conn, const void *bytes, size_t size)
{
    if (size && send(conn->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
        conn->done = true; /* the client does not listen any more */
}

static void say_message(struct conn *conn, uint16_t type, uint64_t serial, const uint8_t *body, uint32_t size)
{
    unsigned char bytes[GS_FRAME_BYTES + UINT8_MAX], *at = bytes;
    gs_put_u32(&at, size);
    gs_put_u16(&at, type);
    gs_put_u16(&at, 0);
    gs_put_u64(&at, serial);
    gs_put_bytes(&at, body, size);
    say(conn, bytes, (size_t)(at - bytes));
}

static void say_with_fd(struct conn *conn, const void *bytes, size_t size, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
        conn->done = true;
}

static void finish(struct conn *conn)
{
    conn->done = true;
    shutdown(conn->fd, SHUT_WR);
}

/* As much of the control script as the client's messages allow. */
static void play_control(struct conn *conn)
{
    while (!conn->done && script.control_size - conn->at >= HOSTILE_RECORD_BYTES) {
        const uint8_t *record = script.control + conn->at;
        size_t left = script.control_size - conn->at - HOSTILE_RECORD_BYTES;
        uint8_t size = record[2] < left ? record[2] : (uint8_t)left;
        if (record[1] & HOSTILE_WAIT && conn->n_used == conn->n_messages)
            return;
        if (record[1] & HOSTILE_RAIL && n_rail_used == n_rail_news)
            return;
        conn->n_used += (record[1] & HOSTILE_WAIT) != 0;
        n_rail_used += (record[1] & HOSTILE_RAIL) != 0;
        if (record[0] >= 0xf0)
            say(conn, record + HOSTILE_RECORD_BYTES, size);
        else
            say_message(conn, record[0], record[1] & HOSTILE_ANSWER ? conn->serial : record[1] & 31u,
                        record + HOSTILE_RECORD_BYTES, size);
        conn->at += HOSTILE_RECORD_BYTES + size;
    }
    if (!conn->done)
        finish(conn);
}

static void play_rail(struct conn *conn)
{
    if (!conn->greeted) {
        say_message(conn, GS_ATTACHED, conn->serial, hostile_proof, sizeof hostile_proof);
        conn->greeted = true;
        return;
    }
    n_rail_news++;
    if (conns[0].fd >= 0)
        play_control(&conns[0]);
    if (!script.rail_size)
        return;
    if (script.fd >= 0)
        say_with_fd(conn, script.rail, script.rail_size, script.fd);
    else
        say(conn, script.rail, script.rail_size);
    finish(conn);
}

/* ---- what it hears ---- */

/* Count the whole messages; behind ATTACH on a rail whatever comes is one. */
static void hear(struct conn *conn, bool is_control)
{
    struct gs_frame frame;
    const unsigned char *at = conn->in.data + conn->in.head;
    size_t skip = conn->n_messages ? 0 : GS_MAGIC_BYTES, have = gs_bytes_queued(&conn->in);
    if (!is_control && conn->greeted) {
        conn->n_messages++;
        gs_bytes_drop(&conn->in, have);
        return;
    }
    while (have >= skip + GS_FRAME_BYTES) {
        REQUIRE(gs_frame_decode(at + skip, &frame) ==
                0); /* a client speaks the protocol, whatever it hears */
        if (have < skip + GS_FRAME_BYTES + frame.body_bytes)
            return;
        conn->n_messages++;
        conn->serial = frame.serial;
        gs_bytes_drop(&conn->in, skip + GS_FRAME_BYTES + frame.body_bytes);
        at = conn->in.data + conn->in.head;
        have = gs_bytes_queued(&conn->in);
        skip = 0;
        if (!is_control)
            return;
    }
}

static void listen_to(struct conn *conn, bool is_control)
{
    unsigned char some[16384];
    ssize_t count = recv(conn->fd, some, sizeof some, MSG_DONTWAIT);
    unsigned before = conn->n_messages;
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        close(conn->fd);
        conn->fd = -1;
        return;
    }
    unsigned char *room = gs_bytes_grow(&conn->in, (size_t)count);
    REQUIRE(room);
    memcpy(room, some, (size_t)count);
    hear(conn, is_control);
    if (conn->n_messages == before)
        return;
    if (is_control)
        play_control(conn);
    else
        play_rail(conn);
}

/* ---- its thread ---- */

static void drop_all(void)
{
    for (unsigned i = 0; i < n_conns; i++) {
        if (conns[i].fd >= 0)
            close(conns[i].fd);
        gs_bytes_free(&conns[i].in);
    }
    n_conns = 0;
}

static void welcome_one(void)
{
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0 && (!playing || n_conns == CONNS))
        close(fd);
    else if (fd >= 0)
        conns[n_conns++] = (struct conn){.fd = fd};
}

static void round_of(const struct pollfd *ready, unsigned n)
{
    uint64_t count;
    pthread_mutex_lock(&lock);
    if (ready[1].revents && read(wake, &count, sizeof count) > 0 && !playing) {
        drop_all();
        pthread_cond_signal(&stopped);
    }
    for (unsigned i = 0; i < n && i < n_conns; i++)
        if (ready[2 + i].revents && conns[i].fd >= 0)
            listen_to(&conns[i], i == 0);
    if (ready[0].revents)
        welcome_one();
    pthread_mutex_unlock(&lock);
}

static void *hostile_main(void *argument)
{
    (void)argument;
    for (;;) {
        struct pollfd ready[2 + CONNS] = {{.fd = listener, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
        unsigned n = n_conns;
        for (unsigned i = 0; i < n; i++)
            ready[2 + i] = (struct pollfd){.fd = conns[i].done ? -1 : conns[i].fd, .events = POLLIN};
        if (poll(ready, 2 + n, -1) > 0)
            round_of(ready, n);
    }
    return NULL;
}

static void remove_folder(void)
{
    unlink(address + 5);
    unlink(cookie_path);
    rmdir(folder);
}

static void write_cookie(void)
{
    snprintf(cookie_path, sizeof cookie_path, "%s/cookie", folder);
    int fd = open(cookie_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    for (unsigned char byte = 0x40; byte < 0x60; byte++)
        REQUIRE(write(fd, &byte, 1) == 1);
    close(fd);
}

static void start_thread(void)
{
    const char *temporary = getenv("TMPDIR");
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    pthread_t thread;
    snprintf(folder, sizeof folder, "%s/gpusys-fuzz-XXXXXX",
             temporary && strlen(temporary) < 32 ? temporary : "/tmp");
    REQUIRE(mkdtemp(folder));
    write_cookie();
    snprintf(address, sizeof address, "unix:%s/peer", folder);
    snprintf(where.sun_path, sizeof where.sun_path, "%s/peer", folder);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    REQUIRE(listener >= 0 && wake >= 0);
    REQUIRE(bind(listener, (struct sockaddr *)&where, sizeof where) == 0 && listen(listener, CONNS) == 0);
    atexit(remove_folder);
    REQUIRE(pthread_create(&thread, NULL, hostile_main, NULL) == 0);
    pthread_detach(thread);
}

const char *hostile_address(void)
{
    if (!folder[0])
        start_thread();
    return address;
}

void hostile_start(const struct hostile *wanted)
{
    hostile_address();
    pthread_mutex_lock(&lock);
    script = *wanted;
    playing = true;
    n_rail_news = n_rail_used = 0;
    pthread_mutex_unlock(&lock);
}

void hostile_stop(void)
{
    uint64_t one = 1;
    pthread_mutex_lock(&lock);
    playing = false;
    REQUIRE(write(wake, &one, sizeof one) == sizeof one);
    while (n_conns)
        pthread_cond_wait(&stopped, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- the client ---- */

static void visit_regions(struct gpusys_remote *remote, uint64_t count)
{
    static unsigned char buffer[65536];
    struct gpusys_region_info info = {.size = sizeof info};
    uint8_t hash[1][GPUSYS_HASH_BYTES];
    for (uint32_t region = 0; region < count && region < 2; region++) {
        REQUIRE(gpusys_remote_region(remote, region, &info) == 0);
        REQUIRE(gpusys_name_check(info.name, NULL) == 0);
        uint64_t length = info.length < sizeof buffer ? info.length : sizeof buffer;
        int code = gpusys_remote_read(remote, region, 0, buffer, length, CALL_NS);
        REQUIRE(code != 0 || length == 0 ||
                script.rail_size); /* "bytes came over a rail that said nothing" */
        gpusys_remote_checksums(remote, region, 0, 1, hash, CALL_NS, NULL);
        gpusys_remote_write(remote, region, 0, buffer, length, CALL_NS);
        gpusys_remote_read(remote, region, info.length - length, buffer, length, CALL_NS);
    }
}

/* What ended well has moved all of its bytes. */
static void check_ends(const struct gpusys_completion *completions, int count)
{
    for (int i = 0; i < count; i++)
        REQUIRE(completions[i].status != 0 || completions[i].bytes == completions[i].user);
}

static bool submit(struct gpusys_remote *remote, uint32_t region, uint32_t op, void *buffer, uint64_t length,
                   const char *note)
{
    struct gpusys_batch_options options = {.size = sizeof options,
                                           .timeout_ns = CALL_NS,
                                           .note = note,
                                           .note_bytes = note ? (uint32_t)strlen(note) : 0,
                                           .user = length};
    struct gpusys_io io = {.op = op, .region = region, .buffer = buffer, .length = length};
    return gpusys_remote_submit(remote, &io, 1, &options, NULL) == 0;
}

/* A few batches at once: first one that fills the socket, so that those behind it wait; the last one with a note. */
static void visit_batches(struct gpusys_remote *remote)
{
    static unsigned char buffers[8][8], large[1 << 20];
    struct gpusys_completion completions[8];
    unsigned under_way = submit(remote, 1, GPUSYS_OP_WRITE, large, sizeof large, NULL);
    for (unsigned i = 0; i < 8; i++)
        under_way += submit(remote, i / 4, i & 1, buffers[i], sizeof buffers[i], i == 7 ? "note" : NULL);
    while (under_way) {
        int count = gpusys_remote_wait(remote, completions, 8, CALL_NS);
        if (count <= 0 && count != -ETIMEDOUT)
            break;
        check_ends(completions, count);
        under_way -= count > 0 ? (unsigned)count : 0;
    }
}

static void visit(struct gpusys_remote *remote)
{
    uint64_t count = 0;
    uint32_t arena;
    void *map;
    bool listed = gpusys_remote_list(remote, CALL_NS, &count, NULL) == 0;
    visit_batches(remote);
    if (listed)
        visit_regions(remote, count);
    if (gpusys_remote_list(remote, CALL_NS, &count, NULL) ==
        0) /* it may say something else the second time */
        visit_regions(remote, count);
    if (gpusys_remote_map(remote, 0, CALL_NS, &map, NULL) == 0) {
        struct gpusys_region_info info = {.size = sizeof info};
        REQUIRE(gpusys_remote_region(remote, 0, &info) == 0);
    }
    if (gpusys_remote_arena_new(remote, 4096, CALL_NS, &arena, NULL) == 0)
        gpusys_remote_arena_free(remote, arena, CALL_NS, NULL);
    gpusys_remote_ping(remote, CALL_NS);
}

void hostile_visit(unsigned require)
{
    const char *where = hostile_address();
    struct gpusys_remote_options options = {.size = sizeof options,
                                            .timeout_ns = 20 * (int64_t)CALL_NS,
                                            .require = require,
                                            .cookie_file = cookie_path};
    struct gpusys_remote *remote;
    int64_t limit = gpusys_deadline_after((int64_t)PATIENCE_S * 1000000000);
    if (gpusys_remote_open(&remote, where, &options, NULL) == 0) {
        visit(remote);
        gpusys_remote_close(remote);
    }
    REQUIRE(gpusys_now_ns() < limit); /* "a call outlived its deadline" */
}
