/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The field's dialects over verbs, from end to end, over the stand-in libibverbs: both sides in this process. */
#include "fake_verbs.h"
#include "field_play.h"

#include <gpusys/railset.h>
#include <gpusys/verbs.h>
#include <infiniband/verbs.h>
#include <pthread.h>

static const char *const both[] = {"fake0", "fake1"}, *const small[] = {"small"};

static int begin(void **state)
{
    fake_start("device fake0\nport 1\ngid 1 127.0.0.1 roce2\n"
               "device fake1\nport 1\ngid 1 127.0.0.2 roce2\n"
               "device small\nmax_mr_size 100000\nport 1\ngid 1 127.0.0.3 roce2\n");
    assert_int_equal(gpusys_verbs_status(NULL), 0);
    return field_begin(state);
}

static int end(void **state)
{
    fake_end();
    return field_end(state);
}

/* ---- what is shared ---- */

static const struct gpusys_field_server_options two_rails = {.n_devices = 2, .devices = both},
                                                one_rail = {.n_devices = 1, .devices = both};

static int64_t live(enum fake_ibverbs_kind kind)
{
    return FAKE(fake_ibverbs_live)(kind);
}

/* Servers and clients are gone, and so is all that they had. */
static void close_server(struct gpusys_field *field)
{
    assert_true(play_until(is_empty, field));
    gpusys_field_close(field);
    assert_int_equal(live(FAKE_IBVERBS_KINDS), 0);
}

static struct gpusys_field_options rails(uint32_t n_rails, uint32_t require)
{
    return (struct gpusys_field_options){.size = sizeof(struct gpusys_field_options),
                                         .timeout_ns = 20 * play_second,
                                         .require = require,
                                         .n_devices = n_rails,
                                         .devices = both};
}

static int connect_model(struct gpusys_remote **ret_remote, const char *address, uint32_t n_rails,
                         uint32_t require, uint32_t n_regions, struct gpusys_error *error)
{
    struct gpusys_field_options options = rails(n_rails, require);
    struct gpusys_field_talk *talk;
    int code = gpusys_weights_ask(&talk, address, "llama", &options, error);
    return code ? code : gpusys_field_connect(ret_remote, talk, llama_regions, n_regions, 0, error);
}

static struct gpusys_remote *open_model(const struct gpusys_field *field, uint32_t n_rails, uint32_t require)
{
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error = {0};
    if (connect_model(&remote, gpusys_field_address(field), n_rails, require, SHARDS, &error))
        print_error("%s: %s\n", error.message, error.detail);
    assert_non_null(remote);
    return remote;
}

static struct gpusys_remote_info info_of(struct gpusys_remote *remote)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_info(remote, &info), 0);
    return info;
}

/* ---- weights and experts ---- */

static void test_weights(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&two_rails);
    for (uint32_t n_rails = 1; n_rails <= 2; n_rails++) {
        struct gpusys_remote *remote = open_model(field, n_rails, GPUSYS_TRANSPORT_ANY);
        struct gpusys_remote_info info = info_of(remote);
        assert_int_equal(info.transport, GPUSYS_TRANSPORT_VERBS);
        assert_int_equal(info.n_rails, n_rails);
        check_all(remote, llama_regions, SHARDS, contents);
        check_ranges(remote, llama_regions, SHARDS, contents, n_rails);
        gpusys_remote_close(remote);
    }
    assert_true(play_until(is_empty, field));
    struct gpusys_field_stats stats = field_stats(field);
    assert_int_equal(stats.verbs_total, 2);
    assert_int_equal(stats.tcp_bytes, 0);
    assert_int_equal(stats.copied_bytes, 0);
    assert_int_equal(stats.refused_total, 0);
    close_server(field);
}

static bool nothing_registered(void *unused)
{
    (void)unused;
    return live(FAKE_IBVERBS_MRS) == 0 && live(FAKE_IBVERBS_PDS) == 0;
}

/* Clients of one model share its registrations; the last one takes them along. */
static void test_clients_share(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&two_rails);
    assert_true(nothing_registered(NULL));
    struct gpusys_remote *first = open_model(field, 2, GPUSYS_TRANSPORT_VERBS);
    int64_t with_one = live(FAKE_IBVERBS_MRS);
    struct gpusys_remote *second = open_model(field, 2, GPUSYS_TRANSPORT_VERBS);
    int64_t with_two = live(FAKE_IBVERBS_MRS);
    assert_int_equal(2 * with_one - with_two, SHARDS * 2);
    gpusys_remote_close(first);
    check_ranges(second, llama_regions, SHARDS, contents, 3);
    gpusys_remote_close(second);
    assert_true(play_until(nothing_registered, NULL));
    struct gpusys_remote *third = open_model(field, 1, GPUSYS_TRANSPORT_VERBS); /* and it can be had again */
    check_all(third, llama_regions, SHARDS, contents);
    gpusys_remote_close(third);
    close_server(field);
}

