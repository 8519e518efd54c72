/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Verbs rails that die and come back, deadlines, servers that are killed, and every call of the library failing once. Over
 * the stand-in libibverbs. */
#include "remote_verbs_play.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

/* ---- ways for a rail to die ---- */

static unsigned port_at(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in at = {0};
    socklen_t size = sizeof at;
    return name(fd, (struct sockaddr *)&at, &size) == 0 && at.sin_family == AF_INET ? ntohs(at.sin_port) : 0;
}

/* Connection number `nth` of this process to the peer, in the order of the descriptors: 0 is the control stream's. */
static void cut_connection(const struct verbs_world *world, unsigned nth)
{
    unsigned port = (unsigned)atoi(strrchr(gpusys_peer_address(world->peer), ':') + 1), seen = 0;
    for (int fd = 0; fd < 256; fd++)
        if (port_at(fd, getpeername) == port && seen++ == nth)
            shutdown(fd, SHUT_RDWR);
}

static void die_by_connection(const struct verbs_world *world)
{
    cut_connection(world, 1);
}

static void die_by_request(void)
{
    FAKE(fake_ibverbs_on)("ibv_post_send", 2, FAKE_IBVERBS_COMPLETE, IBV_WC_RETRY_EXC_ERR);
}

static void die_by_flush(void)
{
    FAKE(fake_ibverbs_on)("ibv_post_send", 1, FAKE_IBVERBS_COMPLETE, IBV_WC_WR_FLUSH_ERR);
}

static void die_by_post(void)
{
    FAKE(fake_ibverbs_on)("ibv_post_send", 2, FAKE_IBVERBS_FAIL, ENOMEM);
}

/* Both rails are asleep: an event of the port has them look. */
static void wake_rails(void)
{
    FAKE(fake_ibverbs_event)("fake0", IBV_EVENT_SM_CHANGE, 1);
    FAKE(fake_ibverbs_event)("fake1", IBV_EVENT_SM_CHANGE, 1);
}

static void die_by_poll(const struct verbs_world *world)
{
    (void)world;
    FAKE(fake_ibverbs_on)("ibv_poll_cq", 1, FAKE_IBVERBS_FAIL, EIO);
    wake_rails();
}

static void die_by_stray(const struct verbs_world *world)
{
    (void)world;
    FAKE(fake_ibverbs_stray)("fake1", 0x123456789);
    wake_rails();
}

static void die_by_port(const struct verbs_world *world)
{
    (void)world;
    FAKE(fake_ibverbs_event)("fake1", IBV_EVENT_PORT_ERR, 1);
}

static void die_by_device(const struct verbs_world *world)
{
    (void)world;
    FAKE(fake_ibverbs_remove)("fake1");
}

/* ---- a transfer with a death in it ---- */

static struct gpusys_completion wait_one(struct gpusys_remote *remote)
{
    struct gpusys_completion completion = {0};
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, verbs_patience), 1);
    return completion;
}

static void turn(struct gpusys_remote *remote, int times)
{
    struct gpusys_completion completion;
    for (int i = 0; i < times; i++)
        assert_int_equal(gpusys_remote_poll(remote, &completion, 1), 0);
}

/* What makes a rail die: told to the library beforehand, or done when all that goes at once is under way. */
struct death {
    void (*plan)(void);
    void (*strike)(const struct verbs_world *world);
};

/* Until the log says so. */
static void await_death(struct gpusys_remote *remote)
{
    int64_t end = gpusys_deadline_after(verbs_patience);
    while (!play_log_has(" died: ") && gpusys_now_ns() < end)
        turn(remote, 1);
}

