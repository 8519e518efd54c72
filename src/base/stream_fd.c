/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Streams over descriptors. Always non-blocking underneath; waiting is poll's. */
#include "base/address.h"
#include "base/deadline.h"
#include <gpusys/stream.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct fd_stream {
    int fd;
    bool socket; /* sockets are written with MSG_NOSIGNAL; a pipe's SIGPIPE is the caller's own business */
};

static int fd_read(void *context, void *buffer, size_t size, int64_t deadline_ns, size_t *count)
{
    struct fd_stream *self = context;
    for (;;) {
        ssize_t got = read(self->fd, buffer, size);
        if (got >= 0) {
            *count = (size_t)got;
            return 0;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        int error = gs_wait_fd(self->fd, POLLIN, deadline_ns);
        if (error)
            return error;
    }
}

static ssize_t write_once(const struct fd_stream *self, const struct iovec *iov, int n_iov)
{
    if (!self->socket)
        return writev(self->fd, iov, n_iov);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n_iov};
    return sendmsg(self->fd, &message, MSG_NOSIGNAL);
}

static int fd_write(void *context, const struct iovec *iov, int n_iov, int64_t deadline_ns, size_t *count)
{
    struct fd_stream *self = context;
    for (;;) {
        ssize_t sent = write_once(self, iov, n_iov);
        if (sent >= 0) {
            *count = (size_t)sent;
            return 0;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        int error = gs_wait_fd(self->fd, POLLOUT, deadline_ns);
        if (error)
            return error;
    }
}

static int fd_fd(void *context)
{
    return ((struct fd_stream *)context)->fd;
}

static void fd_close(void *context)
{
    struct fd_stream *self = context;
    close(self->fd);
    free(self);
}

static bool is_socket(int fd)
{
    int type;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

static const struct gpusys_stream_ops fd_ops = {
    .size = sizeof fd_ops, .read = fd_read, .write = fd_write, .fd = fd_fd, .close = fd_close};

int gpusys_stream_open_fd(struct gpusys_stream **ret_stream, int fd, const char *name)
{
    if (fd < 0)
        return -EBADF;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    struct fd_stream *self = malloc(sizeof *self);
    if (!self) {
        close(fd);
        return -ENOMEM;
    }
    char peer[GS_ADDRESS_BYTES];
    if (!name)
        name = gs_address_of_peer(fd, peer) == 0 ? peer : "a descriptor";
    *self = (struct fd_stream){.fd = fd, .socket = is_socket(fd)};
    gs_socket_tune(fd);
    int error = gpusys_stream_new(ret_stream, &fd_ops, self, name);
    if (error)
        fd_close(self);
    return error;
}

int gpusys_stream_connect(struct gpusys_stream **ret_stream, const char *address, int64_t deadline_ns,
                          struct gpusys_error *error)
{
    int fd = gs_address_connect(address, deadline_ns, error);
    if (fd < 0)
        return fd;
    int code = gpusys_stream_open_fd(ret_stream, fd, address);
    return code ? gpusys_error_set_errno(error, code, "%s: cannot make a stream", address) : 0;
}
