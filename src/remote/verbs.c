/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A remote's RDMA ports: opened, paired with the peer's, told of the caller's memory and the peer's keys. */
#include "rail/verbs_rail.h"
#include "remote/client.h"

#include "base/address.h"
#include "base/gid.h"
#include "base/log.h"
#include "base/options.h"

#include <errno.h>
#include <stdio.h>

/* ---- opening ---- */

static int open_end(struct gpusys_remote *remote, const char *device, const char *local_address,
                    struct gpusys_error *error)
{
    struct gpusys_verbs_options options = {
        .size = sizeof options, .device = device, .local_address = local_address};
    int result = gs_verbs_end_open(&remote->ends[remote->n_ends], &options, error);
    remote->n_ends += !result;
    return result;
}

/* Every port that can be used; those that cannot are the business of gpusys rails. */
static int open_all(struct gpusys_remote *remote, const char *local_address, struct gpusys_error *error)
{
    struct gpusys_ports *ports;
    struct gpusys_error fault = {0}, all = {0};
    unsigned n_problems = 0;
    int result = gpusys_ports_new(&ports, local_address, NULL, error);
    if (result)
        return result;
    gpusys_error_set(&all, -ENETDOWN, "no RDMA port can be used");
    for (uint32_t i = 0; i < gpusys_ports_count(ports) && remote->n_ends < GS_RAILS_MAX; i++) {
        struct gpusys_port_info info = {.size = sizeof info};
        char name[96];
        gpusys_ports_port(ports, i, &info);
        snprintf(name, sizeof name, info.port ? "%s:%u" : "%s", info.device, info.port);
        const char *problem = info.problem[0]                                 ? info.problem
                              : open_end(remote, name, local_address, &fault) ? fault.message
                                                                              : NULL;
        if (problem && n_problems++ == 0)
            gpusys_error_set(&all, -ENETDOWN, "no RDMA port can be used: %s: %s", name, problem);
        else if (problem)
            gpusys_error_add_detail(&all, name, "%s", problem);
    }
    gpusys_ports_free(ports);
    gpusys_error_set_hint(&all, "gpusys rails and gpusys doctor say more");
    if (remote->n_ends)
        return 0;
    if (error)
        *error = all;
    return all.code;
}

/* Our end of the control connection; NULL over a Unix socket. */
static const char *local_address(const struct gpusys_remote *remote, char text[GS_ADDRESS_BYTES])
{
    int fd = gpusys_stream_fd(remote->channel.stream);
    return gs_address_of_self(fd, text) == 0 && strncmp(text, "unix:", 5) != 0 ? text : NULL;
}

int gs_verbs_open_ends(struct gpusys_remote *remote, const struct gpusys_remote_options *options,
                       struct gpusys_error *error)
{
    char text[GS_ADDRESS_BYTES];
    const char *local = local_address(remote, text);
    int result = options->n_devices ? 0 : open_all(remote, local, error);
    for (uint32_t i = 0; i < options->n_devices && !result; i++)
        result = open_end(remote, options->devices[i], local, error);
    return result;
}

unsigned gs_verbs_find_pairs(struct gpusys_remote *remote, struct gpusys_error *why)
{
    char text[GS_ADDRESS_BYTES];
    if (remote->n_ends == 0)
        return 0;
    if (remote->n_offers == 0) {
        gpusys_error_set(why, -EOPNOTSUPP, "the peer offers no RDMA port");
        return 0;
    }
    remote->n_pairs = gs_verbs_pair(remote->ends, remote->n_ends, remote->offers, remote->n_offers,
                                    local_address(remote, text), remote->pairs);
    for (unsigned i = 0; i < remote->n_pairs; i++)
        remote->pairs[i].keys = &remote->keyrings[i];
    if (remote->n_pairs == 0)
        gpusys_error_set(why, -EOPNOTSUPP,
                         "none of %u RDMA ports here goes with one of %u at the peer (link layer, GIDs)",
                         remote->n_ends, remote->n_offers);
    return remote->n_pairs;
}

void gs_verbs_close(struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < remote->n_pairs; i++) {
        gs_verbs_end_drop(remote->pairs[i].end);
        gs_keyring_free(&remote->keyrings[i]);
    }
    for (unsigned i = 0; i < remote->n_ends; i++)
        gs_verbs_end_drop(remote->ends[i]);
    remote->n_pairs = remote->n_ends = 0;
}

void gs_verbs_limit_slices(struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < remote->n_ends; i++) {
        uint64_t most = remote->ends[i]->port.max_mr_bytes;
        if (most && most < remote->target.slice_max)
            remote->target.slice_max = (uint32_t)most;
    }
}

/* ---- keys ---- */

