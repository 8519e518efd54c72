/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote/grant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PROBE_BYTES = 8192, /* longer than any MTU */
    PAGE_BYTES = 4096,
};

/* A region on one port, in pieces of what the device registers at once. */
struct registration {
    struct gpusys_mr **mrs;
    uint32_t n;
    uint64_t piece_bytes;
};

/* A region that is registered on some ports. Registering takes long and is done without the lock, by one thread at a
 * time: it is `busy` then. */
struct keyed {
    struct keyed *next;
    unsigned users; /* threads that look at it */
    bool busy;
    struct gs_region *region; /* held */
    void *map;                /* of a file: where it lies in memory; NULL: memory regions have their own */
    void *copy;               /* the region's, where the file cannot be registered where it lies */
    struct registration ports[GS_PORTS_MAX];
};

struct gs_verbs_grant {
    atomic_uint holders;
    pthread_mutex_t lock;
    pthread_cond_t idle; /* something is busy no more */
    struct gs_served_ports *ports;
    struct gpusys_pd *pds[GS_PORTS_MAX];
    struct gpusys_mr *probes[GS_PORTS_MAX];
    void *probe;
    struct keyed **buckets;
    uint32_t n_buckets; /* a power of two */
    uint32_t count;
};

/* ---- life ---- */

int gs_verbs_grant_new(struct gs_verbs_grant **ret_grant, struct gs_served_ports *ports)
{
    enum { BUCKETS = 256 };
    struct gs_verbs_grant *grant = calloc(1, sizeof *grant);
    if (!grant)
        return -ENOMEM;
    grant->buckets = calloc(BUCKETS, sizeof *grant->buckets);
    grant->probe = aligned_alloc(PAGE_BYTES, PROBE_BYTES);
    if (!grant->buckets || !grant->probe || pthread_mutex_init(&grant->lock, NULL)) {
        free(grant->buckets);
        free(grant->probe);
        free(grant);
        return -ENOMEM;
    }
    pthread_cond_init(&grant->idle, NULL);
    memset(grant->probe, 0, PROBE_BYTES);
    atomic_init(&grant->holders, 1);
    grant->n_buckets = BUCKETS;
    grant->ports = ports;
    *ret_grant = grant;
    return 0;
}

struct gs_verbs_grant *gs_verbs_grant_hold(struct gs_verbs_grant *grant)
{
    atomic_fetch_add(&grant->holders, 1);
    return grant;
}

bool gs_verbs_grant_release(struct gs_verbs_grant *grant)
{
    return grant && atomic_fetch_sub(&grant->holders, 1) == 1;
}

static void drop_registration(struct gs_verbs_grant *grant, struct registration *registration)
{
    for (uint32_t i = 0; i < registration->n; i++) {
        struct gpusys_mr_info info = {.size = sizeof info};
        gpusys_mr_info(registration->mrs[i], &info);
        atomic_fetch_sub(&grant->ports->keyed_bytes, info.length);
        gpusys_mr_close(registration->mrs[i]);
    }
    free(registration->mrs);
    *registration = (struct registration){0};
}

static void drop_keyed(struct gs_verbs_grant *grant, struct keyed *keyed)
{
    for (unsigned i = 0; i < GS_PORTS_MAX; i++)
        drop_registration(grant, &keyed->ports[i]);
    if (keyed->map)
        munmap(keyed->map, (size_t)keyed->region->length);
    if (keyed->copy && gs_region_copy_put(keyed->region))
        atomic_fetch_sub(&grant->ports->copied_bytes, keyed->region->length);
    gs_region_drop(keyed->region);
    free(keyed);
}

void gs_verbs_grant_free(struct gs_verbs_grant *grant)
{
    for (uint32_t i = 0; i < grant->n_buckets; i++)
        for (struct keyed *next; grant->buckets[i]; grant->buckets[i] = next) {
            next = grant->buckets[i]->next;
            drop_keyed(grant, grant->buckets[i]);
        }
    for (unsigned i = 0; i < GS_PORTS_MAX; i++) {
        gpusys_mr_close(grant->probes[i]);
        gpusys_pd_close(grant->pds[i]);
    }
    pthread_cond_destroy(&grant->idle);
    pthread_mutex_destroy(&grant->lock);
    free(grant->buckets);
    free(grant->probe);
    free(grant);
}

