/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How every rail with a connection of its own begins. */
#include "rail/rail.h"

#include <errno.h>
#include <gpusys/stream.h>

static int send_attach(struct gpusys_stream *stream, const struct gs_rail_target *target,
                       enum gpusys_transport transport, int64_t deadline_ns)
{
    struct gs_bytes out = {0};
    struct gs_attach attach = {
        .transport = (uint8_t)transport, .rail = target->index, .generation = target->generation};
    memcpy(attach.session, target->session, GS_NONCE_BYTES);
    unsigned char *magic = gs_bytes_grow(&out, GS_MAGIC_BYTES);
    int result = magic ? 0 : -ENOMEM;
    if (magic)
        memcpy(magic, GS_MAGIC, GS_MAGIC_BYTES);
    if (!result)
        result = gs_attach_encode(&out, 1, &attach);
    if (!result)
        result = gpusys_stream_write(stream, out.data, gs_bytes_queued(&out), deadline_ns, NULL);
    gs_bytes_free(&out);
    return result;
}

/* The answer, byte by byte no further than itself: on an shm rail descriptors travel beside what follows. */
static int read_answer(struct gpusys_stream *stream, const struct gs_rail_target *target, int64_t deadline_ns,
                       struct gpusys_error *error)
{
    unsigned char head[GS_FRAME_BYTES], body[4 + 2 + GS_TEXT_MAX];
    uint8_t proof[GS_NONCE_BYTES];
    struct gs_frame frame;
    struct gs_refused refused;
    const char *name = gpusys_stream_name(stream);
    int result = gpusys_stream_read(stream, head, sizeof head, deadline_ns, NULL);
    if (!result)
        result = gs_frame_decode(head, &frame);
    if (!result && frame.body_bytes > sizeof body)
        result = -EBADMSG;
    if (!result)
        result = gpusys_stream_read(stream, body, frame.body_bytes, deadline_ns, NULL);
    if (result == -EAGAIN)
        result = -ETIMEDOUT; /* a deadline that was past from the start */
    if (result)
        return gpusys_error_set_errno(error, result, "%s: the answer to ATTACH", name);
    if (frame.type == GS_REFUSED && gs_refused_decode(body, frame.body_bytes, &refused) == 0) {
        result = gs_refusal_errno(refused.refusal);
        gpusys_error_set(error, result, "%s refused the rail: %.*s", name, refused.reason.length,
                         refused.reason.at);
        gpusys_error_set_foreign(error, GPUSYS_DOMAIN_PEER, (int)refused.refusal);
        return result;
    }
    if (frame.type != GS_ATTACHED || gs_attached_decode(body, frame.body_bytes, proof))
        return gpusys_error_set(error, -EPROTO, "%s answered ATTACH with message %u", name, frame.type);
    if (memcmp(proof, target->proof, GS_NONCE_BYTES) != 0)
        return gpusys_error_set(error, -EACCES, "%s is another server than the one of this session", name);
    return 0;
}

int gs_rail_attach(struct gpusys_stream *stream, const struct gs_rail_target *target,
                   enum gpusys_transport transport, int64_t deadline_ns, struct gpusys_error *error)
{
    int result = send_attach(stream, target, transport, deadline_ns);
    if (result)
        return gpusys_error_set_errno(error, result, "%s: sending ATTACH", gpusys_stream_name(stream));
    return read_answer(stream, target, deadline_ns, error);
}
