/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Streams: exact reads, whole writes, deadlines, and nothing lost in between. */
#include "support/script_stream.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t seconds(int64_t count)
{
    return gpusys_deadline_after(count * 1000000000);
}

struct pair {
    struct gpusys_stream *stream;
    int peer;
};

static struct pair open_pair(void)
{
    int ends[2];
    struct pair pair;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(gpusys_stream_open_fd(&pair.stream, ends[0], NULL), 0);
    pair.peer = ends[1];
    return pair;
}

static void close_pair(struct pair pair)
{
    gpusys_stream_close(pair.stream);
    close(pair.peer);
}

static void nothing_behind_a_message_is_lost(void **state)
{
    (void)state;
    struct pair pair = open_pair();
    char got[16] = "";
    size_t count;
    assert_int_equal(write(pair.peer, "headbodyrest", 12), 12);
    assert_int_equal(gpusys_stream_buffered(pair.stream), 0);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, 0, &count), 0);
    assert_int_equal(count, 4);
    assert_memory_equal(got, "head", 4);
    assert_int_equal(gpusys_stream_buffered(pair.stream), 8);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, 0, NULL), 0);
    assert_memory_equal(got, "body", 4);
    assert_int_equal(gpusys_stream_read_some(pair.stream, got, sizeof got, 0, &count), 0);
    assert_int_equal(count, 4);
    assert_memory_equal(got, "rest", 4);
    assert_int_equal(gpusys_stream_buffered(pair.stream), 0);
    assert_int_equal(write(pair.peer, "12", 2), 2);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 1, 0, NULL), 0); /* one stays in the buffer … */
    assert_int_equal(write(pair.peer, "345", 3), 3);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, 0, NULL), 0); /* … and comes before the new */
    assert_memory_equal(got, "2345", 4);
    close_pair(pair);
}

static void truncation_counts_exactly_at_every_length(void **state)
{
    (void)state;
    enum { SIZE = 24 };
    unsigned char sent[SIZE], got[SIZE];
    for (size_t i = 0; i < SIZE; i++)
        sent[i] = (unsigned char)(i * 7 + 1);
    for (size_t length = 0; length <= SIZE; length++)
        for (int drip = 0; drip < 2; drip++) {
            struct script_step steps[] = {SCRIPT_GIVE(sent, length), SCRIPT_END()};
            steps[0].kind = drip ? SCRIPT_STEP_DRIP : SCRIPT_STEP_GIVE;
            struct script *script = script_new(steps, 2);
            struct gpusys_stream *stream = script_open(script);
            size_t count = 99;
            int expected = length == SIZE ? 0 : length ? -EPIPE : -ECONNRESET;
            assert_int_equal(gpusys_stream_read(stream, got, SIZE, seconds(10), &count), expected);
            assert_int_equal(count, length);
            assert_memory_equal(got, sent, length);
            assert_int_equal(gpusys_stream_read_some(stream, got, SIZE, 0, &count), 0);
            assert_int_equal(count, 0); /* the end stays the end */
            gpusys_stream_close(stream);
            script_free(script);
        }
}

static void a_reset_reads_as_an_end_does(void **state)
{
    (void)state;
    static const struct script_step steps[] = {SCRIPT_GIVE("ab", 2), SCRIPT_FAIL(-ECONNRESET)};
    char got[4];
    size_t count;
    for (size_t from = 0; from < 2; from++) {
        struct script *script = script_new(steps + from, 2 - from);
        struct gpusys_stream *stream = script_open(script);
        assert_int_equal(gpusys_stream_read(stream, got, 4, 0, &count), from ? -ECONNRESET : -EPIPE);
        assert_int_equal(count, from ? 0 : 2);
        gpusys_stream_close(stream);
        script_free(script);
    }
    struct pair pair = open_pair(); /* closing with bytes unread resets a Unix socket */
    assert_int_equal(gpusys_stream_write(pair.stream, "x", 1, 0, NULL), 0);
    close(pair.peer);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 1, seconds(10), NULL), -ECONNRESET);
    assert_int_equal(gpusys_stream_write(pair.stream, "x", 1, 0, &count), -EPIPE); /* and no SIGPIPE */
    assert_int_equal(count, 0);
    gpusys_stream_close(pair.stream);
}

