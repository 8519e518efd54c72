/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Clients by hand that do over verbs what an honest one would not. Over the stand-in libibverbs. */
#include "verbs_hand.h"

#include "rail/verbs_rail.h"
#include "wire/message_rail.h"

#include <sys/socket.h>

/* ---- a client by hand ---- */

struct client {
    struct play_raw *raw;
    struct hand hand;
    int fd; /* the rail's */
    uint64_t serial;
    struct gs_rail_wish wish;
    struct gs_railed railed;
    struct gs_frame frame;
    unsigned char body[4096];
};

static void client_open(struct client *client, const struct verbs_world *world)
{
    const char *address = gpusys_peer_address(world->peer);
    *client = (struct client){.raw = play_raw_open(address, NULL)};
    hand_open(&client->hand, "fake0");
    client->fd = play_raw_rail(client->raw, address, GPUSYS_TRANSPORT_VERBS, 0, 1);
    assert_true(client->fd >= 0);
    gs_rail_record_of(client->hand.qp, &client->wish.rail);
    client->wish.rail.generation = 1;
}

static void client_close(struct client *client)
{
    hand_close(&client->hand);
    close(client->fd);
    play_raw_close(client->raw);
}

/* The next message on the rail's connection; 0 when it has ended. */
static unsigned client_hear(struct client *client)
{
    unsigned char head[GS_FRAME_BYTES];
    int result = play_receive(client->fd, head, sizeof head);
    if (result == -ECONNRESET)
        return 0;
    assert_int_equal(result, 0);
    assert_int_equal(gs_frame_decode(head, &client->frame), 0);
    assert_true(client->frame.body_bytes <= sizeof client->body);
    assert_int_equal(play_receive(client->fd, client->body, client->frame.body_bytes), 0);
    return client->frame.type;
}

static unsigned client_say(struct client *client, struct gs_bytes *out)
{
    play_send_bytes(client->fd, out);
    return client_hear(client);
}

static unsigned say_rail(struct client *client)
{
    struct gs_bytes out = {0};
    assert_int_equal(gs_rail_encode(&out, ++client->serial, &client->wish), 0);
    return client_say(client, &out);
}

static unsigned say_key(struct client *client, uint32_t region)
{
    struct gs_bytes out = {0};
    assert_int_equal(gs_region_message_encode(&out, GS_KEY, ++client->serial, region), 0);
    return client_say(client, &out);
}

static void expect_refusal(const struct client *client, uint32_t refusal)
{
    struct gs_refused refused;
    assert_int_equal(client->frame.type, GS_REFUSED);
    assert_int_equal(client->frame.serial, client->serial);
    assert_int_equal(gs_refused_decode(client->body, client->frame.body_bytes, &refused), 0);
    assert_int_equal(refused.refusal, refusal);
}

static void client_connect(struct client *client)
{
    struct gpusys_qp_end end;
    assert_int_equal(say_rail(client), GS_RAILED);
    assert_int_equal(gs_railed_decode(client->body, client->frame.body_bytes, &client->railed), 0);
    gs_rail_end_of(&client->railed.rail, &end);
    assert_int_equal(gpusys_qp_connect(client->hand.qp, &end, NULL), 0);
}

static struct gs_key_entry client_key(struct client *client, uint32_t region)
{
    struct gs_keyed keyed;
    struct gs_key_entry key;
    assert_int_equal(say_key(client, region), GS_KEYED);
    assert_int_equal(gs_keyed_decode(client->body, client->frame.body_bytes, &keyed), 0);
    assert_int_equal(keyed.region, region);
    assert_int_equal(gs_keyed_get(&keyed, 0, &key), 0);
    return key;
}

/* ---- what keys allow ---- */

