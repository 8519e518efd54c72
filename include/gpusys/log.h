/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/log.h: where the library's own remarks go. Nowhere, until a callback is set. */
#ifndef GPUSYS_LOG_H
#define GPUSYS_LOG_H

#include <gpusys/api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpusys_log_level {
    GPUSYS_LOG_ERROR = 0, /* something a user asked for did not happen */
    GPUSYS_LOG_WARN = 1,  /* it happened, but worse than it could; or a peer was refused */
    GPUSYS_LOG_INFO = 2,  /* a choice that was made, with its reason */
    GPUSYS_LOG_DEBUG = 3, /* what a developer of gpusys reads */
};

/* One line, no newline. May be called from any thread of the library, several at once; must not call gpusys.
 */
typedef void gpusys_log_fn(void *context, enum gpusys_log_level level, const char *line);

/* Send lines up to `level` to `fn`; NULL turns logging off. One sink per process; set it before other threads
 * use it. */
GPUSYS_API void gpusys_log_set(gpusys_log_fn *fn, void *context, enum gpusys_log_level level);

#ifdef __cplusplus
}
#endif

#endif