static void no_time_is_eagain_and_too_little_is_etimedout(void **state)
{
    (void)state;
    struct pair pair = open_pair();
    char got[4];
    size_t count = 99;
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, 0, &count), -EAGAIN);
    assert_int_equal(count, 0);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, gpusys_now_ns() - 1, NULL), -EAGAIN);
    assert_int_equal(gpusys_stream_read_some(pair.stream, got, 4, 0, &count), -EAGAIN);
    int64_t deadline = gpusys_deadline_after(5000000);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, deadline, &count), -ETIMEDOUT);
    assert_true(gpusys_now_ns() >= deadline);
    assert_int_equal(write(pair.peer, "abc", 3), 3);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, 0, &count), -EAGAIN);
    assert_int_equal(count, 3); /* what came is the caller's */
    assert_int_equal(gpusys_stream_buffered(pair.stream), 0);
    assert_int_equal(write(pair.peer, "abcd", 4), 4);
    assert_int_equal(gpusys_stream_read(pair.stream, got, 4, 0, NULL), 0); /* there is no need to wait */
    assert_int_equal(gpusys_stream_read(pair.stream, got, 0, 0, &count), 0);
    close_pair(pair);
}

/* A peer that moves bytes through a tiny socket buffer, and one that sends signals all the while. */

struct mover {
    int fd;
    unsigned char *bytes;
    size_t size, done;
    pthread_t target;
    atomic_bool stop;
    atomic_int signals;
};

static void *drain(void *context)
{
    struct mover *mover = context;
    ssize_t got;
    while (mover->done < mover->size &&
           (got = read(mover->fd, mover->bytes + mover->done, mover->size - mover->done)) > 0)
        mover->done += (size_t)got;
    return NULL;
}

static void *feed(void *context)
{
    struct mover *mover = context;
    ssize_t sent;
    while (mover->done < mover->size) {
        size_t piece = mover->size - mover->done < 1000 ? mover->size - mover->done : 1000;
        sent = write(mover->fd, mover->bytes + mover->done, piece);
        if (sent <= 0)
            break;
        mover->done += (size_t)sent;
        sched_yield(); /* let the reader run dry and wait */
    }
    return NULL;
}

static void *pester(void *context)
{
    struct mover *mover = context;
    while (!atomic_load(&mover->stop)) {
        pthread_kill(mover->target, SIGUSR1);
        atomic_fetch_add(&mover->signals, 1);
        sched_yield();
    }
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
}

static void shrink(int fd)
{
    int small = 1;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
}

static unsigned char *pattern(size_t size)
{
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 8));
    return bytes;
}

static void signals_and_tiny_buffers_do_not_cut_a_transfer(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    sigaction(SIGUSR1, &action, NULL);
    struct pair pair = open_pair();
    shrink(gpusys_stream_fd(pair.stream));
    shrink(pair.peer);
    unsigned char *sent = pattern(SIZE), *got = calloc(1, SIZE);
    assert_non_null(got);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* for the threads; this one takes them */
    struct mover peer = {.fd = pair.peer, .bytes = got, .size = SIZE}, pest = {.target = pthread_self()};
    pthread_t peer_thread, pest_thread;
    assert_int_equal(pthread_create(&pest_thread, NULL, pester, &pest), 0);
    assert_int_equal(pthread_create(&peer_thread, NULL, drain, &peer), 0);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    size_t count;
    assert_int_equal(gpusys_stream_write(pair.stream, sent, SIZE, seconds(50), &count), 0);
    assert_int_equal(count, SIZE);
    pthread_join(peer_thread, NULL);
    assert_memory_equal(got, sent, SIZE);
    memset(got, 0, SIZE);
    peer = (struct mover){.fd = pair.peer, .bytes = sent, .size = SIZE};
    assert_int_equal(pthread_create(&peer_thread, NULL, feed, &peer), 0);
    assert_int_equal(gpusys_stream_read(pair.stream, got, SIZE, seconds(50), &count), 0);
    assert_int_equal(count, SIZE);
    atomic_store(&pest.stop, true);
    pthread_join(pest_thread, NULL);
    pthread_join(peer_thread, NULL);
    assert_memory_equal(got, sent, SIZE);
    assert_true(atomic_load(&pest.signals) > 0);
    free(sent);
    free(got);
    close_pair(pair);
}