static void test_by_hand(void **state)
{
    (void)state;
    struct verbs_world world;
    struct client client;
    verbs_world_serve(&world, NULL, NULL);
    client_open(&client, &world);
    client_connect(&client);
    assert_int_equal(client.railed.rail.generation, 1);
    assert_string_equal(client.railed.rail.device, "fake0");
    assert_int_equal(client.railed.probe_bytes, 8192);
    assert_int_equal(
        hand_move(&client.hand, GPUSYS_QP_READ, client.railed.probe.base, client.railed.probe.rkey, 8192), 0);
    struct gs_key_entry key = client_key(&client, VERBS_READ_ONLY),
                        again = client_key(&client, VERBS_READ_ONLY);
    assert_true(key.base == again.base && key.rkey == again.rkey);
    assert_int_equal(hand_move(&client.hand, GPUSYS_QP_READ, key.base + 1234, key.rkey, 5000), 0);
    assert_memory_equal(client.hand.memory, world.read_only + 1234, 5000);
    key = client_key(&client, VERBS_WRITABLE);
    memset(client.hand.memory, 7, 100);
    assert_int_equal(hand_move(&client.hand, GPUSYS_QP_WRITE, key.base + 5, key.rkey, 100), 0);
    assert_memory_equal(world.writable + 5, client.hand.memory, 100);
    client_close(&client);
    verbs_world_close(&world);
}

/* With a key that may only read, or beyond a region: the device refuses, and no byte changes. */
static void check_forged(uint32_t region, uint32_t kind, uint64_t offset, uint64_t length)
{
    struct verbs_world world;
    struct client client;
    verbs_world_serve(&world, NULL, NULL);
    memset(world.writable, 9, VERBS_MEMORY_BYTES);
    client_open(&client, &world);
    client_connect(&client);
    struct gs_key_entry key = client_key(&client, region);
    assert_int_equal(hand_move(&client.hand, kind, key.base + offset, key.rkey, length), -EREMOTEIO);
    for (size_t i = 0; i < length; i++)
        assert_int_equal(client.hand.memory[i], 0xDD);
    unsigned char *expected = world.buffer;
    play_noise(expected, VERBS_MEMORY_BYTES, 1);
    assert_memory_equal(world.read_only, expected, VERBS_MEMORY_BYTES);
    for (size_t i = 0; i < VERBS_MEMORY_BYTES; i++)
        assert_int_equal(world.writable[i], 9);
    client_close(&client);
    world.remote = verbs_remote(&world, NULL); /* and others are served as before */
    assert_int_equal(gpusys_remote_read(world.remote, VERBS_READ_ONLY, 0, world.buffer, MIB, verbs_patience),
                     0);
    verbs_world_close(&world);
}

static void test_forged(void **state)
{
    (void)state;
    check_forged(VERBS_READ_ONLY, GPUSYS_QP_WRITE, 0, 1);
    check_forged(VERBS_READ_ONLY, GPUSYS_QP_WRITE, 4096, 4096);
    check_forged(VERBS_READ_ONLY, GPUSYS_QP_READ, VERBS_MEMORY_BYTES, 1);
    check_forged(VERBS_READ_ONLY, GPUSYS_QP_READ, VERBS_MEMORY_BYTES - 1, 2);
    check_forged(VERBS_READ_ONLY, GPUSYS_QP_READ, UINT64_MAX, 1);
    check_forged(VERBS_WRITABLE, GPUSYS_QP_WRITE, VERBS_MEMORY_BYTES - 1, 2);
}

/* ---- arenas ---- */

static uint32_t client_arena(struct client *client, uint64_t bytes)
{
    struct gs_bytes out = {0};
    struct gs_granted granted;
    assert_int_equal(gs_arena_encode(&out, ++client->raw->serial, bytes), 0);
    play_send_bytes(client->raw->fd, &out);
    assert_int_equal(play_raw_frame(client->raw), 0);
    assert_int_equal(client->raw->frame.type, GS_GRANTED);
    assert_int_equal(gs_granted_decode(client->raw->body, client->raw->frame.body_bytes, &granted), 0);
    return granted.region;
}

