/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/stream.h: a two-way stream of bytes with deadlines: TCP, a Unix socket, any descriptor, or the
 * caller's own (TLS, a test script). Reads are buffered; what is read ahead of one message stays for the
 * next.
 *
 * `deadline_ns` is absolute (gpusys/deadline.h): 0, or any moment in the past, means "do not wait", and a
 * call that would have to wait returns -EAGAIN; one whose deadline passes while it waits returns -ETIMEDOUT.
 * A signal never cuts a wait short. One stream belongs to one thread at a time.
 */
#ifndef GPUSYS_STREAM_H
#define GPUSYS_STREAM_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpusys_stream;

/*
 * What a stream stands on. `read` moves at least one byte, or sets *count to 0 at the end of the stream;
 * `write` moves at least one. Both may move fewer than asked, and return -EAGAIN or -ETIMEDOUT as above. `fd`
 * (may be NULL) gives a descriptor to poll for reading, or a negative errno. `close` (may be NULL) ends it;
 * it cannot fail.
 */
struct gpusys_stream_ops {
    size_t size; /* sizeof(struct gpusys_stream_ops) */
    int (*read)(void *context, void *buffer, size_t size, int64_t deadline_ns, size_t *count);
    int (*write)(void *context, const struct iovec *iov, int n_iov, int64_t deadline_ns, size_t *count);
    int (*fd)(void *context);
    void (*close)(void *context);
};

/* A stream over the caller's functions. `name` is how errors call the other side (copied). -ENOMEM, -EINVAL,
 * -E2BIG. */
GPUSYS_API int gpusys_stream_new(struct gpusys_stream **ret_stream, const struct gpusys_stream_ops *ops,
                                 void *context, const char *name);

/*
 * A stream over a descriptor, which it owns from here on (also when this fails) and makes non-blocking.
 * Sockets and pipes; TCP sockets get TCP_NODELAY. `name` NULL: the socket's peer address.
 */
GPUSYS_API int gpusys_stream_open_fd(struct gpusys_stream **ret_stream, int fd, const char *name);

/*
 * Connect to "HOST:PORT", "[V6]:PORT", "HOST" (GPUSYS_DEFAULT_PORT) or "unix:PATH". The name is looked up on
 * a helper thread, so the deadline holds for the resolver too; every address it gives is tried. TCP_NODELAY
 * is set. On a loopback connection the congestion control asked for is reno, because what a machine chooses
 * for its network (bbr in particular) can be several times slower there.
 */
GPUSYS_API int gpusys_stream_connect(struct gpusys_stream **ret_stream, const char *address,
                                     int64_t deadline_ns, struct gpusys_error *error);

#define GPUSYS_DEFAULT_PORT 7471

/* Close and free. NULL is fine. */
GPUSYS_API void gpusys_stream_close(struct gpusys_stream *stream);

/*
 * Read exactly `size` bytes. *ret_count (may be NULL) is how many came, also on failure. -ECONNRESET for an
 * end of stream before the first byte as well as a reset by the peer before it; -EPIPE for either inside (1 …
 * size-1 bytes came). Bytes that came stay consumed.
 */
GPUSYS_API int gpusys_stream_read(struct gpusys_stream *stream, void *buffer, size_t size,
                                  int64_t deadline_ns, size_t *ret_count);

/* Read what is there, 1 … size bytes, buffered first. *ret_count = 0 at the end of the stream. */
GPUSYS_API int gpusys_stream_read_some(struct gpusys_stream *stream, void *buffer, size_t size,
                                       int64_t deadline_ns, size_t *ret_count);

/* Write all of it, in as few system calls as it takes. `*ret_count` (may be NULL): how many bytes went. */
GPUSYS_API int gpusys_stream_write(struct gpusys_stream *stream, const void *buffer, size_t size,
                                   int64_t deadline_ns, size_t *ret_count);
GPUSYS_API int gpusys_stream_writev(struct gpusys_stream *stream, const struct iovec *iov, int n_iov,
                                    int64_t deadline_ns, size_t *ret_count);

/* Bytes that were read ahead and wait in the buffer; a poll of the descriptor does not show them. */
GPUSYS_API size_t gpusys_stream_buffered(const struct gpusys_stream *stream);

/* The other side's name for messages; lives as long as the stream. */
GPUSYS_API const char *gpusys_stream_name(const struct gpusys_stream *stream);

/* The descriptor to poll for reading, or a negative errno (-EOPNOTSUPP for streams without one). */
GPUSYS_API int gpusys_stream_fd(const struct gpusys_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
