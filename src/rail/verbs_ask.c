/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The keys of regions, asked for over a verbs rail's connection when the first slice wants them. Registering may take the
 * peer a while, and nothing waits for it here but what needs those keys.
 */
#include "rail/verbs_rail.h"

#include "base/log.h"
#include "rail/verbs_open.h"

#include <errno.h>

int gs_verbs_refusal(const struct gs_verbs_rail *self, const struct gs_frame *frame,
                     const unsigned char *body, const char *what, struct gpusys_error *error)
{
    struct gs_refused message;
    const char *name = gpusys_stream_name(self->channel.stream);
    if (frame->type != GS_REFUSED || gs_refused_decode(body, frame->body_bytes, &message))
        return gpusys_error_set(error, -EPROTO, "%s answered %s with message %u", name, what, frame->type);
    int result = gs_refusal_errno(message.refusal);
    gpusys_error_set(error, result, "%s refused: %.*s", name, message.reason.length, message.reason.at);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_PEER, (int)message.refusal);
    return result;
}

int gs_verbs_ask(struct gs_verbs_rail *self, uint32_t region)
{
    if (!self->channel.stream)
        return -ENOENT;
    for (unsigned i = 0; i < self->n_asked; i++)
        if (self->asked[i].region == region && !self->asked[i].stale)
            return 0;
    if (self->n_asked == GS_VERBS_ASKED)
        return 0; /* when one of them is answered */
    int result = gs_region_message_encode(&self->channel.out, GS_KEY, ++self->serial, region);
    if (!result)
        self->asked[self->n_asked++] = (struct gs_verbs_asked){.serial = self->serial, .region = region};
    return result;
}

void gs_verbs_rail_forget(struct gs_rail *rail, uint32_t region)
{
    struct gs_verbs_rail *self = (struct gs_verbs_rail *)rail;
    for (unsigned i = 0; i < self->n_asked; i++)
        self->asked[i].stale |= self->asked[i].region == region;
}

/* What was asked with that serial is answered. False: nothing was. */
static bool take_asked(struct gs_verbs_rail *self, uint64_t serial, struct gs_verbs_asked *ret_asked)
{
    unsigned i = 0;
    while (i < self->n_asked && self->asked[i].serial != serial)
        i++;
    if (i == self->n_asked)
        return false;
    *ret_asked = self->asked[i];
    self->asked[i] = self->asked[--self->n_asked];
    return true;
}

static int take_keys(struct gs_verbs_rail *self, uint32_t region, const struct gs_frame *frame,
                     const unsigned char *body)
{
    struct gs_keyed keyed;
    if (gs_keyed_decode(body, frame->body_bytes, &keyed) || keyed.region != region)
        return -EPROTO;
    return gs_keyring_add(self->keys, &keyed);
}

/* A refusal is about the region; only one of the message itself is about us, and the peer ends the rail with it. */
static int take_refusal(struct gs_verbs_rail *self, uint32_t region, const struct gs_frame *frame,
                        const unsigned char *body)
{
    struct gpusys_error error;
    int result = gs_verbs_refusal(self, frame, body, "KEY", &error);
    gs_log(GPUSYS_LOG_WARN, "%s", error.message);
    if (result == -EPROTO)
        return result;
    gs_verbs_rail_give_up(self, region, result);
    return 0;
}

static int take_answer(struct gs_verbs_rail *self, const struct gs_frame *frame, const unsigned char *body)
{
    struct gs_verbs_asked asked;
    if (!take_asked(self, frame->serial, &asked))
        return -EPROTO;
    if (asked.stale)
        return 0;
    int result = frame->type == GS_KEYED ? take_keys(self, asked.region, frame, body)
                                         : take_refusal(self, asked.region, frame, body);
    if (result)
        gs_log(GPUSYS_LOG_WARN, "%s: the keys of region %u: %s", gpusys_stream_name(self->channel.stream),
               asked.region, strerrordesc_np(-result));
    return result;
}

int gs_verbs_listen(struct gs_verbs_rail *self)
{
    int result = gs_channel_flush(&self->channel, 0);
    while (!result || result == -EAGAIN) {
        struct gs_frame frame;
        const unsigned char *body;
        result = gs_channel_receive(&self->channel, 0, &frame, &body);
        if (result == -EAGAIN)
            return 0;
        if (!result)
            result = take_answer(self, &frame, body);
    }
    return result == -EPIPE ? -ECONNRESET : result == -EBADMSG ? -EPROTO : result;
}
