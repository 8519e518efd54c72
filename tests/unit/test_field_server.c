/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Peers of the field as their clients see them: every byte over a socket, and what they refuse. Without RDMA. */
#include "field_play.h"

#include <fcntl.h>

static int begin(void **state)
{
    setenv("GPUSYS_LIBIBVERBS", "/nonexistent/libibverbs.so.1", 1);
    return field_begin(state);
}

/* ---- weights ---- */

static void test_weights_bytes(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    int fd = ask_llama(field);
    say(fd, "00");
    /* two requests at once, answered in their order */
    say(fd, "01000000 0200000000000000 05000000  00000000 0000000000000000 0b000000");
    hear(fd, "\0", 1);
    hear(fd, contents[1] + 2, 5);
    hear(fd, "\0", 1);
    hear(fd, contents[0], 11);
    say(fd, "00000000 0b00000000000000 00000000"); /* nothing, at the very end */
    hear(fd, "\0", 1);
    say(fd, "00000000 0b00000000000000 01000000"); /* one byte too far */
    hear(fd, "\1", 1);
    say(fd, "00000000 ffffffffffffffff 01000000");
    hear(fd, "\1", 1);
    say(fd, "03000000 0000000000000000 01000000"); /* no such shard */
    hear(fd, "\1", 1);
    say(fd, "02000000 0100000000000000 00009000"); /* 9 MiB, straight from the file */
    hear(fd, "\0", 1);
    hear(fd, contents[2] + 1, 9 * MIB);
    assert_int_equal(field_stats(field).clients, 1);
    say(fd, "ffffffff 0000000000000000 00000000");
    hear_end(fd);
    assert_true(play_until(is_empty, field));
    struct gpusys_field_stats stats = field_stats(field);
    assert_int_equal(stats.clients_total, 1);
    assert_int_equal(stats.refused_total, 0);
    assert_int_equal(stats.verbs_total, 0);
    assert_int_equal(stats.tcp_bytes, 5 + 11 + 9 * MIB);
    gpusys_field_close(field);
}

static void test_model_names(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    int fd = play_connect(gpusys_field_address(field));
    say(fd, "0d000000 2f6d6f64656c732f6c6c616d61"); /* /models/llama */
    hear_text(fd, manifest);
    close(fd);
    play_log_begin();
    fd = play_connect(gpusys_field_address(field));
    say(fd, "04000000 6c6c616d");
    hear_end(fd);
    assert_true(play_log_comes("is refused: there is no model \"llam\" here"));
    add_llama(field, "/other/llama/"); /* while it serves; two have that last part now */
    fd = play_connect(gpusys_field_address(field));
    say(fd, "05000000 6c6c616d61");
    hear_end(fd);
    assert_true(play_log_comes("\"llama\" is the last part of 2 models"));
    fd = play_connect(gpusys_field_address(field));
    say(fd, "0c000000 2f6f746865722f6c6c616d61"); /* /other/llama */
    hear_text(fd, manifest);
    close(fd);
    play_log_end();
    gpusys_field_close(field);
}

/* What ends the connection, and the reason in the log. */
struct refusal {
    const char *hex, *words;
};

static void check_refusals(struct gpusys_field *field, const struct refusal *refusals, size_t count,
                           const char *text)
{
    play_log_begin();
    for (size_t i = 0; i < count; i++) {
        uint64_t before = field_stats(field).refused_total;
        int fd = text ? ask_llama(field) : play_connect(gpusys_field_address(field));
        say(fd, refusals[i].hex);
        hear_end(fd);
        assert_true(play_log_comes(refusals[i].words));
        assert_true(play_until(is_empty, field));
        assert_int_equal(field_stats(field).refused_total, before + 1);
    }
    play_log_end();
}

static void test_weights_refusals(void **state)
{
    (void)state;
    static const struct refusal first[] = {
        {"00000000", "a model request of 0 bytes, 1 to 8192 are possible"},
        {"01200000", "a model request of 8193 bytes"}, /* before anything of it has come */
        {"ffffffff", "a model request of 4294967295 bytes"},
        {"03000000 610061", "a model request with a NUL in it"},
    };
    static const struct refusal later[] = {
        {"02", "a transport byte of 2; there are 0 (tcp) and 1 (verbs)"},
        {"01", "is refused: it wants verbs, and there are none here: "},
        {"00 00000000 0000000000000000 01000001",
         "is disconnected: a request for 16777217 bytes, 16777216 are"},
    };
    struct gpusys_field *field = serve_weights(NULL);
    check_refusals(field, first, COUNT_OF(first), NULL);
    check_refusals(field, later, COUNT_OF(later), manifest);
    gpusys_field_close(field);
}

