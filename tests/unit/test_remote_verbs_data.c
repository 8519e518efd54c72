/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Bytes over verbs: every length and place, registered and not, in pieces, in arenas, from files. Over the stand-in
 * libibverbs. */
#include "remote_verbs_play.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* This host has 3000 KiB of memory left. */
static atomic_bool little_memory;
FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode)
{
    static char text[] = "MemTotal: 99999999 kB\nMemAvailable:       3000 kB\n";
    if (!atomic_load(&little_memory) || strcmp(path, "/proc/meminfo") != 0)
        return __real_fopen64(path, mode);
    return fmemopen(text, sizeof text - 1, "r");
}

/* Where the C library has but one. */
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return __wrap_fopen64(path, mode);
}

static int64_t live_mrs(void)
{
    return FAKE(fake_ibverbs_live)(FAKE_IBVERBS_MRS);
}

/* One read or write; its completion. */
static struct gpusys_completion move(struct gpusys_remote *remote, uint32_t op, uint32_t region,
                                     uint64_t offset, void *buffer, uint64_t length)
{
    struct gpusys_io io = {.op = op, .region = region, .offset = offset, .buffer = buffer, .length = length};
    struct gpusys_completion completion = {0};
    uint64_t batch;
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, NULL, &batch), 0);
    assert_int_equal(gpusys_remote_wait_batch(remote, batch, &completion, verbs_patience), 0);
    return completion;
}

/* ---- lengths and places ---- */

static const uint64_t lengths[] = {0,
                                   1,
                                   2,
                                   7,
                                   8,
                                   63,
                                   64,
                                   65,
                                   4095,
                                   4096,
                                   4097,
                                   65535,
                                   65536,
                                   65537,
                                   MIB,
                                   MIB + 3,
                                   512 * KIB,
                                   512 * KIB + 1,
                                   640 * KIB,
                                   640 * KIB + 1,
                                   3 * MIB + 77,
                                   VERBS_MEMORY_BYTES};
static const uint64_t places[] = {0, 1, 4095, 65530, 69632, 200001};

/* Exactly these bytes come, and none beside them. */
static void check_read(const struct verbs_world *world, uint64_t offset, uint64_t length)
{
    enum { GUARD = 16 };
    unsigned char *to = world->buffer + GUARD;
    memset(world->buffer, 0xA5, length + 2 * GUARD);
    assert_int_equal(gpusys_remote_read(world->remote, VERBS_READ_ONLY, offset, to, length, verbs_patience),
                     0);
    if (memcmp(to, world->read_only + offset, length) != 0)
        fail_msg("%llu bytes at %llu are not the peer's", (unsigned long long)length,
                 (unsigned long long)offset);
    for (size_t i = 0; i < GUARD; i++)
        assert_true(world->buffer[i] == 0xA5 && to[length + i] == 0xA5);
}

static void check_write(const struct verbs_world *world, uint64_t offset, uint64_t length)
{
    uint64_t before = offset < 16 ? offset : 16, behind = VERBS_MEMORY_BYTES - offset - length;
    behind = behind < 16 ? behind : 16;
    memset(world->writable + offset - before, 0x5A, length + before + behind);
    play_noise(world->buffer, length, offset * 31 + length);
    assert_int_equal(
        gpusys_remote_write(world->remote, VERBS_WRITABLE, offset, world->buffer, length, verbs_patience), 0);
    if (memcmp(world->buffer, world->writable + offset, length) != 0)
        fail_msg("%llu bytes at %llu are not those written", (unsigned long long)length,
                 (unsigned long long)offset);
    for (uint64_t i = 0; i < before; i++)
        assert_int_equal(world->writable[offset - before + i], 0x5A);
    for (uint64_t i = 0; i < behind; i++)
        assert_int_equal(world->writable[offset + length + i], 0x5A);
}

static void check_all(struct verbs_world *world)
{
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (size_t j = 0; j < COUNT_OF(places); j++) {
            uint64_t most = VERBS_MEMORY_BYTES - places[j], length = lengths[i] < most ? lengths[i] : most;
            if (length + 32 <= VERBS_MEMORY_BYTES)
                check_read(world, places[j], length);
            if (length <= 4 * MIB || j == 0)
                check_write(world, places[j], length);
        }
}

