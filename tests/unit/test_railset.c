/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A set of rails against a scripted peer: options, the order of bytes, counts, refusals on either side. */
#include "railset_play.h"

#include "support/script_stream.h"

/* Records as a peer sends them whose numbers have 24 bits: what every queue pair can be connected to. */
#define GID_0 "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01"
#define GID_1 "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x02"
#define QP_0                                                                                                 \
    "\x03\x02\x01\0"                                                                                         \
    "\x07\x06\x05\0" GID_0
#define QP_1                                                                                                 \
    "\x0b\x0a\x09\0"                                                                                         \
    "\x0f\x0e\x0d\0" GID_1
#define KEY_0                                                                                                \
    "\x88\x77\x66\x55\x44\x33\x22\x11"                                                                       \
    "\xcc\xbb\xaa\x99"
#define KEY_1                                                                                                \
    "\x0d\xf0\xad\x0b\xef\xbe\xad\xde"                                                                       \
    "\x04\x03\x02\x01"
#define ONE "\x01\0\0\0"

#define CLIENT_2 "\x02" QP_0 QP_1
#define TABLE_2  "\x02" QP_0 ONE KEY_0 QP_1 ONE KEY_1
#define ARENA_2  "\x02" QP_0 KEY_0 QP_1 KEY_1

enum { CLIENT_2_BYTES = 49, TABLE_2_BYTES = 81, ARENA_2_BYTES = 73 };

static int begin_on(struct script **ret_script, struct play_client *client, const struct script_step *steps,
                    size_t n)
{
    *ret_script = script_new(steps, n);
    client->stream = script_open(*ret_script);
    if (!client->options.devices) {
        client->options.devices = play_devices;
        client->options.n_devices = 2;
    }
    return play_client_connect(client);
}

static void end(struct script *script, struct play_client *client)
{
    play_client_end(client);
    script_free(script);
    assert_nothing_is_left();
}

/* ---- what is refused before a byte is written ---- */

static void check_refused(const struct gpusys_railset_options *options, enum gpusys_dialect dialect, int code,
                          const char *words)
{
    const struct script_step steps[] = {SCRIPT_ANY(1)};
    struct script *script = script_new(steps, 1);
    struct gpusys_stream *stream = script_open(script);
    struct gpusys_railset *set = NULL;
    struct gpusys_error error = {.code = 0};
    assert_int_equal(gpusys_railset_begin(&set, stream, dialect, options, play_soon(), &error), code);
    assert_null(set);
    assert_says(&error, code, words);
    assert_string_equal(script_trace(script), "");
    gpusys_stream_close(stream);
    script_free(script);
    assert_nothing_is_left();
}

static void test_options(void **state)
{
    (void)state;
    const enum gpusys_dialect ro = GPUSYS_DIALECT_READ_ONLY, rw = GPUSYS_DIALECT_READ_WRITE;
    const uint32_t indices[2] = {3, 200};
    const char *const unknown[] = {"fake0", "mlx9_9"}, *const unnamed[] = {NULL};
    const char *const nine[9] = {"fake0", "fake0", "fake0", "fake0", "fake0",
                                 "fake0", "fake0", "fake0", "fake0"};
    const struct gpusys_qp_options eager = {.size = sizeof eager, .retry_count = 7};
    const struct {
        struct gpusys_railset_options options;
        enum gpusys_dialect dialect;
        int code;
        const char *words;
    } cases[] = {
        {{.devices = play_devices, .n_devices = 2, .n_rails = 3},
         ro,
         -ENODEV,
         "3 rails wanted, 2 devices: fake0, fake1"},
        {{.n_rails = 3}, ro, -ENODEV, "3 rails wanted, 2 devices: fake0:1, fake1:1"},
        {{.n_rails = 9}, ro, -EINVAL, "9 rails wanted, the read-only dialect has 1 to 8"},
        {{.n_rails = 256}, rw, -EINVAL, "256 rails wanted, the read-write dialect has 1 to 255"},
        {{.devices = nine, .n_devices = 9}, ro, -EINVAL, "9 rails wanted, the read-only dialect has 1 to 8"},
        {{.devices = play_devices}, ro, -EINVAL, "0 of them, and a list"},
        {{.n_devices = 2}, ro, -EINVAL, "2 of them, and no list"},
        {{.gid_index = indices}, ro, -EINVAL, "GID indices, and no list of devices"},
        {{.devices = unnamed, .n_devices = 1}, ro, -EINVAL, "device 0 of the rails: no name"},
        {{.devices = unknown, .n_devices = 2}, ro, -ENODEV, "rail 1 with the script: "},
        {{.devices = unknown, .n_devices = 2}, rw, -ENODEV, "mlx9_9"},
        {{.devices = play_devices, .n_devices = 2, .gid_index = indices},
         ro,
         -EINVAL,
         "rail 1 with the script: "},
        {{.devices = play_devices, .n_devices = 2, .qp = &eager},
         ro,
         -EINVAL,
         "rail 0 (fake0 port 1) with the script: "},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gpusys_railset_options options = cases[i].options;
        options.size = sizeof options;
        check_refused(&options, cases[i].dialect, cases[i].code, cases[i].words);
    }
}

