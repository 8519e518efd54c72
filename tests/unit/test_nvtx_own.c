/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The ranges around gpusys' own transfers, as a tool (tests/fake/nvtx_inject.c) sees them. */
#include "remote_play.h"

#include "nvtx_play.h"

#include "base/range.h"

enum { REGION_BYTES = 3 * MIB };

static const int64_t patience = 20000000000;
static const char *self; /* this program */
static unsigned char bytes[REGION_BYTES];

static void expect(void (*body)(void), const char *expected)
{
    const char *path = play_file_of_words();
    play_in_child(body,
                  (const char *const[]){"NVTX_INJECTION64_PATH", NVTX_INJECT, "FAKE_NVTX_LOG", path, NULL});
    assert_string_equal(play_words(path), expected);
}

/* ---- transfers ---- */

struct session {
    struct gpusys_peer *peer;
    struct gpusys_remote *remote;
    uint32_t region;
};

static struct session begin(uint32_t transport)
{
    struct session session = {.peer = play_peer(NULL)};
    CHECK(gpusys_peer_add_memory(session.peer, "region", REGION_BYTES, 3, NULL, NULL) == 0);
    CHECK(gpusys_peer_start(session.peer, NULL) == 0);
    session.remote = play_remote(gpusys_peer_address(session.peer), transport, 2);
    session.region = play_find(session.remote, "region");
    return session;
}

static void end(struct session *session)
{
    gpusys_remote_close(session->remote);
    gpusys_peer_close(session->peer);
}

static void moves(uint32_t transport)
{
    struct session session = begin(transport);
    const struct gpusys_io ios[] = {
        {.op = GPUSYS_OP_READ, .region = session.region, .buffer = bytes, .length = MIB},
        {.op = GPUSYS_OP_WRITE, .region = session.region, .offset = MIB, .buffer = bytes + MIB, .length = 5}};
    struct gpusys_completion completion;
    uint64_t batch;
    CHECK(gpusys_remote_read(session.remote, session.region, 0, bytes, REGION_BYTES, patience) == 0);
    CHECK(gpusys_remote_write(session.remote, session.region, 7, bytes, 100, patience) == 0);
    CHECK(gpusys_remote_submit(session.remote, ios, 2, NULL, &batch) == 0);
    CHECK(gpusys_remote_wait_batch(session.remote, batch, &completion, patience) == 0);
    CHECK(completion.status == 0);
    CHECK(gpusys_remote_read(session.remote, session.region, 0, bytes, 8, patience) == 0);
    CHECK(gpusys_remote_read(session.remote, session.region, REGION_BYTES, bytes, 8, patience) == -ERANGE);
    end(&session);
}

static void moves_over_tcp(void)
{
    gpusys_nvtx_own_ranges(true);
    moves(GPUSYS_TRANSPORT_TCP);
}

static void moves_over_shm(void)
{
    gpusys_nvtx_own_ranges(true);
    moves(GPUSYS_TRANSPORT_SHM);
}

static void moves_unasked(void)
{
    CHECK(gpusys_nvtx_enabled());
    moves(GPUSYS_TRANSPORT_TCP);
}

static const char moved[] = "0 domain \"gpusys\"\n"
                            "0 start gpusys \"read\" u64=3145728 id=1\n"
                            "0 end gpusys id=1\n"
                            "0 start gpusys \"write\" u64=100 id=2\n"
                            "0 end gpusys id=2\n"
                            "0 start gpusys \"read and write\" u64=1048581 id=3\n"
                            "0 end gpusys id=3\n"
                            "0 start gpusys \"read\" u64=8 id=4\n"
                            "0 end gpusys id=4\n";

static void every_transfer_is_a_range(void **state)
{
    (void)state;
    expect(moves_over_tcp, moved);
    expect(moves_over_shm, moved);
}

static void but_not_unasked(void **state)
{
    (void)state;
    expect(moves_unasked, "");
}

static void closes_early(void)
{
    gpusys_nvtx_own_ranges(true);
    struct session session = begin(GPUSYS_TRANSPORT_TCP);
    const struct gpusys_io io = {
        .op = GPUSYS_OP_READ, .region = session.region, .buffer = bytes, .length = REGION_BYTES};
    CHECK(gpusys_remote_submit(session.remote, &io, 1, NULL, NULL) == 0);
    end(&session);
}

