/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The messages of a party as bytes: docs/protocol.md, section 13. Encoders append one frame and return 0 or -ENOMEM;
 * decoders take a body that is whole and return 0 or -EBADMSG, and what they give points into it.
 */
#ifndef GPUSYS_GPU_PARTY_MESSAGE_H
#define GPUSYS_GPU_PARTY_MESSAGE_H

#include "base/bytes.h"
#include "gpu/party.h"

#define GS_PARTY_MAGIC "GPUSYS/P"
enum {
    GS_PARTY_MAGIC_BYTES = 8,
    GS_PARTY_VERSION = 1,
    GS_PARTY_FRAME_BYTES = 8,   /* [u32 body bytes][u16 type][u16 0] */
    GS_PARTY_HELLO_MOST = 1024, /* the most bytes of a body that a newcomer sends */
    GS_PARTY_MEMBER_MOST =
        9216, /* the most that a member sends: an alarm with a bit for each of 65536 ranks */
    GS_PARTY_MAP_MOST = GS_PARTY_MAX_RANKS / 8,
};

enum gs_party_type {
    GS_PARTY_HELLO = 1,      /* member: who I am */
    GS_PARTY_WELCOME = 2,    /* hub: all are there, and these are they */
    GS_PARTY_REFUSED = 3,    /* hub: no; it closes */
    GS_PARTY_WAITING = 4,    /* hub: these are not there yet */
    GS_PARTY_PING = 5,       /* either */
    GS_PARTY_GATHER = 6,     /* member: my share */
    GS_PARTY_GATHERED = 7,   /* hub: everybody's */
    GS_PARTY_UNGATHERED = 8, /* hub: that gather has failed */
    GS_PARTY_LATE = 9,       /* member: I wait no longer; who has given? */
    GS_PARTY_GIVEN = 10,     /* hub: these have */
    GS_PARTY_ALARM = 11,     /* member: something is wrong */
    GS_PARTY_ASK = 12,       /* hub: what have you done? */
    GS_PARTY_REPORT = 13,    /* member: this */
    GS_PARTY_FAILURE = 14,   /* hub: it is over, with a communicator or with a rank */
    GS_PARTY_GOODBYE = 15,   /* either: these leave in good order */
};

/* Text inside a message, on its way out (cut at what the field may hold) and in (copied, terminated). */
enum { GS_PARTY_MESSAGE_BYTES = 512, GS_PARTY_HINT_BYTES = 256 };

struct gs_party_frame {
    uint32_t body_bytes;
    uint16_t type;
};

struct gs_party_hello {
    uint32_t version;
    uint8_t job[16];
    uint32_t n_ranks, rank;
    struct gs_member member;
};

struct gs_party_welcome {
    uint32_t n_ranks;
    uint32_t silence_ms; /* 0: never */
    struct gs_cursor members;
};

struct gs_party_refused {
    int code; /* negative errno */
    char message[GS_PARTY_MESSAGE_BYTES], cause[GS_PARTY_HINT_BYTES], hint[GS_PARTY_HINT_BYTES];
};

/* A share goes without the zeros at its end. */
struct gs_party_gather {
    uint64_t tag, digest; /* of the list of ranks */
    uint32_t n_ranks, bytes;
    const unsigned char *share;
    uint32_t share_bytes;
};

struct gs_party_gathered {
    uint64_t tag;
    uint32_t n_ranks, bytes;
    struct gs_cursor shares;
};

struct gs_party_share {
    uint32_t rank, bytes;
    const unsigned char *at;
};

struct gs_party_ungathered {
    uint64_t tag;
    int code;
    char text[GS_PARTY_TEXT_BYTES];
};

/* A bit for each rank of the party, the lowest of the first byte is rank 0. */
struct gs_party_given {
    uint64_t tag;
    uint32_t n_ranks;
    const uint8_t *map;
};

struct gs_party_alarm {
    uint64_t key;
    int code;
    bool judge;
    char text[GS_PARTY_TEXT_BYTES];
    uint32_t n_ranks;
    const uint8_t *map; /* who takes part */
};

struct gs_party_goodbye {
    uint32_t n_ranks;
    struct gs_cursor ranks; /* gs_party_goodbye_next */
};

static inline size_t gs_party_map_bytes(uint32_t n_ranks)
{
    return ((size_t)n_ranks + 7) / 8;
}

