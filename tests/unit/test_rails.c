/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rails that die under load, and peers that do what an honest one would not. */
#include "remote_play.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

static const int64_t patience = 20000000000;

enum { MEMORY_BYTES = 64 * MIB, RAILS = 3 };

/* ---- this process' sockets to a peer in it ---- */

static unsigned port_of_address(const char *address)
{
    return (unsigned)atoi(strrchr(address, ':') + 1);
}

static unsigned port_at(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in at = {0};
    socklen_t size = sizeof at;
    return name(fd, (struct sockaddr *)&at, &size) == 0 && at.sin_family == AF_INET ? ntohs(at.sin_port) : 0;
}

/* The client's ends, in the order in which they were made; the first one is the control stream's. */
static unsigned client_ends(unsigned port, int fds[64])
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        if (port_at(fd, getpeername) == port && count < 64)
            fds[count++] = fd;
    return count;
}

static void stop_listening(unsigned port)
{
    for (int fd = 0; fd < 256; fd++) {
        int listens = 0;
        socklen_t size = sizeof listens;
        if (port_at(fd, getsockname) == port &&
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens)
            shutdown(fd, SHUT_RDWR);
    }
}

struct world {
    struct gpusys_peer *peer;
    unsigned port;
    unsigned char *memory, *buffer;
    struct gpusys_remote *remote;
    int control;
};

static void world_open(struct world *world, unsigned rails)
{
    void *address;
    int fds[64];
    world->peer = play_peer(NULL);
    assert_int_equal(gpusys_peer_add_memory(world->peer, "memory", MEMORY_BYTES, 3, &address, NULL), 0);
    world->memory = address;
    world->buffer = malloc(MEMORY_BYTES);
    for (uint64_t i = 0; i < MEMORY_BYTES; i += 8)
        memcpy(world->memory + i, &i, 8);
    assert_int_equal(gpusys_peer_start(world->peer, NULL), 0);
    world->port = port_of_address(gpusys_peer_address(world->peer));
    world->remote = play_remote(gpusys_peer_address(world->peer), GPUSYS_TRANSPORT_TCP, rails);
    assert_int_equal(gpusys_remote_list(world->remote, patience, NULL, NULL), 0);
    assert_int_equal(client_ends(world->port, fds), rails + 1);
    world->control = fds[0];
}

static void world_close(struct world *world)
{
    gpusys_remote_close(world->remote);
    gpusys_peer_close(world->peer);
    free(world->buffer);
}

/* Cut one rail, or all of them. */
static void cut(struct world *world, bool all, unsigned which)
{
    int fds[64];
    unsigned count = client_ends(world->port, fds), seen = 0;
    for (unsigned i = 0; i < count; i++)
        if (fds[i] != world->control && (all || seen++ == which))
            shutdown(fds[i], SHUT_RDWR);
}

static unsigned rails_up(struct world *world)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_info(world->remote, &info), 0);
    return info.n_rails;
}

/* All rails are there again; they come back while the engine is driven. */
static void await_rails(struct world *world, unsigned wanted)
{
    int64_t end = gpusys_deadline_after(patience);
    while (rails_up(world) != wanted) {
        assert_true(gpusys_now_ns() < end);
        struct pollfd poll_fd = {.fd = gpusys_remote_fd(world->remote), .events = POLLIN};
        poll(&poll_fd, 1, 10);
        assert_true(gpusys_remote_poll(world->remote, &(struct gpusys_completion){0}, 1) >= 0);
    }
}

/* One batch over everything in pieces, with rails cut again and again until it is through. */
static void move_with_cuts(struct world *world, uint32_t op, bool all)
{
    enum { PIECE = 512 * 1024 + 8, PIECES = MEMORY_BYTES / PIECE };
    struct gpusys_io *ios = calloc(PIECES, sizeof *ios);
    struct gpusys_completion completion;
    unsigned cuts = 0;
    for (uint64_t i = 0; i < PIECES; i++)
        ios[i] = (struct gpusys_io){
            .op = op, .offset = i * PIECE, .buffer = world->buffer + i * PIECE, .length = PIECE};
    assert_int_equal(gpusys_remote_submit(world->remote, ios, PIECES, NULL, NULL), 0);
    cut(world, all, cuts++ % RAILS); /* now, with everything under way; and again when all rails are back */
    for (int turn = 0;; turn++) {
        int count = gpusys_remote_wait(world->remote, &completion, 1, cuts < 3 ? 0 : patience);
        if (count == 1)
            break;
        assert_int_equal(count, -ETIMEDOUT);
        if (turn % 4 == 3 && rails_up(world) == RAILS && cuts < 3)
            cut(world, all, cuts++ % RAILS);
    }
    assert_int_equal(completion.status, 0);
    assert_int_equal(completion.flags, 0);
    assert_int_equal(completion.bytes, (uint64_t)PIECES * PIECE);
    assert_memory_equal(world->buffer, world->memory, (size_t)PIECES * PIECE);
    free(ios);
    await_rails(world, RAILS);
}

