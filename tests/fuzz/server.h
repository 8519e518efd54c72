/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two targets of the handshake's server share. */
#ifndef TESTS_FUZZ_SERVER_H
#define TESTS_FUZZ_SERVER_H

#include "peer.h"

struct fuzz_service {
    enum gpusys_dialect dialect;
    uint32_t most_rails;
    int (*write)(struct gpusys_handshake *handshake, struct gpusys_error *error);
    size_t (*step_2_size)(uint32_t n_rails);
};

/* Input: what fuzz_peer_start takes; the peer sends steps 1 and 3. */
void fuzz_server(const struct fuzz_service *service, const uint8_t *data, size_t size);

#endif
