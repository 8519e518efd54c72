/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "peer.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <string.h>

static struct fuzz_peer *current;

static int peer_read(void *context, void *buffer, size_t size, int64_t deadline_ns, size_t *count)
{
    (void)context;
    (void)deadline_ns;
    REQUIRE(size > 0);
    REQUIRE(current->n_written == current->readable[0] || current->n_written == current->readable[1]);
    size_t left = current->size - current->given;
    if (left == 0 && current->ending)
        return current->ending;
    if (size > current->piece)
        size = current->piece;
    if (size > left)
        size = left;
    if (size)
        memcpy(buffer, current->bytes + current->given, size);
    current->given += size;
    *count = size;
    return 0;
}

static size_t take(const struct iovec *iov)
{
    size_t room = current->write_room - current->n_written;
    size_t size = iov->iov_len < room ? iov->iov_len : room;
    REQUIRE(current->n_written + size <= FUZZ_WRITTEN_BYTES);
    memcpy(current->written + current->n_written, iov->iov_base, size);
    current->n_written += size;
    return size;
}

static int peer_write(void *context, const struct iovec *iov, int n_iov, int64_t deadline_ns, size_t *count)
{
    (void)context;
    (void)deadline_ns;
    size_t done = 0;
    for (int i = 0; i < n_iov; i++)
        done += take(&iov[i]);
    if (done == 0)
        return -EPIPE;
    *count = done;
    return 0;
}

struct gpusys_stream *fuzz_peer_stream(struct fuzz_peer *peer)
{
    static const struct gpusys_stream_ops ops = {.size = sizeof ops, .read = peer_read, .write = peer_write};
    static struct gpusys_stream *stream; /* one for all inputs: it is large */
    char rest[4096];
    size_t count;
    if (!stream)
        REQUIRE(gpusys_stream_new(&stream, &ops, NULL, "the peer") == 0);
    while (gpusys_stream_buffered(stream))
        REQUIRE(gpusys_stream_read_some(stream, rest, sizeof rest, 0, &count) == 0);
    current = peer;
    return stream;
}

void fuzz_peer_start(struct fuzz_peer *peer, const uint8_t *data, size_t size)
{
    static const int endings[] = {0, -ECONNRESET, -ETIMEDOUT, -EIO};
    uint8_t manner = size > 0 ? data[0] : 0, limit = size > 1 ? data[1] : 0;
    size_t piece = manner >> 2;
    peer->bytes = size > 2 ? data + 2 : NULL;
    peer->size = size > 2 ? size - 2 : 0;
    peer->given = 0;
    peer->piece = piece ? piece : SIZE_MAX;
    peer->ending = endings[manner & 3];
    peer->write_room = limit == 0 ? FUZZ_WRITTEN_BYTES : (size_t)limit - 1;
    peer->readable[0] = peer->readable[1] = 0;
    peer->n_written = 0;
}

size_t fuzz_peer_consumed(const struct fuzz_peer *peer, const struct gpusys_stream *stream)
{
    return peer->given - gpusys_stream_buffered(stream);
}

int fuzz_peer_cut(const struct fuzz_peer *peer, int refusal)
{
    return peer->ending == 0 || peer->ending == -ECONNRESET ? refusal : peer->ending;
}

void fuzz_peer_check_rest(struct fuzz_peer *peer, struct gpusys_stream *stream)
{
    size_t at = fuzz_peer_consumed(peer, stream);
    peer->readable[0] = peer->n_written;
    while (at < peer->size) {
        unsigned char some[256];
        size_t count = 0;
        REQUIRE(gpusys_stream_read_some(stream, some, sizeof some, GPUSYS_NO_DEADLINE, &count) == 0);
        REQUIRE(count > 0 && memcmp(some, peer->bytes + at, count) == 0);
        at += count;
    }
}
