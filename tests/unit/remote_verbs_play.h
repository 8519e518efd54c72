/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tests of gpusys/1 over verbs share: a peer and a remote in one process, over the stand-in libibverbs; and a
 * process of its own for every set of devices, for the library reads them once. */
#ifndef TESTS_REMOTE_VERBS_PLAY_H
#define TESTS_REMOTE_VERBS_PLAY_H

#include "remote_play.h"

#include "fake_verbs.h"

#include <gpusys/verbs.h>
#include <infiniband/verbs.h>
#include <sys/wait.h>

static const int64_t verbs_patience = 20000000000;

/* ---- a process for each set of devices ---- */

struct verbs_group {
    const char *name, *devices;
    const struct CMUnitTest *tests;
    size_t n_tests;
};

static inline int verbs_group_run(const struct verbs_group *group)
{
    fake_start(group->devices);
    int failed = _cmocka_run_group_tests(group->name, group->tests, group->n_tests, play_begin, play_end);
    fake_end();
    return failed;
}

/* All of them, or only the one named. */
static inline int verbs_groups_run(const struct verbs_group *groups, size_t n_groups, const char *only)
{
    int failed = 0;
    for (size_t i = 0; i < n_groups; i++) {
        int status = 0;
        if (only && strcmp(only, groups[i].name) != 0)
            continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            exit(verbs_group_run(&groups[i]));
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
            fprintf(stderr, "the group \"%s\" failed: status %#x\n", groups[i].name, (unsigned)status);
            failed++;
        }
    }
    return failed != 0;
}

/* ---- a peer and a remote ---- */

enum { VERBS_READ_ONLY = 0, VERBS_WRITABLE = 1, VERBS_MEMORY_BYTES = 8 * 1024 * 1024 + 4099 };

struct verbs_world {
    struct gpusys_peer *peer;
    struct gpusys_remote *remote;
    unsigned char *read_only, *writable; /* regions 0 and 1, at the peer */
    unsigned char *buffer;               /* VERBS_MEMORY_BYTES of the client's */
};

static inline struct gpusys_remote_options verbs_options(void)
{
    return (struct gpusys_remote_options){.size = sizeof(struct gpusys_remote_options),
                                          .require = GPUSYS_TRANSPORT_VERBS};
}

/* A peer with two regions, and whatever `fill` adds; started. */
static inline void verbs_world_serve(struct verbs_world *world, const struct gpusys_peer_options *options,
                                     void (*fill)(struct gpusys_peer *peer))
{
    void *read_only, *writable;
    *world = (struct verbs_world){.peer = play_peer(options)};
    assert_int_equal(
        gpusys_peer_add_memory(world->peer, "read-only", VERBS_MEMORY_BYTES, 1, &read_only, NULL), 0);
    assert_int_equal(gpusys_peer_add_memory(world->peer, "writable", VERBS_MEMORY_BYTES, 3, &writable, NULL),
                     0);
    world->read_only = read_only;
    world->writable = writable;
    play_noise(world->read_only, VERBS_MEMORY_BYTES, 1);
    if (fill)
        fill(world->peer);
    assert_int_equal(gpusys_peer_start(world->peer, NULL), 0);
    world->buffer = malloc(VERBS_MEMORY_BYTES);
    assert_non_null(world->buffer);
}

/* A remote of that peer, listed. */
static inline struct gpusys_remote *verbs_remote(const struct verbs_world *world,
                                                 const struct gpusys_remote_options *options)
{
    struct gpusys_remote_options known = options ? *options : verbs_options();
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error = {0};
    if (gpusys_remote_open(&remote, gpusys_peer_address(world->peer), &known, &error))
        fail_msg("%s: %s", error.message, error.cause);
    assert_int_equal(gpusys_remote_list(remote, verbs_patience, NULL, NULL), 0);
    return remote;
}

static inline void verbs_world_open(struct verbs_world *world)
{
    verbs_world_serve(world, NULL, NULL);
    world->remote = verbs_remote(world, NULL);
}

static inline bool verbs_nothing_keyed(void *context)
{
    struct gpusys_peer_stats stats = play_stats(context);
    return stats.keyed_bytes == 0 && stats.copied_bytes == 0 && stats.arenas == 0 && stats.clients == 0;
}

/* Everything goes, and nothing of it is left at the peer. */
static inline void verbs_world_close(struct verbs_world *world)
{
    gpusys_remote_close(world->remote);
    assert_true(play_until(verbs_nothing_keyed, world->peer));
    gpusys_peer_close(world->peer);
    free(world->buffer);
}

static inline struct gpusys_remote_info verbs_info(const struct gpusys_remote *remote)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_info(remote, &info), 0);
    return info;
}

static inline struct gpusys_rail_info verbs_rail(const struct gpusys_remote *remote, uint32_t rail)
{
    struct gpusys_rail_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_rail(remote, rail, &info), 0);
    return info;
}

/* Drive the engine until so many rails are up. */
static inline void verbs_await_rails(struct gpusys_remote *remote, unsigned wanted)
{
    struct gpusys_completion completion;
    int64_t end = gpusys_deadline_after(verbs_patience);
    while (verbs_info(remote).n_rails != wanted) {
        if (gpusys_now_ns() > end)
            fail_msg("%u rails are up, not %u", verbs_info(remote).n_rails, wanted);
        usleep(1000);
        assert_int_equal(gpusys_remote_poll(remote, &completion, 1), 0);
    }
}

static inline bool verbs_are_live(void *count)
{
    return FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS) == *(const int64_t *)count;
}

/* So many objects of the library are left: those of the pool, and of a thread that still tries to reconnect, go by
 * themselves. */
static inline bool verbs_live_comes(int64_t count)
{
    if (play_until(verbs_are_live, &count))
        return true;
    fprintf(stderr, "%lld objects of the library are left, not %lld\n",
            (long long)FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS), (long long)count);
    return false;
}

/* After each test: nothing of the library is left, and it does as told no more. */
static inline int verbs_clean(void **state)
{
    (void)state;
    FAKE(fake_ibverbs_release)(0);
    bool is_clean = verbs_live_comes(0);
    FAKE(fake_ibverbs_reset)();
    return !is_clean;
}

#define VERBS_TEST(name) cmocka_unit_test_teardown(name, verbs_clean)

#endif
