/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames out of a stream: [size of pieces][1: a magic comes first] and what the other side sends. The channel must give
 * exactly the messages that a look at all the bytes gives, whatever the pieces.
 */
#include "fuzz.h"

#include "wire/channel.h"

#include <errno.h>
#include <string.h>

struct script {
    const uint8_t *bytes;
    size_t size, at, piece;
};

static int script_read(void *context, void *buffer, size_t size, int64_t deadline_ns, size_t *count)
{
    struct script *self = context;
    (void)deadline_ns;
    if (size > self->piece)
        size = self->piece;
    if (size > self->size - self->at)
        size = self->size - self->at;
    memcpy(buffer, self->bytes + self->at, size);
    self->at += size;
    *count = size;
    return 0;
}

static int script_write(void *context, const struct iovec *iov, int n_iov, int64_t deadline_ns, size_t *count)
{
    (void)context;
    (void)deadline_ns;
    *count = n_iov ? iov->iov_len : 0;
    return 0;
}

/* What must come next of the `size` bytes that are left. */
static int expect(const uint8_t *bytes, size_t size, struct gs_frame *ret_frame)
{
    if (size < GS_FRAME_BYTES)
        return size ? -EPIPE : -ECONNRESET;
    if (gs_frame_decode(bytes, ret_frame))
        return -EBADMSG;
    return size - GS_FRAME_BYTES < ret_frame->body_bytes ? -EPIPE : 0;
}

static int expect_magic(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < GS_MAGIC_BYTES; i++)
        if (i == size)
            return i ? -EPIPE : -ECONNRESET;
        else if (bytes[i] != (uint8_t)GS_MAGIC[i])
            return -EBADMSG;
    return 0;
}

/* One stream for all inputs, for it is large; nothing of the input before is left in it. */
static struct gpusys_stream *stream_over(struct script *script)
{
    static const struct gpusys_stream_ops ops = {
        .size = sizeof ops, .read = script_read, .write = script_write};
    static struct script current;
    static struct gpusys_stream *stream;
    char waste[4096];
    size_t count;
    if (!stream)
        REQUIRE(gpusys_stream_new(&stream, &ops, &current, "a script") == 0);
    while (gpusys_stream_buffered(stream))
        REQUIRE(gpusys_stream_read_some(stream, waste, sizeof waste, 0, &count) == 0);
    current = *script;
    return stream;
}

static void play(struct gs_channel *channel, const uint8_t *bytes, size_t size, int wanted)
{
    int code;
    do {
        struct gs_frame frame, expected = {0};
        const unsigned char *body;
        if (wanted == 0)
            wanted = expect(bytes, size, &expected);
        code = gs_channel_receive(channel, 0, &frame, &body);
        REQUIRE(code == wanted);
        if (code == 0) {
            REQUIRE(frame.type == expected.type && frame.serial == expected.serial);
            REQUIRE(frame.body_bytes == expected.body_bytes);
            REQUIRE(memcmp(body, bytes + GS_FRAME_BYTES, frame.body_bytes) == 0);
            bytes += GS_FRAME_BYTES + frame.body_bytes;
            size -= GS_FRAME_BYTES + frame.body_bytes;
        }
    } while (code == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gs_channel channel;
    if (size < 2)
        return 0;
    bool magic = data[1] & 1;
    struct script script = {.bytes = data + 2, .size = size - 2, .piece = data[0] ? data[0] : SIZE_MAX};
    int wanted = magic ? expect_magic(script.bytes, script.size) : 0;
    size_t skip = magic && wanted == 0 ? GS_MAGIC_BYTES : 0;
    gs_channel_init(&channel, stream_over(&script), magic);
    play(&channel, script.bytes + skip, script.size - skip, wanted);
    gs_bytes_free(&channel.in); /* not the channel: the stream lives on */
    return 0;
}