static void test_weights_cut(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    unsigned char bytes[4 + 5 + 1 + GS_WEIGHTS_REQUEST_BYTES] = {5, 0, 0, 0, 'l', 'l', 'a', 'm', 'a'};
    for (size_t size = 0; size < sizeof bytes; size++) {
        int fd = play_connect(gpusys_field_address(field));
        play_send(fd, bytes, size);
        shutdown(fd, SHUT_WR);
        if (size >= 9)
            hear_text(fd, manifest);
        hear_end(fd);
    }
    assert_true(play_until(is_empty, field));
    assert_int_equal(field_stats(field).refused_total, 0); /* they left */
    close(ask_llama(field));
    gpusys_field_close(field);
}

static void test_changed_file(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    int fd = ask_llama(field);
    say(fd, "00 01000000 0000000000000000 01000000");
    hear(fd, "\0", 1);
    hear(fd, contents[1], 1);
    assert_int_equal(truncate(shard_path(1), 299999), 0);
    play_log_begin();
    say(fd, "01000000 0000000000000000 01000000");
    hear(fd, "\1", 1);
    assert_true(play_log_comes("shard-1 changed while served"));
    say(fd, "00000000 0000000000000000 0b000000"); /* the others are as they were */
    hear(fd, "\0", 1);
    hear(fd, contents[0], 11);
    assert_int_equal(unlink(shard_path(0)), 0);
    write_shard(0); /* another file under the same name: the first is open, and goes on */
    say(fd, "00000000 0000000000000000 0b000000");
    hear(fd, "\0", 1);
    hear(fd, contents[0], 11);
    close(fd);
    play_log_end();
    gpusys_field_close(field);
    write_shard(1);
}

/* ---- experts ---- */

static void test_experts_bytes(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_experts();
    int fd = play_connect(gpusys_field_address(field));
    hear_text(fd, header); /* speaks first */
    say(fd, "00 01000000 06000000  00000000 00000000");
    hear(fd, "\0", 1);
    hear(fd, layers[1] + 6 * RECORD_BYTES, RECORD_BYTES);
    hear(fd, "\0", 1);
    hear(fd, layers[0], RECORD_BYTES);
    say(fd, "01000000 07000000  02000000 00000000  ffffffff 00000000  00000000 ffffffff");
    hear(fd, "\1\1\1\1", 4);
    say(fd, "ffffffff ffffffff");
    hear_end(fd);
    assert_true(play_until(is_empty, field));
    assert_int_equal(field_stats(field).clients_total, 1);
    assert_int_equal(field_stats(field).refused_total, 0);
    fd = play_connect(gpusys_field_address(field));
    play_log_begin();
    say(fd, "07");
    hear_text(fd, header);
    hear_end(fd);
    assert_true(play_log_comes("a transport byte of 7"));
    play_log_end();
    gpusys_field_close(field);
}

/* ---- limits ---- */

static void test_slow_client(void **state)
{
    (void)state;
    const struct gpusys_field_server_options options = {.step_timeout_ns = 300000000};
    struct gpusys_field *field = serve_weights(&options);
    int patient = ask_llama(field);
    say(patient, "00 00000000 0000000000000000 00000000");
    hear(patient, "\0", 1);
    play_log_begin();
    int fd = play_connect(gpusys_field_address(field));
    say(fd, "05000000 6c6c");
    hear_end(fd);
    assert_true(play_log_comes("is refused: it took too long over the model request"));
    fd = ask_llama(field);
    hear_end(fd);
    assert_true(play_log_comes("it took too long over the transport byte"));
    say(patient, "00000000 0000000000000000 00000000"); /* behind its opening a client may take its time */
    hear(patient, "\0", 1);
    close(patient);
    play_log_end();
    gpusys_field_close(field);
}

static void test_most_clients(void **state)
{
    (void)state;
    const struct gpusys_field_server_options options = {.max_clients = 2};
    struct gpusys_field *field = serve_weights(&options);
    int one = ask_llama(field), two = ask_llama(field);
    play_log_begin();
    hear_end(play_connect(gpusys_field_address(field)));
    assert_true(play_log_comes("there are as many clients as are served at once"));
    close(one);
    close(two);
    assert_true(play_until(is_empty, field));
    close(ask_llama(field));
    play_log_end();
    gpusys_field_close(field);
}

