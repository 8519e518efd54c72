/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Files and directories as they are served, and what becomes of them while they are. */
#include "remote_play.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const int64_t patience = 20000000000;

static void make_directory(const char *name)
{
    assert_int_equal(mkdir(play_path(name), 0755), 0);
}

static void make_file(const char *name, const char *text)
{
    play_file(play_path(name), text, strlen(text));
}

/* ---- scanning ---- */

static void check_names(struct gpusys_peer *peer, const char *const *names, size_t count)
{
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 0);
    uint64_t listed;
    assert_int_equal(gpusys_remote_list(remote, patience, &listed, NULL), 0);
    for (uint32_t i = 0; i < listed && i < count; i++) {
        struct gpusys_region_info info = {.size = sizeof info};
        assert_int_equal(gpusys_remote_region(remote, i, &info), 0);
        assert_string_equal(info.name, names[i]);
    }
    assert_int_equal(listed, count);
    gpusys_remote_close(remote);
}

static void test_nested(void **state)
{
    (void)state;
    static const char *const names[] = {"t",   "t/a",    "t/a/deep", "t/a/deep/er", "t/a/deep/er/file",
                                        "t/b", "t/empty"};
    uint64_t count;
    make_directory("t");
    make_directory("t/a");
    make_directory("t/a/deep");
    make_directory("t/a/deep/er");
    make_directory("t/empty");
    make_file("t/b", "b");
    make_file("t/a/deep/er/file", "deep");
    assert_int_equal(mkfifo(play_path("t/fifo"), 0600), 0);
    struct gpusys_peer *peer = play_peer(NULL);
    play_log_begin();
    assert_int_equal(gpusys_peer_add_path(peer, play_path("t/"), 0, &count, NULL), 0);
    assert_true(play_log_has("\"t/fifo\" is neither a file nor a directory"));
    play_log_end();
    assert_int_equal(count, COUNT_OF(names));
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    check_names(peer, names, COUNT_OF(names));
    gpusys_peer_close(peer);
}

/* Each of these fails as a whole, with the name of what is in the way. */
static void check_refused(const char *path, uint32_t flags, int code, const char *words)
{
    struct gpusys_error error = {0};
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_path(peer, path, flags, NULL, &error), code);
    assert_non_null(strstr(error.message, words));
    assert_int_equal(play_stats(peer).regions, 0);
    gpusys_peer_close(peer);
}

static void test_refused(void **state)
{
    (void)state;
    make_directory("r");
    make_file("r/a", "a");
    make_directory("r/sub");
    assert_int_equal(symlink("../a", play_path("r/sub/link")), 0);
    check_refused(play_path("r"), 0, -ELOOP, "\"r/sub/link\" is a symbolic link (to ../a)");
    check_refused(play_path("nothing"), 0, -ENOENT, "nothing");
    check_refused("/dev/null", 0, -EINVAL, "neither a file nor a directory");
    check_refused("/", 0, -EINVAL, "has no name");
    make_directory("dangling");
    assert_int_equal(symlink("nowhere", play_path("dangling/link")), 0);
    check_refused(play_path("dangling"), GPUSYS_PATH_FOLLOW, -ENOENT, "\"dangling/link\" leads nowhere");
    make_directory("loop");
    make_directory("loop/sub");
    assert_int_equal(symlink("..", play_path("loop/sub/up")), 0);
    check_refused(play_path("loop"), GPUSYS_PATH_FOLLOW, -ELOOP,
                  "\"loop/sub/up\": the link leads back to \"loop\"");
    make_directory("control");
    make_file("control/a\nb", "x");
    check_refused(play_path("control"), 0, -EINVAL, "control byte");
    make_directory("bytes");
    make_file("bytes/a\xff", "x");
    check_refused(play_path("bytes"), 0, -EINVAL, "not UTF-8");
    struct gpusys_peer *peer = play_peer(NULL);
    struct gpusys_error error = {0};
    assert_int_equal(gpusys_peer_add_path(peer, play_path("r/a"), 2, NULL, &error), -EINVAL);
    gpusys_peer_close(peer);
}

/* The same name twice: nothing of the second one is added, and the table is as it was. */
static void test_collision(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    make_directory("c1");
    make_directory("c1/model");
    make_file("c1/model/x", "1");
    make_directory("c2");
    make_directory("c2/model");
    make_file("c2/model/y", "2");
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_path(peer, play_path("c1/model"), 0, NULL, &error), 0);
    assert_int_equal(gpusys_peer_add_path(peer, play_path("c2/model"), 0, NULL, &error), -EEXIST);
    assert_non_null(strstr(error.message, "\"model\""));
    assert_int_equal(play_stats(peer).regions, 2);
    assert_int_equal(gpusys_peer_add_file(peer, "model/y", play_path("c2/model/y"), 0, 0, &error), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "model/x", play_path("c2/model/y"), 0, 0, &error), -EEXIST);
    assert_int_equal(play_stats(peer).regions, 3);
    gpusys_peer_close(peer);
}

