/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A cursor over bytes: the one place where integers become little-endian bytes and come back.
 *
 * A record is reserved whole with gs_cursor_take, which checks the bounds once; the pointer it gives is then
 * filled or read with the gs_put_ and gs_get_ functions, which check nothing and advance the pointer.
 */
#ifndef GPUSYS_BASE_CURSOR_H
#define GPUSYS_BASE_CURSOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct gs_cursor {
    unsigned char *at, *end;
};

static inline struct gs_cursor gs_cursor_over(const void *bytes, size_t size)
{
    unsigned char *at = (unsigned char *)(uintptr_t)bytes; /* a reader of const bytes only reads */
    return (struct gs_cursor){.at = at, .end = at + size};
}

static inline size_t gs_cursor_left(const struct gs_cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

/* Reserve `size` bytes: their start, or NULL with the cursor unmoved when fewer are left. */
static inline unsigned char *gs_cursor_take(struct gs_cursor *cursor, size_t size)
{
    unsigned char *start = cursor->at;
    if (gs_cursor_left(cursor) < size)
        return NULL;
    cursor->at += size;
    return start;
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define GS_LE(bits, value) (value)
#else
#define GS_LE(bits, value) __builtin_bswap##bits(value)
#endif

#define GS_CURSOR_INTEGER(bits)                                                                              \
    static inline void gs_put_u##bits(unsigned char **at, uint##bits##_t value)                              \
    {                                                                                                        \
        value = GS_LE(bits, value);                                                                          \
        memcpy(*at, &value, sizeof value);                                                                   \
        *at += sizeof value;                                                                                 \
    }                                                                                                        \
    static inline uint##bits##_t gs_get_u##bits(const unsigned char **at)                                    \
    {                                                                                                        \
        uint##bits##_t value;                                                                                \
        memcpy(&value, *at, sizeof value);                                                                   \
        *at += sizeof value;                                                                                 \
        return GS_LE(bits, value);                                                                           \
    }

GS_CURSOR_INTEGER(16)
GS_CURSOR_INTEGER(32)
GS_CURSOR_INTEGER(64)

static inline void gs_put_u8(unsigned char **at, uint8_t value)
{
    *(*at)++ = value;
}

static inline uint8_t gs_get_u8(const unsigned char **at)
{
    return *(*at)++;
}

static inline void gs_put_bytes(unsigned char **at, const void *bytes, size_t size)
{
    if (size)
        memcpy(*at, bytes, size);
    *at += size;
}

static inline void gs_get_bytes(const unsigned char **at, void *bytes, size_t size)
{
    if (size)
        memcpy(bytes, *at, size);
    *at += size;
}

#endif
