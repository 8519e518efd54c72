/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From a preamble that is out to a remote over verbs: what the three dialects have in common. */
#include "field/talk.h"

#include "base/address.h"
#include "rail/verbs_rail.h"
#include "remote/adopt.h"

#include <errno.h>
#include <stdio.h>

static int begin(struct gpusys_railset **ret_set, const struct gs_verbs_opening *opening,
                 struct gpusys_error *error)
{
    struct gpusys_railset_options options = {.size = sizeof options,
                                             .devices = opening->options->devices,
                                             .n_devices = opening->options->n_devices,
                                             .n_rails = opening->options->n_rails};
    return gpusys_railset_begin(ret_set, *opening->stream, opening->dialect, &options, opening->deadline_ns,
                                error);
}

static int read_server(struct gpusys_railset *set, const struct gs_verbs_opening *opening,
                       struct gpusys_error *error)
{
    return opening->dialect == GPUSYS_DIALECT_READ_ONLY
               ? gpusys_railset_read_server_ro(set, opening->deadline_ns, error)
               : gpusys_railset_read_server_rw(set, opening->deadline_ns, error);
}

/* Before anything of ours goes out: does every rail's table fit what the peer said of itself? */
static int check_tables(const struct gpusys_railset *set, const struct gs_verbs_opening *opening,
                        struct gpusys_error *error)
{
    for (uint32_t i = 0; i < gpusys_railset_count(set); i++) {
        uint32_t count;
        gpusys_railset_regions(set, i, &count);
        if (count != opening->n_regions)
            return gpusys_error_set(
                error, -EPROTO,
                "%s: the table of rail %u has %u regions, by what the peer said of itself it "
                "has %u",
                gpusys_stream_name(*opening->stream), i, count, opening->n_regions);
    }
    return 0;
}

static int probe(struct gpusys_railset *set, const struct gs_verbs_opening *opening,
                 struct gpusys_error *error)
{
    uint32_t longest = 0;
    for (uint32_t i = 1; i < opening->n_regions; i++)
        if (opening->regions[i].length > opening->regions[longest].length)
            longest = i;
    int result =
        gpusys_railset_probe(set, longest, opening->regions[longest].length, opening->deadline_ns, error);
    if (result != -EPROTO)
        return result;
    if (error)
        error->code = -EHOSTUNREACH;
    return -EHOSTUNREACH; /* the network's fault and not the peer's: over tcp it may do */
}

static void close_rails(struct gs_rail **rails, uint32_t n_rails)
{
    for (uint32_t i = 0; i < n_rails; i++)
        rails[i]->ops->close(rails[i]);
}

static int take_rails(struct gpusys_railset *set, int control, struct gs_rail **rails, uint32_t *ret_n_rails,
                      struct gpusys_error *error)
{
    uint32_t n_rails = 0;
    for (; n_rails < gpusys_railset_count(set) && n_rails < GS_RAILS_MAX; n_rails++) {
        uint32_t n_keys;
        struct gpusys_rail parts;
        const struct gpusys_region_key *keys = gpusys_railset_regions(set, n_rails, &n_keys);
        int code = gpusys_railset_take(set, n_rails, &parts);
        if (code)
            gpusys_error_set_errno(error, code, "rail %u", n_rails);
        else
            code = gs_verbs_rail_adopt(&rails[n_rails], &parts, keys, n_keys, control, error);
        if (code) {
            close_rails(rails, n_rails);
            return code;
        }
    }
    *ret_n_rails = n_rails;
    return 0;
}

static int adopt(struct gpusys_remote **ret_remote, struct gpusys_railset *set,
                 const struct gs_verbs_opening *opening, struct gpusys_error *error)
{
    struct gs_rail *rails[GS_RAILS_MAX];
    char address[GS_ADDRESS_BYTES] = "", reason[64];
    bool arena = opening->dialect == GPUSYS_DIALECT_READ_WRITE;
    int control = gpusys_stream_fd(*opening->stream);
    struct gs_adoption adoption = {
        .address = address,
        .reason = reason,
        .transport = GPUSYS_TRANSPORT_VERBS,
        .control = *opening->stream,
        .rails = rails,
        .regions = opening->regions,
        .n_regions = opening->n_regions,
        .region_kind = arena ? GPUSYS_REGION_ARENA : GPUSYS_REGION_MEMORY,
        .access = arena ? GPUSYS_ACCESS_READ | GPUSYS_ACCESS_WRITE : GPUSYS_ACCESS_READ,
        .slice_bytes = opening->options->slice_bytes,
    };
    int code = take_rails(set, control, rails, &adoption.n_rails, error);
    if (code)
        return code;
    if (gs_address_of_peer(control, address))
        snprintf(address, sizeof address, "%.*s", GS_ADDRESS_BYTES - 1, gpusys_stream_name(*opening->stream));
    snprintf(reason, sizeof reason, "both sides have RDMA, %u rail%s", adoption.n_rails,
             adoption.n_rails == 1 ? "" : "s");
    *opening->stream = NULL;
    return gs_remote_adopt(ret_remote, &adoption, error);
}

int gs_verbs_opening_run(struct gpusys_remote **ret_remote, const struct gs_verbs_opening *opening,
                         struct gpusys_error *error)
{
    struct gpusys_railset *set = NULL;
    int code = begin(&set, opening, error);
    if (!code)
        code = read_server(set, opening, error);
    if (!code)
        code = check_tables(set, opening, error);
    if (!code)
        code = gpusys_railset_complete(set, opening->deadline_ns, error);
    if (!code)
        code = probe(set, opening, error);
    if (!code)
        code = adopt(ret_remote, set, opening, error);
    gpusys_railset_close(set);
    return code;
}
