/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two targets of the handshake's client share. */
#ifndef TESTS_FUZZ_CLIENT_H
#define TESTS_FUZZ_CLIENT_H

#include "peer.h"

/* A dialect's own step: read step 2, and later say what bytes it must have been (and free what was read). */
struct fuzz_dialect {
    enum gpusys_dialect dialect;
    uint32_t most_rails;
    int (*read)(struct gpusys_handshake *handshake, uint32_t n_rails, struct gpusys_error *error);
    size_t (*encode)(uint32_t n_rails, unsigned char *bytes, size_t size);
    void (*clear)(uint32_t n_rails);
    /* What reading step 2 must come to, and how many bytes it takes when that is 0. */
    int (*expect)(const struct fuzz_peer *peer, uint32_t n_rails, size_t *ret_size);
};

/* Input: [u8 n_rails], then what fuzz_peer_start takes; the peer sends step 2 and the ack. */
void fuzz_client(const struct fuzz_dialect *dialect, const uint8_t *data, size_t size);

/* The count byte of step 2 alone: 0 when it is the one asked for. */
int fuzz_expect_count(const struct fuzz_peer *peer, uint32_t n_rails, uint32_t most);

#endif
