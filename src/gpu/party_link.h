/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One connection of a party: frames that come in, frames that wait to go out. It never blocks. */
#ifndef GPUSYS_GPU_PARTY_LINK_H
#define GPUSYS_GPU_PARTY_LINK_H

#include "gpu/party_message.h"

/* Frames that several links send: freed with the last one's hold. One thread. */
struct gs_party_blob {
    uint32_t holds;
    struct gs_bytes bytes;
};

/* Takes the bytes over. NULL when memory is out; the bytes are freed then. */
struct gs_party_blob *gs_party_blob_new(struct gs_bytes *bytes);
void gs_party_blob_drop(struct gs_party_blob *blob);

struct gs_party_link {
    int fd;        /* -1: none */
    uint32_t rank; /* of the other side */
    bool greeted;  /* its magic was read */
    bool closing;  /* nothing of it counts any more: it is read to its end and closed */
    bool overrun;  /* too much waits for it */
    bool queued;   /* in the list of those to be flushed */
    bool blocked;  /* the socket takes no more for now */
    int64_t since_ns, heard_ns;
    size_t body_most; /* a longer body is no party's */
    struct gs_bytes in;
    struct gs_party_blob **out; /* a queue: from `out_head`, `out_n` of them */
    uint32_t out_head, out_n, out_size;
    size_t out_bytes; /* of all of them */
    size_t out_done;  /* of these, bytes of the first that went */
};

void gs_party_link_init(struct gs_party_link *link, int fd, uint32_t rank, size_t body_most, int64_t now_ns);
/* Close it and free what it holds. */
void gs_party_link_end(struct gs_party_link *link);

/* -ENOMEM, or -ENOBUFS when far too much waits there already. */
int gs_party_link_send(struct gs_party_link *link, struct gs_party_blob *blob);
/* The first that waits is through. */
void gs_party_link_drop(struct gs_party_link *link);
/* As much as the socket takes; `blocked` says whether there is more. Or an errno: the connection is done for. */
int gs_party_link_flush(struct gs_party_link *link);

/* Read what is there, up to some KiB. 1 when something came, 0 when nothing was there, -ECONNRESET at its end or at any
 * error, -ENOMEM. */
int gs_party_link_read(struct gs_party_link *link, int64_t now_ns);
/*
 * The next whole frame, and its body, which is gone with gs_party_link_taken. 1, or 0: none yet, or -EBADMSG. The magic
 * goes before the first.
 */
int gs_party_link_frame(struct gs_party_link *link, struct gs_party_frame *ret_frame,
                        const unsigned char **ret_body);
void gs_party_link_taken(struct gs_party_link *link, const struct gs_party_frame *frame);

#endif
