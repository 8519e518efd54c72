/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Finding the port and the GID that are meant, and saying what there is when they are not. */
#include "rail/verbs_find.h"

#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the target ---- */

static bool find_interface(const uint8_t address[16], char netdev[16])
{
    struct ifaddrs *list;
    bool found = false;
    if (getifaddrs(&list))
        return false;
    for (const struct ifaddrs *entry = list; entry && !found; entry = entry->ifa_next) {
        found = gs_interface_has(entry, address);
        if (found)
            snprintf(netdev, 16, "%.15s", entry->ifa_name);
    }
    freeifaddrs(list);
    return found;
}

/* "mlx5_0:2": a number behind the last colon is the port. */
static void split_port(struct gs_target *target)
{
    char *colon = strrchr(target->name, ':'), *end;
    if (!colon || !isdigit((unsigned char)colon[1]))
        return;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end || port == 0 || port > 255)
        return;
    *colon = 0;
    target->port = (uint32_t)port;
}

int gs_target_parse(struct gs_target *ret_target, const char *text, struct gpusys_error *error)
{
    struct gs_target target = {.port = 0};
    uint8_t address[16];
    if (!text || strcmp(text, "any") == 0)
        text = "";
    if (strlen(text) >= sizeof target.name)
        return gpusys_error_set(error, -ENODEV, "no RDMA device is called \"%.80s...\"", text);
    if (text[0] && gs_gid_of_address(address, text) == 0) {
        target.address = text;
        if (!find_interface(address, target.netdev)) {
            gpusys_error_set(error, -ENODEV, "%s is not an address of this host", text);
            gpusys_error_set_hint(error, "ip -br address shows those that are");
            return -ENODEV;
        }
    } else {
        snprintf(target.name, sizeof target.name, "%s", text);
        split_port(&target);
    }
    *ret_target = target;
    return 0;
}

/* ---- the port ---- */

static bool has_netdev(const struct gs_port *port, const char *netdev)
{
    if (strcmp(port->info.netdev, netdev) == 0)
        return true;
    for (uint32_t i = 0; i < port->info.n_gids; i++)
        if (strcmp(port->gids[i].info.netdev, netdev) == 0)
            return true;
    return false;
}

static bool has_address(const struct gs_port *port, const char *address)
{
    uint8_t gid[16];
    if (gs_gid_of_address(gid, address))
        return false;
    for (uint32_t i = 0; i < port->info.n_gids; i++)
        if (memcmp(port->gids[i].info.gid, gid, sizeof gid) == 0)
            return true;
    return false;
}

static bool matches(const struct gs_port *port, const struct gs_target *target)
{
    if (target->address)
        return has_address(port, target->address) || has_netdev(port, target->netdev);
    if (!target->name[0])
        return true;
    if (target->port)
        return strcmp(port->info.device, target->name) == 0 && port->info.port == target->port;
    return strcmp(port->info.device, target->name) == 0 || has_netdev(port, target->name);
}

bool gs_target_is_in(const struct gs_target *target, const struct gpusys_ports *ports)
{
    for (uint32_t i = 0; i < ports->n_ports; i++)
        if (matches(&ports->ports[i], target))
            return true;
    return false;
}

const char *gs_target_netdev(const struct gs_target *target, const struct gs_port *port)
{
    if (target->address)
        return target->netdev;
    return target->name[0] && strcmp(port->info.device, target->name) != 0 ? target->name : NULL;
}

/* Is nothing amiss with it that these flags do not allow? */
static bool suits(const struct gs_port *port, uint32_t flags)
{
    return !port->code || (port->code == -ENETDOWN && (flags & GPUSYS_VERBS_DOWN_OK)) ||
           (port->code == -EADDRNOTAVAIL && (flags & GPUSYS_VERBS_GID_INDEX));
}

static bool has_local_gid(const struct gs_port *port)
{
    return port->info.n_gids && (port->gids[0].score & GS_GID_SCORE_LOCAL);
}

/* One row for a port: what it is and what is wrong with it. */
static void add_row(struct gpusys_error *error, const struct gs_port *port)
{
    char name[80];
    const struct gpusys_port_info *info = &port->info;
    const struct gpusys_gid_info *gid = info->n_gids ? &port->gids[0].info : NULL;
    snprintf(name, sizeof name, info->port ? "%s:%u" : "%s", info->device, info->port);
    if (port->code)
        gpusys_error_add_detail(error, name, "%s", info->problem);
    else
        gpusys_error_add_detail(error, name, "%s%s%s%s%s", gs_port_state_text(info->state),
                                info->netdev[0] ? ", " : "", info->netdev, gid ? ", " : "",
                                gid ? gid->text : "");
}

static void add_rows(struct gpusys_error *error, const struct gpusys_ports *ports)
{
    for (uint32_t i = 0; i < ports->n_ports; i++)
        add_row(error, &ports->ports[i]);
}

