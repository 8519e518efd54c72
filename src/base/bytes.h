/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A queue of bytes that grows: appended at one end, sent from the other. */
#ifndef GPUSYS_BASE_BYTES_H
#define GPUSYS_BASE_BYTES_H

#include "base/cursor.h"

struct gs_bytes {
    unsigned char *data;
    size_t head, tail, size; /* data[head … tail) is queued */
};

static inline size_t gs_bytes_queued(const struct gs_bytes *bytes)
{
    return bytes->tail - bytes->head;
}

/* Room for `count` more bytes: their start, or NULL when memory is out (the queue is unchanged). They count
 * as queued. */
unsigned char *gs_bytes_grow(struct gs_bytes *bytes, size_t count);

/* Forget `count` bytes at the front. */
void gs_bytes_drop(struct gs_bytes *bytes, size_t count);

void gs_bytes_free(struct gs_bytes *bytes);

#endif
