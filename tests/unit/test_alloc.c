/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A session when memory runs out, at each of its allocations on either side. Linked with --wrap for the allocators. */
#include "remote_play.h"

#include <pthread.h>
#include <stdatomic.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);

/* Whose allocations fail: this thread's (the client) or all others' (the peer, and helpers). */
static atomic_bool armed, of_client, for_good;
static atomic_int allowed, failed;
static _Thread_local bool is_client;

static bool may_allocate(void)
{
    if (!atomic_load(&armed) || is_client != atomic_load(&of_client))
        return true;
    int left = atomic_fetch_sub(&allowed, 1);
    if (left > 0 || (left < 0 && !atomic_load(&for_good)))
        return true;
    atomic_fetch_add(&failed, 1);
    errno = ENOMEM;
    return false;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    return may_allocate() ? __real_realloc(old, size) : NULL;
}

char *__wrap_strdup(const char *text)
{
    return may_allocate() ? __real_strdup(text) : NULL;
}

char *__wrap_strndup(const char *text, size_t size)
{
    return may_allocate() ? __real_strndup(text, size) : NULL;
}

static void arm(bool client, bool good, int successes)
{
    atomic_store(&failed, 0);
    atomic_store(&allowed, successes);
    atomic_store(&of_client, client);
    atomic_store(&for_good, good);
    atomic_store(&armed, true);
}

/* How many failed. */
static int disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&failed);
}

/* ---- a session from end to end; the first error, or 0 ---- */

static const int64_t step_ns = 5000000000;

static unsigned char buffer[256 * KIB];

static int use(struct gpusys_remote *remote)
{
    struct gpusys_error error;
    struct gpusys_completion completion;
    uint8_t hashes[1][GPUSYS_HASH_BYTES];
    uint32_t arena, region = 0;
    struct gpusys_batch_options options = {
        .size = sizeof options, .timeout_ns = step_ns, .note = "note", .note_bytes = 4};
    int result = gpusys_remote_list(remote, step_ns, NULL, &error);
    if (!result)
        result = gpusys_remote_find(remote, "memory", &region);
    if (!result)
        result = gpusys_remote_arena_new(remote, 64 * KIB, step_ns, &arena, &error);
    if (!result)
        result = gpusys_remote_write(remote, arena, 0, buffer, 64 * KIB, step_ns);
    struct gpusys_io ios[12];
    for (uint64_t i = 0; i < COUNT_OF(ios); i++)
        ios[i] = (struct gpusys_io){
            .region = region, .offset = i, .buffer = buffer + i * 16 * KIB, .length = 16 * KIB};
    if (!result)
        result = gpusys_remote_submit(remote, ios, COUNT_OF(ios), &options, NULL);
    if (!result) {
        result = gpusys_remote_wait(remote, &completion, 1, 2 * step_ns);
        result = result == 1 ? completion.status : result;
    }
    if (!result)
        result = gpusys_remote_find(remote, "file", &region);
    if (!result)
        result = gpusys_remote_read(remote, region, 0, buffer, sizeof buffer, step_ns);
    if (!result)
        result = gpusys_remote_checksums(remote, region, 0, 1, hashes, step_ns, &error);
    if (!result)
        result = gpusys_remote_arena_free(remote, arena, step_ns, &error);
    return result ? result : gpusys_remote_ping(remote, step_ns);
}

static int session(const char *address, uint32_t transport)
{
    struct gpusys_remote_options options = {
        .size = sizeof options, .require = transport, .timeout_ns = step_ns, .tcp_connections = 2};
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error;
    int result = gpusys_remote_open(&remote, address, &options, &error);
    assert_int_equal(!remote, result != 0);
    if (!result)
        result = use(remote);
    disarm();
    gpusys_remote_close(remote);
    return result;
}

