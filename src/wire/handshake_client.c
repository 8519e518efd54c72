/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client's side of the rail handshake. */
#include "wire/handshake.h"
#include "wire/records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The connection ended before the server's count byte: that is how a server refuses. */
static int refused(const struct gpusys_stream *stream, enum gpusys_dialect dialect, uint32_t n_rails,
                   struct gpusys_error *error)
{
    const char *peer = gpusys_stream_name(stream);
    gpusys_error_set(
        error, -ECONNREFUSED,
        "%s refused this client: it closed the connection before its rail count, and its own log "
        "has the reason",
        peer);
    gpusys_error_add_detail(error, "asked", "%u rails, %s dialect", n_rails,
                            gs_handshake_dialect_name(dialect));
    if (dialect == GPUSYS_DIALECT_READ_WRITE)
        gpusys_error_set_cause(error,
                               "usually the arena asked for is above the peer's --max-blade-gb cap, or blob "
                               "size or kind differ from an arena that an earlier client fixed");
    else
        gpusys_error_set_cause(error, "usually the peer has fewer rails than %u", n_rails);
    gpusys_error_set_hint(error, "read the log of %s", peer);
    return -ECONNREFUSED;
}

int gpusys_handshake_client_begin(struct gpusys_handshake *ret_handshake, struct gpusys_stream *stream,
                                  enum gpusys_dialect dialect, uint32_t n_rails, int64_t deadline_ns,
                                  struct gpusys_error *error)
{
    int code = gs_handshake_check_range(stream, dialect, n_rails, error);
    if (code)
        return code;
    const struct gs_piece piece = {.step = 1, .record = "the rail count", .rail = GS_NO_RAIL};
    uint8_t count = (uint8_t)n_rails;
    code = gs_handshake_write(stream, &piece, &count, 1, deadline_ns, error);
    if (gs_handshake_is_gone(code))
        return refused(stream, dialect, n_rails, error);
    if (code)
        return code;
    *ret_handshake =
        (struct gpusys_handshake){.stream = stream, .dialect = dialect, .n_rails = n_rails, .next_step = 2};
    return 0;
}

/* The count byte of step 2, which must be the one that was asked for. */
static int read_count(const struct gpusys_handshake *handshake, int64_t deadline_ns,
                      struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 2, .record = "the rail count", .rail = GS_NO_RAIL};
    const char *peer = gpusys_stream_name(handshake->stream);
    uint32_t most = gs_handshake_most_rails(handshake->dialect);
    uint8_t granted;
    int code = gs_handshake_read(handshake->stream, &piece, &granted, 1, deadline_ns, error);
    if (gs_handshake_is_gone(code))
        return refused(handshake->stream, handshake->dialect, handshake->n_rails, error);
    if (code)
        return code;
    if (granted == 0 || granted > most)
        return gpusys_error_set(
            error, -EBADMSG, "%s granted %u rails where %u were wanted, and the %s dialect has 1 to %u", peer,
            granted, handshake->n_rails, gs_handshake_dialect_name(handshake->dialect), most);
    if (granted == handshake->n_rails)
        return 0;
    gpusys_error_set(error, -EPROTO, "%s granted %u rails where %u were wanted", peer, granted,
                     handshake->n_rails);
    gpusys_error_set_hint(error, "use as many rails on both sides");
    return -EPROTO;
}

/* The fixed part of one rail's VerbsServerParams. */
static int read_head(struct gpusys_handshake *handshake, int rail, struct gpusys_verbs_server_params *params,
                     int64_t deadline_ns, struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 2, .record = "VerbsServerParams", .rail = rail};
    unsigned char head[GS_VERBS_SERVER_HEAD_BYTES];
    int code = gs_handshake_read(handshake->stream, &piece, head, sizeof head, deadline_ns, error);
    if (code)
        return code;
    gs_verbs_server_head_decode(head, &params->qp, &params->n_regions);
    if (params->n_regions >= 1 && params->n_regions <= GPUSYS_MAX_REGIONS)
        return 0;
    return gpusys_error_set(error, -EBADMSG, "%s announced %u regions for rail %d, a table has 1 to %u",
                            gpusys_stream_name(handshake->stream), params->n_regions, rail,
                            GPUSYS_MAX_REGIONS);
}

/* See that there is room for the table: the caller's, or new memory, which a capacity of 0 marks as ours. */
static int make_room(const struct gpusys_handshake *handshake, int rail,
                     struct gpusys_verbs_server_params *params, struct gpusys_error *error)
{
    const char *peer = gpusys_stream_name(handshake->stream);
    if (!params->regions) {
        params->capacity = 0;
        params->regions = calloc(params->n_regions, sizeof *params->regions);
        return params->regions
                   ? 0
                   : gpusys_error_set_errno(error, -ENOMEM, "%s: the table of rail %d, %u regions", peer,
                                            rail, params->n_regions);
    }
    if (params->n_regions <= params->capacity)
        return 0;
    gpusys_error_set(error, -ENOSPC, "%s announced %u regions for rail %d, there is room for %u", peer,
                     params->n_regions, rail, params->capacity);
    gpusys_error_set_hint(error, "connect again with room for %u regions", params->n_regions);
    return -ENOSPC;
}

