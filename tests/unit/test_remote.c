/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A remote against a peer in the same process: the table, and bytes that are exact over both transports. */
#include "remote_play.h"

#include <fcntl.h>
#include <sys/stat.h>

static const int64_t patience = 20000000000;

enum { MEMORY_BYTES = 5 * MIB + 12345, FILE_BYTES = 3 * MIB + 777, PART_AT = 4097, PART_BYTES = 70001 };

struct world {
    struct gpusys_peer *peer;
    unsigned char *memory, *readonly, *file;
};

static void world_open(struct world *world)
{
    void *address;
    world->peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_memory(world->peer, "memory", MEMORY_BYTES, 3, &address, NULL), 0);
    world->memory = address;
    play_noise(world->memory, MEMORY_BYTES, 1);
    assert_int_equal(gpusys_peer_add_memory(world->peer, "readonly", 100001, 1, &address, NULL), 0);
    world->readonly = address;
    play_noise(world->readonly, 100001, 2);
    world->file = malloc(FILE_BYTES);
    play_noise(world->file, FILE_BYTES, 3);
    play_file(play_path("file"), world->file, FILE_BYTES);
    assert_int_equal(gpusys_peer_add_file(world->peer, "dir/file", play_path("file"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(world->peer, "part", play_path("file"), PART_AT, PART_BYTES, NULL),
                     0);
    play_file(play_path("empty"), "", 0);
    assert_int_equal(gpusys_peer_add_file(world->peer, "empty", play_path("empty"), 0, 0, NULL), 0);
    mkdir(play_path("folder"), 0750);
    assert_int_equal(gpusys_peer_add_path(world->peer, play_path("folder"), 0, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_start(world->peer, NULL), 0);
}

static void world_close(struct world *world)
{
    gpusys_peer_close(world->peer);
    free(world->file);
}

/* ---- the table ---- */

static void check_info(struct gpusys_remote *remote, const char *name, uint32_t kind, uint32_t access,
                       uint32_t place, uint64_t length)
{
    uint32_t region;
    struct gpusys_region_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_find(remote, name, &region), 0);
    assert_int_equal(gpusys_remote_region(remote, region, &info), 0);
    assert_string_equal(info.name, name);
    assert_int_equal(info.region, region);
    assert_int_equal(info.kind, kind);
    assert_int_equal(info.access, access);
    assert_int_equal(info.place, place);
    assert_int_equal(info.length, length);
}

static void test_table(void **state)
{
    (void)state;
    struct world world;
    struct stat status;
    uint32_t region;
    uint64_t count;
    world_open(&world);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(world.peer), both_transports[i], 0);
        assert_int_equal(gpusys_remote_region(remote, 0, &(struct gpusys_region_info){.size = 64}), -ENOENT);
        assert_int_equal(gpusys_remote_list(remote, patience, &count, NULL), 0);
        assert_int_equal(count, 6);
        check_info(remote, "memory", GPUSYS_REGION_MEMORY, 3, GPUSYS_PLACE_MEMORY, MEMORY_BYTES);
        check_info(remote, "readonly", GPUSYS_REGION_MEMORY, 1, GPUSYS_PLACE_MEMORY, 100001);
        check_info(remote, "dir/file", GPUSYS_REGION_FILE, 1, GPUSYS_PLACE_FILE, FILE_BYTES);
        check_info(remote, "part", GPUSYS_REGION_FILE, 1, GPUSYS_PLACE_COPY, PART_BYTES);
        check_info(remote, "empty", GPUSYS_REGION_FILE, 1, GPUSYS_PLACE_FILE, 0);
        check_info(remote, "folder", GPUSYS_REGION_DIRECTORY, 1, GPUSYS_PLACE_FILE, 0);
        assert_int_equal(gpusys_remote_find(remote, "nothing", &region), -ENOENT);
        assert_int_equal(gpusys_remote_region(remote, 6, &(struct gpusys_region_info){.size = 64}), -ENOENT);
        struct gpusys_region_info info = {.size = sizeof info};
        assert_int_equal(gpusys_remote_find(remote, "folder", &region), 0);
        assert_int_equal(gpusys_remote_region(remote, region, &info), 0);
        assert_int_equal(stat(play_path("folder"), &status), 0);
        assert_int_equal(info.mode, 0750);
        assert_int_equal(info.mtime_ns, status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
        gpusys_remote_close(remote);
    }
    struct gpusys_peer_stats stats = play_stats(world.peer);
    assert_int_equal(stats.regions, 6);
    assert_int_equal(stats.region_bytes, MEMORY_BYTES + 100001 + FILE_BYTES + PART_BYTES);
    assert_int_equal(stats.clients_total, 2);
    world_close(&world);
}