static void a_full_socket_stops_a_write_where_it_says(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    struct pair pair = open_pair();
    unsigned char *sent = pattern(SIZE), *got = malloc(SIZE);
    assert_non_null(got);
    size_t count, more;
    shrink(gpusys_stream_fd(pair.stream));
    assert_int_equal(gpusys_stream_write(pair.stream, sent, SIZE, 0, &count), -EAGAIN);
    assert_true(count > 0 && count < SIZE);
    assert_int_equal(
        gpusys_stream_write(pair.stream, sent + count, SIZE - count, gpusys_deadline_after(5000000), &more),
        -ETIMEDOUT);
    gpusys_stream_close(pair.stream);
    struct mover peer = {.fd = pair.peer, .bytes = got, .size = SIZE};
    drain(&peer);
    assert_int_equal(peer.done, count + more); /* not one more or less than it said */
    assert_memory_equal(got, sent, peer.done);
    close(pair.peer);
    free(sent);
    free(got);
}

static void writev_goes_over_batches_and_empty_pieces(void **state)
{
    (void)state;
    enum { PIECES = 200 };
    static const size_t limits[] = {0, 1, 7, 1000};
    unsigned char *bytes = pattern(PIECES * 3);
    struct iovec iov[PIECES];
    size_t total = 0, count;
    for (int i = 0; i < PIECES; i++) {
        size_t size = i % 5 == 0 || (i >= 60 && i < 130) ? 0 : (size_t)(i % 3 + 1); /* one batch all empty */
        iov[i] = (struct iovec){.iov_base = size ? bytes + total : NULL, .iov_len = size};
        total += size;
    }
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct script_step steps[] = {SCRIPT_EXPECT(bytes, total)};
        struct script *script = script_new(steps, 1);
        struct gpusys_stream *stream = script_open(script);
        script_limit_writes(script, limits[i]);
        assert_int_equal(gpusys_stream_writev(stream, iov, PIECES, seconds(10), &count), 0);
        assert_int_equal(count, total);
        assert_true(script_done(script));
        assert_null(script_fault(script));
        assert_int_equal(gpusys_stream_writev(stream, iov, 0, 0, &count), 0);
        assert_int_equal(count, 0);
        assert_int_equal(gpusys_stream_write(stream, NULL, 0, 0, &count), 0);
        gpusys_stream_close(stream);
        script_free(script);
    }
    free(bytes);
}

static void writev_counts_up_to_the_failure(void **state)
{
    (void)state;
    unsigned char byte = 0;
    struct iovec iov[100];
    for (int i = 0; i < 100; i++)
        iov[i] = (struct iovec){.iov_base = &byte, .iov_len = 1};
    static const struct script_step steps[] = {SCRIPT_ANY(70), SCRIPT_WRITE_FAIL(-EPIPE)};
    struct script *script = script_new(steps, 2);
    struct gpusys_stream *stream = script_open(script);
    size_t count;
    assert_int_equal(gpusys_stream_writev(stream, iov, 100, 0, &count), -EPIPE);
    assert_int_equal(count, 70);
    gpusys_stream_close(stream);
    script_free(script);
}

/* Where reads land, seen from below. */
struct watch {
    void *last;
    size_t last_size, offered;
    bool closed;
};

static int watch_read(void *context, void *buffer, size_t size, int64_t deadline_ns, size_t *count)
{
    (void)deadline_ns;
    struct watch *watch = context;
    watch->last = buffer;
    watch->last_size = size;
    *count = size < watch->offered ? size : watch->offered;
    memset(buffer, 'w', *count);
    return 0;
}

static int watch_write(void *context, const struct iovec *iov, int n_iov, int64_t deadline_ns, size_t *count)
{
    (void)context, (void)iov, (void)n_iov, (void)deadline_ns, (void)count;
    return -EPERM;
}

static void watch_close(void *context)
{
    ((struct watch *)context)->closed = true;
}

