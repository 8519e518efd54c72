/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/gid.h"

#include <arpa/inet.h>
#include <string.h>

enum { PREFIX_BYTES = 12 };

bool gs_gid_is_ipv4(const uint8_t gid[16])
{
    static const uint8_t mapped[PREFIX_BYTES] = {[10] = 0xFF, [11] = 0xFF};
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

const char *gs_gid_text(char text[GS_GID_TEXT_BYTES], const uint8_t gid[16])
{
    bool is_ipv4 = gs_gid_is_ipv4(gid);
    if (!inet_ntop(is_ipv4 ? AF_INET : AF_INET6, is_ipv4 ? gid + PREFIX_BYTES : gid, text, GS_GID_TEXT_BYTES))
        text[0] = 0;
    return text;
}