/* A caller of a newer library that asks for what this one does not know. */
static void test_other_versions(void **state)
{
    (void)state;
    struct {
        struct gpusys_railset_options options;
        uint64_t more;
    } newer = {.options = {.size = sizeof newer}, .more = 1};
    check_refused(&newer.options, GPUSYS_DIALECT_READ_ONLY, -E2BIG, "another version");
    check_refused(&(struct gpusys_railset_options){.size = 3}, GPUSYS_DIALECT_READ_ONLY, -EINVAL,
                  "another version");
}

/* ---- the client's bytes, in their order ---- */

/* Rail `at` of step 3 is the queue pair that the set has. */
static void check_identity(const struct gpusys_railset *set, uint32_t at, const unsigned char *bytes)
{
    struct gpusys_qp_end own = {.size = sizeof own};
    struct gpusys_qp_params params;
    size_t size;
    assert_int_equal(gpusys_qp_end(gpusys_railset_rail(set, at)->qp, &own), 0);
    assert_int_equal(gpusys_qp_params_decode(&params, bytes + 24 * at, 24, &size), 0);
    assert_int_equal(params.qpn, own.qpn);
    assert_int_equal(params.psn, own.psn);
    assert_memory_equal(params.gid, own.gid, 16);
}

static void check_client_order(enum gpusys_dialect dialect, const char *step_2, size_t size)
{
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(step_2, size),
                                        SCRIPT_EXPECT("\x02", 1), SCRIPT_ANY(48),
                                        SCRIPT_GIVE("\0behind it", 10)};
    struct play_client client = {.dialect = dialect};
    struct script *script;
    const unsigned char *written;
    char trace[64], behind[9];
    uint32_t count;
    assert_int_equal(begin_on(&script, &client, steps, COUNT_OF(steps)), 0);
    snprintf(trace, sizeof trace, "w1 r%zu w49 r10", size);
    assert_string_equal(script_trace(script), trace);
    assert_null(script_fault(script));
    assert_true(script_done(script));
    assert_int_equal(script_early_reads(script) + script_early_writes(script), 0);
    assert_int_equal(script_written(script, &written), 50);
    for (uint32_t i = 0; i < 2; i++)
        check_identity(client.set, i, written + 2);
    assert_int_equal(gpusys_railset_regions(client.set, 0, &count)->base, 0x1122334455667788);
    assert_int_equal(gpusys_railset_regions(client.set, 0, &count)->rkey, 0x99AABBCC);
    assert_int_equal(gpusys_railset_regions(client.set, 1, &count)->base, 0xDEADBEEF0BADF00D);
    assert_int_equal(count, 1);
    assert_int_equal(gpusys_stream_read(client.stream, behind, 9, play_soon(), NULL), 0);
    assert_memory_equal(behind, "behind it", 9);
    end(script, &client);
}