static void big_reads_go_straight_to_their_place(void **state)
{
    (void)state;
    const struct gpusys_stream_ops ops = {
        .size = sizeof ops, .read = watch_read, .write = watch_write, .close = watch_close};
    struct watch watch = {.offered = 100};
    struct gpusys_stream *stream;
    enum { SIZE = 1 << 20 };
    char *buffer = malloc(SIZE);
    size_t count;
    assert_non_null(buffer);
    assert_int_equal(gpusys_stream_new(&stream, &ops, &watch, "a watch"), 0);
    assert_string_equal(gpusys_stream_name(stream), "a watch");
    assert_int_equal(gpusys_stream_read(stream, buffer, 10, 0, NULL), 0);
    assert_true(watch.last < (void *)buffer || watch.last >= (void *)(buffer + SIZE)); /* the buffer's */
    assert_int_equal(gpusys_stream_buffered(stream), 90);
    watch.offered = SIZE;
    assert_int_equal(gpusys_stream_read(stream, buffer, SIZE, 0, &count), 0);
    assert_ptr_equal(watch.last, buffer + 90); /* what was buffered first, the rest not copied twice */
    assert_int_equal(watch.last_size, SIZE - 90);
    assert_int_equal(gpusys_stream_buffered(stream), 0);
    assert_int_equal(gpusys_stream_write(stream, "x", 1, 0, &count), -EPERM);
    assert_int_equal(gpusys_stream_fd(stream), -EOPNOTSUPP);
    gpusys_stream_close(stream);
    assert_true(watch.closed);
    free(buffer);
}

static void new_wants_its_functions(void **state)
{
    (void)state;
    struct gpusys_stream *stream = NULL;
    struct gpusys_stream_ops ops = {.size = sizeof ops, .read = watch_read};
    assert_int_equal(gpusys_stream_new(&stream, &ops, NULL, NULL), -EINVAL);
    assert_int_equal(gpusys_stream_new(&stream, NULL, NULL, NULL), -EINVAL);
    ops.write = watch_write;
    ops.size = 8;
    assert_int_equal(gpusys_stream_new(&stream, &ops, NULL, NULL), -EINVAL);
    struct {
        struct gpusys_stream_ops known;
        char unknown[8];
    } grown = {.known = {.size = sizeof grown, .read = watch_read, .write = watch_write}, .unknown = "\0\1"};
    assert_int_equal(gpusys_stream_new(&stream, &grown.known, NULL, NULL), -E2BIG);
    assert_null(stream);
    gpusys_stream_close(NULL);
}

static void descriptors_are_owned_and_made_non_blocking(void **state)
{
    (void)state;
    struct gpusys_stream *reader, *writer;
    int ends[2];
    char got[4];
    assert_int_equal(gpusys_stream_open_fd(&reader, -1, NULL), -EBADF);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(gpusys_stream_open_fd(&reader, ends[0], "a pipe"), 0);
    assert_int_equal(gpusys_stream_open_fd(&writer, ends[1], NULL), 0);
    assert_string_equal(gpusys_stream_name(reader), "a pipe");
    assert_string_equal(gpusys_stream_name(writer), "a descriptor");
    assert_int_equal(gpusys_stream_fd(reader), ends[0]);
    assert_true(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(gpusys_stream_write(writer, "pipe", 4, 0, NULL), 0);
    assert_int_equal(gpusys_stream_read(reader, got, 4, 0, NULL), 0);
    assert_memory_equal(got, "pipe", 4);
    gpusys_stream_close(writer);
    assert_int_equal(fcntl(ends[1], F_GETFD), -1);
    assert_int_equal(gpusys_stream_read(reader, got, 1, 0, NULL), -ECONNRESET);
    gpusys_stream_close(reader);
    assert_int_equal(fcntl(ends[0], F_GETFD), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_behind_a_message_is_lost),
        cmocka_unit_test(truncation_counts_exactly_at_every_length),
        cmocka_unit_test(a_reset_reads_as_an_end_does),
        cmocka_unit_test(no_time_is_eagain_and_too_little_is_etimedout),
        cmocka_unit_test(signals_and_tiny_buffers_do_not_cut_a_transfer),
        cmocka_unit_test(a_full_socket_stops_a_write_where_it_says),
        cmocka_unit_test(writev_goes_over_batches_and_empty_pieces),
        cmocka_unit_test(writev_counts_up_to_the_failure),
        cmocka_unit_test(big_reads_go_straight_to_their_place),
        cmocka_unit_test(new_wants_its_functions),
        cmocka_unit_test(descriptors_are_owned_and_made_non_blocking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
