/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer made of fuzz input: it sends some bytes, in pieces, and ends in one of four ways; it takes what is
 * written to it up to a limit. It aborts when it is read from out of turn.
 */
#ifndef TESTS_FUZZ_PEER_H
#define TESTS_FUZZ_PEER_H

#include "fuzz.h"

#include <gpusys/handshake.h>
#include <stdbool.h>

enum { FUZZ_WRITTEN_BYTES = 16384 };

struct fuzz_peer {
    const uint8_t *bytes; /* what it sends */
    size_t size, given;
    size_t piece;       /* bytes per read at most */
    int ending;         /* what a read says behind the last byte: 0 for the end of the stream, or an errno */
    size_t write_room;  /* bytes it takes before writes fail with -EPIPE */
    size_t readable[2]; /* reads are in turn when exactly so many bytes were written */
    size_t n_written;
    unsigned char written[FUZZ_WRITTEN_BYTES];
};

/*
 * Set a peer up from the front of the input: [u8 ending and size of pieces][u8 limit of writes], then what it
 * sends. Too short an input is as if it were zero-filled.
 */
void fuzz_peer_start(struct fuzz_peer *peer, const uint8_t *data, size_t size);

/* The one stream of the process, now to this peer, with nothing read ahead. */
struct gpusys_stream *fuzz_peer_stream(struct fuzz_peer *peer);

/* Bytes that the reader of the stream has had, without what waits in the buffer. */
size_t fuzz_peer_consumed(const struct fuzz_peer *peer, const struct gpusys_stream *stream);

/* What a read of a record becomes when the peer's bytes are used up; `refusal` when nothing came at all. */
int fuzz_peer_cut(const struct fuzz_peer *peer, int refusal);

/* Everything that was sent and not consumed must still be readable. */
void fuzz_peer_check_rest(struct fuzz_peer *peer, struct gpusys_stream *stream);

#endif
