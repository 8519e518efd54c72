/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tests of peers and remotes share: a place to work in, peers here and in a child, and a client that speaks
 * gpusys/1 by hand. */
#ifndef TESTS_REMOTE_PLAY_H
#define TESTS_REMOTE_PLAY_H

#include "wire/message.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <gpusys/peer.h>
#include <gpusys/remote.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { KIB = 1024, MIB = 1024 * 1024 };

static const int64_t play_second = 1000000000;

/* The two transports that there are, for tests that run over both. */
static const uint32_t both_transports[] = {GPUSYS_TRANSPORT_SHM, GPUSYS_TRANSPORT_TCP};

/* ---- a place of its own: the runtime directory, and where files are made. Group set-up and tear-down ---- */

int play_begin(void **state);
int play_end(void **state);

/* The path of a name in it; lives until the sixteenth call after this one. */
const char *play_path(const char *name);
void play_file(const char *path, const void *bytes, size_t size);

/* Reproducible noise. */
uint64_t play_random(uint64_t *seed);
void play_noise(void *bytes, size_t size, uint64_t seed);

/* Look until it is so, 20 seconds at most. */
bool play_until(bool (*is_so)(void *context), void *context);

/* ---- the log ---- */

void play_log_begin(void); /* empty, from here on */
void play_log_end(void);
bool play_log_has(const char *words);
bool play_log_comes(const char *words); /* waits for it */

/* ---- peers and remotes ---- */

/* A peer at any free port; `options` without `listen` get it. It is not started. */
struct gpusys_peer *play_peer(const struct gpusys_peer_options *options);
struct gpusys_remote *play_remote(const char *address, uint32_t transport, uint32_t connections);
struct gpusys_peer_stats play_stats(const struct gpusys_peer *peer);
uint32_t play_find(struct gpusys_remote *remote, const char *name); /* lists first */

/* A peer in a process of its own, which dies with this one. */
struct play_child {
    pid_t pid;
    int pipe; /* its life line */
    char address[160];
};
void play_child_start(struct play_child *child, const struct gpusys_peer_options *options,
                      void (*fill)(struct gpusys_peer *peer));
void play_child_signal(struct play_child *child, int number);
void play_child_stop(struct play_child *child); /* SIGKILL; NULL-safe for one that never started */

/* ---- by hand ---- */

struct play_raw {
    int fd;
    uint64_t serial;
    struct gs_welcome welcome;
    struct gs_frame frame;
    unsigned char body[GS_BODY_MAX];
};

int play_connect(const char *address); /* a blocking socket whose reads give up after 20 s */
void play_send(int fd, const void *bytes, size_t size);
int play_receive(int fd, void *bytes, size_t size);   /* all of it: 0, -ECONNRESET at the end, -errno */
void play_send_bytes(int fd, struct gs_bytes *bytes); /* and frees them */

struct play_raw *play_raw_open(const char *address, const char *cookie_path); /* up to WELCOME */
void play_raw_close(struct play_raw *raw);
void play_raw_hello(int fd, const uint8_t cookie[GS_COOKIE_BYTES / 2]);
int play_raw_frame(struct play_raw *raw); /* the next message: 0, or as play_receive */
int play_raw_rail(const struct play_raw *raw, const char *address, uint8_t transport, uint8_t rail,
                  uint32_t generation);
void play_cookie(const char *address, uint8_t ret_cookie[GS_COOKIE_BYTES]);
const char *play_cookie_path(const char *address);

/* ---- a peer by hand, for what an honest one would not do ---- */

struct play_mock {
    int listener, shm_listener, control;
    char address[64], shm_path[128];
    uint8_t cookie[GS_COOKIE_BYTES];
    struct gs_frame frame;
    unsigned char body[4096];
};

void play_mock_open(struct play_mock *mock);
void play_mock_close(struct play_mock *mock);
void play_mock_control(struct play_mock *mock, const struct gs_welcome *welcome); /* accept, HELLO, WELCOME */
void play_mock_ready(struct play_mock *mock);                                     /* READY, GO */
int play_mock_rail(struct play_mock *mock, int listener,
                   struct gs_attach *ret_attach); /* accept, ATTACH, ATTACHED */
int play_mock_frame(struct play_mock *mock, int fd);
void play_mock_table(struct play_mock *mock, uint32_t access, uint8_t place,
                     uint64_t length); /* answers LIST */
struct gpusys_remote *play_mock_remote(struct play_mock *mock, uint32_t transport, uint32_t connections);

/* The child of a mock or of a hand: asserts in another thread must not jump out of it. */
#define PLAY_CHECK(condition)                                                                                \
    do                                                                                                       \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);                \
            abort();                                                                                         \
        }                                                                                                    \
    while (0)

#endif