static void test_client_order(void **state)
{
    (void)state;
    check_client_order(GPUSYS_DIALECT_READ_ONLY, TABLE_2, TABLE_2_BYTES);
    check_client_order(GPUSYS_DIALECT_READ_WRITE, ARENA_2, ARENA_2_BYTES);
}

/* Between the steps nothing passes, and what the caller wants to compare is there. */
static void test_one_step_at_a_time(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(TABLE_2, TABLE_2_BYTES),
                                        SCRIPT_ANY(49), SCRIPT_GIVE("", 1)};
    struct script *script = script_new(steps, COUNT_OF(steps));
    struct gpusys_stream *stream = script_open(script);
    struct gpusys_railset *set = NULL;
    struct gpusys_error error;
    uint32_t count = 9;
    assert_int_equal(gpusys_railset_begin(&set, stream, GPUSYS_DIALECT_READ_ONLY, NULL, play_soon(), &error),
                     0);
    assert_int_equal(gpusys_railset_count(set), 2);
    assert_string_equal(script_trace(script), "w1");
    assert_null(gpusys_railset_regions(set, 0, &count));
    assert_int_equal(count, 0);
    assert_int_equal(gpusys_railset_complete(set, play_soon(), &error), -EINVAL);
    assert_says(&error, -EINVAL, "step 3 is out of turn, next is 2");
    assert_int_equal(gpusys_railset_probe(set, 0, 4096, play_soon(), &error), -EINVAL);
    assert_says(&error, -EINVAL, "before they are connected");
    assert_int_equal(gpusys_railset_read_server_ro(set, play_soon(), &error), 0);
    assert_string_equal(script_trace(script), "w1 r81");
    assert_int_equal(gpusys_railset_read_server_ro(set, play_soon(), &error), -EINVAL);
    assert_non_null(gpusys_railset_regions(set, 1, &count));
    assert_int_equal(count, 1);
    assert_null(gpusys_railset_regions(set, 2, &count));
    assert_int_equal(count, 0);
    assert_int_equal(gpusys_railset_complete(set, play_soon(), &error), 0);
    assert_string_equal(script_trace(script), "w1 r81 w49 r1");
    assert_int_equal(gpusys_railset_complete(set, play_soon(), &error), -EINVAL);
    assert_int_equal(gpusys_railset_probe(set, 1, 4096, play_soon(), &error), -EINVAL);
    assert_says(&error, -EINVAL, "region 1 as a probe, rail 0 has 1");
    assert_int_equal(gpusys_railset_probe(set, 0, 256, play_soon(), &error), 0);
    gpusys_railset_close(set);
    gpusys_stream_close(stream);
    script_free(script);
    assert_nothing_is_left();
}

static void test_wrong_side(void **state)
{
    (void)state;
    const struct gpusys_region_key keys[2] = {{.base = 1}, {.base = 1}};
    const struct gpusys_region_key *const tables[2] = {keys, keys};
    const struct script_step asks[] = {SCRIPT_GIVE("\x02", 1)}, is_asked[] = {SCRIPT_ANY(1)};
    struct script *scripts[2] = {script_new(asks, 1), script_new(is_asked, 1)};
    struct gpusys_stream *streams[2] = {script_open(scripts[0]), script_open(scripts[1])};
    struct gpusys_railset *server = NULL, *client = NULL;
    struct gpusys_error error;
    assert_int_equal(
        gpusys_railset_accept(&server, streams[0], GPUSYS_DIALECT_READ_ONLY, NULL, NULL, play_soon(), NULL),
        0);
    assert_int_equal(
        gpusys_railset_begin(&client, streams[1], GPUSYS_DIALECT_READ_ONLY, NULL, play_soon(), NULL), 0);
    assert_int_equal(gpusys_railset_read_server_ro(server, play_soon(), &error), -EINVAL);
    assert_says(&error, -EINVAL, "is the client's, and this set is the server's");
    assert_int_equal(gpusys_railset_read_server_rw(server, play_soon(), &error), -EINVAL);
    assert_int_equal(gpusys_railset_finish_rw(server, play_soon(), &error), -EINVAL);
    assert_int_equal(gpusys_railset_complete(server, play_soon(), &error), -EINVAL);
    assert_int_equal(gpusys_railset_probe(server, 0, 4096, play_soon(), &error), -EINVAL);
    assert_int_equal(gpusys_railset_serve_ro(client, tables, 1, play_soon(), &error), -EINVAL);
    assert_says(&error, -EINVAL, "is the server's, and this set is the client's");
    assert_int_equal(gpusys_railset_serve_rw(client, keys, play_soon(), &error), -EINVAL);
    assert_string_equal(script_trace(scripts[0]), "r1");
    assert_string_equal(script_trace(scripts[1]), "w1");
    gpusys_railset_close(server);
    gpusys_railset_close(client);
    for (int i = 0; i < 2; i++) {
        gpusys_stream_close(streams[i]);
        script_free(scripts[i]);
    }
    assert_nothing_is_left();
}