/* Everything, in one batch of pieces, and a death in the midst of it. */
static void move_all(struct verbs_world *world, uint32_t op, const struct death *death)
{
    enum { PIECE = 300 * 1000 + 7, PIECES = VERBS_MEMORY_BYTES / PIECE };
    struct gpusys_io ios[PIECES];
    uint32_t region = op == GPUSYS_OP_READ ? VERBS_READ_ONLY : VERBS_WRITABLE;
    const unsigned char *there = op == GPUSYS_OP_READ ? world->read_only : world->writable;
    static uint64_t seed;
    for (size_t i = 0; i < PIECES; i++)
        ios[i] = (struct gpusys_io){.op = op,
                                    .region = region,
                                    .offset = i * PIECE,
                                    .buffer = world->buffer + i * PIECE,
                                    .length = PIECE};
    play_noise(world->buffer, (size_t)PIECES * PIECE, ++seed);
    FAKE(fake_ibverbs_hold)(death && death->strike);
    if (death && death->plan)
        death->plan();
    assert_int_equal(gpusys_remote_submit(world->remote, ios, PIECES, NULL, NULL), 0);
    if (death && death->strike) {
        turn(world->remote, 3);
        death->strike(world);
        await_death(world->remote);
        FAKE(fake_ibverbs_hold)(0);
        FAKE(fake_ibverbs_release)(0);
    }
    struct gpusys_completion completion = wait_one(world->remote);
    if (completion.status)
        fail_msg("the batch ended with %d", completion.status);
    assert_int_equal(completion.flags, 0);
    assert_int_equal(completion.bytes, (uint64_t)PIECES * PIECE);
    assert_memory_equal(world->buffer, there, (size_t)PIECES * PIECE);
    assert_int_equal(gpusys_remote_wait(world->remote, &completion, 1, 0), -ENOENT); /* once */
}

static void check_death(struct death death, const char *words)
{
    struct verbs_world world;
    verbs_world_open(&world);
    move_all(&world, GPUSYS_OP_READ, NULL);
    move_all(&world, GPUSYS_OP_WRITE, NULL);
    uint64_t keyed = play_stats(world.peer).keyed_bytes;
    for (uint32_t op = GPUSYS_OP_READ; op <= GPUSYS_OP_WRITE; op++) {
        play_log_begin();
        move_all(&world, op, &death);
        assert_true(play_log_comes(" died: "));
        assert_true(!words || play_log_comes(words));
        verbs_await_rails(world.remote, 2);
        play_log_end();
        FAKE(fake_ibverbs_reset)();
    }
    move_all(&world, GPUSYS_OP_READ, NULL);
    assert_int_equal(play_stats(world.peer).keyed_bytes, keyed); /* its keys are good still */
    assert_true(play_stats(world.peer).rails_total >= 4);
    FAKE(fake_ibverbs_reset)();
    verbs_world_close(&world);
}

static void test_connection_ends(void **state)
{
    (void)state;
    check_death((struct death){.strike = die_by_connection}, "Connection reset by peer");
}

static void test_requests_fail(void **state)
{
    (void)state;
    check_death((struct death){.plan = die_by_request}, "retry");
    check_death((struct death){.plan = die_by_flush}, NULL);
    check_death((struct death){.plan = die_by_post}, "Cannot allocate memory");
}

static void test_queue_breaks(void **state)
{
    (void)state;
    check_death((struct death){.strike = die_by_poll}, "Input/output error");
    check_death((struct death){.strike = die_by_stray}, "Protocol error");
}

/* A device that says nothing at all, no completion and no error, is waited for ten seconds, and not for ever. */
static void test_silence(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_completion completion;
    struct gpusys_remote_options options = verbs_options();
    struct gpusys_io io = {.region = VERBS_READ_ONLY, .length = MIB};
    options.n_rails = 1;
    verbs_world_serve(&world, NULL, NULL);
    world.remote = verbs_remote(&world, &options);
    io.buffer = world.buffer;
    play_log_begin();
    FAKE(fake_ibverbs_hold)(1);
    assert_int_equal(gpusys_remote_submit(world.remote, &io, 1, NULL, NULL), 0);
    while (!play_log_has("no completion in 10 s, and no error either"))
        assert_int_equal(gpusys_remote_wait(world.remote, &completion, 1, 1000000000), -ETIMEDOUT);
    FAKE(fake_ibverbs_hold)(0);
    completion = wait_one(world.remote); /* over the rail that comes in its place */
    assert_int_equal(completion.status, 0);
    assert_memory_equal(world.buffer, world.read_only, MIB);
    play_log_end();
    FAKE(fake_ibverbs_reset)();
    verbs_world_close(&world);
}

