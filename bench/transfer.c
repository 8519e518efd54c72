/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Our side of what bench/run compares. It holds one session, and does what the lines on its standard input
 * say, so that each measurement can stand beside one of a peer's and everything is warm. Each line is
 * answered by one, of numbers.
 *
 *     pull NAME SLICE DEPTH HASH        SECONDS of a whole region into reused buffers; HASH 1: hashed on
 * arrival random NAME SIZE DEPTH BATCH N    SECONDS P50_US P99_US of N reads at random offsets same NAME SIZE
 * N                  SECONDS of N reads of the same bytes into the same buffer bulk NAME SIZE SECONDS of
 * blocking reads of a whole region, in order mapped NAME SIZE                  SECONDS of the same by memcpy
 * out of a fresh mapping of its descriptor list                              SECONDS of a new session up to
 * its table, COUNT of regions
 *
 * The name "@" is an arena of 256 MiB.
 */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LANDING_BYTES = 64 << 20, ARENA_BYTES = 256 << 20, MOST_BATCH = 64, MOST_SLOTS = 256 };

/*
 * Where the same bytes are copied to the same place, that place is not a multiple of 256 MiB away from them (two
 * mappings that lie side by side easily are): AMD's first-level cache guesses its way from a hash of the address, and
 * such pairs have the same, which made a copy of 4 KiB take 80 to 140 ns instead of 60.
 */
enum { OFF_BYTES = 5 * 4096 };

struct bench {
    const char *address, *transport;
    struct gpusys_remote *remote;
    unsigned char *landing;
    struct gpusys_region_info arena; /* region.length 0 until asked for */
};

static double seconds_since(int64_t start_ns)
{
    return (double)(gpusys_now_ns() - start_ns) / 1e9;
}

static struct gpusys_region_info region_of(struct bench *bench, const char *name)
{
    if (strcmp(name, "@") != 0)
        return region_named(bench->remote, name);
    if (!bench->arena.length)
        bench->arena = region_of_arena(bench->remote, ARENA_BYTES);
    return bench->arena;
}

static void submit(struct bench *bench, const struct gpusys_io *ios, size_t n_ios, uint64_t user)
{
    struct gpusys_batch_options options = {.size = sizeof options, .user = user};
    if (gpusys_remote_submit(bench->remote, ios, n_ios, &options, NULL))
        die(NULL, "submit failed");
}

static int wait_some(struct bench *bench, struct gpusys_completion *done, unsigned most)
{
    int count = gpusys_remote_wait(bench->remote, done, most, NO_LIMIT);
    if (count < 0)
        die(NULL, "wait failed");
    for (int i = 0; i < count; i++)
        if (done[i].status)
            die(NULL, "a read failed");
    return count;
}

/* ---- pull ---- */

/* Chunks of a region, hashed slice by slice and checked against what the peer says of them. */
struct check {
    struct gpusys_hasher *hasher; /* NULL: nothing is hashed */
    uint8_t (*wanted)[GPUSYS_HASH_BYTES];
};

static struct check check_new(struct bench *bench, const struct gpusys_region_info *region)
{
    struct check check;
    struct gpusys_error error;
    uint64_t n_chunks = (region->length + GPUSYS_CHUNK_BYTES - 1) / GPUSYS_CHUNK_BYTES;
    check.wanted = calloc(n_chunks, GPUSYS_HASH_BYTES);
    if (!check.wanted || gpusys_hasher_new(&check.hasher))
        die(NULL, "no memory");
    for (uint64_t at = 0; at < n_chunks; at++)
        if (gpusys_remote_checksums(bench->remote, region->region, at, 1, check.wanted + at, NO_LIMIT,
                                    &error))
            die(&error, "no checksums");
    return check;
}

static void check_free(struct check *check)
{
    gpusys_hasher_free(check->hasher);
    free(check->wanted);
}

/* Slices divide chunks, so a chunk ends where a slice ends. */
static void check_add(struct check *check, const void *bytes, uint64_t offset, uint64_t size, uint64_t length)
{
    uint8_t hash[GPUSYS_HASH_BYTES];
    uint64_t end = offset + size;
    if (!check->hasher)
        return;
    gpusys_hasher_add(check->hasher, bytes, size);
    if (end % GPUSYS_CHUNK_BYTES && end != length)
        return;
    gpusys_hasher_get(check->hasher, hash);
    if (memcmp(hash, check->wanted[offset / GPUSYS_CHUNK_BYTES], sizeof hash) != 0)
        die(NULL, "a checksum differs");
    gpusys_hasher_reset(check->hasher);
}

struct pull {
    struct gpusys_region_info region;
    uint64_t slice, depth, next; /* next: number of the next slice to ask for */
    struct check check;
};

static uint64_t slice_size(const struct pull *pull, uint64_t number)
{
    uint64_t left = pull->region.length - number * pull->slice;
    return left < pull->slice ? left : pull->slice;
}

