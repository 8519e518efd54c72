/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tests of the field's dialects share: servers with files of their own, clients and connections by hand. */
#ifndef TESTS_FIELD_PLAY_H
#define TESTS_FIELD_PLAY_H

#include "remote_play.h"

#include "base/cursor.h"
#include "field/records.h"

#include <gpusys/field.h>
#include <gpusys/handshake.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ---- files ---- */

enum { SHARDS = 3, LAYERS = 2, RECORDS = 7, RECORD_BYTES = 100003 };

static const uint64_t shard_bytes[SHARDS] = {11, 300000, 9 * MIB + 5};
static const char manifest[] = "{\"made\": \"up\"}", header[] = "{\"also\": 1}";

static unsigned char *contents[SHARDS], *layers[LAYERS];

static inline const char *shard_path(uint32_t at)
{
    char name[64];
    snprintf(name, sizeof name, "llama/shard-%u", at);
    return play_path(name);
}

static inline const char *layer_path(uint32_t at)
{
    char name[64];
    snprintf(name, sizeof name, "moe-%u", at);
    return play_path(name);
}

static inline void write_shard(uint32_t at)
{
    play_file(shard_path(at), contents[at], shard_bytes[at]);
}

/* Group set-up: a place, and the files in it. */
static inline int field_begin(void **state)
{
    int code = play_begin(state);
    mkdir(play_path("llama"), 0755);
    for (uint32_t i = 0; i < SHARDS; i++) {
        contents[i] = malloc(shard_bytes[i]);
        play_noise(contents[i], shard_bytes[i], 7 + i);
        write_shard(i);
    }
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i] = malloc((size_t)RECORDS * RECORD_BYTES);
        play_noise(layers[i], (size_t)RECORDS * RECORD_BYTES, 70 + i);
        play_file(layer_path(i), layers[i], (size_t)RECORDS * RECORD_BYTES);
    }
    return code;
}

static inline int field_end(void **state)
{
    for (uint32_t i = 0; i < SHARDS; i++)
        free(contents[i]);
    for (uint32_t i = 0; i < LAYERS; i++)
        free(layers[i]);
    return play_end(state);
}

/* ---- servers ---- */

static inline struct gpusys_field *field_open(const struct gpusys_field_server_options *options)
{
    struct gpusys_field_server_options known = *options;
    struct gpusys_field *field = NULL;
    struct gpusys_error error = {0};
    known.size = sizeof known;
    known.listen = "127.0.0.1:0";
    if (gpusys_field_open(&field, &known, &error))
        print_error("%s: %s\n", error.message, error.cause);
    assert_non_null(field);
    return field;
}

static inline void add_llama(struct gpusys_field *field, const char *path)
{
    const char *paths[SHARDS];
    for (uint32_t i = 0; i < SHARDS; i++)
        paths[i] = shard_path(i);
    assert_int_equal(gpusys_field_add_model(field, path, manifest, sizeof manifest - 1, paths, SHARDS, NULL),
                     0);
}

static inline struct gpusys_field *serve_weights(const struct gpusys_field_server_options *options)
{
    struct gpusys_field_server_options known = {0};
    if (options)
        known = *options;
    known.kind = GPUSYS_FIELD_WEIGHTS;
    struct gpusys_field *field = field_open(&known);
    add_llama(field, "/models/llama");
    assert_int_equal(gpusys_field_start(field, NULL), 0);
    return field;
}

static inline struct gpusys_field *serve_experts(void)
{
    const struct gpusys_field_server_options options = {.kind = GPUSYS_FIELD_EXPERTS};
    struct gpusys_field *field = field_open(&options);
    const char *paths[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++)
        paths[i] = layer_path(i);
    assert_int_equal(
        gpusys_field_set_layers(field, header, sizeof header - 1, RECORD_BYTES, paths, LAYERS, NULL), 0);
    assert_int_equal(gpusys_field_start(field, NULL), 0);
    return field;
}

static inline struct gpusys_field_stats field_stats(const struct gpusys_field *field)
{
    struct gpusys_field_stats stats = {.size = sizeof stats};
    assert_int_equal(gpusys_field_stats(field, &stats), 0);
    return stats;
}

static inline bool is_empty(void *field)
{
    return field_stats(field).clients == 0;
}

/* ---- clients ---- */

static const struct gpusys_field_region llama_regions[SHARDS] = {{.name = "shard-0", .length = 11},
                                                                 {.name = "shard-1", .length = 300000},
                                                                 {.name = "shard-2", .length = 9 * MIB + 5}};
