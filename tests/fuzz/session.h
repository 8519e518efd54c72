/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real peer in this process, for targets that play its client. One peer serves all inputs; after each of them it must
 * have let go of the client: no session, no arena, no descriptor is left.
 *
 * Its regions: FUZZ_MEMORY (read-only) and FUZZ_FILE hold fuzz_pattern; FUZZ_WRITABLE is memory that starts zeroed;
 * FUZZ_EMPTY is an empty file, FUZZ_FOLDER a directory.
 */
#ifndef TESTS_FUZZ_SESSION_H
#define TESTS_FUZZ_SESSION_H

#include "fuzz.h"

#include "wire/message.h"

enum {
    FUZZ_MEMORY = 0,
    FUZZ_WRITABLE = 1,
    FUZZ_FILE = 2,
    FUZZ_EMPTY = 3,
    FUZZ_FOLDER = 4,
    FUZZ_REGIONS = 5,
    FUZZ_MEMORY_BYTES = 100000,
    FUZZ_WRITABLE_BYTES = 5000,
    FUZZ_FILE_BYTES = 70000,
    FUZZ_ARENA_BYTES = 65536, /* for all arenas together */
};

static inline uint8_t fuzz_pattern(uint64_t at)
{
    return (uint8_t)(at * 7 + (at >> 8));
}

/* A client: its connection, and what it sent and got. */
struct fuzz_client {
    int fd;
    uint64_t serial; /* of the next message */
    struct gs_bytes out, in;
    struct gs_welcome welcome;
};

/* Of the peer, before the first input: without RDMA, unless a target sets it to 0. */
extern uint32_t fuzz_peer_flags;

/* Start the peer with the first input; connect. Its cookie is 0x40 … 0x5f. */
void fuzz_client_open(struct fuzz_client *client);

/* Close, and wait until the peer has let go of everything. */
void fuzz_client_close(struct fuzz_client *client);

/* Send what was encoded into `out`; false: the peer has closed. */
bool fuzz_client_send(struct fuzz_client *client);

/* The next `size` bytes, in `in` until the next receive; NULL: the peer has closed. It must not take long. */
const unsigned char *fuzz_client_receive(struct fuzz_client *client, size_t size);

/* The next message, which must be one that a peer sends, well-formed. NULL: the peer has closed. */
const unsigned char *fuzz_client_message(struct fuzz_client *client, struct gs_frame *ret_frame);

/* The magic and a valid HELLO, up to WELCOME. */
void fuzz_client_hello(struct fuzz_client *client);

/* The magic and ATTACH on a connection of its own, up to ATTACHED. */
void fuzz_client_attach(struct fuzz_client *rail, const struct fuzz_client *control, uint8_t transport);

/* What the region FUZZ_WRITABLE holds, in the peer. */
unsigned char *fuzz_writable(void);

#endif