static void a_transfer_that_fails_ends_its_range(void **state)
{
    (void)state;
    expect(closes_early, "0 domain \"gpusys\"\n"
                         "0 start gpusys \"read\" u64=3145728 id=1\n"
                         "0 end gpusys id=1\n");
}

/* ---- on and off ---- */

static void turns(void)
{
    CHECK(gs_range_ops == NULL);
    CHECK(gs_range_start("unasked", 1) == NULL);
    gpusys_nvtx_own_ranges(false);
    CHECK(gs_range_ops == NULL);
    gpusys_nvtx_own_ranges(true);
    void *first = gs_range_start("first", 1);
    gpusys_nvtx_own_ranges(false);
    CHECK(gs_range_start("off", 2) == NULL);
    gs_range_end(first);
    gpusys_nvtx_own_ranges(true);
    gs_range_end(gs_range_start("again", 3));
    gs_range_end(NULL);
}

static void they_turn_on_and_off(void **state)
{
    (void)state;
    expect(turns, "0 domain \"gpusys\"\n"
                  "0 start gpusys \"first\" u64=1 id=1\n"
                  "0 end gpusys id=1\n"
                  "0 start gpusys \"again\" u64=3 id=2\n"
                  "0 end gpusys id=2\n");
}

static void asks_nobody(void)
{
    unsetenv("NVTX_INJECTION64_PATH");
    gpusys_nvtx_own_ranges(true);
    CHECK(gs_range_ops == NULL);
}

static void where_nobody_listens_they_stay_off(void **state)
{
    (void)state;
    expect(asks_nobody, "");
}

/* ---- the environment ---- */

static void start_anew(void)
{
    setenv("GPUSYS_NVTX_RANGES", "1", 1);
    execl("/proc/self/exe", self, "anew", (char *)NULL);
    CHECK(errno == 0);
}

static void start_anew_with_no(void)
{
    setenv("GPUSYS_NVTX_RANGES", "0", 1);
    execl("/proc/self/exe", self, "anew", (char *)NULL);
    CHECK(errno == 0);
}

static void start_anew_alone(void)
{
    unsetenv("NVTX_INJECTION64_PATH");
    start_anew();
}

/* What the program that was started anew does. */
static int after_start(void)
{
    gs_range_end(gs_range_start("first", 1));
    gs_range_end(gs_range_start("second", 2));
    return 0;
}

static void the_environment_asks_for_them(void **state)
{
    (void)state;
    expect(start_anew, "0 domain \"gpusys\"\n"
                       "0 start gpusys \"first\" u64=1 id=1\n"
                       "0 end gpusys id=1\n"
                       "0 start gpusys \"second\" u64=2 id=2\n"
                       "0 end gpusys id=2\n");
    expect(start_anew_with_no, "");
    expect(start_anew_alone, "");
}

/* Theirs are no calls of the program's: they have no line. */
static void leaves_open(void)
{
    gpusys_nvtx_own_ranges(true);
    gs_range_start("read", 1);
}

static void the_checker_sees_them_too(void **state)
{
    char expected[128];
    (void)state;
    const char *path = play_file_of_words();
    int id = play_in_child(leaves_open, (const char *const[]){"GPUSYS_NVTX_CHECK", path, NULL});
    snprintf(expected, sizeof expected,
             "%d: NVTX: \"read\" (started by gpusys in domain \"gpusys\") was open when the process ended\n",
             id);
    assert_string_equal(play_words(path), expected);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transfer_is_a_range),
        cmocka_unit_test(but_not_unasked),
        cmocka_unit_test(a_transfer_that_fails_ends_its_range),
        cmocka_unit_test(they_turn_on_and_off),
        cmocka_unit_test(where_nobody_listens_they_stay_off),
        cmocka_unit_test(the_environment_asks_for_them),
        cmocka_unit_test(the_checker_sees_them_too),
    };
    self = argv[0];
    if (argc > 1)
        return after_start();
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
