/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client's side of the handshake: transcripts, order, counts, refusals, storage. */
#include "handshake_play.h"

/* ---- transcripts ---- */

static void check_golden(enum gpusys_dialect dialect, uint32_t n, bool drip)
{
    size_t size;
    const char *step_2 = golden_step_2(dialect, n, &size);
    const struct script_step give = SCRIPT_GIVE(step_2, size), slow = SCRIPT_DRIP(step_2, size);
    const struct script_step steps[] = {SCRIPT_EXPECT(golden_client_rails[n], 1), drip ? slow : give,
                                        SCRIPT_EXPECT(golden_client_rails[n], 1 + 24 * n),
                                        SCRIPT_GIVE("\0behind it", 10)};
    struct play play;
    char trace[64], behind[9];
    play_open(&play, dialect, n, steps, COUNT_OF(steps));
    assert_int_equal(play_client(&play), 0);
    assert_null(script_fault(play.script));
    assert_true(script_done(play.script));
    assert_int_equal(play.handshake.next_step, 0);
    snprintf(trace, sizeof trace, "w1 r%zu w%u r10", size, 1 + 24 * n);
    assert_string_equal(script_trace(play.script), trace);
    assert_int_equal(script_early_reads(play.script), 0);
    assert_int_equal(script_early_writes(play.script), 0);
    for (uint32_t i = 0; i < n; i++) {
        bool ro = dialect == GPUSYS_DIALECT_READ_ONLY;
        const struct gpusys_region_key *region = ro ? &play.room[i] : &play.arenas[i].region;
        assert_memory_equal(ro ? &play.tables[i].qp : &play.arenas[i].qp, &golden_server[i].qp,
                            sizeof golden_server[i].qp);
        assert_memory_equal(region, &golden_server[i].region, sizeof *region);
    }
    /* What came along with the ack is the next protocol's. */
    assert_int_equal(gpusys_stream_read(play.stream, behind, 9, play.deadline_ns, NULL), 0);
    assert_memory_equal(behind, "behind it", 9);
    play_close(&play);
}

static void test_golden(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (uint32_t n = 1; n <= 2; n++) {
            check_golden(both_dialects[d], n, false);
            check_golden(both_dialects[d], n, true);
        }
}

/* Each call does its own step and no more, so that the caller can stop between any two. */
static void test_one_step_at_a_time(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(golden_server_rails_ro[2], 81),
                                        SCRIPT_EXPECT(golden_client_rails[2], 49), SCRIPT_GIVE("", 1)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 2, steps, COUNT_OF(steps));
    assert_int_equal(
        gpusys_handshake_client_begin(&play.handshake, play.stream, play.dialect, 2, play.deadline_ns, NULL),
        0);
    assert_string_equal(script_trace(play.script), "w1");
    assert_int_equal(play.handshake.next_step, 2);
    assert_int_equal(play_read_server(&play), 0);
    assert_string_equal(script_trace(play.script), "w1 r81");
    assert_int_equal(play.handshake.next_step, 3);
    assert_int_equal(
        gpusys_handshake_client_complete(&play.handshake, golden_client, 2, play.deadline_ns, NULL), 0);
    assert_string_equal(script_trace(play.script), "w1 r81 w49");
    assert_int_equal(play.handshake.next_step, 4);
    assert_int_equal(gpusys_handshake_client_finish(&play.handshake, play.deadline_ns, NULL), 0);
    assert_string_equal(script_trace(play.script), "w1 r81 w49 r1");
    assert_int_equal(play.handshake.next_step, 0);
    play_close(&play);
}

/* ---- steps and counts of the caller ---- */

static void test_steps_out_of_turn(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x01", 1), SCRIPT_GIVE(golden_server_rails_ro[1], 41)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 1, steps, COUNT_OF(steps));
    struct gpusys_handshake *handshake = &play.handshake;
    assert_int_equal(
        gpusys_handshake_client_begin(handshake, play.stream, play.dialect, 1, play.deadline_ns, NULL), 0);
    assert_int_equal(
        gpusys_handshake_client_complete(handshake, golden_client, 1, play.deadline_ns, &play.error),
        -EINVAL);
    assert_non_null(strstr(play.error.message, "step 3 is out of turn, next is 2"));
    assert_int_equal(gpusys_handshake_client_finish(handshake, play.deadline_ns, &play.error), -EINVAL);
    assert_int_equal(
        gpusys_handshake_client_read_rw(handshake, play.arenas, 1, play.deadline_ns, &play.error), -EINVAL);
    assert_non_null(strstr(play.error.message, "read-write dialect in a read-only one"));
    assert_string_equal(script_trace(play.script), "w1");
    assert_int_equal(play_read_server(&play), 0); /* none of that harmed it */
    play_close(&play);
}

