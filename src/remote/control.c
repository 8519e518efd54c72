/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A remote's control stream: requests go out, answers find who asked. */
#include "remote/client.h"

#include "base/log.h"

#include <errno.h>
#include <gpusys/deadline.h>

uint64_t gs_control_serial(struct gpusys_remote *remote)
{
    return ++remote->serial;
}

static void changed(struct gpusys_remote *remote, const unsigned char *body, uint32_t size)
{
    uint32_t region;
    struct gs_listed *listed = NULL;
    if (gs_region_message_decode(body, size, &region) == 0)
        listed = gs_listed_at(remote, region);
    if (!listed)
        return;
    listed->changed = true;
    gs_log(GPUSYS_LOG_WARN, "%s: \"%s\" changed while it was served", remote->address,
           listed->name ? listed->name : "");
}

static int keep_answer(struct gpusys_remote *remote, const struct gs_frame *frame, const unsigned char *body)
{
    gs_bytes_drop(&remote->answer, gs_bytes_queued(&remote->answer));
    unsigned char *room = gs_bytes_grow(&remote->answer, frame->body_bytes + 1u);
    if (!room)
        return -ENOMEM;
    memcpy(room, body, frame->body_bytes);
    remote->answer_frame = *frame;
    remote->awaited = 0;
    return 0;
}

static int dispatch(struct gpusys_remote *remote, const struct gs_frame *frame, const unsigned char *body)
{
    remote->news++;
    switch (frame->type) {
    case GS_CHANGED: changed(remote, body, frame->body_bytes); return 0;
    case GS_NOTED: return gs_engine_noted(remote, frame->serial, 0) ? 0 : -EPROTO;
    case GS_FENCED: return gs_engine_fenced(remote, frame->serial) ? 0 : -EPROTO;
    case GS_PING: return gs_empty_encode(&remote->channel.out, GS_PONG, frame->serial);
    default: break;
    }
    if (frame->serial && frame->serial == remote->awaited)
        return keep_answer(remote, frame, body);
    if (gs_sums_answer(remote, frame, body))
        return 0;
    if (frame->type == GS_REFUSED && frame->serial && gs_engine_noted(remote, frame->serial, -EPROTO))
        return 0;
    return frame->serial <= remote->serial ? 0
                                           : -EPROTO; /* late answers to calls that timed out are dropped */
}

enum { MESSAGES = 64, ANSWERS_BYTES = 256 * 1024 };

bool gs_control_has_input(const struct gpusys_remote *remote)
{
    return remote->channel.stream && gs_channel_has_input(&remote->channel) &&
           gs_bytes_queued(&remote->channel.out) < ANSWERS_BYTES;
}

/* A peer that floods us neither keeps us here nor has answers pile up: the rest is read in a later turn. */
static int receive_some(struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < MESSAGES && gs_bytes_queued(&remote->channel.out) < ANSWERS_BYTES; i++) {
        struct gs_frame frame;
        const unsigned char *body;
        int error = gs_channel_receive(&remote->channel, 0, &frame, &body);
        if (!error)
            error = dispatch(remote, &frame, body);
        if (error)
            return error == -EAGAIN ? 0 : error;
    }
    return 0;
}

int gs_control_progress(struct gpusys_remote *remote)
{
    if (remote->dead || !remote->channel.stream)
        return remote->dead;
    int error = receive_some(remote);
    if (!error) {
        error = gs_channel_flush(&remote->channel, 0);
        error = error == -EAGAIN ? 0 : error;
    }
    if (error)
        gs_remote_fail(remote, error == -EPIPE ? -ECONNRESET : error);
    return remote->dead;
}

int gs_control_await(struct gpusys_remote *remote, uint64_t serial, int64_t deadline_ns)
{
    remote->awaited = serial;
    int error = gs_control_progress(remote);
    while (!error && remote->awaited)
        error = gs_engine_turn(remote, deadline_ns) ?: remote->dead;
    if (!remote->awaited)
        return 0;        /* the answer counts, even when the session ended right behind it */
    remote->awaited = 0; /* a late answer is dropped */
    return error == -EAGAIN ? -ETIMEDOUT : error;
}

int gs_control_ask(struct gpusys_remote *remote, uint64_t serial, enum gs_message_type type, const char *what,
                   int64_t deadline_ns, struct gpusys_error *error)
{
    struct gs_refused refused;
    if (remote->is_silent) {
        gs_bytes_drop(&remote->channel.out, gs_bytes_queued(&remote->channel.out));
        return gpusys_error_set(error, -EOPNOTSUPP, "%s: its dialect has nothing like %s", remote->address,
                                what);
    }
    int result = gs_control_await(remote, serial, deadline_ns);
    const struct gs_frame *frame = &remote->answer_frame;
    if (result)
        return gpusys_error_set_errno(error, result, "%s: waiting for the answer to %s", remote->address,
                                      what);
    if (frame->type == type)
        return 0;
    if (frame->type != GS_REFUSED || gs_refused_decode(remote->answer.data, frame->body_bytes, &refused))
        return gpusys_error_set(error, -EPROTO, "%s answered %s with message %u", remote->address, what,
                                frame->type);
    result = gs_refusal_errno(refused.refusal);
    gpusys_error_set(error, result, "%s refused: %.*s", remote->address, refused.reason.length,
                     refused.reason.at);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_PEER, (int)refused.refusal);
    return result;
}

int gpusys_remote_ping(struct gpusys_remote *remote, int64_t timeout_ns)
{
    uint64_t serial = gs_control_serial(remote);
    if (remote->dead)
        return -ENOTCONN;
    if (gs_empty_encode(&remote->channel.out, GS_PING, serial))
        return -ENOMEM;
    return gs_control_ask(remote, serial, GS_PONG, "PING", gpusys_deadline_after(timeout_ns), NULL);
}