/* ---- servers that refuse, leave, or send what cannot be ---- */

static void test_client_refusals(void **state)
{
    (void)state;
    const struct {
        const char *step_2;
        size_t size;
        const char *ack; /* NULL: the stream ends before it */
        int code;
        const char *words, *trace;
    } cases[] = {
        {"", 0, NULL, -ECONNREFUSED, "the script refused this client", "w1"},
        {"\x02\x03", 2, NULL, -EPIPE, "inside VerbsServerParams of rail 0: 1 of 28 bytes came", "w1 r2"},
        {"\x01" QP_0 ONE KEY_0, 41, NULL, -EPROTO, "granted 1 rails where 2 were wanted", "w1 r41"},
        {"\x09", 1, NULL, -EBADMSG, "granted 9 rails", "w1 r1"},
        {TABLE_2, 80, NULL, -EPIPE, "VerbsServerParams of rail 1: 39 of 40 bytes came", "w1 r80"},
        {TABLE_2, 81, NULL, -EPIPE, "the ack", "w1 r81 w49"},
        {TABLE_2, 81, "\x07", -EACCES, "ack 7", "w1 r81 w49 r1"},
        {"\x02" QP_0 ONE KEY_0 "\x0b\x0a\x09\x01"
         "\x0f\x0e\x0d\0" GID_1 ONE KEY_1,
         81, "", -EBADMSG, "rail 1 (fake1 port 1) with the script: the peer's queue pair number is none",
         "w1 r81"},
        {"\x02" QP_0 ONE KEY_0 "\0\0\0\0"
         "\x0f\x0e\x0d\0" GID_1 ONE KEY_1,
         81, "", -EBADMSG, "QPN 0, PSN 0xd0e0f", "w1 r81"},
        {"\x02"
         "\x03\x02\x01\0"
         "\x07\x06\x05\x08" GID_0 ONE KEY_0 QP_1 ONE KEY_1,
         81, "", -EBADMSG,
         "rail 0 (fake0 port 1) with the script: the peer's packet number has more than 24 bits", "w1 r81"},
        {"\x02" QP_0 ONE KEY_0 "\x0b\x0a\x09\0"
         "\x0f\x0e\x0d\0"
         "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" ONE KEY_1,
         81, "", -EBADMSG, "the peer's GID is empty", "w1 r81"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct script_step steps[] = {
            SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(cases[i].step_2, cases[i].size),
            cases[i].size == 81 ? (struct script_step)SCRIPT_ANY(49) : (struct script_step)SCRIPT_END(),
            SCRIPT_GIVE(cases[i].ack, cases[i].ack ? 1 : 0), SCRIPT_END()};
        struct play_client client = {.dialect = GPUSYS_DIALECT_READ_ONLY};
        struct script *script;
        assert_int_equal(begin_on(&script, &client, steps, COUNT_OF(steps)), cases[i].code);
        assert_says(&client.error, cases[i].code, cases[i].words);
        assert_string_equal(script_trace(script), cases[i].trace);
        assert_int_equal(gpusys_railset_complete(client.set, play_soon(), NULL),
                         cases[i].code == -EBADMSG && cases[i].size == 81 ? -EBADMSG : -EINVAL);
        end(script, &client);
    }
}

/* What a queue pair refuses names the rail, and both ends' values. */
static void test_client_cannot_connect(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_ANY(1), SCRIPT_GIVE(ARENA_2, ARENA_2_BYTES), SCRIPT_ANY(49)};
    struct play_client client = {.dialect = GPUSYS_DIALECT_READ_WRITE};
    struct script *script;
    assert_int_equal(fake.on("ibv_modify_qp", 5, FAKE_IBVERBS_FAIL, EINVAL),
                     0); /* INIT, INIT, RTR, RTS, RTR */
    assert_int_equal(begin_on(&script, &client, steps, COUNT_OF(steps)), -EINVAL);
    assert_says(&client.error, -EINVAL, "rail 1 (fake1 port 1) with the script: ");
    assert_says(&client.error, -EINVAL, "QPN 0x90a0b, PSN 0xd0e0f");
    assert_says(&client.error, -EINVAL, "127.0.0.2");
    assert_string_equal(script_trace(script), "w1 r73 w49");
    end(script, &client);
    fake.reset();
}

