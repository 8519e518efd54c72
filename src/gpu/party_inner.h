/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the files of a party share.
 *
 * Every rank has a *local side*: who is attached, which gathers wait, what was heard of failures. It talks with the hub
 * in frames: callers leave theirs in the outbox, the thread sends them, and what the hub says goes to gs_party_hear. On
 * rank 0 the hub is in the same process, and the frames go across without a socket. Nothing but the hub's own thread
 * touches the hub once the party has come together, so only the local side has a lock.
 */
#ifndef GPUSYS_GPU_PARTY_INNER_H
#define GPUSYS_GPU_PARTY_INNER_H

#include "base/address.h"
#include "gpu/party_link.h"

#include <pthread.h>
#include <stdatomic.h>

enum { GS_PARTY_NAME_BYTES = 128, GS_PARTY_RECENT = 64 };

enum gs_party_state {
    GS_PARTY_THERE = 0,
    GS_PARTY_LOST = 1, /* died or silent */
    GS_PARTY_LEFT = 2, /* said goodbye */
};

struct gs_party_attachment {
    struct gs_party_attachment *next;
    uint64_t key;
    struct gs_party_handlers handlers;
    void *context;
    bool told, busy;
    int alarm_code; /* of an alarm that was raised here; 0: none was */
    char alarm_text[GS_PARTY_TEXT_BYTES];
    uint8_t map[]; /* who takes part */
};

/* One call of gs_party_gather. */
struct gs_party_waiter {
    struct gs_party_waiter *next;
    uint64_t tag;
    uint32_t n_ranks, bytes;
    const uint32_t *ranks;
    uint32_t *order; /* 0 … n_ranks-1, by rank */
    unsigned char *all;
    uint8_t *given; /* a map of the party, when the hub has said who gave */
    bool done, has_given;
    int code;
    char text[GS_PARTY_TEXT_BYTES];
};

struct gs_party_loss {
    struct gs_party_loss *next;
    struct gs_failure failure;
};

struct gs_party_hub;

struct gs_party {
    uint32_t n_ranks, rank;
    atomic_uint holds;
    char address[GS_ADDRESS_TEXT_BYTES];
    struct gs_member *members;
    int64_t silence_ns; /* rank 0's; 0: never */
    int epoll, wake;
    pthread_t thread;
    bool has_thread;
    struct gs_party_hub *hub; /* on rank 0 */
    struct gs_party_link up;  /* elsewhere */

    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    struct gs_bytes outbox;
    bool closing;
    enum gs_party_state hub_state;
    uint8_t *states; /* by rank: enum gs_party_state */
    struct gs_party_attachment *attachments;
    struct gs_party_waiter *waiters;
    struct gs_party_loss *losses;              /* each rank in one at most */
    struct gs_failure recent[GS_PARTY_RECENT]; /* of single communicators; a ring */
    uint32_t n_recent;
};

/* ---- party_words.c ---- */

/* "rank 3 (node7, process 4711)"; without members "rank 3". */
void gs_party_say_rank(char text[GS_PARTY_NAME_BYTES], const struct gs_member *members, uint32_t rank);
/* "rank 3", "ranks 3 and 5", "ranks 3, 5 and 7", "ranks 3, 5, …, 31 and 47 more". `ranks` holds at most GS_PARTY_SUSPECTS. */
void gs_party_say_ranks(char *text, size_t size, const uint32_t *ranks, uint32_t total);

/* ---- party_local.c, party_gather.c: the local side ---- */

int gs_party_local_init(struct gs_party *party);
void gs_party_local_end(struct gs_party *party);
/* Leave a frame for the hub; the bytes are taken over. */
int gs_party_post(struct gs_party *party, struct gs_bytes *frame);
void gs_party_wake(struct gs_party *party);
/* What the hub says. -EBADMSG; -ENOMEM. */
int gs_party_hear(struct gs_party *party, const struct gs_party_frame *frame, const unsigned char *body);
/* A failure is known; tell whom it concerns. */
void gs_party_fell(struct gs_party *party, const struct gs_failure *failure);
/* An alarm that nobody can be asked about, since rank 0 has left. */
void gs_party_alarm_alone(struct gs_party *party, uint64_t key, int code, const char *text);

/* These three with the lock held. */
void gs_party_waiters_fall(struct gs_party *party, const struct gs_failure *failure);
void gs_party_waiters_left(struct gs_party *party, uint32_t rank);
int gs_party_waiters_hear(struct gs_party *party, const struct gs_party_frame *frame,
                          const unsigned char *body);

/* ---- the thread ---- */

enum { GS_PARTY_WAKE = -1, GS_PARTY_LISTENER = -2 }; /* tokens of epoll beside those of links */

/* Watch a link: for writing too where it is blocked. `token` comes back with its events. */
int gs_party_watch(struct gs_party *party, const struct gs_party_link *link, int64_t token, bool is_new);
/* Take the outbox. */
struct gs_bytes gs_party_take(struct gs_party *party, bool *ret_closing);
int gs_party_thread_start(struct gs_party *party);
/* The loop of a rank other than 0, until the party is closed. */
void gs_party_member_run(struct gs_party *party);

#endif
