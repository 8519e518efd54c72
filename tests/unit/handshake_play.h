/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tests of the handshake share: one side played through over a scripted stream. */
#ifndef TESTS_HANDSHAKE_PLAY_H
#define TESTS_HANDSHAKE_PLAY_H

#include <errno.h>
#include <gpusys/deadline.h>
#include <gpusys/handshake.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/handshake.h"
#include "support/script_stream.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const enum gpusys_dialect both_dialects[] = {GPUSYS_DIALECT_READ_ONLY, GPUSYS_DIALECT_READ_WRITE};

/* One side of a handshake over a script, and all that it saw. */
struct play {
    struct script *script;
    struct gpusys_stream *stream;
    enum gpusys_dialect dialect;
    uint32_t n_rails;
    int64_t deadline_ns;
    struct gpusys_handshake handshake;
    struct gpusys_error error;
    struct gpusys_region_key room[2];
    struct gpusys_verbs_server_params tables[2];
    struct gpusys_cache_server_params arenas[2];
    struct gpusys_qp_params clients[2];
};

static inline void play_open(struct play *play, enum gpusys_dialect dialect, uint32_t n_rails,
                             const struct script_step *steps, size_t n_steps)
{
    *play =
        (struct play){.dialect = dialect, .n_rails = n_rails, .deadline_ns = gpusys_now_ns() + 60000000000};
    play->script = script_new(steps, n_steps);
    play->stream = script_open(play->script);
    for (int i = 0; i < 2; i++)
        play->tables[i] = (struct gpusys_verbs_server_params){.capacity = 1, .regions = &play->room[i]};
}

static inline void play_close(struct play *play)
{
    gpusys_stream_close(play->stream);
    script_free(play->script);
}

static inline int play_read_server(struct play *play)
{
    if (play->dialect == GPUSYS_DIALECT_READ_ONLY)
        return gpusys_handshake_client_read_ro(&play->handshake, play->tables, play->n_rails,
                                               play->deadline_ns, &play->error);
    return gpusys_handshake_client_read_rw(&play->handshake, play->arenas, play->n_rails, play->deadline_ns,
                                           &play->error);
}

/* The client's four steps, with the golden identities; the first failure. */
static inline int play_client(struct play *play)
{
    int code = gpusys_handshake_client_begin(&play->handshake, play->stream, play->dialect, play->n_rails,
                                             play->deadline_ns, &play->error);
    if (!code)
        code = play_read_server(play);
    if (!code)
        code = gpusys_handshake_client_complete(&play->handshake, golden_client, play->n_rails,
                                                play->deadline_ns, &play->error);
    return code ? code : gpusys_handshake_client_finish(&play->handshake, play->deadline_ns, &play->error);
}

static inline int play_write_server(struct play *play)
{
    if (play->dialect == GPUSYS_DIALECT_READ_WRITE)
        return gpusys_handshake_server_write_rw(&play->handshake, golden_server, play->n_rails,
                                                play->deadline_ns, &play->error);
    for (uint32_t i = 0; i < 2; i++) {
        play->room[i] = golden_server[i].region;
        play->tables[i].qp = golden_server[i].qp;
        play->tables[i].n_regions = 1;
    }
    return gpusys_handshake_server_write_ro(&play->handshake, play->tables, play->n_rails, play->deadline_ns,
                                            &play->error);
}

/* The server's four steps, up to an ack of 0; it serves as many rails as it is asked for, 1 or 2. */
static inline int play_server(struct play *play)
{
    int code = gpusys_handshake_server_begin(&play->handshake, play->stream, play->dialect, play->deadline_ns,
                                             &play->error);
    if (!code)
        code = play_write_server(play);
    if (!code)
        code = gpusys_handshake_server_read_client(&play->handshake, play->clients, play->n_rails,
                                                   play->deadline_ns, &play->error);
    return code ? code
                : gpusys_handshake_server_finish(&play->handshake, GPUSYS_STATUS_OK, play->deadline_ns,
                                                 &play->error);
}

/* Step 2 in the golden transcript. */
static inline const char *golden_step_2(enum gpusys_dialect dialect, uint32_t n_rails, size_t *size)
{
    bool ro = dialect == GPUSYS_DIALECT_READ_ONLY;
    *size = 1 + n_rails * (size_t)(ro ? GOLDEN_VERBS_SERVER_BYTES : GOLDEN_CACHE_SERVER_BYTES);
    return ro ? golden_server_rails_ro[n_rails] : golden_server_rails_rw[n_rails];
}

/* The failure's code is the error's too, and its message holds these words. */
static inline void assert_failed(const struct play *play, int code, int wanted, const char *words)
{
    assert_int_equal(code, wanted);
    assert_int_equal(play->error.code, wanted);
    if (!strstr(play->error.message, words))
        fail_msg("\"%s\" is not in \"%s\"", words, play->error.message);
    assert_non_null(strstr(play->error.message, "the script"));
    assert_int_equal(play->handshake.next_step, 0);
}

#endif