/* ---- ports ---- */

static uint32_t probe_bytes(const struct gs_verbs_grant *grant, unsigned port)
{
    uint64_t most = grant->ports->at[port].info.max_mr_bytes;
    return most < PROBE_BYTES ? (uint32_t)most : PROBE_BYTES;
}

static int open_port(struct gs_verbs_grant *grant, unsigned port, struct gpusys_error *error)
{
    if (grant->probes[port])
        return 0;
    int result =
        grant->pds[port] ? 0 : gpusys_pd_open(&grant->pds[port], grant->ports->at[port].verbs, error);
    return result ? result
                  : gpusys_mr_open(&grant->probes[port], grant->pds[port], grant->probe,
                                   probe_bytes(grant, port), GPUSYS_MR_PEER_READ, error);
}

int gs_verbs_grant_port(struct gs_verbs_grant *grant, unsigned port, struct gpusys_pd **ret_pd,
                        struct gs_railed *ret_probe, struct gpusys_error *error)
{
    pthread_mutex_lock(&grant->lock);
    int result = open_port(grant, port, error);
    pthread_mutex_unlock(&grant->lock);
    if (result)
        return result;
    struct gpusys_mr_info info = {.size = sizeof info};
    gpusys_mr_info(grant->probes[port], &info);
    ret_probe->probe = (struct gs_key_entry){.base = info.address, .rkey = info.rkey};
    ret_probe->probe_bytes = (uint32_t)info.length;
    *ret_pd = grant->pds[port];
    return 0;
}

/* ---- the regions ---- */

static struct keyed **bucket_of(const struct gs_verbs_grant *grant, const struct gs_region *region)
{
    return &grant->buckets[region->number & (grant->n_buckets - 1)];
}

static void grow(struct gs_verbs_grant *grant)
{
    struct gs_verbs_grant wider = {.n_buckets = 4 * grant->n_buckets};
    wider.buckets = calloc(wider.n_buckets, sizeof *wider.buckets);
    if (!wider.buckets)
        return; /* the chains get longer */
    for (uint32_t i = 0; i < grant->n_buckets; i++)
        for (struct keyed *keyed = grant->buckets[i], *next; keyed; keyed = next) {
            struct keyed **bucket = bucket_of(&wider, keyed->region);
            next = keyed->next;
            keyed->next = *bucket;
            *bucket = keyed;
        }
    free(grant->buckets);
    grant->buckets = wider.buckets;
    grant->n_buckets = wider.n_buckets;
}

static struct keyed *find(const struct gs_verbs_grant *grant, const struct gs_region *region)
{
    struct keyed *keyed = *bucket_of(grant, region);
    while (keyed && keyed->region != region)
        keyed = keyed->next;
    return keyed;
}

/* ---- a file's memory ---- */

static int map_file(struct keyed *keyed)
{
    struct gs_region *region = keyed->region;
    int fd, result = gs_file_pin(region->files, &region->file, &fd);
    if (result)
        return result;
    void *map = mmap(NULL, (size_t)region->length, PROT_READ, MAP_SHARED, fd, 0);
    result = map == MAP_FAILED ? -errno : gs_file_check(&region->file, fd);
    gs_file_unpin(region->files, &region->file);
    if (result && map != MAP_FAILED)
        munmap(map, (size_t)region->length);
    if (!result)
        keyed->map = map;
    return result;
}

static int copy_file(struct gs_verbs_grant *grant, struct keyed *keyed, struct gpusys_error *error)
{
    bool is_new;
    int result = gs_region_copy_get(keyed->region, &keyed->copy, &is_new, error);
    if (!result && is_new)
        atomic_fetch_add(&grant->ports->copied_bytes, keyed->region->length);
    return result;
}

/* ---- registering ---- */

static char *memory_of(const struct keyed *keyed)
{
    return keyed->copy ? keyed->copy : keyed->map ? keyed->map : keyed->region->memory.map;
}

