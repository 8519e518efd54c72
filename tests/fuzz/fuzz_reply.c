/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A reply of a tcp rail: what decodes encodes to the same 12 bytes; every status has an errno. */
#include "fuzz.h"

#include "wire/message.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gs_reply reply;
    unsigned char again[GS_REPLY_BYTES];
    if (size < sizeof again)
        return 0;
    int code = gs_reply_get(data, &reply);
    bool sound = !data[1] && !data[2] && !data[3];
    if (code) {
        REQUIRE(code == -EBADMSG);
        uint32_t length =
            data[4] | (uint32_t)data[5] << 8 | (uint32_t)data[6] << 16 | (uint32_t)data[7] << 24;
        REQUIRE(!sound || length > GS_SLICE_MAX);
        return 0;
    }
    REQUIRE(sound && reply.length <= GS_SLICE_MAX);
    REQUIRE((gs_status_errno(reply.status) == 0) == (reply.status == GS_STATUS_OK));
    gs_reply_put(again, &reply);
    REQUIRE(memcmp(again, data, sizeof again) == 0);
    return 0;
}
