/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys' own ranges: what base/range.h calls when somebody asked for them. */
#include "base/range.h"

#include <gpusys/nvtx.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpusys_nvtx_domain *_Atomic domain; /* opened once, kept for ever */

static void *start(const char *name, uint64_t bytes)
{
    const struct gpusys_nvtx_event event = {
        .name = name, .payload_type = GPUSYS_NVTX_UINT64, .payload.u64 = bytes};
    return gpusys_nvtx_start_(domain, NULL, &event, NULL, 0);
}

static void end(void *range)
{
    gpusys_nvtx_end(range);
}

static void *start_nothing(const char *name, uint64_t bytes)
{
    (void)name;
    (void)bytes;
    return NULL;
}

/* Asked for in the environment; whether anybody listens is found out with the first range. */
static void *start_first(const char *name, uint64_t bytes)
{
    gpusys_nvtx_own_ranges(true);
    return gs_range_start(name, bytes);
}

const struct gs_range_ops gs_range_asked = {start_first, end};
static const struct gs_range_ops on = {start, end};
static const struct gs_range_ops off = {start_nothing, end}; /* what was started before can still end */

void gpusys_nvtx_own_ranges(bool wanted)
{
    const struct gs_range_ops *ops = wanted && gpusys_nvtx_enabled() ? &on : NULL;
    pthread_mutex_lock(&lock);
    if (ops && !domain)
        domain = gpusys_nvtx_domain_open("gpusys");
    if (!ops && domain)
        ops = &off;
    gs_range_ops = ops;
    pthread_mutex_unlock(&lock);
}
