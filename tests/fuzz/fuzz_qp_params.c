/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* VerbsClientParams: decodes from 24 bytes on, and encodes to the very same bytes. */
#include "fuzz.h"

#include <errno.h>
#include <gpusys/wire.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpusys_qp_params params;
    unsigned char again[GPUSYS_QP_PARAMS_BYTES];
    size_t taken, given;
    int code = gpusys_qp_params_decode(&params, data, size, &taken);
    REQUIRE(code == (size < sizeof again ? -ENODATA : 0));
    if (code)
        return 0;
    REQUIRE(taken == sizeof again);
    REQUIRE(gpusys_qp_params_encode(&params, again, sizeof again, &given) == 0 && given == taken);
    REQUIRE(memcmp(again, data, taken) == 0);
    REQUIRE(gpusys_qp_params_encode(&params, again, size % sizeof again, &given) == -ENOSPC);
    return 0;
}