/* Records and rails never pair up by the shorter of the two. */
static void test_other_number_of_rails(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(golden_server_rails_rw[2], 73),
                                        SCRIPT_EXPECT(golden_client_rails[2], 49)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_WRITE, 2, steps, COUNT_OF(steps));
    struct gpusys_handshake *handshake = &play.handshake;
    assert_int_equal(
        gpusys_handshake_client_begin(handshake, play.stream, play.dialect, 2, play.deadline_ns, NULL), 0);
    assert_int_equal(
        gpusys_handshake_client_read_rw(handshake, play.arenas, 1, play.deadline_ns, &play.error), -EINVAL);
    assert_non_null(strstr(play.error.message, "2 rails agreed, 1 given for step 2"));
    assert_int_equal(play_read_server(&play), 0);
    assert_int_equal(
        gpusys_handshake_client_complete(handshake, golden_client, 1, play.deadline_ns, &play.error),
        -EINVAL);
    assert_non_null(strstr(play.error.message, "2 rails agreed, 1 given for step 3"));
    assert_string_equal(script_trace(play.script), "w1 r73");
    assert_int_equal(gpusys_handshake_client_complete(handshake, golden_client, 2, play.deadline_ns, NULL),
                     0);
    play_close(&play);
}

static void test_counts_to_ask_for(void **state)
{
    (void)state;
    const struct {
        enum gpusys_dialect dialect;
        uint32_t n;
        int code;
    } cases[] = {
        {GPUSYS_DIALECT_READ_ONLY, 0, -EINVAL},    {GPUSYS_DIALECT_READ_ONLY, 1, 0},
        {GPUSYS_DIALECT_READ_ONLY, 8, 0},          {GPUSYS_DIALECT_READ_ONLY, 9, -EINVAL},
        {GPUSYS_DIALECT_READ_ONLY, 257, -EINVAL},  {GPUSYS_DIALECT_READ_WRITE, 0, -EINVAL},
        {GPUSYS_DIALECT_READ_WRITE, 1, 0},         {GPUSYS_DIALECT_READ_WRITE, 255, 0},
        {GPUSYS_DIALECT_READ_WRITE, 256, -EINVAL}, {GPUSYS_DIALECT_READ_WRITE, 257, -EINVAL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct script_step steps[] = {SCRIPT_ANY(1)};
        const unsigned char *written;
        struct play play;
        play_open(&play, cases[i].dialect, cases[i].n, steps, 1);
        assert_int_equal(gpusys_handshake_client_begin(&play.handshake, play.stream, play.dialect, cases[i].n,
                                                       play.deadline_ns, &play.error),
                         cases[i].code);
        assert_int_equal(script_written(play.script, &written), cases[i].code ? 0 : 1);
        if (!cases[i].code)
            assert_int_equal(written[0], cases[i].n);
        play_close(&play);
    }
}

static void test_255_rails(void **state)
{
    (void)state;
    static struct gpusys_cache_server_params served[255], seen[255];
    static struct gpusys_qp_params clients[255];
    static unsigned char step_2[GPUSYS_SERVER_RAILS_RW_BYTES(255)], step_3[GPUSYS_CLIENT_RAILS_BYTES(255)];
    size_t size;
    for (uint32_t i = 0; i < 255; i++) {
        served[i].region.rkey = i;
        clients[i].qpn = i;
    }
    assert_int_equal(gpusys_server_rails_rw_encode(served, 255, step_2, sizeof step_2, &size), 0);
    assert_int_equal(gpusys_client_rails_encode(clients, 255, step_3, sizeof step_3, &size), 0);
    const struct script_step steps[] = {SCRIPT_EXPECT("\xff", 1), SCRIPT_GIVE(step_2, sizeof step_2),
                                        SCRIPT_EXPECT(step_3, sizeof step_3), SCRIPT_GIVE("", 1)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_WRITE, 255, steps, COUNT_OF(steps));
    struct gpusys_handshake *handshake = &play.handshake;
    assert_int_equal(
        gpusys_handshake_client_begin(handshake, play.stream, play.dialect, 255, play.deadline_ns, NULL), 0);
    assert_int_equal(gpusys_handshake_client_read_rw(handshake, seen, 255, play.deadline_ns, NULL), 0);
    assert_memory_equal(seen, served, sizeof seen);
    assert_int_equal(gpusys_handshake_client_complete(handshake, clients, 255, play.deadline_ns, NULL), 0);
    assert_int_equal(gpusys_handshake_client_finish(handshake, play.deadline_ns, NULL), 0);
    assert_null(script_fault(play.script));
    play_close(&play);
}

/* ---- counts of the server ---- */

/* A client that wants two rails is granted another number: the count alone decides, no body follows. */
static void test_granted_counts(void **state)
{
    (void)state;
    const struct {
        enum gpusys_dialect dialect;
        const char *granted, *words;
        int code;
    } cases[] = {
        {GPUSYS_DIALECT_READ_ONLY, "\x00", "granted 0 rails where 2 were wanted", -EBADMSG},
        {GPUSYS_DIALECT_READ_ONLY, "\x01", "granted 1 rails where 2 were wanted", -EPROTO},
        {GPUSYS_DIALECT_READ_ONLY, "\x08", "granted 8 rails where 2 were wanted", -EPROTO},
        {GPUSYS_DIALECT_READ_ONLY, "\x09", "granted 9 rails where 2 were wanted", -EBADMSG},
        {GPUSYS_DIALECT_READ_WRITE, "\x00", "granted 0 rails where 2 were wanted", -EBADMSG},
        {GPUSYS_DIALECT_READ_WRITE, "\x01", "granted 1 rails where 2 were wanted", -EPROTO},
        {GPUSYS_DIALECT_READ_WRITE, "\xff", "granted 255 rails where 2 were wanted", -EPROTO},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(cases[i].granted, 1)};
        struct play play;
        play_open(&play, cases[i].dialect, 2, steps, COUNT_OF(steps));
        assert_failed(&play, play_client(&play), cases[i].code, cases[i].words);
        assert_string_equal(script_trace(play.script), "w1 r1");
        play_close(&play);
    }
}

