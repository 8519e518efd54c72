/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ranges around gpusys' own work, for rooms that do not know of NVTX: src/gpu/nvtx.c puts functions here when somebody
 * asked for them. Until then a call is a test of one pointer.
 */
#ifndef GPUSYS_BASE_RANGE_H
#define GPUSYS_BASE_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct gs_range_ops {
    /* `bytes` is the payload. NULL: nothing was started. */
    void *(*start)(const char *name, uint64_t bytes);
    void (*end)(void *range);
};

/* NULL: nobody asked. What it points to lives for ever, and every `end` takes what any `start` gave. */
extern const struct gs_range_ops *_Atomic gs_range_ops;

/* What is there from the beginning with GPUSYS_NVTX_RANGES=1 in the environment. Defined by who makes the ranges. */
extern const struct gs_range_ops gs_range_asked;

/* A range that may end on another thread. `name` is static. */
static inline void *gs_range_start(const char *name, uint64_t bytes)
{
    const struct gs_range_ops *ops = gs_range_ops;
    return ops ? ops->start(name, bytes) : NULL;
}

static inline void gs_range_end(void *range)
{
    const struct gs_range_ops *ops = range ? gs_range_ops : NULL;
    if (ops)
        ops->end(range);
}

#endif