static void test_unregistered(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    move(world.remote, GPUSYS_OP_READ, VERBS_READ_ONLY, 0, world.buffer, 8);
    move(world.remote, GPUSYS_OP_WRITE, VERBS_WRITABLE, 0, world.buffer, 8);
    check_all(&world);
    verbs_world_close(&world);
}

/* Registered memory is used where it is: nothing is registered for a transfer, and nothing copied. */
static void test_registered(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_error error = {0};
    verbs_world_open(&world);
    assert_int_equal(gpusys_remote_register(world.remote, world.buffer, VERBS_MEMORY_BYTES, &error), 0);
    check_read(&world, 0, VERBS_MEMORY_BYTES - 64); /* the keys come, for both rails */
    check_write(&world, 0, VERBS_MEMORY_BYTES);
    FAKE(fake_ibverbs_reset)();
    check_all(&world);
    assert_int_equal(FAKE(fake_ibverbs_calls)("ibv_reg_mr"), 0);
    assert_int_equal(FAKE(fake_ibverbs_calls)("ibv_reg_mr_iova2"), 0);
    int64_t before = live_mrs();
    gpusys_remote_unregister(world.remote, world.buffer);
    gpusys_remote_unregister(world.remote, world.buffer);
    assert_int_equal(live_mrs(), before - 2);
    check_read(&world, 5, MIB);
    assert_int_equal(live_mrs(), before - 2);
    assert_int_equal(gpusys_remote_register(world.remote, world.buffer, 0, &error), -EINVAL);
    verbs_world_close(&world);
}

/* What lies partly in registered memory is taken like any other. */
static void test_half_registered(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    assert_int_equal(gpusys_remote_register(world.remote, world.buffer + 64 * KIB, 64 * KIB, NULL), 0);
    check_read(&world, 3, 100 * KIB);
    check_read(&world, 3, MIB);
    memset(world.buffer, 0, MIB);
    move(world.remote, GPUSYS_OP_READ, VERBS_READ_ONLY, 0, world.buffer + 127 * KIB,
         2 * KIB); /* across its end */
    assert_memory_equal(world.buffer + 127 * KIB, world.read_only, 2 * KIB);
    verbs_world_close(&world);
}

/* Writes from memory that may only be read. */
static void test_read_only_source(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    char *source = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(source, MAP_FAILED);
    play_noise(source, MIB, 9);
    assert_int_equal(mprotect(source, MIB, PROT_READ), 0);
    for (uint64_t length = 1; length <= MIB; length *= 8) {
        memset(world.writable, 0, MIB);
        assert_int_equal(gpusys_remote_write(world.remote, VERBS_WRITABLE, 0, source, length, verbs_patience),
                         0);
        assert_memory_equal(world.writable, source, length);
    }
    munmap(source, MIB);
    verbs_world_close(&world);
}

/* Long transfers from memory that is not there end with an error, and harm nobody. */
static void test_no_memory_there(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    char *hole = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(hole, MAP_FAILED);
    munmap(hole, MIB);
    assert_int_equal(move(world.remote, GPUSYS_OP_READ, VERBS_READ_ONLY, 0, hole, MIB).status, -EFAULT);
    check_read(&world, 0, MIB);
    assert_int_equal(verbs_info(world.remote).n_rails, 2);
    verbs_world_close(&world);
}

