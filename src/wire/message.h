/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The messages of gpusys/1, both directions. docs/protocol.md gives them byte for byte.
 *
 * Encoders append a whole message (frame header and body) to a struct gs_bytes. Decoders read one body,
 * exactly: bytes left over are an error (-EBADMSG), as are bodies that end early, fields out of range, and
 * fields that are reserved and not 0. Text and arrays in a decoded message point into the body.
 */
#ifndef GPUSYS_WIRE_MESSAGE_H
#define GPUSYS_WIRE_MESSAGE_H

#include "base/bytes.h"

#include <gpusys/hash.h>
#include <stdbool.h>
#include <stdint.h>

#define GS_MAGIC "GPUSYS/1" /* opens every connection, client to peer; its first u32 is above 8192 */

enum {
    GS_MAGIC_BYTES = 8,
    GS_FRAME_BYTES = 16,      /* [u32 body bytes][u16 type][u16 0][u64 serial] */
    GS_BODY_MAX = 256 * 1024, /* a body's length */
    GS_NONCE_BYTES = 16,
    GS_COOKIE_BYTES = 32, /* the first half is shown by the client, the second by the peer */
    GS_TEXT_MAX = 1024,   /* reasons, paths and descriptions */
    GS_RAILS_MAX = 8,
    GS_REGIONS_MAX = 16 * 1024 * 1024, /* in a table */
    GS_CHECKSUMS_MAX = 1024,           /* in one message */
    GS_SLICE_MAX = 16 * 1024 * 1024,   /* a data frame's payload */
    GS_PROTOCOL_VERSION = 1,
};

enum gs_message_type {
    GS_HELLO = 1,   /* client: opens a session */
    GS_WELCOME = 2, /* peer: the session is open */
    GS_REFUSED =
        3,        /* peer: the request with this serial is refused; in the opening: and the connection ends */
    GS_READY = 4, /* client: the transport it chose, and why */
    GS_GO = 5,    /* peer: agreed */
    GS_LIST = 6,  /* client: a page of the table, please */
    GS_REGIONS = 7,     /* peer: the page */
    GS_SUM = 8,         /* client: checksums of chunks, please */
    GS_SUMS = 9,        /* peer: the checksums */
    GS_ARENA = 10,      /* client: memory of my own, please */
    GS_GRANTED = 11,    /* peer: the arena */
    GS_ARENA_FREE = 12, /* client: I am done with that arena */
    GS_FREED = 13,      /* peer: it is gone */
    GS_FENCE = 14,      /* client: nothing more from that rail, please */
    GS_FENCED = 15,     /* peer: nothing more will come from it */
    GS_NOTE = 16,       /* client: text for the application */
    GS_NOTED = 17,      /* peer: delivered */
    GS_PING = 18,       /* either */
    GS_PONG = 19,       /* either, with the ping's serial */
    GS_CHANGED = 20,    /* peer, unasked (serial 0): a file changed while served */
    GS_ATTACH = 21,     /* client: this connection is a rail of that session */
    GS_ATTACHED = 22,   /* peer: it is; the rail's own frames follow */
    GS_MAP = 23,        /* client, on an shm rail: that region's descriptor, please */
    GS_MAPPED = 24,     /* peer, on an shm rail: here, beside these bytes */
    GS_RAIL = 25,       /* client, on a verbs rail: my end of it (wire/message_rail.h) */
    GS_RAILED = 26,     /* peer, on a verbs rail: my end */
    GS_KEY = 27,        /* client, on a verbs rail: that region's keys, please */
    GS_KEYED = 28,      /* peer, on a verbs rail: here they are */
};

/* Why a peer refuses. */
enum gs_refusal {
    GS_REFUSED_VERSION = 1,  /* no protocol version in common */
    GS_REFUSED_COOKIE = 2,   /* the cookie is not the peer's */
    GS_REFUSED_BUSY = 3,     /* too many sessions */
    GS_REFUSED_SESSION = 4,  /* no such session, or not for this connection */
    GS_REFUSED_REGION = 5,   /* no such region */
    GS_REFUSED_RANGE = 6,    /* outside the region */
    GS_REFUSED_LIMIT = 7,    /* above a limit that the reason names */
    GS_REFUSED_CHANGED = 8,  /* the file changed while served */
    GS_REFUSED_IO = 9,       /* the peer could not read */
    GS_REFUSED_MESSAGE = 10, /* the message makes no sense here */
};

