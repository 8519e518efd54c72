/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reads over shm beside memcpy out of the same mapping, slice by slice in turn, so that whatever else the
 * machine does meets both alike. Source: an arena of 256 MiB, random offsets; from 4 KiB on each slice is
 * timed, below in groups of 1024 slices that lie in order in 16 KiB of it.
 *
 * Output: "setup SECONDS PAGES", then per size one line for each of the rounds: "SIZE GET_NS MEMCPY_NS", the
 * medians of that round for one slice.
 */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 256 << 20, LANDING_BYTES = 8 << 20, HOT_BYTES = 16 << 10, SMALL = 4096, GROUP = 1024 };

struct side {
    struct gpusys_remote *remote;
    struct gpusys_region_info region;
    const unsigned char *mapped;
    unsigned char *landing;
    uint64_t state;
};

/* Through a pointer, so that both sides are calls that know nothing of the size. */
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

/* `count` slices in order, from `offset` on, and around at `end`. */
typedef void slices_fn(struct side *side, uint64_t size, uint64_t offset, uint64_t end, unsigned count);

static void get_slices(struct side *side, uint64_t size, uint64_t offset, uint64_t end, unsigned count)
{
    int error = 0;
    for (uint64_t at = offset; count; count--) {
        error |= gpusys_remote_read(side->remote, side->region.region, at, side->landing, size, NO_LIMIT);
        at = at + size < end ? at + size : offset;
    }
    if (error)
        die(NULL, "a read failed");
}

static void copy_slices(struct side *side, uint64_t size, uint64_t offset, uint64_t end, unsigned count)
{
    for (uint64_t at = offset; count; count--) {
        copy(side->landing, side->mapped + at, size);
        at = at + size < end ? at + size : offset;
    }
}

/* Nanoseconds for one slice. */
static double time_slice(struct side *side, slices_fn *slices, uint64_t size)
{
    bool small = size < SMALL;
    unsigned count = small ? GROUP : 1;
    uint64_t offset = small ? 0 : random_offset(&side->state, side->region.length, size);
    int64_t start = gpusys_now_ns();
    slices(side, size, offset, small ? HOT_BYTES : offset + size, count);
    return (double)(gpusys_now_ns() - start) / count;
}

static void measure(struct side *side, uint64_t size, unsigned n_slices)
{
    double *get = calloc(n_slices, sizeof *get), *copied = calloc(n_slices, sizeof *copied);
    if (!get || !copied)
        die(NULL, "no memory");
    for (unsigned i = 0; i < n_slices; i++) {
        if (i % 2)
            copied[i] = time_slice(side, copy_slices, size);
        get[i] = time_slice(side, get_slices, size);
        if (i % 2 == 0)
            copied[i] = time_slice(side, copy_slices, size);
    }
    sort_values(get, n_slices);
    sort_values(copied, n_slices);
    printf("%" PRIu64 " %.3f %.3f\n", size, get[n_slices / 2], copied[n_slices / 2]);
    free(get);
    free(copied);
}

/* The arena and the landing buffer hold something, and no page of either is new. */
static void fill(struct side *side)
{
    memset(side->landing, 0x5a, LANDING_BYTES);
    for (uint64_t at = 0; at < side->region.length; at += LANDING_BYTES)
        if (gpusys_remote_write(side->remote, side->region.region, at, side->landing, LANDING_BYTES,
                                NO_LIMIT))
            die(NULL, "cannot fill the arena");
}

int main(int argc, char **argv)
{
    static const struct {
        uint64_t size;
        unsigned n_slices;
    } sizes[] = {{8, 4000}, {4096, 40000}, {65536, 4000}, {1 << 20, 400}};
    struct side side = {.state = 88172645463325252u};
    struct gpusys_error error;
    const char *pages;
    void *mapped;
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDRESS ROUNDS\n", argv[0]);
        return 2;
    }
    int64_t start = gpusys_now_ns();
    side.remote = session_open(argv[1], "shm");
    side.region = region_of_arena(side.remote, ARENA_BYTES);
    if (gpusys_remote_map(side.remote, side.region.region, NO_LIMIT, &mapped, &error))
        die(&error, "cannot map the arena");
    double seconds = (double)(gpusys_now_ns() - start) / 1e9;
    side.mapped = mapped;
    side.landing = landing_new(LANDING_BYTES, &pages);
    printf("setup %.6f %s\n", seconds, pages);
    fill(&side);
    for (int round = atoi(argv[2]); round > 0; round--)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            measure(&side, sizes[i].size, sizes[i].n_slices);
    gpusys_remote_close(side.remote);
    gpusys_memory_free(side.landing, LANDING_BYTES);
    return 0;
}
