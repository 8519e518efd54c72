/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The library's side of gpusys/log.h. */
#ifndef GPUSYS_BASE_LOG_H
#define GPUSYS_BASE_LOG_H

#include <gpusys/log.h>

/* Formats only when somebody listens at this level. */
void gs_log(enum gpusys_log_level level, const char *format, ...) GPUSYS_PRINTF(2, 3);

#endif