static unsigned char *slice_place(struct bench *bench, const struct pull *pull, uint64_t number)
{
    return bench->landing + number % pull->depth * pull->slice;
}

static void ask(struct bench *bench, struct pull *pull)
{
    uint64_t number = pull->next++;
    struct gpusys_io io = {.region = pull->region.region,
                           .offset = number * pull->slice,
                           .buffer = slice_place(bench, pull, number),
                           .length = slice_size(pull, number)};
    submit(bench, &io, 1, number);
}

/* In order, because the hash wants it so; with one connection slices arrive in order anyway. */
static void pull_all(struct bench *bench, struct pull *pull)
{
    uint64_t n_slices = (pull->region.length + pull->slice - 1) / pull->slice, at = 0;
    bool arrived[MOST_SLOTS] = {0};
    while (pull->next < pull->depth && pull->next < n_slices)
        ask(bench, pull);
    while (at < n_slices) {
        struct gpusys_completion done[MOST_SLOTS];
        for (int i = wait_some(bench, done, MOST_SLOTS) - 1; i >= 0; i--)
            arrived[done[i].user % pull->depth] = true;
        for (; at < n_slices && arrived[at % pull->depth]; at++) {
            arrived[at % pull->depth] = false;
            check_add(&pull->check, slice_place(bench, pull, at), at * pull->slice, slice_size(pull, at),
                      pull->region.length);
            if (pull->next < n_slices)
                ask(bench, pull);
        }
    }
}

static bool do_pull(struct bench *bench, const char *line)
{
    char name[256];
    int hash;
    struct pull pull = {0};
    if (sscanf(line, "pull %255s %" SCNu64 " %" SCNu64 " %d", name, &pull.slice, &pull.depth, &hash) != 4)
        return false;
    if (!pull.slice || !pull.depth || pull.depth > MOST_SLOTS || pull.slice * pull.depth > LANDING_BYTES ||
        GPUSYS_CHUNK_BYTES % pull.slice)
        die(NULL, "pull: slices must divide a chunk and fit into the landing buffer");
    pull.region = region_of(bench, name);
    if (hash)
        pull.check = check_new(bench, &pull.region);
    int64_t start = gpusys_now_ns();
    pull_all(bench, &pull);
    printf("%.9f\n", seconds_since(start));
    check_free(&pull.check);
    return true;
}

/* ---- random ---- */

struct reads {
    struct gpusys_region_info region;
    uint64_t size, depth, batch, count, state, asked;
    int64_t started[MOST_SLOTS];
    double *latencies_us;
};

static void ask_batch(struct bench *bench, struct reads *reads, uint64_t slot)
{
    struct gpusys_io ios[MOST_BATCH];
    for (uint64_t i = 0; i < reads->batch; i++)
        ios[i] = (struct gpusys_io){.region = reads->region.region,
                                    .offset = random_offset(&reads->state, reads->region.length, reads->size),
                                    .buffer = bench->landing + (slot * reads->batch + i) * reads->size,
                                    .length = reads->size};
    reads->started[slot] = gpusys_now_ns();
    reads->asked += reads->batch;
    submit(bench, ios, reads->batch, slot);
}

static void read_queued(struct bench *bench, struct reads *reads)
{
    uint64_t arrived = 0, slots = reads->depth / reads->batch;
    for (uint64_t slot = 0; slot < slots; slot++)
        ask_batch(bench, reads, slot);
    while (arrived < reads->count) {
        struct gpusys_completion done[MOST_SLOTS];
        int count = wait_some(bench, done, MOST_SLOTS);
        int64_t now = gpusys_now_ns();
        for (int i = 0; i < count; i++) {
            for (uint64_t j = 0; j < reads->batch; j++)
                reads->latencies_us[arrived++] = (double)(now - reads->started[done[i].user]) / 1e3;
            if (reads->asked < reads->count)
                ask_batch(bench, reads, done[i].user);
        }
    }
}

static void read_blocking(struct bench *bench, struct reads *reads)
{
    for (uint64_t i = 0; i < reads->count; i++) {
        int64_t start = gpusys_now_ns();
        if (gpusys_remote_read(bench->remote, reads->region.region,
                               random_offset(&reads->state, reads->region.length, reads->size),
                               bench->landing, reads->size, NO_LIMIT))
            die(NULL, "a read failed");
        reads->latencies_us[i] = (double)(gpusys_now_ns() - start) / 1e3;
    }
}

