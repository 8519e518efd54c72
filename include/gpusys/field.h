/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/field.h: the peers in the field, from either side: weight peers (a model's shard files, read only),
 * cache peers (an arena of one's own) and expert peers (records of a fixed length), byte for byte as programs
 * already in use speak them (docs/protocol.md, "The field's dialects").
 *
 * A client opens a connection, reads the text with which the peer describes what it has (JSON; this library
 * parses none), and says in numbers what that text means. It then holds a remote (gpusys/remote.h) like any
 * other, with what these dialects have: regions and reads (and writes for a cache), no checksums, no notes, no
 * ping, no further arenas (-EOPNOTSUPP), and rails that do not come back once they have died.
 *
 *     weights   gpusys_weights_ask → gpusys_field_text → gpusys_field_connect
 *     experts   gpusys_experts_ask → gpusys_field_text → gpusys_field_connect
 *     cache     gpusys_cache_open
 *
 * None of them has any authentication: beyond loopback a server wants GPUSYS_FIELD_INSECURE.
 */
#ifndef GPUSYS_FIELD_H
#define GPUSYS_FIELD_H

#include <gpusys/remote.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpusys_field_kind {
    GPUSYS_FIELD_WEIGHTS = 1,
    GPUSYS_FIELD_CACHE = 2,
    GPUSYS_FIELD_EXPERTS = 3,
};

/* "weights", "cache", "experts"; and back: the enum, or -EINVAL. */
GPUSYS_API const char *gpusys_field_kind_name(enum gpusys_field_kind kind);
GPUSYS_API int gpusys_field_kind_parse(const char *name);

/* ---- the client's side ---- */

struct gpusys_field_options {
    size_t size;        /* sizeof(struct gpusys_field_options) */
    int64_t timeout_ns; /* for each call; 0: 10 s; -1: no limit */
    uint32_t require;   /* enum gpusys_transport: VERBS or TCP; ANY: verbs, and tcp where that cannot be */
    uint32_t n_devices; /* verbs: … */
    const char *const
        *devices;      /* … the devices of the rails, as in gpusys/verbs.h; NULL: every port that is up */
    uint32_t n_rails;  /* verbs: 0: one per device */
    uint32_t reserved; /* 0 */
    uint64_t slice_bytes; /* a transfer's piece on one rail; 0: as the transport likes it */
};

/* A connection on which the peer has described itself. */
struct gpusys_field_talk;

/* Ask for a model: 1 … 8192 bytes of UTF-8. -ECONNREFUSED: refused, with the two usual reasons. */
GPUSYS_API int gpusys_weights_ask(struct gpusys_field_talk **ret_talk, const char *address, const char *model,
                                  const struct gpusys_field_options *options, struct gpusys_error *error);

GPUSYS_API int gpusys_experts_ask(struct gpusys_field_talk **ret_talk, const char *address,
                                  const struct gpusys_field_options *options, struct gpusys_error *error);

/* The manifest or the header: JSON by agreement, any bytes in truth; a NUL follows. Lives as long as the talk. */
GPUSYS_API const char *gpusys_field_text(const struct gpusys_field_talk *talk, size_t *ret_bytes);

/* Close without connecting. NULL is fine. */
GPUSYS_API void gpusys_field_talk_close(struct gpusys_field_talk *talk);

/* What the text says: one entry per shard or layer, in order. */
struct gpusys_field_region {
    const char *name; /* checked with gpusys_name_check */
    uint64_t length;  /* bytes */
};

/*
 * Choose a transport, set it up, and have a remote with these regions (1 … 4096). `record_bytes`: experts over tcp
 * move whole records of that length, and every region's length is a multiple of it; weights: 0. Takes the talk over
 * and closes it, also when it fails. -EPROTO: the peer's table has another number of regions than the text. The peer
 * in the field refuses tcp for weights; ours answers.
 */
GPUSYS_API int gpusys_field_connect(struct gpusys_remote **ret_remote, struct gpusys_field_talk *talk,
                                    const struct gpusys_field_region *regions, uint32_t n_regions,
                                    uint64_t record_bytes, struct gpusys_error *error);

enum gpusys_cache_kind {
    GPUSYS_CACHE_SSM = 0,
    GPUSYS_CACHE_KV = 1,
};

/* A private arena of 1 … 2^42 bytes (RAW mode): region 0, readable and writable, over verbs only. */
GPUSYS_API int gpusys_cache_open(struct gpusys_remote **ret_remote, const char *address, uint32_t cache_kind,
                                 uint64_t arena_bytes, const struct gpusys_field_options *options,
                                 struct gpusys_error *error);

/* ---- the server's side ---- */

struct gpusys_field;

#define GPUSYS_FIELD_INSECURE 1u /* any address */

struct gpusys_field_server_options {
    size_t size;                /* sizeof(struct gpusys_field_server_options) */
    uint32_t kind;              /* enum gpusys_field_kind */
    uint32_t flags;             /* GPUSYS_FIELD_… */
    const char *listen;         /* "HOST:PORT"; NULL: loopback at GPUSYS_DEFAULT_PORT; port 0: any */
    uint32_t max_clients;       /* 0: 64 */
    uint32_t n_devices;         /* verbs: the devices of the rails, in the order in which they pair; … */
    const char *const *devices; /* … NULL: every port that is up */
    uint64_t max_arena_bytes;   /* cache: of one client, and of all together; 0: a quarter of the memory */
    int64_t step_timeout_ns;    /* how long a client may take for each step of its opening; 0: 10 s */
};

/*
 * Bind. Without any RDMA device a weights or experts server serves tcp alone (with a warning logged); a cache server
 * has nothing else: -EOPNOTSUPP and its like from gpusys/verbs.h.
 */
GPUSYS_API int gpusys_field_open(struct gpusys_field **ret_field,
                                 const struct gpusys_field_server_options *options,
                                 struct gpusys_error *error);

/*
 * Weights: a model and its shard files (1 … 4096), before or after start. A client names it by `path` or by its last
 * component; `manifest` is sent as it is. Files are opened for reading only, now; one that changes later is refused.
 */
GPUSYS_API int gpusys_field_add_model(struct gpusys_field *field, const char *path, const void *manifest,
                                      size_t manifest_bytes, const char *const *shards, uint32_t n_shards,
                                      struct gpusys_error *error);

/* Experts: the header, and one file per layer, each of whole records. Before start. */
GPUSYS_API int gpusys_field_set_layers(struct gpusys_field *field, const void *header, size_t header_bytes,
                                       uint64_t record_bytes, const char *const *layers, uint32_t n_layers,
                                       struct gpusys_error *error);

/* Begin to serve. -EINVAL: nothing was added. */
GPUSYS_API int gpusys_field_start(struct gpusys_field *field, struct gpusys_error *error);

/* With the real port; lives as long as the server. */
GPUSYS_API const char *gpusys_field_address(const struct gpusys_field *field);

struct gpusys_field_stats {
    size_t size;            /* in: sizeof(struct gpusys_field_stats) */
    uint64_t clients;       /* connected now */
    uint64_t clients_total; /* that came to the end of their opening */
    uint64_t refused_total;
    uint64_t verbs_total;  /* of them over verbs */
    uint64_t tcp_bytes;    /* sent over tcp */
    uint64_t arena_bytes;  /* held now */
    uint64_t copied_bytes; /* of files that could not be registered where they lie and were copied */
};
GPUSYS_API int gpusys_field_stats(const struct gpusys_field *field, struct gpusys_field_stats *ret_stats);

/* Disconnect every client, free. NULL is fine. */
GPUSYS_API void gpusys_field_close(struct gpusys_field *field);

#ifdef __cplusplus
}
#endif

#endif
