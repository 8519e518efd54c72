/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* [u8 rails wanted], then the rails of a read-only server: what decodes encodes to the very same bytes. */
#include "fuzz.h"

#include <errno.h>
#include <gpusys/wire.h>
#include <string.h>

enum { RAILS = GPUSYS_MAX_RAILS_READ_ONLY };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gpusys_region_key room[RAILS][GPUSYS_MAX_REGIONS];
    static unsigned char again[1 + RAILS * GPUSYS_VERBS_SERVER_PARAMS_BYTES(GPUSYS_MAX_REGIONS)];
    struct gpusys_verbs_server_params rails[RAILS];
    size_t taken, given, planned;
    if (size == 0)
        return 0;
    uint32_t wanted = *data++;
    size--;
    for (int i = 0; i < RAILS; i++)
        rails[i] = (struct gpusys_verbs_server_params){.capacity = GPUSYS_MAX_REGIONS, .regions = room[i]};
    int code = gpusys_server_rails_ro_decode(rails, wanted, data, size, &taken);
    REQUIRE(code == 0 || code == -ENODATA || code == -EBADMSG || code == -EPROTO);
    REQUIRE((code == -EPROTO) == (size > 0 && data[0] >= 1 && data[0] <= RAILS && data[0] != wanted));
    if (code)
        return 0;
    REQUIRE(wanted >= 1 && wanted <= RAILS && taken <= size);
    REQUIRE(gpusys_server_rails_ro_size(rails, wanted, &planned) == 0 && planned == taken);
    REQUIRE(gpusys_server_rails_ro_encode(rails, wanted, again, taken, &given) == 0 && given == taken);
    REQUIRE(memcmp(again, data, taken) == 0);
    REQUIRE(gpusys_server_rails_ro_decode(rails, wanted, data, taken - 1, &given) == -ENODATA);
    rails[wanted - 1].capacity = 0;
    REQUIRE(gpusys_server_rails_ro_decode(rails, wanted, data, taken, &given) == -ENOSPC);
    return 0;
}
