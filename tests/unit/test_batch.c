/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Batches: who gets which completion, deadlines with a peer that has stopped, the descriptor to poll, notes. */
#include "remote_play.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

static const int64_t patience = 20000000000, moment = 50000000;

enum { MEMORY_BYTES = 48 * MIB, PIECE = MIB };

static void fill(struct gpusys_peer *peer)
{
    void *address;
    PLAY_CHECK(gpusys_peer_add_memory(peer, "memory", MEMORY_BYTES, 3, &address, NULL) == 0);
    play_noise(address, MEMORY_BYTES / 8, 7);
    for (int i = 1; i < 8; i++)
        memcpy((char *)address + i * (MEMORY_BYTES / 8), address, MEMORY_BYTES / 8);
    PLAY_CHECK(gpusys_peer_add_memory(peer, "other", 4096, 3, NULL, NULL) == 0);
}

static uint64_t submit(struct gpusys_remote *remote, uint32_t op, void *buffer, uint64_t length,
                       int64_t timeout_ns, uint64_t user)
{
    struct gpusys_io io = {.op = op, .region = 0, .buffer = buffer, .length = length};
    struct gpusys_batch_options options = {.size = sizeof options, .timeout_ns = timeout_ns, .user = user};
    uint64_t batch = 0;
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, &options, &batch), 0);
    assert_int_not_equal(batch, 0);
    return batch;
}

static struct gpusys_remote *open_listed(const char *address, uint32_t transport)
{
    struct gpusys_remote *remote = play_remote(address, transport, 0);
    assert_int_equal(gpusys_remote_list(remote, patience, NULL, NULL), 0);
    return remote;
}

static bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static int64_t thread_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- completions ---- */

static void check_completions(struct gpusys_remote *remote)
{
    struct gpusys_completion completions[4];
    unsigned char *buffer = malloc(4 * MIB);
    uint64_t batches[4];
    assert_int_equal(gpusys_remote_wait(remote, completions, 4, patience), -ENOENT);
    assert_int_equal(gpusys_remote_wait_batch(remote, 12345, completions, patience), -ENOENT);
    assert_int_equal(gpusys_remote_poll(remote, completions, 4), 0);
    for (uint64_t i = 0; i < 4; i++)
        batches[i] = submit(remote, GPUSYS_OP_READ, buffer + i * MIB, MIB, 0, 100 + i);
    assert_int_equal(gpusys_remote_wait_batch(remote, batches[3], &completions[0], patience), 0);
    assert_int_equal(completions[0].batch, batches[3]);
    assert_int_equal(completions[0].user, 103);
    assert_int_equal(completions[0].bytes, MIB);
    assert_int_equal(gpusys_remote_wait_batch(remote, batches[3], &completions[0], patience), -ENOENT);
    for (unsigned seen = 0; seen < 3;) { /* the others are still there, each once */
        int count = gpusys_remote_wait(remote, completions, 2, patience);
        assert_in_range(count, 1, 2);
        for (int i = 0; i < count; i++, seen++) {
            assert_int_equal(completions[i].batch, batches[seen]);
            assert_int_equal(completions[i].user, 100 + seen);
            assert_int_equal(completions[i].status, 0);
        }
    }
    assert_int_equal(gpusys_remote_wait(remote, completions, 4, patience), -ENOENT);
    free(buffer);
}

static void test_completions(void **state)
{
    (void)state;
    struct gpusys_peer *peer = play_peer(NULL);
    fill(peer);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = open_listed(gpusys_peer_address(peer), both_transports[i]);
        check_completions(remote);
        gpusys_remote_close(remote);
    }
    gpusys_peer_close(peer);
}

static void test_batch_options(void **state)
{
    (void)state;
    struct gpusys_peer *peer = play_peer(NULL);
    struct gpusys_completion completion;
    uint64_t value;
    fill(peer);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct gpusys_remote *remote = open_listed(gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP);
    struct gpusys_io io = {.buffer = &value, .length = 8};
    struct {
        struct gpusys_batch_options known;
        uint64_t more;
    } big = {.known = {.size = sizeof big, .user = 9}};
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, &big.known, NULL), 0);
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
    assert_int_equal(completion.user, 9);
    big.more = 1;
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, &big.known, NULL), -E2BIG);
    struct gpusys_batch_options small = {.size = offsetof(struct gpusys_batch_options, user), .user = 9};
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, &small, NULL), 0);
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
    assert_int_equal(completion.user, 0);
    assert_int_equal(gpusys_remote_submit(remote, NULL, 0, NULL, NULL), 0); /* nothing completes at once */
    assert_int_equal(gpusys_remote_poll(remote, &completion, 1), 1);
    assert_int_equal(completion.bytes, 0);
    assert_int_equal(gpusys_remote_poll(remote, &completion, 1), 0);
    gpusys_remote_close(remote);
    gpusys_peer_close(peer);
}

