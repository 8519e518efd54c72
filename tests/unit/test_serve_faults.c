/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Clients that break the rules, stall or come in crowds: they are refused and logged, and nobody else notices. */
#include "remote_play.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const int64_t patience = 20000000000;

enum { MEMORY_BYTES = MIB };

struct world {
    struct gpusys_peer *peer;
    unsigned char *memory;
    const char *address;
};

static void world_open(struct world *world, const struct gpusys_peer_options *options)
{
    void *address;
    world->peer = play_peer(options);
    assert_int_equal(gpusys_peer_add_memory(world->peer, "memory", MEMORY_BYTES, 3, &address, NULL), 0);
    world->memory = address;
    play_noise(world->memory, MEMORY_BYTES, 5);
    assert_int_equal(gpusys_peer_add_memory(world->peer, "readonly", 4096, 1, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_start(world->peer, NULL), 0);
    world->address = gpusys_peer_address(world->peer);
    play_log_begin();
}

static void world_close(struct world *world)
{
    gpusys_peer_close(world->peer);
    play_log_end();
}

/* Somebody who behaves is served. */
static void check_served(struct world *world)
{
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        unsigned char *bytes = malloc(MEMORY_BYTES);
        struct gpusys_remote *remote = play_remote(world->address, both_transports[i], 2);
        assert_int_equal(gpusys_remote_list(remote, patience, NULL, NULL), 0);
        assert_int_equal(gpusys_remote_read(remote, 0, 0, bytes, MEMORY_BYTES, patience), 0);
        assert_memory_equal(bytes, world->memory, MEMORY_BYTES);
        gpusys_remote_close(remote);
        free(bytes);
    }
}

static void assert_ended(int fd)
{
    char waste[4096];
    ssize_t count;
    do
        count = recv(fd, waste, sizeof waste, 0);
    while (count > 0);
    assert_true(count == 0 || errno == ECONNRESET || errno == EPIPE);
    close(fd);
}

static bool nobody(void *peer)
{
    return play_stats(peer).clients == 0;
}

/* ---- openings ---- */

static void put_frame(unsigned char *at, uint32_t body_bytes, uint16_t type, uint16_t zero, uint64_t serial)
{
    gs_put_u32(&at, body_bytes);
    gs_put_u16(&at, type);
    gs_put_u16(&at, zero);
    gs_put_u64(&at, serial);
}