/* Regions that come while a client is connected get numbers behind those that it knows. */
static void test_table_grows(void **state)
{
    (void)state;
    struct world world;
    uint64_t count;
    uint32_t before, after, added;
    world_open(&world);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(world.peer), GPUSYS_TRANSPORT_SHM, 0);
    before = play_find(remote, "part");
    assert_int_equal(gpusys_peer_add_memory(world.peer, "late", 10, 1, NULL, NULL), 0);
    assert_int_equal(gpusys_remote_find(remote, "late", &added), -ENOENT);
    assert_int_equal(gpusys_remote_list(remote, patience, &count, NULL), 0);
    assert_int_equal(count, 7);
    assert_int_equal(gpusys_remote_find(remote, "part", &after), 0);
    assert_int_equal(after, before);
    assert_int_equal(gpusys_remote_find(remote, "late", &added), 0);
    assert_int_equal(added, 6);
    gpusys_remote_close(remote);
    world_close(&world);
}

static void test_names_taken(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_memory(peer, "a", 1, 1, NULL, &error), 0);
    assert_int_equal(gpusys_peer_add_memory(peer, "a", 1, 1, NULL, &error), -EEXIST);
    assert_non_null(strstr(error.message, "\"a\""));
    assert_int_equal(gpusys_peer_add_memory(peer, "../a", 1, 1, NULL, &error), -EINVAL);
    assert_int_equal(gpusys_peer_add_memory(peer, "b", 0, 1, NULL, &error), -EINVAL);
    assert_int_equal(gpusys_peer_add_memory(peer, "b", 1, 0, NULL, &error), -EINVAL);
    assert_int_equal(gpusys_peer_add_memory(peer, "b", 1, 2, NULL, &error), -EINVAL);
    assert_int_equal(gpusys_peer_add_memory(peer, "b", 1, 7, NULL, &error), -EINVAL);
    assert_int_equal(gpusys_peer_add_memory(peer, "b", 1, 3, NULL, &error), 0);
    assert_int_equal(play_stats(peer).regions, 2);
    gpusys_peer_close(peer);
}

static void test_file_ranges(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    struct gpusys_peer *peer = play_peer(NULL);
    play_file(play_path("ten"), "0123456789", 10);
    const char *path = play_path("ten");
    assert_int_equal(gpusys_peer_add_file(peer, "a", path, 11, 0, &error), -ERANGE);
    assert_int_equal(gpusys_peer_add_file(peer, "a", path, 5, 6, &error), -ERANGE);
    assert_int_equal(gpusys_peer_add_file(peer, "a", path, UINT64_MAX, 2, &error), -ERANGE);
    assert_int_equal(gpusys_peer_add_file(peer, "a", path, 2, UINT64_MAX, &error), -ERANGE);
    assert_non_null(strstr(error.message, "which has 10"));
    assert_int_equal(gpusys_peer_add_file(peer, "a", play_path("nothing"), 0, 0, &error), -ENOENT);
    assert_int_equal(gpusys_peer_add_file(peer, "a", play_path("."), 0, 0, &error), -EISDIR);
    assert_int_equal(gpusys_peer_add_file(peer, "a", "/dev/null", 0, 0, &error), -EINVAL);
    assert_int_equal(play_stats(peer).regions, 0);
    assert_int_equal(gpusys_peer_add_file(peer, "a", path, 5, 0, &error), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "b", path, 9, 1, &error), 0);
    assert_int_equal(play_stats(peer).region_bytes, 6);
    gpusys_peer_close(peer);
}

/* ---- bytes ---- */