static void check_text(struct gpusys_remote *remote, const char *name, const char *text)
{
    char bytes[64] = {0};
    assert_int_equal(gpusys_remote_read(remote, play_find(remote, name), 0, bytes, strlen(text), patience),
                     0);
    assert_string_equal(bytes, text);
}

/* A model cache's snapshot: links to blobs. They are resolved when they are added, and never again. */
static void test_follow(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    make_directory("blobs");
    make_directory("snapshot");
    make_directory("blobs/folder");
    make_file("blobs/1", "first");
    make_file("blobs/2", "second");
    make_file("blobs/folder/3", "third");
    assert_int_equal(symlink("../blobs/1", play_path("snapshot/config")), 0);
    assert_int_equal(symlink("config", play_path("snapshot/chain")), 0);
    assert_int_equal(symlink("../blobs/folder", play_path("snapshot/sub")), 0);
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_path(peer, play_path("snapshot"), GPUSYS_PATH_FOLLOW, NULL, &error), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    static const char *const names[] = {"snapshot", "snapshot/chain", "snapshot/config", "snapshot/sub",
                                        "snapshot/sub/3"};
    check_names(peer, names, COUNT_OF(names));
    assert_int_equal(unlink(play_path("snapshot/config")),
                     0); /* now it leads elsewhere: that is not what was added */
    assert_int_equal(symlink("../blobs/2", play_path("snapshot/config")), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), both_transports[i], 0);
        check_text(remote, "snapshot/config", "first");
        check_text(remote, "snapshot/chain", "first");
        check_text(remote, "snapshot/sub/3", "third");
        gpusys_remote_close(remote);
    }
    gpusys_peer_close(peer);
}

/* ---- files that change while they are served ---- */

enum { FILE_BYTES = 300 * KIB };

struct change {
    const char *name;
    void (*make)(const char *path);
};

static void do_truncate(const char *path)
{
    assert_int_equal(truncate(path, 100), 0);
}

static void do_grow(const char *path)
{
    assert_int_equal(truncate(path, FILE_BYTES + 1), 0);
}

static void do_rewrite(const char *path)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "changed", 7, 1000), 7);
    assert_int_equal(futimens(fd, times), 0); /* the clock's step may be coarser than this test is fast */
    close(fd);
}

static void do_replace(const char *path)
{
    unsigned char *bytes = calloc(1, FILE_BYTES);
    play_file(play_path("new"), bytes, FILE_BYTES);
    free(bytes);
    assert_int_equal(rename(play_path("new"), path), 0);
}

static void do_delete(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static void do_link(const char *path)
{
    assert_int_equal(rename(path, play_path("aside")), 0);
    assert_int_equal(symlink(play_path("aside"), path), 0); /* even to the very same file */
}

static void do_folder(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0);
}

static void do_fifo(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static const struct change changes[] = {
    {"truncate", do_truncate}, {"grow", do_grow}, {"rewrite", do_rewrite}, {"replace", do_replace},
    {"delete", do_delete},     {"link", do_link}, {"folder", do_folder},   {"fifo", do_fifo},
};

/* Opened first: the peer (or the shm client) has the old file in its hands, and what lies at the path does not matter to
 * it unless the file itself is another. Not opened: whatever is not the file that was added is refused. */
static void check_change(const struct change *change, uint32_t transport, bool opened)
{
    unsigned char *bytes = malloc(FILE_BYTES);
    char path[512];
    uint8_t hash[1][GPUSYS_HASH_BYTES];
    play_noise(bytes, FILE_BYTES, 4);
    snprintf(path, sizeof path, "%s", play_path("served/file"));
    play_file(path, bytes, FILE_BYTES);
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_path(peer, play_path("served"), 0, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), transport, 0);
    uint32_t region = play_find(remote, "served/file");
    if (opened)
        assert_int_equal(gpusys_remote_read(remote, region, 0, bytes, FILE_BYTES, patience), 0);
    change->make(path);
    bool same_file =
        opened && (change->make == do_replace || change->make == do_delete || change->make == do_link ||
                   change->make == do_folder || change->make == do_fifo);
    int small = gpusys_remote_read(remote, region, 50, bytes, 10, patience);
    int large = gpusys_remote_read(remote, region, 0, bytes, FILE_BYTES, patience);
    int sums = gpusys_remote_checksums(remote, region, 0, 1, hash, patience, NULL);
    if (!same_file || small != 0) /* the old file, whole, or a refusal: never a mixture */
        assert_int_equal(small, -ESTALE);
    if (!same_file || large != 0)
        assert_int_equal(large, -ESTALE);
    if (!same_file || sums != 0)
        assert_int_equal(sums, -ESTALE);
    if (large == 0) {
        unsigned char *truth = malloc(FILE_BYTES);
        play_noise(truth, FILE_BYTES, 4);
        assert_memory_equal(bytes, truth, FILE_BYTES);
        free(truth);
    }
    assert_int_equal(gpusys_remote_ping(remote, patience), 0);
    check_text(remote, "served/other", "other");
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
    assert_int_equal(remove(path) == 0 || errno == ENOENT, 1);
    free(bytes);
}

