/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "rail/verbs_end.h"

#include "base/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gpusys/remote.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

int gs_verbs_end_new(struct gs_verbs_end **ret_end, struct gpusys_verbs *verbs, struct gpusys_pd *pd)
{
    struct gs_verbs_end *end = calloc(1, sizeof *end);
    if (!end)
        return -ENOMEM;
    atomic_init(&end->holders, 1);
    end->verbs = verbs;
    end->pd = pd;
    end->port.size = sizeof end->port;
    end->gid.size = sizeof end->gid;
    gpusys_verbs_info(verbs, &end->port, &end->gid);
    *ret_end = end;
    return 0;
}

int gs_verbs_end_open(struct gs_verbs_end **ret_end, const struct gpusys_verbs_options *options,
                      struct gpusys_error *error)
{
    struct gpusys_verbs *verbs;
    struct gpusys_pd *pd;
    int result = gpusys_verbs_open(&verbs, options, error);
    if (result)
        return result;
    result = gpusys_pd_open(&pd, verbs, error);
    if (result) {
        gpusys_verbs_close(verbs);
        return result;
    }
    result = gs_verbs_end_new(ret_end, verbs, pd);
    if (result) {
        gpusys_pd_close(pd);
        gpusys_verbs_close(verbs);
    }
    return result ? gpusys_error_set_errno(error, result, "a rail's end") : 0;
}

struct gs_verbs_end *gs_verbs_end_hold(struct gs_verbs_end *end)
{
    atomic_fetch_add(&end->holders, 1);
    return end;
}

void gs_verbs_end_drop(struct gs_verbs_end *end)
{
    if (!end || atomic_fetch_sub(&end->holders, 1) != 1)
        return;
    for (uint32_t i = 0; i < end->n_landings; i++)
        gpusys_mr_close(end->landings[i].mr);
    free(end->landings);
    gpusys_pd_close(end->pd);
    gpusys_verbs_close(end->verbs);
    free(end);
}

/* ---- landings ---- */

static int make_room(struct gs_verbs_end *end)
{
    if (end->n_landings < end->landings_size)
        return 0;
    uint32_t size = end->landings_size ? 2 * end->landings_size : 8;
    struct gs_landing *landings = realloc(end->landings, size * sizeof *landings);
    if (!landings)
        return -ENOMEM;
    end->landings = landings;
    end->landings_size = size;
    return 0;
}

static int register_piece(struct gs_verbs_end *end, uint64_t owner, uint64_t address, uint64_t length,
                          struct gpusys_error *error)
{
    struct gs_landing landing = {.address = address, .length = length, .owner = owner};
    struct gpusys_mr_info info = {.size = sizeof info};
    if (make_room(end))
        return gpusys_error_set_errno(error, -ENOMEM, "a registration");
    int result =
        gpusys_mr_open(&landing.mr, end->pd, (void *)(uintptr_t)address, length, GPUSYS_MR_LANDING, error);
    if (result)
        return result;
    gpusys_mr_info(landing.mr, &info);
    landing.lkey = info.lkey;
    end->landings[end->n_landings++] = landing;
    return 0;
}

int gs_verbs_end_register(struct gs_verbs_end *end, void *address, uint64_t length,
                          struct gpusys_error *error)
{
    uint64_t base = (uintptr_t)address, most = end->port.max_mr_bytes & ~(uint64_t)4095;
    int result = length ? 0 : gpusys_error_set(error, -EINVAL, "0 bytes are no memory to register");
    for (uint64_t at = 0; at < length && !result;) {
        uint64_t piece = most && length - at > most ? most : length - at;
        result = register_piece(end, base, base + at, piece, error);
        at += piece;
    }
    if (result)
        gs_verbs_end_forget(end, address);
    return result;
}

bool gs_verbs_end_forget(struct gs_verbs_end *end, const void *address)
{
    bool found = false;
    for (uint32_t i = 0; i < end->n_landings;) {
        if (end->landings[i].owner != (uintptr_t)address) {
            i++;
            continue;
        }
        gpusys_mr_close(end->landings[i].mr);
        end->landings[i] = end->landings[--end->n_landings];
        found = true;
    }
    return found;
}

/* ---- pairing ---- */

void gs_verbs_end_describe(const struct gs_verbs_end *end, struct gs_rail_record *ret_record)
{
    const struct gpusys_port_info *port = &end->port;
    *ret_record =
        (struct gs_rail_record){.transport = GPUSYS_TRANSPORT_VERBS,
                                .link_layer = gs_record_link_layer(port->link_layer, port->grh_required),
                                .lid = (uint16_t)port->lid,
                                .gid_index = (uint16_t)end->gid.index,
                                .mtu_bytes = (uint16_t)port->mtu_bytes,
                                .reads_out = (uint8_t)(port->reads_out < 255 ? port->reads_out : 255),
                                .reads_in = (uint8_t)(port->reads_in < 255 ? port->reads_in : 255),
                                .numa_node = (int16_t)port->numa_node};
    memcpy(ret_record->gid, end->gid.gid, sizeof ret_record->gid);
    size_t length = strnlen(port->device, sizeof ret_record->device - 1);
    memcpy(ret_record->device, port->device, length);
}

struct address {
    int family;
    uint8_t bytes[16], mask[16]; /* IPv4: the first four */
    size_t size;
};