static void test_reads_survive(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, RAILS);
    for (int all = 0; all < 2; all++) {
        memset(world.buffer, 0xee, MEMORY_BYTES);
        move_with_cuts(&world, GPUSYS_OP_READ, all);
    }
    assert_int_equal(play_stats(world.peer).clients, 1);
    world_close(&world);
}

static void test_writes_survive(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, RAILS);
    for (int all = 0; all < 2; all++) {
        for (uint64_t i = 0; i < MEMORY_BYTES; i += 8) {
            uint64_t value = i * 3 + (uint64_t)all;
            memcpy(world.buffer + i, &value, 8);
        }
        move_with_cuts(&world, GPUSYS_OP_WRITE, all);
    }
    world_close(&world);
}

/* Rails cut while nothing moves are missed at the next use, at the latest. */
static void test_cut_while_idle(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    cut(&world, true, 0);
    assert_int_equal(gpusys_remote_read(world.remote, 0, 0, world.buffer, MIB, patience), 0);
    assert_memory_equal(world.buffer, world.memory, MIB);
    await_rails(&world, 2);
    world_close(&world);
}

/* The control stream is there, but no rail comes back: an error, soon, and not a wait for ever. */
static void all_cut_for_good(bool by_descriptor, uint32_t op)
{
    struct world world;
    struct gpusys_completion completion;
    world_open(&world, 2);
    struct gpusys_io io = {.op = op, .buffer = world.buffer, .length = MEMORY_BYTES};
    int fd = by_descriptor ? gpusys_remote_fd(world.remote) : -1;
    assert_int_equal(gpusys_remote_submit(world.remote, &io, 1, NULL, NULL), 0);
    stop_listening(world.port);
    cut(&world, true, 0);
    int64_t start = gpusys_now_ns();
    int count = by_descriptor ? 0 : gpusys_remote_wait(world.remote, &completion, 1, patience);
    while (count == 0) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, 20000), 1);
        count = gpusys_remote_poll(world.remote, &completion, 1);
    }
    assert_int_equal(count, 1);
    assert_int_equal(completion.status, -ECONNRESET);
    assert_int_equal(completion.flags, op == GPUSYS_OP_WRITE ? GPUSYS_COMPLETION_REMOTE_UNDEFINED : 0);
    assert_true(gpusys_now_ns() - start < 2 * play_second);
    assert_int_equal(gpusys_remote_read(world.remote, 0, 0, world.buffer, 1, patience), -ENOTCONN);
    world_close(&world);
}

static void test_all_cut_for_good(void **state)
{
    (void)state;
    all_cut_for_good(false, GPUSYS_OP_READ);
    all_cut_for_good(true, GPUSYS_OP_READ);
    all_cut_for_good(false, GPUSYS_OP_WRITE);
}

/* A newer generation takes the place of a rail whose end the peer has not heard of; an older one is refused. */
static void test_generations(void **state)
{
    (void)state;
    struct gpusys_peer *peer = play_peer(NULL);
    char byte;
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    struct play_raw *raw = play_raw_open(gpusys_peer_address(peer), NULL);
    int first = play_raw_rail(raw, gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 1, 5);
    assert_true(first >= 0);
    assert_true(play_raw_rail(raw, gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 1, 5) < 0);
    assert_true(play_raw_rail(raw, gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 1, 4) < 0);
    int second = play_raw_rail(raw, gpusys_peer_address(peer), GPUSYS_TRANSPORT_TCP, 1, 6);
    assert_true(second >= 0);
    assert_int_equal(play_receive(first, &byte, 1), -ECONNRESET);
    close(first);
    close(second);
    play_raw_close(raw);
    gpusys_peer_close(peer);
}

