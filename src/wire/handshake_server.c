/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The server's side of the rail handshake. */
#include "base/log.h"
#include "wire/handshake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A count that this server will not work with: the reason goes into the error and into the log. */
GPUSYS_PRINTF(3, 4)
static int refuse(int code, struct gpusys_error *error, const char *format, ...)
{
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    gs_log(GPUSYS_LOG_WARN, "refused: %s", reason);
    return gpusys_error_set(error, code, "%s", reason);
}

/* A client that leaves before its first byte has broken nothing off. */
static int left_early(const struct gpusys_stream *stream, struct gpusys_error *error)
{
    return gpusys_error_set(error, -ECONNRESET, "%s left before it asked for rails",
                            gpusys_stream_name(stream));
}

int gpusys_handshake_server_begin(struct gpusys_handshake *ret_handshake, struct gpusys_stream *stream,
                                  enum gpusys_dialect dialect, int64_t deadline_ns,
                                  struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 1, .record = "the rail count", .rail = GS_NO_RAIL};
    uint32_t most = gs_handshake_most_rails(dialect);
    uint8_t count;
    int code = gs_handshake_read(stream, &piece, &count, 1, deadline_ns, error);
    if (gs_handshake_is_gone(code))
        return left_early(stream, error);
    if (code)
        return code;
    if (count == 0 || count > most)
        return refuse(-EBADMSG, error, "%s asked for %u rails, the %s dialect has 1 to %u",
                      gpusys_stream_name(stream), count, gs_handshake_dialect_name(dialect), most);
    *ret_handshake =
        (struct gpusys_handshake){.stream = stream, .dialect = dialect, .n_rails = count, .next_step = 2};
    return 0;
}

/* Every table's size, checked before anything is written. */
static int check_tables(const struct gpusys_handshake *handshake,
                        const struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                        struct gpusys_error *error)
{
    for (uint32_t i = 0; i < n_rails; i++)
        if (rails[i].n_regions < 1 || rails[i].n_regions > GPUSYS_MAX_REGIONS)
            return gpusys_error_set(
                error, -EINVAL, "handshake with %s: %u regions for rail %u, a table has 1 to %u",
                gpusys_stream_name(handshake->stream), rails[i].n_regions, i, GPUSYS_MAX_REGIONS);
    return 0;
}

int gpusys_handshake_server_write_ro(struct gpusys_handshake *handshake,
                                     const struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                     int64_t deadline_ns, struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 2, .record = "the server's rails", .rail = GS_NO_RAIL};
    int code = check_tables(handshake, rails, n_rails, error);
    if (!code)
        code = gs_handshake_enter(handshake, 2, GPUSYS_DIALECT_READ_ONLY, n_rails, error);
    size_t size = 0;
    if (!code)
        code = gpusys_server_rails_ro_size(rails, n_rails, &size);
    if (code)
        return code;
    unsigned char *bytes = malloc(size);
    if (!bytes)
        return gpusys_error_set_errno(error, -ENOMEM, "%s: the server's rails, %zu bytes",
                                      gpusys_stream_name(handshake->stream), size);
    code = gpusys_server_rails_ro_encode(rails, n_rails, bytes, size, &size);
    if (!code)
        code = gs_handshake_write(handshake->stream, &piece, bytes, size, deadline_ns, error);
    free(bytes);
    return code ? code : gs_handshake_leave(handshake, 3);
}

int gpusys_handshake_server_write_rw(struct gpusys_handshake *handshake,
                                     const struct gpusys_cache_server_params *rails, uint32_t n_rails,
                                     int64_t deadline_ns, struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 2, .record = "the server's rails", .rail = GS_NO_RAIL};
    unsigned char bytes[GPUSYS_SERVER_RAILS_RW_BYTES(GPUSYS_MAX_RAILS_READ_WRITE)];
    size_t size;
    int code = gs_handshake_enter(handshake, 2, GPUSYS_DIALECT_READ_WRITE, n_rails, error);
    if (!code)
        code = gpusys_server_rails_rw_encode(rails, n_rails, bytes, sizeof bytes, &size);
    if (!code)
        code = gs_handshake_write(handshake->stream, &piece, bytes, size, deadline_ns, error);
    return code ? code : gs_handshake_leave(handshake, 3);
}

/* The second count, which must be the first again. */
static int read_second_count(const struct gpusys_handshake *handshake, int64_t deadline_ns,
                             struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 3, .record = "the second rail count", .rail = GS_NO_RAIL};
    uint8_t count;
    int code = gs_handshake_read(handshake->stream, &piece, &count, 1, deadline_ns, error);
    if (code || count == handshake->n_rails)
        return code;
    return refuse(-EPROTO, error, "%s asked for %u rails first and answers with %u",
                  gpusys_stream_name(handshake->stream), handshake->n_rails, count);
}

static int read_qp(const struct gpusys_handshake *handshake, int rail, struct gpusys_qp_params *params,
                   int64_t deadline_ns, struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 3, .record = "VerbsClientParams", .rail = rail};
    unsigned char bytes[GPUSYS_QP_PARAMS_BYTES];
    size_t size;
    int code = gs_handshake_read(handshake->stream, &piece, bytes, sizeof bytes, deadline_ns, error);
    return code ? code : gpusys_qp_params_decode(params, bytes, sizeof bytes, &size);
}

int gpusys_handshake_server_read_client(struct gpusys_handshake *handshake, struct gpusys_qp_params *rails,
                                        uint32_t n_rails, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_qp_params own[GPUSYS_MAX_RAILS_READ_WRITE];
    int code = gs_handshake_enter(handshake, 3, 0, n_rails, error);
    if (code)
        return code;
    code = read_second_count(handshake, deadline_ns, error);
    for (uint32_t i = 0; i < n_rails && !code; i++)
        code = read_qp(handshake, (int)i, &own[i], deadline_ns, error);
    if (code)
        return code;
    memcpy(rails, own, n_rails * sizeof *own);
    return gs_handshake_leave(handshake, 4);
}

int gpusys_handshake_server_finish(struct gpusys_handshake *handshake, uint8_t ack, int64_t deadline_ns,
                                   struct gpusys_error *error)
{
    const struct gs_piece piece = {.step = 4, .record = "the ack", .rail = GS_NO_RAIL};
    int code = gs_handshake_enter(handshake, 4, 0, handshake->n_rails, error);
    if (!code)
        code = gs_handshake_write(handshake->stream, &piece, &ack, 1, deadline_ns, error);
    return code ? code : gs_handshake_leave(handshake, 0);
}