/* A port that goes down takes its rail along; the other one has it all; and it comes back with the port. */
static void test_port_goes_down(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    for (uint32_t op = GPUSYS_OP_READ; op <= GPUSYS_OP_WRITE; op++) {
        play_log_begin();
        move_all(&world, op, &(struct death){.strike = die_by_port});
        play_log_end();
        verbs_await_rails(world.remote, 1);
        assert_false(verbs_rail(world.remote, 1).is_up);
        FAKE(fake_ibverbs_event)("fake1", IBV_EVENT_PORT_ACTIVE, 1);
        verbs_await_rails(world.remote, 2);
        move_all(&world, op, NULL);
    }
    FAKE(fake_ibverbs_reset)();
    verbs_world_close(&world);
}

/* A device that was pulled out does not; the session goes on without it. */
static void test_device_is_removed(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    play_log_begin();
    move_all(&world, GPUSYS_OP_READ, &(struct death){.strike = die_by_device});
    play_log_end();
    move_all(&world, GPUSYS_OP_WRITE, NULL);
    assert_int_equal(verbs_info(world.remote).n_rails, 1);
    assert_string_equal(verbs_rail(world.remote, 0).local_device, "fake0");
    verbs_world_close(&world);
}

/* With the last rail the session ends, soon, with an error, and not later than the attempts take. */
static void all_die(uint32_t op)
{
    struct verbs_world world;
    struct gpusys_completion completion;
    verbs_world_open(&world);
    FAKE(fake_ibverbs_hold)(1);
    struct gpusys_io io = {
        .op = op, .region = VERBS_WRITABLE, .buffer = world.buffer, .length = VERBS_MEMORY_BYTES};
    assert_int_equal(gpusys_remote_submit(world.remote, &io, 1, NULL, NULL), 0);
    turn(world.remote, 3);
    FAKE(fake_ibverbs_remove)("fake0");
    FAKE(fake_ibverbs_remove)("fake1");
    int64_t start = gpusys_now_ns();
    completion = wait_one(world.remote);
    assert_true(gpusys_now_ns() - start < 5 * play_second);
    assert_int_equal(completion.status, -ECONNRESET);
    assert_int_equal(completion.flags, op == GPUSYS_OP_WRITE ? GPUSYS_COMPLETION_REMOTE_UNDEFINED : 0);
    assert_int_equal(gpusys_remote_poll(world.remote, &completion, 1), -ENOTCONN);
    assert_int_equal(gpusys_remote_read(world.remote, 0, 0, world.buffer, 1, verbs_patience), -ENOTCONN);
    FAKE(fake_ibverbs_hold)(0);
    verbs_world_close(&world);
}

static void test_all_devices_are_removed(void **state)
{
    (void)state;
    all_die(GPUSYS_OP_READ);
    FAKE(fake_ibverbs_reset)();
    all_die(GPUSYS_OP_WRITE);
}

/* ---- deadlines ---- */

static void check_deadline(uint32_t op, bool registered)
{
    struct verbs_world world;
    struct gpusys_completion completion;
    verbs_world_open(&world);
    move_all(&world, GPUSYS_OP_READ, NULL);
    move_all(&world, GPUSYS_OP_WRITE, NULL);
    if (registered)
        assert_int_equal(gpusys_remote_register(world.remote, world.buffer, VERBS_MEMORY_BYTES, NULL), 0);
    memset(world.writable, 1, VERBS_MEMORY_BYTES);
    memset(world.buffer, 2, VERBS_MEMORY_BYTES);
    FAKE(fake_ibverbs_hold)(1);
    struct gpusys_io io = {
        .op = op, .region = VERBS_WRITABLE, .buffer = world.buffer, .length = VERBS_MEMORY_BYTES};
    struct gpusys_batch_options options = {.size = sizeof options, .timeout_ns = play_second / 4};
    int64_t start = gpusys_now_ns();
    assert_int_equal(gpusys_remote_submit(world.remote, &io, 1, &options, NULL), 0);
    completion = wait_one(world.remote);
    int64_t took = gpusys_now_ns() - start;
    assert_int_equal(completion.status, -ETIMEDOUT);
    assert_int_equal(completion.flags, op == GPUSYS_OP_WRITE ? GPUSYS_COMPLETION_REMOTE_UNDEFINED : 0);
    assert_true(took >= play_second / 4 && took < 5 * play_second);
    /* The buffer is ours again: nothing comes late, and nothing leaves it. */
    FAKE(fake_ibverbs_hold)(0);
    assert_int_equal(FAKE(fake_ibverbs_release)(0), 0);
    memset(world.buffer, 3, VERBS_MEMORY_BYTES);
    verbs_await_rails(world.remote, 2);
    for (size_t i = 0; i < VERBS_MEMORY_BYTES; i++)
        assert_true(world.buffer[i] == 3 && world.writable[i] == 1);
    move_all(&world, GPUSYS_OP_READ, NULL);
    verbs_world_close(&world);
}

