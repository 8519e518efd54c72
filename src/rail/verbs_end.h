/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A client's end of verbs rails: a port with its protection domain and the memory registered in it. It outlives
 * the rails that use it, so that one that comes back finds the caller's buffers registered still.
 */
#ifndef GPUSYS_RAIL_VERBS_END_H
#define GPUSYS_RAIL_VERBS_END_H

#include "rail/verbs_keys.h"

#include <gpusys/verbs.h>
#include <stdatomic.h>

/* Memory of the caller's that is registered here. */
struct gs_landing {
    uint64_t address, length;
    uint64_t owner; /* the address that the caller gave: long ranges are several landings */
    uint32_t lkey;
    struct gpusys_mr *mr;
};

struct gs_verbs_end {
    atomic_uint holders;
    struct gpusys_verbs *verbs;
    struct gpusys_pd *pd;
    struct gpusys_port_info port;
    struct gpusys_gid_info gid;

    /* Touched by the remote's thread only. */
    struct gs_landing *landings;
    uint32_t n_landings, landings_size, landing_hit;
};

/* Takes over both, unless it fails. */
int gs_verbs_end_new(struct gs_verbs_end **ret_end, struct gpusys_verbs *verbs, struct gpusys_pd *pd);
int gs_verbs_end_open(struct gs_verbs_end **ret_end, const struct gpusys_verbs_options *options,
                      struct gpusys_error *error);
struct gs_verbs_end *gs_verbs_end_hold(struct gs_verbs_end *end);
void gs_verbs_end_drop(struct gs_verbs_end *end);

/* Register a range, in pieces that the device takes. */
int gs_verbs_end_register(struct gs_verbs_end *end, void *address, uint64_t length,
                          struct gpusys_error *error);
/* Let go of what was registered at that address; nothing of it may be under way. False: nothing was. */
bool gs_verbs_end_forget(struct gs_verbs_end *end, const void *address);

/* The registration that covers the range; NULL: none does. */
static inline const struct gs_landing *gs_verbs_end_find(struct gs_verbs_end *end, uint64_t address,
                                                         uint64_t length)
{
    for (uint32_t i = 0, at = end->landing_hit; i < end->n_landings; i++, at++) {
        at = at < end->n_landings ? at : 0;
        const struct gs_landing *landing = &end->landings[at];
        if (address - landing->address < landing->length &&
            length <= landing->length - (address - landing->address)) {
            end->landing_hit = at;
            return landing;
        }
    }
    return NULL;
}

/* ---- pairing ---- */

/* A local port and the peer's rail that it leads to. */
struct gs_verbs_pair {
    struct gs_verbs_end *end; /* held */
    struct gs_keyring *keys;  /* of the peer's regions there: they outlive the rail. Touched by the remote's
                                 thread only */
    uint32_t gid_index;
    uint8_t offer;              /* which of the peer's */
    struct gs_rail_record peer; /* as it offered it */
    bool same_subnet;
};

/* As a rail is described to the peer. */
void gs_verbs_end_describe(const struct gs_verbs_end *end, struct gs_rail_record *ret_record);

/*
 * Pair ports with what the peer offers: those of one subnet first, then the others in order (a probe will show
 * whether they reach each other). At most one pair for each port and each offer. `local_address`: our end of the
 * control connection. Their number; each holds its end.
 */
unsigned gs_verbs_pair(struct gs_verbs_end *const *ends, unsigned n_ends, const struct gs_rail_record *offers,
                       unsigned n_offers, const char *local_address, struct gs_verbs_pair *ret_pairs);

#endif
