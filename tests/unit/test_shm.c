/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is passed between processes: seals, read-only descriptors, peers that pass something else, and arenas. */
#include "remote_play.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const int64_t patience = 20000000000;

static int fd_of(struct gpusys_remote *remote, const char *name)
{
    int fd = -1;
    assert_int_equal(gpusys_remote_fd_of(remote, play_find(remote, name), patience, &fd, NULL), 0);
    assert_true(fd >= 0);
    return fd;
}

/* ---- descriptors ---- */

enum { LONG_BYTES = 5 * MIB };

static void check_sealed(int fd, bool writable, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(!!(seals & F_SEAL_FUTURE_WRITE), !writable);
    assert_true(ftruncate(fd, 0) < 0);
    assert_true(ftruncate(fd, (off_t)bytes * 4 + 8 * MIB) < 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

/* A client of a read-only grant has no way to change it. */
static void check_unwritable(int fd, uint64_t bytes)
{
    char self[64];
    assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_true(pwrite(fd, "x", 1, 0) < 0);
    assert_true(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_true(mprotect(map, bytes, PROT_READ | PROT_WRITE) < 0);
    munmap(map, bytes);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int again = open(self, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
        assert_true(ftruncate(again, 0) < 0);
        close(again);
    }
}

static void test_seals(void **state)
{
    (void)state;
    struct gpusys_peer *peer = play_peer(NULL);
    unsigned char *whole = malloc(LONG_BYTES);
    play_noise(whole, LONG_BYTES, 1);
    play_file(play_path("whole"), whole, LONG_BYTES);
    void *address;
    assert_int_equal(gpusys_peer_add_memory(peer, "small", 4096, 1, &address, NULL), 0);
    memset(address, 7, 4096);
    assert_int_equal(gpusys_peer_add_memory(peer, "long", LONG_BYTES, 1, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_add_memory(peer, "ours", 4096, 3, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "part", play_path("whole"), 10, 100, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "whole", play_path("whole"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_SHM, 0);
    check_sealed(fd_of(remote, "small"), false, 4096);
    check_unwritable(fd_of(remote, "small"), 4096);
    check_sealed(fd_of(remote, "long"), false, LONG_BYTES);
    check_unwritable(fd_of(remote, "long"), 2 * MIB);
    check_sealed(fd_of(remote, "ours"), true, 4096);
    check_sealed(fd_of(remote, "part"), false, 100);
    check_unwritable(fd_of(remote, "part"), 100);
    int fd = fd_of(remote, "whole"); /* the file itself, for reading */
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_true(write(fd, "x", 1) < 0);
    assert_true(ftruncate(fd, 0) < 0);
    assert_int_equal(gpusys_remote_ping(remote, patience), 0); /* counted when it has been passed */
    assert_int_equal(play_stats(peer).maps_total, 5);
    /* A part of a file shows nothing of the rest. */
    unsigned char bytes[200];
    assert_int_equal(pread(fd_of(remote, "part"), bytes, 100, 0), 100);
    assert_memory_equal(bytes, whole + 10, 100);
    ssize_t more = pread(fd_of(remote, "part"), bytes, 200, 100);
    for (ssize_t i = 0; i < more; i++)
        assert_int_equal(bytes[i], 0);
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
    free(whole);
}

static void test_map_and_release(void **state)
{
    (void)state;
    struct gpusys_peer *peer = play_peer(NULL);
    struct gpusys_error error = {0};
    unsigned char *ours, *map = NULL, byte = 0;
    int fd, again;
    void *address;
    assert_int_equal(gpusys_peer_add_memory(peer, "memory", LONG_BYTES, 3, &address, NULL), 0);
    ours = address;
    play_file(play_path("file"), "0123456789", 10);
    play_file(play_path("empty"), "", 0);
    assert_int_equal(gpusys_peer_add_file(peer, "file", play_path("file"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "empty", play_path("empty"), 0, 0, NULL), 0);
    mkdir(play_path("folder"), 0755);
    assert_int_equal(gpusys_peer_add_path(peer, play_path("folder"), 0, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_SHM, 0);
    uint32_t region = play_find(remote, "memory");
    assert_int_equal(gpusys_remote_map(remote, region, patience, &address, NULL), 0);
    map = address;
    ours[LONG_BYTES - 1] = 9;
    assert_int_equal(map[LONG_BYTES - 1], 9);
    map[0] = 8;
    assert_int_equal(ours[0], 8);
    fd = fd_of(remote, "memory");
    gpusys_remote_release(remote, region);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(gpusys_remote_read(remote, region, 0, &byte, 1, patience),
                     0); /* it comes back by itself */
    assert_int_equal(byte, 8);
    gpusys_remote_release(remote, 12345);
    assert_int_equal(gpusys_remote_map(remote, play_find(remote, "file"), patience, &address, &error),
                     -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "may shrink"));
    assert_true(fd_of(remote, "empty") >= 0);
    assert_int_equal(gpusys_remote_fd_of(remote, play_find(remote, "folder"), patience, &fd, &error),
                     -ENOENT);
    assert_int_equal(gpusys_remote_fd_of(remote, 99, patience, &fd, &error), -ENOENT);
    gpusys_remote_close(remote);
    remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 0);
    region = play_find(remote, "memory");
    assert_int_equal(gpusys_remote_fd_of(remote, region, patience, &again, &error), -EOPNOTSUPP);
    assert_int_equal(gpusys_remote_map(remote, region, patience, &address, &error), -EOPNOTSUPP);
    gpusys_remote_release(remote, region);
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
}

/* A file that shrinks or changes under a client that holds its descriptor: an error, not a SIGBUS. */
static void test_file_changes(void **state)
{
    (void)state;
    unsigned char *bytes = malloc(MIB);
    memset(bytes, 5, MIB);
    struct gpusys_peer *peer = play_peer(NULL);
    play_file(play_path("shrinks"), bytes, MIB);
    play_file(play_path("grows"), bytes, MIB);
    play_file(play_path("early"), bytes, MIB);
    assert_int_equal(gpusys_peer_add_file(peer, "shrinks", play_path("shrinks"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "grows", play_path("grows"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "early", play_path("early"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_SHM, 0);
    uint32_t shrinks = play_find(remote, "shrinks"), grows = play_find(remote, "grows"),
             early = play_find(remote, "early");
    assert_int_equal(gpusys_remote_read(remote, shrinks, 0, bytes, MIB, patience), 0);
    assert_int_equal(gpusys_remote_read(remote, grows, 0, bytes, MIB, patience), 0);
    assert_int_equal(truncate(play_path("shrinks"), 4096), 0);
    assert_int_equal(truncate(play_path("grows"), MIB + 1), 0);
    assert_int_equal(truncate(play_path("early"), 0), 0); /* before it was ever asked for */
    assert_int_equal(gpusys_remote_read(remote, shrinks, 0, bytes, 10, patience), -ESTALE);
    assert_int_equal(gpusys_remote_read(remote, shrinks, 4000, bytes, 1000, patience), -ESTALE);
    assert_int_equal(gpusys_remote_read(remote, shrinks, MIB - 1, bytes, 1, patience), -ESTALE);
    assert_int_equal(gpusys_remote_read(remote, grows, 0, bytes, 10, patience), -ESTALE);
    assert_int_equal(gpusys_remote_read(remote, early, 0, bytes, 10, patience), -ESTALE);
    assert_int_equal(gpusys_remote_ping(remote, patience), 0);
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
    free(bytes);
}

/* ---- a peer that passes something else ---- */

struct scene {
    struct play_mock mock;
    pthread_t thread;
    int passed; /* the descriptor; -1: none */
    uint64_t length;
    uint8_t huge;
};

static void pass(int socket, struct gs_bytes *bytes, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = bytes->data, .iov_len = gs_bytes_queued(bytes)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    PLAY_CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)iov.iov_len);
    gs_bytes_free(bytes);
}

static void *scene_main(void *argument)
{
    struct scene *scene = argument;
    struct play_mock *mock = &scene->mock;
    struct gs_bytes out = {0};
    play_mock_control(mock, NULL);
    int rail = play_mock_rail(mock, mock->shm_listener, NULL);
    play_mock_ready(mock);
    play_mock_table(mock, 3, GPUSYS_PLACE_MEMORY, 3 * MIB);
    PLAY_CHECK(play_mock_frame(mock, rail) == 0 && mock->frame.type == GS_MAP);
    struct gs_mapped mapped = {.length = scene->length, .huge = scene->huge};
    gs_mapped_encode(&out, mock->frame.serial, &mapped);
    pass(rail, &out, scene->passed);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == -ECONNRESET);
    close(rail);
    return NULL;
}

static void check_passed(int fd, uint64_t length, uint8_t huge, int expected)
{
    struct scene scene = {.passed = fd, .length = length, .huge = huge};
    char byte;
    play_mock_open(&scene.mock);
    assert_int_equal(pthread_create(&scene.thread, NULL, scene_main, &scene), 0);
    struct gpusys_remote *remote = play_mock_remote(&scene.mock, GPUSYS_TRANSPORT_SHM, 0);
    assert_int_equal(gpusys_remote_read(remote, 0, 2 * MIB, &byte, 1, patience), expected);
    gpusys_remote_close(remote);
    pthread_join(scene.thread, NULL);
    play_mock_close(&scene.mock);
    if (fd >= 0)
        close(fd);
}

static int memory_of(uint64_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void test_passed_things(void **state)
{
    (void)state;
    int ends[2];
    check_passed(memory_of(3 * MIB, F_SEAL_SHRINK), 3 * MIB, 0, 0);
    check_passed(memory_of(3 * MIB, 0), 3 * MIB, 0, -EPROTO); /* it could shrink under our loads */
    check_passed(memory_of(3 * MIB, F_SEAL_GROW), 3 * MIB, 0, -EPROTO);
    check_passed(memory_of(MIB, F_SEAL_SHRINK), 3 * MIB, 0, -EPROTO);     /* shorter than it says */
    check_passed(memory_of(3 * MIB, F_SEAL_SHRINK), 2 * MIB, 0, -EPROTO); /* another length than listed */
    check_passed(memory_of(3 * MIB, F_SEAL_SHRINK), 3 * MIB, 1,
                 -EPROTO); /* huge pages that are none: 4 MiB */
    check_passed(-1, 3 * MIB, 0, -EPROTO);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    check_passed(ends[0], 3 * MIB, 0, -EPROTO);
    close(ends[1]);
    check_passed(open("/dev/zero", O_RDWR | O_CLOEXEC), 3 * MIB, 0, -EPROTO);
}

/* ---- arenas ---- */

static void check_arenas(struct gpusys_peer *peer, uint32_t transport)
{
    struct gpusys_error error = {0};
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), transport, 0),
                         *other = play_remote(gpusys_peer_address(peer), transport, 0);
    uint32_t a, b, c = 0;
    unsigned char *bytes = malloc(6 * MIB), *seen = malloc(6 * MIB);
    play_noise(bytes, 6 * MIB, 11);
    assert_int_equal(gpusys_remote_arena_new(remote, 0, patience, &a, &error), -ERANGE);
    assert_int_equal(gpusys_remote_arena_new(remote, 6 * MIB, patience, &a, &error), 0);
    assert_int_equal(gpusys_remote_arena_new(other, 2 * MIB, patience, &b, &error), 0);
    assert_int_equal(gpusys_remote_arena_new(remote, 1, patience, &c, &error), -EDQUOT); /* 8 MiB in all */
    assert_non_null(strstr(error.message, "8388608"));
    assert_int_equal(play_stats(peer).arenas, 2);
    assert_int_equal(play_stats(peer).arena_bytes, 8 * MIB);
    struct gpusys_region_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_region(remote, a, &info), 0);
    assert_int_equal(info.kind, GPUSYS_REGION_ARENA);
    assert_int_equal(info.length, 6 * MIB);
    assert_int_equal(info.access, 3);
    assert_int_equal(gpusys_remote_read(remote, a, 0, seen, 6 * MIB, patience), 0);
    for (size_t i = 0; i < 6 * MIB; i++)
        assert_int_equal(seen[i], 0);
    assert_int_equal(gpusys_remote_write(remote, a, 0, bytes, 6 * MIB, patience), 0);
    assert_int_equal(gpusys_remote_read(remote, a, 0, seen, 6 * MIB, patience), 0);
    assert_memory_equal(seen, bytes, 6 * MIB);
    assert_int_equal(gpusys_remote_read(remote, a, 6 * MIB, seen, 1, patience), -ERANGE);
    assert_int_equal(gpusys_remote_read(other, b, 0, seen, 2 * MIB, patience),
                     0); /* its own: nothing of the first one */
    for (size_t i = 0; i < 2 * MIB; i++)
        assert_int_equal(seen[i], 0);
    /* Freed and had again: zeroed, and the old number means the new one or nothing. */
    assert_int_equal(gpusys_remote_arena_free(remote, a, patience, &error), 0);
    assert_int_equal(gpusys_remote_arena_free(remote, a, patience, &error), -ENOENT);
    assert_int_equal(gpusys_remote_read(remote, a, 0, seen, 1, patience), -ENOENT);
    assert_int_equal(gpusys_remote_arena_free(remote, 0, patience, &error), -ENOENT);
    assert_int_equal(play_stats(peer).arena_bytes, 2 * MIB);
    assert_int_equal(gpusys_remote_arena_new(remote, 3 * MIB, patience, &a, &error), 0);
    assert_int_equal(gpusys_remote_arena_new(remote, 3 * MIB, patience, &c, &error), 0);
    assert_int_not_equal(a, c);
    assert_int_equal(gpusys_remote_read(remote, a, 0, seen, 3 * MIB, patience), 0);
    for (size_t i = 0; i < 3 * MIB; i++)
        assert_int_equal(seen[i], 0);
    gpusys_remote_close(remote);
    gpusys_remote_close(other);
    free(bytes);
    free(seen);
}

static bool arenas_gone(void *peer)
{
    struct gpusys_peer_stats stats = play_stats(peer);
    return stats.arenas == 0 && stats.arena_bytes == 0 && stats.clients == 0;
}

static void test_arenas(void **state)
{
    (void)state;
    struct gpusys_peer_options options = {.size = sizeof options, .arena_bytes = 8 * MIB};
    struct gpusys_peer *peer = play_peer(&options);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        check_arenas(peer, both_transports[i]);
        assert_true(play_until(arenas_gone, peer));
    }
    gpusys_peer_close(peer);
}

static void test_no_arenas(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    uint32_t region;
    struct gpusys_peer *peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_SHM, 0);
    assert_int_equal(gpusys_remote_arena_new(remote, 1, patience, &region, &error), -EDQUOT);
    assert_non_null(strstr(error.message, "gives no arenas"));
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
}

/* A client may have 64, and one that is killed leaves nothing behind. */
static void test_client_killed(void **state)
{
    (void)state;
    struct gpusys_peer_options options = {.size = sizeof options, .arena_bytes = 64 * MIB};
    struct gpusys_peer *peer = play_peer(&options);
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) { /* before the peer has threads */
        uint32_t region;
        close(ready[0]);
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 2);
        for (int i = 0; i < 64; i++)
            PLAY_CHECK(gpusys_remote_arena_new(remote, 4096, patience, &region, NULL) == 0);
        PLAY_CHECK(gpusys_remote_arena_new(remote, 4096, patience, &region, NULL) == -EDQUOT);
        PLAY_CHECK(write(ready[1], "r", 1) == 1);
        for (;;)
            pause();
    }
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    assert_int_equal(play_receive(ready[0], &byte, 1), 0);
    assert_int_equal(play_stats(peer).arenas, 64);
    assert_int_equal(play_stats(peer).clients, 1);
    struct play_child child = {.pid = pid, .pipe = ready[1]};
    int64_t start = gpusys_now_ns();
    play_child_stop(&child);
    assert_true(play_until(arenas_gone, peer));
    assert_true(gpusys_now_ns() - start < 5 * play_second);
    close(ready[0]);
    gpusys_peer_close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_killed),   cmocka_unit_test(test_seals),
        cmocka_unit_test(test_map_and_release), cmocka_unit_test(test_file_changes),
        cmocka_unit_test(test_passed_things),   cmocka_unit_test(test_arenas),
        cmocka_unit_test(test_no_arenas),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