static const uint64_t sizes[] = {1,
                                 2,
                                 3,
                                 7,
                                 8,
                                 63,
                                 64,
                                 4095,
                                 4096,
                                 4097,
                                 32 * KIB,
                                 32 * KIB + 1,
                                 64 * KIB - 1,
                                 64 * KIB,
                                 MIB,
                                 MIB + 1,
                                 2 * MIB + 5,
                                 FILE_BYTES - 4096 - 1};

static void check_reads(struct gpusys_remote *remote, const char *name, const unsigned char *truth,
                        uint64_t length)
{
    static const uint64_t offsets[] = {0, 1, 4095, 4096};
    uint32_t region;
    unsigned char *buffer = malloc(length + 1);
    assert_int_equal(gpusys_remote_find(remote, name, &region), 0);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (size_t k = 0; k < COUNT_OF(offsets); k++) {
            if (offsets[k] > length || sizes[i] > length - offsets[k])
                continue;
            memset(buffer, 0xee, sizes[i] + 1);
            assert_int_equal(gpusys_remote_read(remote, region, offsets[k], buffer, sizes[i], patience), 0);
            assert_memory_equal(buffer, truth + offsets[k], sizes[i]);
            assert_int_equal(buffer[sizes[i]], 0xee);
        }
    assert_int_equal(gpusys_remote_read(remote, region, length - 1, buffer, 1, patience), 0);
    assert_int_equal(buffer[0], truth[length - 1]);
    assert_int_equal(gpusys_remote_read(remote, region, 0, buffer, length, patience), 0);
    assert_memory_equal(buffer, truth, length);
    assert_int_equal(gpusys_remote_read(remote, region, length, buffer, 0, patience), 0);
    free(buffer);
}

static void check_writes(struct gpusys_remote *remote, struct world *world)
{
    uint32_t region;
    unsigned char *shadow = malloc(MEMORY_BYTES), *bytes = malloc(MEMORY_BYTES);
    memcpy(shadow, world->memory, MEMORY_BYTES);
    assert_int_equal(gpusys_remote_find(remote, "memory", &region), 0);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint64_t offset = i * 1013;
        play_noise(bytes, sizes[i], i + 100);
        memcpy(shadow + offset, bytes, sizes[i]);
        assert_int_equal(gpusys_remote_write(remote, region, offset, bytes, sizes[i], patience), 0);
        assert_memory_equal(world->memory, shadow, MEMORY_BYTES);
    }
    free(shadow);
    free(bytes);
}

static void test_bytes(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    for (size_t i = 0; i < 3; i++) {
        uint32_t transport = i ? GPUSYS_TRANSPORT_TCP : GPUSYS_TRANSPORT_SHM;
        struct gpusys_remote *remote =
            play_remote(gpusys_peer_address(world.peer), transport, i == 2 ? 3 : 0);
        assert_int_equal(gpusys_remote_list(remote, patience, NULL, NULL), 0);
        check_reads(remote, "memory", world.memory, MEMORY_BYTES);
        check_reads(remote, "readonly", world.readonly, 100001);
        check_reads(remote, "dir/file", world.file, FILE_BYTES);
        check_reads(remote, "part", world.file + PART_AT, PART_BYTES);
        check_writes(remote, &world);
        gpusys_remote_close(remote);
    }
    world_close(&world);
}

