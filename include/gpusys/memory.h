/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/memory.h: landing buffers, backed by huge pages where the system allows and faulted in before use.
 * Any thread. */
#ifndef GPUSYS_MEMORY_H
#define GPUSYS_MEMORY_H

#include <gpusys/api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the pages behind a buffer came about. */
enum gpusys_pages {
    GPUSYS_PAGES_NORMAL = 0,      /* the system's base pages */
    GPUSYS_PAGES_TRANSPARENT = 1, /* base pages that the kernel was asked to make huge; it may not have */
    GPUSYS_PAGES_HUGE = 2,        /* reserved 2-MiB pages (vm.nr_hugepages) */
};

/*
 * `bytes` of zeroed, writable, faulted-in memory at a 2-MiB boundary where it is that long. The buffer is
 * rounded up to whole pages. *ret_pages (may be NULL) says what it got. -EINVAL for 0 bytes, -ENOMEM.
 */
GPUSYS_API int gpusys_memory_alloc(void **ret_memory, uint64_t bytes, enum gpusys_pages *ret_pages);

/* `bytes` as it was asked for. NULL is fine. */
GPUSYS_API void gpusys_memory_free(void *memory, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
