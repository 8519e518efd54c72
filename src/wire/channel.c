/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "wire/channel.h"

#include <errno.h>

void gs_channel_init(struct gs_channel *channel, struct gpusys_stream *stream, bool expect_magic)
{
    *channel = (struct gs_channel){.stream = stream, .magic = expect_magic};
}

void gs_channel_free(struct gs_channel *channel)
{
    gpusys_stream_close(channel->stream);
    gs_bytes_free(&channel->in);
    gs_bytes_free(&channel->out);
    *channel = (struct gs_channel){0};
}

/* Gather until `in` holds `size` bytes. */
static int gather(struct gs_channel *channel, size_t size, int64_t deadline_ns)
{
    while (gs_bytes_queued(&channel->in) < size) {
        size_t have = gs_bytes_queued(&channel->in), count = 0;
        unsigned char *room = gs_bytes_grow(&channel->in, size - have);
        if (!room)
            return -ENOMEM;
        int error = gpusys_stream_read_some(channel->stream, room, size - have, deadline_ns, &count);
        if (!error && count == 0)
            error = -ECONNRESET;
        channel->in.tail -= size - have - (error ? 0 : count);
        if (error == -ECONNRESET && have > 0)
            return -EPIPE;
        if (error)
            return error;
    }
    return 0;
}

/* As soon as a byte differs it is something else that knocks, and waiting for all eight would be waiting for
 * nothing. */
static int receive_magic(struct gs_channel *channel, int64_t deadline_ns)
{
    for (size_t size = gs_bytes_queued(&channel->in) + 1; size <= GS_MAGIC_BYTES; size++) {
        int error = gather(channel, size, deadline_ns);
        if (error)
            return error;
        if (memcmp(channel->in.data + channel->in.head, GS_MAGIC, size) != 0)
            return -EBADMSG;
    }
    gs_bytes_drop(&channel->in, GS_MAGIC_BYTES);
    channel->magic = false;
    return 0;
}

int gs_channel_receive(struct gs_channel *channel, int64_t deadline_ns, struct gs_frame *ret_frame,
                       const unsigned char **ret_body)
{
    struct gs_frame frame;
    gs_bytes_drop(&channel->in, channel->taken);
    channel->taken = 0;
    int error = channel->magic ? receive_magic(channel, deadline_ns) : 0;
    if (!error)
        error = gather(channel, GS_FRAME_BYTES, deadline_ns);
    if (!error)
        error = gs_frame_decode(channel->in.data + channel->in.head, &frame);
    if (!error)
        error = gather(channel, GS_FRAME_BYTES + frame.body_bytes, deadline_ns);
    if (error)
        return error;
    channel->taken = GS_FRAME_BYTES + frame.body_bytes;
    *ret_frame = frame;
    *ret_body = channel->in.data + channel->in.head + GS_FRAME_BYTES;
    return 0;
}

int gs_channel_flush(struct gs_channel *channel, int64_t deadline_ns)
{
    size_t queued = gs_bytes_queued(&channel->out), count = 0;
    if (!queued)
        return 0;
    int error = gpusys_stream_write(channel->stream, channel->out.data + channel->out.head, queued,
                                    deadline_ns, &count);
    gs_bytes_drop(&channel->out, count);
    return error;
}
