/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The keys of the peer's regions on one rail. */
#ifndef GPUSYS_RAIL_VERBS_KEYS_H
#define GPUSYS_RAIL_VERBS_KEYS_H

#include "wire/message_rail.h"

enum { GS_KEY_ARENAS = 64 };

/* A region in pieces of piece_bytes each, the last one shorter. */
struct gs_keys {
    uint64_t piece_bytes; /* 0: not known */
    uint64_t length;      /* of the region, that the pieces must make up; 0: not said */
    uint32_t n;
    uint32_t place;          /* enum gpusys_region_place */
    struct gs_key_entry one; /* the only piece, or … */
    struct gs_key_entry *many;
};

struct gs_keyring {
    struct gs_keys *regions; /* by number */
    uint32_t n_regions;
    struct gs_keys arenas[GS_KEY_ARENAS];
};

/* The region's keys; NULL: not known. */
static inline const struct gs_keys *gs_keyring_find(const struct gs_keyring *ring, uint32_t region)
{
    const struct gs_keys *keys = NULL;
    if (region & UINT32_C(0x80000000))
        keys = (region & 0x7FFFFFFF) < GS_KEY_ARENAS ? &ring->arenas[region & 0x7FFFFFFF] : NULL;
    else if (region < ring->n_regions)
        keys = &ring->regions[region];
    return keys && keys->piece_bytes ? keys : NULL;
}

static inline const struct gs_key_entry *gs_keys_piece(const struct gs_keys *keys, uint64_t at)
{
    return at >= keys->n ? NULL : keys->n == 1 ? &keys->one : &keys->many[at];
}

/* How long the region is whose keys will come. -ENOMEM, -EPROTO: a number that no region has. */
int gs_keyring_expect(struct gs_keyring *ring, uint32_t region, uint64_t length);

/* Take the keys in: -EPROTO when their pieces do not make up what is expected. -ENOMEM. */
int gs_keyring_add(struct gs_keyring *ring, const struct gs_keyed *keyed);

/* One whole piece. */
int gs_keyring_add_one(struct gs_keyring *ring, uint32_t region, uint64_t base, uint32_t rkey);

void gs_keyring_forget(struct gs_keyring *ring, uint32_t region);
void gs_keyring_free(struct gs_keyring *ring);

#endif