/* The negative errno that a caller is given for it. */
int gs_refusal_errno(uint32_t refusal);

/* Text inside a message: not terminated. */
struct gs_text {
    const char *at;
    uint16_t length;
};
struct gs_text gs_text_of(const char *text);

struct gs_frame {
    uint32_t body_bytes;
    uint16_t type;
    uint64_t serial;
};

/* One side's end of a rail: 64 bytes. What does not apply to a transport is 0. */
struct gs_rail_record {
    uint8_t transport;  /* enum gpusys_transport */
    uint8_t link_layer; /* 0 none, 1 InfiniBand, 2 Ethernet */
    uint16_t lid;
    uint8_t gid[16];
    uint16_t gid_index;
    uint16_t mtu_bytes;
    uint8_t reads_out; /* RDMA reads it may have under way */
    uint8_t reads_in;  /* RDMA reads it can answer at once */
    int16_t numa_node; /* -1: unknown */
    uint32_t qpn, psn;
    uint32_t generation;
    char device[24]; /* zero-padded */
};

struct gs_hello {
    uint32_t version; /* the highest it speaks */
    uint64_t features;
    uint8_t cookie[GS_COOKIE_BYTES / 2];
    uint8_t n_rails;
    struct gs_rail_record rails[GS_RAILS_MAX];
    struct gs_text name; /* for the peer's log */
};

struct gs_welcome {
    uint32_t version; /* the one that both speak from here on */
    uint64_t features;
    uint8_t cookie[GS_COOKIE_BYTES / 2];
    uint8_t session[GS_NONCE_BYTES]; /* names the session when a rail attaches */
    uint8_t proof[GS_NONCE_BYTES];   /* comes back in ATTACHED: the attached one is this peer */
    uint64_t n_regions, arena_bytes;
    uint32_t slice_max, requests_max; /* per rail */
    uint8_t n_rails;
    struct gs_rail_record rails[GS_RAILS_MAX];
    struct gs_text unix_path; /* where shm rails attach; empty: nowhere */
};

struct gs_refused {
    uint32_t refusal; /* enum gs_refusal */
    struct gs_text reason;
};

struct gs_ready {
    uint8_t transport;
    struct gs_text reason;
};

struct gs_list {
    uint64_t first;
    uint32_t count;
};

/* One entry of a page. */
struct gs_region_entry {
    uint32_t region;
    uint8_t kind, access, place;
    uint64_t length;
    int64_t mtime_ns;
    uint32_t mode;
    struct gs_text name;
};

struct gs_regions {
    uint64_t total, first;
    uint32_t count;
    struct gs_cursor entries; /* for gs_region_entry_next */
};

struct gs_sum {
    uint32_t region;
    uint64_t first;
    uint32_t count;
};

struct gs_sums {
    uint32_t region;
    uint64_t first;
    uint32_t count;
    const uint8_t (*hashes)[GPUSYS_HASH_BYTES];
};

struct gs_granted {
    uint32_t region;
    uint64_t length;
};

struct gs_fence {
    uint8_t rail;
    uint32_t generation;
};

struct gs_attach {
    uint8_t session[GS_NONCE_BYTES];
    uint8_t transport, rail;
    uint32_t generation;
};

struct gs_mapped {
    uint32_t region;
    uint64_t length;
    uint8_t huge; /* the descriptor's pages are huge */
};

int gs_frame_decode(const unsigned char bytes[GS_FRAME_BYTES], struct gs_frame *ret_frame);

/* All encoders: 0 or -ENOMEM; a text longer than GS_TEXT_MAX is cut. */
int gs_hello_encode(struct gs_bytes *out, uint64_t serial, const struct gs_hello *hello);
int gs_welcome_encode(struct gs_bytes *out, uint64_t serial, const struct gs_welcome *welcome);
int gs_refused_encode(struct gs_bytes *out, uint64_t serial, const struct gs_refused *refused);
int gs_ready_encode(struct gs_bytes *out, uint64_t serial, const struct gs_ready *ready);
int gs_list_encode(struct gs_bytes *out, uint64_t serial, const struct gs_list *list);
int gs_sum_encode(struct gs_bytes *out, uint64_t serial, const struct gs_sum *sum);
int gs_sums_encode(struct gs_bytes *out, uint64_t serial, const struct gs_sums *sums);
int gs_arena_encode(struct gs_bytes *out, uint64_t serial, uint64_t bytes);
int gs_granted_encode(struct gs_bytes *out, uint64_t serial, const struct gs_granted *granted);
int gs_fence_encode(struct gs_bytes *out, uint64_t serial, const struct gs_fence *fence);
int gs_note_encode(struct gs_bytes *out, uint64_t serial, const void *note, uint32_t note_bytes);
int gs_attach_encode(struct gs_bytes *out, uint64_t serial, const struct gs_attach *attach);
int gs_attached_encode(struct gs_bytes *out, uint64_t serial, const uint8_t proof[GS_NONCE_BYTES]);
int gs_mapped_encode(struct gs_bytes *out, uint64_t serial, const struct gs_mapped *mapped);
/* Messages whose body is one region number (ARENA_FREE, CHANGED, MAP, KEY) or nothing (GO, FREED, FENCED, NOTED,
 * PING, PONG). */
