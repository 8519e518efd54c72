/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From what a caller names ("mlx5_0:2", "ens1f0", "10.0.0.1", "any") to a port and its GID. */
#ifndef GPUSYS_RAIL_VERBS_FIND_H
#define GPUSYS_RAIL_VERBS_FIND_H

#include "rail/verbs_gid.h"
#include "rail/verbs_ports.h"

/* What was asked for, taken apart. */
struct gs_target {
    char name[64];       /* a device or an interface; empty: any */
    uint32_t port;       /* of that device; 0: any */
    char netdev[16];     /* the interface that has the address that was given; empty: none was */
    const char *address; /* that address; NULL: none was */
};

/* `text` may be NULL and must outlive the target. -ENODEV: an address that is not of this host. */
int gs_target_parse(struct gs_target *ret_target, const char *text, struct gpusys_error *error);

/* Is any port of the snapshot meant, whatever its state? */
bool gs_target_is_in(const struct gs_target *target, const struct gpusys_ports *ports);

/*
 * The port in a snapshot; where several answer, one whose GID has the local address, then the first that can be used.
 * `flags` are those of gpusys_verbs_open. NULL with *ret_code and the error when there is none, or none that can
 * be used.
 */
struct gs_port *gs_port_find(const struct gpusys_ports *ports, const struct gs_target *target, uint32_t flags,
                             int *ret_code, struct gpusys_error *error);

/* The interface that the target names, if it is one: GIDs of that one are meant. NULL: any. */
const char *gs_target_netdev(const struct gs_target *target, const struct gs_port *port);

/* The best GID of that interface (NULL: of any). NULL: none can be used. */
const struct gs_gid *gs_port_best_gid(const struct gs_port *port, const char *netdev);

/* The GID at a fixed index. NULL, with the error (-EINVAL), when it is empty, beyond the table or of no use for the
 * aim. */
const struct gs_gid *gs_port_gid_at(const struct gs_port *port, uint32_t index, const struct gs_gid_aim *aim,
                                    struct gpusys_error *error);

#endif
