/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client's side, inside: a remote's control stream, its table, its engine. */
#ifndef GPUSYS_REMOTE_CLIENT_H
#define GPUSYS_REMOTE_CLIENT_H

#include "base/spin.h"
#include "rail/rail.h"
#include "rail/shm.h"
#include "rail/verbs_end.h"
#include "wire/channel.h"

#include <gpusys/remote.h>
#include <pthread.h>

/* A region as the peer listed it. */
struct gs_listed {
    uint64_t length;
    int64_t mtime_ns;
    uint32_t mode;
    uint8_t kind, access, place;
    bool changed; /* the peer said that it is not what it was */
    char *name;
};

enum { GS_CLIENT_ARENAS = 64 };

/* A transfer under way: one call of submit. */
struct gs_batch {
    struct gs_batch *newer, *older; /* among those under way */
    struct gs_batch *next;          /* among those that are done */
    uint64_t id, user;
    int64_t deadline_ns;
    uint64_t bytes;   /* acknowledged */
    uint32_t pending; /* slices with rails or waiting to be sent again */
    int32_t status;
    uint32_t flags;
    uint64_t note_serial; /* the note is under way; 0: not yet, or there is none */
    uint16_t note_bytes;
    size_t n_ios, room, at; /* ios[at …] are still to be cut … */
    uint64_t at_offset;     /* … the first of them from here on */
    void *range;            /* for profilers; NULL: nobody asked */
    unsigned char note[GPUSYS_NOTE_BYTES];
    struct gpusys_io ios[];
};

/* One of the remote's rails, alive or being brought back. */
struct gs_lane {
    struct gs_rail *rail; /* NULL: dead */
    const struct gs_rail_ops *ops;
    struct gs_verbs_pair *pair;     /* verbs: what it joins; NULL: another transport, or not known */
    uint64_t bytes;                 /* moved */
    uint32_t generation, watched;   /* EPOLL… bits in the set */
    unsigned failures;              /* in a row; too many and it stays dead */
    int64_t retry_at_ns;            /* when to try again */
    char last_words[80];            /* of the rail that died last */
    struct gs_slices fenced;        /* writes that wait for the peer's word that the dead rail is silent */
    uint64_t fence_serial;          /* 0: none asked for */
    struct gs_reconnect *reconnect; /* a helper thread at work */
};

/* Checksums that were asked for. */
struct gs_sum_ask {
    struct gs_sum_ask *next;
    uint64_t serial, first;
    uint32_t region, count;
    bool have;
    int error; /* the peer refused */
    uint8_t hashes[][GPUSYS_HASH_BYTES];
};

/* The mapped region that was used last, once all of it is faulted in: what a short read or write needs, and
 * no more. */
struct gs_hot {
    uint64_t bytes; /* 0: none */
    char *base;
    uint32_t region;
    bool writable;
};

struct gpusys_remote {
    struct gs_hot hot;
    struct gs_channel channel;
    uint64_t serial; /* the last one used */
    bool proven;     /* the peer is this user's own */
    int dead;        /* why the session is over; 0: it is not */
    char address[GS_TEXT_MAX];
    char reason[256];
    enum gpusys_transport transport;
    struct gs_rail_target target; /* what all rails have in common */
    uint8_t session[GS_NONCE_BYTES], proof[GS_NONCE_BYTES];
    char unix_path[GS_TEXT_MAX + 1];
    uint64_t n_regions_said, arena_bytes, slice_bytes;

    /* The one answer that a blocking call waits for. */
    uint64_t awaited;
    struct gs_bytes answer; /* its body */
    struct gs_frame answer_frame;

    struct gs_listed *regions;
    uint64_t n_regions;
    struct gs_listed arenas[GS_CLIENT_ARENAS]; /* length 0: none in that slot */
    struct gs_sum_ask *asks, **last_ask;

    struct gs_spin spin;
    bool bulk;         /* the slice that ended last was a long one */
    unsigned unlooked; /* turns since the set of descriptors was looked at */
    int epoll, wake;   /* the set of descriptors; what helper threads raise */
    int event, timer;  /* -1 until the caller wants a descriptor to poll */
    uint32_t control_watched;
    int64_t timer_at;
    struct gs_shm_rail *shm; /* lanes[0]'s, when that is one */
    struct gs_lane lanes[GS_RAILS_MAX];
    unsigned n_lanes, next_lane; /* next_lane: whose turn it is to be given work */
    bool is_silent;              /* adopted: nothing but its end comes from the control stream */

    /* verbs (remote/verbs.c) */
    struct gs_verbs_end *ends[GS_RAILS_MAX];
    unsigned n_ends;
    struct gs_rail_record offers[GS_RAILS_MAX]; /* the peer's, from WELCOME */
    unsigned n_offers;
    struct gs_verbs_pair pairs[GS_RAILS_MAX];
    unsigned n_pairs;
    struct gs_keyring keyrings[GS_RAILS_MAX]; /* of the pairs */

    uint64_t last_batch;
    struct gs_batch *oldest, *newest; /* under way */
    struct gs_batch *cutting;         /* the oldest with something left to cut; NULL: none */
    struct gs_batch *first_done, **last_done;
    struct gs_batch *spare; /* for reuse */
    struct gs_slices again; /* to be sent once more, before anything new */
    struct gs_slice *spare_slices;
    int64_t next_deadline_ns;
    uint64_t news; /* counts messages of the peer and batches that ended */
};

