/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/deadline.h: points in time on CLOCK_MONOTONIC, in nanoseconds. Any thread. */
#ifndef GPUSYS_DEADLINE_H
#define GPUSYS_DEADLINE_H

#include <gpusys/api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSYS_NO_DEADLINE INT64_MAX /* never */

GPUSYS_API int64_t gpusys_now_ns(void);

/* The moment `timeout_ns` from now; a negative timeout means GPUSYS_NO_DEADLINE. Saturates. */
GPUSYS_API int64_t gpusys_deadline_after(int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
