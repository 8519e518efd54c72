/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "client.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <string.h>

int fuzz_expect_count(const struct fuzz_peer *peer, uint32_t n_rails, uint32_t most)
{
    if (peer->size == 0)
        return fuzz_peer_cut(peer, -ECONNREFUSED);
    if (peer->bytes[0] == 0 || peer->bytes[0] > most)
        return -EBADMSG;
    return peer->bytes[0] == n_rails ? 0 : -EPROTO;
}

/* The whole outcome, from the input alone; *ret_step_2 is the length of step 2 where it is reached. */
static int expect(const struct fuzz_dialect *dialect, const struct fuzz_peer *peer, uint32_t n_rails,
                  size_t *ret_step_2)
{
    if (n_rails == 0 || n_rails > dialect->most_rails)
        return -EINVAL;
    if (peer->write_room < 1)
        return -ECONNREFUSED;
    int code = dialect->expect(peer, n_rails, ret_step_2);
    if (code)
        return code;
    if (peer->write_room < 1 + GPUSYS_CLIENT_RAILS_BYTES(n_rails))
        return -EPIPE;
    if (peer->size == *ret_step_2)
        return fuzz_peer_cut(peer, -EPIPE);
    return peer->bytes[*ret_step_2] == GPUSYS_STATUS_OK ? 0 : -EACCES;
}

/* What was read in step 2 encodes to the bytes that came. */
static void check_step_2(const struct fuzz_dialect *dialect, const struct fuzz_peer *peer, uint32_t n_rails)
{
    static unsigned char again[1 + 8 * GPUSYS_VERBS_SERVER_PARAMS_BYTES(GPUSYS_MAX_REGIONS)];
    size_t size = dialect->encode(n_rails, again, sizeof again);
    REQUIRE(size <= peer->size && memcmp(again, peer->bytes, size) == 0);
}

static int run(const struct fuzz_dialect *dialect, struct fuzz_peer *peer, struct gpusys_stream *stream,
               uint32_t n_rails, struct gpusys_error *error)
{
    static const struct gpusys_qp_params qps[GPUSYS_MAX_RAILS_READ_WRITE];
    struct gpusys_handshake handshake;
    int code = gpusys_handshake_client_begin(&handshake, stream, dialect->dialect, n_rails,
                                             GPUSYS_NO_DEADLINE, error);
    if (code)
        return code;
    code = dialect->read(&handshake, n_rails, error);
    if (code)
        return code;
    check_step_2(dialect, peer, n_rails);
    code = gpusys_handshake_client_complete(&handshake, qps, n_rails, GPUSYS_NO_DEADLINE, error);
    if (!code)
        code = gpusys_handshake_client_finish(&handshake, GPUSYS_NO_DEADLINE, error);
    REQUIRE(handshake.next_step == 0 || code == 0);
    dialect->clear(n_rails);
    return code;
}

void fuzz_client(const struct fuzz_dialect *dialect, const uint8_t *data, size_t size)
{
    static struct fuzz_peer peer;
    struct gpusys_error error = {0};
    if (size == 0)
        return;
    uint32_t n_rails = data[0];
    size_t step_2 = 0;
    fuzz_peer_start(&peer, data + 1, size - 1);
    peer.readable[0] = 1; /* after the count byte, and then after all of step 3 */
    peer.readable[1] = 1 + GPUSYS_CLIENT_RAILS_BYTES(n_rails);
    struct gpusys_stream *stream = fuzz_peer_stream(&peer);
    int code = run(dialect, &peer, stream, n_rails, &error);
    REQUIRE(code == expect(dialect, &peer, n_rails, &step_2));
    REQUIRE(error.code == code);
    REQUIRE(code == 0 || strstr(error.message, "the peer"));
    REQUIRE((code == -EACCES) == (error.domain == GPUSYS_DOMAIN_PEER));
    if (code == -EINVAL)
        REQUIRE(peer.n_written == 0 && peer.given == 0);
    if (code == 0) {
        REQUIRE(fuzz_peer_consumed(&peer, stream) == step_2 + 1);
        fuzz_peer_check_rest(&peer, stream);
    }
}