static void test_many_at_once(void **state)
{
    (void)state;
    enum { IOS = 2000, EACH = 3001 };
    struct verbs_world world;
    struct gpusys_completion completion;
    verbs_world_open(&world);
    struct gpusys_io *ios = calloc(IOS, sizeof *ios);
    assert_non_null(ios);
    memset(world.buffer, 0, (size_t)IOS * EACH);
    for (uint64_t i = 0; i < IOS; i++)
        ios[i] = (struct gpusys_io){.region = VERBS_READ_ONLY,
                                    .offset = (IOS - 1 - i) * EACH,
                                    .buffer = world.buffer + (IOS - 1 - i) * EACH,
                                    .length = EACH};
    struct gpusys_batch_options options = {.size = sizeof options, .user = 77};
    assert_int_equal(gpusys_remote_submit(world.remote, ios, IOS, &options, NULL), 0);
    struct pollfd ready = {.fd = gpusys_remote_fd(world.remote), .events = POLLIN};
    int count = 0;
    while (count == 0) {
        assert_int_equal(poll(&ready, 1, 20000), 1);
        count = gpusys_remote_poll(world.remote, &completion, 1);
    }
    assert_int_equal(count, 1);
    assert_true(completion.status == 0 && completion.user == 77 && completion.bytes == (uint64_t)IOS * EACH);
    assert_memory_equal(world.buffer, world.read_only, (size_t)IOS * EACH);
    assert_int_equal(gpusys_remote_poll(world.remote, &completion, 1), 0);
    free(ios);
    verbs_world_close(&world);
}

/* What the table says is refused here, before a byte moves. */
static void test_refused_here(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    char byte = 'x';
    struct gpusys_remote *remote = world.remote;
    assert_int_equal(gpusys_remote_write(remote, VERBS_READ_ONLY, 0, &byte, 1, verbs_patience), -EACCES);
    assert_int_equal(
        gpusys_remote_read(remote, VERBS_READ_ONLY, VERBS_MEMORY_BYTES, &byte, 1, verbs_patience), -ERANGE);
    assert_int_equal(gpusys_remote_read(remote, 2, 0, &byte, 1, verbs_patience), -ENOENT);
    assert_int_equal(play_stats(world.peer).keyed_bytes, 0);
    verbs_world_close(&world);
}

/* ---- notes ---- */

static struct {
    atomic_int count;
    const struct verbs_world *world;
    atomic_bool was_there;
} noted;

static void on_note(void *context, uint64_t client, const void *note, uint32_t note_bytes)
{
    (void)context;
    (void)client;
    atomic_store(&noted.was_there, note_bytes == 4 && memcmp(note, "done", 4) == 0 &&
                                       memcmp(noted.world->writable, noted.world->buffer, 4 * MIB) == 0);
    atomic_fetch_add(&noted.count, 1);
}

static void test_note_comes_last(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_peer_options peer_options = {.size = sizeof peer_options, .on_note = on_note};
    struct gpusys_batch_options options = {.size = sizeof options, .note = "done", .note_bytes = 4};
    struct gpusys_completion completion;
    verbs_world_serve(&world, &peer_options, NULL);
    noted.world = &world;
    atomic_store(&noted.count, 0);
    world.remote = verbs_remote(&world, NULL);
    FAKE(fake_ibverbs_delay_us)(300);
    for (int i = 0; i < 3; i++) {
        play_noise(world.buffer, 4 * MIB, (uint64_t)i);
        struct gpusys_io io = {
            .op = GPUSYS_OP_WRITE, .region = VERBS_WRITABLE, .buffer = world.buffer, .length = 4 * MIB};
        assert_int_equal(gpusys_remote_submit(world.remote, &io, 1, &options, NULL), 0);
        assert_int_equal(gpusys_remote_wait(world.remote, &completion, 1, verbs_patience), 1);
        assert_int_equal(completion.status, 0);
        assert_int_equal(atomic_load(&noted.count), i + 1);
        assert_true(atomic_load(&noted.was_there));
    }
    verbs_world_close(&world);
}

/* ---- arenas, and who shares what ---- */