/* The words of the device, with the region in front of them. */
static void name_region(const struct gs_region *region, struct gpusys_error *error)
{
    struct gpusys_error inner = *error;
    gpusys_error_set(error, inner.code, "\"%s\": %.400s", region->name, inner.message);
    memcpy(error->detail, inner.detail, sizeof error->detail);
    memcpy(error->cause, inner.cause, sizeof error->cause);
    memcpy(error->hint, inner.hint, sizeof error->hint);
}

static int register_pieces(struct gs_verbs_grant *grant, unsigned port, struct keyed *keyed,
                           struct gpusys_error *error)
{
    struct registration *registration = &keyed->ports[port];
    uint64_t length = keyed->region->length,
             most = grant->ports->at[port].info.max_mr_bytes & ~(uint64_t)(PAGE_BYTES - 1);
    uint64_t piece = most == 0 || length <= most ? length : most;
    uint64_t count = (length - 1) / piece + 1;
    bool writable = keyed->region->access & GPUSYS_ACCESS_WRITE;
    if (count > GS_KEYS_MAX)
        return gpusys_error_set(
            error, -EMSGSIZE,
            "\"%s\": %llu bytes would be %llu registrations of the %llu bytes that %s registers "
            "at once, and %d are possible",
            keyed->region->name, (unsigned long long)length, (unsigned long long)count,
            (unsigned long long)most, grant->ports->at[port].info.device, GS_KEYS_MAX);
    registration->mrs = calloc((size_t)count, sizeof *registration->mrs);
    if (!registration->mrs)
        return gpusys_error_set_errno(error, -ENOMEM, "\"%s\"", keyed->region->name);
    registration->piece_bytes = piece;
    int result = 0;
    for (uint64_t at = 0; at < length && !result; at += piece) {
        uint64_t bytes = length - at < piece ? length - at : piece;
        result = gpusys_mr_open(&registration->mrs[registration->n], grant->pds[port], memory_of(keyed) + at,
                                bytes, writable ? GPUSYS_MR_PEER_READ_WRITE : GPUSYS_MR_PEER_READ, error);
        registration->n += !result;
        atomic_fetch_add(&grant->ports->keyed_bytes, result ? 0 : bytes);
    }
    if (result) {
        name_region(keyed->region, error);
        drop_registration(grant, registration);
    }
    return result == -EIO ? -ENODEV : result; /* what the device says, not the disk */
}

/* What a kernel answers that cannot pin the page cache for a device. */
static bool cannot_pin(int result)
{
    return result == -EFAULT || result == -EOPNOTSUPP || result == -EPERM || result == -EINVAL;
}

static int make_registration(struct gs_verbs_grant *grant, unsigned port, struct keyed *keyed,
                             struct gpusys_error *error)
{
    bool is_file = gs_region_is_file(keyed->region);
    int result = is_file && !keyed->map && !keyed->copy ? map_file(keyed) : 0;
    if (result)
        gs_region_fail(keyed->region, result, error);
    if (!result)
        result = register_pieces(grant, port, keyed, error);
    if (cannot_pin(result) && keyed->map && !keyed->copy) {
        result = copy_file(grant, keyed, error);
        if (!result)
            result = register_pieces(grant, port, keyed, error);
    }
    return result;
}

static struct keyed *add(struct gs_verbs_grant *grant, struct gs_region *region)
{
    struct keyed *keyed = calloc(1, sizeof *keyed);
    if (!keyed)
        return NULL;
    if (++grant->count > 2 * grant->n_buckets)
        grow(grant);
    struct keyed **bucket = bucket_of(grant, region);
    keyed->region = gs_region_hold(region);
    keyed->next = *bucket;
    *bucket = keyed;
    return keyed;
}

/* A file that changed since it was registered is refused like any other that changed. */
static int check_same(struct gs_region *region, struct gpusys_error *error)
{
    int fd, result = gs_region_is_file(region) ? gs_file_pin(region->files, &region->file, &fd) : 0;
    if (!result && gs_region_is_file(region)) {
        result = gs_file_check(&region->file, fd);
        gs_file_unpin(region->files, &region->file);
    }
    return result ? gs_region_fail(region, result, error) : 0;
}