static void test_experts(void **state)
{
    (void)state;
    const struct gpusys_field_server_options options = {
        .kind = GPUSYS_FIELD_EXPERTS, .n_devices = 2, .devices = both};
    struct gpusys_field *field = field_open(&options);
    const char *paths[LAYERS] = {layer_path(0), layer_path(1)};
    struct gpusys_field_options wanted = rails(2, GPUSYS_TRANSPORT_VERBS);
    struct gpusys_field_talk *talk;
    struct gpusys_remote *remote;
    assert_int_equal(gpusys_field_set_layers(field, header, 12, RECORD_BYTES, paths, LAYERS, NULL), 0);
    assert_int_equal(gpusys_field_start(field, NULL), 0);
    assert_int_equal(gpusys_experts_ask(&talk, gpusys_field_address(field), &wanted, NULL), 0);
    assert_int_equal(gpusys_field_connect(&remote, talk, moe_regions, LAYERS, RECORD_BYTES, NULL), 0);
    check_all(remote, moe_regions, LAYERS, layers);
    check_ranges(remote, moe_regions, LAYERS, layers, 5);
    gpusys_remote_close(remote);
    close_server(field);
}

/* ---- memory that cannot be registered as it is ---- */

static void test_copy_where_pinning_fails(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&two_rails);
    play_log_begin();
    FAKE(fake_ibverbs_on)
    ("ibv_reg_mr", 2, FAKE_IBVERBS_FAIL, EFAULT); /* the second shard on the first device */
    struct gpusys_remote *remote = open_model(field, 2, GPUSYS_TRANSPORT_VERBS);
    assert_true(play_log_has("shard-1: this kernel cannot pin it where it lies, 300000 bytes were copied"));
    assert_int_equal(field_stats(field).copied_bytes, 300000);
    check_all(remote, llama_regions, SHARDS, contents);
    gpusys_remote_close(remote);
    play_log_end();
    close_server(field);
}

static void test_shard_above_the_device(void **state)
{
    (void)state;
    const struct gpusys_field_server_options options = {.n_devices = 1, .devices = small};
    struct gpusys_field *field = serve_weights(&options);
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error;
    play_log_begin();
    assert_int_equal(
        connect_model(&remote, gpusys_field_address(field), 1, GPUSYS_TRANSPORT_VERBS, SHARDS, &error),
        -ECONNREFUSED);
    assert_true(play_log_comes("shard-1 has 300000 bytes, and small registers at most 100000 in one piece"));
    remote = open_model(field, 1, GPUSYS_TRANSPORT_ANY); /* over tcp then, on another connection */
    assert_int_equal(info_of(remote).transport, GPUSYS_TRANSPORT_TCP);
    assert_memory_equal(info_of(remote).reason, "no verbs: ", 10);
    check_all(remote, llama_regions, SHARDS, contents);
    gpusys_remote_close(remote);
    play_log_end();
    close_server(field);
}

static void test_changed_file(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&two_rails);
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error;
    assert_int_equal(truncate(shard_path(1), 299999), 0);
    play_log_begin();
    assert_int_equal(
        connect_model(&remote, gpusys_field_address(field), 1, GPUSYS_TRANSPORT_VERBS, SHARDS, &error),
        -ECONNREFUSED);
    assert_true(play_log_comes("is refused: shard-1 changed while served"));
    play_log_end();
    close_server(field);
    write_shard(1);
}

/* ---- sides that do not agree ---- */

static void test_another_number_of_regions(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&one_rail);
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error;
    assert_int_equal(connect_model(&remote, gpusys_field_address(field), 1, GPUSYS_TRANSPORT_ANY, 2, &error),
                     -EPROTO); /* and not over tcp either */
    assert_non_null(strstr(error.message, "the table of rail 0 has 3 regions"));
    assert_non_null(strstr(error.message, "it has 2"));
    close_server(field);
}

static void test_more_rails_than_the_peer(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&one_rail);
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error;
    assert_int_equal(
        connect_model(&remote, gpusys_field_address(field), 2, GPUSYS_TRANSPORT_VERBS, SHARDS, &error),
        -ECONNREFUSED);
    remote = open_model(field, 2, GPUSYS_TRANSPORT_ANY);
    assert_int_equal(info_of(remote).transport, GPUSYS_TRANSPORT_TCP);
    gpusys_remote_close(remote);
    close_server(field);
}

