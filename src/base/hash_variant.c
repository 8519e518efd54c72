/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * xxHash's own code, inlined and compiled for one vector unit. The build compiles this file several times
 * with GS_HASH_VARIANT (the object's name), GS_HASH_NAME and the compiler's options for the unit.
 */
#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <xxhash.h>
#pragma GCC diagnostic pop

#include "base/hash.h"

static void canonical(XXH128_hash_t hash, uint8_t ret_hash[16])
{
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    memcpy(ret_hash, bytes.digest, 16);
}

static void hash_once(const void *bytes, size_t size, uint8_t ret_hash[16])
{
    canonical(XXH3_128bits(bytes, size), ret_hash);
}

static void state_reset(void *state)
{
    XXH3_128bits_reset(state);
}

static void *state_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state)
        state_reset(state);
    return state;
}

static void state_free(void *state)
{
    XXH3_freeState(state);
}

static void state_add(void *state, const void *bytes, size_t size)
{
    XXH3_128bits_update(state, bytes, size);
}

static void state_get(const void *state, uint8_t ret_hash[16])
{
    canonical(XXH3_128bits_digest(state), ret_hash);
}

const struct gs_hash_variant GS_HASH_VARIANT = {
    .name = GS_HASH_NAME,
    .hash = hash_once,
    .state_new = state_new,
    .state_free = state_free,
    .reset = state_reset,
    .add = state_add,
    .get = state_get,
};