static int list_keys(const struct keyed *keyed, unsigned port, struct gs_keyed *ret_keyed,
                     struct gs_key_entry **ret_keys, struct gpusys_error *error)
{
    const struct registration *registration = &keyed->ports[port];
    struct gs_key_entry *keys = calloc(registration->n, sizeof *keys);
    if (!keys)
        return gpusys_error_set_errno(error, -ENOMEM, "\"%s\"", keyed->region->name);
    for (uint32_t i = 0; i < registration->n; i++) {
        struct gpusys_mr_info info = {.size = sizeof info};
        gpusys_mr_info(registration->mrs[i], &info);
        keys[i] = (struct gs_key_entry){.base = info.address, .rkey = info.rkey};
    }
    *ret_keyed = (struct gs_keyed){.region = keyed->region->number,
                                   .place = keyed->copy ? GPUSYS_PLACE_COPY : keyed->region->place,
                                   .piece_bytes = registration->piece_bytes,
                                   .n_keys = registration->n};
    *ret_keys = keys;
    return 0;
}

/* The region's entry, for this thread to look at until leave(). */
static struct keyed *enter(struct gs_verbs_grant *grant, struct gs_region *region, struct gpusys_error *error)
{
    struct keyed *keyed = region->gone ? NULL : find(grant, region) ?: add(grant, region);
    if (keyed)
        keyed->users++;
    else
        gpusys_error_set_errno(error, region->gone ? -ENOENT : -ENOMEM, "\"%s\"", region->name);
    while (keyed && keyed->busy)
        pthread_cond_wait(&grant->idle, &grant->lock);
    return keyed;
}

/* True: nobody else has it, and it is the caller's to drop. */
static bool leave(struct keyed *keyed)
{
    return --keyed->users == 0 && keyed->region->gone;
}

static int make_registration_alone(struct gs_verbs_grant *grant, unsigned port, struct keyed *keyed,
                                   struct gpusys_error *error)
{
    keyed->busy = true;
    pthread_mutex_unlock(&grant->lock);
    int result = make_registration(grant, port, keyed, error);
    pthread_mutex_lock(&grant->lock);
    keyed->busy = false;
    pthread_cond_broadcast(&grant->idle);
    return result;
}

int gs_verbs_grant_keys(struct gs_verbs_grant *grant, unsigned port, struct gs_region *region,
                        struct gs_keyed *ret_keyed, struct gs_key_entry **ret_keys,
                        struct gpusys_error *error)
{
    int result = check_same(region, error);
    bool drop = false;
    if (result)
        return result;
    pthread_mutex_lock(&grant->lock);
    struct keyed *keyed = enter(grant, region, error);
    if (!keyed)
        result = region->gone ? -ENOENT : -ENOMEM;
    else if (keyed->ports[port].n == 0 && !region->gone)
        result = make_registration_alone(grant, port, keyed, error);
    if (!result)
        result = region->gone ? gpusys_error_set_errno(error, -ENOENT, "\"%s\"", region->name)
                              : list_keys(keyed, port, ret_keyed, ret_keys, error);
    if (keyed)
        drop = leave(keyed);
    pthread_mutex_unlock(&grant->lock);
    if (drop)
        drop_keyed(grant, keyed);
    return result;
}

/* Out of the table. */
static struct keyed *unlink_keyed(struct gs_verbs_grant *grant, const struct gs_region *region)
{
    struct keyed **link = bucket_of(grant, region), *keyed;
    while (*link && (*link)->region != region)
        link = &(*link)->next;
    keyed = *link;
    if (keyed) {
        *link = keyed->next;
        grant->count--;
    }
    return keyed;
}

void gs_verbs_grant_forget(struct gs_verbs_grant *grant, struct gs_region *region)
{
    if (!grant)
        return;
    pthread_mutex_lock(&grant->lock);
    region->gone = true;
    struct keyed *keyed = unlink_keyed(grant, region);
    if (keyed && keyed->users) /* the last of them drops it */
        keyed = NULL;
    pthread_mutex_unlock(&grant->lock);
    if (keyed)
        drop_keyed(grant, keyed);
}