static unsigned client_ask(struct client *client, enum gs_message_type type, uint32_t region)
{
    struct gs_bytes out = {0};
    assert_int_equal(gs_region_message_encode(&out, type, ++client->raw->serial, region), 0);
    play_send_bytes(client->raw->fd, &out);
    assert_int_equal(play_raw_frame(client->raw), 0);
    return client->raw->frame.type;
}

/* Who knows the address and the key of another's arena reaches nothing all the same. */
static void test_others_arenas(void **state)
{
    (void)state;
    struct gpusys_peer_options options = {.size = sizeof options, .arena_bytes = 8 * MIB};
    for (uint32_t kind = GPUSYS_QP_READ; kind <= GPUSYS_QP_WRITE; kind++) {
        struct verbs_world world;
        struct client one, other;
        verbs_world_serve(&world, &options, NULL);
        client_open(&one, &world);
        client_connect(&one);
        client_open(&other, &world);
        client_connect(&other);
        struct gs_key_entry key = client_key(&one, client_arena(&one, MIB));
        memset(one.hand.memory, 0x11, 4096);
        assert_int_equal(hand_move(&one.hand, GPUSYS_QP_WRITE, key.base, key.rkey, 4096), 0);
        client_key(&other, client_arena(&other, MIB));
        assert_int_equal(hand_move(&other.hand, kind, key.base, key.rkey, 4096), -EREMOTEIO);
        for (size_t i = 0; i < 4096; i++)
            assert_int_equal(other.hand.memory[i], 0xDD);
        memset(one.hand.memory, 0, 4096);
        assert_int_equal(hand_move(&one.hand, GPUSYS_QP_READ, key.base, key.rkey, 4096), 0);
        for (size_t i = 0; i < 4096; i++)
            assert_int_equal(one.hand.memory[i], 0x11);
        client_close(&one);
        client_close(&other);
        verbs_world_close(&world);
    }
}

/* The key is dead with the arena. */
static void test_freed_arena(void **state)
{
    (void)state;
    struct verbs_world world;
    struct client client;
    struct gpusys_peer_options options = {.size = sizeof options, .arena_bytes = 8 * MIB};
    verbs_world_serve(&world, &options, NULL);
    client_open(&client, &world);
    client_connect(&client);
    uint32_t arena = client_arena(&client, MIB);
    struct gs_key_entry key = client_key(&client, arena);
    assert_int_equal(play_stats(world.peer).keyed_bytes, MIB);
    assert_int_equal(client_ask(&client, GS_ARENA_FREE, arena), GS_FREED);
    assert_int_equal(play_stats(world.peer).keyed_bytes, 0);
    assert_int_equal(say_key(&client, arena), GS_REFUSED);
    expect_refusal(&client, GS_REFUSED_REGION);
    assert_int_equal(hand_move(&client.hand, GPUSYS_QP_READ, key.base, key.rkey, 8), -EREMOTEIO);
    client_close(&client);
    verbs_world_close(&world);
}

static bool nothing_keyed_yet(void *context)
{
    return play_stats(context).keyed_bytes == 0;
}

/* Freed while its keys are being made: nothing of it stays behind, whoever comes first. */
static void test_freed_while_registering(void **state)
{
    (void)state;
    struct verbs_world world;
    struct client client;
    struct gpusys_peer_options options = {.size = sizeof options, .arena_bytes = 8 * MIB};
    verbs_world_serve(&world, &options, NULL);
    client_open(&client, &world);
    client_connect(&client);
    for (int i = 0; i < 300; i++) {
        struct gs_bytes out = {0};
        uint32_t arena = client_arena(&client, 8 * MIB); /* and there is room for it each time */
        assert_int_equal(gs_region_message_encode(&out, GS_KEY, ++client.serial, arena), 0);
        play_send_bytes(client.fd, &out);
        if (i % 3 == 1)
            usleep(100);
        assert_int_equal(client_ask(&client, GS_ARENA_FREE, arena), GS_FREED);
        if (client_hear(&client) != GS_KEYED)
            expect_refusal(&client, GS_REFUSED_REGION);
    }
    assert_true(play_until(nothing_keyed_yet, world.peer));
    client_close(&client);
    verbs_world_close(&world);
}