/* A peer by hand that closes at the rail count, and says `again` at the second attempt. */
struct hand {
    struct play_mock mock;
    const char *again;
};

static void *hand_main(void *argument)
{
    struct hand *hand = argument;
    int fd = accept(hand->mock.listener, NULL, NULL);
    hear(fd, "\5\0\0\0llama", 9);
    say(fd, "02000000 7b7d");
    hear(fd, "\1\2", 2); /* MODE_VERBS, and in one go two rails */
    close(fd);
    fd = accept(hand->mock.listener, NULL, NULL);
    hear(fd, "\5\0\0\0llama", 9);
    say(fd, hand->again);
    if (strcmp(hand->again, "02000000 7b7d") == 0) {
        hear(fd, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17);
        say(fd, "00");
        hear(fd, "\377\377\377\377\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    }
    hear_end(fd);
    return NULL;
}

static int connect_hand(const char *again, struct gpusys_remote **ret_remote, struct gpusys_error *error)
{
    struct hand hand = {.again = again};
    pthread_t thread;
    play_mock_open(&hand.mock);
    assert_int_equal(pthread_create(&thread, NULL, hand_main, &hand), 0);
    int code = connect_model(ret_remote, hand.mock.address, 2, GPUSYS_TRANSPORT_ANY, SHARDS, error);
    if (!code)
        gpusys_remote_close(*ret_remote);
    assert_int_equal(pthread_join(thread, NULL), 0);
    play_mock_close(&hand.mock);
    return code;
}

static void test_second_connection(void **state)
{
    (void)state;
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error;
    assert_int_equal(connect_hand("02000000 7b7d", &remote, &error), 0);
    assert_int_equal(connect_hand("02000000 5b5d", &remote, &error), -ESTALE);
    assert_non_null(strstr(error.message, "describes itself otherwise"));
    assert_int_equal(live(FAKE_IBVERBS_KINDS), 0);
}

/* ---- by hand, from the other side ---- */

/* A model, MODE_VERBS, one rail, and a queue pair that nobody has. */
static const unsigned char opening[9 + 1 + 1 + 25] = {
    5,    0, 0, 0, 'l', 'l', 'a', 'm', 'a', 1, 1, 1, 0x44, 0x33, 0x22, 0, 0xcc, 0xbb,
    0xaa, 0, 0, 0, 0,   0,   0,   0,   0,   0, 0, 0, 0xff, 0xff, 127,  0, 0,    1};

static void hear_table(int fd)
{
    unsigned char table[1 + 28 + 12 * SHARDS];
    static const unsigned char gid[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    PLAY_CHECK(play_receive(fd, table, sizeof table) == 0);
    PLAY_CHECK(table[0] == 1 && memcmp(table + 9, gid, 16) == 0);
    PLAY_CHECK(memcmp(table + 25, "\3\0\0\0", 4) == 0);
    for (unsigned i = 0; i < SHARDS; i++) { /* mappings begin with a page */
        uint16_t low;
        memcpy(&low, table + 29 + 12 * i, sizeof low);
        PLAY_CHECK((le16toh(low) & 0xfff) == 0);
    }
}

static void test_weights_bytes(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&one_rail);
    int fd = play_connect(gpusys_field_address(field));
    play_send(fd, opening, 11);
    hear_text(fd, manifest);
    hear_table(fd);
    play_send(fd, opening + 11, sizeof opening - 11);
    hear(fd, "\0", 1);
    play_log_begin();
    say(fd, "00");
    hear_end(fd);
    assert_int_equal(field_stats(field).verbs_total, 1);
    assert_true(play_log_comes("is disconnected: it sent bytes after its opening"));
    play_log_end();
    close_server(field);
}

static void test_weights_cut(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&one_rail);
    for (size_t size = 9; size < sizeof opening; size++) {
        int fd = play_connect(gpusys_field_address(field));
        play_send(fd, opening, size);
        shutdown(fd, SHUT_WR);
        hear_text(fd, manifest);
        if (size >= 11)
            hear_table(fd);
        hear_end(fd);
    }
    assert_true(play_until(is_empty, field));
    assert_int_equal(field_stats(field).verbs_total, 0);
    assert_int_equal(field_stats(field).refused_total, 0);
    close_server(field);
}

static void test_counts_that_cannot_be(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&one_rail);
    static const char *const counts[] = {"00", "02", "09", "ff"};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        int fd = ask_llama(field);
        say(fd, "01");
        say(fd, counts[i]);
        hear_end(fd);
    }
    int fd = ask_llama(field);
    say(fd, "01 01");
    hear_table(fd);
    say(fd, "02"); /* another count than before */
    hear_end(fd);
    assert_true(play_until(is_empty, field));
    assert_int_equal(field_stats(field).refused_total, 5);
    close_server(field);
}

