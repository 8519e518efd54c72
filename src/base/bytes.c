/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/bytes.h"

#include <stdlib.h>

unsigned char *gs_bytes_grow(struct gs_bytes *bytes, size_t count)
{
    if (bytes->size - bytes->tail < count && bytes->head > 0) {
        memmove(bytes->data, bytes->data + bytes->head, gs_bytes_queued(bytes));
        bytes->tail -= bytes->head;
        bytes->head = 0;
    }
    if (bytes->size - bytes->tail < count) {
        size_t size = bytes->size ? bytes->size : 1024;
        while (size - bytes->tail < count)
            size *= 2;
        unsigned char *data = realloc(bytes->data, size);
        if (!data)
            return NULL;
        bytes->data = data;
        bytes->size = size;
    }
    unsigned char *start = bytes->data + bytes->tail;
    bytes->tail += count;
    return start;
}

void gs_bytes_drop(struct gs_bytes *bytes, size_t count)
{
    bytes->head += count;
    if (bytes->head == bytes->tail)
        bytes->head = bytes->tail = 0;
}

void gs_bytes_free(struct gs_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct gs_bytes){0};
}
