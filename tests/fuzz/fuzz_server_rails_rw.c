/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* [u8 rails wanted], then the rails of a read-write server: what decodes encodes to the very same bytes. */
#include "fuzz.h"

#include <errno.h>
#include <gpusys/wire.h>
#include <string.h>

enum { RAILS = GPUSYS_MAX_RAILS_READ_WRITE };

static int expected(const uint8_t *data, size_t size, uint32_t wanted)
{
    if (size == 0)
        return -ENODATA;
    if (data[0] == 0)
        return -EBADMSG;
    if (data[0] != wanted)
        return -EPROTO;
    return size < GPUSYS_SERVER_RAILS_RW_BYTES(wanted) ? -ENODATA : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gpusys_cache_server_params rails[RAILS];
    static unsigned char again[GPUSYS_SERVER_RAILS_RW_BYTES(RAILS)];
    size_t taken, given;
    if (size == 0)
        return 0;
    uint32_t wanted = *data++;
    size--;
    int code = gpusys_server_rails_rw_decode(rails, wanted, data, size, &taken);
    REQUIRE(code == expected(data, size, wanted));
    if (code)
        return 0;
    REQUIRE(taken == GPUSYS_SERVER_RAILS_RW_BYTES(wanted));
    REQUIRE(gpusys_server_rails_rw_encode(rails, wanted, again, taken, &given) == 0 && given == taken);
    REQUIRE(memcmp(again, data, taken) == 0);
    REQUIRE(gpusys_server_rails_rw_encode(rails, wanted, again, taken - 1, &given) == -ENOSPC);
    return 0;
}
