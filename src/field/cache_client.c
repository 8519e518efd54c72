/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client of a cache peer: an arena of one's own, over verbs. */
#include "field/records.h"
#include "field/talk.h"

#include <gpusys/deadline.h>

#include <errno.h>

static int check(uint32_t cache_kind, uint64_t arena_bytes, const struct gpusys_field_options *options,
                 struct gpusys_error *error)
{
    if (cache_kind > GPUSYS_CACHE_KV || arena_bytes < 1 || arena_bytes > GS_CACHE_ARENA_MAX)
        return gpusys_error_set(
            error, -EINVAL,
            "a cache of kind %u with %llu bytes: kinds are 0 and 1, an arena has 1 to %llu bytes", cache_kind,
            (unsigned long long)arena_bytes, (unsigned long long)GS_CACHE_ARENA_MAX);
    if (options->require == GPUSYS_TRANSPORT_TCP)
        return gpusys_error_set(error, -EOPNOTSUPP, "the cache dialect goes over verbs alone");
    return gpusys_verbs_status(error);
}

static int open_over(struct gpusys_remote **ret_remote, struct gpusys_stream **stream,
                     const struct gs_cache_wish *wish, const struct gpusys_field_options *options,
                     int64_t deadline_ns, struct gpusys_error *error)
{
    const struct gpusys_field_region arena = {.name = "arena", .length = wish->arena_bytes};
    struct gs_verbs_opening opening = {.stream = stream,
                                       .dialect = GPUSYS_DIALECT_READ_WRITE,
                                       .options = options,
                                       .regions = &arena,
                                       .n_regions = 1,
                                       .deadline_ns = deadline_ns};
    unsigned char bytes[GS_CACHE_MAGIC_BYTES + GS_CACHE_WISH_BYTES];
    gs_cache_wish_put(bytes, wish);
    int code = gs_talk_write(*stream, "the preamble", bytes, sizeof bytes, deadline_ns, error);
    return code ? code : gs_verbs_opening_run(ret_remote, &opening, error);
}

int gpusys_cache_open(struct gpusys_remote **ret_remote, const char *address, uint32_t cache_kind,
                      uint64_t arena_bytes, const struct gpusys_field_options *options,
                      struct gpusys_error *error)
{
    struct gpusys_field_options known;
    struct gpusys_stream *stream = NULL;
    struct gs_cache_wish wish = {.kind = (uint8_t)cache_kind, .arena_bytes = arena_bytes};
    int code = gs_field_options_take(&known, options, error);
    int64_t deadline_ns = gs_field_deadline(&known);
    if (!code)
        code = check(cache_kind, arena_bytes, &known, error);
    if (!code)
        code = gpusys_stream_connect(&stream, address, deadline_ns, error);
    if (!code)
        code = open_over(ret_remote, &stream, &wish, &known, deadline_ns, error);
    gpusys_stream_close(stream);
    gs_field_options_free(&known);
    return code;
}
