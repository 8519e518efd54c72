/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An shm rail: the peer's memory in this process. Beside the rail's table, what is particular to it: a region's
 * descriptor and mapping, and reads and writes that need no engine.
 */
#ifndef GPUSYS_RAIL_SHM_H
#define GPUSYS_RAIL_SHM_H

#include "rail/rail.h"

enum { GS_WINDOW_SHIFT = 21, GS_WINDOW_BYTES = 1 << GS_WINDOW_SHIFT };

/* What this process holds of a region. */
struct gs_mapping {
    char *base;          /* NULL: not mapped (files never are) */
    uint64_t length;     /* of the region */
    uint8_t *faulted_in; /* one byte for each window of the mapping */
    bool writable, huge;
    bool guarded;     /* only the kernel may touch it: another user could make a load of it a SIGBUS */
    int fd;           /* -1: nothing is held */
    int64_t mtime_ns; /* of a file, as it was served */
    bool is_file;
};

struct gs_shm_rail;

/* The rail as its own type; NULL for rails of other transports. */
struct gs_shm_rail *gs_shm_of(struct gs_rail *rail);

/* The region's mapping, or NULL when it was not prepared. */
struct gs_mapping *gs_shm_mapping(const struct gs_shm_rail *shm, uint32_t region);

/* Let go of it. */
void gs_shm_release(struct gs_shm_rail *shm, uint32_t region);

/* Move bytes now; the range was checked. 0, -ESTALE, -EIO, … */
int gs_shm_copy(struct gs_mapping *mapping, uint8_t op, uint64_t offset, void *buffer, size_t length);

/* Fault the whole mapping in. -EOPNOTSUPP: a file; -EIO: pages are missing. */
int gs_shm_populate(struct gs_mapping *mapping);

/* Can `length` bytes at `offset` be loaded (or stored) without a fault? */
static inline bool gs_shm_is_ready(const struct gs_mapping *mapping, uint64_t offset, uint64_t length)
{
    if (!mapping->base || mapping->guarded || length == 0)
        return false;
    uint64_t first = offset >> GS_WINDOW_SHIFT, last = (offset + length - 1) >> GS_WINDOW_SHIFT;
    while (first <= last)
        if (!mapping->faulted_in[first++])
            return false;
    return true;
}

#endif
