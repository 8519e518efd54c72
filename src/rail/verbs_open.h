/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A verbs rail's parts, shared by the file that opens it and the one that runs it. */
#ifndef GPUSYS_RAIL_VERBS_OPEN_H
#define GPUSYS_RAIL_VERBS_OPEN_H

#include "rail/rail.h"
#include "rail/verbs_keys.h"

#include <gpusys/stream.h>
#include <gpusys/verbs.h>

enum {
    GS_VERBS_SLOTS = 128,   /* slices under way at most */
    GS_BOUNCE_BYTES = 4096, /* up to this long an unregistered buffer is copied */
};

/* A slice under way. */
struct gs_verbs_slot {
    struct gs_slice *slice;
    struct gpusys_mr *mr; /* of its buffer, for its time */
    bool bounced;         /* its bytes go through the slot's own memory */
};

struct gs_verbs_rail {
    struct gs_rail rail;
    struct gs_verbs_end *end; /* held */
    struct gpusys_qp *qp;
    struct gpusys_stream *stream; /* gpusys/1: the rail's connection; NULL: none */
    int control;                  /* the descriptor whose end is the peer's end; -1: none */
    int epoll;                    /* the completion channel, the port's events, the control descriptor */
    uint64_t serial;              /* of the last message on the stream */
    struct gs_keyring *keys;      /* the pair's, or … */
    struct gs_keyring own_keys;   /* … its own */
    int fault;                    /* why it is dead */

    struct gs_verbs_slot slots[GS_VERBS_SLOTS];
    uint16_t free_slots[GS_VERBS_SLOTS];
    unsigned n_free, n_slots;
    uint64_t bytes_out;       /* under way */
    struct gs_slices refused; /* could not be posted, for reasons of their own */

    struct gpusys_qp_op ops[64]; /* gathered, not given to the driver yet */
    uint32_t n_ops;
    unsigned empty_polls;
    bool armed; /* the completion channel will wake us */

    char *bounce; /* a piece for every slot */
    struct gpusys_mr *bounce_mr;
    uint32_t bounce_lkey;
};

int gs_verbs_rail_connect(struct gs_rail **ret_rail, const struct gs_rail_target *target, int64_t deadline_ns,
                          struct gpusys_error *error);
int gs_verbs_rail_prepare(struct gs_rail *rail, const struct gs_rail_region *region, int64_t deadline_ns,
                          struct gpusys_error *error);

#endif