static void test_region_counts_out_of_range(void **state)
{
    (void)state;
    const struct {
        const char *count, *words;
    } cases[] = {{"\x00\x00\x00\x00", "announced 0 regions for rail 0, a table has 1 to 4096"},
                 {"\x01\x10\x00\x00", "announced 4097 regions for rail 0"},
                 {"\xff\xff\xff\xff", "announced 4294967295 regions for rail 0"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct script_step steps[] = {SCRIPT_EXPECT("\x01", 1),
                                            SCRIPT_GIVE("\x01" GOLDEN_SERVER_QP_0, 25),
                                            SCRIPT_GIVE(cases[i].count, 4)};
        struct play play;
        play_open(&play, GPUSYS_DIALECT_READ_ONLY, 1, steps, COUNT_OF(steps));
        assert_failed(&play, play_client(&play), -EBADMSG, cases[i].words);
        play_close(&play);
    }
}

/* ---- tables and who holds them ---- */

/* Two rails with a full table each, packed as a server sends them. */
static unsigned char *full_tables(struct gpusys_region_key *regions, size_t *size)
{
    struct gpusys_verbs_server_params rails[2];
    size_t room = 1 + 2 * GPUSYS_VERBS_SERVER_PARAMS_BYTES(GPUSYS_MAX_REGIONS);
    unsigned char *bytes = malloc(room);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < GPUSYS_MAX_REGIONS; i++)
        regions[i] = (struct gpusys_region_key){.base = 0xABCDEF0000000000u + i, .rkey = ~i};
    for (int i = 0; i < 2; i++)
        rails[i] = (struct gpusys_verbs_server_params){
            .qp = golden_server[i].qp, .n_regions = GPUSYS_MAX_REGIONS, .regions = regions};
    assert_int_equal(gpusys_server_rails_ro_encode(rails, 2, bytes, room, size), 0);
    return bytes;
}