/* ---- the server ---- */

/* Accept and serve with one region on each rail. */
static int serve_on(struct script **ret_script, const struct script_step *steps, size_t n,
                    enum gpusys_dialect dialect, struct gpusys_error *error)
{
    const struct gpusys_region_key keys[2] = {{.base = 0x1122334455667788, .rkey = 0x99AABBCC},
                                              {.base = 0x1122334455667788, .rkey = 0x01020304}};
    const struct gpusys_region_key *const tables[2] = {&keys[0], &keys[1]};
    struct script *script = script_new(steps, n);
    struct gpusys_stream *stream = script_open(script);
    struct gpusys_railset *set = NULL;
    int code = gpusys_railset_accept(&set, stream, dialect, NULL, NULL, play_soon(), error);
    if (!code)
        code = dialect == GPUSYS_DIALECT_READ_ONLY
                   ? gpusys_railset_serve_ro(set, tables, 1, play_soon(), error)
                   : gpusys_railset_serve_rw(set, keys, play_soon(), error);
    gpusys_railset_close(set);
    gpusys_stream_close(stream);
    *ret_script = script;
    assert_nothing_is_left();
    return code;
}

static void check_server_order(enum gpusys_dialect dialect, size_t size, size_t gid_at)
{
    const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_ANY(size),
                                        SCRIPT_GIVE(CLIENT_2, CLIENT_2_BYTES), SCRIPT_EXPECT("", 1)};
    struct script *script;
    const unsigned char *written;
    char trace[64];
    assert_int_equal(serve_on(&script, steps, COUNT_OF(steps), dialect, NULL), 0);
    snprintf(trace, sizeof trace, "r1 w%zu r49 w1", size);
    assert_string_equal(script_trace(script), trace);
    assert_null(script_fault(script));
    assert_int_equal(script_written(script, &written), size + 1);
    assert_int_equal(written[0], 2);
    assert_memory_equal(written + gid_at, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x02", 16); /* fake1's */
    assert_memory_equal(written + size - 12,
                        "\x88\x77\x66\x55\x44\x33\x22\x11"
                        "\x04\x03\x02\x01",
                        12);
    script_free(script);
}

static void test_server_order(void **state)
{
    (void)state;
    check_server_order(GPUSYS_DIALECT_READ_ONLY, TABLE_2_BYTES, 1 + 40 + 8);
    check_server_order(GPUSYS_DIALECT_READ_WRITE, ARENA_2_BYTES, 1 + 36 + 8);
}

