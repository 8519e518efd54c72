/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/railset.h: several rails at once, set up by the rail handshake of the peers in the field
 * (gpusys/handshake.h) on any stream, from either side. A rail is a port, a domain and a queue pair.
 *
 *     client                                       server
 *     gpusys_railset_begin    → [n]                gpusys_railset_accept      reads n, makes n queue pairs
 *     … registers where to land …                  … registers what it serves, in each rail's domain …
 *     gpusys_railset_read_server_ro | _rw          gpusys_railset_serve_ro | _rw   sends its table, reads the
 *     … compares the table with what it expects …                             client's half, connects, acks
 *     gpusys_railset_complete → its half; connects; reads the ack
 *     gpusys_railset_probe    does the path carry the MTU that we took for it?
 *     gpusys_railset_take     a rail is the caller's from here on
 *
 * The queue pairs exist before the count is sent: a client whose device is wrong costs the server nothing.
 * Rails pair by their index. The dialects say nothing of MTUs, read depths or LIDs: those start from our own
 * port's values, and `probe` finds a smaller MTU of the peer's.
 *
 * The stream stays the caller's. A set belongs to one thread at a time. Errors as in gpusys/handshake.h and
 * gpusys/verbs.h; a call that failed leaves nothing to do but close.
 */
#ifndef GPUSYS_RAILSET_H
#define GPUSYS_RAILSET_H

#include <gpusys/handshake.h>
#include <gpusys/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpusys_railset;

/* One rail. Close in this order: queue pair, memory registered in the domain, domain, port. */
struct gpusys_rail {
    struct gpusys_verbs *verbs;
    struct gpusys_pd *pd;
    struct gpusys_qp *qp;
};

struct gpusys_railset_options {
    size_t size;                /* sizeof(struct gpusys_railset_options) */
    const char *const *devices; /* one per rail, as in gpusys_verbs_options; NULL: every port that is up */
    uint32_t n_devices;
    uint32_t n_rails; /* client: rails wanted; 0: one per device. Above n_devices: -ENODEV, both numbers */
    const uint32_t *gid_index;          /* one per device; NULL: chosen */
    const struct gpusys_qp_options *qp; /* NULL: the defaults */
};

/* Client: open the rails, queue pairs in INIT, and ask for as many. Writes one byte. */
GPUSYS_API int gpusys_railset_begin(struct gpusys_railset **ret_set, struct gpusys_stream *stream,
                                    enum gpusys_dialect dialect, const struct gpusys_railset_options *options,
                                    int64_t deadline_ns, struct gpusys_error *error);

/*
 * Server: read how many rails the client wants and open them. -ENODEV: more than there are, with both numbers; a
 * refusal has no frame, so close the stream. `pds` (may be NULL): the domains to use instead of opening a port and
 * a domain for each rail, `options->n_devices` of them in the order of the rails; they stay the caller's.
 */
GPUSYS_API int gpusys_railset_accept(struct gpusys_railset **ret_set, struct gpusys_stream *stream,
                                     enum gpusys_dialect dialect,
                                     const struct gpusys_railset_options *options,
                                     struct gpusys_pd *const *pds, int64_t deadline_ns,
                                     struct gpusys_error *error);

GPUSYS_API uint32_t gpusys_railset_count(const struct gpusys_railset *set);
/* Rail `at`, still the set's; NULL behind the last one. */
GPUSYS_API const struct gpusys_rail *gpusys_railset_rail(const struct gpusys_railset *set, uint32_t at);

/* Client, read-only dialect: read the server's table. */
GPUSYS_API int gpusys_railset_read_server_ro(struct gpusys_railset *set, int64_t deadline_ns,
                                             struct gpusys_error *error);
/* Its regions on rail `at`; they live as long as the set. NULL with *ret_count 0 before the table was read. */
GPUSYS_API const struct gpusys_region_key *gpusys_railset_regions(const struct gpusys_railset *set,
                                                                  uint32_t at, uint32_t *ret_count);
/* Client, read-write dialect: read the server's arena; gpusys_railset_regions then has the one region. */
GPUSYS_API int gpusys_railset_read_server_rw(struct gpusys_railset *set, int64_t deadline_ns,
                                             struct gpusys_error *error);

/* Client: send our half, connect every queue pair, read the ack. */
GPUSYS_API int gpusys_railset_complete(struct gpusys_railset *set, int64_t deadline_ns,
                                       struct gpusys_error *error);

/* read_server_rw and complete in one. */
GPUSYS_API int gpusys_railset_finish_rw(struct gpusys_railset *set, int64_t deadline_ns,
                                        struct gpusys_error *error);

/*
 * Client: find out on every rail whether reads longer than one packet arrive, and lower the MTU where they do not
 * (twice at most). Reads at most `length` bytes, of which twice our MTU and one are used, from the start of region `region`;
 * in the read-write dialect the same bytes are written back. A region of at most 256 bytes proves nothing and needs no
 * proof: 0. -EPROTO after two tries, with both MTUs in the error.
 */
GPUSYS_API int gpusys_railset_probe(struct gpusys_railset *set, uint32_t region, uint64_t length,
                                    int64_t deadline_ns, struct gpusys_error *error);

/*
 * Server, read-only dialect: send the table (`keys[rail]` are that rail's `n_regions` entries), read the client's half,
 * connect, and ack. A set that cannot connect sends an ack that is not 0 before it fails.
 */
GPUSYS_API int gpusys_railset_serve_ro(struct gpusys_railset *set,
                                       const struct gpusys_region_key *const *keys, uint32_t n_regions,
                                       int64_t deadline_ns, struct gpusys_error *error);
/* Server, read-write dialect: `keys[rail]` is the arena there, the base the same on each. */
GPUSYS_API int gpusys_railset_serve_rw(struct gpusys_railset *set, const struct gpusys_region_key *keys,
                                       int64_t deadline_ns, struct gpusys_error *error);

/*
 * Hand rail `at` over: the caller closes it from now on. Of a set that was accepted with `pds` it has the queue
 * pair alone (verbs and pd are NULL). -ENOENT: there is none, it was taken, or its probe failed.
 */
GPUSYS_API int gpusys_railset_take(struct gpusys_railset *set, uint32_t at, struct gpusys_rail *ret_rail);

/* Close a rail that was taken: queue pair, domain, port. Its memory must have been closed before. */
GPUSYS_API void gpusys_rail_close(struct gpusys_rail *rail);

/* Close what was not taken. NULL is fine. */
GPUSYS_API void gpusys_railset_close(struct gpusys_railset *set);

#ifdef __cplusplus
}
#endif

#endif
