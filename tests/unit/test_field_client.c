/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Clients of the field's peers: every byte they send, over tcp, and peers that are not what they should be. */
#include "field_play.h"

#include <pthread.h>

static int begin(void **state)
{
    setenv("GPUSYS_LIBIBVERBS", "/nonexistent/libibverbs.so.1", 1);
    return field_begin(state);
}

/* ---- a peer by hand, on a thread: it accepts once and plays its part ---- */

struct hand {
    struct play_mock mock;
    pthread_t thread;
    void (*play)(struct hand *hand, int fd);
    const unsigned char *bytes; /* what the part plays with */
    size_t size;
};

static void *hand_main(void *argument)
{
    struct hand *hand = argument;
    struct timeval patience = {.tv_sec = 20};
    int fd = accept(hand->mock.listener, NULL, NULL);
    PLAY_CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    hand->play(hand, fd);
    return NULL;
}

static void hand_start(struct hand *hand, void (*play)(struct hand *hand, int fd))
{
    play_mock_open(&hand->mock);
    hand->play = play;
    assert_int_equal(pthread_create(&hand->thread, NULL, hand_main, hand), 0);
}

static void hand_stop(struct hand *hand)
{
    assert_int_equal(pthread_join(hand->thread, NULL), 0);
    play_mock_close(&hand->mock);
}

/* ---- weights ---- */

static void play_weights(struct hand *hand, int fd)
{
    (void)hand;
    hear(fd, "\5\0\0\0llama", 9);
    say(fd, "02000000 7b7d");
    hear(fd, "\0", 1);
    hear(fd, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16); /* a request for nothing: do you speak that? */
    say(fd, "00");
    hear(fd, "\1\0\0\0\2\0\0\0\0\0\0\0\4\0\0\0", 16);
    say(fd, "00 61626364");
    hear(fd, "\0\0\0\0\12\0\0\0\0\0\0\0\1\0\0\0", 16);
    say(fd, "01"); /* cannot be read */
    hear(fd, "\2\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0", 16);
    say(fd, "00 7a");
    hear(fd, "\377\377\377\377\0\0\0\0\0\0\0\0\0\0\0\0", 16); /* goodbye */
    hear_end(fd);
}

static void test_weights_bytes(void **state)
{
    (void)state;
    struct hand hand;
    struct gpusys_field_options options = {.size = sizeof options, .require = GPUSYS_TRANSPORT_TCP};
    struct gpusys_field_talk *talk;
    struct gpusys_remote *remote;
    struct gpusys_remote_info info = {.size = sizeof info};
    struct gpusys_region_info region = {.size = sizeof region};
    size_t bytes;
    char landing[4];
    uint64_t count;
    hand_start(&hand, play_weights);
    assert_int_equal(gpusys_weights_ask(&talk, hand.mock.address, "llama", &options, NULL), 0);
    assert_string_equal(gpusys_field_text(talk, &bytes), "{}");
    assert_int_equal(bytes, 2);
    assert_int_equal(gpusys_field_connect(&remote, talk, llama_regions, SHARDS, 0, NULL), 0);
    assert_int_equal(gpusys_remote_read(remote, 1, 2, landing, 4, 20 * play_second), 0);
    assert_memory_equal(landing, "abcd", 4);
    assert_int_equal(gpusys_remote_read(remote, 0, 10, landing, 1, 20 * play_second), -EIO);
    assert_int_equal(gpusys_remote_read(remote, 2, 0, landing, 1, 20 * play_second), 0);
    assert_int_equal(landing[0], 'z');
    assert_int_equal(gpusys_remote_read(remote, 0, 11, landing, 0, 20 * play_second),
                     0); /* nothing is sent for it */
    assert_int_equal(gpusys_remote_read(remote, 0, 11, landing, 1, 20 * play_second), -ERANGE);
    assert_int_equal(gpusys_remote_write(remote, 0, 0, landing, 1, 20 * play_second), -EACCES);
    assert_int_equal(gpusys_remote_info(remote, &info), 0);
    assert_int_equal(info.transport, GPUSYS_TRANSPORT_TCP);
    assert_string_equal(info.reason, "tcp was required");
    assert_string_equal(info.address, hand.mock.address);
    assert_int_equal(gpusys_remote_list(remote, 0, &count, NULL), 0);
    assert_int_equal(count, SHARDS);
    assert_int_equal(gpusys_remote_region(remote, 2, &region), 0);
    assert_string_equal(region.name, "shard-2");
    assert_int_equal(region.length, llama_regions[2].length);
    assert_int_equal(gpusys_remote_ping(remote, play_second), -EOPNOTSUPP);
    gpusys_remote_close(remote);
    hand_stop(&hand);
}

