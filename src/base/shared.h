/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory that can be handed to another process: a sealed memfd, mapped here. */
#ifndef GPUSYS_BASE_SHARED_H
#define GPUSYS_BASE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

struct gs_shared {
    int fd;         /* sealed SHRINK, GROW and SEAL; FUTURE_WRITE too when others may only read */
    void *map;      /* readable and writable here, faulted in */
    uint64_t bytes; /* as asked for */
    bool huge;      /* 2-MiB pages: lengths of mappings are rounded up to them */
};

/*
 * May the memory of a region be in huge pages? Who may write to it may also punch holes into it, no seal
 * forbids that; a hole in base pages is filled again when touched, one in huge pages is a SIGBUS when no page
 * is left.
 */
enum gs_huge { GS_HUGE_NEVER, GS_HUGE_IF_FREE };

/* Zeroed. Huge pages where enough are reserved, else the kernel is asked for transparent ones. 0, -ENOMEM,
 * -EINVAL, ... */
int gs_shared_open(struct gs_shared *ret_shared, const char *name, uint64_t bytes, bool others_write,
                   enum gs_huge huge);

void gs_shared_close(struct gs_shared *shared);

enum { GS_HUGE_BYTES = 2 << 20 };

/* How long a mapping of `bytes` really is. */
uint64_t gs_map_bytes(uint64_t bytes, bool huge);

#endif
