/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The server's side of the handshake, read-only dialect: rail i has a table of i + 1 regions. */
#include "server.h"

#include <gpusys/deadline.h>

enum { RAILS = GPUSYS_MAX_RAILS_READ_ONLY };

static int write_rails(struct gpusys_handshake *handshake, struct gpusys_error *error)
{
    static struct gpusys_region_key regions[RAILS];
    struct gpusys_verbs_server_params rails[RAILS];
    for (uint32_t i = 0; i < RAILS; i++)
        rails[i] = (struct gpusys_verbs_server_params){.n_regions = i + 1, .regions = regions};
    return gpusys_handshake_server_write_ro(handshake, rails, handshake->n_rails, GPUSYS_NO_DEADLINE, error);
}

static size_t step_2_size(uint32_t n_rails)
{
    size_t size = 1;
    for (uint32_t i = 0; i < n_rails; i++)
        size += GPUSYS_VERBS_SERVER_PARAMS_BYTES(i + 1);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_service service = {.dialect = GPUSYS_DIALECT_READ_ONLY,
                                                .most_rails = RAILS,
                                                .write = write_rails,
                                                .step_2_size = step_2_size};
    fuzz_server(&service, data, size);
    return 0;
}