/* ---- fences ---- */

/* When FENCED has come the peer's queue pair is gone: not soon, but then. */
static void test_fenced_is_silent(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_serve(&world, NULL, NULL);
    for (int i = 0; i < 20; i++) {
        struct client client;
        struct gs_bytes out = {0};
        struct gs_fence fence = {.rail = 0, .generation = 1};
        client_open(&client, &world);
        client_connect(&client);
        struct gs_key_entry key = client_key(&client, VERBS_WRITABLE);
        memset(world.writable, 0, 4096);
        assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_QPS), 2);
        assert_int_equal(gs_fence_encode(&out, ++client.raw->serial, &fence), 0);
        play_send_bytes(client.raw->fd, &out);
        assert_int_equal(play_raw_frame(client.raw), 0);
        assert_int_equal(client.raw->frame.type, GS_FENCED);
        assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_QPS), 1);
        assert_true(hand_move(&client.hand, GPUSYS_QP_WRITE, key.base, key.rkey, 4096) < 0);
        for (size_t j = 0; j < 4096; j++)
            assert_int_equal(world.writable[j], 0);
        assert_int_equal(client_hear(&client), 0);
        client_close(&client);
        assert_true(play_until(verbs_nothing_keyed, world.peer));
    }
    verbs_world_close(&world);
}

/* A fence for another generation leaves the rail alone; a later ATTACH ends it. */
static void test_generations(void **state)
{
    (void)state;
    struct verbs_world world;
    struct client client;
    struct gs_bytes out = {0};
    struct gs_fence fence = {.rail = 0, .generation = 2};
    verbs_world_serve(&world, NULL, NULL);
    client_open(&client, &world);
    client_connect(&client);
    assert_int_equal(gs_fence_encode(&out, ++client.raw->serial, &fence), 0);
    play_send_bytes(client.raw->fd, &out);
    assert_int_equal(play_raw_frame(client.raw), 0);
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_QPS), 2);
    client_key(&client, VERBS_READ_ONLY);
    int next = play_raw_rail(client.raw, gpusys_peer_address(world.peer), GPUSYS_TRANSPORT_VERBS, 0, 2);
    assert_true(next >= 0);
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_QPS), 1);
    assert_int_equal(client_hear(&client), 0);
    close(next);
    client_close(&client);
    verbs_world_close(&world);
}

/* ---- messages that make no sense ---- */

enum { WELL = 0, ENDS = 1 };

static bool only_ours_is_left(void *context)
{
    (void)context;
    return FAKE(fake_ibverbs_live)(FAKE_IBVERBS_QPS) == 1;
}

/* Refused, and the rail goes on; or it has ended, with its queue pair. */
static void check_refused(struct client *client, uint32_t refusal, int how)
{
    expect_refusal(client, refusal);
    if (how == ENDS) {
        shutdown(client->fd, SHUT_WR);
        assert_int_equal(client_hear(client), 0);
        assert_true(play_until(only_ours_is_left, NULL));
    }
}

static void with_client(void (*run)(struct client *client))
{
    struct verbs_world world;
    struct client client;
    verbs_world_serve(&world, NULL, NULL);
    client_open(&client, &world);
    run(&client);
    client_close(&client);
    struct gpusys_remote_options options = verbs_options();
    options.n_rails = 1;
    world.remote = verbs_remote(&world, &options); /* others are none the worse */
    assert_int_equal(gpusys_remote_read(world.remote, 0, 0, world.buffer, 5000, verbs_patience), 0);
    assert_memory_equal(world.buffer, world.read_only, 5000);
    verbs_world_close(&world);
}

