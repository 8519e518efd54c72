/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Peers by hand that describe rails and keys in ways that make no sense. Over the stand-in libibverbs. */
#include "verbs_hand.h"

#include "rail/verbs_rail.h"
#include "wire/message_rail.h"

#include <pthread.h>
#include <sys/socket.h>

/* ---- peers by hand ---- */

struct scene {
    struct play_mock mock;
    struct hand hand;
    pthread_t thread;
    void (*spoil)(struct scene *scene); /* what it sends is in `out`, to be made worse */
    struct gs_bytes out;
    bool spoils_keys; /* else RAILED */
    int rail;
};

static void scene_send(struct scene *scene)
{
    if (scene->out.data)
        play_send_bytes(scene->rail, &scene->out);
}

static void answer_rail(struct scene *scene)
{
    struct gs_rail_wish wish;
    struct gs_railed railed = {.probe_bytes = 8192};
    struct gpusys_qp_end end;
    PLAY_CHECK(play_mock_frame(&scene->mock, scene->rail) == 0 && scene->mock.frame.type == GS_RAIL);
    PLAY_CHECK(gs_rail_decode(scene->mock.body, scene->mock.frame.body_bytes, &wish) == 0);
    gs_rail_end_of(&wish.rail, &end);
    PLAY_CHECK(gpusys_qp_connect(scene->hand.qp, &end, NULL) == 0);
    gs_rail_record_of(scene->hand.qp, &railed.rail);
    railed.rail.generation = wish.rail.generation;
    railed.probe.base = scene->hand.key.address;
    railed.probe.rkey = scene->hand.key.rkey;
    PLAY_CHECK(gs_railed_encode(&scene->out, scene->mock.frame.serial, &railed) == 0);
    if (!scene->spoils_keys)
        scene->spoil(scene);
    scene_send(scene);
}

/* The region is HAND_BYTES long. */
static void answer_key(struct scene *scene)
{
    uint32_t region;
    struct gs_keyed keyed = {.piece_bytes = HAND_BYTES / 2, .n_keys = 2};
    struct gs_key_entry keys[2] = {
        {.base = scene->hand.key.address, .rkey = scene->hand.key.rkey},
        {.base = scene->hand.key.address + HAND_BYTES / 2, .rkey = scene->hand.key.rkey}};
    PLAY_CHECK(play_mock_frame(&scene->mock, scene->rail) == 0 && scene->mock.frame.type == GS_KEY);
    PLAY_CHECK(gs_region_message_decode(scene->mock.body, scene->mock.frame.body_bytes, &region) == 0);
    keyed.region = region;
    PLAY_CHECK(gs_keyed_encode(&scene->out, scene->mock.frame.serial, &keyed, keys) == 0);
    scene->spoil(scene);
    scene_send(scene);
}

static void *scene_main(void *argument)
{
    struct scene *scene = argument;
    struct gs_welcome welcome = {
        .version = 1, .n_regions = 1, .slice_max = GS_SLICE_MAX, .requests_max = 64, .n_rails = 1};
    welcome.rails[0] = (struct gs_rail_record){
        .transport = GPUSYS_TRANSPORT_VERBS, .link_layer = GPUSYS_LINK_ETHERNET, .mtu_bytes = 4096};
    struct gpusys_qp_end own = {.size = sizeof own};
    PLAY_CHECK(gpusys_qp_end(scene->hand.qp, &own) == 0);
    memcpy(welcome.rails[0].gid, own.gid, 16);
    memcpy(welcome.cookie, scene->mock.cookie + GS_COOKIE_BYTES / 2, sizeof welcome.cookie);
    play_mock_control(&scene->mock, &welcome);
    scene->rail = play_mock_rail(&scene->mock, scene->mock.listener, NULL);
    answer_rail(scene);
    if (scene->spoils_keys) {
        play_mock_ready(&scene->mock);
        play_mock_table(&scene->mock, 3, GPUSYS_PLACE_MEMORY, HAND_BYTES);
        answer_key(scene);
    }
    char byte; /* the client ends the rail; or we do, that it need not wait */
    play_receive(scene->rail, &byte, 1);
    shutdown(scene->mock.control, SHUT_RDWR);
    return NULL;
}

static void scene_start(struct scene *scene, void (*spoil)(struct scene *scene), bool spoils_keys)
{
    *scene = (struct scene){.spoil = spoil, .spoils_keys = spoils_keys};
    play_mock_open(&scene->mock);
    hand_open(&scene->hand, "fake1");
    assert_int_equal(pthread_create(&scene->thread, NULL, scene_main, scene), 0);
}

