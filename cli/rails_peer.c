/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "rails_peer.h"

#include <stdio.h>

void rails_ask_peer(struct rails_peer *ret_peer, const char *address, int64_t timeout_ns)
{
    struct gpusys_remote *remote;
    struct gpusys_error error = {0};
    struct gpusys_remote_options options = {
        .size = sizeof options, .timeout_ns = timeout_ns, .require = GPUSYS_TRANSPORT_VERBS};
    *ret_peer = (struct rails_peer){.asked = false};
    if (gpusys_remote_open(&remote, address, &options, &error)) {
        snprintf(ret_peer->why_not, sizeof ret_peer->why_not, "%s%s%s", error.message,
                 error.cause[0] ? ": " : "", error.cause);
        return;
    }
    ret_peer->asked = true;
    for (; ret_peer->n_rails < RAILS_PEER_MOST; ret_peer->n_rails++) {
        struct gpusys_rail_info *rail = &ret_peer->rails[ret_peer->n_rails];
        rail->size = sizeof *rail;
        if (gpusys_remote_rail(remote, ret_peer->n_rails, rail))
            break;
    }
    gpusys_remote_close(remote);
}
