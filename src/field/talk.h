/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client's side of the field's dialects, inside. */
#ifndef GPUSYS_FIELD_TALK_H
#define GPUSYS_FIELD_TALK_H

#include "rail/rail.h"

#include <gpusys/field.h>
#include <gpusys/railset.h>

/* A connection up to the point where the peer has described itself; it can be made once more. */
struct gpusys_field_talk {
    struct gpusys_stream *stream;
    enum gpusys_field_kind kind;
    struct gpusys_field_options options; /* `devices` is our own copy */
    char *address, *model;               /* as given; model: weights only */
    char *text;                          /* with a NUL behind it */
    size_t text_bytes;
};

/* The caller's options, checked, their devices copied. Free them also when this fails. */
int gs_field_options_take(struct gpusys_field_options *ret_options, const struct gpusys_field_options *given,
                          struct gpusys_error *error);
void gs_field_options_free(struct gpusys_field_options *options);
int64_t gs_field_deadline(const struct gpusys_field_options *options);

/* Connect again and have the same text once more. -ESTALE: it is another. */
int gs_talk_redial(struct gpusys_field_talk *talk, int64_t deadline_ns, struct gpusys_error *error);

/* Write a step of the opening, or read one. `what` names it in the error. A deadline that passed is -ETIMEDOUT. */
int gs_talk_write(struct gpusys_stream *stream, const char *what, const void *bytes, size_t size,
                  int64_t deadline_ns, struct gpusys_error *error);
int gs_talk_read(struct gpusys_stream *stream, const char *what, void *buffer, size_t size,
                 int64_t deadline_ns, struct gpusys_error *error);

/* ---- verbs (verbs_client.c) ---- */

/* What both verbs dialects do once the preamble is out. */
struct gs_verbs_opening {
    struct gpusys_stream **stream; /* becomes NULL when the remote has taken it over */
    enum gpusys_dialect dialect;
    const struct gpusys_field_options *options;
    const struct gpusys_field_region *regions;
    uint32_t n_regions;
    int64_t deadline_ns;
};

int gs_verbs_opening_run(struct gpusys_remote **ret_remote, const struct gs_verbs_opening *opening,
                         struct gpusys_error *error);

/* ---- tcp (tcp_rail.c) ---- */

/*
 * A rail over a connection on which MODE_TCP was chosen. `record_bytes` 0: weights, any range in one request; else
 * experts, whole records. Takes the stream over, also when it fails.
 */
int gs_field_tcp_open(struct gs_rail **ret_rail, struct gpusys_stream *stream, uint32_t record_bytes,
                      struct gpusys_error *error);

#endif
