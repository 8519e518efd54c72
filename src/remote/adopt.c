/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote/adopt.h"

#include "rail/verbs_rail.h"
#include "remote/client.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdio.h>
#include <stdlib.h>

static int copy_regions(struct gpusys_remote *remote, const struct gs_adoption *adoption)
{
    remote->regions = calloc(adoption->n_regions, sizeof *remote->regions);
    if (!remote->regions)
        return -ENOMEM;
    for (; remote->n_regions < adoption->n_regions; remote->n_regions++) {
        const struct gpusys_field_region *from = &adoption->regions[remote->n_regions];
        char *name = strdup(from->name);
        if (!name)
            return -ENOMEM;
        remote->regions[remote->n_regions] = (struct gs_listed){.length = from->length,
                                                                .mode = 0644,
                                                                .kind = adoption->region_kind,
                                                                .access = adoption->access,
                                                                .name = name};
    }
    remote->n_regions_said = remote->n_regions;
    return 0;
}

static void take_rails(struct gpusys_remote *remote, const struct gs_adoption *adoption)
{
    for (uint32_t i = 0; i < adoption->n_rails; i++) {
        struct gs_rail *rail = adoption->rails[i];
        struct gs_verbs_end *end = gs_verbs_rail_end(rail);
        remote->lanes[remote->n_lanes++] = (struct gs_lane){
            .rail = rail, .ops = rail->ops, .generation = 1, .retry_at_ns = GPUSYS_NO_DEADLINE};
        if (end)
            remote->ends[remote->n_ends++] = gs_verbs_end_hold(end);
    }
}

static void choose_slice(struct gpusys_remote *remote, const struct gs_adoption *adoption)
{
    remote->target.slice_max = adoption->slice_max ? adoption->slice_max : GS_SLICE_MAX;
    remote->slice_bytes =
        adoption->slice_bytes ? adoption->slice_bytes : adoption->rails[0]->ops->slice_bytes;
    if (remote->slice_bytes > remote->target.slice_max)
        remote->slice_bytes = remote->target.slice_max;
}

int gs_remote_adopt(struct gpusys_remote **ret_remote, const struct gs_adoption *adoption,
                    struct gpusys_error *error)
{
    struct gpusys_remote *remote = calloc(1, sizeof *remote);
    if (!remote) {
        for (uint32_t i = 0; i < adoption->n_rails; i++)
            adoption->rails[i]->ops->close(adoption->rails[i]);
        gpusys_stream_close(adoption->control);
        return gpusys_error_set_errno(error, -ENOMEM, "%s", adoption->address);
    }
    int result = gs_engine_open(remote);
    gs_channel_init(&remote->channel, adoption->control, false);
    remote->is_silent = true;
    remote->transport = adoption->transport;
    take_rails(remote, adoption);
    choose_slice(remote, adoption);
    snprintf(remote->address, sizeof remote->address, "%s", adoption->address);
    snprintf(remote->reason, sizeof remote->reason, "%s", adoption->reason);
    if (!result)
        result = copy_regions(remote, adoption);
    if (result) {
        gpusys_remote_close(remote);
        return gpusys_error_set_errno(error, result, "%s", adoption->address);
    }
    *ret_remote = remote;
    return 0;
}