static void test_deadlines(void **state)
{
    (void)state;
    check_deadline(GPUSYS_OP_READ, false);
    check_deadline(GPUSYS_OP_READ, true);
    check_deadline(GPUSYS_OP_WRITE, false);
    check_deadline(GPUSYS_OP_WRITE, true);
}

/* One that passes again and again is no reason to give the rails up. */
static void test_many_deadlines(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    for (int i = 0; i < 12; i++) {
        FAKE(fake_ibverbs_hold)(1);
        assert_int_equal(gpusys_remote_read(world.remote, VERBS_READ_ONLY, 0, world.buffer, MIB, 1000000),
                         -ETIMEDOUT);
        FAKE(fake_ibverbs_hold)(0);
        verbs_await_rails(world.remote, 2);
    }
    move_all(&world, GPUSYS_OP_READ, NULL);
    verbs_world_close(&world);
}

/* A deadline that passes while the keys are still to come harms nobody: they come, and the next read finds them. */
static void test_deadline_before_the_keys(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    for (int i = 0; i < 1000; i++) {
        int result = gpusys_remote_read(world.remote, VERBS_READ_ONLY, 0, world.buffer, 8, 0);
        if (result == 0)
            break;
        assert_int_equal(result, -ETIMEDOUT);
        usleep(1000);
    }
    assert_int_equal(gpusys_remote_read(world.remote, VERBS_READ_ONLY, 0, world.buffer, 8, play_second), 0);
    move_all(&world, GPUSYS_OP_READ, NULL);
    verbs_world_close(&world);
}

/* ---- every call fails once ---- */

/* Opening a remote, and with it the peer's end of every rail. */
static void test_every_call_of_opening(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_serve(&world, NULL, NULL);
    FAKE(fake_ibverbs_reset)();
    int64_t served = FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS);
    gpusys_remote_close(verbs_remote(&world, NULL));
    int64_t calls = FAKE(fake_ibverbs_calls)("*");
    assert_true(verbs_live_comes(served));
    unsigned failed = 0, fewer = 0;
    assert_true(calls > 20);
    for (unsigned nth = 1; nth <= calls; nth++) {
        struct gpusys_remote_options options = verbs_options();
        struct gpusys_remote *remote = NULL;
        struct gpusys_error error = {0};
        FAKE(fake_ibverbs_reset)();
        FAKE(fake_ibverbs_on)("*", nth, FAKE_IBVERBS_FAIL, ENOMEM);
        int result = gpusys_remote_open(&remote, gpusys_peer_address(world.peer), &options, &error);
        FAKE(fake_ibverbs_reset)();
        if (result) {
            failed++;
            assert_null(remote);
            assert_true(error.message[0]);
        } else {
            fewer += verbs_info(remote).n_rails < 2;
            assert_int_equal(gpusys_remote_list(remote, verbs_patience, NULL, NULL), 0);
            assert_int_equal(gpusys_remote_read(remote, 0, 3, world.buffer, 70000, verbs_patience), 0);
            assert_memory_equal(world.buffer, world.read_only + 3, 70000);
        }
        gpusys_remote_close(remote);
        assert_true(play_until(verbs_nothing_keyed, world.peer));
        if (!verbs_live_comes(served))
            fail_msg("after call %u has failed", nth);
    }
    assert_true(fewer > 10); /* most of them cost no more than a rail */
    assert_true(failed < calls / 2);
    verbs_world_close(&world);
}