static void test_changes(void **state)
{
    (void)state;
    make_directory("served");
    make_file("served/other", "other");
    for (size_t i = 0; i < COUNT_OF(changes); i++)
        for (size_t k = 0; k < COUNT_OF(both_transports); k++)
            for (int opened = 0; opened < 2; opened++)
                check_change(&changes[i], both_transports[k], opened);
}

/* A directory on the way becomes a link to a place with a file of the same name. */
static void test_planted_directory(void **state)
{
    (void)state;
    char byte;
    make_directory("root");
    make_directory("root/sub");
    make_directory("elsewhere");
    make_file("root/sub/file", "inside");
    make_file("elsewhere/file", "secret");
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_path(peer, play_path("root"), 0, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    assert_int_equal(rename(play_path("root/sub"), play_path("root/gone")), 0);
    assert_int_equal(symlink(play_path("elsewhere"), play_path("root/sub")), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), both_transports[i], 0);
        assert_int_equal(
            gpusys_remote_read(remote, play_find(remote, "root/sub/file"), 0, &byte, 1, patience), -ESTALE);
        gpusys_remote_close(remote);
    }
    gpusys_peer_close(peer);
}

/* ---- many and cold ---- */

/* More files than descriptors, added as a tree and one by one. */
static void test_more_than_descriptors(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    struct rlimit old, low;
    char name[64], text[64];
    struct gpusys_error error = {0};
    make_directory("many");
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        snprintf(text, sizeof text, "this is file %d", i);
        make_file(name, text);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 80;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct gpusys_peer_options options = {.size = sizeof options, .threads = 1};
    struct gpusys_peer *peer = play_peer(&options);
    assert_int_equal(gpusys_peer_add_path(peer, play_path("many"), 0, NULL, &error), 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        snprintf(text, sizeof text, "single/%d", i);
        assert_int_equal(gpusys_peer_add_file(peer, text, play_path(name), 0, 0, &error), 0);
    }
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 2);
    assert_int_equal(gpusys_remote_list(remote, patience, NULL, NULL), 0);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < COUNT; i++) {
            char bytes[64] = {0};
            uint32_t region = 0;
            snprintf(name, sizeof name, round ? "single/%d" : "many/%d", i);
            snprintf(text, sizeof text, "this is file %d", i);
            assert_int_equal(gpusys_remote_find(remote, name, &region), 0);
            assert_int_equal(gpusys_remote_read(remote, region, 0, bytes, strlen(text), patience), 0);
            assert_string_equal(bytes, text);
        }
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* Pages that are not in the cache come from the pool; the bytes are the same. */
static void test_cold(void **state)
{
    (void)state;
    enum { COLD_BYTES = 20 * MIB };
    unsigned char *truth = malloc(COLD_BYTES), *bytes = malloc(COLD_BYTES);
    play_noise(truth, COLD_BYTES, 9);
    play_file(play_path("cold"), truth, COLD_BYTES);
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_file(peer, "cold", play_path("cold"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), both_transports[i], 2);
        uint32_t region = play_find(remote, "cold");
        for (int round = 0; round < 3; round++) {
            uint64_t step = round == 0 ? COLD_BYTES : round == 1 ? 700001 : 4096;
            int fd = open(play_path("cold"), O_RDONLY | O_CLOEXEC);
            assert_int_equal(fsync(fd), 0);
            assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
            close(fd);
            memset(bytes, 0, COLD_BYTES);
            for (uint64_t at = 0; at + step <= COLD_BYTES; at += step * (round == 2 ? 57 : 1)) {
                assert_int_equal(gpusys_remote_read(remote, region, at, bytes + at, step, patience), 0);
                assert_memory_equal(bytes + at, truth + at, step);
            }
        }
        gpusys_remote_close(remote);
    }
    gpusys_peer_close(peer);
    free(truth);
    free(bytes);
}

