/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Between the ring and its dump. */
#ifndef GPUSYS_GPU_TRACE_H
#define GPUSYS_GPU_TRACE_H

#include "gpu/comm.h"

/* The number of every stream that came when the ring had numbered as many as it can. */
enum { GS_TRACE_OTHER_STREAM = 65535 };

/* What the ring holds, the oldest first; the caller frees it. -ENOMEM. */
int gs_trace_copy(struct gs_trace *trace, struct gs_submission **ret_entries, uint64_t *ret_kept,
                  uint64_t *ret_submitted);

#endif
