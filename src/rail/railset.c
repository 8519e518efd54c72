/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A set of rails: made by either side, handed over, closed. */
#include "rail/railset.h"

#include "base/log.h"
#include "base/options.h"
#include "wire/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

const char *gs_railset_name(const struct gpusys_railset *set, uint32_t at, char text[GS_RAIL_TEXT])
{
    struct gpusys_port_info port = {.size = sizeof port};
    const struct gpusys_verbs *verbs = set->slots[at].rail.verbs;
    const char *peer = gpusys_stream_name(set->handshake.stream);
    if (verbs && gpusys_verbs_info(verbs, &port, NULL) == 0)
        snprintf(text, GS_RAIL_TEXT, "rail %u (%s port %u) with %s", at, port.device, port.port, peer);
    else
        snprintf(text, GS_RAIL_TEXT, "rail %u with %s", at, peer);
    return text;
}

int gs_railset_prefix(const struct gpusys_railset *set, uint32_t at, int code, struct gpusys_error *error)
{
    char name[GS_RAIL_TEXT], message[sizeof error->message];
    if (!error)
        return code;
    snprintf(message, sizeof message, "%s: %s", gs_railset_name(set, at, name), error->message);
    memcpy(error->message, message, sizeof message);
    return code;
}

int gs_railset_check_side(const struct gpusys_railset *set, bool is_server, const char *call,
                          struct gpusys_error *error)
{
    if (set->is_server == is_server)
        return 0;
    return gpusys_error_set(error, -EINVAL, "rails with %s: %s is the %s's, and this set is the %s's",
                            gpusys_stream_name(set->handshake.stream), call, is_server ? "server" : "client",
                            is_server ? "client" : "server");
}

/* ---- ending ---- */

void gpusys_rail_close(struct gpusys_rail *rail)
{
    if (!rail)
        return;
    gpusys_qp_close(rail->qp);
    gpusys_pd_close(rail->pd);
    gpusys_verbs_close(rail->verbs);
    *rail = (struct gpusys_rail){.verbs = NULL};
}

static void close_slot(struct gs_slot *slot)
{
    if (slot->is_borrowed)
        slot->rail.verbs = NULL, slot->rail.pd = NULL;
    gpusys_rail_close(&slot->rail);
}

void gpusys_railset_close(struct gpusys_railset *set)
{
    if (!set)
        return;
    for (uint32_t i = 0; i < set->n_slots; i++)
        close_slot(&set->slots[i]);
    if (set->tables)
        gpusys_verbs_server_params_clear(set->tables, set->n_slots);
    free(set->tables);
    free(set->arenas);
    free(set->slots);
    free(set);
}

int gpusys_railset_take(struct gpusys_railset *set, uint32_t at, struct gpusys_rail *ret_rail)
{
    if (at >= set->n_slots || !set->slots[at].rail.qp)
        return -ENOENT;
    struct gs_slot *slot = &set->slots[at];
    if (slot->is_borrowed)
        slot->rail.verbs = NULL, slot->rail.pd = NULL;
    *ret_rail = slot->rail;
    slot->rail = (struct gpusys_rail){.verbs = NULL};
    return 0;
}

/* ---- looking ---- */

uint32_t gpusys_railset_count(const struct gpusys_railset *set)
{
    return set->n_slots;
}

const struct gpusys_rail *gpusys_railset_rail(const struct gpusys_railset *set, uint32_t at)
{
    return at < set->n_slots && set->slots[at].rail.qp ? &set->slots[at].rail : NULL;
}

const struct gpusys_region_key *gpusys_railset_regions(const struct gpusys_railset *set, uint32_t at,
                                                       uint32_t *ret_count)
{
    bool is_known = set->tables && at < set->n_slots;
    *ret_count = is_known ? set->tables[at].n_regions : 0;
    return is_known ? set->tables[at].regions : NULL;
}

/* ---- making ---- */

/* What every rail of a set is made of. */
struct plan {
    const struct gpusys_railset_options *options;
    const struct gs_devices *devices;
    const struct gs_control_ends *ends;
    struct gpusys_pd *const *pds; /* NULL: ports and domains of our own */
};

static int open_port(struct gs_slot *slot, uint32_t at, const struct plan *plan, struct gpusys_error *error)
{
    const uint32_t *gid_index = plan->options->gid_index;
    const struct gpusys_verbs_options options = {
        .size = sizeof options,
        .device = plan->devices->names[at],
        .flags = gid_index ? GPUSYS_VERBS_GID_INDEX : 0,
        .gid_index = gid_index ? gid_index[at] : 0,
        .local_address = plan->ends->local[0] ? plan->ends->local : NULL,
        .peer = plan->ends->has_peer ? plan->ends->peer : NULL,
    };
    int result = gpusys_verbs_open(&slot->rail.verbs, &options, error);
    return result ? result : gpusys_pd_open(&slot->rail.pd, slot->rail.verbs, error);
}