static struct gpusys_peer *open_peer(void)
{
    struct gpusys_peer_options options = {.size = sizeof options, .arena_bytes = MIB, .threads = 2};
    struct gpusys_peer *peer = play_peer(&options);
    play_noise(buffer, sizeof buffer, 1);
    play_file(play_path("file"), buffer, sizeof buffer);
    assert_int_equal(gpusys_peer_add_memory(peer, "memory", MIB, 3, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_add_file(peer, "file", play_path("file"), 0, 0, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    return peer;
}

static bool is_empty(void *peer)
{
    struct gpusys_peer_stats stats = play_stats(peer);
    return stats.clients == 0 && stats.arenas == 0 && stats.arena_bytes == 0;
}

enum { MOST = 400 };

static void check_client(uint32_t transport, bool good)
{
    struct gpusys_peer *peer = open_peer();
    int successes = 0;
    is_client = true;
    for (; successes < MOST; successes++) {
        arm(true, good, successes);
        int result = session(gpusys_peer_address(peer), transport);
        if (disarm() == 0) {
            assert_int_equal(result, 0);
            break;
        }
        if (result != 0)
            assert_int_equal(result, -ENOMEM);
        if (good)
            assert_int_not_equal(result, 0);
    }
    assert_in_range(successes, 10, MOST - 1); /* so many were tried, and then none failed */
    assert_int_equal(session(gpusys_peer_address(peer), transport), 0);
    assert_true(play_until(is_empty, peer));
    gpusys_peer_close(peer);
}

static void test_client(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        check_client(both_transports[i], false);
        check_client(both_transports[i], true);
    }
}

/* The peer turns the one client away, or serves it after all; it never leaves it waiting, and the next one is served. */
static void check_server(uint32_t transport)
{
    struct gpusys_peer *peer = open_peer();
    int successes = 0;
    is_client = true;
    for (; successes < MOST; successes++) {
        arm(false, false, successes);
        int result = session(gpusys_peer_address(peer), transport);
        if (atomic_load(&failed) == 0)
            break;
        if (result == -ETIMEDOUT)
            fail_msg("the peer was silent after its allocation %d failed", successes);
        assert_int_equal(session(gpusys_peer_address(peer), transport), 0);
    }
    assert_in_range(successes, 5, MOST - 1);
    assert_true(play_until(is_empty, peer));
    gpusys_peer_close(peer);
}

static void test_server(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(both_transports); i++)
        check_server(both_transports[i]);
}

/* ---- setting a peer up ---- */

static int set_up(void)
{
    struct gpusys_peer_options options = {.size = sizeof options, .listen = "127.0.0.1:0", .threads = 2};
    struct gpusys_peer *peer = NULL;
    struct gpusys_error error;
    int result = gpusys_peer_open(&peer, &options, &error);
    assert_int_equal(!peer, result != 0);
    if (!result)
        result = gpusys_peer_add_memory(peer, "memory", 4096, 1, NULL, &error);
    if (!result)
        result = gpusys_peer_add_file(peer, "file", play_path("file"), 0, 0, &error);
    if (!result)
        result = gpusys_peer_add_file(peer, "part", play_path("file"), 1, 2, &error);
    if (!result)
        result = gpusys_peer_add_path(peer, play_path("tree"), GPUSYS_PATH_FOLLOW, NULL, &error);
    if (!result)
        result = gpusys_peer_start(peer, &error);
    disarm();
    gpusys_peer_close(peer);
    return result;
}

static void test_set_up(void **state)
{
    (void)state;
    int successes = 0;
    char path[512];
    play_file(play_path("file"), "0123456789", 10);
    snprintf(path, sizeof path, "mkdir -p %s/sub && echo x > %s/sub/file && ln -sf sub/file %s/link",
             play_path("tree"), play_path("tree"), play_path("tree"));
    assert_int_equal(system(path), 0);
    is_client = true;
    for (; successes < MOST; successes++) {
        arm(true, false, successes);
        int result = set_up();
        if (atomic_load(&failed) == 0) {
            assert_int_equal(result, 0);
            break;
        }
        if (result != 0)
            assert_int_equal(result, -ENOMEM);
    }
    assert_in_range(successes, 15, MOST - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_up),
        cmocka_unit_test(test_client),
        cmocka_unit_test(test_server),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