static const struct gpusys_field_region moe_regions[LAYERS] = {
    {.name = "layer-0", .length = (uint64_t)RECORDS * RECORD_BYTES},
    {.name = "layer-1", .length = (uint64_t)RECORDS * RECORD_BYTES}};

static inline int connect_weights(struct gpusys_remote **ret_remote, const char *address, uint32_t require,
                                  struct gpusys_error *error)
{
    struct gpusys_field_options options = {.size = sizeof options, .require = require};
    struct gpusys_field_talk *talk;
    int code = gpusys_weights_ask(&talk, address, "llama", &options, error);
    return code ? code : gpusys_field_connect(ret_remote, talk, llama_regions, SHARDS, 0, error);
}

static inline int connect_experts(struct gpusys_remote **ret_remote, const char *address, uint32_t require,
                                  struct gpusys_error *error)
{
    struct gpusys_field_options options = {.size = sizeof options, .require = require};
    struct gpusys_field_talk *talk;
    int code = gpusys_experts_ask(&talk, address, &options, error);
    return code ? code : gpusys_field_connect(ret_remote, talk, moe_regions, LAYERS, RECORD_BYTES, error);
}

/* Ranges at random, several under way, each compared. */
static inline void check_ranges(struct gpusys_remote *remote, const struct gpusys_field_region *regions,
                                uint32_t n_regions, unsigned char *const *expected, uint64_t seed)
{
    enum { AT_ONCE = 6, ROUNDS = 12, MOST = 3 * MIB };
    static unsigned char landing[AT_ONCE][MOST];
    struct gpusys_io ios[AT_ONCE];
    struct gpusys_completion completion;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t batch;
        for (unsigned i = 0; i < AT_ONCE; i++) {
            uint32_t region = (uint32_t)(play_random(&seed) % n_regions);
            uint64_t offset = play_random(&seed) % (regions[region].length + 1);
            uint64_t left = regions[region].length - offset, most = left < MOST ? left : MOST;
            ios[i] = (struct gpusys_io){.op = GPUSYS_OP_READ,
                                        .region = region,
                                        .offset = offset,
                                        .buffer = landing[i],
                                        .length = play_random(&seed) % (most + 1)};
        }
        assert_int_equal(gpusys_remote_submit(remote, ios, AT_ONCE, NULL, &batch), 0);
        assert_int_equal(gpusys_remote_wait_batch(remote, batch, &completion, 20 * play_second), 0);
        assert_int_equal(completion.status, 0);
        for (unsigned i = 0; i < AT_ONCE; i++)
            assert_memory_equal(landing[i], expected[ios[i].region] + ios[i].offset, ios[i].length);
    }
}

static inline void check_all(struct gpusys_remote *remote, const struct gpusys_field_region *regions,
                             uint32_t n_regions, unsigned char *const *expected)
{
    for (uint32_t i = 0; i < n_regions; i++) {
        unsigned char *landing = malloc(regions[i].length);
        assert_int_equal(gpusys_remote_read(remote, i, 0, landing, regions[i].length, 20 * play_second), 0);
        assert_memory_equal(landing, expected[i], regions[i].length);
        free(landing);
    }
}

/* ---- by hand ---- */

static inline void say(int fd, const char *hex)
{
    unsigned char bytes[256];
    size_t size = 0;
    for (unsigned value; *hex; hex += 2) {
        while (*hex == ' ')
            hex++;
        PLAY_CHECK(sscanf(hex, "%2x", &value) == 1);
        bytes[size++] = (unsigned char)value;
    }
    play_send(fd, bytes, size);
}

/* The next bytes are these. */
static inline void hear(int fd, const void *expected, size_t size)
{
    unsigned char *got = malloc(size + 1);
    PLAY_CHECK(play_receive(fd, got, size) == 0);
    PLAY_CHECK(memcmp(got, expected, size) == 0);
    free(got);
}

static inline void hear_end(int fd)
{
    char byte;
    PLAY_CHECK(play_receive(fd, &byte, 1) == -ECONNRESET);
    close(fd);
}

/* [u32 bytes] and the bytes. */
static inline void hear_text(int fd, const char *text)
{
    unsigned char head[4], *at = head;
    gs_put_u32(&at, (uint32_t)strlen(text));
    hear(fd, head, sizeof head);
    hear(fd, text, strlen(text));
}

static inline int ask_llama(const struct gpusys_field *field)
{
    int fd = play_connect(gpusys_field_address(field));
    say(fd, "05000000 6c6c616d61");
    hear_text(fd, manifest);
    return fd;
}

#endif
