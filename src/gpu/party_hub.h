/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of the hub share. One thread: first the one that opens the party, then the party's own. */
#ifndef GPUSYS_GPU_PARTY_HUB_H
#define GPUSYS_GPU_PARTY_HUB_H

#include "gpu/party_inner.h"

enum {
    GS_HUB_PENDING = 128,     /* connections that have not said who they are */
    GS_HUB_OPEN_GATHERS = 64, /* of one rank at a time */
    GS_HUB_ANSWERS = 16,      /* times the number of ranks: those awaited by all cases */
    GS_HUB_RECENT = 64,       /* gathers that failed and keys that are over, as far as they are remembered */
};

/* Shares of one tag. */
struct gs_hub_gather {
    struct gs_hub_gather *next;
    uint64_t tag, digest;
    uint32_t n_ranks, bytes, n_given;
    struct gs_bytes shares;
    uint8_t given[]; /* a map */
};

/* Somebody raised the alarm, and the ranks are asked. */
struct gs_hub_case {
    struct gs_hub_case *next;
    struct gs_failure failure; /* as it was raised */
    int64_t until_ns;
    uint32_t n_answers, n_awaited;
    struct gs_answer *answers; /* by rank; SILENT until they answer */
};

struct gs_party_hub {
    struct gs_party *party;
    const struct gs_party_options *options; /* while it opens */
    int listener;
    char unix_path[108]; /* to be removed with the listener */
    char address[GS_ADDRESS_BYTES];
    uint32_t n_there, n_pending;
    bool has_changed; /* who is there, since those present were told */
    bool is_busy;     /* the last turn did not see all that there was */
    bool closing;
    int code; /* why it cannot go on opening */
    struct gs_party_link *pending;
    struct gs_party_link *links; /* by rank. That of rank 0 has no socket */
    uint32_t *dirty, n_dirty;    /* ranks whose links have something to flush */
    uint8_t *states;             /* enum gs_party_state, by rank */
    uint16_t *n_open;            /* gathers that wait for others, by rank */
    uint32_t *left, n_left;      /* ranks that said goodbye, to be told together */
    int64_t left_at_ns, turned_ns, ticked_ns, pinged_ns, next_ns;
    struct gs_hub_gather *gathers;
    struct gs_party_ungathered failed[GS_HUB_RECENT];
    uint32_t n_failed;
    struct gs_hub_case *cases;
    uint64_t n_answers; /* of all of them */
    uint64_t over[GS_HUB_RECENT];
    uint32_t n_over;
};

/* ---- party_hub.c ---- */

/* Send a frame to a rank, to those of a map (NULL: to all); the bytes are taken over. */
void gs_hub_send(struct gs_party_hub *hub, uint32_t rank, struct gs_bytes *frame);
void gs_hub_send_all(struct gs_party_hub *hub, const uint8_t *map, struct gs_bytes *frame);
void gs_hub_send_others(struct gs_party_hub *hub, struct gs_bytes *frame); /* but for rank 0 */
/* Nothing more is expected of that rank. `why`: "died: its connection was closed". */
void gs_hub_lose(struct gs_party_hub *hub, uint32_t rank, int code, const char *why);
/* One round: wait for at most so long, and do what there is to do. */
void gs_hub_turn(struct gs_party_hub *hub, int64_t until_ns);
/* The loop of rank 0, until the party is closed. */
void gs_hub_run(struct gs_party_hub *hub);

/* ---- party_hub_open.c ---- */

int gs_hub_open(struct gs_party *party, const struct gs_party_options *options, struct gpusys_error *error);
void gs_hub_end(struct gs_party_hub *hub);
/* Somebody knocks; a pending one spoke, or was silent for too long. */
void gs_hub_accept(struct gs_party_hub *hub);
void gs_hub_pending_ready(struct gs_party_hub *hub, uint32_t slot);
void gs_hub_pending_expire(struct gs_party_hub *hub, int64_t now_ns);
/* Somebody who was there went while the others are still awaited. */
void gs_hub_unseat(struct gs_party_hub *hub, uint32_t rank);
void gs_hub_tell_waiting(struct gs_party_hub *hub);

/* ---- party_hub_gather.c ---- */

int gs_hub_hear_gather(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size);
int gs_hub_hear_late(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size);
/* Take back whatever that rank gave to gathers that are not complete. */
void gs_hub_forget_shares(struct gs_party_hub *hub, uint32_t rank);
void gs_hub_free_gathers(struct gs_party_hub *hub);

/* ---- party_hub_judge.c ---- */

int gs_hub_hear_alarm(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size);
int gs_hub_hear_report(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size);
void gs_hub_cases_lose(struct gs_party_hub *hub, uint32_t rank, enum gs_party_state state);
/* Judge those whose time is up; the moment of the next one. */
int64_t gs_hub_cases_expire(struct gs_party_hub *hub, int64_t now_ns);
/* There is no time to judge any more: they end with the words they began with. */
void gs_hub_cases_end(struct gs_party_hub *hub);
void gs_hub_free_cases(struct gs_party_hub *hub);

#endif