/* ---- experts ---- */

static const struct gpusys_field_region tiny[] = {{.name = "a", .length = 12}, {.name = "b", .length = 12}};

static void play_experts(struct hand *hand, int fd)
{
    (void)hand;
    say(fd, "02000000 7b7d");
    hear(fd, "\0", 1);
    /* bytes 2 … 10 of layer 1 are in all of its records of 4 bytes */
    hear(fd, "\1\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\2\0\0\0", 24);
    say(fd, "00 30313233 00 34353637 00 38393a3b");
    hear(fd, "\0\0\0\0\1\0\0\0", 8); /* one byte of the middle one */
    say(fd, "00 61626364");
    hear(fd, "\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0", 16); /* the second cannot be read */
    say(fd, "00 61626364 01");
    hear(fd, "\377\377\377\377\377\377\377\377", 8);
    hear_end(fd);
}

static void test_experts_bytes(void **state)
{
    (void)state;
    struct hand hand;
    struct gpusys_field_options options = {.size = sizeof options, .require = GPUSYS_TRANSPORT_TCP};
    struct gpusys_field_talk *talk;
    struct gpusys_remote *remote;
    char landing[12] = "............";
    hand_start(&hand, play_experts);
    assert_int_equal(gpusys_experts_ask(&talk, hand.mock.address, &options, NULL), 0);
    assert_string_equal(gpusys_field_text(talk, NULL), "{}");
    assert_int_equal(gpusys_field_connect(&remote, talk, tiny, 2, 4, NULL), 0);
    assert_int_equal(gpusys_remote_read(remote, 1, 2, landing, 8, 20 * play_second), 0);
    assert_memory_equal(landing, "23456789....", 12);
    assert_int_equal(gpusys_remote_read(remote, 0, 6, landing, 1, 20 * play_second), 0);
    assert_memory_equal(landing, "c3456789", 8);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, landing, 8, 20 * play_second), -EIO);
    gpusys_remote_close(remote);
    hand_stop(&hand);
}

/* ---- refusals ---- */

static void play_end_at_once(struct hand *hand, int fd)
{
    (void)hand;
    hear(fd, "\5\0\0\0llama", 9);
    close(fd);
}

static void play_verbs_alone(struct hand *hand, int fd)
{
    (void)hand;
    hear(fd, "\5\0\0\0llama", 9);
    say(fd, "02000000 7b7d");
    hear(fd, "\0", 1);
    close(fd);
}

static void test_refusals(void **state)
{
    (void)state;
    struct hand hand;
    struct gpusys_error error;
    struct gpusys_remote *remote = NULL;
    hand_start(&hand, play_end_at_once);
    assert_int_equal(connect_weights(&remote, hand.mock.address, GPUSYS_TRANSPORT_ANY, &error),
                     -ECONNREFUSED);
    assert_non_null(strstr(error.message, "refused this client"));
    assert_non_null(strstr(error.message, hand.mock.address));
    assert_non_null(strstr(error.cause, "no model \"llama\""));
    hand_stop(&hand);
    hand_start(&hand, play_verbs_alone); /* as the weight peers in the field */
    assert_int_equal(connect_weights(&remote, hand.mock.address, GPUSYS_TRANSPORT_ANY, &error),
                     -ECONNREFUSED);
    assert_non_null(strstr(error.message, "serves no weights over tcp"));
    assert_non_null(strstr(error.cause, "no verbs: "));
    hand_stop(&hand);
}

