/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The GID of an open port for one particular peer. */
#include "base/options.h"
#include "rail/verbs.h"

#include <errno.h>
#include <stdlib.h>

int gpusys_verbs_gid_for(const struct gpusys_verbs *verbs, const char *local_address, const uint8_t *peer,
                         struct gpusys_gid_info *ret_gid)
{
    if (verbs->fixed_gid)
        return gs_info_give(ret_gid, &verbs->gid, sizeof verbs->gid);
    struct gpusys_port_info info;
    struct ibv_port_attr attributes; /* asked for anew: an event may change those of `verbs` any time */
    int result = gs_port_describe(verbs->ibv, verbs->context, verbs->port, &info, &attributes);
    if (result)
        return result;
    struct gs_gid *gids = malloc(GS_GIDS_MAX * sizeof *gids);
    if (!gids)
        return -ENOMEM;
    unsigned count =
        gs_gids_read(verbs->ibv, verbs->context, verbs->port, &attributes, local_address, peer, gids);
    result = count ? gs_info_give(ret_gid, &gids[0].info, sizeof gids[0].info) : -ENOENT;
    free(gids);
    return result;
}