static void scene_end(struct scene *scene)
{
    pthread_join(scene->thread, NULL);
    close(scene->rail);
    play_mock_close(&scene->mock);
    hand_close(&scene->hand);
    gs_bytes_free(&scene->out);
}

static unsigned char *spoilt(struct scene *scene, size_t at)
{
    return scene->out.data + scene->out.head + GS_FRAME_BYTES + at;
}

static void nothing(struct scene *scene)
{
    (void)scene;
}

static void silence(struct scene *scene)
{
    gs_bytes_free(&scene->out);
}

static void end_of_connection(struct scene *scene)
{
    gs_bytes_free(&scene->out);
    shutdown(scene->rail, SHUT_RDWR);
}

static void another_type(struct scene *scene)
{
    scene->out.data[4] = GS_ATTACHED;
}

static void another_serial(struct scene *scene)
{
    scene->out.data[8] ^= 0x40;
}

static void one_byte_less(struct scene *scene)
{
    scene->out.data[0]--;
    scene->out.tail--;
}

static void a_frame_beyond_bounds(struct scene *scene)
{
    scene->out.data[2] = 0x10;
}

static void refusal_of_limit(struct scene *scene)
{
    struct gs_refused refused = {.refusal = GS_REFUSED_LIMIT, .reason = gs_text_of("as a test")};
    gs_bytes_free(&scene->out);
    PLAY_CHECK(gs_refused_encode(&scene->out, scene->mock.frame.serial, &refused) == 0);
}

static void refusal_of_message(struct scene *scene)
{
    struct gs_refused refused = {.refusal = GS_REFUSED_MESSAGE, .reason = gs_text_of("as a test")};
    gs_bytes_free(&scene->out);
    PLAY_CHECK(gs_refused_encode(&scene->out, scene->mock.frame.serial, &refused) == 0);
}

static void railed_transport(struct scene *scene)
{
    *spoilt(scene, 0) = 2;
}

static void railed_qpn_0(struct scene *scene)
{
    memset(spoilt(scene, 28), 0, 4);
}

static void railed_generation(struct scene *scene)
{
    *spoilt(scene, 36) ^= 1;
}

static void railed_probe_of_0(struct scene *scene)
{
    memset(spoilt(scene, 76), 0, 4);
}

static void railed_mtu(struct scene *scene)
{
    *spoilt(scene, 22) = 7;
}

static void railed_family(struct scene *scene)
{
    *spoilt(scene, 4) = 0x20;
}

static void railed_wrong_key(struct scene *scene)
{
    *spoilt(scene, 72) ^= 0xff;
}

static void test_railed(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct scene *scene);
        int code;
        const char *words;
    } rows[] = {
        {silence, -ETIMEDOUT, "waiting for the answer to RAIL"},
        {end_of_connection, -ECONNRESET, "waiting for the answer to RAIL"},
        {another_type, -EPROTO, "answered RAIL with message 22"},
        {another_serial, -EPROTO, "answered RAIL with message 26"},
        {one_byte_less, -EPROTO, "makes no sense"},
        {a_frame_beyond_bounds, -EBADMSG, "waiting for the answer to RAIL"},
        {refusal_of_limit, -EDQUOT, "refused: as a test"},
        {railed_transport, -EPROTO, "makes no sense"},
        {railed_qpn_0, -EPROTO, "makes no sense"},
        {railed_generation, -EPROTO, "makes no sense"},
        {railed_probe_of_0, -EPROTO, "makes no sense"},
        {railed_mtu, -EINVAL, "MTU"},
        {railed_family, -EINVAL, "GID"},
        {railed_wrong_key, -EREMOTEIO, ""},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct scene scene;
        struct gpusys_remote *remote = NULL;
        struct gpusys_error error = {0};
        char text[4096];
        struct gpusys_remote_options options = verbs_options();
        options.timeout_ns = rows[i].code == -ETIMEDOUT ? play_second / 2 : 0;
        options.devices = (const char *[]){"fake0"};
        options.n_devices = 1;
        scene_start(&scene, rows[i].spoil, false);
        int result = gpusys_remote_open(&remote, scene.mock.address, &options, &error);
        gpusys_error_format(&error, text, sizeof text);
        if (result != rows[i].code || !strstr(text, rows[i].words))
            fail_msg("row %zu: %d, %s", i, result, text);
        scene_end(&scene);
    }
}

