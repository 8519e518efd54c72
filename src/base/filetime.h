/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Times of files in nanoseconds. */
#ifndef GPUSYS_BASE_FILETIME_H
#define GPUSYS_BASE_FILETIME_H

#include <stdint.h>
#include <sys/stat.h>

/* Since 1970. A file system may hold times that do not fit (before 1678, after 2262): the nearest that does. */
static inline int64_t gs_mtime_ns(const struct stat *status)
{
    int64_t ns;
    if (__builtin_mul_overflow((int64_t)status->st_mtim.tv_sec, 1000000000, &ns) ||
        __builtin_add_overflow(ns, (int64_t)status->st_mtim.tv_nsec, &ns))
        return status->st_mtim.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

#endif