static void test_close_wakes_everybody(void **state)
{
    (void)state;
    struct gpusys_field *field = serve_weights(NULL);
    int idle = play_connect(gpusys_field_address(field)), asking = ask_llama(field),
        stuffed = ask_llama(field);
    say(stuffed, "00");
    for (int i = 0; i < 16; i++) /* more than the socket holds, and nobody reads it */
        say(stuffed, "02000000 0000000000000000 00009000");
    play_log_begin();
    int64_t start = gpusys_now_ns();
    gpusys_field_close(field);
    assert_true(gpusys_now_ns() - start < 5 * play_second);
    assert_false(play_log_has("refused"));
    play_log_end();
    hear_end(idle);
    hear_end(asking);
    close(stuffed);
}

/* ---- what cannot be ---- */

static int open_with(uint32_t kind, const char *listen, uint32_t flags, struct gpusys_error *error)
{
    struct gpusys_field_server_options options = {
        .size = sizeof options, .kind = kind, .listen = listen, .flags = flags};
    struct gpusys_field *field = NULL;
    int code = gpusys_field_open(&field, &options, error);
    gpusys_field_close(field);
    return code;
}

static void test_options(void **state)
{
    (void)state;
    struct gpusys_error error;
    assert_int_equal(open_with(0, "127.0.0.1:0", 0, &error), -EINVAL);
    assert_int_equal(open_with(4, "127.0.0.1:0", 0, &error), -EINVAL);
    assert_int_equal(open_with(1, "127.0.0.1:0", 2, &error), -EINVAL);
    assert_int_equal(open_with(1, "unix:/tmp/gpusys-field", 0, &error), -EINVAL);
    assert_non_null(strstr(error.message, "spoken over TCP"));
    assert_int_equal(open_with(1, "0.0.0.0:0", 0, &error), -EACCES);
    assert_non_null(strstr(error.hint, "--insecure"));
    assert_int_equal(open_with(1, "0.0.0.0:0", GPUSYS_FIELD_INSECURE, &error), 0);
    assert_int_not_equal(open_with(GPUSYS_FIELD_CACHE, "127.0.0.1:0", 0, &error), 0); /* verbs or nothing */
    assert_string_not_equal(error.message, "");
    for (int kind = GPUSYS_FIELD_WEIGHTS; kind <= GPUSYS_FIELD_EXPERTS; kind++)
        assert_int_equal(gpusys_field_kind_parse(gpusys_field_kind_name((enum gpusys_field_kind)kind)), kind);
    assert_int_equal(gpusys_field_kind_parse("weight"), -EINVAL);
}

static int add(struct gpusys_field *field, const char *path, const char *shard, struct gpusys_error *error)
{
    return gpusys_field_add_model(field, path, manifest, sizeof manifest, &shard, 1, error);
}

static void test_models_that_cannot_be(void **state)
{
    (void)state;
    const struct gpusys_field_server_options options = {.kind = GPUSYS_FIELD_WEIGHTS};
    struct gpusys_field *field = field_open(&options);
    const char *shard = shard_path(0);
    struct gpusys_error error;
    assert_int_equal(gpusys_field_start(field, &error), -EINVAL);
    assert_non_null(strstr(error.message, "no model was added"));
    assert_int_equal(add(field, "/m", play_path("nothing"), &error), -ENOENT);
    assert_int_equal(symlink(shard, play_path("link")), 0);
    assert_int_equal(add(field, "/m", play_path("link"), &error), -ELOOP);
    assert_non_null(strstr(error.hint, "--follow"));
    play_file(play_path("empty"), "", 0);
    assert_int_equal(add(field, "/m", play_path("empty"), &error), -EINVAL);
    assert_int_equal(mkfifo(play_path("pipe"), 0600), 0);
    assert_int_equal(add(field, "/m", play_path("pipe"), &error), -EINVAL);
    assert_int_equal(add(field, "/m", play_path("llama"), &error), -EISDIR);
    assert_int_equal(add(field, "", shard, &error), -EINVAL);
    assert_int_equal(gpusys_field_add_model(field, "/m", manifest, 0, &shard, 1, &error), -EINVAL);
    assert_int_equal(gpusys_field_add_model(field, "/m", manifest, 1, &shard, 0, &error), -EINVAL);
    assert_int_equal(gpusys_field_set_layers(field, header, 1, 1, &shard, 1, &error), -EINVAL);
    assert_int_equal(add(field, "/m", shard, &error), 0);
    assert_int_equal(add(field, "/m/", shard, &error), -EEXIST);
    assert_int_equal(gpusys_field_start(field, &error), 0);
    assert_int_equal(gpusys_field_start(field, &error), -EALREADY);
    gpusys_field_close(field);
}

