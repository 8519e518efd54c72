/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "transport.h"

#include <errno.h>
#include <gpusys/remote.h>

int transport_wanted(const char *require, bool wants_rdma, const char **ret_why)
{
    int transport = require ? gpusys_transport_parse(require) : GPUSYS_TRANSPORT_ANY;
    if (transport < 0 || (require && transport == GPUSYS_TRANSPORT_ANY)) {
        *ret_why = "--require takes shm, tcp or verbs";
        return -EINVAL;
    }
    if (!wants_rdma)
        return transport;
    if (require && transport != GPUSYS_TRANSPORT_VERBS) {
        *ret_why = "--device and --rails are for verbs, and --require asks for another transport";
        return -EINVAL;
    }
    return GPUSYS_TRANSPORT_VERBS;
}
