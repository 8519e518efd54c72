/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The table of a peer's shared regions. */
#include "remote/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int gs_table_init(struct gs_table *table)
{
    memset(table, 0, sizeof *table);
    return -pthread_mutex_init(&table->lock, NULL);
}

void gs_table_free(struct gs_table *table)
{
    unsigned count = atomic_load(&table->count);
    for (unsigned i = 0; i < count; i++)
        gs_region_drop(gs_table_at(table, i));
    for (unsigned i = 0; i < GS_TABLE_BLOCKS; i++)
        free(atomic_load(&table->blocks[i]));
    free(table->by_name);
    pthread_mutex_destroy(&table->lock);
}

struct gs_region *gs_table_at(struct gs_table *table, uint32_t number)
{
    if (number >= atomic_load_explicit(&table->count, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(&table->blocks[number / GS_TABLE_BLOCK],
                                memory_order_relaxed)[number % GS_TABLE_BLOCK];
}

/* ---- names: all under the lock ---- */

/* The place of a name: a region that has it, or the empty slot where it would go. */
static struct gs_region **slot_of(struct gs_region **slots, size_t size, const char *name)
{
    uint8_t hash[GPUSYS_HASH_BYTES];
    size_t at;
    gpusys_hash(name, strlen(name), hash);
    memcpy(&at, hash, sizeof at);
    while (slots[at & (size - 1)] && strcmp(slots[at & (size - 1)]->name, name) != 0)
        at++;
    return &slots[at & (size - 1)];
}

/* Room for `more` names with at least half of the slots empty. */
static int grow_names(struct gs_table *table, size_t more)
{
    size_t count = atomic_load(&table->count), size = table->by_name_size ? table->by_name_size : 64;
    while (size < 2 * (count + more))
        size *= 2;
    if (size == table->by_name_size)
        return 0;
    struct gs_region **slots = calloc(size, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    for (unsigned i = 0; i < count; i++) {
        struct gs_region *region = gs_table_at(table, i);
        *slot_of(slots, size, region->name) = region;
    }
    free(table->by_name);
    table->by_name = slots;
    table->by_name_size = size;
    return 0;
}

/* Enter the names, or none of them. */
static int enter_names(struct gs_table *table, struct gs_region **regions, size_t count,
                       struct gpusys_error *error)
{
    for (size_t i = 0; i < count; i++) {
        struct gs_region **slot = slot_of(table->by_name, table->by_name_size, regions[i]->name);
        if (!*slot) {
            *slot = regions[i];
            continue;
        }
        gpusys_error_set(error, -EEXIST, "two regions would be called \"%s\"", regions[i]->name);
        gpusys_error_set_hint(error, "serve them under different directories, or from two servers");
        free(table->by_name); /* rebuilt from the regions that are in, when the next one comes */
        table->by_name = NULL;
        table->by_name_size = 0;
        return -EEXIST;
    }
    return 0;
}

static int grow_blocks(struct gs_table *table, size_t last)
{
    for (size_t block = 0; block <= last / GS_TABLE_BLOCK; block++) {
        if (atomic_load(&table->blocks[block]))
            continue;
        struct gs_region **regions = calloc(GS_TABLE_BLOCK, sizeof *regions);
        if (!regions)
            return -ENOMEM;
        atomic_store(&table->blocks[block], regions);
    }
    return 0;
}

static int add_locked(struct gs_table *table, struct gs_region **regions, size_t count,
                      struct gpusys_error *error)
{
    size_t first = atomic_load(&table->count);
    if (count > (size_t)GS_TABLE_BLOCK * GS_TABLE_BLOCKS - first)
        return gpusys_error_set(error, -ENOSPC, "a peer serves at most %u regions",
                                GS_TABLE_BLOCK * GS_TABLE_BLOCKS);
    if (grow_blocks(table, first + count - 1) || grow_names(table, count))
        return gpusys_error_set_errno(error, -ENOMEM, "the table of %zu regions", first + count);
    int result = enter_names(table, regions, count, error);
    if (result)
        return result;
    for (size_t i = 0; i < count; i++) {
        regions[i]->number = (uint32_t)(first + i);
        atomic_load(&table->blocks[(first + i) / GS_TABLE_BLOCK])[(first + i) % GS_TABLE_BLOCK] = regions[i];
        atomic_fetch_add(&table->bytes, regions[i]->length);
    }
    atomic_store_explicit(&table->count, (unsigned)(first + count), memory_order_release);
    return 0;
}

int gs_table_add(struct gs_table *table, struct gs_region **regions, size_t count, struct gpusys_error *error)
{
    if (count == 0)
        return 0;
    pthread_mutex_lock(&table->lock);
    int result = add_locked(table, regions, count, error);
    pthread_mutex_unlock(&table->lock);
    return result;
}