/* What a call may not ask for, and that nothing moves then. */
static void check_rules(struct gpusys_remote *remote, struct world *world)
{
    unsigned char byte = 0x5a, before = world->memory[MEMORY_BYTES - 1];
    uint32_t memory = play_find(remote, "memory"), readonly = play_find(remote, "readonly"),
             file = play_find(remote, "dir/file"), empty = play_find(remote, "empty"),
             folder = play_find(remote, "folder");
    assert_int_equal(gpusys_remote_read(remote, memory, MEMORY_BYTES, &byte, 1, patience), -ERANGE);
    assert_int_equal(gpusys_remote_read(remote, memory, MEMORY_BYTES - 1, &byte, 2, patience), -ERANGE);
    assert_int_equal(gpusys_remote_read(remote, memory, UINT64_MAX, &byte, 1, patience), -ERANGE);
    assert_int_equal(gpusys_remote_read(remote, memory, UINT64_MAX, &byte, 2, patience), -ERANGE);
    assert_int_equal(gpusys_remote_read(remote, memory, 1, &byte, UINT64_MAX, patience), -ERANGE);
    assert_int_equal(gpusys_remote_write(remote, memory, MEMORY_BYTES - 1, &byte, UINT64_MAX - 1, patience),
                     -ERANGE);
    assert_int_equal(gpusys_remote_read(remote, empty, 0, &byte, 1, patience), -ERANGE);
    assert_int_equal(gpusys_remote_read(remote, empty, 0, &byte, 0, patience), 0);
    assert_int_equal(gpusys_remote_read(remote, folder, 0, &byte, 0, patience), -ENOENT);
    assert_int_equal(gpusys_remote_read(remote, 1000, 0, &byte, 1, patience), -ENOENT);
    assert_int_equal(gpusys_remote_read(remote, UINT32_MAX, 0, &byte, 1, patience), -ENOENT);
    assert_int_equal(gpusys_remote_read(remote, 0x80000000u, 0, &byte, 1, patience), -ENOENT);
    assert_int_equal(gpusys_remote_write(remote, readonly, 0, &byte, 1, patience), -EACCES);
    assert_int_equal(gpusys_remote_write(remote, file, 0, &byte, 1, patience), -EACCES);
    assert_int_equal(gpusys_remote_read(remote, memory, 0, NULL, 1, patience), -EINVAL);
    struct gpusys_io io = {.op = 2, .region = memory, .buffer = &byte, .length = 1};
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, NULL, NULL), -EINVAL);
    io = (struct gpusys_io){.region = memory, .buffer = &byte, .length = 1, .memory = 1};
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, NULL, NULL), -EOPNOTSUPP);
    struct gpusys_io both[2] = {
        {.op = GPUSYS_OP_WRITE, .region = memory, .offset = MEMORY_BYTES - 1, .buffer = &byte, .length = 1},
        {.region = memory, .offset = MEMORY_BYTES, .buffer = &byte, .length = 1}};
    assert_int_equal(gpusys_remote_submit(remote, both, 2, NULL, NULL), -ERANGE);
    assert_int_equal(gpusys_remote_wait(remote, &(struct gpusys_completion){0}, 1, 0), -ENOENT);
    assert_int_equal(world->memory[MEMORY_BYTES - 1], before);
    assert_int_equal(gpusys_remote_write(remote, memory, MEMORY_BYTES - 1, &byte, 1, patience), 0);
    assert_int_equal(world->memory[MEMORY_BYTES - 1], 0x5a);
    world->memory[MEMORY_BYTES - 1] = before;
}

static void test_rules(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(world.peer), both_transports[i], 0);
        check_rules(remote, &world);
        gpusys_remote_close(remote);
    }
    world_close(&world);
}

/* ---- a random walk against a shadow ---- */

enum { STEPS = 150, IOS_MAX = 40 };

struct walk {
    struct gpusys_remote *remote;
    struct world *world;
    uint32_t memory, file;
    uint64_t seed;
    unsigned char *shadow, *buffer, *expected;
    uint64_t at; /* in the buffer */
    uint64_t written_to;
    struct gpusys_io ios[IOS_MAX];
    size_t n_ios;
};

static uint64_t some(struct walk *walk, uint64_t below)
{
    return play_random(&walk->seed) % below;
}

/* Writes of one batch go one behind the other through the region, since the order within a batch is open; reads stay in
 * what this batch does not write. */
static void add_io(struct walk *walk)
{
    bool file = some(walk, 3) == 0, write = !file && some(walk, 2);
    uint64_t length = some(walk, 8) ? some(walk, 5000) : some(walk, 150000),
             total = file ? FILE_BYTES : MEMORY_BYTES / 2;
    struct gpusys_io *io = &walk->ios[walk->n_ios];
    if (walk->at + length > 4 * MIB || (write && walk->written_to + length > MEMORY_BYTES))
        return;
    *io = (struct gpusys_io){.op = write, .region = file ? walk->file : walk->memory, .length = length};
    io->buffer = walk->buffer + walk->at;
    if (write) {
        io->offset = walk->written_to;
        play_noise(io->buffer, length, play_random(&walk->seed));
        memcpy(walk->shadow + io->offset, io->buffer, length);
        memcpy(walk->expected + walk->at, io->buffer, length);
        walk->written_to += length + some(walk, 3);
        if (walk->written_to > MEMORY_BYTES)
            walk->written_to = MEMORY_BYTES;
    } else {
        io->offset = some(walk, total - length);
        memcpy(walk->expected + walk->at, (file ? walk->world->file : walk->shadow) + io->offset, length);
    }
    walk->at += length;
    walk->n_ios++;
}