static void test_garbage(void **state)
{
    (void)state;
    struct world world;
    unsigned char bytes[4096];
    world_open(&world, NULL);
    int fd = play_connect(world.address);
    play_send(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    assert_ended(fd);
    assert_true(play_log_comes("not gpusys/1"));
    assert_true(play_log_has("127.0.0.1:"));
    for (uint64_t seed = 0; seed < 20; seed++) {
        fd = play_connect(world.address);
        play_noise(bytes, sizeof bytes, seed);
        if (seed % 2)
            memcpy(bytes, GS_MAGIC, GS_MAGIC_BYTES);
        play_send(fd, bytes, sizeof bytes);
        assert_ended(fd);
    }
    memcpy(bytes, GS_MAGIC,
           GS_MAGIC_BYTES); /* a message above the bound: not waited for, and no memory for it */
    put_frame(bytes + 8, GS_BODY_MAX + 1, GS_HELLO, 0, 1);
    fd = play_connect(world.address);
    play_send(fd, bytes, 24);
    assert_ended(fd);
    put_frame(bytes + 8, 0, GS_LIST, 0, 1); /* not a way to begin */
    fd = play_connect(world.address);
    play_send(fd, bytes, 24);
    assert_ended(fd);
    assert_true(play_log_comes("neither HELLO nor ATTACH"));
    assert_true(play_stats(world.peer).refused_total >= 20);
    assert_int_equal(play_stats(world.peer).clients_total, 0);
    check_served(&world);
    world_close(&world);
}

static void test_half_a_message(void **state)
{
    (void)state;
    struct world world;
    struct gpusys_peer_options options = {
        .size = sizeof options, .step_timeout_ns = play_second, .threads = 1};
    unsigned char bytes[24];
    world_open(&world, &options);
    memcpy(bytes, GS_MAGIC, GS_MAGIC_BYTES);
    put_frame(bytes + 8, 100, GS_HELLO, 0, 1);
    int fds[4];
    size_t lengths[] = {0, 3, 15, 24};
    for (size_t i = 0; i < COUNT_OF(fds); i++) {
        fds[i] = play_connect(world.address);
        play_send(fds[i], bytes, lengths[i]);
    }
    check_served(&world); /* meanwhile */
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        assert_ended(fds[i]);
    assert_true(play_log_comes("opening in time"));
    assert_int_equal(play_stats(world.peer).refused_total, 4);
    world_close(&world);
}

static void test_version(void **state)
{
    (void)state;
    struct world world;
    uint8_t cookie[GS_COOKIE_BYTES];
    world_open(&world, NULL);
    play_cookie(world.address, cookie);
    struct play_raw *raw = calloc(1, sizeof *raw);
    struct gs_bytes out = {0};
    struct gs_hello hello = {.version = 0, .name = gs_text_of("old")};
    struct gs_refused refused;
    memcpy(hello.cookie, cookie, sizeof hello.cookie);
    memcpy(gs_bytes_grow(&out, GS_MAGIC_BYTES), GS_MAGIC, GS_MAGIC_BYTES);
    assert_int_equal(gs_hello_encode(&out, 33, &hello), 0);
    raw->fd = play_connect(world.address);
    play_send_bytes(raw->fd, &out);
    assert_int_equal(play_raw_frame(raw), 0);
    assert_int_equal(raw->frame.type, GS_REFUSED);
    assert_int_equal(raw->frame.serial, 33);
    assert_int_equal(gs_refused_decode(raw->body, raw->frame.body_bytes, &refused), 0);
    assert_int_equal(refused.refusal, GS_REFUSED_VERSION);
    assert_memory_equal(refused.reason.at, "this peer speaks gpusys/1", 25);
    play_raw_close(raw);
    world_close(&world);
}

static void test_max_clients(void **state)
{
    (void)state;
    struct world world;
    struct gpusys_error error = {0};
    struct gpusys_remote *third = NULL;
    struct gpusys_peer_options options = {.size = sizeof options, .max_clients = 2};
    world_open(&world, &options);
    struct gpusys_remote *first = play_remote(world.address, 0, 0),
                         *second = play_remote(world.address, 0, 0);
    assert_int_equal(gpusys_remote_open(&third, world.address, NULL, &error), -EBUSY);
    assert_non_null(strstr(error.message, "2 clients are connected"));
    assert_int_equal(error.domain, GPUSYS_DOMAIN_PEER);
    assert_int_equal(error.foreign, GS_REFUSED_BUSY);
    gpusys_remote_close(first);
    gpusys_remote_close(second);
    assert_true(play_until(nobody, world.peer));
    check_served(&world);
    world_close(&world);
}

/* ---- requests ---- */

static enum gs_status ask(int rail, uint32_t op, uint32_t region, uint64_t offset, uint32_t length,
                          void *payload)
{
    static uint32_t tag;
    unsigned char bytes[GS_REQUEST_BYTES], head[GS_REPLY_BYTES];
    struct gs_request request = {
        .op = (uint8_t)op, .region = region, .offset = offset, .length = length, .tag = ++tag};
    struct gs_reply reply;
    gs_request_put(bytes, &request);
    play_send(rail, bytes, sizeof bytes);
    if (op == GPUSYS_OP_WRITE)
        play_send(rail, payload, length);
    assert_int_equal(play_receive(rail, head, sizeof head), 0);
    assert_int_equal(gs_reply_get(head, &reply), 0);
    assert_int_equal(reply.tag, tag);
    assert_int_equal(reply.length, reply.status == GS_STATUS_OK ? length : 0);
    if (op == GPUSYS_OP_READ)
        assert_int_equal(play_receive(rail, payload, reply.length), 0);
    return (enum gs_status)reply.status;
}

static void test_requests(void **state)
{
    (void)state;
    struct world world;
    unsigned char *bytes = malloc(2 * MIB), *before = malloc(MEMORY_BYTES);
    mkdir(play_path("folder"), 0755);
    world_open(&world, NULL);
    assert_int_equal(gpusys_peer_add_path(world.peer, play_path("folder"), 0, NULL, NULL), 0);
    memcpy(before, world.memory, MEMORY_BYTES);
    memset(bytes, 0x99, 2 * MIB);
    struct play_raw *raw = play_raw_open(world.address, NULL);
    int rail = play_raw_rail(raw, world.address, GPUSYS_TRANSPORT_TCP, 0, 1);
    assert_true(rail >= 0);
    assert_int_equal(ask(rail, 0, 0, MEMORY_BYTES, 1, bytes), GS_STATUS_RANGE);
    assert_true(play_log_comes("127.0.0.1:"));
    assert_true(play_log_has("refused: a read of 1 bytes at 1048576 of \"memory\", which has 1048576"));
    assert_int_equal(ask(rail, 0, 0, MEMORY_BYTES - 1, 2, bytes), GS_STATUS_RANGE);
    assert_int_equal(ask(rail, 0, 0, UINT64_MAX, 1, bytes), GS_STATUS_RANGE);
    assert_int_equal(ask(rail, 0, 0, UINT64_MAX - 5, 100, bytes), GS_STATUS_RANGE);
    assert_int_equal(ask(rail, 1, 0, UINT64_MAX - 5, 100, bytes), GS_STATUS_RANGE);
    assert_int_equal(ask(rail, 1, 0, 1, MEMORY_BYTES, bytes),
                     GS_STATUS_RANGE); /* its payload is thrown away */
    assert_int_equal(ask(rail, 1, 1, 0, 10, bytes), GS_STATUS_ACCESS);
    assert_int_equal(ask(rail, 0, 2, 0, 0, bytes), GS_STATUS_REGION); /* a directory */
    assert_int_equal(ask(rail, 0, 3, 0, 1, bytes), GS_STATUS_REGION);
    assert_int_equal(ask(rail, 0, UINT32_MAX, 0, 1, bytes), GS_STATUS_REGION);
    assert_int_equal(ask(rail, 1, 0x80000000u, 0, 1, bytes), GS_STATUS_REGION);
    assert_int_equal(ask(rail, 1, 0x80000040u, 0, 1, bytes), GS_STATUS_REGION);
    assert_memory_equal(world.memory, before, MEMORY_BYTES);
    assert_int_equal(ask(rail, 0, 0, 0, MEMORY_BYTES, bytes), GS_STATUS_OK); /* the rail is still good */
    assert_memory_equal(bytes, before, MEMORY_BYTES);
    assert_int_equal(ask(rail, 1, 0, 0, 0, bytes), GS_STATUS_OK);
    for (int i = 0; i < 40; i++)
        assert_int_equal(ask(rail, 0, 0, MEMORY_BYTES, 1, bytes), GS_STATUS_RANGE);
    assert_true(play_log_has("nothing more of the kind"));
    struct gs_request request = {.op = 0, .length = GS_SLICE_MAX + 1};
    unsigned char head[GS_REQUEST_BYTES];
    gs_request_put(head, &request);
    play_send(rail, head, sizeof head);
    assert_ended(rail);
    rail = play_raw_rail(raw, world.address, GPUSYS_TRANSPORT_TCP, 1, 1);
    request = (struct gs_request){.op = 2};
    gs_request_put(head, &request);
    play_send(rail, head, sizeof head);
    assert_ended(rail);
    check_served(&world);
    play_raw_close(raw);
    assert_true(play_until(nobody, world.peer));
    world_close(&world);
    free(bytes);
    free(before);
}

/* On the control stream: what makes no sense ends the session, what cannot be had is declined. */
static void test_messages(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, NULL);
    struct play_raw *raw = play_raw_open(world.address, NULL);
    struct gs_bytes out = {0};
    struct gs_refused refused;
    struct gs_sum sum = {.region = 99, .count = 1};
    assert_int_equal(gs_sum_encode(&out, 2, &sum), 0);
    sum = (struct gs_sum){.region = 0, .first = 1, .count = 1};
    assert_int_equal(gs_sum_encode(&out, 3, &sum), 0);
    assert_int_equal(gs_region_message_encode(&out, GS_ARENA_FREE, 4, 0x80000001u), 0);
    assert_int_equal(gs_region_message_encode(&out, GS_ARENA_FREE, 5, 0), 0);
    struct gs_list list = {.first = UINT64_MAX, .count = UINT32_MAX};
    assert_int_equal(gs_list_encode(&out, 6, &list), 0);
    assert_int_equal(gs_empty_encode(&out, GS_PING, 7), 0);
    play_send_bytes(raw->fd, &out);
    static const uint32_t refusals[] = {GS_REFUSED_REGION, GS_REFUSED_RANGE, GS_REFUSED_REGION,
                                        GS_REFUSED_REGION};
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(play_raw_frame(raw), 0);
        assert_int_equal(raw->frame.type, GS_REFUSED);
        assert_int_equal(raw->frame.serial, 2 + i);
        assert_int_equal(gs_refused_decode(raw->body, raw->frame.body_bytes, &refused), 0);
        assert_int_equal(refused.refusal, refusals[i]);
    }
    assert_int_equal(play_raw_frame(raw), 0);
    assert_int_equal(raw->frame.type, GS_REGIONS);
    assert_int_equal(play_raw_frame(raw), 0);
    assert_int_equal(raw->frame.type, GS_PONG);
    assert_int_equal(raw->frame.serial, 7);
    unsigned char frame[GS_FRAME_BYTES];
    put_frame(frame, 0, 999, 0, 8);
    play_send(raw->fd, frame, sizeof frame);
    assert_int_equal(play_raw_frame(raw), 0);
    assert_int_equal(raw->frame.type, GS_REFUSED);
    assert_int_equal(play_raw_frame(raw), -ECONNRESET);
    assert_true(play_until(nobody, world.peer));
    play_raw_close(raw);
    check_served(&world);
    world_close(&world);
}

