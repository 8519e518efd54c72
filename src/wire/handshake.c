/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What both sides of the handshake share. */
#include "wire/handshake.h"

#include <errno.h>
#include <stdio.h>

uint32_t gs_handshake_most_rails(enum gpusys_dialect dialect)
{
    return dialect == GPUSYS_DIALECT_READ_ONLY ? GPUSYS_MAX_RAILS_READ_ONLY : GPUSYS_MAX_RAILS_READ_WRITE;
}

const char *gs_handshake_dialect_name(enum gpusys_dialect dialect)
{
    return dialect == GPUSYS_DIALECT_READ_ONLY ? "read-only" : "read-write";
}

int gs_handshake_check_range(const struct gpusys_stream *stream, enum gpusys_dialect dialect,
                             uint32_t n_rails, struct gpusys_error *error)
{
    uint32_t most = gs_handshake_most_rails(dialect);
    if (n_rails >= 1 && n_rails <= most)
        return 0;
    gpusys_error_set(error, -EINVAL, "handshake with %s: %u rails wanted, the %s dialect has 1 to %u",
                     gpusys_stream_name(stream), n_rails, gs_handshake_dialect_name(dialect), most);
    gpusys_error_set_hint(error, "ask for 1 to %u rails", most);
    return -EINVAL;
}

int gs_handshake_enter(struct gpusys_handshake *handshake, unsigned step, enum gpusys_dialect dialect,
                       uint32_t n_rails, struct gpusys_error *error)
{
    const char *peer = gpusys_stream_name(handshake->stream);
    if (handshake->next_step == 0)
        return gpusys_error_set(error, -EINVAL, "handshake with %s: step %u is out of turn, it has ended",
                                peer, step);
    if (handshake->next_step != step)
        return gpusys_error_set(error, -EINVAL, "handshake with %s: step %u is out of turn, next is %u", peer,
                                step, handshake->next_step);
    if (dialect && handshake->dialect != dialect)
        return gpusys_error_set(error, -EINVAL, "handshake with %s: step %u of the %s dialect in a %s one",
                                peer, step, gs_handshake_dialect_name(dialect),
                                gs_handshake_dialect_name(handshake->dialect));
    if (handshake->n_rails != n_rails) {
        gpusys_error_set(error, -EINVAL, "handshake with %s: %u rails agreed, %u given for step %u", peer,
                         handshake->n_rails, n_rails, step);
        gpusys_error_set_hint(error, "rails pair one to one: give a record for each of the %u",
                              handshake->n_rails);
        return -EINVAL;
    }
    handshake->next_step = 0;
    return 0;
}

int gs_handshake_leave(struct gpusys_handshake *handshake, unsigned next)
{
    handshake->next_step = next;
    return 0;
}

bool gs_handshake_is_gone(int code)
{
    return code == -ECONNRESET || code == -EPIPE || code == -ECONNABORTED;
}

/* "VerbsServerParams of rail 1", "the ack". */
static void describe(const struct gs_piece *piece, char *text, size_t size)
{
    if (piece->rail == GS_NO_RAIL)
        snprintf(text, size, "%s", piece->record);
    else
        snprintf(text, size, "%s of rail %d", piece->record, piece->rail);
}

/* Why a read or a write of a piece stopped after `count` of its `size` bytes. */
static int explain(const struct gpusys_stream *stream, const struct gs_piece *piece, const char *moved,
                   size_t count, size_t size, int code, struct gpusys_error *error)
{
    const char *peer = gpusys_stream_name(stream);
    char record[64];
    describe(piece, record, sizeof record);
    size_t done = piece->before + count, total = piece->before + size;
    if (gs_handshake_is_gone(code))
        return gpusys_error_set(error, -EPIPE, "%s closed the connection inside %s: %zu of %zu bytes %s",
                                peer, record, done, total, moved);
    if (code == -EAGAIN || code == -ETIMEDOUT) {
        gpusys_error_set(error, -ETIMEDOUT,
                         "%s: no progress by the deadline in step %u of the handshake, %s: "
                         "%zu of %zu bytes %s",
                         peer, piece->step, record, done, total, moved);
        gpusys_error_set_hint(error, "see whether %s still runs; allow more time if it is only slow", peer);
        return -ETIMEDOUT;
    }
    return gpusys_error_set_errno(error, code, "%s: %s, %zu of %zu bytes %s", peer, record, done, total,
                                  moved);
}

int gs_handshake_read(struct gpusys_stream *stream, const struct gs_piece *piece, void *buffer, size_t size,
                      int64_t deadline_ns, struct gpusys_error *error)
{
    size_t count;
    int code = gpusys_stream_read(stream, buffer, size, deadline_ns, &count);
    return code ? explain(stream, piece, "came", count, size, code, error) : 0;
}

int gs_handshake_write(struct gpusys_stream *stream, const struct gs_piece *piece, const void *bytes,
                       size_t size, int64_t deadline_ns, struct gpusys_error *error)
{
    size_t count;
    int code = gpusys_stream_write(stream, bytes, size, deadline_ns, &count);
    return code ? explain(stream, piece, "went", count, size, code, error) : 0;
}