static void step(struct walk *walk)
{
    struct gpusys_completion completion;
    uint64_t batch, bytes = 0, n_wanted = some(walk, IOS_MAX);
    walk->at = walk->n_ios = 0;
    walk->written_to = MEMORY_BYTES / 2 + some(walk, MIB);
    memset(walk->buffer, 0xaa, 4 * MIB);
    for (uint64_t i = 0; i < n_wanted; i++)
        add_io(walk);
    for (size_t i = 0; i < walk->n_ios; i++)
        bytes += walk->ios[i].length;
    assert_int_equal(gpusys_remote_submit(walk->remote, walk->ios, walk->n_ios, NULL, &batch), 0);
    assert_int_equal(gpusys_remote_wait_batch(walk->remote, batch, &completion, patience), 0);
    assert_int_equal(completion.status, 0);
    assert_int_equal(completion.bytes, bytes);
    assert_memory_equal(walk->buffer, walk->expected, walk->at);
    assert_int_equal(walk->buffer[walk->at], 0xaa);
}

static void test_random_walk(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    for (size_t i = 0; i < 3; i++) {
        struct gpusys_remote_options options = {.size = sizeof options,
                                                .require = i ? GPUSYS_TRANSPORT_TCP : GPUSYS_TRANSPORT_SHM,
                                                .tcp_connections = i == 2 ? 4 : 0,
                                                .slice_bytes = i == 2 ? 4099 : 0};
        struct walk walk = {.world = &world, .seed = 42 + i};
        assert_int_equal(gpusys_remote_open(&walk.remote, gpusys_peer_address(world.peer), &options, NULL),
                         0);
        walk.memory = play_find(walk.remote, "memory");
        walk.file = play_find(walk.remote, "dir/file");
        walk.shadow = malloc(MEMORY_BYTES);
        walk.buffer = malloc(4 * MIB + 1);
        walk.buffer[4 * MIB] = 0xaa;
        walk.expected = malloc(4 * MIB);
        memcpy(walk.shadow, world.memory, MEMORY_BYTES);
        for (int k = 0; k < STEPS; k++)
            step(&walk);
        assert_memory_equal(world.memory, walk.shadow, MEMORY_BYTES);
        gpusys_remote_close(walk.remote);
        free(walk.shadow);
        free(walk.buffer);
        free(walk.expected);
    }
    world_close(&world);
}

/* Ten thousand pieces in one call: more than there are slots. */
static void test_many_ios(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    struct world world;
    world_open(&world);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(world.peer), both_transports[i], 2);
        uint32_t region = play_find(remote, "dir/file");
        unsigned char *buffer = malloc(COUNT * 8);
        struct gpusys_io *ios = calloc(COUNT, sizeof *ios);
        struct gpusys_completion completion;
        for (uint64_t k = 0; k < COUNT; k++)
            ios[k] = (struct gpusys_io){
                .region = region, .offset = k * 311, .buffer = buffer + k * 8, .length = 8};
        assert_int_equal(gpusys_remote_submit(remote, ios, COUNT, NULL, NULL), 0);
        assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
        assert_int_equal(completion.status, 0);
        assert_int_equal(completion.bytes, COUNT * 8);
        for (uint64_t k = 0; k < COUNT; k++)
            assert_memory_equal(buffer + k * 8, world.file + k * 311, 8);
        free(ios);
        free(buffer);
        gpusys_remote_close(remote);
    }
    world_close(&world);
}

/* ---- options and information ---- */