static void test_every_call_of_serving(void **state)
{
    (void)state;
    const char *devices[] = {"fake0", "fake1"};
    struct gpusys_peer_options options = {
        .size = sizeof options, .listen = "127.0.0.1:0", .devices = devices, .n_devices = 2};
    FAKE(fake_ibverbs_reset)();
    gpusys_peer_close(play_peer(&options));
    int64_t calls = FAKE(fake_ibverbs_calls)("*");
    for (unsigned nth = 1; nth <= calls; nth++) {
        struct gpusys_peer *peer = NULL;
        struct gpusys_error error = {0};
        FAKE(fake_ibverbs_reset)();
        FAKE(fake_ibverbs_on)("*", nth, FAKE_IBVERBS_FAIL, EIO);
        int result = gpusys_peer_open(&peer, &options, &error);
        assert_int_equal(result == 0, peer != NULL);
        assert_int_equal(result != 0, error.message[0] != 0);
        gpusys_peer_close(peer);
        assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS), 0);
    }
}

/* The calls behind a first transfer: it ends well over what is left, or with an error, and never hangs. */
static void test_every_call_of_moving(void **state)
{
    (void)state;
    int64_t calls = 1000;
    for (unsigned nth = 1; nth <= calls; nth++) {
        struct verbs_world world;
        verbs_world_open(&world);
        FAKE(fake_ibverbs_reset)();
        FAKE(fake_ibverbs_on)("*", nth, FAKE_IBVERBS_FAIL, ENOMEM);
        int result = gpusys_remote_read(world.remote, VERBS_READ_ONLY, 0, world.buffer, VERBS_MEMORY_BYTES,
                                        verbs_patience);
        if (result == 0)
            assert_memory_equal(world.buffer, world.read_only, VERBS_MEMORY_BYTES);
        else if (result != -EDQUOT) /* the peer could not register it */
            fail_msg("call %u failing gives %d", nth, result);
        if (nth == 1) {
            FAKE(fake_ibverbs_reset)();
            assert_int_equal(gpusys_remote_read(world.remote, VERBS_WRITABLE, 0, world.buffer,
                                                VERBS_MEMORY_BYTES, verbs_patience),
                             0);
            calls = FAKE(fake_ibverbs_calls)("*");
            calls = calls < 60 ? calls : 60;
        }
        FAKE(fake_ibverbs_reset)();
        verbs_world_close(&world);
    }
}

/* ---- the server is killed ---- */

static unsigned exit_at;

static void fill_and_exit(struct gpusys_peer *peer)
{
    void *address;
    PLAY_CHECK(gpusys_peer_add_memory(peer, "memory", 2 * MIB, 3, &address, NULL) == 0);
    play_noise(address, 2 * MIB, 3);
    FAKE(fake_ibverbs_on)("*", exit_at, FAKE_IBVERBS_EXIT, 9);
}

/* One visit of a client; false: the server lived through it. */
static bool visit(const char *address, unsigned char *buffer, const unsigned char *expected)
{
    struct gpusys_remote_options options = verbs_options();
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error = {0};
    options.timeout_ns = 10 * play_second;
    int64_t start = gpusys_now_ns();
    int result = gpusys_remote_open(&remote, address, &options, &error);
    assert_int_equal(result != 0, error.message[0] != 0);
    if (!result)
        result = gpusys_remote_list(remote, verbs_patience, NULL, NULL);
    if (!result) {
        memset(buffer, 0, 2 * MIB);
        result = gpusys_remote_read(remote, 0, 0, buffer, 2 * MIB, verbs_patience);
        if (!result)
            assert_memory_equal(buffer, expected, 2 * MIB);
    }
    if (!result)
        result = gpusys_remote_write(remote, 0, 0, buffer, 2 * MIB, verbs_patience);
    if (gpusys_now_ns() - start > 9 * play_second)
        fail_msg("a killed server was noticed after %lld ms",
                 (long long)((gpusys_now_ns() - start) / 1000000));
    gpusys_remote_close(remote);
    return result != 0;
}