static void key_before_rail(struct client *client)
{
    assert_int_equal(say_key(client, 0), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

static void rail_twice(struct client *client)
{
    client_connect(client);
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

/* The second comes while the first is being worked on: whichever is answered, the rail ends. */
static void two_rails_at_once(struct client *client)
{
    struct gs_bytes out = {0};
    gs_rail_encode(&out, 1, &client->wish);
    gs_rail_encode(&out, 2, &client->wish);
    unsigned type = client_say(client, &out);
    if (type == GS_RAILED)
        type = client_hear(client);
    client->serial = 2;
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

static void offer_out_of_range(struct client *client)
{
    client->wish.offer = 2;
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_RANGE, WELL);
    client->wish.offer = 7;
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_RANGE, WELL);
    client->wish.offer = 0;
    client_connect(client);
    client_key(client, 0);
}

static void offer_that_is_none(struct client *client)
{
    client->wish.offer = 8;
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

static void qpn_above_24_bits(struct client *client)
{
    client->wish.rail.qpn |= 0x1000000;
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

static void another_generation(struct client *client)
{
    client->wish.rail.generation = 2;
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

/* What the driver refuses is no breach of the rules: the next try may be better. */
static void ends_that_do_not_fit(struct client *client)
{
    struct gs_rail_record good = client->wish.rail;
    client->wish.rail.mtu_bytes = 257;
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_LIMIT, WELL);
    client->wish.rail = good;
    client->wish.rail.link_layer = GPUSYS_LINK_INFINIBAND;
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_LIMIT, WELL);
    client->wish.rail = good;
    memset(client->wish.rail.gid, 0, sizeof client->wish.rail.gid);
    assert_int_equal(say_rail(client), GS_REFUSED);
    check_refused(client, GS_REFUSED_LIMIT, WELL);
    client->wish.rail = good;
    client_connect(client);
    client_key(client, 0);
}

static void keys_of_nothing(struct client *client)
{
    static const uint32_t regions[] = {2, 0x7fffffff, 0x80000000, 0x8000003f, 0x80000040, 0xffffffff};
    client_connect(client);
    for (size_t i = 0; i < COUNT_OF(regions); i++) {
        assert_int_equal(say_key(client, regions[i]), GS_REFUSED);
        check_refused(client, GS_REFUSED_REGION, WELL);
    }
    client_key(client, 1);
}

static void a_longer_key(struct client *client)
{
    struct gs_bytes out = {0};
    struct gs_list list = {.count = 1}; /* 12 bytes */
    client_connect(client);
    gs_list_encode(&out, ++client->serial, &list);
    out.data[4] = GS_KEY;
    assert_int_equal(client_say(client, &out), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

static void a_shorter_rail(struct client *client)
{
    struct gs_bytes out = {0};
    gs_rail_encode(&out, ++client->serial, &client->wish);
    out.data[0]--;
    out.tail--;
    assert_int_equal(client_say(client, &out), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

static void something_else(struct client *client)
{
    struct gs_bytes out = {0};
    client_connect(client);
    gs_empty_encode(&out, GS_PING, ++client->serial);
    assert_int_equal(client_say(client, &out), GS_REFUSED);
    check_refused(client, GS_REFUSED_MESSAGE, ENDS);
}

static void half_a_message(struct client *client)
{
    struct gs_bytes out = {0};
    gs_rail_encode(&out, 1, &client->wish);
    play_send(client->fd, out.data, 40);
    gs_bytes_free(&out);
    shutdown(client->fd, SHUT_WR);
    assert_int_equal(client_hear(client), 0);
}

/* Asked a thousand times without reading: all of them are answered when it reads. */
static void a_flood_of_keys(struct client *client)
{
    enum { FLOOD = 1000 };
    struct gs_bytes out = {0};
    client_connect(client);
    for (unsigned i = 0; i < FLOOD; i++)
        gs_region_message_encode(&out, GS_KEY, ++client->serial, i & 1);
    play_send_bytes(client->fd, &out);
    for (unsigned i = 0; i < FLOOD; i++)
        assert_int_equal(client_hear(client), GS_KEYED);
}

/* Gone in the midst of what the pool does for it. */
static void gone_while_working(struct client *client)
{
    struct gs_bytes out = {0};
    gs_rail_encode(&out, ++client->serial, &client->wish);
    play_send_bytes(client->fd, &out);
    shutdown(client->fd, SHUT_RDWR);
}

static void test_nonsense(void **state)
{
    (void)state;
    static void (*const runs[])(struct client * client) = {
        key_before_rail,   rail_twice,         two_rails_at_once,    offer_out_of_range, offer_that_is_none,
        qpn_above_24_bits, another_generation, ends_that_do_not_fit, keys_of_nothing,    a_longer_key,
        a_shorter_rail,    something_else,     half_a_message,       a_flood_of_keys,    gone_while_working,
    };
    for (size_t i = 0; i < COUNT_OF(runs); i++)
        with_client(runs[i]);
}

/* Rails that were opened and then nothing: they are in nobody's way, and go with their session. */
static void test_stalled_rails(void **state)
{
    (void)state;
    struct verbs_world world;
    struct client client;
    int fds[GS_RAILS_MAX];
    verbs_world_serve(&world, NULL, NULL);
    client_open(&client, &world);
    const char *address = gpusys_peer_address(world.peer);
    for (uint8_t i = 1; i < GS_RAILS_MAX; i++) {
        fds[i] = play_raw_rail(client.raw, address, GPUSYS_TRANSPORT_VERBS, i, 1);
        assert_true(fds[i] >= 0);
        play_send(fds[i], "\x48\0\0", i % 4); /* the beginning of a RAIL */
    }
    world.remote = verbs_remote(&world, NULL);
    assert_int_equal(gpusys_remote_read(world.remote, 0, 0, world.buffer, MIB, verbs_patience), 0);
    gpusys_remote_close(world.remote);
    world.remote = NULL;
    shutdown(client.raw->fd, SHUT_RDWR);
    char byte;
    for (unsigned i = 1; i < GS_RAILS_MAX; i++) {
        assert_true(play_receive(fds[i], &byte, 1) < 0);
        close(fds[i]);
    }
    client_close(&client);
    verbs_world_close(&world);
}

static void test_attach_where_there_is_none(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_peer_options options = {.size = sizeof options, .flags = GPUSYS_PEER_NO_VERBS};
    verbs_world_serve(&world, &options, NULL);
    struct play_raw *raw = play_raw_open(gpusys_peer_address(world.peer), NULL);
    assert_int_equal(raw->welcome.n_rails, 0);
    assert_true(play_raw_rail(raw, gpusys_peer_address(world.peer), GPUSYS_TRANSPORT_VERBS, 0, 1) < 0);
    play_raw_close(raw);
    verbs_world_close(&world);
}

int main(int argc, char **argv)
{
    static const char two_ports[] = "device fake0\nport 1\ngid 3 127.0.0.1 roce2 lo\n"
                                    "device fake1\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    const struct CMUnitTest clients[] = {
        VERBS_TEST(test_by_hand),
        VERBS_TEST(test_forged),
        VERBS_TEST(test_others_arenas),
        VERBS_TEST(test_freed_arena),
        VERBS_TEST(test_freed_while_registering),
        VERBS_TEST(test_fenced_is_silent),
        VERBS_TEST(test_generations),
        VERBS_TEST(test_nonsense),
        VERBS_TEST(test_stalled_rails),
        VERBS_TEST(test_attach_where_there_is_none),
    };
    const struct verbs_group groups[] = {{"clients by hand", two_ports, clients, COUNT_OF(clients)}};
    return verbs_groups_run(groups, COUNT_OF(groups), argc > 1 ? argv[1] : NULL);
}
