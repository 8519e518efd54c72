/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A verbs rail's parts, shared by the files that open it, run it, and ask for keys. */
#ifndef GPUSYS_RAIL_VERBS_OPEN_H
#define GPUSYS_RAIL_VERBS_OPEN_H

#include "rail/rail.h"
#include "rail/verbs_keys.h"
#include "wire/channel.h"

#include <gpusys/verbs.h>

enum {
    GS_VERBS_SLOTS = 128,   /* slices under way at most */
    GS_VERBS_CHAIN = 64,    /* requests given to the driver at once */
    GS_VERBS_ASKED = 8,     /* regions whose keys are asked for at once: the peer works on no more */
    GS_BOUNCE_BYTES = 4096, /* up to this long an unregistered buffer is copied */
};

/* A slice under way. */
struct gs_verbs_slot {
    struct gs_slice *slice;
    struct gpusys_mr *mr; /* of its buffer, for its time */
    uint64_t address;     /* where the bytes from part_at on are for the device: in the buffer, or if … */
    uint32_t lkey;
    uint32_t part_at, part_end; /* what is moved now: all of it, or as much as the slot's own memory takes */
    uint32_t posted;            /* so many bytes of it were turned into requests */
    bool bounced;               /* … this is true in the slot's own memory */
};

/* A KEY that is not answered yet. */
struct gs_verbs_asked {
    uint64_t serial;
    uint32_t region;
    bool stale; /* the region has gone meanwhile, and its number may be another's */
};

struct gs_verbs_rail {
    struct gs_rail rail;
    struct gs_verbs_end *end; /* held */
    struct gpusys_qp *qp;
    struct gs_channel channel;  /* gpusys/1: the rail's connection; no stream: none */
    int control;                /* the descriptor whose end is the peer's end; -1: none */
    int epoll;                  /* the completion channel, the port's events, the control descriptor */
    uint64_t serial;            /* of the last message on the stream */
    struct gs_keyring *keys;    /* the pair's, or … */
    struct gs_keyring own_keys; /* … its own */
    struct gs_verbs_asked asked[GS_VERBS_ASKED];
    unsigned n_asked;
    int fault; /* why it is dead */

    struct gs_verbs_slot slots[GS_VERBS_SLOTS];
    uint16_t free_slots[GS_VERBS_SLOTS];
    unsigned n_free, n_slots;
    uint64_t read_bytes,
        write_bytes; /* the longest requests: an eighth of the queue pair's depth when split */
    uint16_t waiting[GS_VERBS_SLOTS]; /* slots with bytes that are not posted yet, a ring in their order */
    unsigned waiting_at, n_waiting;
    uint64_t bytes_out;    /* under way */
    struct gs_slices ends; /* ended without a completion: for poll to give back */

    struct gpusys_qp_op ops[GS_VERBS_CHAIN]; /* gathered, not given to the driver yet */
    uint32_t n_ops;
    unsigned empty_polls;
    bool spins;             /* the last wait was a short one, or there was none yet */
    int64_t spin_from_ns;   /* when the polling began that has found nothing so far */
    int64_t quiet_since_ns; /* when it went to sleep, with nothing since */
    bool armed;             /* the completion channel will wake us */

    char *bounce; /* a piece for every slot */
    struct gpusys_mr *bounce_mr;
    uint32_t bounce_lkey;
};

int gs_verbs_rail_connect(struct gs_rail **ret_rail, const struct gs_rail_target *target, int64_t deadline_ns,
                          struct gpusys_error *error);

/* ---- keys (verbs_ask.c) ---- */

/* Ask for a region's keys, if that was not done. 0, -ENOENT: there is nobody to ask; -ENOMEM. */
int gs_verbs_ask(struct gs_verbs_rail *self, uint32_t region);

/* Send what is queued, take the answers that are there. A negative errno: the connection is broken. */
int gs_verbs_listen(struct gs_verbs_rail *self);

/* The peer gives no keys for the region: what waits for them ends with `status`. */
void gs_verbs_rail_give_up(struct gs_verbs_rail *self, uint32_t region, int status);

/* The peer refused with this body: the errno, and its words. */
int gs_verbs_refusal(const struct gs_verbs_rail *self, const struct gs_frame *frame,
                     const unsigned char *body, const char *what, struct gpusys_error *error);

#endif