int gs_region_message_encode(struct gs_bytes *out, enum gs_message_type type, uint64_t serial,
                             uint32_t region);
int gs_empty_encode(struct gs_bytes *out, enum gs_message_type type, uint64_t serial);

/* A page is built entry by entry. An entry that would pass GS_BODY_MAX is -ENOSPC and leaves the page as it
 * was. */
int gs_regions_begin(struct gs_bytes *out, uint64_t serial, uint64_t total, uint64_t first);
int gs_regions_add(struct gs_bytes *out, size_t page_at, const struct gs_region_entry *entry);

int gs_hello_decode(const void *body, size_t size, struct gs_hello *ret_hello);
int gs_welcome_decode(const void *body, size_t size, struct gs_welcome *ret_welcome);
int gs_refused_decode(const void *body, size_t size, struct gs_refused *ret_refused);
int gs_ready_decode(const void *body, size_t size, struct gs_ready *ret_ready);
int gs_list_decode(const void *body, size_t size, struct gs_list *ret_list);
int gs_regions_decode(const void *body, size_t size, struct gs_regions *ret_regions);
int gs_region_entry_next(struct gs_regions *regions, struct gs_region_entry *ret_entry);
int gs_sum_decode(const void *body, size_t size, struct gs_sum *ret_sum);
int gs_sums_decode(const void *body, size_t size, struct gs_sums *ret_sums);
int gs_arena_decode(const void *body, size_t size, uint64_t *ret_bytes);
int gs_granted_decode(const void *body, size_t size, struct gs_granted *ret_granted);
int gs_fence_decode(const void *body, size_t size, struct gs_fence *ret_fence);
int gs_attach_decode(const void *body, size_t size, struct gs_attach *ret_attach);
int gs_attached_decode(const void *body, size_t size, uint8_t ret_proof[GS_NONCE_BYTES]);
int gs_mapped_decode(const void *body, size_t size, struct gs_mapped *ret_mapped);
int gs_region_message_decode(const void *body, size_t size, uint32_t *ret_region);

/* ---- the data frames of a tcp rail ---- */

enum { GS_REQUEST_BYTES = 24, GS_REPLY_BYTES = 12 };

/* [u8 op][u8 0][u16 0][u32 region][u64 offset][u32 length][u32 tag]; a write's payload follows. */
struct gs_request {
    uint8_t op; /* enum gpusys_op */
    uint32_t region;
    uint64_t offset;
    uint32_t length, tag;
};

enum gs_status {
    GS_STATUS_OK = 0,
    GS_STATUS_RANGE = 1,
    GS_STATUS_ACCESS = 2,
    GS_STATUS_REGION = 3,
    GS_STATUS_CHANGED = 4,
    GS_STATUS_IO = 5,
};

/* [u8 status][u8 0][u16 0][u32 length][u32 tag]; a read's payload, `length` bytes, follows when the status is
 * OK. */
struct gs_reply {
    uint8_t status; /* enum gs_status */
    uint32_t length, tag;
};

int gs_status_errno(uint8_t status);

/* These two are on the data path: fixed sizes, no allocation. Decoders: -EBADMSG for what cannot be. */
void gs_request_put(unsigned char at[GS_REQUEST_BYTES], const struct gs_request *request);
int gs_request_get(const unsigned char at[GS_REQUEST_BYTES], struct gs_request *ret_request);
void gs_reply_put(unsigned char at[GS_REPLY_BYTES], const struct gs_reply *reply);
int gs_reply_get(const unsigned char at[GS_REPLY_BYTES], struct gs_reply *ret_reply);

#endif
