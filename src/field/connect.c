/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From what a weight or expert peer said of itself to a remote: the choice of a transport, and its set-up. */
#include "field/talk.h"

#include "base/address.h"
#include "base/log.h"
#include "field/records.h"
#include "remote/adopt.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Everything that the steps of one call share. */
struct connecting {
    struct gpusys_field_talk *talk;
    const struct gpusys_field_region *regions;
    uint32_t n_regions, record_bytes;
    int64_t deadline_ns;
    struct gpusys_error *error;
    bool chosen;       /* the mode byte is out: another needs another connection */
    char why_not[200]; /* why not verbs */
};

/* ---- what the caller says ---- */

static int check_region(const struct connecting *connecting, uint32_t at, uint64_t record_bytes)
{
    const struct gpusys_field_region *region = &connecting->regions[at];
    int code = gpusys_name_check(region->name, connecting->error);
    if (code)
        return code;
    if (region->length == 0 || (record_bytes && region->length % record_bytes != 0) ||
        (record_bytes && region->length / record_bytes > UINT32_MAX))
        return gpusys_error_set(connecting->error, -EINVAL,
                                "region %u: %" PRIu64 " bytes are no whole number of records of %" PRIu64
                                " bytes",
                                at, region->length, record_bytes ? record_bytes : 1);
    return 0;
}

static int check(struct connecting *connecting, uint64_t record_bytes)
{
    bool experts = connecting->talk->kind == GPUSYS_FIELD_EXPERTS;
    if (connecting->n_regions < 1 || connecting->n_regions > GPUSYS_MAX_REGIONS)
        return gpusys_error_set(connecting->error, -EINVAL, "%s: %u regions, 1 to %u are possible",
                                connecting->talk->address, connecting->n_regions, GPUSYS_MAX_REGIONS);
    if (experts ? record_bytes < 1 || record_bytes > INT32_MAX : record_bytes != 0)
        return gpusys_error_set(connecting->error, -EINVAL, "%s: records of %" PRIu64 " bytes, %s",
                                connecting->talk->address, record_bytes,
                                experts ? "1 to 2147483647 are possible" : "weights have none");
    for (uint32_t i = 0; i < connecting->n_regions; i++) {
        int code = check_region(connecting, i, record_bytes);
        if (code)
            return code;
    }
    connecting->record_bytes = (uint32_t)record_bytes;
    return 0;
}

/* ---- tcp ---- */

static int write_mode(struct connecting *connecting, uint8_t mode)
{
    connecting->chosen = true;
    return gs_talk_write(connecting->talk->stream, "the transport byte", &mode, 1, connecting->deadline_ns,
                         connecting->error);
}

/* The peer in the field closes at MODE_TCP, ours answers a request for nothing. */
static int ask_for_nothing(struct connecting *connecting)
{
    struct gpusys_stream *stream = connecting->talk->stream;
    struct gs_weights_request request = {.length = 0};
    unsigned char bytes[GS_WEIGHTS_REQUEST_BYTES];
    uint8_t status = GPUSYS_STATUS_ERR;
    gs_weights_request_put(bytes, &request);
    int code = gs_talk_write(stream, "the first request", bytes, sizeof bytes, connecting->deadline_ns,
                             connecting->error);
    if (!code)
        code =
            gs_talk_read(stream, "the first reply", &status, 1, connecting->deadline_ns, connecting->error);
    if (code == -ECONNRESET || code == -EPIPE) {
        gpusys_error_set(connecting->error, -ECONNREFUSED, "%s serves no weights over tcp, over verbs alone",
                         connecting->talk->address);
        if (connecting->why_not[0])
            gpusys_error_set_cause(connecting->error, "no verbs: %s", connecting->why_not);
        return -ECONNREFUSED;
    }
    if (!code && status != GPUSYS_STATUS_OK && status != GPUSYS_STATUS_ERR) /* ERR: of that shard, later */
        code = gpusys_error_set(connecting->error, -EPROTO, "%s answers the first request with status %u",
                                connecting->talk->address, status);
    return code;
}

/* As the engine's own slices, but of whole records. */
static uint64_t slice_bytes(const struct connecting *connecting)
{
    enum { USUAL_BYTES = 4 * 1024 * 1024 };
    uint64_t wanted = connecting->talk->options.slice_bytes, record = connecting->record_bytes;
    if (wanted == 0)
        wanted = USUAL_BYTES;
    if (wanted > GS_SLICE_MAX)
        wanted = GS_SLICE_MAX;
    if (record == 0)
        return wanted;
    return wanted < record ? record : wanted - wanted % record;
}

