/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "rail/verbs_keys.h"

#include <errno.h>
#include <stdlib.h>

static const uint64_t whole = UINT64_MAX;

/* The place for a region's keys, made if it is not there. */
static int make_room(struct gs_keyring *ring, uint32_t region, struct gs_keys **ret_keys)
{
    if (region & UINT32_C(0x80000000)) {
        if ((region & 0x7FFFFFFF) >= GS_KEY_ARENAS)
            return -EPROTO;
        *ret_keys = &ring->arenas[region & 0x7FFFFFFF];
        return 0;
    }
    if (region >= ring->n_regions) {
        uint32_t count = region + 64 + region / 2;
        struct gs_keys *regions = realloc(ring->regions, count * sizeof *regions);
        if (!regions)
            return -ENOMEM;
        memset(regions + ring->n_regions, 0, (count - ring->n_regions) * sizeof *regions);
        ring->regions = regions;
        ring->n_regions = count;
    }
    *ret_keys = &ring->regions[region];
    return 0;
}

int gs_keyring_expect(struct gs_keyring *ring, uint32_t region, uint64_t length)
{
    struct gs_keys *place;
    int result = make_room(ring, region, &place);
    if (!result)
        place->length = length;
    return result;
}

static int read_keys(const struct gs_keyed *keyed, uint64_t length, struct gs_keys *ret_keys)
{
    struct gs_keys keys = {
        .piece_bytes = keyed->piece_bytes, .length = length, .n = keyed->n_keys, .place = keyed->place};
    struct gs_key_entry *at = &keys.one;
    if (keys.n > 1 && !(at = keys.many = calloc(keys.n, sizeof *keys.many)))
        return -ENOMEM;
    for (uint32_t i = 0; i < keys.n; i++)
        if (gs_keyed_get(keyed, i, &at[i])) {
            free(keys.many);
            return -EPROTO;
        }
    *ret_keys = keys;
    return 0;
}

int gs_keyring_add(struct gs_keyring *ring, const struct gs_keyed *keyed)
{
    struct gs_keys keys, *place;
    int result = make_room(ring, keyed->region, &place);
    if (result)
        return result;
    if (place->length && (place->length - 1) / keyed->piece_bytes + 1 != keyed->n_keys)
        return -EPROTO;
    result = read_keys(keyed, place->length, &keys);
    if (result)
        return result;
    free(place->many);
    *place = keys;
    return 0;
}

int gs_keyring_add_one(struct gs_keyring *ring, uint32_t region, uint64_t base, uint32_t rkey)
{
    struct gs_keys *place;
    int result = make_room(ring, region, &place);
    if (!result) {
        free(place->many);
        *place = (struct gs_keys){.piece_bytes = whole, .n = 1, .one = {.base = base, .rkey = rkey}};
    }
    return result;
}

void gs_keyring_forget(struct gs_keyring *ring, uint32_t region)
{
    struct gs_keys *keys = (struct gs_keys *)(uintptr_t)gs_keyring_find(ring, region);
    if (!keys)
        return;
    free(keys->many);
    *keys = (struct gs_keys){0};
}

void gs_keyring_free(struct gs_keyring *ring)
{
    for (uint32_t i = 0; i < ring->n_regions; i++)
        free(ring->regions[i].many);
    for (uint32_t i = 0; i < GS_KEY_ARENAS; i++)
        free(ring->arenas[i].many);
    free(ring->regions);
    *ring = (struct gs_keyring){0};
}
