/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "field/records.h"

#include "base/cursor.h"

#include <errno.h>
#include <gpusys/field.h>

void gs_cache_wish_put(unsigned char bytes[GS_CACHE_MAGIC_BYTES + GS_CACHE_WISH_BYTES],
                       const struct gs_cache_wish *wish)
{
    unsigned char *at = bytes;
    gs_put_u64(&at, GS_CACHE_MAGIC);
    gs_put_u8(&at, wish->kind);
    gs_put_u64(&at, wish->arena_bytes);
    gs_put_u64(&at, wish->blob_bytes);
}

int gs_cache_magic_check(const unsigned char bytes[GS_CACHE_MAGIC_BYTES], struct gpusys_error *error)
{
    const unsigned char *at = bytes;
    uint64_t magic = gs_get_u64(&at);
    if (magic == GS_CACHE_MAGIC)
        return 0;
    if (magic == GS_CACHE_MAGIC_RETIRED)
        return gpusys_error_set(error, -EBADMSG,
                                "it speaks the retired version 1 of the cache dialect, this is version 2");
    return gpusys_error_set(error, -EBADMSG, "it is no cache client: its first word is %#llx, not %#llx",
                            (unsigned long long)magic, (unsigned long long)GS_CACHE_MAGIC);
}

int gs_cache_wish_get(struct gs_cache_wish *ret_wish, const unsigned char bytes[GS_CACHE_WISH_BYTES],
                      struct gpusys_error *error)
{
    const unsigned char *at = bytes;
    struct gs_cache_wish wish = {.kind = gs_get_u8(&at)};
    wish.arena_bytes = gs_get_u64(&at);
    wish.blob_bytes = gs_get_u64(&at);
    if (wish.kind > GPUSYS_CACHE_KV)
        return gpusys_error_set(error, -EBADMSG,
                                "it asked for a cache of kind %u; there are 0 (SSM) and 1 (KV)", wish.kind);
    if (wish.arena_bytes < 1 || wish.arena_bytes > GS_CACHE_ARENA_MAX)
        return gpusys_error_set(error, -EBADMSG, "it asked for an arena of %llu bytes; 1 to %llu can be had",
                                (unsigned long long)wish.arena_bytes, (unsigned long long)GS_CACHE_ARENA_MAX);
    if (wish.blob_bytes != 0)
        return gpusys_error_set(
            error, -EBADMSG,
            "it asked for a paging arena with blobs of %llu bytes; this server serves RAW "
            "arenas alone (blob_bytes 0)",
            (unsigned long long)wish.blob_bytes);
    *ret_wish = wish;
    return 0;
}

void gs_weights_request_put(unsigned char *at, const struct gs_weights_request *request)
{
    gs_put_u32(&at, request->shard);
    gs_put_u64(&at, request->offset);
    gs_put_u32(&at, request->length);
}

struct gs_weights_request gs_weights_request_get(const unsigned char *at)
{
    struct gs_weights_request request = {.shard = gs_get_u32(&at)};
    request.offset = gs_get_u64(&at);
    request.length = gs_get_u32(&at);
    return request;
}

void gs_experts_request_put(unsigned char *at, const struct gs_experts_request *request)
{
    gs_put_u32(&at, request->layer);
    gs_put_u32(&at, request->record);
}

struct gs_experts_request gs_experts_request_get(const unsigned char *at)
{
    struct gs_experts_request request = {.layer = gs_get_u32(&at)};
    request.record = gs_get_u32(&at);
    return request;
}
