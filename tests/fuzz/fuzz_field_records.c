/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the field's clients say before the handshake and over tcp: a cache's preamble that is accepted is within its
 * bounds and comes back byte for byte; requests do always. */
#include "field/records.h"
#include "fuzz.h"

#include <errno.h>
#include <gpusys/field.h>
#include <string.h>

static void try_cache(const uint8_t *data)
{
    unsigned char again[GS_CACHE_MAGIC_BYTES + GS_CACHE_WISH_BYTES];
    struct gs_cache_wish wish;
    struct gpusys_error error = {0};
    int code = gs_cache_magic_check(data, &error);
    if (!code)
        code = gs_cache_wish_get(&wish, data + GS_CACHE_MAGIC_BYTES, &error);
    REQUIRE(code == 0 || (code == -EBADMSG && error.message[0]));
    if (code)
        return;
    REQUIRE(wish.kind <= GPUSYS_CACHE_KV && wish.blob_bytes == 0);
    REQUIRE(wish.arena_bytes >= 1 && wish.arena_bytes <= GS_CACHE_ARENA_MAX);
    gs_cache_wish_put(again, &wish);
    REQUIRE(memcmp(again, data, sizeof again) == 0);
}

static void try_requests(const uint8_t *data)
{
    unsigned char again[GS_FIELD_REQUEST_MAX];
    struct gs_weights_request weights = gs_weights_request_get(data);
    struct gs_experts_request experts = gs_experts_request_get(data);
    gs_weights_request_put(again, &weights);
    REQUIRE(memcmp(again, data, GS_WEIGHTS_REQUEST_BYTES) == 0);
    gs_experts_request_put(again, &experts);
    REQUIRE(memcmp(again, data, GS_EXPERTS_REQUEST_BYTES) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < GS_CACHE_MAGIC_BYTES + GS_CACHE_WISH_BYTES)
        return 0;
    try_cache(data);
    try_requests(data);
    return 0;
}