int gs_verbs_expect(struct gpusys_remote *remote, uint32_t region)
{
    const struct gs_listed *listed = gs_listed_at(remote, region);
    int result = 0;
    for (unsigned i = 0; i < remote->n_pairs && !result; i++)
        if (!gs_keyring_find(&remote->keyrings[i], region))
            result = gs_keyring_expect(&remote->keyrings[i], region, listed->length);
    return result;
}

uint8_t gs_verbs_place(const struct gpusys_remote *remote, uint32_t region, uint8_t listed)
{
    for (unsigned i = 0; i < remote->n_pairs; i++) {
        const struct gs_keys *keys = gs_keyring_find(&remote->keyrings[i], region);
        if (keys && keys->place == GPUSYS_PLACE_COPY)
            return GPUSYS_PLACE_COPY;
    }
    return listed;
}

void gs_verbs_forget_region(struct gpusys_remote *remote, uint32_t region)
{
    for (unsigned i = 0; i < remote->n_pairs; i++)
        gs_keyring_forget(&remote->keyrings[i], region);
    for (unsigned i = 0; i < remote->n_lanes; i++)
        if (gs_verbs_rail_end(remote->lanes[i].rail))
            gs_verbs_rail_forget(remote->lanes[i].rail, region);
}

/* ---- the caller's memory ---- */

/* Does a rail use this port, or one that is to come back? */
static bool is_used(const struct gpusys_remote *remote, const struct gs_verbs_end *end)
{
    for (unsigned i = 0; i < remote->n_lanes; i++) {
        const struct gs_lane *lane = &remote->lanes[i];
        if (lane->pair ? lane->pair->end == end : gs_verbs_rail_end(lane->rail) == end)
            return true;
    }
    return false;
}

/* A port that has gone registers nothing, and its rail will find that out; the others go on. */
int gpusys_remote_register(struct gpusys_remote *remote, void *address, uint64_t length,
                           struct gpusys_error *error)
{
    struct gpusys_error why = {0};
    int result = 0;
    if (remote->transport != GPUSYS_TRANSPORT_VERBS)
        return 0;
    for (unsigned i = 0; i < remote->n_ends && !result; i++) {
        if (!is_used(remote, remote->ends[i]))
            continue;
        result = gs_verbs_end_register(remote->ends[i], address, length, &why);
        bool is_gone = result == -EIO || result == -ENODEV;
        if (is_gone)
            gs_log(GPUSYS_LOG_WARN, "%s", why.message);
        result = is_gone ? 0 : result;
    }
    if (!result)
        return 0;
    gpusys_remote_unregister(remote, address);
    if (error)
        *error = why;
    return result;
}

void gpusys_remote_unregister(struct gpusys_remote *remote, void *address)
{
    for (unsigned i = 0; i < remote->n_ends; i++)
        gs_verbs_end_forget(remote->ends[i], address);
}

/* ---- what there is ---- */

static void describe(const struct gs_lane *lane, struct gpusys_rail_info *info)
{
    struct gpusys_qp_info qp = {.size = sizeof qp};
    const struct gs_verbs_end *end = lane->pair ? lane->pair->end : gs_verbs_rail_end(lane->rail);
    info->local_numa_node = info->remote_numa_node = -1;
    if (end) {
        snprintf(info->local_device, sizeof info->local_device, "%s", end->port.device);
        info->local_port = end->port.port;
        info->link_layer = end->port.link_layer;
        info->local_numa_node = end->port.numa_node;
    }
    if (lane->pair) {
        memcpy(info->remote_device, lane->pair->peer.device, sizeof lane->pair->peer.device);
        info->remote_numa_node = lane->pair->peer.numa_node;
        info->same_subnet = lane->pair->same_subnet;
    }
    if (!lane->rail || gs_verbs_rail_info(lane->rail, &qp))
        return;
    gs_gid_text(info->local_gid, qp.local.gid);
    gs_gid_text(info->remote_gid, qp.remote.gid);
    info->local_gid_index = qp.local.gid_index;
    info->remote_gid_index = qp.remote.gid_index;
    info->local_mtu_bytes = qp.local.mtu_bytes;
    info->remote_mtu_bytes = qp.remote.mtu_bytes;
    info->mtu_bytes = qp.mtu_bytes;
    info->reads_out = qp.reads_out;
}

int gpusys_remote_rail(const struct gpusys_remote *remote, uint32_t rail, struct gpusys_rail_info *ret_info)
{
    if (rail >= remote->n_lanes)
        return -ENOENT;
    const struct gs_lane *lane = &remote->lanes[rail];
    struct gpusys_rail_info info = {
        .transport = lane->ops->transport, .is_up = lane->rail != NULL, .bytes = lane->bytes};
    if (lane->ops == &gs_rail_verbs)
        describe(lane, &info);
    return gs_info_give(ret_info, &info, sizeof info);
}