/* ---- peers by hand ---- */

struct scene {
    struct play_mock mock;
    void (*play)(struct scene *scene);
    pthread_t thread;
    atomic_int replayed_early;
};

static void *scene_main(void *argument)
{
    struct scene *scene = argument;
    scene->play(scene);
    return NULL;
}

static void scene_start(struct scene *scene, void (*play)(struct scene *scene))
{
    play_mock_open(&scene->mock);
    scene->play = play;
    assert_int_equal(pthread_create(&scene->thread, NULL, scene_main, scene), 0);
}

static void scene_end(struct scene *scene)
{
    pthread_join(scene->thread, NULL);
    play_mock_close(&scene->mock);
}

static void send_reply(int fd, enum gs_status status, uint32_t length, uint32_t tag)
{
    struct gs_reply reply = {.status = (uint8_t)status, .length = length, .tag = tag};
    unsigned char bytes[GS_REPLY_BYTES];
    gs_reply_put(bytes, &reply);
    play_send(fd, bytes, sizeof bytes);
}

static void take_request(int fd, struct gs_request *request)
{
    unsigned char bytes[GS_REQUEST_BYTES];
    PLAY_CHECK(play_receive(fd, bytes, sizeof bytes) == 0 && gs_request_get(bytes, request) == 0);
}

static bool has_input(int fd, int milliseconds)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, milliseconds) == 1;
}

/* A rail dies inside a write: the write must not be sent again before the peer has said FENCED. */
static void play_fence(struct scene *scene)
{
    struct play_mock *mock = &scene->mock;
    struct gs_request request;
    struct gs_fence fence;
    struct gs_bytes out = {0};
    unsigned char payload[64 * KIB];
    play_mock_control(mock, NULL);
    int rails[2] = {play_mock_rail(mock, mock->listener, NULL), play_mock_rail(mock, mock->listener, NULL)};
    play_mock_ready(mock);
    play_mock_table(mock, 3, GPUSYS_PLACE_MEMORY, MIB);
    int with = has_input(rails[0], 20000) ? 0 : 1;
    take_request(rails[with], &request);
    PLAY_CHECK(request.op == GPUSYS_OP_WRITE && request.length == sizeof payload);
    PLAY_CHECK(play_receive(rails[with], payload, 100) == 0);
    close(rails[with]);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == 0 && mock->frame.type == GS_FENCE);
    PLAY_CHECK(gs_fence_decode(mock->body, mock->frame.body_bytes, &fence) == 0);
    PLAY_CHECK(fence.rail == with && fence.generation == 1);
    atomic_store(&scene->replayed_early, has_input(rails[!with], 200) || has_input(mock->listener, 0));
    gs_empty_encode(&out, GS_FENCED, mock->frame.serial);
    play_send_bytes(mock->control, &out);
    take_request(rails[!with], &request);
    PLAY_CHECK(request.op == GPUSYS_OP_WRITE && request.offset == 5 && request.length == sizeof payload);
    PLAY_CHECK(play_receive(rails[!with], payload, sizeof payload) == 0);
    for (size_t i = 0; i < sizeof payload; i++)
        PLAY_CHECK(payload[i] == (unsigned char)i);
    send_reply(rails[!with], GS_STATUS_OK, request.length, request.tag);
    struct gs_attach attach; /* and now it comes back, as the next generation */
    int back = play_mock_rail(mock, mock->listener, &attach);
    PLAY_CHECK(attach.rail == with && attach.generation == 2);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == -ECONNRESET);
    close(back);
    close(rails[!with]);
}

static void test_fence(void **state)
{
    (void)state;
    struct scene scene = {0};
    unsigned char payload[64 * KIB];
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (unsigned char)i;
    scene_start(&scene, play_fence);
    struct world world = {.remote = play_mock_remote(&scene.mock, GPUSYS_TRANSPORT_TCP, 2)};
    assert_int_equal(gpusys_remote_write(world.remote, 0, 5, payload, sizeof payload, patience), 0);
    await_rails(&world, 2);
    gpusys_remote_close(world.remote);
    scene_end(&scene);
    assert_int_equal(atomic_load(&scene.replayed_early), 0);
}