/* ---- a client that does not read ---- */

static uint64_t resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Send until the other side takes no more. */
static void stuff(int fd, const void *bytes, size_t size)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    size_t total = 0;
    while (total < 64 * MIB && poll(&poll_fd, 1, 300) == 1) {
        ssize_t count = send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(count > 0 || errno == EAGAIN);
        total += count > 0 ? (size_t)count : 0;
    }
    assert_true(total < 64 * MIB);
}

static void test_never_reads(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    struct world world;
    struct gs_bytes lists = {0};
    static unsigned char reads[MANY * GS_REQUEST_BYTES];
    world_open(&world,
               &(struct gpusys_peer_options){.size = sizeof(struct gpusys_peer_options), .threads = 1});
    for (int i = 0; i < 500; i++) { /* a table of many bytes */
        char name[300];
        snprintf(name, sizeof name, "%0250d", i);
        assert_int_equal(gpusys_peer_add_memory(world.peer, name, 1, 1, NULL, NULL), 0);
    }
    check_served(&world);
    struct play_raw *raw = play_raw_open(world.address, NULL);
    int rail = play_raw_rail(raw, world.address, GPUSYS_TRANSPORT_TCP, 0, 1);
    for (uint32_t i = 0; i < MANY; i++) {
        struct gs_request request = {.length = MEMORY_BYTES, .tag = i};
        gs_request_put(reads + (size_t)i * GS_REQUEST_BYTES, &request);
    }
    struct gs_list list = {.count = UINT32_MAX};
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(gs_list_encode(&lists, i + 2, &list), 0);
    uint64_t before = resident_bytes();
    stuff(rail, reads, sizeof reads);
    stuff(raw->fd, lists.data, gs_bytes_queued(&lists));
    assert_true(resident_bytes() < before + 32 * MIB);
    check_served(&world);
    gs_bytes_free(&lists);
    close(rail);
    play_raw_close(raw);
    assert_true(play_until(nobody, world.peer));
    world_close(&world);
}

