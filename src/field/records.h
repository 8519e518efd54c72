/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the field's peers and their clients say before the rail handshake, and instead of it over tcp, as bytes. */
#ifndef GPUSYS_FIELD_RECORDS_H
#define GPUSYS_FIELD_RECORDS_H

#include <gpusys/error.h>
#include <gpusys/wire.h>
#include <stdint.h>

enum {
    GS_MODEL_MAX = 8192, /* bytes of a model request */
    GS_MANIFEST_MAX = 256 * 1024 * 1024,
    GS_HEADER_MAX = 16 * 1024 * 1024, /* an expert peer's */
    GS_PIECE_MAX = 16 * 1024 * 1024,  /* of a weights request over tcp */
    GS_CACHE_MAGIC_BYTES = 8,
    GS_CACHE_WISH_BYTES = 17, /* behind the magic */
    GS_WEIGHTS_REQUEST_BYTES = 16,
    GS_EXPERTS_REQUEST_BYTES = 8,
    GS_FIELD_REQUEST_MAX = 16,
};

#define GS_CACHE_MAGIC         UINT64_C(0x5041474500000002)
#define GS_CACHE_MAGIC_RETIRED UINT64_C(0x5041474500000001)
#define GS_CACHE_ARENA_MAX     (UINT64_C(1) << 42)

#define GS_GOODBYE UINT32_C(0xffffffff) /* the shard of a request, or both its fields: close, please */

/* [u64 magic], then [u8 kind][u64 arena_bytes][u64 blob_bytes]. */
struct gs_cache_wish {
    uint64_t arena_bytes, blob_bytes;
    uint8_t kind;
};

void gs_cache_wish_put(unsigned char bytes[GS_CACHE_MAGIC_BYTES + GS_CACHE_WISH_BYTES],
                       const struct gs_cache_wish *wish);
/* The magic, and what follows it; -EBADMSG, with the reason to be logged. */
int gs_cache_magic_check(const unsigned char bytes[GS_CACHE_MAGIC_BYTES], struct gpusys_error *error);
int gs_cache_wish_get(struct gs_cache_wish *ret_wish, const unsigned char bytes[GS_CACHE_WISH_BYTES],
                      struct gpusys_error *error);

/* Weights over tcp, our extension: [u32 shard][u64 offset][u32 length]. */
struct gs_weights_request {
    uint64_t offset;
    uint32_t shard, length;
};

void gs_weights_request_put(unsigned char *at, const struct gs_weights_request *request);
struct gs_weights_request gs_weights_request_get(const unsigned char *at);

/* Experts over tcp: [u32 layer][u32 record]. */
struct gs_experts_request {
    uint32_t layer, record;
};

void gs_experts_request_put(unsigned char *at, const struct gs_experts_request *request);
struct gs_experts_request gs_experts_request_get(const unsigned char *at);

#endif
