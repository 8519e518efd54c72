/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A hostile peer: a Unix socket in this process, and a thread that answers a real client (gpusys/remote.h) out of a script.
 *
 * The first connection of an input is the control stream. `control` is a list of messages, [u8 type][u8 flags][u8 length]
 * and the body: with HOSTILE_WAIT in the flags it is sent only when the client has sent another message, with HOSTILE_RAIL
 * when something was heard on a rail; with HOSTILE_ANSWER it carries the serial of the client's last message, else flags & 31.
 * A type from 0xf0 on sends its bytes as they are. Later connections are rails: ATTACH is answered properly, and the client's
 * first bytes behind it with `rail`, beside whose first byte goes the descriptor `fd` when that is not -1; an empty `rail` is
 * silence. After its script each connection is closed for writing and not read any more.
 */
#ifndef TESTS_FUZZ_HOSTILE_H
#define TESTS_FUZZ_HOSTILE_H

#include "fuzz.h"

enum { HOSTILE_WAIT = 0x80, HOSTILE_ANSWER = 0x40, HOSTILE_RAIL = 0x20, HOSTILE_RECORD_BYTES = 3 };

struct hostile {
    const uint8_t *control, *rail;
    size_t control_size, rail_size;
    int fd; /* not owned */
};

/* Its address, "unix:…"; starts the thread the first time. */
const char *hostile_address(void);

/* Play a script from the next connection on; stop, and have every connection closed. */
void hostile_start(const struct hostile *script);
void hostile_stop(void);

/* The session and the proof that WELCOME gives, so that rails can be attached. The cookie is 0x40 … 0x5f. */
extern const uint8_t hostile_session[16], hostile_proof[16];

/* Everything a program does with a remote, every call under a short deadline. Any result will do. */
void hostile_visit(unsigned require);

#endif
