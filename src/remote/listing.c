/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The peer's table of regions as the client knows it, and the client's arenas. */
#include "remote/client.h"

#include "base/log.h"
#include "base/options.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdlib.h>

#define ARENA_BIT UINT32_C(0x80000000)

struct gs_listed *gs_listed_at(const struct gpusys_remote *remote, uint32_t region)
{
    struct gpusys_remote *self = (struct gpusys_remote *)(uintptr_t)remote;
    if (region & ARENA_BIT) {
        uint32_t slot = region & ~ARENA_BIT;
        return slot < GS_CLIENT_ARENAS && self->arenas[slot].length ? &self->arenas[slot] : NULL;
    }
    return region < self->n_regions ? &self->regions[region] : NULL;
}

/* ---- the table ---- */

struct listing {
    struct gs_listed *regions;
    uint64_t count, size;
    uint64_t name_bytes;
};

/* What a table may make us hold, whatever the peer says. */
static const uint64_t name_bytes_max = UINT64_C(1) << 30;

static void free_listing(struct listing *listing)
{
    for (uint64_t i = 0; i < listing->count; i++)
        free(listing->regions[i].name);
    free(listing->regions);
    *listing = (struct listing){0};
}

void gs_listing_free(struct gpusys_remote *remote)
{
    struct listing listing = {.regions = remote->regions, .count = remote->n_regions};
    free_listing(&listing);
    remote->regions = NULL;
    remote->n_regions = 0;
}

static int make_room(struct listing *listing)
{
    if (listing->count < listing->size)
        return 0;
    uint64_t size = listing->size ? 2 * listing->size : 64;
    struct gs_listed *regions = realloc(listing->regions, size * sizeof *regions);
    if (!regions)
        return -ENOMEM;
    listing->regions = regions;
    listing->size = size;
    return 0;
}

static bool makes_sense(const struct gs_region_entry *entry, uint64_t number)
{
    return entry->region == number && entry->kind <= GPUSYS_REGION_DIRECTORY &&
           entry->place <= GPUSYS_PLACE_COPY && (entry->access & ~3) == 0 &&
           (entry->kind != GPUSYS_REGION_DIRECTORY || entry->length == 0) && entry->length <= INT64_MAX;
}

static int keep_entry(const struct gpusys_remote *remote, struct listing *listing,
                      const struct gs_region_entry *entry, struct gpusys_error *error)
{
    if (!makes_sense(entry, listing->count))
        return gpusys_error_set(error, -EPROTO, "%s: entry %llu of its table makes no sense", remote->address,
                                (unsigned long long)listing->count);
    listing->name_bytes += entry->name.length;
    if (listing->name_bytes > name_bytes_max)
        return gpusys_error_set(error, -EFBIG, "%s: the names in its table are above %llu bytes",
                                remote->address, (unsigned long long)name_bytes_max);
    char *name = malloc(entry->name.length + 1u);
    if (!name || make_room(listing)) {
        free(name);
        return gpusys_error_set_errno(error, -ENOMEM, "the table of %s", remote->address);
    }
    memcpy(name, entry->name.at, entry->name.length);
    name[entry->name.length] = 0;
    struct gpusys_error fault;
    if (gpusys_name_check(name, &fault)) {
        free(name);
        gpusys_error_set(error, -EPROTO, "%s: entry %llu of its table is refused: %s", remote->address,
                         (unsigned long long)listing->count, fault.message);
        gpusys_error_set_cause(error, "a name like that could lead out of where files are put");
        return -EPROTO;
    }
    listing->regions[listing->count++] = (struct gs_listed){.length = entry->length,
                                                            .mtime_ns = entry->mtime_ns,
                                                            .mode = entry->mode & 07777,
                                                            .kind = entry->kind,
                                                            .access = entry->access,
                                                            .place = entry->place,
                                                            .name = name};
    return 0;
}

/* The page in `remote->answer`. *ret_total: how many there are in all. */
static int keep_page(const struct gpusys_remote *remote, struct listing *listing, uint64_t *ret_total,
                     struct gpusys_error *error)
{
    struct gs_regions page;
    struct gs_region_entry entry;
    if (gs_regions_decode(remote->answer.data, remote->answer_frame.body_bytes, &page) ||
        page.first != listing->count || (page.count == 0 && page.total > page.first) ||
        page.total > GS_REGIONS_MAX)
        return gpusys_error_set(error, -EPROTO, "%s: a page of its table is malformed", remote->address);
    for (uint32_t i = 0; i < page.count; i++) {
        if (gs_region_entry_next(&page, &entry))
            return gpusys_error_set(error, -EPROTO, "%s: a page of its table is malformed", remote->address);
        int result = keep_entry(remote, listing, &entry, error);
        if (result)
            return result;
    }
    *ret_total = page.total;
    return 0;
}