/* Answers to what was not asked: NOTED with serial 0, a reply to a request that has not gone out. */
static void play_noted(struct scene *scene)
{
    struct play_mock *mock = &scene->mock;
    struct gs_bytes out = {0};
    play_mock_control(mock, NULL);
    int rail = play_mock_rail(mock, mock->listener, NULL);
    play_mock_ready(mock);
    play_mock_table(mock, 3, GPUSYS_PLACE_MEMORY, 64 * MIB);
    PLAY_CHECK(has_input(rail, 20000));
    gs_empty_encode(&out, GS_NOTED, 0);
    play_send_bytes(mock->control, &out);
    shutdown(mock->control, SHUT_WR);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == -ECONNRESET);
    close(rail);
}

static void play_early_reply(struct scene *scene)
{
    struct play_mock *mock = &scene->mock;
    play_mock_control(mock, NULL);
    int rail = play_mock_rail(mock, mock->listener, NULL);
    play_mock_ready(mock);
    play_mock_table(mock, 3, GPUSYS_PLACE_MEMORY, 64 * MIB);
    PLAY_CHECK(has_input(rail, 20000)); /* the first write fills the socket; the others wait in the rail */
    for (uint32_t tag = 63; tag > 0; tag--)
        send_reply(rail, GS_STATUS_OK, 4 * MIB, tag);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == 0 && mock->frame.type == GS_FENCE);
    shutdown(mock->control, SHUT_RDWR);
    close(rail);
}

static void check_broken_off(void (*play)(struct scene *scene))
{
    struct scene scene = {0};
    struct gpusys_completion completion;
    unsigned char *buffer = malloc(64 * MIB);
    memset(buffer, 1, 64 * MIB);
    scene_start(&scene, play);
    struct gpusys_remote *remote = play_mock_remote(&scene.mock, GPUSYS_TRANSPORT_TCP, 1);
    struct gpusys_io io = {.op = GPUSYS_OP_WRITE, .buffer = buffer, .length = 64 * MIB};
    assert_int_equal(gpusys_remote_submit(remote, &io, 1, NULL, NULL), 0);
    assert_int_equal(gpusys_remote_wait(remote, &completion, 1, patience), 1);
    assert_int_equal(completion.status, -ECONNRESET);
    assert_int_equal(completion.flags, GPUSYS_COMPLETION_REMOTE_UNDEFINED);
    assert_int_equal(gpusys_remote_poll(remote, &completion, 1), -ENOTCONN);
    gpusys_remote_close(remote);
    scene_end(&scene);
    free(buffer);
}

static void test_unasked_answers(void **state)
{
    (void)state;
    check_broken_off(play_noted);
    check_broken_off(play_early_reply);
}

/* A flood of pings neither keeps a call from its deadline nor passes for its answer. */
static void play_flood(struct scene *scene)
{
    struct play_mock *mock = &scene->mock;
    play_mock_control(mock, NULL);
    int rail = play_mock_rail(mock, mock->listener, NULL);
    play_mock_ready(mock);
    play_mock_table(mock, 3, GPUSYS_PLACE_MEMORY, MIB);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == 0 && mock->frame.type == GS_PING);
    uint64_t serial = mock->frame.serial;
    unsigned char waste[4096];
    for (;;) {
        struct gs_bytes out = {0};
        for (int i = 0; i < 100; i++)
            gs_empty_encode(&out, GS_PING, serial);
        ssize_t count = send(mock->control, out.data, gs_bytes_queued(&out), MSG_NOSIGNAL);
        gs_bytes_free(&out);
        if (count < 0)
            break;
        while (recv(mock->control, waste, sizeof waste, MSG_DONTWAIT) > 0)
            ;
    }
    close(rail);
}

static void test_flood(void **state)
{
    (void)state;
    struct scene scene = {0};
    scene_start(&scene, play_flood);
    struct gpusys_remote *remote = play_mock_remote(&scene.mock, GPUSYS_TRANSPORT_TCP, 1);
    assert_int_equal(gpusys_remote_ping(remote, play_second / 5), -ETIMEDOUT);
    gpusys_remote_close(remote);
    scene_end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_survive),   cmocka_unit_test(test_writes_survive),
        cmocka_unit_test(test_cut_while_idle),  cmocka_unit_test(test_all_cut_for_good),
        cmocka_unit_test(test_generations),     cmocka_unit_test(test_fence),
        cmocka_unit_test(test_unasked_answers), cmocka_unit_test(test_flood),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