/* A remote that is closed with work under way gives the buffers back: nothing is written to them afterwards. */
static void test_closed_half_way(void **state)
{
    (void)state;
    struct gpusys_peer *peer = play_peer(NULL);
    fill(peer);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = open_listed(gpusys_peer_address(peer), both_transports[i]);
        unsigned char *buffer = malloc(MEMORY_BYTES);
        for (uint64_t k = 0; k < 4; k++)
            submit(remote, k % 2, buffer, MEMORY_BYTES, 0, k);
        gpusys_remote_poll(remote, &(struct gpusys_completion){0}, 1);
        gpusys_remote_close(remote);
        free(buffer);
    }
    gpusys_peer_close(peer);
}

/* ---- a peer that has stopped ---- */

static struct play_child child;

static void child_open(void)
{
    struct gpusys_peer_options options = {.size = sizeof options, .threads = 1};
    play_child_start(&child, &options, fill);
}

static int child_close(void **state)
{
    (void)state;
    play_child_stop(&child);
    return 0;
}

/* Waiting ends without cancelling, also when another batch's completion lies there unread. */
static void test_wait_times_out(void **state)
{
    (void)state;
    struct gpusys_completion completion;
    child_open();
    struct gpusys_remote *remote = open_listed(child.address, GPUSYS_TRANSPORT_TCP);
    unsigned char *buffer = malloc(4 * MIB);
    play_child_signal(&child, SIGSTOP);
    uint64_t batch = submit(remote, GPUSYS_OP_READ, buffer, 4 * MIB, 0, 1);
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, moment), -ETIMEDOUT);
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, 0), -ETIMEDOUT);
    assert_int_equal(gpusys_remote_wait_batch(remote, batch, &completion, moment), -ETIMEDOUT);
    assert_int_equal(gpusys_remote_submit(remote, NULL, 0, NULL, NULL), 0);
    int64_t busy = thread_time();
    assert_int_equal(gpusys_remote_wait_batch(remote, batch, &completion, 10 * moment), -ETIMEDOUT);
    assert_true(thread_time() - busy < 5 * moment); /* it slept, and did not look round and round */
    assert_int_equal(gpusys_remote_ping(remote, moment), -ETIMEDOUT);
    assert_int_equal(gpusys_remote_list(remote, moment, NULL, NULL), -ETIMEDOUT);
    play_child_signal(&child, SIGCONT);
    assert_int_equal(gpusys_remote_wait_batch(remote, batch, &completion, patience), 0);
    assert_int_equal(completion.status, 0);
    assert_int_equal(gpusys_remote_poll(remote, &completion, 1), 1);
    assert_int_equal(completion.bytes, 0);
    assert_int_equal(gpusys_remote_ping(remote, patience), 0); /* the late answers did no harm */
    assert_int_equal(gpusys_remote_list(remote, patience, NULL, NULL), 0);
    gpusys_remote_close(remote);
    free(buffer);
}

/* After -ETIMEDOUT the buffer is the caller's: what still comes lands nowhere. */
static void test_read_deadline(void **state)
{
    (void)state;
    struct gpusys_completion completion;
    child_open();
    struct gpusys_remote *remote = open_listed(child.address, GPUSYS_TRANSPORT_TCP);
    unsigned char *buffer = malloc(MEMORY_BYTES), *again = malloc(MEMORY_BYTES);
    submit(remote, GPUSYS_OP_READ, buffer, MEMORY_BYTES, 4 * moment, 0);
    gpusys_remote_poll(remote, &completion, 0);
    play_child_signal(&child, SIGSTOP); /* with some of it on its way */
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
    assert_int_equal(completion.status, -ETIMEDOUT);
    assert_int_equal(completion.flags, 0);
    assert_true(completion.bytes < MEMORY_BYTES);
    memset(buffer, 0x77, MEMORY_BYTES);
    play_child_signal(&child, SIGCONT);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, again, MEMORY_BYTES, patience), 0);
    assert_int_equal(gpusys_remote_ping(remote, patience), 0);
    for (size_t i = 0; i < MEMORY_BYTES; i++)
        if (buffer[i] != 0x77)
            fail_msg("byte %zu was written after the deadline", i);
    play_noise(buffer, MEMORY_BYTES / 8, 7);
    for (int i = 0; i < 8; i++)
        assert_memory_equal(again + i * (MEMORY_BYTES / 8), buffer, MEMORY_BYTES / 8);
    gpusys_remote_close(remote);
    free(buffer);
    free(again);
}

