/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which compilation of XXH3 the running processor gets; src/base/hash_variant.c is compiled once for each. */
#include "base/hash.h"

#include <errno.h>
#include <gpusys/hash.h>
#include <stdatomic.h>
#include <stdlib.h>

static const struct gs_hash_variant *choose(void)
{
#ifdef GS_HASH_X86
    if (__builtin_cpu_supports("avx512f"))
        return &gs_hash_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &gs_hash_avx2;
#endif
    return &gs_hash_base;
}

static const struct gs_hash_variant *variant(void)
{
    static _Atomic(const struct gs_hash_variant *) chosen;
    const struct gs_hash_variant *use = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!use)
        atomic_store_explicit(&chosen, use = choose(), memory_order_relaxed);
    return use;
}

const char *gpusys_hash_variant(void)
{
    return variant()->name;
}

void gpusys_hash(const void *bytes, size_t size, uint8_t ret_hash[GPUSYS_HASH_BYTES])
{
    variant()->hash(bytes, size, ret_hash);
}

struct gpusys_hasher {
    const struct gs_hash_variant *variant;
    void *state;
};

int gpusys_hasher_new(struct gpusys_hasher **ret_hasher)
{
    struct gpusys_hasher *hasher = malloc(sizeof *hasher);
    if (!hasher)
        return -ENOMEM;
    hasher->variant = variant();
    hasher->state = hasher->variant->state_new();
    if (!hasher->state) {
        free(hasher);
        return -ENOMEM;
    }
    *ret_hasher = hasher;
    return 0;
}

void gpusys_hasher_free(struct gpusys_hasher *hasher)
{
    if (!hasher)
        return;
    hasher->variant->state_free(hasher->state);
    free(hasher);
}

void gpusys_hasher_reset(struct gpusys_hasher *hasher)
{
    hasher->variant->reset(hasher->state);
}

void gpusys_hasher_add(struct gpusys_hasher *hasher, const void *bytes, size_t size)
{
    hasher->variant->add(hasher->state, bytes, size);
}

void gpusys_hasher_get(const struct gpusys_hasher *hasher, uint8_t ret_hash[GPUSYS_HASH_BYTES])
{
    hasher->variant->get(hasher->state, ret_hash);
}