static void test_server_refusals(void **state)
{
    (void)state;
    const struct {
        const char *step_1;
        const char *step_3;
        size_t size;
        int code;
        const char *words, *trace, *logged;
    } cases[] = {
        {"", "", 0, -ECONNRESET, "left before it asked for rails", "", NULL},
        {"\x03", "", 0, -ENODEV, "the script asked for 3 rails, here are 2 devices", "r1",
         "refused: the script asked for 3 rails, here are 2 devices"},
        {"\x09", "", 0, -EBADMSG, "asked for 9 rails", "r1", "refused: the script asked for 9 rails"},
        {"\x02", "", 0, -EPIPE, "the second rail count", "r1 w81", NULL},
        {"\x02", "\x01", 1, -EPROTO, "asked for 2 rails first and answers with 1", "r1 w81 r1", "refused: "},
        {"\x02", CLIENT_2, 48, -EPIPE, "VerbsClientParams of rail 1: 23 of 24 bytes came", "r1 w81 r48",
         NULL},
        {"\x02",
         "\x02" QP_0 "\x0b\x0a\x09\x05"
         "\x0f\x0e\x0d\0" GID_1,
         49, -EBADMSG, "rail 1 (fake1 port 1) with the script: the peer's queue pair number is none",
         "r1 w81 r49 w1",
         "refused: rail 1 (fake1 port 1) with the script: the peer's queue pair number is none"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct script_step steps[] = {SCRIPT_GIVE(cases[i].step_1, strlen(cases[i].step_1)),
                                            SCRIPT_ANY(81), SCRIPT_GIVE(cases[i].step_3, cases[i].size),
                                            SCRIPT_ANY(1), SCRIPT_END()};
        const struct script_step at_once[] = {SCRIPT_END()};
        struct script *script;
        struct gpusys_error error = {.code = 0};
        play_log_begin();
        /* The steps that wait for bytes hold the end of the stream back; without them it comes where it
         * should. */
        const struct script_step cut[] = {steps[0], SCRIPT_ANY(81), steps[2], SCRIPT_END()};
        int code = !*cases[i].step_1     ? serve_on(&script, at_once, 1, GPUSYS_DIALECT_READ_ONLY, &error)
                   : cases[i].size == 49 ? serve_on(&script, steps, 5, GPUSYS_DIALECT_READ_ONLY, &error)
                                         : serve_on(&script, cut, 4, GPUSYS_DIALECT_READ_ONLY, &error);
        assert_int_equal(code, cases[i].code);
        assert_says(&error, code, cases[i].words);
        assert_string_equal(script_trace(script), cases[i].trace);
        assert_logged(cases[i].logged ? cases[i].logged : "");
        if (cases[i].size == 49) {
            const unsigned char *written;
            assert_int_equal(script_written(script, &written), 82);
            assert_int_equal(written[81], GPUSYS_STATUS_ERR);
        }
        script_free(script);
    }
}

/* A queue pair that cannot be connected: the client is told by the ack. */
static void test_server_cannot_connect(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_ANY(ARENA_2_BYTES),
                                        SCRIPT_GIVE(CLIENT_2, CLIENT_2_BYTES), SCRIPT_EXPECT("\x01", 1)};
    struct script *script;
    struct gpusys_error error;
    assert_int_equal(fake.on("ibv_modify_qp", 6, FAKE_IBVERBS_FAIL, EIO), 0); /* the second rail's RTS */
    assert_int_equal(serve_on(&script, steps, COUNT_OF(steps), GPUSYS_DIALECT_READ_WRITE, &error), -EIO);
    assert_says(&error, -EIO, "rail 1 (fake1 port 1) with the script: ");
    assert_null(script_fault(script));
    assert_string_equal(script_trace(script), "r1 w73 r49 w1");
    script_free(script);
    fake.reset();
}

static void test_server_of_two_arenas(void **state)
{
    (void)state;
    const struct gpusys_region_key keys[2] = {{.base = 0x1000}, {.base = 0x2000}};
    const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1)};
    struct script *script = script_new(steps, 1);
    struct gpusys_stream *stream = script_open(script);
    struct gpusys_railset *set = NULL;
    struct gpusys_error error;
    assert_int_equal(
        gpusys_railset_accept(&set, stream, GPUSYS_DIALECT_READ_WRITE, NULL, NULL, play_soon(), &error), 0);
    assert_int_equal(gpusys_railset_serve_rw(set, keys, play_soon(), &error), -EINVAL);
    assert_says(&error, -EINVAL, "at 0x1000 on rail 0 and at 0x2000 on rail 1");
    assert_string_equal(script_trace(script), "r1");
    gpusys_railset_close(set);
    gpusys_stream_close(stream);
    script_free(script);
    assert_nothing_is_left();
}

