/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* CacheServerParams: decodes from 36 bytes on, and encodes to the very same bytes. */
#include "fuzz.h"

#include <errno.h>
#include <gpusys/wire.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpusys_cache_server_params params;
    unsigned char again[GPUSYS_CACHE_SERVER_PARAMS_BYTES];
    size_t taken, given;
    int code = gpusys_cache_server_params_decode(&params, data, size, &taken);
    REQUIRE(code == (size < sizeof again ? -ENODATA : 0));
    if (code)
        return 0;
    REQUIRE(taken == sizeof again && params.region.reserved == 0);
    REQUIRE(gpusys_cache_server_params_encode(&params, again, sizeof again, &given) == 0 && given == taken);
    REQUIRE(memcmp(again, data, taken) == 0);
    REQUIRE(gpusys_cache_server_params_encode(&params, again, size % sizeof again, &given) == -ENOSPC);
    return 0;
}
