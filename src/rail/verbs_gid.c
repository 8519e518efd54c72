/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The GID table of a port: read, judged and ranked. */
#include "rail/verbs_gid.h"
#include "base/address.h"
#include "rail/verbs_ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a GID says ---- */

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static const char *family_text(const uint8_t gid[16])
{
    return gs_gid_is_ipv4(gid) ? "IPv4" : "IPv6";
}

/* Private addresses (10/8, fc00::/7 and so on) are routed like any other: only these are not. */
static bool is_link_local(const uint8_t gid[16])
{
    if (gs_gid_is_ipv4(gid))
        return gid[12] == 169 && gid[13] == 254;
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

static bool is_empty(const uint8_t gid[16])
{
    static const uint8_t zeros[16];
    return memcmp(gid, zeros, sizeof zeros) == 0;
}

const char *gs_gid_type_text(uint32_t type)
{
    static const char *const names[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
    return type < sizeof names / sizeof *names ? names[type] : "unknown type";
}

static void gid_of_ipv4(uint8_t ret_gid[16], const void *address)
{
    memcpy(ret_gid, mapped_prefix, sizeof mapped_prefix);
    memcpy(ret_gid + sizeof mapped_prefix, address, 4);
}

int gs_gid_of_address(uint8_t ret_gid[16], const char *address)
{
    struct gs_address parts;
    struct in_addr ipv4;
    struct in6_addr ipv6;
    if (gs_address_parse(&parts, address, NULL) || parts.is_unix)
        return -EINVAL;
    parts.host[strcspn(parts.host, "%")] = 0; /* the interface that a link-local address is on */
    if (inet_pton(AF_INET, parts.host, &ipv4) == 1)
        gid_of_ipv4(ret_gid, &ipv4);
    else if (inet_pton(AF_INET6, parts.host, &ipv6) == 1)
        memcpy(ret_gid, &ipv6, sizeof ipv6);
    else
        return -EINVAL;
    return 0;
}

/* ---- judging ---- */

void gs_gid_aim(struct gs_gid_aim *ret_aim, uint32_t link_layer, const char *local_address,
                const uint8_t *peer)
{
    *ret_aim = (struct gs_gid_aim){.link_layer = link_layer, .has_peer = peer && !is_empty(peer)};
    ret_aim->has_local = local_address && gs_gid_of_address(ret_aim->local, local_address) == 0;
    if (ret_aim->has_peer)
        memcpy(ret_aim->peer, peer, sizeof ret_aim->peer);
}

bool gs_gid_misfits(const struct gpusys_gid_info *gid, const struct gs_gid_aim *aim, const char **ret_why)
{
    if (!aim->has_peer || aim->link_layer != GPUSYS_LINK_ETHERNET)
        return false;
    if (gs_gid_is_ipv4(gid->gid) != gs_gid_is_ipv4(aim->peer))
        *ret_why = gs_gid_is_ipv4(aim->peer) ? "it is an IPv6 address and the peer's is IPv4"
                                             : "it is an IPv4 address and the peer's is IPv6";
    else if (is_link_local(gid->gid) && !is_link_local(aim->peer))
        *ret_why = "it is link-local and the peer's is not";
    else
        return false;
    return true;
}

static bool is_local(const struct gpusys_gid_info *gid, const struct gs_gid_aim *aim)
{
    return aim->has_local && gid->type == GPUSYS_GID_ROCE_V2 && memcmp(gid->gid, aim->local, 16) == 0;
}

/* A peer that is known by a link-local address is reached from one; all others from a global one. */
static bool scope_suits(const struct gpusys_gid_info *gid, const struct gs_gid_aim *aim)
{
    bool peer_is_near = aim->has_peer && is_link_local(aim->peer);
    return is_link_local(gid->gid) == peer_is_near;
}

static unsigned roce_score(const struct gpusys_gid_info *gid, const struct gs_gid_aim *aim)
{
    unsigned score = 1;
    if (is_local(gid, aim))
        score |= GS_GID_SCORE_LOCAL;
    if (gid->type == GPUSYS_GID_ROCE_V2)
        score |= GS_GID_SCORE_TYPE;
    if (scope_suits(gid, aim))
        score |= GS_GID_SCORE_SCOPE;
    if (aim->has_peer && gs_gid_is_ipv4(gid->gid) == gs_gid_is_ipv4(aim->peer))
        score |= GS_GID_SCORE_FAMILY;
    return score;
}

static const char *scope_text(const struct gpusys_gid_info *gid, const struct gs_gid_aim *aim)
{
    bool peer_is_near = aim->has_peer && is_link_local(aim->peer);
    if (!is_link_local(gid->gid))
        return peer_is_near ? "global while the peer is link-local" : "global";
    if (peer_is_near)
        return "link-local like the peer";
    return aim->has_peer ? "link-local while the peer is not" : "link-local, of use on its own segment only";
}

static void explain_roce(struct gpusys_gid_info *gid, const struct gs_gid_aim *aim)
{
    const char *type =
        gid->type == GPUSYS_GID_ROCE_V1 ? "RoCE v1, which is not routed" : gs_gid_type_text(gid->type);
    bool same = aim->has_peer && gs_gid_is_ipv4(gid->gid) == gs_gid_is_ipv4(aim->peer);
    if (is_local(gid, aim))
        snprintf(gid->reason, sizeof gid->reason, "%s, the address of the control connection", type);
    else if (!aim->has_peer)
        snprintf(gid->reason, sizeof gid->reason, "%s, %s", type, scope_text(gid, aim));
    else
        snprintf(gid->reason, sizeof gid->reason, "%s, %s, %s %s", type, scope_text(gid, aim),
                 family_text(gid->gid), same ? "like the peer" : "while the peer has the other");
}

static void judge_infiniband(struct gs_gid *gid)
{
    gid->info.usable = 1;
    gid->score = gid->info.index == 0 ? 1 | GS_GID_SCORE_TYPE : 1;
    snprintf(gid->info.reason, sizeof gid->info.reason, "%s",
             gid->info.index == 0
                 ? "the port GID; InfiniBand is addressed by LID, with the GID only where it must be"
                 : "another GID of the port; the first one serves");
}

/* Cannot be used: say why. */
static void rule_out(struct gs_gid *gid, enum gs_gid_place place)
{
    const char *netdev = gid->info.netdev[0] ? gid->info.netdev : "its interface";
    gid->info.usable = 0;
    gid->score = 0;
    if (place == GS_GID_DOWN)
        snprintf(gid->info.reason, sizeof gid->info.reason, "not usable: %s is down", netdev);
    else
        snprintf(gid->info.reason, sizeof gid->info.reason,
                 "not usable: %s belongs to another network namespace", netdev);
}

void gs_gid_judge(struct gs_gid *gid, enum gs_gid_place place, const struct gs_gid_aim *aim)
{
    if (aim->link_layer != GPUSYS_LINK_ETHERNET) {
        judge_infiniband(gid);
        return;
    }
    if (place == GS_GID_DOWN || place == GS_GID_ELSEWHERE) {
        rule_out(gid, place);
        return;
    }
    gid->info.usable = 1;
    gid->score = roce_score(&gid->info, aim);
    explain_roce(&gid->info, aim);
}

static int compare(const void *left, const void *right)
{
    const struct gs_gid *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->info.index < b->info.index ? -1 : a->info.index > b->info.index;
}

void gs_gid_sort(struct gs_gid *gids, unsigned n)
{
    if (n > 1)
        qsort(gids, n, sizeof *gids, compare);
}

/* ---- reading ---- */

/* The port whose table is read. */
struct source {
    const struct gs_ibv *ibv;
    struct ibv_context *context;
    uint32_t port;
    uint32_t link_layer;
    struct ifaddrs *addresses; /* of this network namespace; NULL when they cannot be had */
};

static uint32_t type_of(const struct source *source, uint32_t foreign)
{
    if (source->link_layer != GPUSYS_LINK_ETHERNET)
        return GPUSYS_GID_INFINIBAND;
    return foreign == IBV_GID_TYPE_ROCE_V2 ? GPUSYS_GID_ROCE_V2 : GPUSYS_GID_ROCE_V1;
}

static bool read_attribute(const struct source *source, const char *attribute, uint32_t index, char *line,
                           size_t size)
{
    return gs_sysfs_read(line, size, "%s/ports/%u/gid_attrs/%s/%u", source->context->device->ibdev_path,
                         source->port, attribute, index);
}

/* An older library knows the bytes alone; the kernel's files say the rest. */
static bool read_old_entry(const struct source *source, uint32_t index, struct ibv_gid_entry *ret_entry)
{
    char line[32] = "";
    *ret_entry = (struct ibv_gid_entry){.gid_index = index, .port_num = source->port};
    if (source->ibv->query_gid(source->context, (uint8_t)source->port, (int)index, &ret_entry->gid))
        return false;
    read_attribute(source, "types", index, line, sizeof line);
    ret_entry->gid_type = strstr(line, "v2") ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    return true;
}

static bool read_entry(const struct source *source, uint32_t index, struct ibv_gid_entry *ret_entry)
{
    if (!source->ibv->query_gid_ex)
        return read_old_entry(source, index, ret_entry);
    int result =
        source->ibv->query_gid_ex(source->context, source->port, index, ret_entry, 0, sizeof *ret_entry);
    return !result || (gs_ibv_errno(result) == -EOPNOTSUPP && read_old_entry(source, index, ret_entry));
}

/* Every address of 127/8 is that of the loopback interface, whatever its list says. */
bool gs_interface_has(const struct ifaddrs *entry, const uint8_t gid[16])
{
    uint8_t theirs[16];
    if (!entry->ifa_addr)
        return false;
    if ((entry->ifa_flags & IFF_LOOPBACK) && gs_gid_is_ipv4(gid) && gid[12] == 127)
        return true;
    if (entry->ifa_addr->sa_family == AF_INET)
        gid_of_ipv4(theirs, &((const struct sockaddr_in *)(const void *)entry->ifa_addr)->sin_addr);
    else if (entry->ifa_addr->sa_family == AF_INET6)
        memcpy(theirs, &((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr, 16);
    else
        return false;
    return memcmp(theirs, gid, 16) == 0;
}

/*
 * The kernel gives name and number of an interface whatever namespace it is in, and both may stand for another
 * interface here. The address tells them apart: a GID goes when its address does. (The link-local one stays
 * without an address, and proves nothing.)
 */
static enum gs_gid_place place_of(const struct source *source, const struct gpusys_gid_info *gid,
                                  uint32_t number)
{
    bool is_here = false, is_up = false, address_is_here = is_link_local(gid->gid) || !source->addresses;
    if (!gid->netdev[0])
        return number ? GS_GID_ELSEWHERE : GS_GID_UNBOUND;
    if (number && if_nametoindex(gid->netdev) != number)
        return GS_GID_ELSEWHERE;
    for (const struct ifaddrs *entry = source->addresses; entry; entry = entry->ifa_next) {
        bool same = strcmp(entry->ifa_name, gid->netdev) == 0;
        is_here |= same;
        is_up |= same && (entry->ifa_flags & IFF_UP);
        address_is_here |= gs_interface_has(entry, gid->gid);
    }
    if (source->addresses && !is_here)
        return GS_GID_ELSEWHERE;
    if (source->addresses && !is_up)
        return GS_GID_DOWN;
    return address_is_here ? GS_GID_HERE : GS_GID_ELSEWHERE;
}

/* The kernel's file names the interface even when it is down, when the library does not. */
static void name_netdev(const struct source *source, struct gpusys_gid_info *gid, uint32_t number)
{
    char name[IF_NAMESIZE];
    if (!read_attribute(source, "ndevs", gid->index, gid->netdev, sizeof gid->netdev) && number &&
        if_indextoname(number, name))
        snprintf(gid->netdev, sizeof gid->netdev, "%s", name);
}

static bool read_gid(const struct source *source, uint32_t index, const struct gs_gid_aim *aim,
                     struct gs_gid *ret_gid)
{
    struct ibv_gid_entry entry = {0};
    if (!read_entry(source, index, &entry) || is_empty(entry.gid.raw))
        return false;
    struct gpusys_gid_info *info = &ret_gid->info;
    *ret_gid = (struct gs_gid){.info = {.size = sizeof *info, .index = index}};
    memcpy(info->gid, entry.gid.raw, sizeof info->gid);
    info->type = type_of(source, entry.gid_type);
    gs_gid_text(info->text, info->gid);
    if (source->link_layer == GPUSYS_LINK_ETHERNET)
        name_netdev(source, info, entry.ndev_ifindex);
    enum gs_gid_place place = place_of(source, info, entry.ndev_ifindex);
    gs_gid_judge(ret_gid, place, aim);
    if (place == GS_GID_ELSEWHERE && !info->usable)
        info->netdev[0] = 0;
    return true;
}

unsigned gs_gids_read(const struct gs_ibv *ibv, struct ibv_context *context, uint32_t port,
                      const struct ibv_port_attr *attributes, const char *local_address, const uint8_t *peer,
                      struct gs_gid *ret_gids)
{
    struct source source = {.ibv = ibv, .context = context, .port = port};
    struct gs_gid_aim aim;
    unsigned count = 0;
    source.link_layer = gs_link_layer(context, attributes);
    gs_gid_aim(&aim, source.link_layer, local_address, peer);
    if (getifaddrs(&source.addresses))
        source.addresses = NULL;
    for (uint32_t index = 0; index < GS_GIDS_MAX && (int)index < attributes->gid_tbl_len; index++)
        count += read_gid(&source, index, &aim, &ret_gids[count]);
    if (source.addresses)
        freeifaddrs(source.addresses);
    gs_gid_sort(ret_gids, count);
    return count;
}