static void test_layers_that_cannot_be(void **state)
{
    (void)state;
    const struct gpusys_field_server_options options = {.kind = GPUSYS_FIELD_EXPERTS};
    struct gpusys_field *field = field_open(&options);
    const char *layer = layer_path(0);
    struct gpusys_error error;
    assert_int_equal(gpusys_field_start(field, &error), -EINVAL);
    assert_non_null(strstr(error.message, "no layers were set"));
    assert_int_equal(gpusys_field_set_layers(field, header, 1, RECORD_BYTES - 1, &layer, 1, &error), -EINVAL);
    assert_non_null(strstr(error.message, "no whole number of records of 100002"));
    assert_int_equal(gpusys_field_set_layers(field, header, 1, 0, &layer, 1, &error), -EINVAL);
    assert_int_equal(gpusys_field_set_layers(field, header, 0, RECORD_BYTES, &layer, 1, &error), -EINVAL);
    assert_int_equal(gpusys_field_set_layers(field, header, 1, RECORD_BYTES, &layer, 1, &error), 0);
    assert_int_equal(gpusys_field_set_layers(field, header, 1, RECORD_BYTES, &layer, 1, &error), -EINVAL);
    assert_int_equal(add(field, "/m", layer, &error), -EINVAL);
    gpusys_field_close(field);
}

/* ---- the cache's preamble, which needs no device to be read ---- */

static void test_cache_preamble(void **state)
{
    (void)state;
    unsigned char bytes[GS_CACHE_MAGIC_BYTES + GS_CACHE_WISH_BYTES];
    static const unsigned char golden[] = {2, 0, 0, 0, 0x45, 0x47, 0x41, 0x50, 1, 8, 7, 6, 5,
                                           0, 0, 0, 0, 0,    0,    0,    0,    0, 0, 0, 0};
    struct gs_cache_wish wish = {.kind = 1, .arena_bytes = 0x05060708}, got;
    struct gpusys_error error;
    gs_cache_wish_put(bytes, &wish);
    assert_int_equal(sizeof golden, sizeof bytes);
    assert_memory_equal(bytes, golden, sizeof golden);
    assert_int_equal(gs_cache_magic_check(bytes, &error), 0);
    assert_int_equal(gs_cache_wish_get(&got, bytes + 8, &error), 0);
    assert_int_equal(got.kind, 1);
    assert_int_equal(got.arena_bytes, 0x05060708);
    bytes[0] = 1;
    assert_int_equal(gs_cache_magic_check(bytes, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "the retired version 1"));
    bytes[0] = 3;
    assert_int_equal(gs_cache_magic_check(bytes, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "no cache client"));
    static const struct {
        struct gs_cache_wish wish;
        const char *words;
    } bad[] = {{{.kind = 2, .arena_bytes = 1}, "kind 2"},
               {{.arena_bytes = 0}, "an arena of 0 bytes"},
               {{.arena_bytes = GS_CACHE_ARENA_MAX + 1}, "1 to 4398046511104 can be had"},
               {{.arena_bytes = 8, .blob_bytes = 4}, "RAW arenas alone"}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        gs_cache_wish_put(bytes, &bad[i].wish);
        assert_int_equal(gs_cache_wish_get(&got, bytes + 8, &error), -EBADMSG);
        assert_non_null(strstr(error.message, bad[i].words));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_bytes),         cmocka_unit_test(test_model_names),
        cmocka_unit_test(test_weights_refusals),      cmocka_unit_test(test_weights_cut),
        cmocka_unit_test(test_changed_file),          cmocka_unit_test(test_experts_bytes),
        cmocka_unit_test(test_slow_client),           cmocka_unit_test(test_most_clients),
        cmocka_unit_test(test_close_wakes_everybody), cmocka_unit_test(test_options),
        cmocka_unit_test(test_models_that_cannot_be), cmocka_unit_test(test_layers_that_cannot_be),
        cmocka_unit_test(test_cache_preamble),
    };
    return cmocka_run_group_tests(tests, begin, field_end);
}