/* Rail 0 into the caller's storage, rail 1 into memory of the library's. */
static void test_full_tables(void **state)
{
    (void)state;
    static struct gpusys_region_key regions[GPUSYS_MAX_REGIONS], room[GPUSYS_MAX_REGIONS];
    size_t size;
    unsigned char *bytes = full_tables(regions, &size);
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(bytes, size),
                                        SCRIPT_EXPECT(golden_client_rails[2], 49), SCRIPT_GIVE("", 1)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 2, steps, COUNT_OF(steps));
    play.tables[0] = (struct gpusys_verbs_server_params){.capacity = GPUSYS_MAX_REGIONS, .regions = room};
    play.tables[1] = (struct gpusys_verbs_server_params){.capacity = 9}; /* of no storage: does not count */
    assert_int_equal(play_client(&play), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(play.tables[i].n_regions, GPUSYS_MAX_REGIONS);
        assert_memory_equal(play.tables[i].regions, regions, sizeof regions);
    }
    assert_ptr_equal(play.tables[0].regions, room);
    assert_int_equal(play.tables[1].capacity, 0);
    gpusys_verbs_server_params_clear(play.tables, 2);
    assert_ptr_equal(play.tables[0].regions, room);
    assert_null(play.tables[1].regions);
    gpusys_verbs_server_params_clear(play.tables, 2); /* a second time, and nothing at all, is fine */
    gpusys_verbs_server_params_clear(NULL, 2);
    play_close(&play);
    free(bytes);
}

static void test_too_little_storage(void **state)
{
    (void)state;
    static struct gpusys_region_key regions[GPUSYS_MAX_REGIONS];
    size_t size;
    unsigned char *bytes = full_tables(regions, &size);
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(bytes, size)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 2, steps, COUNT_OF(steps));
    play.tables[0] =
        (struct gpusys_verbs_server_params){0}; /* the library's: freed again when rail 1 fails */
    assert_failed(&play, play_client(&play), -ENOSPC,
                  "announced 4096 regions for rail 1, there is room for 1");
    assert_int_equal(play.tables[1].n_regions, GPUSYS_MAX_REGIONS);
    assert_ptr_equal(play.tables[1].regions, &play.room[1]);
    assert_null(play.tables[0].regions);
    play_close(&play);
    free(bytes);
}

/* Storage without a capacity is no storage, and is never freed. */
static void test_storage_without_capacity(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x01", 1), SCRIPT_GIVE(golden_server_rails_ro[1], 41)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 1, steps, COUNT_OF(steps));
    play.tables[0].capacity = 0;
    assert_failed(&play, play_client(&play), -ENOSPC, "there is room for 0");
    play_close(&play);
}

/* ---- the ack ---- */

static void test_bad_ack(void **state)
{
    (void)state;
    const char *const acks[] = {"\x01", "\x02", "\xff"};
    for (size_t i = 0; i < 3; i++) {
        const struct script_step steps[] = {SCRIPT_EXPECT("\x01", 1),
                                            SCRIPT_GIVE(golden_server_rails_rw[1], 37), SCRIPT_ANY(25),
                                            SCRIPT_GIVE(acks[i], 1)};
        struct play play;
        char words[32];
        int ack = (unsigned char)acks[i][0];
        play_open(&play, GPUSYS_DIALECT_READ_WRITE, 1, steps, COUNT_OF(steps));
        snprintf(words, sizeof words, "ack %d", ack);
        assert_failed(&play, play_client(&play), -EACCES, words);
        assert_int_equal(play.error.domain, GPUSYS_DOMAIN_PEER);
        assert_int_equal(play.error.foreign, ack);
        play_close(&play);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_one_step_at_a_time),
        cmocka_unit_test(test_steps_out_of_turn),
        cmocka_unit_test(test_other_number_of_rails),
        cmocka_unit_test(test_counts_to_ask_for),
        cmocka_unit_test(test_255_rails),
        cmocka_unit_test(test_granted_counts),
        cmocka_unit_test(test_region_counts_out_of_range),
        cmocka_unit_test(test_full_tables),
        cmocka_unit_test(test_too_little_storage),
        cmocka_unit_test(test_storage_without_capacity),
        cmocka_unit_test(test_bad_ack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