/* Cut off in the middle of a write: what had come is there, and the session's things are gone. */
static void test_cut_off(void **state)
{
    (void)state;
    struct world world;
    struct gpusys_peer_options options = {.size = sizeof options, .arena_bytes = 8 * MIB};
    world_open(&world, &options);
    struct play_raw *raw = play_raw_open(world.address, NULL);
    struct gs_bytes out = {0};
    assert_int_equal(gs_arena_encode(&out, 2, 4 * MIB), 0);
    play_send_bytes(raw->fd, &out);
    assert_int_equal(play_raw_frame(raw), 0);
    assert_int_equal(raw->frame.type, GS_GRANTED);
    int rail = play_raw_rail(raw, world.address, GPUSYS_TRANSPORT_TCP, 0, 1);
    unsigned char head[GS_REQUEST_BYTES];
    struct gs_request request = {.op = GPUSYS_OP_WRITE, .region = 0x80000000u, .length = 4 * MIB};
    gs_request_put(head, &request);
    play_send(rail, head, sizeof head);
    play_send(rail, world.memory, MEMORY_BYTES);
    assert_int_equal(play_stats(world.peer).arena_bytes, 4 * MIB);
    close(rail);
    play_raw_close(raw);
    assert_true(play_until(nobody, world.peer));
    assert_int_equal(play_stats(world.peer).arena_bytes, 0);
    check_served(&world);
    world_close(&world);
}