static int open_rail(struct gs_slot *slot, uint32_t at, const struct plan *plan, struct gpusys_error *error)
{
    struct gpusys_qp_options qp = {.size = sizeof qp};
    int result = plan->options->qp ? gs_options_take(&qp, sizeof qp, plan->options->qp) : 0;
    if (result)
        return gpusys_error_set(error, result, "the queue pair's options are of another version");
    slot->is_borrowed = plan->pds;
    if (!plan->pds) {
        result = open_port(slot, at, plan, error);
    } else {
        slot->rail.pd = plan->pds[at];
        qp.flags |= plan->options->gid_index ? GPUSYS_QP_GID_INDEX : 0;
        qp.gid_index = plan->options->gid_index ? plan->options->gid_index[at] : qp.gid_index;
    }
    qp.size = sizeof qp;
    return result ? result : gpusys_qp_open(&slot->rail.qp, slot->rail.pd, &qp, error);
}

static int open_rails(struct gpusys_railset *set, uint32_t n, const struct plan *plan,
                      struct gpusys_error *error)
{
    set->slots = calloc(n, sizeof *set->slots);
    if (!set->slots)
        return gpusys_error_set_errno(error, -ENOMEM, "%u rails", n);
    set->n_slots = n;
    for (uint32_t at = 0; at < n; at++) {
        int result = open_rail(&set->slots[at], at, plan, error);
        if (result)
            return gs_railset_prefix(set, at, result, error);
    }
    return 0;
}

static int make_set(struct gpusys_railset **ret_set, struct gpusys_stream *stream, bool is_server,
                    struct gpusys_error *error)
{
    struct gpusys_railset *set = calloc(1, sizeof *set);
    if (!set)
        return gpusys_error_set_errno(error, -ENOMEM, "a set of rails");
    set->handshake.stream = stream;
    set->is_server = is_server;
    *ret_set = set;
    return 0;
}

static int take_options(struct gpusys_railset_options *options, const struct gpusys_railset_options *given,
                        struct gpusys_error *error)
{
    int result = gs_options_take(options, sizeof *options, given);
    return result ? gpusys_error_set(error, result, "the rails' options are of another version") : 0;
}

/* ---- the client ---- */

static int too_few(const struct gpusys_stream *stream, uint32_t wanted, const struct gs_devices *devices,
                   struct gpusys_error *error)
{
    char list[300];
    gs_devices_list(devices, list, sizeof list);
    gpusys_error_set(error, -ENODEV, "rails with %s: %u rails wanted, %u devices: %s",
                     gpusys_stream_name(stream), wanted, devices->n, list);
    gpusys_error_set_hint(error, "ask for at most %u rails, or name more devices", devices->n);
    return -ENODEV;
}

static int begin_with(struct gpusys_railset *set, enum gpusys_dialect dialect, const struct plan *plan,
                      int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_stream *stream = set->handshake.stream;
    uint32_t there_are = plan->devices->n;
    uint32_t n = plan->options->n_rails ? plan->options->n_rails : there_are;
    if (n > there_are)
        return too_few(stream, n, plan->devices, error);
    int result = gs_handshake_check_range(stream, dialect, n, error);
    if (!result)
        result = open_rails(set, n, plan, error);
    return result ? result
                  : gpusys_handshake_client_begin(&set->handshake, stream, dialect, n, deadline_ns, error);
}

int gpusys_railset_begin(struct gpusys_railset **ret_set, struct gpusys_stream *stream,
                         enum gpusys_dialect dialect, const struct gpusys_railset_options *given,
                         int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_railset_options options;
    struct gpusys_railset *set = NULL;
    struct gs_control_ends ends;
    struct gs_devices devices = {.n = 0};
    const struct plan plan = {&options, &devices, &ends, NULL};
    int result = take_options(&options, given, error);
    if (!result && options.n_rails)
        result = gs_handshake_check_range(stream, dialect, options.n_rails, error);
    if (!result)
        result = make_set(&set, stream, false, error);
    if (result)
        return result;
    gs_control_ends(&ends, stream);
    result = gs_devices_choose(&devices, &options, &ends, gs_handshake_most_rails(dialect), error);
    if (!result)
        result = begin_with(set, dialect, &plan, deadline_ns, error);
    gs_devices_free(&devices);
    if (result)
        gpusys_railset_close(set);
    else
        *ret_set = set;
    return result;
}

/* ---- the server ---- */

/* A refusal has no frame: the client learns nothing but the end of the stream, so the reason goes into the
 * log. */