static void test_verbs_required(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    struct gpusys_error error = {0};
    struct gpusys_remote *remote = NULL;
    int code = connect_weights(&remote, gpusys_field_address(field), GPUSYS_TRANSPORT_VERBS, &error);
    assert_true(code == -ENOENT || code == -EOPNOTSUPP); /* no library; or none was asked for at build time */
    assert_int_equal(error.code, code);
    assert_int_equal(connect_weights(&remote, gpusys_field_address(field), GPUSYS_TRANSPORT_ANY, &error), 0);
    struct gpusys_remote_info info = {.size = sizeof info};
    assert_int_equal(gpusys_remote_info(remote, &info), 0);
    assert_memory_equal(info.reason, "no verbs: ", 10);
    gpusys_remote_close(remote);
    struct gpusys_field_options options = {.size = sizeof options};
    assert_int_equal(gpusys_cache_open(&remote, gpusys_field_address(field), 0, 1, &options, &error), code);
    options.require = GPUSYS_TRANSPORT_TCP;
    assert_int_equal(gpusys_cache_open(&remote, gpusys_field_address(field), 0, 1, &options, &error),
                     -EOPNOTSUPP);
    assert_int_equal(gpusys_cache_open(&remote, gpusys_field_address(field), 2, 1, &options, &error),
                     -EINVAL);
    assert_int_equal(gpusys_cache_open(&remote, gpusys_field_address(field), 0, 0, &options, &error),
                     -EINVAL);
    gpusys_field_close(field);
}

/* ---- peers that break off, lie, or say nothing ---- */

/* Sends its bytes, whatever it hears, and ends. */
static void play_bytes(struct hand *hand, int fd)
{
    char rest[256];
    play_send(fd, hand->bytes, hand->size);
    shutdown(fd, SHUT_WR);
    while (read(fd, rest, sizeof rest) > 0)
        ;
    close(fd);
}

/* The description, the reply to nothing, one read of three bytes. */
static int run_weights(const char *address, struct gpusys_error *error)
{
    struct gpusys_remote *remote = NULL;
    char landing[3];
    int code = connect_weights(&remote, address, GPUSYS_TRANSPORT_TCP, error);
    if (code)
        return code;
    code = gpusys_remote_read(remote, 0, 0, landing, 3, 20 * play_second);
    gpusys_remote_close(remote);
    return code;
}

static void test_weights_cut(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {3, 0, 0, 0, '{', ' ', '}', 0, 0, 'a', 'b', 'c'};
    for (size_t size = 0; size <= sizeof bytes; size++) {
        struct hand hand = {.bytes = bytes, .size = size};
        struct gpusys_error error = {0};
        hand_start(&hand, play_bytes);
        int code = run_weights(hand.mock.address, &error);
        if (size == 0 || size == 7)
            assert_int_equal(code, -ECONNREFUSED);
        else if (size < 7)
            assert_int_equal(code, -EPIPE);
        else if (size < sizeof bytes)
            assert_true(code == -ECONNRESET || code == -EPIPE || code == -ENOTCONN || code == -EPROTO);
        else
            assert_true(code == 0 || code == -EPROTO ||
                        code == -ECONNRESET); /* it answered before it was asked */
        assert_true(size > 7 || error.message[0]);
        hand_stop(&hand);
    }
}

struct lie {
    const char *bytes;
    size_t size;
    int code;
    const char *words;
};

static void check_lies(const struct lie *lies, size_t count, bool experts)
{
    for (size_t i = 0; i < count; i++) {
        struct hand hand = {.bytes = (const unsigned char *)lies[i].bytes, .size = lies[i].size};
        struct gpusys_error error = {0};
        struct gpusys_remote *remote = NULL;
        hand_start(&hand, play_bytes);
        int code = experts ? connect_experts(&remote, hand.mock.address, GPUSYS_TRANSPORT_TCP, &error)
                           : connect_weights(&remote, hand.mock.address, GPUSYS_TRANSPORT_TCP, &error);
        if (code != lies[i].code || !strstr(error.message, lies[i].words))
            print_error("lie %zu: %d, %s\n", i, code, error.message);
        assert_int_equal(code, lies[i].code);
        assert_non_null(strstr(error.message, lies[i].words));
        hand_stop(&hand);
    }
}

static void test_lies(void **state)
{
    (void)state;
    static const struct lie weights[] = {
        {"\0\0\0\0", 4, -EBADMSG, "the manifest is said to be 0 bytes long, 1 to 268435456"},
        {"\1\0\0\20", 4, -EBADMSG, "268435457 bytes"},
        {"\377\377\377\377", 4, -EBADMSG, "4294967295 bytes"},
        {"\0\0\0\20{", 5, -EPIPE,
         "within the manifest, 1 of 268435456 bytes"}, /* no memory for what does not come */
        {"\2\0\0\0{}\7", 7, -EPROTO, "status 7"},
    };
    static const struct lie experts[] = {
        {"\0\0\0\0", 4, -EBADMSG, "the header is said to be 0 bytes long, 1 to 16777216"},
        {"\1\0\0\1", 4, -EBADMSG, "16777217 bytes"},
    };
    check_lies(weights, COUNT_OF(weights), false);
    check_lies(experts, COUNT_OF(experts), true);
}