static bool do_random(struct bench *bench, const char *line)
{
    char name[256];
    struct reads reads = {.state = 88172645463325252u};
    if (sscanf(line, "random %255s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, name, &reads.size,
               &reads.depth, &reads.batch, &reads.count) != 5)
        return false;
    if (!reads.size || !reads.batch || reads.batch > MOST_BATCH || reads.depth % reads.batch ||
        reads.depth / reads.batch > MOST_SLOTS || reads.depth * reads.size > LANDING_BYTES)
        die(NULL, "random: the depth must be a multiple of the batch and fit into the landing buffer");
    reads.count = (reads.count + reads.batch - 1) / reads.batch * reads.batch;
    reads.region = region_of(bench, name);
    reads.latencies_us = calloc(reads.count + reads.depth, sizeof *reads.latencies_us);
    if (!reads.latencies_us)
        die(NULL, "no memory");
    int64_t start = gpusys_now_ns();
    if (reads.depth == 1)
        read_blocking(bench, &reads);
    else
        read_queued(bench, &reads);
    double seconds = seconds_since(start);
    sort_values(reads.latencies_us, reads.count);
    printf("%.9f %.3f %.3f\n", seconds, reads.latencies_us[reads.count / 2],
           reads.latencies_us[reads.count - 1 - reads.count / 100]);
    free(reads.latencies_us);
    return true;
}

/* ---- one after the other ---- */

static bool do_same(struct bench *bench, const char *line)
{
    char name[256];
    uint64_t size, count;
    if (sscanf(line, "same %255s %" SCNu64 " %" SCNu64, name, &size, &count) != 3 ||
        size > LANDING_BYTES - OFF_BYTES)
        return false;
    struct gpusys_region_info region = region_of(bench, name);
    unsigned char *landing = bench->landing + OFF_BYTES;
    int64_t start = gpusys_now_ns();
    for (uint64_t i = 0; i < count; i++)
        if (gpusys_remote_read(bench->remote, region.region, 0, landing, size, NO_LIMIT))
            die(NULL, "a read failed");
    printf("%.9f\n", seconds_since(start));
    return true;
}

static bool do_bulk(struct bench *bench, const char *line)
{
    char name[256];
    uint64_t size;
    if (sscanf(line, "bulk %255s %" SCNu64, name, &size) != 2 || !size || size > LANDING_BYTES)
        return false;
    struct gpusys_region_info region = region_of(bench, name);
    gpusys_remote_release(bench->remote, region.region);
    int64_t start = gpusys_now_ns();
    for (uint64_t at = 0; at + size <= region.length; at += size)
        if (gpusys_remote_read(bench->remote, region.region, at, bench->landing, size, NO_LIMIT))
            die(NULL, "a read failed");
    printf("%.9f\n", seconds_since(start));
    return true;
}

static bool do_mapped(struct bench *bench, const char *line)
{
    char name[256];
    uint64_t size;
    int fd;
    struct gpusys_error error;
    if (sscanf(line, "mapped %255s %" SCNu64, name, &size) != 2 || !size || size > LANDING_BYTES)
        return false;
    struct gpusys_region_info region = region_of(bench, name);
    gpusys_remote_release(bench->remote, region.region);
    int64_t start = gpusys_now_ns();
    if (gpusys_remote_fd_of(bench->remote, region.region, NO_LIMIT, &fd, &error))
        die(&error, "no descriptor");
    const unsigned char *bytes = mmap(NULL, region.length, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        die(NULL, "cannot map");
    for (uint64_t at = 0; at + size <= region.length; at += size)
        memcpy(bench->landing, bytes + at, size);
    printf("%.9f\n", seconds_since(start));
    munmap((void *)(uintptr_t)bytes, region.length);
    return true;
}

static bool do_list(struct bench *bench, const char *line)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    if (strncmp(line, "list", 4) != 0)
        return false;
    int64_t start = gpusys_now_ns();
    struct gpusys_remote *remote = session_open(bench->address, bench->transport);
    double seconds = seconds_since(start);
    if (gpusys_remote_info(remote, &info))
        die(NULL, "no information on the session");
    gpusys_remote_close(remote);
    printf("%.9f %" PRIu64 "\n", seconds, info.n_regions);
    return true;
}

static void obey(struct bench *bench, const char *line)
{
    static bool (*const verbs[])(struct bench *, const char *) = {do_pull, do_random, do_same,
                                                                  do_bulk, do_mapped, do_list};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (verbs[i](bench, line))
            return;
    die(NULL, "a line that means nothing");
}

int main(int argc, char **argv)
{
    char line[512];
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDRESS shm|tcp\n", argv[0]);
        return 2;
    }
    struct bench bench = {.address = argv[1], .transport = argv[2]};
    struct gpusys_remote_info info = {.size = sizeof info};
    const char *pages;
    bench.remote = session_open(bench.address, bench.transport);
    bench.landing = landing_new(LANDING_BYTES, &pages);
    if (gpusys_remote_info(bench.remote, &info))
        die(NULL, "no information on the session");
    printf("%s %s %s\n", gpusys_transport_name(info.transport), pages, gpusys_hash_variant());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(&bench, line);
        fflush(stdout);
    }
    gpusys_remote_close(bench.remote);
    gpusys_memory_free(bench.landing, LANDING_BYTES);
    return 0;
}
