/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/hash.h: XXH3-128, the checksum of chunks on the wire. It guards against mistakes, not against
 * malice.
 *
 * The 16 bytes are the canonical (big-endian) form, the one that `xxhsum -H128` prints. The widest vector
 * unit of the running processor is chosen at the first call. Any thread.
 */
#ifndef GPUSYS_HASH_H
#define GPUSYS_HASH_H

#include <gpusys/api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSYS_HASH_BYTES 16
#define GPUSYS_CHUNK_BYTES                                                                                   \
    (UINT64_C(16) << 20) /* what one checksum covers; the last chunk of a region is shorter */

GPUSYS_API void gpusys_hash(const void *bytes, size_t size, uint8_t ret_hash[GPUSYS_HASH_BYTES]);

/* The same over pieces in order. One object belongs to one thread at a time. */
struct gpusys_hasher;
GPUSYS_API int gpusys_hasher_new(struct gpusys_hasher **ret_hasher); /* -ENOMEM */
GPUSYS_API void gpusys_hasher_free(struct gpusys_hasher *hasher);
GPUSYS_API void gpusys_hasher_reset(struct gpusys_hasher *hasher);
GPUSYS_API void gpusys_hasher_add(struct gpusys_hasher *hasher, const void *bytes, size_t size);
GPUSYS_API void gpusys_hasher_get(const struct gpusys_hasher *hasher, uint8_t ret_hash[GPUSYS_HASH_BYTES]);

/* "avx512", "avx2", "sse2", "neon", "scalar": what the running processor was given. Static storage. */
GPUSYS_API const char *gpusys_hash_variant(void);

#ifdef __cplusplus
}
#endif

#endif