/* ---- the cache ---- */

static struct gpusys_field *serve_cache(uint64_t max_arena_bytes)
{
    const struct gpusys_field_server_options options = {
        .kind = GPUSYS_FIELD_CACHE, .n_devices = 2, .devices = both, .max_arena_bytes = max_arena_bytes};
    struct gpusys_field *field = field_open(&options);
    assert_int_equal(gpusys_field_start(field, NULL), 0);
    return field;
}

static int open_arena(struct gpusys_remote **ret_remote, const struct gpusys_field *field, uint64_t bytes,
                      struct gpusys_error *error)
{
    struct gpusys_field_options options = rails(2, GPUSYS_TRANSPORT_ANY);
    return gpusys_cache_open(ret_remote, gpusys_field_address(field), GPUSYS_CACHE_KV, bytes, &options,
                             error);
}

static bool no_arena(void *field)
{
    return field_stats(field).arena_bytes == 0;
}

static void test_cache(void **state)
{
    (void)state;
    enum { BYTES = 5 * MIB + 123 };
    struct gpusys_field *field = serve_cache(2 * BYTES);
    struct gpusys_remote *one, *two, *three = NULL;
    struct gpusys_region_info region = {.size = sizeof region};
    struct gpusys_error error;
    unsigned char *noise = malloc(BYTES), *landing = malloc(BYTES), *zeros = calloc(1, BYTES);
    play_noise(noise, BYTES, 4);
    assert_int_equal(open_arena(&one, field, BYTES, NULL), 0);
    assert_int_equal(open_arena(&two, field, BYTES, NULL), 0);
    assert_int_equal(field_stats(field).arena_bytes, 2 * BYTES);
    assert_int_equal(gpusys_remote_region(one, 0, &region), 0);
    assert_int_equal(region.kind, GPUSYS_REGION_ARENA);
    assert_int_equal(region.access, GPUSYS_ACCESS_READ | GPUSYS_ACCESS_WRITE);
    assert_int_equal(region.length, BYTES);
    assert_int_equal(gpusys_remote_read(one, 0, 0, landing, BYTES, 20 * play_second), 0);
    assert_memory_equal(landing, zeros, BYTES);
    assert_int_equal(gpusys_remote_write(one, 0, 0, noise, BYTES, 20 * play_second), 0);
    assert_int_equal(gpusys_remote_read(one, 0, 0, landing, BYTES, 20 * play_second), 0);
    assert_memory_equal(landing, noise, BYTES);
    assert_int_equal(gpusys_remote_read(two, 0, 0, landing, BYTES, 20 * play_second), 0); /* another's */
    assert_memory_equal(landing, zeros, BYTES);
    play_log_begin();
    assert_int_equal(open_arena(&three, field, 1, &error), -ECONNREFUSED);
    assert_true(play_log_comes("an arena of 1 bytes was asked for; of 10486006 for all arenas 0 are left"));
    play_log_end();
    gpusys_remote_close(one);
    gpusys_remote_close(two);
    assert_true(play_until(no_arena, field));
    assert_int_equal(open_arena(&three, field, 2 * BYTES, NULL), 0);
    gpusys_remote_close(three);
    free(noise);
    free(landing);
    free(zeros);
    close_server(field);
}

static void test_cache_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *hex, *words;
    } refusals[] = {
        {"0100000045474150", "the retired version 1 of the cache dialect"}, /* nothing more is waited for */
        {"47505553 59532f31", "it is no cache client"},
        {"0200000045474150 02 0100000000000000 0000000000000000", "a cache of kind 2"},
        {"0200000045474150 00 0000000000000000 0000000000000000", "an arena of 0 bytes"},
        {"0200000045474150 01 0100000000040000 0000000000000000", "an arena of 4398046511105 bytes"},
        {"0200000045474150 01 0010000000000000 0010000000000000", "this server serves RAW arenas alone"},
        {"0200000045474150 01 0010000000000000 0000000000000000 00", "0 rails"},
        {"0200000045474150 01 0010000000000000 0000000000000000 03", "3 rails"},
    };
    struct gpusys_field *field = serve_cache(MIB);
    play_log_begin();
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        int fd = play_connect(gpusys_field_address(field));
        say(fd, refusals[i].hex);
        hear_end(fd);
        assert_true(play_log_comes(refusals[i].words));
    }
    play_log_end();
    assert_true(play_until(no_arena, field));
    assert_true(play_until(is_empty, field));
    assert_int_equal(field_stats(field).refused_total, COUNT_OF(refusals));
    close_server(field);
}

