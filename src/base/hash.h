/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One compilation of XXH3-128 for one vector unit. */
#ifndef GPUSYS_BASE_HASH_H
#define GPUSYS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct gs_hash_variant {
    const char *name;
    void (*hash)(const void *bytes, size_t size, uint8_t ret_hash[16]);
    void *(*state_new)(void); /* reset; NULL when memory is out */
    void (*state_free)(void *state);
    void (*reset)(void *state);
    void (*add)(void *state, const void *bytes, size_t size);
    void (*get)(const void *state, uint8_t ret_hash[16]);
};

#if defined(__x86_64__)
#define GS_HASH_X86
extern const struct gs_hash_variant gs_hash_avx512, gs_hash_avx2;
#endif
extern const struct gs_hash_variant gs_hash_base;

#endif