static void test_server_killed_at_each_call(void **state)
{
    (void)state;
    unsigned char *buffer = malloc(2 * MIB), *expected = malloc(2 * MIB);
    bool died = true;
    play_noise(expected, 2 * MIB, 3);
    for (exit_at = 1; exit_at < 200 && died; exit_at++) {
        struct play_child child = {0};
        play_child_start(&child, NULL, fill_and_exit);
        died = visit(child.address, buffer, expected);
        play_child_stop(&child);
        assert_true(verbs_live_comes(0));
    }
    assert_false(died);
    assert_true(exit_at > 10); /* that many calls there are */
    free(buffer);
    free(expected);
}

static void fill_memory(struct gpusys_peer *peer)
{
    void *address;
    PLAY_CHECK(gpusys_peer_add_memory(peer, "memory", 2 * MIB, 3, &address, NULL) == 0);
}

/* Killed with requests under way, which hang: the end of the connections is enough. */
static void test_server_killed_under_way(void **state)
{
    (void)state;
    struct play_child child = {0};
    struct gpusys_completion completion;
    struct gpusys_remote *remote;
    char *buffer = malloc(2 * MIB);
    play_child_start(&child, NULL, fill_memory);
    struct gpusys_remote_options options = verbs_options();
    assert_int_equal(gpusys_remote_open(&remote, child.address, &options, NULL), 0);
    assert_int_equal(gpusys_remote_list(remote, verbs_patience, NULL, NULL), 0);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, buffer, 2 * MIB, verbs_patience), 0);
    FAKE(fake_ibverbs_hold)(1);
    struct gpusys_io io = {.op = GPUSYS_OP_READ, .buffer = buffer, .length = 2 * MIB};
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, NULL, NULL), 0);
    turn(remote, 3);
    play_child_signal(&child, SIGKILL);
    int64_t start = gpusys_now_ns();
    completion = wait_one(remote);
    assert_int_equal(completion.status, -ECONNRESET);
    assert_true(gpusys_now_ns() - start < 9 * play_second);
    FAKE(fake_ibverbs_hold)(0);
    gpusys_remote_close(remote);
    play_child_stop(&child);
    free(buffer);
}

static int share_devices(void **state)
{
    (void)state;
    char path[256];
    fake_file("shared/here", "");
    fake_path(path, "shared");
    return setenv("FAKE_IBVERBS_DIR", path, 1);
}

int main(int argc, char **argv)
{
    static const char two_ports[] = "device fake0\nport 1\ngid 3 127.0.0.1 roce2 lo\n"
                                    "device fake1\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    const struct CMUnitTest deaths[] = {
        VERBS_TEST(test_connection_ends),
        VERBS_TEST(test_requests_fail),
        VERBS_TEST(test_queue_breaks),
        VERBS_TEST(test_silence),
        VERBS_TEST(test_port_goes_down),
        VERBS_TEST(test_device_is_removed),
        VERBS_TEST(test_all_devices_are_removed),
    };
    const struct CMUnitTest deadlines[] = {
        VERBS_TEST(test_deadlines),
        VERBS_TEST(test_many_deadlines),
        VERBS_TEST(test_deadline_before_the_keys),
    };
    const struct CMUnitTest calls[] = {
        VERBS_TEST(test_every_call_of_opening),
        VERBS_TEST(test_every_call_of_serving),
        VERBS_TEST(test_every_call_of_moving),
    };
    const struct CMUnitTest kills[] = {
        cmocka_unit_test_setup_teardown(test_server_killed_at_each_call, share_devices, verbs_clean),
        cmocka_unit_test_setup_teardown(test_server_killed_under_way, share_devices, verbs_clean),
    };
    const struct verbs_group groups[] = {
        {"deaths", two_ports, deaths, COUNT_OF(deaths)},
        {"deadlines", two_ports, deadlines, COUNT_OF(deadlines)},
        {"calls", two_ports, calls, COUNT_OF(calls)},
        {"kills", two_ports, kills, COUNT_OF(kills)},
    };
    return verbs_groups_run(groups, COUNT_OF(groups), argc > 1 ? argv[1] : NULL);
}
