/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "server.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <string.h>

/* The whole outcome, from the input alone. */
static int expect(const struct fuzz_service *service, const struct fuzz_peer *peer, size_t step_2)
{
    if (peer->size == 0)
        return fuzz_peer_cut(peer, -ECONNRESET);
    if (peer->bytes[0] == 0 || peer->bytes[0] > service->most_rails)
        return -EBADMSG;
    if (peer->write_room < step_2)
        return -EPIPE;
    if (peer->size == 1)
        return fuzz_peer_cut(peer, -EPIPE);
    if (peer->bytes[1] != peer->bytes[0])
        return -EPROTO;
    if (peer->size < 1 + GPUSYS_CLIENT_RAILS_BYTES(peer->bytes[0]))
        return fuzz_peer_cut(peer, -EPIPE);
    return peer->write_room < step_2 + 1 ? -EPIPE : 0;
}

/* What was read in step 3 encodes to the bytes that came. */
static void check_step_3(const struct fuzz_peer *peer, const struct gpusys_qp_params *clients,
                         uint32_t n_rails)
{
    static unsigned char again[GPUSYS_CLIENT_RAILS_BYTES(GPUSYS_MAX_RAILS_READ_WRITE)];
    size_t size = 0;
    REQUIRE(gpusys_client_rails_encode(clients, n_rails, again, sizeof again, &size) == 0);
    REQUIRE(size + 1 <= peer->size && memcmp(again, peer->bytes + 1, size) == 0);
}

static int run(const struct fuzz_service *service, struct fuzz_peer *peer, struct gpusys_stream *stream,
               struct gpusys_error *error)
{
    static struct gpusys_qp_params clients[GPUSYS_MAX_RAILS_READ_WRITE];
    struct gpusys_handshake handshake;
    int code = gpusys_handshake_server_begin(&handshake, stream, service->dialect, GPUSYS_NO_DEADLINE, error);
    if (!code)
        code = service->write(&handshake, error);
    if (!code)
        code = gpusys_handshake_server_read_client(&handshake, clients, handshake.n_rails, GPUSYS_NO_DEADLINE,
                                                   error);
    if (code)
        return code;
    check_step_3(peer, clients, handshake.n_rails);
    return gpusys_handshake_server_finish(&handshake, GPUSYS_STATUS_OK, GPUSYS_NO_DEADLINE, error);
}

void fuzz_server(const struct fuzz_service *service, const uint8_t *data, size_t size)
{
    static struct fuzz_peer peer;
    struct gpusys_error error = {0};
    fuzz_peer_start(&peer, data, size);
    uint32_t n_rails = peer.size ? peer.bytes[0] : 0;
    size_t step_2 = service->step_2_size(n_rails);
    peer.readable[1] = step_2; /* before anything is written, and then after all of step 2 */
    struct gpusys_stream *stream = fuzz_peer_stream(&peer);
    int code = run(service, &peer, stream, &error);
    REQUIRE(code == expect(service, &peer, step_2));
    REQUIRE(error.code == code);
    REQUIRE(code == 0 || strstr(error.message, "the peer"));
    if (code == -EBADMSG || code == -ECONNRESET)
        REQUIRE(peer.n_written == 0);
    if (code == 0) {
        REQUIRE(peer.n_written == step_2 + 1 && peer.written[step_2] == GPUSYS_STATUS_OK);
        REQUIRE(fuzz_peer_consumed(&peer, stream) == 1 + GPUSYS_CLIENT_RAILS_BYTES(n_rails));
        fuzz_peer_check_rest(&peer, stream);
    }
}