static int not_found(const struct gpusys_ports *ports, const struct gs_target *target,
                     struct gpusys_error *error)
{
    if (!ports->n_ports)
        return gs_ports_none(error);
    const char *netdev = target->address ? target->netdev : target->name;
    bool is_interface = !target->port && if_nametoindex(netdev);
    if (target->port)
        gpusys_error_set(error, -ENODEV, "there is no RDMA device %s with a port %u", target->name,
                         target->port);
    else if (is_interface)
        gpusys_error_set(error, -ENODEV, "no RDMA device sits on the interface %s%s%s", netdev,
                         target->address ? ", which has " : "", target->address ? target->address : "");
    else
        gpusys_error_set(error, -ENODEV, "no RDMA device or interface is called \"%s\"", target->name);
    add_rows(error, ports);
    if (is_interface)
        gpusys_error_set_hint(
            error, "name one of these; without hardware: rdma link add rxe0 type rxe netdev %s", netdev);
    else
        gpusys_error_set_hint(error, "name one of these: DEVICE, DEVICE:PORT, its interface or its address");
    return -ENODEV;
}

static int unusable(const struct gpusys_ports *ports, const struct gs_target *target,
                    const struct gs_port *first, struct gpusys_error *error)
{
    const struct gpusys_port_info *info = &first->info;
    if (!target->name[0] && !target->address) {
        gpusys_error_set(error, first->code, "no RDMA port can be used");
        add_rows(error, ports);
    } else if (info->port) {
        gpusys_error_set(error, first->code, "%s port %u: %s", info->device, info->port, info->problem);
        for (uint32_t i = 0; i < info->n_gids && i < 4; i++)
            gpusys_error_add_detail(error, "GID", "%u %s: %s", first->gids[i].info.index,
                                    first->gids[i].info.text, first->gids[i].info.reason);
    } else {
        gpusys_error_set(error, first->code, "%s: %s", info->device, info->problem);
    }
    gpusys_error_set_hint(error, "%s", first->remedy);
    return first->code;
}

struct gs_port *gs_port_find(const struct gpusys_ports *ports, const struct gs_target *target, uint32_t flags,
                             int *ret_code, struct gpusys_error *error)
{
    struct gs_port *found = NULL, *first = NULL;
    for (uint32_t i = 0; i < ports->n_ports; i++) {
        struct gs_port *port = &ports->ports[i];
        if (!matches(port, target))
            continue;
        if (!first || (!first->info.state && port->info.state))
            first = port; /* one that opens says more when it fails */
        if (suits(port, flags) && (!found || (!has_local_gid(found) && has_local_gid(port))))
            found = port;
    }
    *ret_code = found ? 0 : first ? unusable(ports, target, first, error) : not_found(ports, target, error);
    return found;
}

/* ---- the GID ---- */

const struct gs_gid *gs_port_best_gid(const struct gs_port *port, const char *netdev)
{
    for (uint32_t i = 0; i < port->info.n_gids; i++) {
        const struct gs_gid *gid = &port->gids[i];
        if (gid->info.usable && (!netdev || strcmp(gid->info.netdev, netdev) == 0))
            return gid;
    }
    return netdev ? gs_port_best_gid(port, NULL) : NULL;
}

static const struct gs_gid *gid_with_index(const struct gs_port *port, uint32_t index)
{
    for (uint32_t i = 0; i < port->info.n_gids; i++)
        if (port->gids[i].info.index == index)
            return &port->gids[i];
    return NULL;
}

/* Both sides' values, and the GID to use instead. */
static void add_gids(struct gpusys_error *error, const struct gs_port *port, const struct gs_gid *gid,
                     const struct gs_gid_aim *aim)
{
    char text[GS_GID_TEXT_BYTES];
    const struct gs_gid *best = gs_port_best_gid(port, NULL);
    if (gid)
        gpusys_error_add_detail(error, "local", "GID %u %s (%s)", gid->info.index, gid->info.text,
                                gs_gid_type_text(gid->info.type));
    if (aim->has_peer) {
        gs_gid_text(text, aim->peer);
        gpusys_error_add_detail(error, "peer", "%s", text);
    }
    if (best && best != gid)
        gpusys_error_set_hint(error, "use GID index %u (%s, %s), or name none", best->info.index,
                              best->info.text, gs_gid_type_text(best->info.type));
    else
        gpusys_error_set_hint(error, "gpusys rails shows the GIDs of every port");
}

const struct gs_gid *gs_port_gid_at(const struct gs_port *port, uint32_t index, const struct gs_gid_aim *aim,
                                    struct gpusys_error *error)
{
    const char *device = port->info.device, *why;
    uint32_t number = port->info.port;
    const struct gs_gid *gid = gid_with_index(port, index);
    if (index >= GS_GIDS_MAX)
        gpusys_error_set(error, -EINVAL,
                         "%s port %u: GID index %u is above %d, the largest that drivers take", device,
                         number, index, GS_GIDS_MAX - 1);
    else if ((int)index >= port->attributes.gid_tbl_len)
        gpusys_error_set(error, -EINVAL, "%s port %u: GID index %u is beyond the table, which has %d entries",
                         device, number, index, port->attributes.gid_tbl_len);
    else if (!gid)
        gpusys_error_set(error, -EINVAL, "%s port %u: GID index %u is empty", device, number, index);
    else if (!gid->info.usable)
        gpusys_error_set(error, -EINVAL, "%s port %u: GID index %u is %s", device, number, index,
                         gid->info.reason);
    else if (gs_gid_misfits(&gid->info, aim, &why))
        gpusys_error_set(error, -EINVAL, "%s port %u: GID index %u does not reach the peer: %s", device,
                         number, index, why);
    else
        return gid;
    add_gids(error, port, gid, aim);
    return NULL;
}
