/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A file whose disk does not answer stalls whoever reads it and nobody else. Linked with --wrap for the calls (as they are named with 64-bit offsets) by which
 * the peer asks whether pages are cached and reads those that are not. */
#include "remote_play.h"

#include <gpusys/log.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
ssize_t __real_preadv64v2(int fd, const struct iovec *iov, int n_iov, off_t offset, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *iov, int n_iov, off_t offset, int flags);
ssize_t __real_pread64(int fd, void *buffer, size_t size, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t size, off_t offset);
int __real_fstatfs64(int fd, struct statfs *status);
int __wrap_fstatfs64(int fd, struct statfs *status);

/* The file with the slow disk; while `frozen`, reads of it wait. */
static atomic_ulong slow_inode;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool frozen;
static unsigned waiting;

static bool is_slow(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_ino == atomic_load(&slow_inode);
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    enum { CACHESTAT = 451 };
    if (number != CACHESTAT)
        return __real_syscall(number, a, b, c, d, e, f);
    errno = ENOSYS; /* an older kernel: then it is preadv2 that says */
    return -1;
}

ssize_t __wrap_preadv64v2(int fd, const struct iovec *iov, int n_iov, off_t offset, int flags)
{
    if ((flags & RWF_NOWAIT) && is_slow(fd)) {
        errno = EAGAIN;
        return -1;
    }
    return __real_preadv64v2(fd, iov, n_iov, offset, flags);
}

ssize_t __wrap_pread64(int fd, void *buffer, size_t size, off_t offset)
{
    if (is_slow(fd)) {
        pthread_mutex_lock(&lock);
        waiting++;
        pthread_cond_broadcast(&changed);
        while (frozen)
            pthread_cond_wait(&changed, &lock);
        waiting--;
        pthread_mutex_unlock(&lock);
    }
    return __real_pread64(fd, buffer, size, offset);
}

/* Wherever the test's files lie, they are on a disk. */
int __wrap_fstatfs64(int fd, struct statfs *status)
{
    int result = __real_fstatfs64(fd, status);
    status->f_type = 0xef53;
    return result;
}

static void freeze(bool freeze_it)
{
    pthread_mutex_lock(&lock);
    frozen = freeze_it;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void await_waiting(unsigned count)
{
    pthread_mutex_lock(&lock);
    while (waiting < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static const int64_t patience = 20000000000;

enum { FILE_BYTES = 6 * MIB };

static void test_stalled_file(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {100, 32 * KIB, FILE_BYTES};
    unsigned char *slow = malloc(FILE_BYTES), *fast = malloc(FILE_BYTES), *seen = malloc(FILE_BYTES),
                  *other = malloc(FILE_BYTES);
    struct stat status;
    play_noise(slow, FILE_BYTES, 1);
    play_noise(fast, FILE_BYTES, 2);
    play_file(play_path("slow"), slow, FILE_BYTES);
    play_file(play_path("fast"), fast, FILE_BYTES);
    assert_int_equal(stat(play_path("slow"), &status), 0);
    atomic_store(&slow_inode, status.st_ino);
    struct gpusys_peer_options options = {.size = sizeof options,
                                          .threads = 1}; /* both clients with the same worker */
    struct gpusys_peer *peer = play_peer(&options);
    assert_int_equal(gpusys_peer_add_file(peer, "slow", play_path("slow"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "fast", play_path("fast"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *stalled = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 0);
    struct gpusys_remote *lively = play_remote(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 0);
    assert_int_equal(gpusys_remote_list(stalled, patience, NULL, NULL), 0);
    assert_int_equal(gpusys_remote_list(lively, patience, NULL, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct gpusys_completion completion;
        struct gpusys_io io = {.region = 0, .buffer = seen, .length = lengths[i]};
        memset(seen, 0, FILE_BYTES);
        freeze(true);
        assert_int_equal(gpusys_remote_submit(stalled, &io, 1, NULL, NULL), 0);
        await_waiting(1);
        assert_int_equal(gpusys_remote_read(lively, 1, 0, other, lengths[i], patience), 0);
        assert_memory_equal(other, fast, lengths[i]);
        assert_int_equal(gpusys_remote_ping(lively, patience), 0);
        assert_int_equal(gpusys_remote_ping(stalled, patience), 0); /* even its own session answers */
        assert_int_equal(gpusys_remote_poll(stalled, &completion, 1), 0);
        freeze(false);
        assert_int_equal(gpusys_remote_wait(stalled, &completion, 1, patience), 1);
        assert_int_equal(completion.status, 0);
        assert_memory_equal(seen, slow, lengths[i]);
    }
    /* Gone while the pool still reads for it. */
    struct gpusys_io io = {.region = 0, .buffer = seen, .length = FILE_BYTES};
    freeze(true);
    assert_int_equal(gpusys_remote_submit(stalled, &io, 1, NULL, NULL), 0);
    await_waiting(1);
    gpusys_remote_close(stalled);
    assert_int_equal(gpusys_remote_read(lively, 1, 0, other, FILE_BYTES, patience), 0);
    freeze(false);
    assert_int_equal(gpusys_remote_ping(lively, patience), 0);
    gpusys_remote_close(lively);
    gpusys_peer_close(peer);
    free(slow);
    free(fast);
    free(seen);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stalled_file)};
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