/* ---- a crowd ---- */

struct one {
    struct world *world;
    unsigned number;
    pthread_t thread;
};

static void *one_main(void *argument)
{
    struct one *one = argument;
    struct gpusys_remote *remote =
        play_remote(one->world->address, both_transports[one->number % 2], 1 + one->number % 3);
    unsigned char *bytes = malloc(MEMORY_BYTES);
    uint32_t region = UINT32_MAX;
    PLAY_CHECK(gpusys_remote_list(remote, patience, NULL, NULL) == 0);
    PLAY_CHECK(gpusys_remote_find(remote, "memory", &region) == 0);
    for (unsigned i = 0; i < 5; i++) {
        memset(bytes, 0, MEMORY_BYTES);
        PLAY_CHECK(gpusys_remote_read(remote, region, one->number, bytes, MEMORY_BYTES - one->number,
                                      patience) == 0);
        PLAY_CHECK(memcmp(bytes, one->world->memory + one->number, MEMORY_BYTES - one->number) == 0);
    }
    gpusys_remote_close(remote);
    free(bytes);
    return NULL;
}

static void test_a_hundred(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct world world;
    static struct one ones[COUNT];
    world_open(&world, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        ones[i] = (struct one){.world = &world, .number = i};
        assert_int_equal(pthread_create(&ones[i].thread, NULL, one_main, &ones[i]), 0);
    }
    for (unsigned i = 0; i < COUNT; i++)
        pthread_join(ones[i].thread, NULL);
    assert_int_equal(play_stats(world.peer).clients_total, COUNT);
    assert_true(play_until(nobody, world.peer));
    world_close(&world);
}

/* A peer that closes with clients in the middle of something. */
static void test_close_under_load(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct world world;
        struct gpusys_completion completion;
        unsigned char *bytes = malloc(MEMORY_BYTES);
        world_open(&world, NULL);
        struct gpusys_remote *remote = play_remote(world.address, GPUSYS_TRANSPORT_TCP, 4);
        assert_int_equal(gpusys_remote_list(remote, patience, NULL, NULL), 0);
        struct gpusys_io io = {.op = (uint32_t)round % 2, .buffer = bytes, .length = MEMORY_BYTES};
        for (int i = 0; i < 50; i++)
            assert_int_equal(gpusys_remote_submit(remote, &io, 1, NULL, NULL), 0);
        struct play_raw *raw = play_raw_open(world.address, NULL);
        world_close(&world);
        int count;
        while ((count = gpusys_remote_wait(remote, &completion, 1, patience)) == 1)
            assert_true(completion.status == 0 || completion.status == -ECONNRESET);
        assert_true(count == -ENOTCONN || count == -ENOENT);
        play_raw_close(raw);
        gpusys_remote_close(remote);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_garbage),     cmocka_unit_test(test_half_a_message),
        cmocka_unit_test(test_version),     cmocka_unit_test(test_max_clients),
        cmocka_unit_test(test_requests),    cmocka_unit_test(test_messages),
        cmocka_unit_test(test_never_reads), cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_a_hundred),   cmocka_unit_test(test_close_under_load),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
