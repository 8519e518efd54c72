/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* VerbsServerParams: the result is what the length and the count say, and encodes to the very same bytes. */
#include "fuzz.h"

#include <endian.h>
#include <errno.h>
#include <gpusys/wire.h>
#include <string.h>

static int expected(const uint8_t *data, size_t size, uint32_t *n)
{
    if (size < 28)
        return -ENODATA;
    memcpy(n, data + 24, sizeof *n);
    *n = le32toh(*n);
    if (*n == 0 || *n > GPUSYS_MAX_REGIONS)
        return -EBADMSG;
    return size < GPUSYS_VERBS_SERVER_PARAMS_BYTES(*n) ? -ENODATA : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gpusys_region_key room[GPUSYS_MAX_REGIONS];
    static unsigned char again[GPUSYS_VERBS_SERVER_PARAMS_BYTES(GPUSYS_MAX_REGIONS)];
    struct gpusys_verbs_server_params params = {.capacity = GPUSYS_MAX_REGIONS, .regions = room};
    struct gpusys_verbs_server_params small = {0};
    uint32_t n = 0;
    size_t taken, given;
    int code = gpusys_verbs_server_params_decode(&params, data, size, &taken);
    REQUIRE(code == expected(data, size, &n));
    if (code)
        return 0;
    REQUIRE(taken == GPUSYS_VERBS_SERVER_PARAMS_BYTES(n) && params.n_regions == n);
    REQUIRE(gpusys_verbs_server_params_encode(&params, again, taken, &given) == 0 && given == taken);
    REQUIRE(memcmp(again, data, taken) == 0);
    REQUIRE(gpusys_verbs_server_params_encode(&params, again, taken - 1, &given) == -ENOSPC);
    small.capacity = n - 1;
    REQUIRE(gpusys_verbs_server_params_decode(&small, data, size, &taken) == -ENOSPC && small.n_regions == n);
    return 0;
}