/* A write that the peer has not confirmed leaves its range undefined, and says so; a later write is what stays. */
static void test_write_deadline(void **state)
{
    (void)state;
    struct gpusys_completion completion;
    child_open();
    struct gpusys_remote *remote = open_listed(child.address, GPUSYS_TRANSPORT_TCP);
    unsigned char *buffer = malloc(MEMORY_BYTES), *seen = malloc(MEMORY_BYTES);
    play_child_signal(&child, SIGSTOP);
    memset(buffer, 1, MEMORY_BYTES);
    submit(remote, GPUSYS_OP_WRITE, buffer, MEMORY_BYTES, 2 * moment, 0);
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
    assert_int_equal(completion.status, -ETIMEDOUT);
    assert_int_equal(completion.flags, GPUSYS_COMPLETION_REMOTE_UNDEFINED);
    memset(buffer, 2, MEMORY_BYTES); /* ours again */
    play_child_signal(&child, SIGCONT);
    assert_int_equal(gpusys_remote_write(remote, 0, 0, buffer, MEMORY_BYTES, patience), 0);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, seen, MEMORY_BYTES, patience), 0);
    assert_memory_equal(seen, buffer, MEMORY_BYTES);
    assert_int_equal(gpusys_remote_ping(remote, patience), 0);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, seen, MEMORY_BYTES, patience), 0);
    assert_memory_equal(seen, buffer, MEMORY_BYTES);
    gpusys_remote_close(remote);
    free(buffer);
    free(seen);
}

/* Over shm the first use of a region has to ask the peer; a late answer must not be taken for the next one's. */
static void test_shm_deadline(void **state)
{
    (void)state;
    uint64_t value = 0, expected;
    unsigned char noise[8];
    child_open();
    struct gpusys_remote *remote = open_listed(child.address, GPUSYS_TRANSPORT_SHM);
    play_child_signal(&child, SIGSTOP);
    assert_int_equal(gpusys_remote_read(remote, 1, 0, &value, 8, moment), -ETIMEDOUT);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, &value, 8, moment), -ETIMEDOUT);
    play_child_signal(&child, SIGCONT);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, &value, 8, patience), 0);
    play_noise(noise, 8, 7);
    memcpy(&expected, noise, 8);
    assert_int_equal(value, expected);
    assert_int_equal(gpusys_remote_read(remote, 1, 0, &value, 8, patience), 0);
    assert_int_equal(value, 0);
    play_child_signal(&child, SIGSTOP); /* what is mapped needs no peer */
    assert_int_equal(gpusys_remote_read(remote, 0, 0, &value, 8, moment), 0);
    assert_int_equal(value, expected);
    play_child_signal(&child, SIGCONT);
    gpusys_remote_close(remote);
}

/* Many batches whose time is up at the same moment. */
static void test_many_deadlines(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    struct gpusys_completion completions[COUNT];
    child_open();
    struct gpusys_remote *remote = open_listed(child.address, GPUSYS_TRANSPORT_TCP);
    unsigned char *buffer = malloc(COUNT * 4096);
    play_child_signal(&child, SIGSTOP);
    for (uint64_t i = 0; i < COUNT; i++)
        submit(remote, i % 2, buffer + i * 4096, 4096, 2 * moment, i);
    int seen = 0;
    while (seen < COUNT) {
        int count = gpusys_remote_wait(remote, completions + seen, (unsigned)(COUNT - seen), patience);
        assert_true(count > 0);
        for (int i = seen; i < seen + count; i++) {
            assert_int_equal(completions[i].status, -ETIMEDOUT);
            assert_int_equal(completions[i].user, i);
        }
        seen += count;
    }
    play_child_signal(&child, SIGCONT);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, buffer, COUNT * 4096, patience), 0);
    gpusys_remote_close(remote);
    free(buffer);
}

