/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Structs that grow: the first member is their size as the caller knows it. */
#ifndef GPUSYS_BASE_OPTIONS_H
#define GPUSYS_BASE_OPTIONS_H

#include <errno.h>
#include <stddef.h>
#include <string.h>

/*
 * 0 when `options` has the `known` bytes that this library reads and nothing but zeros behind them. -EINVAL
 * when it is NULL or shorter, -E2BIG when it asks for something that this library has not heard of.
 */
static inline int gs_options_check(const void *options, size_t known)
{
    size_t size;
    if (!options)
        return -EINVAL;
    memcpy(&size, options, sizeof size);
    if (size < known)
        return -EINVAL;
    for (size_t at = known; at < size; at++)
        if (((const unsigned char *)options)[at])
            return -E2BIG;
    return 0;
}

/*
 * The caller's options as this library knows them: what a caller of an older library does not have is 0. NULL
 * options: all 0. Errors as gs_options_check, but a shorter struct is fine.
 */
static inline int gs_options_take(void *known, size_t known_size, const void *options)
{
    size_t size = 0;
    memset(known, 0, known_size);
    if (!options)
        return 0;
    memcpy(&size, options, sizeof size);
    if (size < sizeof size)
        return -EINVAL;
    int error = size > known_size ? gs_options_check(options, known_size) : 0;
    if (!error)
        memcpy(known, options, size < known_size ? size : known_size);
    return error;
}

/* Hand information out to a caller whose struct may be older (cut) or newer (the rest 0). -EINVAL: no size in
 * it. */
static inline int gs_info_give(void *ret_info, const void *info, size_t known_size)
{
    size_t size;
    memcpy(&size, ret_info, sizeof size);
    if (size < sizeof size)
        return -EINVAL;
    memset(ret_info, 0, size);
    memcpy(ret_info, info, size < known_size ? size : known_size);
    memcpy(ret_info, &size, sizeof size);
    return 0;
}

#endif