static bool address_of(const struct ifaddrs *entry, struct address *ret_address)
{
    *ret_address = (struct address){.size = 0};
    if (!entry->ifa_addr || !entry->ifa_netmask)
        return false;
    ret_address->family = entry->ifa_addr->sa_family;
    if (ret_address->family == AF_INET) {
        ret_address->size = 4;
        memcpy(ret_address->bytes, &((const struct sockaddr_in *)(const void *)entry->ifa_addr)->sin_addr, 4);
        memcpy(ret_address->mask, &((const struct sockaddr_in *)(const void *)entry->ifa_netmask)->sin_addr,
               4);
    } else if (ret_address->family == AF_INET6) {
        ret_address->size = 16;
        memcpy(ret_address->bytes, &((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr,
               16);
        memcpy(ret_address->mask, &((const struct sockaddr_in6 *)(const void *)entry->ifa_netmask)->sin6_addr,
               16);
    }
    return ret_address->size > 0;
}

/* A GID as an address of the family; NULL: it is of the other. */
static const uint8_t *as_family(const uint8_t gid[16], int family)
{
    bool is_ipv4 = gs_gid_is_ipv4(gid);
    return is_ipv4 != (family == AF_INET) ? NULL : is_ipv4 ? gid + 12 : gid;
}

/* Is the peer's GID in the subnet of this address of ours? */
static bool contains(const struct address *ours, const uint8_t gid[16])
{
    const uint8_t *theirs = as_family(gid, ours->family);
    bool same = theirs, masked = false;
    for (size_t i = 0; i < ours->size && same; i++) {
        same = ((ours->bytes[i] ^ theirs[i]) & ours->mask[i]) == 0;
        masked |= ours->mask[i] != 0;
    }
    return same && masked;
}

/* Has this port a GID with that very address? Then its index. */
static bool has_gid(const struct gs_verbs_end *end, const struct address *ours, const uint8_t peer[16],
                    uint32_t *ret_index)
{
    char text[INET6_ADDRSTRLEN];
    struct gpusys_gid_info gid = {.size = sizeof gid};
    if (!inet_ntop(ours->family, ours->bytes, text, sizeof text) ||
        gpusys_verbs_gid_for(end->verbs, text, peer, &gid) || !gid.usable)
        return false;
    const uint8_t *found = as_family(gid.gid, ours->family);
    *ret_index = gid.index;
    return found && memcmp(found, ours->bytes, ours->size) == 0;
}

struct pairing {
    struct gs_verbs_end *const *ends;
    const struct gs_rail_record *offers;
    unsigned n_ends, n_offers, n;
    bool end_used[GS_RAILS_MAX], offer_used[GS_RAILS_MAX];
    struct gs_verbs_pair *pairs;
};

static void join(struct pairing *pairing, unsigned end, unsigned offer, uint32_t gid_index, bool same_subnet)
{
    pairing->end_used[end] = pairing->offer_used[offer] = true;
    pairing->pairs[pairing->n++] = (struct gs_verbs_pair){.end = gs_verbs_end_hold(pairing->ends[end]),
                                                          .gid_index = gid_index,
                                                          .offer = (uint8_t)offer,
                                                          .peer = pairing->offers[offer],
                                                          .same_subnet = same_subnet};
}

static bool may_join(const struct pairing *pairing, unsigned end, unsigned offer)
{
    const struct gs_rail_record *record = &pairing->offers[offer];
    return !pairing->end_used[end] && !pairing->offer_used[offer] &&
           record->transport == GPUSYS_TRANSPORT_VERBS && record->mtu_bytes &&
           pairing->ends[end]->port.link_layer == gs_link_layer_of(record);
}

static void pair_infiniband(struct pairing *pairing, unsigned offer)
{
    for (unsigned end = 0; end < pairing->n_ends; end++) {
        const struct gpusys_gid_info *gid = &pairing->ends[end]->gid;
        if (may_join(pairing, end, offer) && memcmp(gid->gid, pairing->offers[offer].gid, 8) == 0)
            join(pairing, end, offer, gid->index, true);
    }
}

static void pair_subnet(struct pairing *pairing, unsigned offer, const struct ifaddrs *addresses)
{
    const struct gs_rail_record *record = &pairing->offers[offer];
    struct address ours;
    uint32_t gid_index;
    if (gs_link_layer_of(record) == GPUSYS_LINK_INFINIBAND)
        pair_infiniband(pairing, offer);
    for (const struct ifaddrs *entry = addresses; entry; entry = entry->ifa_next) {
        if (!address_of(entry, &ours) || !contains(&ours, record->gid))
            continue;
        for (unsigned end = 0; end < pairing->n_ends; end++)
            if (may_join(pairing, end, offer) && has_gid(pairing->ends[end], &ours, record->gid, &gid_index))
                join(pairing, end, offer, gid_index, true);
    }
}

static void pair_rest(struct pairing *pairing, unsigned offer, const char *local_address)
{
    struct gpusys_gid_info gid = {.size = sizeof gid};
    for (unsigned end = 0; end < pairing->n_ends; end++)
        if (may_join(pairing, end, offer) &&
            gpusys_verbs_gid_for(pairing->ends[end]->verbs, local_address, pairing->offers[offer].gid,
                                 &gid) == 0 &&
            gid.usable)
            join(pairing, end, offer, gid.index, false);
}

unsigned gs_verbs_pair(struct gs_verbs_end *const *ends, unsigned n_ends, const struct gs_rail_record *offers,
                       unsigned n_offers, const char *local_address, struct gs_verbs_pair *ret_pairs)
{
    struct pairing pairing = {
        .ends = ends, .offers = offers, .n_ends = n_ends, .n_offers = n_offers, .pairs = ret_pairs};
    struct ifaddrs *addresses = NULL;
    if (getifaddrs(&addresses))
        addresses = NULL;
    for (unsigned offer = 0; offer < n_offers; offer++)
        pair_subnet(&pairing, offer, addresses);
    for (unsigned offer = 0; offer < n_offers; offer++)
        pair_rest(&pairing, offer, local_address);
    if (addresses)
        freeifaddrs(addresses);
    return pairing.n;
}