static void play_silence(struct hand *hand, int fd)
{
    char byte;
    play_send(fd, hand->bytes, hand->size);
    while (read(fd, &byte, 1) > 0)
        ;
    close(fd);
}

static void test_silent_peers(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {2, 0, 0, 0, '{', '}'};
    for (size_t size = 0; size <= sizeof bytes; size += 3) {
        struct hand hand = {.bytes = bytes, .size = size};
        struct gpusys_error error = {0};
        struct gpusys_field_options options = {
            .size = sizeof options, .timeout_ns = 50000000, .require = GPUSYS_TRANSPORT_TCP};
        struct gpusys_field_talk *talk;
        struct gpusys_remote *remote = NULL;
        hand_start(&hand, play_silence);
        int code = gpusys_weights_ask(&talk, hand.mock.address, "llama", &options, &error);
        if (!code)
            code = gpusys_field_connect(&remote, talk, llama_regions, SHARDS, 0, &error);
        assert_int_equal(code, -ETIMEDOUT);
        assert_non_null(strstr(error.message, "took too long"));
        hand_stop(&hand);
    }
}

/* A status that there is none of, and a byte that nobody asked for: the rail ends. */
static void play_bad_status(struct hand *hand, int fd)
{
    char rest[64];
    say(fd, "02000000 7b7d");
    hear(fd, "\0", 1);
    hear(fd, "\0\0\0\0\0\0\0\0", 8);
    play_send(fd, hand->bytes, hand->size);
    while (read(fd, rest, sizeof rest) > 0)
        ;
    close(fd);
}

static void test_bad_replies(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } replies[] = {{"\2abcd", 5}, {"\377", 1}};
    for (size_t i = 0; i < COUNT_OF(replies); i++) {
        struct hand hand = {.bytes = (const unsigned char *)replies[i].bytes, .size = replies[i].size};
        struct gpusys_field_options options = {.size = sizeof options, .require = GPUSYS_TRANSPORT_TCP};
        struct gpusys_field_talk *talk;
        struct gpusys_remote *remote;
        char landing[4];
        hand_start(&hand, play_bad_status);
        assert_int_equal(gpusys_experts_ask(&talk, hand.mock.address, &options, NULL), 0);
        assert_int_equal(gpusys_field_connect(&remote, talk, tiny, 2, 4, NULL), 0);
        assert_int_not_equal(gpusys_remote_read(remote, 0, 0, landing, 4, 20 * play_second), 0);
        assert_int_equal(gpusys_remote_read(remote, 0, 0, landing, 4, 20 * play_second), -ENOTCONN);
        gpusys_remote_close(remote);
        hand_stop(&hand);
    }
}

/* ---- what the caller may not say ---- */

static void test_callers_mistakes(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    const char *address = gpusys_field_address(field);
    struct gpusys_field_options options = {.size = sizeof options, .require = GPUSYS_TRANSPORT_SHM};
    struct gpusys_field_talk *talk = NULL;
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error;
    static char long_name[8194];
    memset(long_name, 'x', sizeof long_name - 1);
    assert_int_equal(gpusys_weights_ask(&talk, address, "llama", &options, &error), -EINVAL);
    options = (struct gpusys_field_options){.size = sizeof options, .n_rails = 9};
    assert_int_equal(gpusys_weights_ask(&talk, address, "llama", &options, &error), -EINVAL);
    assert_int_equal(gpusys_weights_ask(&talk, address, "", NULL, &error), -EINVAL);
    assert_int_equal(gpusys_weights_ask(&talk, address, long_name, NULL, &error), -EINVAL);
    static const struct gpusys_field_region bad_name = {.name = "../x", .length = 4}, empty = {.name = "x"},
                                            odd = {.name = "x", .length = 6};
    static const struct {
        const struct gpusys_field_region *regions;
        uint32_t n_regions;
        uint64_t record_bytes;
    } tables[] = {{&bad_name, 1, 0}, {&empty, 1, 0}, {&odd, 0, 0}, {&odd, 4097, 0}, {&odd, 1, 4}};
    for (size_t i = 0; i < COUNT_OF(tables); i++) {
        assert_int_equal(gpusys_weights_ask(&talk, address, "llama", NULL, &error), 0);
        assert_int_equal(gpusys_field_connect(&remote, talk, tables[i].regions, tables[i].n_regions,
                                              tables[i].record_bytes, &error),
                         -EINVAL);
    }
    char gone[64];
    snprintf(gone, sizeof gone, "%s", address);
    gpusys_field_close(field);
    assert_int_equal(gpusys_weights_ask(&talk, gone, "llama", NULL, &error), -ECONNREFUSED);
    gpusys_field_talk_close(NULL);
    gpusys_field_close(NULL);
}