static void test_arenas(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_peer_options peer_options = {.size = sizeof peer_options, .arena_bytes = 8 * MIB};
    uint32_t first, second;
    verbs_world_serve(&world, &peer_options, NULL);
    world.remote = verbs_remote(&world, NULL);
    assert_int_equal(gpusys_remote_arena_new(world.remote, MIB + 5, verbs_patience, &first, NULL), 0);
    assert_int_equal(gpusys_remote_arena_new(world.remote, 300000, verbs_patience, &second, NULL), 0);
    unsigned char *back = malloc(MIB + 5);
    for (int round = 0; round < 3; round++) {
        play_noise(world.buffer, MIB + 5, (uint64_t)round);
        assert_int_equal(move(world.remote, GPUSYS_OP_WRITE, first, 0, world.buffer, MIB + 5).status, 0);
        assert_int_equal(move(world.remote, GPUSYS_OP_WRITE, second, 0, world.buffer, 300000).status, 0);
        memset(back, 0, MIB + 5);
        assert_int_equal(move(world.remote, GPUSYS_OP_READ, first, 0, back, MIB + 5).status, 0);
        assert_memory_equal(back, world.buffer, MIB + 5);
        assert_int_equal(move(world.remote, GPUSYS_OP_READ, second, 7, back, 299993).status, 0);
        assert_memory_equal(back, world.buffer + 7, 299993);
        /* Freed, its number comes back with other, empty memory. */
        uint64_t keyed = play_stats(world.peer).keyed_bytes;
        assert_int_equal(gpusys_remote_arena_free(world.remote, first, verbs_patience, NULL), 0);
        assert_true(play_stats(world.peer).keyed_bytes < keyed);
        uint32_t again;
        assert_int_equal(gpusys_remote_arena_new(world.remote, MIB + 5, verbs_patience, &again, NULL), 0);
        assert_int_equal(again, first);
        assert_int_equal(move(world.remote, GPUSYS_OP_READ, again, 0, back, MIB + 5).status, 0);
        for (size_t i = 0; i < MIB + 5; i++)
            assert_int_equal(back[i], 0);
    }
    free(back);
    verbs_world_close(&world);
}

/* Keys are shared as long as nobody can have anything of his own; each client's are his own where there are arenas. */
static void check_sharing(uint64_t arena_bytes, unsigned grants)
{
    struct verbs_world world;
    struct gpusys_peer_options peer_options = {.size = sizeof peer_options, .arena_bytes = arena_bytes};
    char byte;
    verbs_world_serve(&world, &peer_options, NULL);
    struct gpusys_remote_options options = verbs_options();
    options.n_rails = 1;
    struct gpusys_remote *remotes[3];
    for (unsigned i = 0; i < 3; i++) {
        remotes[i] = verbs_remote(&world, &options);
        assert_int_equal(gpusys_remote_read(remotes[i], VERBS_READ_ONLY, 5, &byte, 1, verbs_patience), 0);
        assert_int_equal(byte, (char)world.read_only[5]);
        uint64_t times = grants == 1 ? 1 : i + 1;
        assert_int_equal(play_stats(world.peer).keyed_bytes, times * VERBS_MEMORY_BYTES);
    }
    for (unsigned i = 0; i < 3; i++)
        gpusys_remote_close(remotes[i]);
    verbs_world_close(&world);
}

static void test_sharing(void **state)
{
    (void)state;
    check_sharing(0, 1);
    check_sharing(MIB, 3);
}

/* The last one's end gives everything back, and the next one finds it all again. */
static void test_keys_go_and_come(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_serve(&world, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        world.remote = verbs_remote(&world, NULL);
        check_read(&world, 0, 3 * MIB);
        assert_true(play_stats(world.peer).keyed_bytes >= VERBS_MEMORY_BYTES);
        gpusys_remote_close(world.remote);
        assert_true(play_until(verbs_nothing_keyed, world.peer));
    }
    world.remote = NULL;
    verbs_world_close(&world);
}

/* ---- files ---- */

enum { FILE_BYTES = 3 * MIB + 123 };

static unsigned char file_bytes[FILE_BYTES];

static void add_files(struct gpusys_peer *peer)
{
    play_noise(file_bytes, FILE_BYTES, 5);
    play_file(play_path("file"), file_bytes, FILE_BYTES);
    play_file(play_path("empty"), "", 0);
    assert_int_equal(gpusys_peer_add_file(peer, "file", play_path("file"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "part", play_path("file"), 1000, 70000, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "empty", play_path("empty"), 0, 0, NULL), 0);
}

static uint32_t place_of(const struct gpusys_remote *remote, uint32_t region)
{
    struct gpusys_region_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_region(remote, region, &info), 0);
    return info.place;
}

