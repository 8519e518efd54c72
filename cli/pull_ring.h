/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The landing buffers of a pull: a ring of slots, each one batch of the remote. A slot takes pieces of
 * several files, so that small files travel together. Slots are landed in the order in which they were
 * filled.
 */
#ifndef GPUSYS_CLI_PULL_RING_H
#define GPUSYS_CLI_PULL_RING_H

#include "progress.h"
#include <gpusys/remote.h>

enum { RING_SLOTS = 5, SLOT_BYTES = 4 << 20, SLOT_PIECES = 128 };

struct arrival;

struct piece {
    struct arrival *arrival;
    uint64_t offset; /* in the file */
    uint64_t length;
    unsigned char *bytes;
    int code;                        /* how writing it went */
    uint8_t hash[GPUSYS_HASH_BYTES]; /* of its chunk up to its end */
};

struct slot {
    unsigned char *buffer;
    uint64_t used;
    struct piece pieces[SLOT_PIECES];
    struct gpusys_io ios[SLOT_PIECES];
    unsigned n_pieces;
    bool done;
    int status;
};

struct ring {
    struct gpusys_remote *remote;
    struct progress *progress;
    int64_t patience_ns; /* how long nothing may arrive before the peer is asked whether it lives */
    void *memory;
    struct slot slots[RING_SLOTS];
    unsigned oldest, n_busy; /* all that are not empty … */
    unsigned n_landed;       /* … of which these, the oldest, have been landed */
};

int ring_open(struct ring *ring, struct gpusys_remote *remote, struct progress *progress, int64_t patience_ns,
              struct gpusys_error *error);
void ring_close(struct ring *ring);

/* The slot to fill next, or NULL while all are under way. */
struct slot *ring_to_fill(struct ring *ring);

bool slot_is_full(const struct slot *slot);

/* Add as much of a range as fits into a slot that is not full. Returns how much that is. */
uint64_t slot_add(struct slot *slot, struct arrival *arrival, uint32_t region, uint64_t offset,
                  uint64_t length);

/* Send what ring_to_fill gave on its way. */
int ring_submit(struct ring *ring, struct gpusys_error *error);

/* Wait for the next slot that is under way, in their order; *ret_slot is NULL when there is none. -EINTR
 * after a signal, -ETIMEDOUT, -ECONNRESET. The status of the slot itself is the caller's to look at. */
int ring_land(struct ring *ring, struct slot **ret_slot, struct gpusys_error *error);

/* The slot that was landed first is empty again. */
void ring_release(struct ring *ring);

#define RING_TICK_NS INT64_C(100000000) /* how often a wait looks at signals and at the progress line */

/* A wait for the peer: it is asked now and then whether it lives, and given up on after a few times. */
struct ring_watch {
    int64_t until_ns;
    unsigned pings;
};
struct ring_watch ring_watch_start(const struct ring *ring);

/* Call it whenever nothing has come for a tick. -ETIMEDOUT, -ECONNRESET. */
int ring_watch_check(struct ring *ring, struct ring_watch *watch, struct gpusys_error *error);

/* See to the session while busy elsewhere: completions are kept, signals and the peer's end are noticed. */
int ring_tend(struct ring *ring, struct gpusys_error *error);

#endif
