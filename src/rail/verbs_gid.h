/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* GIDs: what they say, and which one to be known by. Judging is apart from reading, so that it needs no device. */
#ifndef GPUSYS_RAIL_VERBS_GID_H
#define GPUSYS_RAIL_VERBS_GID_H

#include "base/gid.h"
#include "rail/verbs.h"

/* Where the network interface of a GID is. */
enum gs_gid_place {
    GS_GID_UNBOUND,   /* it has none, or none is known */
    GS_GID_HERE,      /* up, in this network namespace */
    GS_GID_DOWN,      /* in this namespace, not up */
    GS_GID_ELSEWHERE, /* in another namespace */
};

/* What a GID is judged for. */
struct gs_gid_aim {
    uint32_t link_layer; /* enum gpusys_link_layer */
    bool has_local, has_peer;
    uint8_t local[16]; /* our end of the control connection, mapped */
    uint8_t peer[16];  /* the peer's GID or mapped address */
};

/* The bits of gs_gid.score, beside 1 for any that is usable. */
enum {
    GS_GID_SCORE_LOCAL = 64, /* RoCE v2, with the address of the control connection */
    GS_GID_SCORE_TYPE = 32,  /* RoCE v2; InfiniBand: the port GID */
    GS_GID_SCORE_SCOPE = 16, /* reaches as far as the peer may be */
    GS_GID_SCORE_FAMILY = 8, /* the peer's */
};

void gs_gid_aim(struct gs_gid_aim *ret_aim, uint32_t link_layer, const char *local_address,
                const uint8_t *peer);

/* Fill in usable, reason and score of one whose gid, type, index and netdev are known. */
void gs_gid_judge(struct gs_gid *gid, enum gs_gid_place place, const struct gs_gid_aim *aim);

/* The best first, those of equal rank in the order of the table. */
void gs_gid_sort(struct gs_gid *gids, unsigned n);

/* Can this GID not reach that peer, whatever the port? Then *ret_why says why. */
bool gs_gid_misfits(const struct gpusys_gid_info *gid, const struct gs_gid_aim *aim, const char **ret_why);

const char *gs_gid_type_text(uint32_t type);

/* The GID of an IP address, with or without a port behind it ("10.0.0.1:7471", "[fe80::1%eth0]:7471"). -EINVAL. */
int gs_gid_of_address(uint8_t ret_gid[16], const char *address);

/* Does an entry of getifaddrs have that address? */
struct ifaddrs;
bool gs_interface_has(const struct ifaddrs *entry, const uint8_t gid[16]);

#endif
