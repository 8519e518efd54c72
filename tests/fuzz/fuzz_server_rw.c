/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The server's side of the handshake, read-write dialect. */
#include "server.h"

#include <gpusys/deadline.h>

static int write_rails(struct gpusys_handshake *handshake, struct gpusys_error *error)
{
    static const struct gpusys_cache_server_params rails[GPUSYS_MAX_RAILS_READ_WRITE];
    return gpusys_handshake_server_write_rw(handshake, rails, handshake->n_rails, GPUSYS_NO_DEADLINE, error);
}

static size_t step_2_size(uint32_t n_rails)
{
    return GPUSYS_SERVER_RAILS_RW_BYTES(n_rails);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_service service = {.dialect = GPUSYS_DIALECT_READ_WRITE,
                                                .most_rails = GPUSYS_MAX_RAILS_READ_WRITE,
                                                .write = write_rails,
                                                .step_2_size = step_2_size};
    fuzz_server(&service, data, size);
    return 0;
}
