/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Whole messages of gpusys/1 over a stream: queued on the way out, gathered on the way in. */
#ifndef GPUSYS_WIRE_CHANNEL_H
#define GPUSYS_WIRE_CHANNEL_H

#include "wire/message.h"

#include <gpusys/stream.h>

struct gs_channel {
    struct gpusys_stream *stream; /* owned */
    struct gs_bytes in, out;      /* `out`: encoders append here, flush sends */
    size_t taken;                 /* of `in`: the message that was returned last */
    bool magic;                   /* the magic is still to come */
};

/* Takes over the stream. `expect_magic`: the other side opens with GS_MAGIC. */
void gs_channel_init(struct gs_channel *channel, struct gpusys_stream *stream, bool expect_magic);
void gs_channel_free(struct gs_channel *channel);

/*
 * The next message; its body stays valid until the next receive. -EAGAIN or -ETIMEDOUT as a stream read;
 * -ECONNRESET: closed between messages; -EPIPE: inside one; -EBADMSG: not gpusys/1, or a frame out of bounds.
 */
int gs_channel_receive(struct gs_channel *channel, int64_t deadline_ns, struct gs_frame *ret_frame,
                       const unsigned char **ret_body);

/* Send what is queued. With a deadline of 0 as much as goes: -EAGAIN when some is left. */
int gs_channel_flush(struct gs_channel *channel, int64_t deadline_ns);

static inline bool gs_channel_has_output(const struct gs_channel *channel)
{
    return gs_bytes_queued(&channel->out) > 0;
}

/* Is input there that a poll of the descriptor would not show? */
static inline bool gs_channel_has_input(const struct gs_channel *channel)
{
    return gpusys_stream_buffered(channel->stream) > 0;
}

#endif