static void check_files(bool copied)
{
    struct verbs_world world;
    unsigned char *back = malloc(FILE_BYTES);
    char none;
    struct gpusys_remote_options options = verbs_options();
    options.n_rails = 1;
    verbs_world_serve(&world, NULL, add_files);
    world.remote = verbs_remote(&world, &options);
    uint32_t file = play_find(world.remote, "file"), part = play_find(world.remote, "part");
    assert_int_equal(place_of(world.remote, file), GPUSYS_PLACE_FILE);
    assert_int_equal(move(world.remote, GPUSYS_OP_READ, file, 0, back, FILE_BYTES).status, 0);
    assert_memory_equal(back, file_bytes, FILE_BYTES);
    assert_int_equal(place_of(world.remote, file), copied ? GPUSYS_PLACE_COPY : GPUSYS_PLACE_FILE);
    assert_int_equal(play_stats(world.peer).copied_bytes, copied ? FILE_BYTES : 0);
    assert_int_equal(play_stats(world.peer).keyed_bytes, FILE_BYTES);
    memset(back, 0, 70000);
    assert_int_equal(move(world.remote, GPUSYS_OP_READ, part, 0, back, 70000).status, 0);
    assert_memory_equal(back, file_bytes + 1000, 70000);
    assert_int_equal(place_of(world.remote, part), GPUSYS_PLACE_COPY);
    assert_int_equal(
        gpusys_remote_read(world.remote, play_find(world.remote, "empty"), 0, &none, 0, verbs_patience), 0);
    verbs_world_close(&world);
    free(back);
}

static void test_files(void **state)
{
    (void)state;
    check_files(false);
}

static void test_files_copied(void **state)
{
    (void)state;
    check_files(true);
}

/* Where arenas are given every client has a grant of its own; a copy of a file is one for all of them. */
static void test_one_copy_for_all(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_peer_options options = {
        .size = sizeof options, .listen = "127.0.0.1:0", .arena_bytes = MIB};
    struct gpusys_remote_options one_rail = verbs_options();
    unsigned char byte;
    one_rail.n_rails = 1;
    verbs_world_serve(&world, &options, add_files);
    world.remote = verbs_remote(&world, &one_rail);
    struct gpusys_remote *second = verbs_remote(&world, &one_rail);
    uint32_t file = play_find(world.remote, "file");
    assert_int_equal(gpusys_remote_read(world.remote, file, 7, &byte, 1, verbs_patience), 0);
    assert_int_equal(gpusys_remote_read(second, play_find(second, "file"), 9, &byte, 1, verbs_patience), 0);
    assert_int_equal(byte, file_bytes[9]);
    assert_int_equal(play_stats(world.peer).keyed_bytes, 2 * FILE_BYTES);
    assert_int_equal(play_stats(world.peer).copied_bytes, FILE_BYTES);
    gpusys_remote_close(second);
    assert_int_equal(gpusys_remote_read(world.remote, file, 11, &byte, 1, verbs_patience), 0);
    assert_int_equal(byte, file_bytes[11]);
    verbs_world_close(&world);
}

/* A file that is another one by the time its keys are asked for. */
static void test_file_changed(void **state)
{
    (void)state;
    struct verbs_world world;
    unsigned char byte = 0xEE;
    verbs_world_serve(&world, NULL, add_files);
    world.remote = verbs_remote(&world, NULL);
    uint32_t file = play_find(world.remote, "file");
    play_file(play_path("file"), file_bytes, 100);
    play_log_begin();
    assert_int_equal(gpusys_remote_read(world.remote, file, 0, &byte, 1, verbs_patience), -ESTALE);
    assert_true(play_log_has("\"file\""));
    play_log_end();
    assert_int_equal(byte, 0xEE);
    assert_int_equal(verbs_info(world.remote).n_rails, 2); /* that was no fault of the rails */
    check_read(&world, 0, MIB);
    verbs_world_close(&world);
}