/* ---- control (remote/control.c) ---- */

/* A new serial, never 0. */
uint64_t gs_control_serial(struct gpusys_remote *remote);

/* Is there input that no poll of the descriptor shows, and room to answer it? */
bool gs_control_has_input(const struct gpusys_remote *remote);

/* Send what is queued, read what is there; messages go where they belong. 0, or the session is over. */
int gs_control_progress(struct gpusys_remote *remote);

/* Send what was just encoded and run the engine until the answer with `serial` is in `remote->answer`. */
int gs_control_await(struct gpusys_remote *remote, uint64_t serial, int64_t deadline_ns);

/* The same, and the answer must be of that type: a refusal becomes the error. `what` names the request. */
int gs_control_ask(struct gpusys_remote *remote, uint64_t serial, enum gs_message_type type, const char *what,
                   int64_t deadline_ns, struct gpusys_error *error);

/* Make a region usable on a lane. */
int gs_remote_prepare(struct gpusys_remote *remote, const struct gs_lane *lane, uint32_t region,
                      int64_t deadline_ns, struct gpusys_error *error);

/* The session is over: everything under way ends with that. */
void gs_remote_fail(struct gpusys_remote *remote, int why);

/* ---- table (remote/listing.c) ---- */

/* A region or an arena; NULL: none of that number. */
struct gs_listed *gs_listed_at(const struct gpusys_remote *remote, uint32_t region);
void gs_listing_free(struct gpusys_remote *remote);

/* ---- checksums (remote/sums.c) ---- */

/* An answer that may be one of ours. True: it was. */
bool gs_sums_answer(struct gpusys_remote *remote, const struct gs_frame *frame, const unsigned char *body);
void gs_sums_free(struct gpusys_remote *remote);

/* ---- verbs (remote/verbs.c) ---- */

/* Open the ports that rails may use: those asked for, or all that can be used. */
int gs_verbs_open_ends(struct gpusys_remote *remote, const struct gpusys_remote_options *options,
                       struct gpusys_error *error);

/* Pair them with what the peer offers. How many pairs there are; 0: `why` says why, if there were ports here. */
unsigned gs_verbs_find_pairs(struct gpusys_remote *remote, struct gpusys_error *why);

/* No slice is longer than what every port can register at once. */
void gs_verbs_limit_slices(struct gpusys_remote *remote);

/* The rails will ask for the region's keys, if they have none. -ENOMEM. */
int gs_verbs_expect(struct gpusys_remote *remote, uint32_t region);

/* Where the region's bytes lie, as it is registered; `listed`: as it is listed. */
uint8_t gs_verbs_place(const struct gpusys_remote *remote, uint32_t region, uint8_t listed);
void gs_verbs_forget_region(struct gpusys_remote *remote, uint32_t region);
void gs_verbs_close(struct gpusys_remote *remote);

/* ---- engine (remote/engine.c) ---- */

/* A batch with room for `n_ios`, empty but for that; NULL: out of memory. Those that end are used again. */
struct gs_batch *gs_engine_batch(struct gpusys_remote *remote, size_t n_ios);
void gs_engine_free(struct gpusys_remote *remote, struct gs_batch *batch);

/* A batch that was filled in is under way from here on. */
void gs_engine_begin(struct gpusys_remote *remote, struct gs_batch *batch);

/* Keep the caller's descriptor truthful, after completions were taken. */
void gs_engine_signal(struct gpusys_remote *remote);

/* Wait at most until the deadline for something to happen, and let it happen. -ETIMEDOUT once the deadline is
 * past, whatever happened: look for what you waited for first. */
int gs_engine_turn(struct gpusys_remote *remote, int64_t deadline_ns);

/* The peer delivered the note with that serial. True: a batch had it. */
bool gs_engine_noted(struct gpusys_remote *remote, uint64_t serial, int status);

/* The peer has fenced a rail. True: we had asked for that. */
bool gs_engine_fenced(struct gpusys_remote *remote, uint64_t serial);

/* Watch a descriptor of the session, with `tag` in the events; `was` are the bits in the set now. */
void gs_engine_watch(struct gpusys_remote *remote, int fd, uint32_t *was, uint32_t events, uint64_t tag);

/* Everything under way ends with `status`. */
void gs_engine_fail_all(struct gpusys_remote *remote, int status);

int gs_engine_open(struct gpusys_remote *remote);
void gs_engine_close(struct gpusys_remote *remote);

/* ---- lanes (remote/lanes.c): rails that die and come back ---- */

/* The lane's rail is dead: its slices come back, and it is brought back if that makes sense. */
void gs_lane_died(struct gpusys_remote *remote, struct gs_lane *lane, int why);

/* Look after dead lanes. */
void gs_lanes_tend(struct gpusys_remote *remote);

/* When a dead lane is to be tried again; GPUSYS_NO_DEADLINE: not, or not yet. */
int64_t gs_lane_retry_at(const struct gs_lane *lane);

/* Slices of a dead rail that may go to another now. */
void gs_lane_fenced(struct gpusys_remote *remote, struct gs_lane *lane);
void gs_lane_close(struct gpusys_remote *remote, struct gs_lane *lane);

/* A slice came back from a rail without being done: send it again, or end it. */
void gs_engine_again(struct gpusys_remote *remote, struct gs_slice *slice, int why);

#endif
