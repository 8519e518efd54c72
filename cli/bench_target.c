/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bench_target.h"
#include "output.h"
#include "quantity.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <gpusys/field.h>
#include <string.h>

static const uint64_t most_faulted_in = UINT64_C(4) << 30;

static int region_info(const struct bench_target *target, uint32_t region,
                       struct gpusys_region_info *ret_info)
{
    ret_info->size = sizeof *ret_info;
    return gpusys_remote_region(target->remote, region, ret_info);
}

static int take_arena(struct bench_target *target, const struct bench_wishes *wishes,
                      struct gpusys_error *error)
{
    uint32_t region;
    char size[QUANTITY_BYTES];
    uint64_t bytes =
        target->info.arena_bytes < wishes->arena_bytes ? target->info.arena_bytes : wishes->arena_bytes;
    int code = gpusys_remote_arena_new(target->remote, bytes, wishes->timeout_ns, &region, error);
    if (!code)
        code = region_info(target, region, &target->region);
    if (!code)
        snprintf(target->name, sizeof target->name, "an arena of %s", quantity_of_bytes(size, bytes));
    return code;
}

static int find_named(struct bench_target *target, const struct bench_wishes *wishes,
                      struct gpusys_error *error)
{
    uint32_t region;
    int code = gpusys_remote_find(target->remote, wishes->region, &region);
    if (!code)
        code = region_info(target, region, &target->region);
    if (code) {
        gpusys_error_set(error, code, "%s: the peer serves no region \"%s\"", target->info.address,
                         wishes->region);
        gpusys_error_set_hint(error, "gpusys ls %s", target->info.address);
    }
    return code;
}

static int find_largest(struct bench_target *target, uint64_t n_regions, struct gpusys_error *error)
{
    for (uint32_t i = 0; i < n_regions; i++) {
        struct gpusys_region_info info;
        if (region_info(target, i, &info) == 0 && info.access & GPUSYS_ACCESS_READ &&
            info.length > target->region.length)
            target->region = info;
    }
    if (target->region.length)
        return 0;
    gpusys_error_set(error, -ENOENT, "%s: the peer serves nothing to read and gives no arena",
                     target->info.address);
    gpusys_error_set_hint(error, "gpusys serve --arena 256M");
    return -ENOENT;
}

static int find_region(struct bench_target *target, const struct bench_wishes *wishes,
                       struct gpusys_error *error)
{
    uint64_t n_regions;
    char size[QUANTITY_BYTES], safe[160];
    int code = gpusys_remote_list(target->remote, wishes->timeout_ns, &n_regions, error);
    if (!code)
        code = wishes->region ? find_named(target, wishes, error) : find_largest(target, n_regions, error);
    if (code)
        return code;
    snprintf(target->name, sizeof target->name, "%s, %s", output_safe(safe, sizeof safe, target->region.name),
             quantity_of_bytes(size, target->region.length));
    return 0;
}

static int check_access(const struct bench_target *target, const struct bench_wishes *wishes,
                        struct gpusys_error *error)
{
    if (!wishes->write || target->region.access & GPUSYS_ACCESS_WRITE)
        return 0;
    gpusys_error_set(error, -EACCES, "%s: cannot write: %s is read-only and the peer gives no arena",
                     target->info.address, target->name);
    gpusys_error_set_hint(error, "start the peer with `gpusys serve --arena 256M`");
    return -EACCES;
}

/*
 * All that a transport does at first use is part of the set-up: the first byte is read, and memory that is
 * shared is faulted in. Files cannot be mapped, and very large regions are not worth the wait.
 */
static int touch(const struct bench_target *target, int64_t timeout_ns, struct gpusys_error *error)
{
    char byte;
    void *address;
    uint32_t region = target->region.region;
    int code = target->region.length ? gpusys_remote_read(target->remote, region, 0, &byte, 1, timeout_ns)
                                     : -ENODATA;
    if (code)
        return gpusys_error_set_errno(error, code, "%s: cannot read %s", target->info.address, target->name);
    if (target->info.transport == GPUSYS_TRANSPORT_SHM && target->region.length <= most_faulted_in)
        gpusys_remote_map(target->remote, region, timeout_ns, &address, NULL);
    return 0;
}

static int prepare(struct bench_target *target, const struct bench_wishes *wishes, struct gpusys_error *error)
{
    target->info.size = sizeof target->info;
    int code = gpusys_remote_info(target->remote, &target->info);
    if (code)
        return gpusys_error_set_errno(error, code, "cannot describe the session");
    bool arena = !wishes->region && target->info.arena_bytes;
    if (arena)
        code = take_arena(target, wishes, error);
    if (!arena || (code && !wishes->write)) /* others may hold what there is of arenas; reading needs none */
        code = find_region(target, wishes, error);
    if (!code)
        code = check_access(target, wishes, error);
    return code ? code : touch(target, wishes->timeout_ns, error);
}

static int open_own(struct gpusys_remote **ret_remote, const char *address, const struct bench_wishes *wishes,
                    struct gpusys_error *error)
{
    struct gpusys_remote_options options = {.size = sizeof options,
                                            .timeout_ns = wishes->timeout_ns,
                                            .require = wishes->require,
                                            .cookie_file = wishes->cookie,
                                            .devices = wishes->devices,
                                            .n_devices = wishes->n_devices,
                                            .n_rails = wishes->n_rails};
    return gpusys_remote_open(ret_remote, address, &options, error);
}

static int open_cache(struct gpusys_remote **ret_remote, const char *address,
                      const struct bench_wishes *wishes, struct gpusys_error *error)
{
    struct gpusys_field_options options = {.size = sizeof options,
                                           .timeout_ns = wishes->timeout_ns,
                                           .require = wishes->require,
                                           .devices = wishes->devices,
                                           .n_devices = wishes->n_devices,
                                           .n_rails = wishes->n_rails};
    return gpusys_cache_open(ret_remote, address, GPUSYS_CACHE_KV, wishes->arena_bytes, &options, error);
}

/* The arena is there already: region 0. */
static int prepare_cache(struct bench_target *target, const struct bench_wishes *wishes,
                         struct gpusys_error *error)
{
    char size[QUANTITY_BYTES];
    target->info.size = sizeof target->info;
    int code = gpusys_remote_info(target->remote, &target->info);
    if (!code)
        code = region_info(target, 0, &target->region);
    if (code)
        return gpusys_error_set_errno(error, code, "cannot describe the session");
    snprintf(target->name, sizeof target->name, "a cache peer's arena of %s",
             quantity_of_bytes(size, target->region.length));
    return touch(target, wishes->timeout_ns, error);
}

int bench_target_open(struct bench_target *ret_target, const char *address, const struct bench_wishes *wishes,
                      struct gpusys_error *error)
{
    struct bench_target target = {0};
    int64_t start = gpusys_now_ns();
    int code = wishes->cache ? open_cache(&target.remote, address, wishes, error)
                             : open_own(&target.remote, address, wishes, error);
    if (code)
        return code;
    code = wishes->cache ? prepare_cache(&target, wishes, error) : prepare(&target, wishes, error);
    target.setup_ns = gpusys_now_ns() - start;
    if (code)
        bench_target_close(&target);
    else
        *ret_target = target;
    return code;
}

void bench_target_close(struct bench_target *target)
{
    gpusys_remote_close(target->remote);
    target->remote = NULL;
}
