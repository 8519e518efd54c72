/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What clients reach over verbs: a protection domain on each of the peer's ports, and the regions registered in
 * it, each when it is first asked for. Clients with the same rights share one grant; a client that may have
 * arenas has one of its own, for a queue pair reaches everything that is registered in its domain.
 *
 * Registering and copying block, and belong on a thread of the pool. Any thread, under the grant's own lock.
 */
#ifndef GPUSYS_REMOTE_GRANT_H
#define GPUSYS_REMOTE_GRANT_H

#include "remote/loop.h"
#include "remote/region.h"
#include "wire/message_rail.h"

#include <gpusys/verbs.h>

enum { GS_PORTS_MAX = GS_RAILS_MAX };

/* The peer's ports. */
struct gs_served_port {
    struct gs_source source; /* its asynchronous events */
    struct gpusys_verbs *verbs;
    struct gpusys_port_info info;
};

struct gs_served_ports {
    struct gs_served_port at[GS_PORTS_MAX];
    unsigned n;
    atomic_ullong keyed_bytes, copied_bytes;
};

struct gs_verbs_grant;

/* One holder. -ENOMEM. */
int gs_verbs_grant_new(struct gs_verbs_grant **ret_grant, struct gs_served_ports *ports);
struct gs_verbs_grant *gs_verbs_grant_hold(struct gs_verbs_grant *grant);
/* True: nobody holds it any more, and gs_verbs_grant_free is the caller's to call, on whatever thread may block. */
bool gs_verbs_grant_release(struct gs_verbs_grant *grant);
void gs_verbs_grant_free(struct gs_verbs_grant *grant);

/* The domain on a port, and memory there to try a first read on. */
int gs_verbs_grant_port(struct gs_verbs_grant *grant, unsigned port, struct gpusys_pd **ret_pd,
                        struct gs_railed *ret_probe, struct gpusys_error *error);

/* A region's keys on a port; *ret_keys is the caller's to free. */
int gs_verbs_grant_keys(struct gs_verbs_grant *grant, unsigned port, struct gs_region *region,
                        struct gs_keyed *ret_keyed, struct gs_key_entry **ret_keys,
                        struct gpusys_error *error);

/* Deregister a region for good. NULL is fine, and so is one that is not registered. */
void gs_verbs_grant_forget(struct gs_verbs_grant *grant, struct gs_region *region);

#endif