/* A file's checksums are those of its bytes; memory's are computed each time. */
static void test_checksums(void **state)
{
    (void)state;
    enum { TOTAL = 2 * 16 * MIB + 5, CHUNKS = 3 };
    unsigned char *bytes = malloc(TOTAL);
    uint8_t wanted[CHUNKS][GPUSYS_HASH_BYTES], hashes[CHUNKS][GPUSYS_HASH_BYTES];
    void *address;
    play_noise(bytes, 4096, 3);
    for (size_t at = 4096; at < TOTAL; at += 4096)
        memcpy(bytes + at, bytes, TOTAL - at < 4096 ? TOTAL - at : 4096);
    memcpy(bytes + 20 * MIB, "different", 9);
    for (size_t i = 0; i < CHUNKS; i++)
        gpusys_hash(bytes + i * GPUSYS_CHUNK_BYTES, i < 2 ? GPUSYS_CHUNK_BYTES : 5, wanted[i]);
    play_file(play_path("sums"), bytes, TOTAL);
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_file(peer, "file", play_path("sums"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_add_memory(peer, "memory", TOTAL, 3, &address, NULL), 0);
    memcpy(address, bytes, TOTAL);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), both_transports[i], 0);
        struct gpusys_error error = {0};
        for (uint32_t region = 0; region < 2; region++) {
            uint32_t number = play_find(remote, region ? "memory" : "file");
            memset(hashes, 0, sizeof hashes);
            assert_int_equal(gpusys_remote_checksums(remote, number, 0, CHUNKS, hashes, patience, &error), 0);
            assert_memory_equal(hashes, wanted, sizeof wanted);
            memset(hashes, 0, sizeof hashes);
            assert_int_equal(gpusys_remote_checksums_ask(remote, number, 1, 2), 0);
            assert_int_equal(gpusys_remote_checksums(remote, number, 1, 2, hashes, patience, &error), 0);
            assert_memory_equal(hashes, wanted[1], 32);
            assert_int_equal(gpusys_remote_checksums(remote, number, 3, 1, hashes, patience, &error),
                             -ERANGE);
            assert_int_equal(gpusys_remote_checksums(remote, number, UINT64_MAX, 2, hashes, patience, &error),
                             -ERANGE);
            assert_int_equal(gpusys_remote_checksums(remote, 77, 0, 1, hashes, patience, &error), -ENOENT);
        }
        uint64_t one = 1;
        assert_int_equal(gpusys_remote_write(remote, play_find(remote, "memory"), 0, &one, 8, patience), 0);
        assert_int_equal(
            gpusys_remote_checksums(remote, play_find(remote, "memory"), 0, 1, hashes, patience, NULL), 0);
        assert_memory_not_equal(hashes[0], wanted[0], 16);
        assert_int_equal(gpusys_remote_write(remote, play_find(remote, "memory"), 0, bytes, 8, patience), 0);
        gpusys_remote_close(remote);
    }
    gpusys_peer_close(peer);
    free(bytes);
}

/* Ten thousand regions: the table comes in pages and keeps its order. */
static void test_ten_thousand(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    char name[64];
    struct gpusys_peer *peer = play_peer(NULL);
    make_file("one", "1");
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "a/rather/long/name/for/a/region/%d", i);
        assert_int_equal(gpusys_peer_add_file(peer, name, play_path("one"), 0, 0, NULL), 0);
    }
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 0);
    uint64_t count = 0;
    int64_t best = INT64_MAX;
    for (int round = 0; round < 5; round++) {
        int64_t start = gpusys_now_ns();
        assert_int_equal(gpusys_remote_list(remote, patience, &count, NULL), 0);
        int64_t taken = gpusys_now_ns() - start;
        best = taken < best ? taken : best;
    }
    assert_int_equal(count, COUNT);
    assert_true(best < 250000000);
    for (int i = 0; i < COUNT; i += 37) {
        struct gpusys_region_info info = {.size = sizeof info};
        snprintf(name, sizeof name, "a/rather/long/name/for/a/region/%d", i);
        assert_int_equal(gpusys_remote_region(remote, (uint32_t)i, &info), 0);
        assert_string_equal(info.name, name);
    }
    check_text(remote, "a/rather/long/name/for/a/region/9999", "1");
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_collision), cmocka_unit_test(test_follow),
        cmocka_unit_test(test_changes),   cmocka_unit_test(test_planted_directory),
        cmocka_unit_test(test_cold),      cmocka_unit_test(test_more_than_descriptors),
        cmocka_unit_test(test_checksums), cmocka_unit_test(test_ten_thousand),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
