/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tests of rail sets share: two streams, a server on a thread of its own, a client, over the
 * stand-in libibverbs. */
#ifndef TESTS_RAILSET_PLAY_H
#define TESTS_RAILSET_PLAY_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <gpusys/deadline.h>
#include <gpusys/log.h>
#include <gpusys/railset.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake/ibverbs_control.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { PLAY_RAILS = 2, PLAY_REGIONS = 3, PLAY_REGION_BYTES = 64 * 1024, PLAY_SKIPPED = 77 };

static const enum gpusys_dialect both_dialects[] = {GPUSYS_DIALECT_READ_ONLY, GPUSYS_DIALECT_READ_WRITE};
static const char *const play_devices[] = {"fake0", "fake1"};

static inline int64_t play_soon(void)
{
    return gpusys_deadline_after(20000000000);
}

/* ---- the stand-in's controls; it is loaded by the first call that needs it ---- */

static struct {
    void (*reset)(void);
    int (*on)(const char *, unsigned, enum fake_ibverbs_action, uint64_t);
    int64_t (*calls)(const char *);
    int64_t (*live)(enum fake_ibverbs_kind);
    void (*hold)(int);
    unsigned (*release)(unsigned);
    void (*numbers_part)(int);
} fake;

/* Group set-up of every test over it. */
static inline int play_begin(void **state)
{
    (void)state;
    gpusys_verbs_status(NULL);
    void *library = gpusys_verbs_library() ? dlopen(gpusys_verbs_library(), RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!library)
        return -1;
    *(void **)&fake.reset = dlsym(library, "fake_ibverbs_reset");
    *(void **)&fake.on = dlsym(library, "fake_ibverbs_on");
    *(void **)&fake.calls = dlsym(library, "fake_ibverbs_calls");
    *(void **)&fake.live = dlsym(library, "fake_ibverbs_live");
    *(void **)&fake.hold = dlsym(library, "fake_ibverbs_hold");
    *(void **)&fake.release = dlsym(library, "fake_ibverbs_release");
    *(void **)&fake.numbers_part = dlsym(library, "fake_ibverbs_numbers_part");
    return fake.numbers_part && fake.reset && fake.on && fake.calls && fake.live && fake.hold && fake.release
               ? 0
               : -1;
}

static inline void assert_nothing_is_left(void)
{
    assert_int_equal(fake.live(FAKE_IBVERBS_KINDS), 0);
}

/* ---- the log ---- */

static pthread_mutex_t play_log_lock = PTHREAD_MUTEX_INITIALIZER;
static char play_log[8192];

static inline void play_log_line(void *context, enum gpusys_log_level level, const char *line)
{
    (void)context, (void)level;
    pthread_mutex_lock(&play_log_lock);
    size_t length = strlen(play_log);
    snprintf(play_log + length, sizeof play_log - length, "%s\n", line);
    pthread_mutex_unlock(&play_log_lock);
}

static inline void play_log_begin(void)
{
    play_log[0] = 0;
    gpusys_log_set(play_log_line, NULL, GPUSYS_LOG_INFO);
}

static inline void assert_logged(const char *words)
{
    gpusys_log_set(NULL, NULL, GPUSYS_LOG_ERROR);
    if (!strstr(play_log, words))
        fail_msg("\"%s\" is not in the log \"%s\"", words, play_log);
}

static inline void assert_says(const struct gpusys_error *error, int code, const char *words)
{
    char text[2048];
    gpusys_error_format(error, text, sizeof text);
    assert_int_equal(error->code, code);
    if (!strstr(text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, text);
}

/* ---- two ends of a TCP connection over loopback ---- */

struct play_pair {
    struct gpusys_stream *client, *server;
};

static inline void play_pair_open(struct play_pair *ret_pair)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &size), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&name, size), 0);
    int server = accept(listener, NULL, NULL);
    assert_true(server >= 0);
    close(listener);
    assert_int_equal(gpusys_stream_open_fd(&ret_pair->client, client, "the server"), 0);
    assert_int_equal(gpusys_stream_open_fd(&ret_pair->server, server, "the client"), 0);
}

/* ---- the server: accepts, registers, serves, and stays until the client closes ---- */

struct play_server {
    struct gpusys_stream *stream; /* its own */
    enum gpusys_dialect dialect;
    struct gpusys_railset_options options;
    struct gpusys_pd *const *pds;
    unsigned char *memory; /* PLAY_REGIONS of PLAY_REGION_BYTES each */
    struct gpusys_mr *mrs[PLAY_RAILS][PLAY_REGIONS];
    struct gpusys_region_key keys[PLAY_RAILS][PLAY_REGIONS];
    pthread_t thread;
    int code; /* of accept and serve */
    struct gpusys_error error;
};