static inline bool gs_party_map_has(const uint8_t *map, uint32_t rank)
{
    return map[rank / 8] >> rank % 8 & 1;
}

static inline void gs_party_map_set(uint8_t *map, uint32_t rank)
{
    map[rank / 8] = (uint8_t)(map[rank / 8] | 1u << rank % 8);
}

static inline void gs_party_map_clear(uint8_t *map, uint32_t rank)
{
    map[rank / 8] = (uint8_t)(map[rank / 8] & ~(1u << rank % 8));
}

/* The most bytes of a body that the hub of so many ranks sends. */
size_t gs_party_hub_most(uint32_t n_ranks);

int gs_party_frame_decode(const unsigned char bytes[GS_PARTY_FRAME_BYTES], struct gs_party_frame *ret_frame);

int gs_party_hello_encode(struct gs_bytes *out, const struct gs_party_hello *hello);
/* Only the version is sure to be there when that is not ours: the rest is left as it was. */
int gs_party_hello_decode(const void *body, size_t size, struct gs_party_hello *ret_hello);

int gs_party_welcome_encode(struct gs_bytes *out, const struct gs_member *members, uint32_t n_ranks,
                            uint32_t silence_ms);
int gs_party_welcome_decode(const void *body, size_t size, struct gs_party_welcome *ret_welcome);
/* -EBADMSG also behind the last one. After the last, gs_cursor_left must be 0. */
int gs_party_member_next(struct gs_party_welcome *welcome, struct gs_member *ret_member);

int gs_party_refused_encode(struct gs_bytes *out, const struct gpusys_error *error);
int gs_party_refused_decode(const void *body, size_t size, struct gs_party_refused *ret_refused);

int gs_party_waiting_encode(struct gs_bytes *out, const char *text);
int gs_party_waiting_decode(const void *body, size_t size, char text[GS_PARTY_TEXT_BYTES]);

int gs_party_gather_encode(struct gs_bytes *out, const struct gs_party_gather *gather);
int gs_party_gather_decode(const void *body, size_t size, struct gs_party_gather *ret_gather);

/* `shares`: n_ranks of them, as gs_party_share_encode made them. */
int gs_party_gathered_encode(struct gs_bytes *out, const struct gs_party_gathered *gathered);
int gs_party_gathered_decode(const void *body, size_t size, struct gs_party_gathered *ret_gathered);
int gs_party_share_encode(struct gs_bytes *out, const struct gs_party_share *share);
/* -EBADMSG also behind the last one, and when it is longer than the gather's shares are. */
int gs_party_share_next(struct gs_party_gathered *gathered, struct gs_party_share *ret_share);

int gs_party_ungathered_encode(struct gs_bytes *out, const struct gs_party_ungathered *ungathered);
int gs_party_ungathered_decode(const void *body, size_t size, struct gs_party_ungathered *ret_ungathered);
int gs_party_given_encode(struct gs_bytes *out, const struct gs_party_given *given);
int gs_party_given_decode(const void *body, size_t size, struct gs_party_given *ret_given);
int gs_party_alarm_encode(struct gs_bytes *out, const struct gs_party_alarm *alarm);
int gs_party_alarm_decode(const void *body, size_t size, struct gs_party_alarm *ret_alarm);

/* One number: LATE's tag, ASK's key. */
int gs_party_number_encode(struct gs_bytes *out, enum gs_party_type type, uint64_t number);
int gs_party_number_decode(const void *body, size_t size, uint64_t *ret_number);

/* `report` NULL: not one of that communicator. */
int gs_party_report_encode(struct gs_bytes *out, uint64_t key, const struct gs_report *report);
int gs_party_report_decode(const void *body, size_t size, uint64_t *ret_key, bool *ret_known,
                           struct gs_report *ret_report);

int gs_party_failure_encode(struct gs_bytes *out, const struct gs_failure *failure);
int gs_party_failure_decode(const void *body, size_t size, struct gs_failure *ret_failure);

int gs_party_ping_encode(struct gs_bytes *out);
int gs_party_goodbye_encode(struct gs_bytes *out, const uint32_t *ranks, uint32_t n);
int gs_party_goodbye_decode(const void *body, size_t size, struct gs_party_goodbye *ret_goodbye);
int gs_party_goodbye_next(struct gs_party_goodbye *goodbye, uint32_t *ret_rank);

#endif