static void test_options(void **state)
{
    (void)state;
    struct world world;
    struct gpusys_remote *remote = NULL;
    world_open(&world);
    const char *address = gpusys_peer_address(world.peer);
    struct {
        struct gpusys_remote_options known;
        uint64_t more;
    } big = {.known = {.size = sizeof big, .require = GPUSYS_TRANSPORT_TCP}};
    assert_int_equal(gpusys_remote_open(&remote, address, &big.known, NULL), 0);
    gpusys_remote_close(remote);
    remote = NULL;
    big.more = 1;
    assert_int_equal(gpusys_remote_open(&remote, address, &big.known, NULL), -E2BIG);
    assert_null(remote);
    struct gpusys_remote_options small = {.size = offsetof(struct gpusys_remote_options, require),
                                          .require = GPUSYS_TRANSPORT_VERBS};
    assert_int_equal(gpusys_remote_open(&remote, address, &small, NULL), 0);
    gpusys_remote_close(remote);
    assert_int_equal(gpusys_remote_open(&remote, address, NULL, NULL), 0);
    struct gpusys_remote_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_info(remote, &info), 0);
    assert_int_equal(info.transport, GPUSYS_TRANSPORT_SHM);
    assert_int_equal(info.n_rails, 1);
    assert_int_equal(info.n_regions, 6);
    assert_int_equal(info.arena_bytes, 0);
    assert_string_equal(info.address, address);
    assert_non_null(strstr(info.reason, "same host"));
    assert_int_equal(gpusys_remote_info(remote, &(struct gpusys_remote_info){.size = 0}), -EINVAL);
    gpusys_remote_close(remote);
    struct gpusys_remote_options bad = {.size = sizeof bad, .tcp_connections = 9};
    assert_int_equal(gpusys_remote_open(&remote, address, &bad, NULL), -EINVAL);
    bad = (struct gpusys_remote_options){.size = sizeof bad, .require = 4};
    assert_int_equal(gpusys_remote_open(&remote, address, &bad, NULL), -EINVAL);
    bad = (struct gpusys_remote_options){.size = sizeof bad, .slice_bytes = 16 * MIB + 1};
    assert_int_equal(gpusys_remote_open(&remote, address, &bad, NULL), -EINVAL);
    bad = (struct gpusys_remote_options){.size = 4};
    assert_int_equal(gpusys_remote_open(&remote, address, &bad, NULL), -EINVAL);
    world_close(&world);
}

static void test_two_remotes(void **state)
{
    (void)state;
    struct world world;
    uint64_t value = 0x1122334455667788, seen = 0;
    world_open(&world);
    struct gpusys_remote *a = play_remote(gpusys_peer_address(world.peer), GPUSYS_TRANSPORT_SHM, 0);
    struct gpusys_remote *b = play_remote(gpusys_peer_address(world.peer), GPUSYS_TRANSPORT_TCP, 2);
    assert_int_equal(play_stats(world.peer).clients, 2);
    assert_int_equal(gpusys_remote_write(a, play_find(a, "memory"), 1001, &value, 8, patience), 0);
    assert_int_equal(gpusys_remote_read(b, play_find(b, "memory"), 1001, &seen, 8, patience), 0);
    assert_int_equal(seen, value);
    gpusys_remote_close(a);
    assert_int_equal(gpusys_remote_ping(b, patience), 0);
    assert_int_equal(gpusys_remote_read(b, play_find(b, "memory"), 1001, &seen, 8, patience), 0);
    gpusys_remote_close(b);
    world_close(&world);
}

static void test_nothing_to_close(void **state)
{
    (void)state;
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error = {0};
    gpusys_remote_close(NULL);
    gpusys_peer_close(NULL);
    struct gpusys_peer *peer = play_peer(NULL);
    char address[160];
    snprintf(address, sizeof address, "%s", gpusys_peer_address(peer));
    gpusys_peer_close(peer); /* never started */
    assert_int_equal(gpusys_remote_open(&remote, address, NULL, &error), -ECONNREFUSED);
    assert_null(remote);
    assert_non_null(strstr(error.message, address));
    peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, &error), -EALREADY);
    gpusys_peer_close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_grows),
        cmocka_unit_test(test_names_taken),
        cmocka_unit_test(test_file_ranges),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_random_walk),
        cmocka_unit_test(test_many_ios),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_two_remotes),
        cmocka_unit_test(test_nothing_to_close),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
