/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What both sides of the handshake share: taking steps in turn, and reads and writes that explain themselves.
 */
#ifndef GPUSYS_WIRE_HANDSHAKE_H
#define GPUSYS_WIRE_HANDSHAKE_H

#include <gpusys/handshake.h>
#include <stdbool.h>

enum { GS_NO_RAIL = -1 };

/* A piece of a record that crosses in one go, as messages call it. */
struct gs_piece {
    unsigned step;      /* of the handshake */
    const char *record; /* "VerbsServerParams" */
    int rail;           /* whose record it is, or GS_NO_RAIL */
    size_t before;      /* bytes of the record that came before this piece */
};

/* -EINVAL unless `n_rails` is in the dialect's range. */
int gs_handshake_check_range(const struct gpusys_stream *stream, enum gpusys_dialect dialect,
                             uint32_t n_rails, struct gpusys_error *error);

uint32_t gs_handshake_most_rails(enum gpusys_dialect dialect);
const char *gs_handshake_dialect_name(enum gpusys_dialect dialect);

/*
 * Enter `step`, which only `dialect` has (0: both have it), with a caller's array of `n_rails`. On success
 * the handshake counts as failed until gs_handshake_leave.
 */
int gs_handshake_enter(struct gpusys_handshake *handshake, unsigned step, enum gpusys_dialect dialect,
                       uint32_t n_rails, struct gpusys_error *error);

/* The step is done: give back 0, with `next` (0 after the last) the step to come. */
int gs_handshake_leave(struct gpusys_handshake *handshake, unsigned next);

/* Is this how a stream says that the other side is gone? */
bool gs_handshake_is_gone(int code);

int gs_handshake_read(struct gpusys_stream *stream, const struct gs_piece *piece, void *buffer, size_t size,
                      int64_t deadline_ns, struct gpusys_error *error);
int gs_handshake_write(struct gpusys_stream *stream, const struct gs_piece *piece, const void *bytes,
                       size_t size, int64_t deadline_ns, struct gpusys_error *error);

#endif