/* The peer is killed with work under way. */
static void test_killed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_completion completion;
        struct gpusys_error error = {0};
        uint32_t region;
        child_open();
        struct gpusys_remote *remote = open_listed(child.address, both_transports[i]);
        unsigned char *buffer = malloc(MEMORY_BYTES);
        int64_t start;
        if (both_transports[i] == GPUSYS_TRANSPORT_TCP) {
            play_child_signal(&child, SIGSTOP);
            submit(remote, GPUSYS_OP_WRITE, buffer, MEMORY_BYTES, 0, 5);
            play_child_stop(&child);
            start = gpusys_now_ns();
            assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
            assert_int_equal(completion.status, -ECONNRESET);
            assert_int_equal(completion.flags, GPUSYS_COMPLETION_REMOTE_UNDEFINED);
            assert_int_equal(completion.user, 5);
        } else {
            play_child_stop(&child);
            start = gpusys_now_ns();
            assert_int_equal(gpusys_remote_ping(remote, patience), -ECONNRESET);
        }
        assert_true(gpusys_now_ns() - start < 2 * play_second);
        assert_int_equal(gpusys_remote_read(remote, 0, 0, buffer, 1, patience), -ENOTCONN);
        assert_int_equal(gpusys_remote_poll(remote, &completion, 1), -ENOTCONN);
        assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), -ENOTCONN);
        assert_int_equal(gpusys_remote_ping(remote, patience), -ENOTCONN);
        assert_true(gpusys_remote_arena_new(remote, 1, patience, &region, &error) < 0);
        assert_true(gpusys_remote_list(remote, patience, NULL, &error) < 0);
        gpusys_remote_close(remote);
        free(buffer);
    }
}

/* ---- the descriptor ---- */

/* A caller that sleeps on nothing but the descriptor sees everything through. */
static struct gpusys_completion drive(struct gpusys_remote *remote)
{
    struct gpusys_completion completion;
    struct pollfd poll_fd = {.fd = gpusys_remote_fd(remote), .events = POLLIN};
    for (;;) {
        assert_int_equal(poll(&poll_fd, 1, 20000), 1);
        int count = gpusys_remote_poll(remote, &completion, 1);
        assert_true(count >= 0);
        if (count)
            return completion;
    }
}

static void test_descriptor(void **state)
{
    (void)state;
    child_open();
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = open_listed(child.address, both_transports[i]);
        unsigned char *buffer = malloc(MEMORY_BYTES);
        int fd = gpusys_remote_fd(remote);
        assert_true(fd >= 0);
        assert_int_equal(gpusys_remote_fd(remote), fd);
        gpusys_remote_poll(remote, &(struct gpusys_completion){0}, 1);
        assert_false(is_readable(fd));
        submit(remote, GPUSYS_OP_READ, buffer, MEMORY_BYTES, 0, 0);
        assert_int_equal(drive(remote).status, 0);
        assert_false(is_readable(fd));
        submit(remote, GPUSYS_OP_WRITE, buffer, MEMORY_BYTES, 0, 0);
        assert_int_equal(drive(remote).bytes, MEMORY_BYTES);
        assert_false(is_readable(fd));
        assert_int_equal(gpusys_remote_submit(remote, NULL, 0, NULL, NULL), 0);
        assert_true(is_readable(fd)); /* a completion lies there … */
        assert_true(is_readable(fd)); /* … until it is taken */
        assert_int_equal(drive(remote).bytes, 0);
        assert_false(is_readable(fd));
        gpusys_remote_close(remote);
        free(buffer);
    }
}

static void test_descriptor_deadline(void **state)
{
    (void)state;
    unsigned char buffer[4096];
    child_open();
    struct gpusys_remote *remote = open_listed(child.address, GPUSYS_TRANSPORT_TCP);
    int fd = gpusys_remote_fd(remote);
    gpusys_remote_poll(remote, &(struct gpusys_completion){0}, 1);
    play_child_signal(&child, SIGSTOP);
    submit(remote, GPUSYS_OP_READ, buffer, sizeof buffer, 2 * moment, 3);
    struct gpusys_completion completion = drive(remote);
    assert_int_equal(completion.status, -ETIMEDOUT);
    assert_int_equal(completion.user, 3);
    assert_false(is_readable(fd));
    play_child_stop(&child);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 20000), 1); /* that the session ended shows there too */
    while (gpusys_remote_poll(remote, &completion, 1) >= 0)
        assert_int_equal(poll(&poll_fd, 1, 20000), 1);
    gpusys_remote_close(remote);
}

/* ---- notes ---- */

struct notes {
    pthread_mutex_t lock;
    const unsigned char *memory, *expected;
    uint64_t bytes;
    unsigned count;
    uint64_t client;
    char last[GPUSYS_NOTE_BYTES];
    uint32_t last_bytes;
    bool complete; /* at the moment of the note every byte was there */
};

