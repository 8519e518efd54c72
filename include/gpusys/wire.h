/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/wire.h: the records and constants of the rail handshake, as bytes and as structs. Needs no RDMA.
 *
 * Every integer travels little-endian and nothing is padded. A QPN and a PSN travel with all their 32 bits;
 * that they have 24 is checked when a queue pair is connected, not here.
 *
 * Encoders write at most `size` bytes and set *ret_size to how many they wrote: -EINVAL for a count out of
 * range, before anything is written, -ENOSPC for a buffer that is too small. Decoders read a record from the
 * front of `bytes` and set *ret_size to how many it took; what follows is not looked at: -ENODATA when `size`
 * bytes are not the whole record, -EBADMSG for a count out of range, which is seen before the body is. None
 * of them allocates. A call that fails leaves its outputs as they were, but for the needed counts of -ENOSPC
 * below. Any thread.
 */
#ifndef GPUSYS_WIRE_H
#define GPUSYS_WIRE_H

#include <gpusys/api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ack byte of the handshake, and the status byte of a reply in record streaming. */
enum gpusys_status {
    GPUSYS_STATUS_OK = 0,
    GPUSYS_STATUS_ERR = 1,
};

/* The transport byte in front of the handshake. */
enum gpusys_mode {
    GPUSYS_MODE_TCP = 0,   /* records over the same connection */
    GPUSYS_MODE_VERBS = 1, /* one-sided RDMA: the rail handshake follows */
};

#define GPUSYS_MAX_RAILS_READ_ONLY  8u
#define GPUSYS_MAX_RAILS_READ_WRITE 255u /* the count is one byte */
#define GPUSYS_MAX_REGIONS          4096u

/* Sizes on the wire, in bytes. */
#define GPUSYS_QP_PARAMS_BYTES                    24u
#define GPUSYS_REGION_KEY_BYTES                   12u
#define GPUSYS_CACHE_SERVER_PARAMS_BYTES          36u
#define GPUSYS_VERBS_SERVER_PARAMS_BYTES(regions) ((size_t)28 + (size_t)12 * (regions))
#define GPUSYS_CLIENT_RAILS_BYTES(rails)          ((size_t)1 + (size_t)24 * (rails))
#define GPUSYS_SERVER_RAILS_RW_BYTES(rails)       ((size_t)1 + (size_t)36 * (rails))

/* One end of a queue pair: VerbsClientParams on the wire. `psn` is the number that end sends first. */
struct gpusys_qp_params {
    uint32_t qpn, psn;
    uint8_t gid[16]; /* as it travels: 16 raw bytes */
};

/* Where a region starts in the server's address space, and the key that opens it. */
struct gpusys_region_key {
    uint64_t base;
    uint32_t rkey;
    uint32_t reserved; /* decoded as 0; encoding ignores it */
};

/* VerbsServerParams: one rail of a read-only server, with the table of what it serves (1 … 4096 regions). */
struct gpusys_verbs_server_params {
    struct gpusys_qp_params qp;
    uint32_t n_regions;
    uint32_t capacity; /* for reading: how many entries `regions` has room for; encoding ignores it */
    struct gpusys_region_key *regions; /* the caller's storage */
};

/* CacheServerParams: one rail of a read-write server, which has one region, the arena. */
struct gpusys_cache_server_params {
    struct gpusys_qp_params qp;
    struct gpusys_region_key region;
};

GPUSYS_API int gpusys_qp_params_encode(const struct gpusys_qp_params *params, void *buffer, size_t size,
                                       size_t *ret_size);
GPUSYS_API int gpusys_qp_params_decode(struct gpusys_qp_params *ret_params, const void *bytes, size_t size,
                                       size_t *ret_size);

GPUSYS_API int gpusys_cache_server_params_encode(const struct gpusys_cache_server_params *params,
                                                 void *buffer, size_t size, size_t *ret_size);
GPUSYS_API int gpusys_cache_server_params_decode(struct gpusys_cache_server_params *ret_params,
                                                 const void *bytes, size_t size, size_t *ret_size);

/*
 * Decoding fills `regions`, where the caller put storage for `capacity` entries. -ENOSPC when that is too
 * few: `n_regions` then says how many are needed, and nothing else was written.
 */
GPUSYS_API int gpusys_verbs_server_params_encode(const struct gpusys_verbs_server_params *params,
                                                 void *buffer, size_t size, size_t *ret_size);
GPUSYS_API int gpusys_verbs_server_params_decode(struct gpusys_verbs_server_params *params, const void *bytes,
                                                 size_t size, size_t *ret_size);

/*
 * What a server sends, [u8 n_rails] and that many records: 1 … 8 rails in the read-only dialect, 1 … 255 in
 * the read-write dialect. A decoder fills `n_rails` records of the caller; -EPROTO when the bytes hold
 * another number of them. -ENOSPC from the read-only decoder: every rail's `n_regions` says how many entries
 * it needs, and nothing else was written.
 */
GPUSYS_API int gpusys_server_rails_ro_size(const struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                           size_t *ret_size);
GPUSYS_API int gpusys_server_rails_ro_encode(const struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                             void *buffer, size_t size, size_t *ret_size);
GPUSYS_API int gpusys_server_rails_ro_decode(struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                             const void *bytes, size_t size, size_t *ret_size);
GPUSYS_API int gpusys_server_rails_rw_encode(const struct gpusys_cache_server_params *rails, uint32_t n_rails,
                                             void *buffer, size_t size, size_t *ret_size);
GPUSYS_API int gpusys_server_rails_rw_decode(struct gpusys_cache_server_params *rails, uint32_t n_rails,
                                             const void *bytes, size_t size, size_t *ret_size);

/* What a client answers in either dialect: [u8 n_rails] and that many VerbsClientParams, 1 … 255. */
GPUSYS_API int gpusys_client_rails_encode(const struct gpusys_qp_params *rails, uint32_t n_rails,
                                          void *buffer, size_t size, size_t *ret_size);
GPUSYS_API int gpusys_client_rails_decode(struct gpusys_qp_params *rails, uint32_t n_rails, const void *bytes,
                                          size_t size, size_t *ret_size);

#ifdef __cplusplus
}
#endif

#endif