static void keyed_another_region(struct scene *scene)
{
    *spoilt(scene, 0) = 1;
}

static void keyed_place(struct scene *scene)
{
    *spoilt(scene, 4) = 3;
}

static void keyed_pieces_too_short(struct scene *scene)
{
    *spoilt(scene, 8) = 0xff;
    *spoilt(scene, 9) = 0x7f - 1;
}

static void keyed_pieces_too_long(struct scene *scene)
{
    *spoilt(scene, 10) = 1;
}

static void keyed_none(struct scene *scene)
{
    *spoilt(scene, 16) = 0;
}

static void keyed_too_many(struct scene *scene)
{
    *spoilt(scene, 16) = 3;
}

static void keyed_reserved(struct scene *scene)
{
    *spoilt(scene, 36) = 1;
}

static void keyed_as_many_as_a_body_takes(struct scene *scene)
{
    static struct gs_key_entry keys[GS_KEYS_MAX];
    struct gs_keyed keyed = {.piece_bytes = 1, .n_keys = GS_KEYS_MAX};
    gs_bytes_free(&scene->out);
    PLAY_CHECK(gs_keyed_encode(&scene->out, scene->mock.frame.serial, &keyed, keys) == 0);
}

static void keyed_twice(struct scene *scene)
{
    size_t size = gs_bytes_queued(&scene->out);
    unsigned char *copy = gs_bytes_grow(&scene->out, size);
    memcpy(copy, scene->out.data, size);
}

/* One read by way of a peer that answers KEY so; its result. */
static int read_by_way_of(void (*spoil)(struct scene *scene), unsigned char *buffer)
{
    struct scene scene;
    struct gpusys_remote *remote = NULL;
    struct gpusys_remote_options options = verbs_options();
    options.devices = (const char *[]){"fake0"};
    options.n_devices = 1;
    scene_start(&scene, spoil, true);
    assert_int_equal(gpusys_remote_open(&remote, scene.mock.address, &options, NULL), 0);
    assert_int_equal(gpusys_remote_list(remote, verbs_patience, NULL, NULL), 0);
    int result = gpusys_remote_read(remote, 0, 0, buffer, HAND_BYTES, verbs_patience);
    gpusys_remote_close(remote);
    scene_end(&scene);
    return result;
}

static void test_keyed(void **state)
{
    (void)state;
    static void (*const spoils[])(struct scene * scene) = {
        end_of_connection,
        another_type,
        another_serial,
        one_byte_less,
        a_frame_beyond_bounds,
        refusal_of_message,
        keyed_another_region,
        keyed_place,
        keyed_none,
        keyed_pieces_too_short,
        keyed_pieces_too_long,
        keyed_too_many,
        keyed_reserved,
        keyed_as_many_as_a_body_takes,
    };
    unsigned char *buffer = malloc(HAND_BYTES);
    for (size_t i = 0; i < COUNT_OF(spoils); i++) {
        memset(buffer, 0xEE, HAND_BYTES);
        int result = read_by_way_of(spoils[i], buffer);
        if (result != -ECONNRESET)
            fail_msg("row %zu gives %d", i, result);
        for (size_t at = 0; at < HAND_BYTES; at++)
            assert_int_equal(buffer[at], 0xEE);
    }
    assert_int_equal(read_by_way_of(refusal_of_limit, buffer), -EDQUOT);
    assert_int_equal(read_by_way_of(nothing, buffer), 0);
    for (size_t at = 0; at < HAND_BYTES; at++)
        assert_int_equal(buffer[at], 0xDD);
    int result =
        read_by_way_of(keyed_twice, buffer); /* the read may be done by the time the second one is seen */
    assert_true(result == 0 || result == -ECONNRESET);
    free(buffer);
}

int main(int argc, char **argv)
{
    static const char two_ports[] = "device fake0\nport 1\ngid 3 127.0.0.1 roce2 lo\n"
                                    "device fake1\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    const struct CMUnitTest peers[] = {VERBS_TEST(test_railed), VERBS_TEST(test_keyed)};
    const struct verbs_group groups[] = {{"peers by hand", two_ports, peers, COUNT_OF(peers)}};
    return verbs_groups_run(groups, COUNT_OF(groups), argc > 1 ? argv[1] : NULL);
}
