/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client's side of the handshake, read-only dialect. Rails take turns at whose storage they read into. */
#include "client.h"

#include <endian.h>
#include <errno.h>
#include <gpusys/deadline.h>
#include <string.h>

enum { ROOM = 100 };

static struct gpusys_verbs_server_params rails[GPUSYS_MAX_RAILS_READ_ONLY];

static int read_rails(struct gpusys_handshake *handshake, uint32_t n_rails, struct gpusys_error *error)
{
    static struct gpusys_region_key room[GPUSYS_MAX_RAILS_READ_ONLY][ROOM];
    for (uint32_t i = 0; i < n_rails; i++)
        rails[i] = i % 2 ? (struct gpusys_verbs_server_params){.capacity = ROOM, .regions = room[i]}
                         : (struct gpusys_verbs_server_params){0};
    return gpusys_handshake_client_read_ro(handshake, rails, n_rails, GPUSYS_NO_DEADLINE, error);
}

static size_t encode_rails(uint32_t n_rails, unsigned char *bytes, size_t size)
{
    size_t used = 0;
    REQUIRE(gpusys_server_rails_ro_encode(rails, n_rails, bytes, size, &used) == 0);
    return used;
}

static void clear_rails(uint32_t n_rails)
{
    gpusys_verbs_server_params_clear(rails, n_rails);
}

static int expect_rails(const struct fuzz_peer *peer, uint32_t n_rails, size_t *ret_size)
{
    size_t at = 1;
    int code = fuzz_expect_count(peer, n_rails, GPUSYS_MAX_RAILS_READ_ONLY);
    for (uint32_t i = 0; i < n_rails && !code; i++) {
        uint32_t n;
        if (peer->size - at < 28)
            return fuzz_peer_cut(peer, -EPIPE);
        memcpy(&n, peer->bytes + at + 24, sizeof n);
        n = le32toh(n);
        if (n == 0 || n > GPUSYS_MAX_REGIONS)
            return -EBADMSG;
        if (i % 2 && n > ROOM)
            return -ENOSPC;
        if (peer->size - at < GPUSYS_VERBS_SERVER_PARAMS_BYTES(n))
            return fuzz_peer_cut(peer, -EPIPE);
        at += GPUSYS_VERBS_SERVER_PARAMS_BYTES(n);
    }
    *ret_size = at;
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_dialect dialect = {.dialect = GPUSYS_DIALECT_READ_ONLY,
                                                .most_rails = GPUSYS_MAX_RAILS_READ_ONLY,
                                                .read = read_rails,
                                                .encode = encode_rails,
                                                .clear = clear_rails,
                                                .expect = expect_rails};
    fuzz_client(&dialect, data, size);
    return 0;
}