static int fetch(struct gpusys_remote *remote, struct listing *listing, int64_t deadline_ns,
                 struct gpusys_error *error)
{
    uint64_t total = 0;
    do {
        struct gs_list list = {.first = listing->count, .count = UINT32_MAX};
        uint64_t serial = gs_control_serial(remote);
        if (gs_list_encode(&remote->channel.out, serial, &list))
            return gpusys_error_set_errno(error, -ENOMEM, "the table of %s", remote->address);
        int result = gs_control_ask(remote, serial, GS_REGIONS, "LIST", deadline_ns, error);
        if (!result)
            result = keep_page(remote, listing, &total, error);
        if (result)
            return result;
    } while (listing->count < total);
    return 0;
}

int gpusys_remote_list(struct gpusys_remote *remote, int64_t timeout_ns, uint64_t *ret_count,
                       struct gpusys_error *error)
{
    struct listing listing = {0};
    if (remote->is_silent) { /* its table was given, and does not change */
        if (ret_count)
            *ret_count = remote->n_regions;
        return 0;
    }
    int result = fetch(remote, &listing, gpusys_deadline_after(timeout_ns), error);
    if (!result && listing.count < remote->n_regions)
        result = gpusys_error_set(error, -EPROTO, "%s: its table shrank", remote->address);
    if (result) {
        free_listing(&listing);
        return result;
    }
    gs_listing_free(remote);
    remote->regions = listing.regions;
    remote->n_regions = remote->n_regions_said = listing.count;
    if (ret_count)
        *ret_count = listing.count;
    return 0;
}

int gpusys_remote_region(const struct gpusys_remote *remote, uint32_t region,
                         struct gpusys_region_info *ret_info)
{
    const struct gs_listed *listed = gs_listed_at(remote, region);
    if (!listed)
        return -ENOENT;
    struct gpusys_region_info info = {.region = region,
                                      .kind = listed->kind,
                                      .access = listed->access,
                                      .place = gs_verbs_place(remote, region, listed->place),
                                      .mode = listed->mode,
                                      .length = listed->length,
                                      .mtime_ns = listed->mtime_ns,
                                      .name = listed->name ? listed->name : "arena"};
    return gs_info_give(ret_info, &info, sizeof info);
}

int gpusys_remote_find(const struct gpusys_remote *remote, const char *name, uint32_t *ret_region)
{
    for (uint64_t i = 0; i < remote->n_regions; i++)
        if (strcmp(remote->regions[i].name, name) == 0) {
            *ret_region = (uint32_t)i;
            return 0;
        }
    return -ENOENT;
}

/* ---- arenas ---- */

int gpusys_remote_arena_new(struct gpusys_remote *remote, uint64_t bytes, int64_t timeout_ns,
                            uint32_t *ret_region, struct gpusys_error *error)
{
    struct gs_granted granted;
    uint64_t serial = gs_control_serial(remote);
    if (gs_arena_encode(&remote->channel.out, serial, bytes))
        return gpusys_error_set_errno(error, -ENOMEM, "an arena");
    int result =
        gs_control_ask(remote, serial, GS_GRANTED, "ARENA", gpusys_deadline_after(timeout_ns), error);
    if (result)
        return result;
    uint32_t slot;
    if (gs_granted_decode(remote->answer.data, remote->answer_frame.body_bytes, &granted) ||
        !(granted.region & ARENA_BIT) || (slot = granted.region & ~ARENA_BIT) >= GS_CLIENT_ARENAS ||
        remote->arenas[slot].length || granted.length != bytes)
        return gpusys_error_set(error, -EPROTO, "%s granted something that is no arena of %llu bytes",
                                remote->address, (unsigned long long)bytes);
    remote->arenas[slot] = (struct gs_listed){.length = granted.length,
                                              .kind = GPUSYS_REGION_ARENA,
                                              .access = GPUSYS_ACCESS_READ | GPUSYS_ACCESS_WRITE};
    *ret_region = granted.region;
    return 0;
}

int gpusys_remote_arena_free(struct gpusys_remote *remote, uint32_t region, int64_t timeout_ns,
                             struct gpusys_error *error)
{
    struct gs_listed *listed = gs_listed_at(remote, region);
    uint64_t serial = gs_control_serial(remote);
    if (!listed || listed->kind != GPUSYS_REGION_ARENA)
        return gpusys_error_set(error, -ENOENT, "region %u is no arena", region);
    gpusys_remote_release(remote, region);
    gs_verbs_forget_region(remote, region);
    *listed = (struct gs_listed){0};
    if (gs_region_message_encode(&remote->channel.out, GS_ARENA_FREE, serial, region))
        return gpusys_error_set_errno(error, -ENOMEM, "an arena");
    return gs_control_ask(remote, serial, GS_FREED, "ARENA_FREE", gpusys_deadline_after(timeout_ns), error);
}