static int adopt_tcp(struct connecting *connecting, struct gpusys_remote **ret_remote)
{
    struct gpusys_field_talk *talk = connecting->talk;
    char address[GS_ADDRESS_BYTES], reason[256];
    struct gs_rail *rail;
    struct gs_adoption adoption = {
        .address = address,
        .reason = reason,
        .transport = GPUSYS_TRANSPORT_TCP,
        .rails = &rail,
        .n_rails = 1,
        .regions = connecting->regions,
        .n_regions = connecting->n_regions,
        .region_kind = GPUSYS_REGION_MEMORY,
        .access = GPUSYS_ACCESS_READ,
        .slice_bytes = slice_bytes(connecting),
    };
    adoption.slice_max = adoption.slice_bytes > GS_SLICE_MAX ? (uint32_t)adoption.slice_bytes : 0;
    if (gs_address_of_peer(gpusys_stream_fd(talk->stream), address))
        snprintf(address, sizeof address, "%.*s", GS_ADDRESS_BYTES - 1, talk->address);
    snprintf(reason, sizeof reason, "%s%s", connecting->why_not[0] ? "no verbs: " : "tcp was required",
             connecting->why_not);
    int code = gs_field_tcp_open(&rail, talk->stream, connecting->record_bytes, connecting->error);
    talk->stream = NULL;
    return code ? code : gs_remote_adopt(ret_remote, &adoption, connecting->error);
}

static int connect_tcp(struct connecting *connecting, struct gpusys_remote **ret_remote)
{
    int code = 0;
    if (connecting->chosen)
        code = gs_talk_redial(connecting->talk, connecting->deadline_ns, connecting->error);
    if (!code)
        code = write_mode(connecting, GPUSYS_MODE_TCP);
    if (!code && connecting->record_bytes == 0)
        code = ask_for_nothing(connecting);
    return code ? code : adopt_tcp(connecting, ret_remote);
}

/* ---- verbs ---- */

/* A path that does not carry packets shows by silence alone: where there is tcp to fall back on, time is left for it. */
static int64_t verbs_deadline(const struct connecting *connecting)
{
    int64_t now = gpusys_now_ns(), deadline = connecting->deadline_ns;
    bool alone = connecting->talk->options.require == GPUSYS_TRANSPORT_VERBS;
    return alone || deadline == GPUSYS_NO_DEADLINE || deadline < now ? deadline : now + (deadline - now) / 2;
}

static int connect_verbs(struct connecting *connecting, struct gpusys_remote **ret_remote,
                         struct gpusys_error *error)
{
    struct gs_verbs_opening opening = {.stream = &connecting->talk->stream,
                                       .dialect = GPUSYS_DIALECT_READ_ONLY,
                                       .options = &connecting->talk->options,
                                       .regions = connecting->regions,
                                       .n_regions = connecting->n_regions,
                                       .deadline_ns = verbs_deadline(connecting)};
    int code = gpusys_verbs_status(error);
    if (code)
        return code;
    code = write_mode(connecting, GPUSYS_MODE_VERBS);
    return code ? code : gs_verbs_opening_run(ret_remote, &opening, error);
}

/* A peer whose table is not what it said must not be talked to over tcp either. */
static bool may_fall_back(const struct connecting *connecting, int code)
{
    return connecting->talk->options.require == GPUSYS_TRANSPORT_ANY && code != -EPROTO && code != -EBADMSG;
}

static int choose(struct connecting *connecting, struct gpusys_remote **ret_remote)
{
    struct gpusys_error why = {0};
    if (connecting->talk->options.require != GPUSYS_TRANSPORT_TCP) {
        int code = connect_verbs(connecting, ret_remote, &why);
        if (code && !may_fall_back(connecting, code) && connecting->error)
            *connecting->error = why;
        if (!code || !may_fall_back(connecting, code))
            return code;
        snprintf(connecting->why_not, sizeof connecting->why_not, "%s", why.message);
        gs_log(connecting->chosen ? GPUSYS_LOG_WARN : GPUSYS_LOG_INFO, "%s: tcp instead of verbs: %s",
               connecting->talk->address, why.message);
    }
    return connect_tcp(connecting, ret_remote);
}

int gpusys_field_connect(struct gpusys_remote **ret_remote, struct gpusys_field_talk *talk,
                         const struct gpusys_field_region *regions, uint32_t n_regions, uint64_t record_bytes,
                         struct gpusys_error *error)
{
    struct connecting connecting = {.talk = talk,
                                    .regions = regions,
                                    .n_regions = n_regions,
                                    .deadline_ns = gs_field_deadline(&talk->options),
                                    .error = error};
    int code = check(&connecting, record_bytes);
    if (!code)
        code = choose(&connecting, ret_remote);
    gpusys_field_talk_close(talk);
    return code;
}
