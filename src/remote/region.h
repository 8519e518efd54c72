/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer's regions and the table of the shared ones. */
#ifndef GPUSYS_REMOTE_REGION_H
#define GPUSYS_REMOTE_REGION_H

#include "base/shared.h"
#include "remote/files.h"

#include <gpusys/hash.h>
#include <gpusys/remote.h>
#include <stdatomic.h>

/* A region: immutable once it is in the table, but for its counters and the checksums. */
struct gs_region {
    atomic_uint holders;
    struct gs_files *files;
    uint32_t number;
    uint8_t kind, access, place; /* enums of gpusys/remote.h */
    uint32_t mode;
    uint64_t length;
    int64_t mtime_ns;
    char *name;
    struct gs_shared memory; /* place MEMORY and COPY */
    struct gs_file file;     /* place FILE with length above 0 */
    bool gone; /* an arena that was given back: not to be registered any more (remote/grant.c) */

    pthread_mutex_t sums_lock;
    uint8_t (*sums)[GPUSYS_HASH_BYTES]; /* one per chunk of a file, once the first was asked for */
    uint8_t *sums_known;                /* one byte per chunk: is it there */

    pthread_mutex_t copy_lock;
    void *copy; /* of a file that cannot be registered where it lies, while somebody uses it */
    unsigned copy_users;
};

/* A region of that name with one holder, the rest zero. -ENOMEM. */
int gs_region_new(struct gs_region **ret_region, struct gs_files *files, const char *name);
struct gs_region *gs_region_hold(struct gs_region *region);
void gs_region_drop(struct gs_region *region);

static inline bool gs_region_is_file(const struct gs_region *region)
{
    return region->place == GPUSYS_PLACE_FILE;
}

/* Does offset … offset+length lie in a region of `total` bytes? Sums never overflow. */
static inline bool gs_range_fits(uint64_t total, uint64_t offset, uint64_t length)
{
    return offset <= total && length <= total - offset;
}

static inline uint64_t gs_chunk_count(uint64_t length)
{
    return length / GPUSYS_CHUNK_BYTES + (length % GPUSYS_CHUNK_BYTES != 0);
}

/*
 * The checksum of one chunk: from memory, or from the file and then remembered. Blocks on the disk. -ESTALE:
 * the file changed; -ERANGE: no such chunk.
 */
int gs_region_sum(struct gs_region *region, uint64_t chunk, uint8_t ret_hash[GPUSYS_HASH_BYTES]);

/*
 * Copy from and to a memory region; the range was checked. -EFAULT: a client has punched a hole into its own
 * arena. Everywhere else only the kernel touches an arena in huge pages, and says EFAULT by itself.
 */
int gs_region_load(const struct gs_region *region, uint64_t offset, void *to, size_t length);
int gs_region_store(const struct gs_region *region, uint64_t offset, const void *from, size_t length);

/* Can a store into huge pages be left to the kernel here? Some containers forbid that call. */
bool gs_region_can_guard(void);

/*
 * The file in memory, read when the first user comes and gone with the last; blocks. *ret_is_new: this call read it.
 * -ESTALE; -ENOMEM when that much memory is not available.
 */
int gs_region_copy_get(struct gs_region *region, void **ret_copy, bool *ret_is_new,
                       struct gpusys_error *error);
bool gs_region_copy_put(struct gs_region *region); /* true: it is gone */

/* The words for a file that cannot be read, or is another one by now. `code`. */
int gs_region_fail(const struct gs_region *region, int code, struct gpusys_error *error);

/* Read exactly `length` bytes of a file region; blocks. -ESTALE when the file ends early or is another. */
int gs_region_pread(struct gs_region *region, int fd, void *buffer, size_t length, uint64_t offset);

/* ---- the table: grows, never shrinks; looked up by any thread without a lock ---- */

enum { GS_TABLE_BLOCK = 4096, GS_TABLE_BLOCKS = 4096 };

struct gs_table {
    pthread_mutex_t lock; /* for those who add */
    atomic_uint count;
    struct gs_region **_Atomic blocks[GS_TABLE_BLOCKS];
    struct gs_region **by_name; /* open addressing, a power of two; under the lock */
    size_t by_name_size;
    atomic_ullong bytes;
};

int gs_table_init(struct gs_table *table);
void gs_table_free(struct gs_table *table);

/* The table holds the regions from here on and numbers them; all or none. -EEXIST with the name, -ENOSPC,
 * -ENOMEM. */
int gs_table_add(struct gs_table *table, struct gs_region **regions, size_t count,
                 struct gpusys_error *error);

struct gs_region *gs_table_at(struct gs_table *table, uint32_t number); /* NULL: none */

#endif
