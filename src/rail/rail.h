/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A rail is one path to the peer. The engine (remote/engine.c) cuts transfers into slices and gives them to
 * rails; all it knows of a transport is this table.
 */
#ifndef GPUSYS_RAIL_RAIL_H
#define GPUSYS_RAIL_RAIL_H

#include "wire/message.h"

#include <gpusys/error.h>
#include <gpusys/remote.h>
#include <stddef.h>

/*
 * A piece of a transfer. The engine owns it; a rail holds it from post until poll or quiesce gives it back.
 */
struct gs_slice {
    struct gs_slice *next;
    void *owner;  /* the engine's; a rail only compares it */
    void *buffer; /* NULL in a read: what comes is thrown away */
    uint64_t offset;
    uint32_t length, region;
    uint32_t tag;     /* the rail's own */
    uint8_t op;       /* enum gpusys_op */
    uint8_t failures; /* rails that died under it */
    bool sent;        /* a write of which the peer may have seen something */
    int32_t status;   /* once done */
};

/* A chain of slices, in order. */
struct gs_slices {
    struct gs_slice *first, *last;
};

static inline void gs_slices_push(struct gs_slices *chain, struct gs_slice *slice)
{
    slice->next = NULL;
    if (chain->last)
        chain->last->next = slice;
    else
        chain->first = slice;
    chain->last = slice;
}

static inline struct gs_slice *gs_slices_pop(struct gs_slices *chain)
{
    struct gs_slice *slice = chain->first;
    if (slice && !(chain->first = slice->next))
        chain->last = NULL;
    return slice;
}

struct gs_verbs_pair;

/* Where a rail goes. Texts, the pair and the session live longer than the rail. */
struct gs_rail_target {
    const char *address;   /* tcp: as the control stream connected */
    const char *unix_path; /* shm */
    const uint8_t *session, *proof;
    const struct gs_verbs_pair *pair; /* verbs: our port and the peer's */
    uint8_t index;
    uint32_t generation;
    uint32_t slice_max, requests_max; /* as the peer said */
    bool proven;                      /* it showed its half of the cookie: this user's own server */
};

struct gs_rail {
    const struct gs_rail_ops *ops;
};

/* What the engine tells a rail of a region when the rail is to make it usable. */
struct gs_rail_region {
    uint32_t number;
    uint8_t kind, access, place;
    uint64_t length;
    int64_t mtime_ns;
};

struct gs_rail_ops {
    enum gpusys_transport transport;
    uint32_t slice_bytes; /* how long it likes its slices */

    /* Connect and attach; waits until the deadline. */
    int (*connect)(struct gs_rail **ret_rail, const struct gs_rail_target *target, int64_t deadline_ns,
                   struct gpusys_error *error);

    /* Make a region usable; NULL when there is nothing to do. Waits until the deadline. */
    int (*prepare)(struct gs_rail *rail, const struct gs_rail_region *region, int64_t deadline_ns,
                   struct gpusys_error *error);

    /* How many slices it would take now. */
    unsigned (*room)(const struct gs_rail *rail);

    /* Take a chain of at most room() slices. They start now or with the next start. */
    void (*post)(struct gs_rail *rail, struct gs_slices *chain);

    /* Start what was posted; a rail that dies of it says so at the next poll. NULL: post starts all. */
    void (*start)(struct gs_rail *rail);

    /* Move what can be moved without waiting, append what is done. A negative errno: the rail is dead. */
    int (*poll)(struct gs_rail *rail, struct gs_slices *done);

    /* The descriptor and EPOLL… bits to wait for before poll has something to do; -1: poll at once while
     * busy. */
    int (*fd)(const struct gs_rail *rail);
    uint32_t (*events)(const struct gs_rail *rail);
    bool (*busy)(const struct gs_rail *rail);

    /* When poll has to be called though no descriptor says so; GPUSYS_NO_DEADLINE. NULL: never. */
    int64_t (*due)(const struct gs_rail *rail);

    /*
     * The slices of this owner let go of their buffers: what can be taken back goes to `dropped`, reads under
     * way land nowhere, writes under way lose their owner. -EBUSY: one could not (it is half sent), so the
     * rail must die.
     */
    int (*abandon)(struct gs_rail *rail, const void *owner, struct gs_slices *dropped);

    /* Stop for good; everything outstanding comes back. Nothing touches a buffer after this. */
    void (*quiesce)(struct gs_rail *rail, struct gs_slices *outstanding);

    void (*close)(struct gs_rail *rail);
};

extern const struct gs_rail_ops gs_rail_tcp, gs_rail_shm, gs_rail_verbs;

/* ATTACH over a fresh connection, up to ATTACHED and its proof. */
struct gpusys_stream;
int gs_rail_attach(struct gpusys_stream *stream, const struct gs_rail_target *target,
                   enum gpusys_transport transport, int64_t deadline_ns, struct gpusys_error *error);

#endif