static int refuse(const struct gpusys_railset *set, uint32_t there_are, const char *of_what,
                  struct gpusys_error *error)
{
    const struct gpusys_handshake *handshake = &set->handshake;
    const char *peer = gpusys_stream_name(handshake->stream);
    gs_log(GPUSYS_LOG_WARN, "refused: %s asked for %u rails, here are %u %s", peer, handshake->n_rails,
           there_are, of_what);
    gpusys_error_set(error, -ENODEV, "%s asked for %u rails, here are %u %s", peer, handshake->n_rails,
                     there_are, of_what);
    gpusys_error_set_hint(error, "the client must ask for at most %u rails", there_are);
    return -ENODEV;
}

static int accept_with_devices(struct gpusys_railset *set, const struct gpusys_railset_options *options,
                               struct gpusys_error *error)
{
    const struct gpusys_handshake *handshake = &set->handshake;
    struct gs_control_ends ends;
    struct gs_devices devices = {.n = 0};
    gs_control_ends(&ends, handshake->stream);
    int result =
        gs_devices_choose(&devices, options, &ends, gs_handshake_most_rails(handshake->dialect), error);
    if (!result && handshake->n_rails > devices.n)
        result = refuse(set, devices.n, "devices", error);
    if (!result)
        result = open_rails(set, handshake->n_rails, &(struct plan){options, &devices, &ends, NULL}, error);
    gs_devices_free(&devices);
    return result;
}

static int accept_with_domains(struct gpusys_railset *set, const struct gpusys_railset_options *options,
                               struct gpusys_pd *const *pds, struct gpusys_error *error)
{
    uint32_t n_rails = set->handshake.n_rails;
    if (n_rails > options->n_devices)
        return refuse(set, options->n_devices, "RDMA ports", error);
    return open_rails(set, n_rails, &(struct plan){.options = options, .pds = pds}, error);
}

int gpusys_railset_accept(struct gpusys_railset **ret_set, struct gpusys_stream *stream,
                          enum gpusys_dialect dialect, const struct gpusys_railset_options *given,
                          struct gpusys_pd *const *pds, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_railset_options options;
    struct gpusys_railset *set = NULL;
    int result = take_options(&options, given, error);
    if (!result)
        result = make_set(&set, stream, true, error);
    if (!result)
        result = gpusys_handshake_server_begin(&set->handshake, stream, dialect, deadline_ns, error);
    if (!result)
        result =
            pds ? accept_with_domains(set, &options, pds, error) : accept_with_devices(set, &options, error);
    if (result)
        gpusys_railset_close(set);
    else
        *ret_set = set;
    return result;
}

/* ---- connecting ---- */

int gs_railset_own_params(const struct gpusys_railset *set, uint32_t at, struct gpusys_qp_params *ret_params)
{
    struct gpusys_qp_end end = {.size = sizeof end};
    const struct gpusys_qp *qp = set->slots[at].rail.qp;
    int result = qp ? gpusys_qp_end(qp, &end) : -ENOENT;
    if (result)
        return result;
    *ret_params = (struct gpusys_qp_params){.qpn = end.qpn, .psn = end.psn};
    memcpy(ret_params->gid, end.gid, sizeof ret_params->gid);
    return 0;
}

int gs_railset_check_peer(const struct gpusys_railset *set, uint32_t at,
                          const struct gpusys_qp_params *params, struct gpusys_error *error)
{
    static const uint8_t no_gid[16];
    char name[GS_RAIL_TEXT];
    const char *wrong = NULL;
    if (params->qpn >> 24 || params->qpn == 0)
        wrong = "the peer's queue pair number is none (1 to 24 bits)";
    else if (params->psn >> 24)
        wrong = "the peer's packet number has more than 24 bits";
    else if (memcmp(params->gid, no_gid, sizeof no_gid) == 0)
        wrong = "the peer's GID is empty";
    if (!wrong)
        return 0;
    gpusys_error_set(error, -EBADMSG, "%s: %s", gs_railset_name(set, at, name), wrong);
    gpusys_error_add_detail(error, "remote", "QPN %#x, PSN %#x", params->qpn, params->psn);
    gpusys_error_set_hint(error,
                          "does the peer speak this dialect? A GID that is empty is a GID index that is not "
                          "set there (gpusys rails)");
    return -EBADMSG;
}

int gs_railset_connect(struct gpusys_railset *set, uint32_t at, const struct gpusys_qp_params *params,
                       struct gpusys_error *error)
{
    struct gpusys_qp_end peer = {.size = sizeof peer, .qpn = params->qpn, .psn = params->psn};
    struct gpusys_qp *qp = set->slots[at].rail.qp;
    memcpy(peer.gid, params->gid, sizeof peer.gid);
    int result = qp ? gpusys_qp_connect(qp, &peer, error) : gpusys_error_set(error, -EINVAL, "it was taken");
    return result ? gs_railset_prefix(set, at, result, error) : 0;
}