/* ---- both sides ---- */

static void test_weights_end_to_end(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    struct gpusys_remote *remote;
    assert_int_equal(connect_weights(&remote, gpusys_field_address(field), GPUSYS_TRANSPORT_ANY, NULL), 0);
    check_all(remote, llama_regions, SHARDS, contents);
    check_ranges(remote, llama_regions, SHARDS, contents, 1);
    gpusys_remote_close(remote);
    assert_true(play_until(is_empty, field));
    assert_int_equal(field_stats(field).refused_total, 0);
    gpusys_field_close(field);
}

static void test_experts_end_to_end(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_experts();
    struct gpusys_remote *remote;
    assert_int_equal(connect_experts(&remote, gpusys_field_address(field), GPUSYS_TRANSPORT_ANY, NULL), 0);
    check_all(remote, moe_regions, LAYERS, layers);
    check_ranges(remote, moe_regions, LAYERS, layers, 2);
    gpusys_remote_close(remote);
    gpusys_field_close(field);
}

/* A batch whose time has passed lands nowhere, and what is asked for next is right. */
static void test_deadline(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    struct gpusys_remote *remote;
    unsigned char *landing = malloc(shard_bytes[2]);
    assert_int_equal(connect_weights(&remote, gpusys_field_address(field), GPUSYS_TRANSPORT_TCP, NULL), 0);
    for (int64_t timeout = 1; timeout < 4000000; timeout *= 4) {
        int code = gpusys_remote_read(remote, 2, 0, landing, shard_bytes[2], timeout);
        assert_true(code == 0 || code == -ETIMEDOUT);
        memset(landing, 0x55, shard_bytes[2]);
        unsigned char few[5];
        assert_int_equal(gpusys_remote_read(remote, 1, 9, few, 5, 20 * play_second), 0);
        assert_memory_equal(few, contents[1] + 9, 5);
        for (size_t i = 0; code && i < shard_bytes[2]; i++)
            if (landing[i] != 0x55)
                fail_msg("byte %zu landed after the deadline", i);
    }
    free(landing);
    gpusys_remote_close(remote);
    gpusys_field_close(field);
}

static void test_file_shrinks_under_way(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    struct gpusys_remote *remote;
    unsigned char byte;
    assert_int_equal(connect_weights(&remote, gpusys_field_address(field), GPUSYS_TRANSPORT_TCP, NULL), 0);
    assert_int_equal(truncate(shard_path(2), 100), 0);
    assert_int_equal(gpusys_remote_read(remote, 2, 0, &byte, 1, 20 * play_second), -EIO);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, &byte, 1, 20 * play_second), 0);
    gpusys_remote_close(remote);
    gpusys_field_close(field);
    write_shard(2);
}

static void test_server_goes(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    struct gpusys_remote *remote;
    unsigned char byte;
    assert_int_equal(connect_weights(&remote, gpusys_field_address(field), GPUSYS_TRANSPORT_TCP, NULL), 0);
    gpusys_field_close(field);
    assert_int_not_equal(gpusys_remote_read(remote, 0, 0, &byte, 1, 20 * play_second), 0);
    assert_int_equal(gpusys_remote_read(remote, 0, 0, &byte, 1, 20 * play_second), -ENOTCONN);
    gpusys_remote_close(remote);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_bytes),
        cmocka_unit_test(test_experts_bytes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_verbs_required),
        cmocka_unit_test(test_weights_cut),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_silent_peers),
        cmocka_unit_test(test_bad_replies),
        cmocka_unit_test(test_callers_mistakes),
        cmocka_unit_test(test_weights_end_to_end),
        cmocka_unit_test(test_experts_end_to_end),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_file_shrinks_under_way),
        cmocka_unit_test(test_server_goes),
    };
    return cmocka_run_group_tests(tests, begin, field_end);
}