/* ---- handing over ---- */

static void test_take(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_ANY(1), SCRIPT_GIVE(TABLE_2, TABLE_2_BYTES), SCRIPT_ANY(49),
                                        SCRIPT_GIVE("", 1)};
    struct play_client client = {.dialect = GPUSYS_DIALECT_READ_ONLY};
    struct script *script;
    struct gpusys_rail rail = {.verbs = NULL}, untouched = {.verbs = NULL};
    struct gpusys_qp_info info = {.size = sizeof info};
    assert_int_equal(begin_on(&script, &client, steps, COUNT_OF(steps)), 0);
    struct gpusys_qp *qp = gpusys_railset_rail(client.set, 1)->qp;
    assert_int_equal(gpusys_railset_take(client.set, 2, &untouched), -ENOENT);
    assert_int_equal(gpusys_railset_take(client.set, 1, &rail), 0);
    assert_ptr_equal(rail.qp, qp);
    assert_int_equal(gpusys_railset_take(client.set, 1, &untouched), -ENOENT);
    assert_null(untouched.qp);
    assert_null(gpusys_railset_rail(client.set, 1));
    assert_null(gpusys_railset_rail(client.set, 2));
    assert_non_null(gpusys_railset_rail(client.set, 0));
    assert_int_equal(gpusys_railset_count(client.set), 2);
    play_client_end(&client);
    script_free(script);
    /* The one that was taken outlives the set. */
    assert_int_equal(fake.live(FAKE_IBVERBS_QPS), 1);
    assert_int_equal(gpusys_qp_info(rail.qp, &info), 0);
    assert_int_equal(info.connected, 1);
    assert_int_equal(info.remote.qpn, 0x090a0b);
    gpusys_rail_close(&rail);
    assert_null(rail.qp);
    gpusys_rail_close(&rail);
    gpusys_rail_close(NULL);
    gpusys_railset_close(NULL);
    assert_nothing_is_left();
}

/* One that was taken too early is missed before anything of step 3 is sent. */
static void test_take_too_early(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_ANY(1), SCRIPT_GIVE(TABLE_2, TABLE_2_BYTES), SCRIPT_ANY(49)};
    struct script *script = script_new(steps, COUNT_OF(steps));
    struct gpusys_stream *stream = script_open(script);
    struct gpusys_railset *set = NULL;
    struct gpusys_rail rail;
    struct gpusys_error error;
    assert_int_equal(gpusys_railset_begin(&set, stream, GPUSYS_DIALECT_READ_ONLY, NULL, play_soon(), NULL),
                     0);
    assert_int_equal(gpusys_railset_read_server_ro(set, play_soon(), NULL), 0);
    assert_int_equal(gpusys_railset_take(set, 0, &rail), 0);
    assert_int_equal(gpusys_railset_complete(set, play_soon(), &error), -EINVAL);
    assert_says(&error, -EINVAL, "rail 0 with the script was taken before it was connected");
    assert_string_equal(script_trace(script), "w1 r81");
    gpusys_rail_close(&rail);
    gpusys_railset_close(set);
    gpusys_stream_close(stream);
    script_free(script);
    assert_nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_other_versions),
        cmocka_unit_test(test_client_order),
        cmocka_unit_test(test_one_step_at_a_time),
        cmocka_unit_test(test_wrong_side),
        cmocka_unit_test(test_client_refusals),
        cmocka_unit_test(test_client_cannot_connect),
        cmocka_unit_test(test_server_order),
        cmocka_unit_test(test_server_refusals),
        cmocka_unit_test(test_server_cannot_connect),
        cmocka_unit_test(test_server_of_two_arenas),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_take_too_early),
    };
    if (!gpusys_verbs_enabled())
        return PLAY_SKIPPED;
    return cmocka_run_group_tests(tests, play_begin, NULL);
}
