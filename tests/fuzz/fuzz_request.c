/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A request of a tcp rail: what decodes encodes to the same 24 bytes, and its fields are within bounds. */
#include "fuzz.h"

#include "wire/message.h"

#include <errno.h>
#include <gpusys/remote.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gs_request request;
    unsigned char again[GS_REQUEST_BYTES];
    if (size < sizeof again)
        return 0;
    int code = gs_request_get(data, &request);
    bool sound = data[0] <= GPUSYS_OP_WRITE && !data[1] && !data[2] && !data[3];
    if (code) {
        REQUIRE(code == -EBADMSG);
        uint32_t length =
            data[16] | (uint32_t)data[17] << 8 | (uint32_t)data[18] << 16 | (uint32_t)data[19] << 24;
        REQUIRE(!sound || length > GS_SLICE_MAX);
        return 0;
    }
    REQUIRE(sound && request.length <= GS_SLICE_MAX);
    gs_request_put(again, &request);
    REQUIRE(memcmp(again, data, sizeof again) == 0);
    return 0;
}
