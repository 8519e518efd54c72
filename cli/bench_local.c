/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bench_local.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <gpusys/peer.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child: serve until nobody holds the other end of `keep`. */
static int serve(int out, int keep, uint64_t arena_bytes)
{
    struct gpusys_error error;
    struct gpusys_peer_options options = {
        .size = sizeof options, .listen = "127.0.0.1:0", .arena_bytes = arena_bytes};
    struct gpusys_peer *peer = NULL;
    int code = gpusys_peer_open(&peer, &options, &error);
    if (!code)
        code = gpusys_peer_start(peer, &error);
    if (code) {
        report_error(&error);
    } else {
        const char *address = gpusys_peer_address(peer);
        char byte;
        if (write(out, address, strlen(address)) < 0)
            code = -errno;
        close(out);
        while (read(keep, &byte, 1) < 0 && errno == EINTR)
            ;
    }
    gpusys_peer_close(peer);
    return code ? 1 : 0;
}

/* The signal that a terminal sends to the whole group is the parent's to act on. */
static void be_child(const int out[2], const int keep[2], uint64_t arena_bytes)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    close(out[0]);
    close(keep[1]);
    _exit(serve(out[1], keep[0], arena_bytes));
}

/* Everything the child says before it closes its end. */
static size_t read_all(int fd, char *text, size_t size)
{
    size_t used = 0;
    while (used + 1 < size) {
        ssize_t got = read(fd, text + used, size - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    text[used] = 0;
    return used;
}

static int start_child(struct bench_local *local, const int out[2], const int keep[2], uint64_t arena_bytes)
{
    fflush(stdout);
    local->child = fork();
    if (local->child < 0)
        return -errno;
    if (local->child == 0)
        be_child(out, keep, arena_bytes);
    return 0;
}

int bench_local_start(struct bench_local *ret_local, uint64_t arena_bytes)
{
    struct bench_local local = {.child = -1, .keep = -1};
    int out[2], keep[2];
    if (pipe2(out, O_CLOEXEC)) {
        report("cannot make a pipe: %s", strerror(errno));
        return -errno;
    }
    if (pipe2(keep, O_CLOEXEC)) {
        int error = -errno;
        report("cannot make a pipe: %s", strerror(-error));
        close(out[0]);
        close(out[1]);
        return error;
    }
    int error = start_child(&local, out, keep, arena_bytes);
    if (error)
        report("cannot start a process to serve: %s", strerror(-error));
    close(out[1]);
    close(keep[0]);
    local.keep = keep[1];
    if (!error && !read_all(out[0], local.address, sizeof local.address))
        error = -ECONNREFUSED; /* the child has reported why */
    close(out[0]);
    if (error)
        bench_local_stop(&local);
    else
        *ret_local = local;
    return error;
}

void bench_local_stop(struct bench_local *local)
{
    close(local->keep);
    local->keep = -1;
    while (local->child > 0 && waitpid(local->child, NULL, 0) < 0 && errno == EINTR)
        ;
    local->child = -1;
}
