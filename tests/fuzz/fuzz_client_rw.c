/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client's side of the handshake, read-write dialect. */
#include "client.h"

#include <errno.h>
#include <gpusys/deadline.h>

static struct gpusys_cache_server_params rails[GPUSYS_MAX_RAILS_READ_WRITE];

static int read_rails(struct gpusys_handshake *handshake, uint32_t n_rails, struct gpusys_error *error)
{
    return gpusys_handshake_client_read_rw(handshake, rails, n_rails, GPUSYS_NO_DEADLINE, error);
}

static size_t encode_rails(uint32_t n_rails, unsigned char *bytes, size_t size)
{
    size_t used = 0;
    REQUIRE(gpusys_server_rails_rw_encode(rails, n_rails, bytes, size, &used) == 0);
    return used;
}

static void clear_rails(uint32_t n_rails)
{
    (void)n_rails;
}

static int expect_rails(const struct fuzz_peer *peer, uint32_t n_rails, size_t *ret_size)
{
    int code = fuzz_expect_count(peer, n_rails, GPUSYS_MAX_RAILS_READ_WRITE);
    if (!code && peer->size < GPUSYS_SERVER_RAILS_RW_BYTES(n_rails))
        code = fuzz_peer_cut(peer, -EPIPE);
    *ret_size = GPUSYS_SERVER_RAILS_RW_BYTES(n_rails);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_dialect dialect = {.dialect = GPUSYS_DIALECT_READ_WRITE,
                                                .most_rails = GPUSYS_MAX_RAILS_READ_WRITE,
                                                .read = read_rails,
                                                .encode = encode_rails,
                                                .clear = clear_rails,
                                                .expect = expect_rails};
    fuzz_client(&dialect, data, size);
    return 0;
}