static void test_cache_cut(void **state)
{
    (void)state;
    static const unsigned char bytes[25 + 1 + 25] = {2,    0, 0, 0,    0x45,     0x47, 0x41,
                                                     0x50, 0, 0, 0x10, [25] = 1, 1};
    struct gpusys_field *field = serve_cache(MIB);
    for (size_t size = 0; size < sizeof bytes; size++) {
        unsigned char table[37];
        int fd = play_connect(gpusys_field_address(field));
        play_send(fd, bytes, size);
        shutdown(fd, SHUT_WR);
        if (size > 25)
            assert_int_equal(play_receive(fd, table, sizeof table), 0);
        hear_end(fd);
    }
    assert_true(play_until(no_arena, field));
    assert_int_equal(field_stats(field).refused_total, 0);
    close_server(field);
}

/* ---- failures ---- */

/* Whatever call of the library fails, on either side: nothing stays behind, and the next client is served. */
static void test_every_call_fails_once(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&one_rail);
    struct gpusys_field *cache = serve_cache(MIB);
    int64_t idle = live(FAKE_IBVERBS_KINDS);
    bool done = false;
    for (unsigned nth = 1; !done && nth < 400; nth++) {
        struct gpusys_remote *remote = NULL, *arena = NULL;
        FAKE(fake_ibverbs_reset)();
        FAKE(fake_ibverbs_on)("*", nth, FAKE_IBVERBS_FAIL, ENOMEM);
        int code =
            connect_model(&remote, gpusys_field_address(field), 1, GPUSYS_TRANSPORT_VERBS, SHARDS, NULL);
        if (!code)
            code = open_arena(&arena, cache, 4096, NULL);
        gpusys_remote_close(remote);
        gpusys_remote_close(arena);
        assert_true(play_until(is_empty, field));
        assert_true(play_until(is_empty, cache));
        done = FAKE(fake_ibverbs_calls)("*") < nth;
        assert_true(!done || code == 0);
        if (live(FAKE_IBVERBS_KINDS) != idle)
            fail_msg("after call %u failed %d objects are left", nth, (int)(live(FAKE_IBVERBS_KINDS) - idle));
    }
    assert_true(done);
    FAKE(fake_ibverbs_reset)();
    gpusys_field_close(cache);
    close_server(field);
}

static void test_server_goes(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&two_rails);
    struct gpusys_remote *remote = open_model(field, 2, GPUSYS_TRANSPORT_VERBS);
    unsigned char byte;
    gpusys_field_close(field);
    assert_int_not_equal(gpusys_remote_read(remote, 0, 0, &byte, 1, 20 * play_second), 0);
    gpusys_remote_close(remote);
    assert_int_equal(live(FAKE_IBVERBS_KINDS), 0);
}

/* A port that goes down is told in the log; a device that is removed ends its clients. The last test: it is gone. */
static void test_device_goes(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(&one_rail);
    struct gpusys_remote *remote = open_model(field, 1, GPUSYS_TRANSPORT_VERBS);
    play_log_begin();
    FAKE(fake_ibverbs_event)("fake0", IBV_EVENT_PORT_ERR, 1);
    assert_true(play_log_comes("fake0 port 1: "));
    FAKE(fake_ibverbs_event)("fake0", IBV_EVENT_PORT_ACTIVE, 1);
    assert_int_equal(field_stats(field).clients, 1);
    FAKE(fake_ibverbs_remove)("fake0");
    assert_true(play_until(is_empty, field));
    play_log_end();
    gpusys_remote_close(remote);
    gpusys_field_close(field);
    assert_int_equal(live(FAKE_IBVERBS_KINDS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_clients_share),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_copy_where_pinning_fails),
        cmocka_unit_test(test_shard_above_the_device),
        cmocka_unit_test(test_changed_file),
        cmocka_unit_test(test_another_number_of_regions),
        cmocka_unit_test(test_more_rails_than_the_peer),
        cmocka_unit_test(test_second_connection),
        cmocka_unit_test(test_weights_bytes),
        cmocka_unit_test(test_weights_cut),
        cmocka_unit_test(test_counts_that_cannot_be),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_refusals),
        cmocka_unit_test(test_cache_cut),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_server_goes),
        cmocka_unit_test(test_device_goes),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