static void on_note(void *context, uint64_t client, const void *note, uint32_t note_bytes)
{
    struct notes *notes = context;
    pthread_mutex_lock(&notes->lock);
    notes->count++;
    notes->client = client;
    notes->last_bytes = note_bytes;
    memcpy(notes->last, note, note_bytes);
    notes->complete = memcmp(notes->memory, notes->expected, notes->bytes) == 0;
    pthread_mutex_unlock(&notes->lock);
}

static void test_notes(void **state)
{
    (void)state;
    struct notes notes = {.lock = PTHREAD_MUTEX_INITIALIZER, .bytes = 40 * MIB};
    struct gpusys_peer_options options = {.size = sizeof options, .on_note = on_note, .context = &notes};
    struct gpusys_peer *peer = play_peer(&options);
    unsigned char *buffer = malloc(notes.bytes);
    void *address;
    char long_note[GPUSYS_NOTE_BYTES + 1];
    notes.expected = buffer;
    assert_int_equal(gpusys_peer_add_memory(peer, "memory", notes.bytes, 3, &address, NULL), 0);
    notes.memory = address;
    play_file(play_path("noted"), "0123456789", 10);
    assert_int_equal(gpusys_peer_add_file(peer, "file", play_path("noted"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        struct gpusys_remote *remote = play_remote(gpusys_peer_address(peer), both_transports[i], 2);
        assert_int_equal(gpusys_remote_list(remote, patience, NULL, NULL), 0);
        memset(buffer, (int)i + 1, notes.bytes);
        struct gpusys_io io = {.op = GPUSYS_OP_WRITE, .buffer = buffer, .length = notes.bytes};
        struct gpusys_batch_options batch = {.size = sizeof batch, .note = "all there", .note_bytes = 9};
        struct gpusys_completion completion;
        notes.count = 0;
        assert_int_equal(gpusys_remote_submit(remote, &io, 1, &batch, NULL), 0);
        assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
        assert_int_equal(completion.status, 0);
        pthread_mutex_lock(&notes.lock); /* the completion comes after the note */
        assert_int_equal(notes.count, 1);
        assert_int_equal(notes.last_bytes, 9);
        assert_memory_equal(notes.last, "all there", 9);
        assert_true(notes.complete);
        assert_int_equal(notes.client, i + 1);
        pthread_mutex_unlock(&notes.lock);
        memset(long_note, 'n', sizeof long_note);
        batch = (struct gpusys_batch_options){
            .size = sizeof batch, .note = long_note, .note_bytes = GPUSYS_NOTE_BYTES};
        assert_int_equal(gpusys_remote_submit(remote, NULL, 0, &batch, NULL), 0);
        assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
        assert_int_equal(completion.status, 0);
        assert_int_equal(notes.count, 2);
        assert_int_equal(notes.last_bytes, GPUSYS_NOTE_BYTES);
        batch.note_bytes = GPUSYS_NOTE_BYTES + 1;
        assert_int_equal(gpusys_remote_submit(remote, NULL, 0, &batch, NULL), -EINVAL);
        batch = (struct gpusys_batch_options){.size = sizeof batch, .note_bytes = 1};
        assert_int_equal(gpusys_remote_submit(remote, NULL, 0, &batch, NULL), -EINVAL);
        /* None for a batch that fails. */
        play_file(play_path("noted"), "01234", 5);
        io = (struct gpusys_io){.region = 1, .buffer = buffer, .length = 10};
        batch = (struct gpusys_batch_options){.size = sizeof batch, .note = "no", .note_bytes = 2};
        int error = gpusys_remote_submit(remote, &io, 1, &batch, NULL);
        if (!error) {
            assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
            error = completion.status;
        }
        assert_int_equal(error, -ESTALE);
        assert_int_equal(gpusys_remote_ping(remote, patience), 0);
        assert_int_equal(notes.count, 2);
        gpusys_remote_close(remote);
    }
    gpusys_peer_close(peer);
    free(buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_wait_times_out, child_close),
        cmocka_unit_test_teardown(test_read_deadline, child_close),
        cmocka_unit_test_teardown(test_write_deadline, child_close),
        cmocka_unit_test_teardown(test_shm_deadline, child_close),
        cmocka_unit_test_teardown(test_many_deadlines, child_close),
        cmocka_unit_test_teardown(test_killed, child_close),
        cmocka_unit_test_teardown(test_descriptor, child_close),
        cmocka_unit_test_teardown(test_descriptor_deadline, child_close),
        cmocka_unit_test(test_completions),
        cmocka_unit_test(test_batch_options),
        cmocka_unit_test(test_closed_half_way),
        cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