/* The table's packed entries land at the end of the memory they then spread over. */
static int read_regions(struct gpusys_handshake *handshake, int rail,
                        struct gpusys_verbs_server_params *params, int64_t deadline_ns,
                        struct gpusys_error *error)
{
    const struct gs_piece piece = {
        .step = 2, .record = "VerbsServerParams", .rail = rail, .before = GS_VERBS_SERVER_HEAD_BYTES};
    size_t packed = (size_t)params->n_regions * GPUSYS_REGION_KEY_BYTES;
    size_t spread = (size_t)params->n_regions * sizeof *params->regions;
    unsigned char *bytes = (unsigned char *)params->regions + (spread - packed);
    int code = gs_handshake_read(handshake->stream, &piece, bytes, packed, deadline_ns, error);
    if (!code)
        gs_regions_unpack(params->regions, bytes, params->n_regions);
    return code;
}

static int read_verbs_server(struct gpusys_handshake *handshake, int rail,
                             struct gpusys_verbs_server_params *params, int64_t deadline_ns,
                             struct gpusys_error *error)
{
    int code = read_head(handshake, rail, params, deadline_ns, error);
    if (!code)
        code = make_room(handshake, rail, params, error);
    if (!code)
        code = read_regions(handshake, rail, params, deadline_ns, error);
    return code;
}

/* Free the tables of `own` that the caller's `rails` did not bring. Gives `code` back. */
static int free_new(struct gpusys_verbs_server_params *own, const struct gpusys_verbs_server_params *rails,
                    uint32_t n_rails, int code)
{
    for (uint32_t i = 0; i < n_rails; i++)
        if (!rails[i].regions)
            free(own[i].regions);
    return code;
}

int gpusys_handshake_client_read_ro(struct gpusys_handshake *handshake,
                                    struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                    int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_verbs_server_params own[GPUSYS_MAX_RAILS_READ_ONLY];
    int code = gs_handshake_enter(handshake, 2, GPUSYS_DIALECT_READ_ONLY, n_rails, error);
    if (code)
        return code;
    memcpy(own, rails, n_rails * sizeof *own);
    code = read_count(handshake, deadline_ns, error);
    uint32_t at = 0;
    for (; at < n_rails && !code; at++)
        code = read_verbs_server(handshake, (int)at, &own[at], deadline_ns, error);
    if (code == -ENOSPC)
        rails[at - 1].n_regions = own[at - 1].n_regions;
    if (code)
        return free_new(own, rails, n_rails, code);
    memcpy(rails, own, n_rails * sizeof *own);
    return gs_handshake_leave(handshake, 3);
}

void gpusys_verbs_server_params_clear(struct gpusys_verbs_server_params *rails, uint32_t n_rails)
{
    for (uint32_t i = 0; rails && i < n_rails; i++) {
        if (rails[i].capacity)
            continue;
        free(rails[i].regions);
        rails[i].regions = NULL;
        rails[i].n_regions = 0;
    }
}

static int read_cache_server(struct gpusys_handshake *handshake, int rail,
                             struct gpusys_cache_server_params *params, int64_t deadline_ns,
                             struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 2, .record = "CacheServerParams", .rail = rail};
    unsigned char bytes[GPUSYS_CACHE_SERVER_PARAMS_BYTES];
    size_t size;
    int code = gs_handshake_read(handshake->stream, &piece, bytes, sizeof bytes, deadline_ns, error);
    return code ? code : gpusys_cache_server_params_decode(params, bytes, sizeof bytes, &size);
}

int gpusys_handshake_client_read_rw(struct gpusys_handshake *handshake,
                                    struct gpusys_cache_server_params *rails, uint32_t n_rails,
                                    int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_cache_server_params own[GPUSYS_MAX_RAILS_READ_WRITE];
    int code = gs_handshake_enter(handshake, 2, GPUSYS_DIALECT_READ_WRITE, n_rails, error);
    if (code)
        return code;
    code = read_count(handshake, deadline_ns, error);
    for (uint32_t i = 0; i < n_rails && !code; i++)
        code = read_cache_server(handshake, (int)i, &own[i], deadline_ns, error);
    if (code)
        return code;
    memcpy(rails, own, n_rails * sizeof *own);
    return gs_handshake_leave(handshake, 3);
}

int gpusys_handshake_client_complete(struct gpusys_handshake *handshake, const struct gpusys_qp_params *rails,
                                     uint32_t n_rails, int64_t deadline_ns, struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 3, .record = "the client's rails", .rail = GS_NO_RAIL};
    unsigned char bytes[GPUSYS_CLIENT_RAILS_BYTES(GPUSYS_MAX_RAILS_READ_WRITE)];
    size_t size;
    int code = gs_handshake_enter(handshake, 3, 0, n_rails, error);
    if (!code)
        code = gpusys_client_rails_encode(rails, n_rails, bytes, sizeof bytes, &size);
    if (!code)
        code = gs_handshake_write(handshake->stream, &piece, bytes, size, deadline_ns, error);
    return code ? code : gs_handshake_leave(handshake, 4);
}

int gpusys_handshake_client_finish(struct gpusys_handshake *handshake, int64_t deadline_ns,
                                   struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 4, .record = "the ack", .rail = GS_NO_RAIL};
    const char *peer = gpusys_stream_name(handshake->stream);
    uint8_t ack;
    int code = gs_handshake_enter(handshake, 4, 0, handshake->n_rails, error);
    if (!code)
        code = gs_handshake_read(handshake->stream, &piece, &ack, 1, deadline_ns, error);
    if (code)
        return code;
    if (ack == GPUSYS_STATUS_OK)
        return gs_handshake_leave(handshake, 0);
    gpusys_error_set(error, -EACCES, "%s refused to connect its %u rails: ack %u", peer, handshake->n_rails,
                     ack);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_PEER, ack);
    gpusys_error_set_hint(error, "read the log of %s", peer);
    return -EACCES;
}