/* The copy of a file must fit into the memory that is there. */
static void test_too_little_memory_for_a_copy(void **state)
{
    (void)state;
    struct verbs_world world;
    char byte;
    verbs_world_serve(&world, NULL, add_files);
    world.remote = verbs_remote(&world, NULL);
    play_log_begin();
    atomic_store(&little_memory, true);
    uint32_t file = play_find(world.remote, "file");
    assert_int_equal(gpusys_remote_read(world.remote, file, 0, &byte, 1, verbs_patience), -EDQUOT);
    assert_true(play_log_has("\"file\" has 3145851 bytes and cannot be registered where it lies"));
    assert_true(play_log_has("the 3072000 bytes of memory that are available"));
    play_log_end();
    assert_int_equal(play_stats(world.peer).copied_bytes, 0);
    atomic_store(&little_memory, false);
    assert_int_equal(gpusys_remote_read(world.remote, file, 9, &byte, 1, verbs_patience), 0);
    assert_int_equal((unsigned char)byte, file_bytes[9]);
    assert_int_equal(play_stats(world.peer).copied_bytes, FILE_BYTES);
    verbs_world_close(&world);
}

/* ---- pieces ---- */

static void test_pieces(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    move(world.remote, GPUSYS_OP_READ, VERBS_READ_ONLY, 0, world.buffer, 8);
    check_all(&world);
    assert_int_equal(play_stats(world.peer).keyed_bytes, 4 * VERBS_MEMORY_BYTES);
    assert_int_equal(gpusys_remote_register(world.remote, world.buffer, VERBS_MEMORY_BYTES, NULL), 0);
    check_all(&world);
    verbs_world_close(&world);
}

static void add_large_memory(struct gpusys_peer *peer)
{
    void *address;
    assert_int_equal(gpusys_peer_add_memory(peer, "large", UINT64_C(16383) * 4096, 3, &address, NULL), 0);
    assert_int_equal(gpusys_peer_add_memory(peer, "largest", UINT64_C(16382) * 4096, 3, &address, NULL), 0);
    memset((char *)address + UINT64_C(16382) * 4096 - 4096, 7, 4096);
}

static void test_too_many_pieces(void **state)
{
    (void)state;
    struct verbs_world world;
    unsigned char bytes[2];
    struct gpusys_remote_options options = verbs_options();
    options.n_rails = 1;
    verbs_world_serve(&world, NULL, add_large_memory);
    world.remote = verbs_remote(&world, &options);
    play_log_begin();
    assert_int_equal(
        gpusys_remote_read(world.remote, play_find(world.remote, "large"), 0, bytes, 1, verbs_patience),
        -EDQUOT);
    assert_true(play_log_has("67104768 bytes would be 16383 registrations of the 4096 bytes"));
    play_log_end();
    assert_int_equal(gpusys_remote_read(world.remote, play_find(world.remote, "largest"),
                                        UINT64_C(16382) * 4096 - 4097, bytes, 2, verbs_patience),
                     0);
    assert_true(bytes[0] == 0 && bytes[1] == 7);
    verbs_world_close(&world);
}

/* ---- limits on locked memory ---- */

static unsigned char *small_memory;

static void add_small_memory(struct gpusys_peer *peer)
{
    void *address;
    assert_int_equal(gpusys_peer_add_memory(peer, "small", 70000, 3, &address, NULL), 0);
    small_memory = address;
}

static void check_small(const struct verbs_world *world, unsigned char *buffer, uint64_t length)
{
    uint32_t region = play_find(world->remote, "small");
    play_noise(small_memory, 70000, length);
    assert_int_equal(move(world->remote, GPUSYS_OP_READ, region, 11, buffer, length).status, 0);
    assert_memory_equal(buffer, small_memory + 11, length);
    play_noise(buffer, length, length + 1);
    assert_int_equal(move(world->remote, GPUSYS_OP_WRITE, region, 9, buffer, length).status, 0);
    assert_memory_equal(buffer, small_memory + 9, length);
}

/*
 * A region that may not be locked at the peer is refused, in words that name it. Memory of ours that may not be is
 * copied in parts.
 */
