/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stream object: read-ahead buffer, exact reads and whole writes over a table of functions. */
#include "base/options.h"
#include <gpusys/stream.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 64 * 1024, NAME_BYTES = 128 };

struct gpusys_stream {
    struct gpusys_stream_ops ops;
    void *context;
    size_t head, tail; /* buffer[head … tail) was read ahead */
    char name[NAME_BYTES];
    unsigned char buffer[BUFFER_BYTES];
};

int gpusys_stream_new(struct gpusys_stream **ret_stream, const struct gpusys_stream_ops *ops, void *context,
                      const char *name)
{
    int error = gs_options_check(ops, sizeof *ops);
    if (error)
        return error;
    if (!ops->read || !ops->write)
        return -EINVAL;
    struct gpusys_stream *stream = malloc(sizeof *stream);
    if (!stream)
        return -ENOMEM;
    stream->ops = *ops;
    stream->context = context;
    stream->head = stream->tail = 0;
    stream->name[0] = 0;
    strncat(stream->name, name ? name : "the peer", NAME_BYTES - 1);
    *ret_stream = stream;
    return 0;
}

void gpusys_stream_close(struct gpusys_stream *stream)
{
    if (!stream)
        return;
    if (stream->ops.close)
        stream->ops.close(stream->context);
    free(stream);
}

size_t gpusys_stream_buffered(const struct gpusys_stream *stream)
{
    return stream->tail - stream->head;
}

const char *gpusys_stream_name(const struct gpusys_stream *stream)
{
    return stream->name;
}

int gpusys_stream_fd(const struct gpusys_stream *stream)
{
    return stream->ops.fd ? stream->ops.fd(stream->context) : -EOPNOTSUPP;
}

static size_t take_buffered(struct gpusys_stream *stream, void *to, size_t size)
{
    size_t count = gpusys_stream_buffered(stream);
    if (count > size)
        count = size;
    if (count)
        memcpy(to, stream->buffer + stream->head, count);
    stream->head += count;
    return count;
}

int gpusys_stream_read_some(struct gpusys_stream *stream, void *buffer, size_t size, int64_t deadline_ns,
                            size_t *ret_count)
{
    if (size == 0 || gpusys_stream_buffered(stream)) {
        *ret_count = take_buffered(stream, buffer, size);
        return 0;
    }
    if (size >= BUFFER_BYTES) /* long reads go straight to where they belong */
        return stream->ops.read(stream->context, buffer, size, deadline_ns, ret_count);
    size_t count;
    int error = stream->ops.read(stream->context, stream->buffer, BUFFER_BYTES, deadline_ns, &count);
    if (error)
        return error;
    stream->head = 0;
    stream->tail = count;
    *ret_count = take_buffered(stream, buffer, size);
    return 0;
}

int gpusys_stream_read(struct gpusys_stream *stream, void *buffer, size_t size, int64_t deadline_ns,
                       size_t *ret_count)
{
    size_t done = 0, count;
    int error = 0;
    while (done < size && !error) {
        error = gpusys_stream_read_some(stream, (char *)buffer + done, size - done, deadline_ns, &count);
        if (!error && count == 0)
            error = -ECONNRESET;
        if (!error)
            done += count;
    }
    if (error == -ECONNRESET && done > 0)
        error = -EPIPE;
    if (ret_count)
        *ret_count = done;
    return error;
}

/* Drop `count` bytes from the front of an array of iovecs; the array is the caller's own copy. */
static void advance(struct iovec **iov, int *n_iov, size_t count)
{
    while (*n_iov > 0 && count >= (*iov)->iov_len) {
        count -= (*iov)->iov_len;
        ++*iov;
        --*n_iov;
    }
    if (count) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + count;
        (*iov)->iov_len -= count;
    }
}

enum { IOV_BATCH = 64 };

static int write_batch(struct gpusys_stream *stream, const struct iovec *iov, int n_iov, int64_t deadline_ns,
                       size_t *done)
{
    struct iovec own[IOV_BATCH], *at = own;
    memcpy(own, iov, (size_t)n_iov * sizeof *iov);
    advance(&at, &n_iov, 0); /* leading empty pieces would read as "nothing left to write" */
    while (n_iov > 0) {
        size_t count = 0;
        int error = stream->ops.write(stream->context, at, n_iov, deadline_ns, &count);
        if (error)
            return error;
        *done += count;
        advance(&at, &n_iov, count);
    }
    return 0;
}

int gpusys_stream_writev(struct gpusys_stream *stream, const struct iovec *iov, int n_iov,
                         int64_t deadline_ns, size_t *ret_count)
{
    size_t done = 0;
    int error = 0;
    for (int at = 0; at < n_iov && !error; at += IOV_BATCH) {
        int batch = n_iov - at < IOV_BATCH ? n_iov - at : IOV_BATCH;
        error = write_batch(stream, iov + at, batch, deadline_ns, &done);
    }
    if (ret_count)
        *ret_count = done;
    return error;
}

int gpusys_stream_write(struct gpusys_stream *stream, const void *buffer, size_t size, int64_t deadline_ns,
                        size_t *ret_count)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buffer, .iov_len = size};
    return gpusys_stream_writev(stream, &iov, 1, deadline_ns, ret_count);
}
