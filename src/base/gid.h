/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* GIDs as addresses: 16 bytes, IPv6 or an IPv4 address mapped into it. */
#ifndef GPUSYS_BASE_GID_H
#define GPUSYS_BASE_GID_H

#include <stdbool.h>
#include <stdint.h>

enum { GS_GID_TEXT_BYTES = 48 };

bool gs_gid_is_ipv4(const uint8_t gid[16]);

/* "10.0.0.1" or IPv6 notation. Returns `text`. */
const char *gs_gid_text(char text[GS_GID_TEXT_BYTES], const uint8_t gid[16]);

#endif