static inline int play_register(struct play_server *server, const struct gpusys_railset *set)
{
    bool writable = server->dialect == GPUSYS_DIALECT_READ_WRITE;
    int code = 0;
    for (uint32_t rail = 0; rail < gpusys_railset_count(set); rail++)
        for (uint32_t i = 0; i < (writable ? 1 : PLAY_REGIONS) && !code; i++) {
            struct gpusys_mr_info info = {.size = sizeof info};
            code = gpusys_mr_open(&server->mrs[rail][i], gpusys_railset_rail(set, rail)->pd,
                                  server->memory + i * PLAY_REGION_BYTES, PLAY_REGION_BYTES,
                                  writable ? GPUSYS_MR_PEER_READ_WRITE : GPUSYS_MR_PEER_READ, &server->error);
            if (!code)
                code = gpusys_mr_info(server->mrs[rail][i], &info);
            server->keys[rail][i] = (struct gpusys_region_key){.base = info.address, .rkey = info.rkey};
        }
    return code;
}

static inline int play_serve(struct play_server *server, struct gpusys_railset *set)
{
    const struct gpusys_region_key *tables[PLAY_RAILS] = {server->keys[0], server->keys[1]};
    const struct gpusys_region_key arenas[PLAY_RAILS] = {server->keys[0][0], server->keys[1][0]};
    if (server->dialect == GPUSYS_DIALECT_READ_ONLY)
        return gpusys_railset_serve_ro(set, tables, PLAY_REGIONS, play_soon(), &server->error);
    return gpusys_railset_serve_rw(set, arenas, play_soon(), &server->error);
}

static inline void *play_server_main(void *context)
{
    struct play_server *server = context;
    struct gpusys_railset *set = NULL;
    char byte;
    server->code = gpusys_railset_accept(&set, server->stream, server->dialect, &server->options, server->pds,
                                         play_soon(), &server->error);
    if (!server->code)
        server->code = play_register(server, set);
    if (!server->code)
        server->code = play_serve(server, set);
    if (!server->code)
        gpusys_stream_read(server->stream, &byte, 1, play_soon(), NULL);
    for (uint32_t i = 0; i < PLAY_RAILS * PLAY_REGIONS; i++)
        gpusys_mr_close(server->mrs[i / PLAY_REGIONS][i % PLAY_REGIONS]);
    gpusys_railset_close(set);
    gpusys_stream_close(server->stream);
    return NULL;
}

static inline void play_server_start(struct play_server *server)
{
    server->memory = malloc(PLAY_REGIONS * PLAY_REGION_BYTES);
    assert_non_null(server->memory);
    for (size_t i = 0; i < PLAY_REGIONS * PLAY_REGION_BYTES; i++)
        server->memory[i] = (unsigned char)(i * 31 + i / 251);
    if (!server->options.size)
        server->options.size = sizeof server->options;
    assert_int_equal(pthread_create(&server->thread, NULL, play_server_main, server), 0);
}

/* Its code. The client's stream is closed by then. */
static inline int play_server_end(struct play_server *server)
{
    pthread_join(server->thread, NULL);
    free(server->memory);
    return server->code;
}

/* ---- the client ---- */

struct play_client {
    struct gpusys_stream *stream;
    enum gpusys_dialect dialect;
    struct gpusys_railset_options options;
    struct gpusys_railset *set;
    struct gpusys_error error;
};

/* Up to the ack. */
static inline int play_client_connect(struct play_client *client)
{
    client->options.size = sizeof client->options;
    int code = gpusys_railset_begin(&client->set, client->stream, client->dialect, &client->options,
                                    play_soon(), &client->error);
    if (code)
        return code;
    if (client->dialect == GPUSYS_DIALECT_READ_WRITE)
        return gpusys_railset_finish_rw(client->set, play_soon(), &client->error);
    code = gpusys_railset_read_server_ro(client->set, play_soon(), &client->error);
    return code ? code : gpusys_railset_complete(client->set, play_soon(), &client->error);
}

static inline void play_client_end(struct play_client *client)
{
    gpusys_railset_close(client->set);
    gpusys_stream_close(client->stream);
}

/* One request on a rail, to its end: 0, the status of its completion, or what posting and waiting gave. */
static inline int play_move(const struct gpusys_rail *rail, uint32_t kind, void *buffer, uint64_t remote,
                            uint32_t rkey, uint64_t length)
{
    struct gpusys_mr *mr = NULL;
    struct gpusys_mr_info info = {.size = sizeof info};
    struct gpusys_qp_completion completion = {.status = 0};
    int code = gpusys_mr_open(&mr, rail->pd, buffer, length, GPUSYS_MR_LANDING, NULL);
    if (code)
        return code;
    gpusys_mr_info(mr, &info);
    const struct gpusys_qp_op op = {.id = 77,
                                    .local = info.address,
                                    .remote = remote,
                                    .length = length,
                                    .lkey = info.lkey,
                                    .rkey = rkey,
                                    .kind = kind};
    code = gpusys_qp_post(rail->qp, &op, 1);
    if (code == 1)
        code = gpusys_qp_wait(rail->qp, &completion, 1, NULL, play_soon());
    gpusys_mr_close(mr);
    return code == 1 ? (completion.id == 77 ? completion.status : -ENOMSG) : code;
}

#endif