static void test_memlock(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_error error = {0};
    struct gpusys_remote_options options = verbs_options();
    options.n_rails = 1;
    verbs_world_serve(&world, NULL, add_small_memory);
    world.remote = verbs_remote(&world, &options);
    play_log_begin();
    assert_int_equal(gpusys_remote_read(world.remote, VERBS_READ_ONLY, 0, world.buffer, 1, verbs_patience),
                     -EDQUOT);
    assert_true(play_log_has("refused: \"read-only\": fake0: registering 8392707 bytes"));
    play_log_end();
    assert_int_equal(gpusys_remote_register(world.remote, world.buffer, 4 * MIB, &error), -ENOMEM);
    assert_true(error.hint[0]);
    check_small(&world, world.buffer, 4096);
    check_small(&world, world.buffer, 60000);
    assert_int_equal(gpusys_remote_register(world.remote, world.buffer, 1370000, &error), 0);
    FAKE(fake_ibverbs_reset)();
    check_small(&world, world.buffer + 2 * MIB, 60000);
    assert_int_equal(FAKE(fake_ibverbs_calls)("ibv_reg_mr"), 2);                  /* they were tried, … */
    assert_true(FAKE(fake_ibverbs_calls)("ibv_post_send") >= 2 * (60000 / 4096)); /* … and then copied */
    check_small(&world, world.buffer, 60000);
    verbs_world_close(&world);
}

int main(int argc, char **argv)
{
    static const char two_ports[] = "device fake0\nport 1\ngid 3 127.0.0.1 roce2 lo\n"
                                    "device fake1\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    static const char forced[] = "pin_forced yes\n"
                                 "device fake0\nport 1\ngid 3 127.0.0.1 roce2 lo\n"
                                 "device fake1\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    static const char small[] = "device fake0\nmax_mr_size 70000\nport 1\ngid 3 127.0.0.1 roce2 lo\n"
                                "device fake1\nmax_mr_size 200000\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    static const char tiny[] =
        "device fake0\nmax_mr_size 8192\nmax_qp_wr 9\nport 1\nmax_msg_sz 5000\ngid 3 127.0.0.1 roce2 lo\n"
        "device fake1\nmax_mr_size 12288\nmax_qp_wr 5\nmax_qp_rd_atom 1\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    static const char smallest[] =
        "device fake0\nmax_mr_size 4096\nmax_qp_wr 4\nport 1\ngid 3 127.0.0.1 roce2 lo\n";
    static const char little[] = "memlock_bytes 2000000\ndevice fake0\nport 1\ngid 3 127.0.0.1 roce2 lo\n";
    const struct CMUnitTest on_two_ports[] = {
        VERBS_TEST(test_unregistered),     VERBS_TEST(test_registered),
        VERBS_TEST(test_half_registered),  VERBS_TEST(test_read_only_source),
        VERBS_TEST(test_no_memory_there),  VERBS_TEST(test_many_at_once),
        VERBS_TEST(test_refused_here),     VERBS_TEST(test_note_comes_last),
        VERBS_TEST(test_arenas),           VERBS_TEST(test_sharing),
        VERBS_TEST(test_keys_go_and_come), VERBS_TEST(test_files),
        VERBS_TEST(test_file_changed),
    };
    const struct CMUnitTest on_forced[] = {VERBS_TEST(test_files_copied), VERBS_TEST(test_one_copy_for_all),
                                           VERBS_TEST(test_too_little_memory_for_a_copy)};
    const struct CMUnitTest on_small[] = {VERBS_TEST(test_pieces)};
    const struct CMUnitTest on_tiny[] = {VERBS_TEST(test_pieces), VERBS_TEST(test_many_at_once)};
    const struct CMUnitTest on_smallest[] = {VERBS_TEST(test_too_many_pieces)};
    const struct CMUnitTest on_little[] = {VERBS_TEST(test_memlock)};
    const struct verbs_group groups[] = {
        {"two ports", two_ports, on_two_ports, COUNT_OF(on_two_ports)},
        {"files cannot be pinned", forced, on_forced, COUNT_OF(on_forced)},
        {"small registrations", small, on_small, COUNT_OF(on_small)},
        {"tiny everything", tiny, on_tiny, COUNT_OF(on_tiny)},
        {"smallest registrations", smallest, on_smallest, COUNT_OF(on_smallest)},
        {"little locked memory", little, on_little, COUNT_OF(on_little)},
    };
    return verbs_groups_run(groups, COUNT_OF(groups), argc > 1 ? argv[1] : NULL);
}
