/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A cache peer's client: zeroed memory for it alone, in domains of its own, until it leaves. */
#include "base/log.h"
#include "field/records.h"
#include "field/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

/* What one client has. */
struct arena {
    uint64_t bytes;
    void *map;
    struct gpusys_pd *pds[GS_DEVICES_MAX];
    struct gpusys_mr *mrs[GS_DEVICES_MAX];
    struct gpusys_railset *set;
};

static int read_wish(struct gs_field_client *client, struct gs_cache_wish *ret_wish,
                     struct gpusys_error *error)
{
    unsigned char magic[GS_CACHE_MAGIC_BYTES], rest[GS_CACHE_WISH_BYTES];
    int code = gs_client_read(client, "the preamble", magic, sizeof magic, error);
    if (!code)
        code = gs_cache_magic_check(magic, error);
    if (!code)
        code = gs_client_read(client, "the preamble", rest, sizeof rest, error);
    return code ? code : gs_cache_wish_get(ret_wish, rest, error);
}

static void give_back(struct gpusys_field *field, uint64_t bytes)
{
    pthread_mutex_lock(&field->lock);
    field->arena_bytes -= bytes;
    pthread_mutex_unlock(&field->lock);
}

static int reserve(struct gpusys_field *field, uint64_t bytes, struct gpusys_error *error)
{
    uint64_t available = gs_memory_available();
    pthread_mutex_lock(&field->lock);
    uint64_t left = field->max_arena_bytes - field->arena_bytes;
    bool fits = bytes <= left && bytes <= available;
    if (fits)
        field->arena_bytes += bytes;
    pthread_mutex_unlock(&field->lock);
    if (fits)
        return 0;
    return gpusys_error_set(error, bytes > left ? -EDQUOT : -ENOMEM,
                            "an arena of %" PRIu64 " bytes was asked for; of %" PRIu64
                            " for all arenas %" PRIu64 " are left, and the machine has %" PRIu64 " free",
                            bytes, field->max_arena_bytes, left, available);
}

static int map_arena(struct arena *arena, struct gpusys_error *error)
{
    void *map = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return gpusys_error_set_errno(error, -errno, "an arena of %" PRIu64 " bytes", arena->bytes);
    arena->map = map;
    return 0;
}

static int open_domains(const struct gpusys_field *field, struct arena *arena, struct gpusys_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < field->n_devices && !code; i++)
        code = gpusys_pd_open(&arena->pds[i], field->devices[i].verbs, error);
    return code;
}

static int register_arena(const struct gpusys_field *field, struct arena *arena,
                          struct gpusys_region_key *keys, struct gpusys_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < gpusys_railset_count(arena->set) && !code; i++) {
        struct gpusys_mr_info info = {.size = sizeof info};
        if (i >= field->n_devices) /* accept refuses that */
            return gpusys_error_set(error, -ENODEV, "rail %u, %u devices", i, field->n_devices);
        code = gpusys_mr_open(&arena->mrs[i], arena->pds[i], arena->map, arena->bytes,
                              GPUSYS_MR_PEER_READ_WRITE, error);
        if (!code && (code = gpusys_mr_info(arena->mrs[i], &info)) == 0)
            keys[i] = (struct gpusys_region_key){.base = info.address, .rkey = info.rkey};
    }
    return code;
}

static int serve_arena(struct gs_field_client *client, struct arena *arena, struct gpusys_error *error)
{
    struct gpusys_field *field = client->field;
    uint32_t gids[GS_DEVICES_MAX];
    struct gpusys_railset_options options = {
        .size = sizeof options, .n_devices = field->n_devices, .gid_index = gids};
    struct gpusys_region_key keys[GS_DEVICES_MAX];
    char over[64];
    gs_devices_gids(field, client->stream, gids);
    int code = map_arena(arena, error);
    if (!code)
        code = open_domains(field, arena, error);
    if (!code)
        code = gpusys_railset_accept(&arena->set, client->stream, GPUSYS_DIALECT_READ_WRITE, &options,
                                     arena->pds, gs_client_deadline(client), error);
    if (!code)
        code = register_arena(field, arena, keys, error);
    if (!code)
        code = gpusys_railset_serve_rw(arena->set, keys, gs_client_deadline(client), error);
    if (code)
        return code;
    snprintf(over, sizeof over, "%u rails, an arena of %" PRIu64 " bytes", gpusys_railset_count(arena->set),
             arena->bytes);
    gs_client_opened(client, true, over);
    return gs_client_idle(client, error);
}

static void close_arena(struct arena *arena)
{
    gpusys_railset_close(arena->set);
    for (uint32_t i = 0; i < GS_DEVICES_MAX; i++) {
        gpusys_mr_close(arena->mrs[i]);
        gpusys_pd_close(arena->pds[i]);
    }
    if (arena->map)
        munmap(arena->map, arena->bytes);
}

int gs_serve_cache(struct gs_field_client *client, struct gpusys_error *error)
{
    struct gs_cache_wish wish;
    int code = read_wish(client, &wish, error);
    if (!code)
        code = reserve(client->field, wish.arena_bytes, error);
    if (code)
        return code;
    struct arena arena = {.bytes = wish.arena_bytes};
    code = serve_arena(client, &arena, error);
    close_arena(&arena);
    give_back(client->field, arena.bytes);
    return code;
}
