/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The server's side of the handshake: transcripts, order, counts, refusals and what they log. */
#include "handshake_play.h"

#include <gpusys/log.h>

/* The one line of the log that a refusal leaves. */
struct heard {
    int lines;
    char line[256];
};

static void listen_to(void *context, enum gpusys_log_level level, const char *line)
{
    struct heard *heard = context;
    assert_int_equal(level, GPUSYS_LOG_WARN);
    heard->lines++;
    snprintf(heard->line, sizeof heard->line, "%s", line);
}

static void check_golden(enum gpusys_dialect dialect, uint32_t n, bool drip)
{
    size_t size;
    const char *step_2 = golden_step_2(dialect, n, &size), *client = golden_client_rails[n];
    const struct script_step give = SCRIPT_GIVE(client, 1 + 24 * n), slow = SCRIPT_DRIP(client, 1 + 24 * n);
    const struct script_step steps[] = {SCRIPT_GIVE(client, 1), SCRIPT_EXPECT(step_2, size),
                                        drip ? slow : give, SCRIPT_EXPECT("", 1),
                                        SCRIPT_GIVE("behind it", 9)};
    struct play play;
    char trace[64], behind[9];
    play_open(&play, dialect, n, steps, COUNT_OF(steps));
    assert_int_equal(play_server(&play), 0);
    assert_null(script_fault(play.script));
    snprintf(trace, sizeof trace, "r1 w%zu r%u w1", size, 1 + 24 * n);
    assert_string_equal(script_trace(play.script), trace);
    assert_int_equal(script_early_reads(play.script), 0);
    assert_int_equal(script_early_writes(play.script), 0);
    assert_memory_equal(play.clients, golden_client, n * sizeof *golden_client);
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

/* A client that does not wait for the ack: what it sent behind step 3 is not lost. */
static void test_bytes_behind_step_3(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_GIVE("\x01", 1), SCRIPT_EXPECT(golden_server_rails_rw[1], 37),
                                        SCRIPT_GIVE("\x01" GOLDEN_CLIENT_0 "\x01"
                                                    "behind",
                                                    32),
                                        SCRIPT_EXPECT("", 1)};
    struct play play;
    char behind[7];
    play_open(&play, GPUSYS_DIALECT_READ_WRITE, 1, steps, COUNT_OF(steps));
    assert_int_equal(play_server(&play), 0);
    assert_int_equal(gpusys_stream_buffered(play.stream), 7);
    assert_int_equal(gpusys_stream_read(play.stream, behind, 7, play.deadline_ns, NULL), 0);
    assert_memory_equal(behind,
                        "\x01"
                        "behind",
                        7);
    play_close(&play);
}

static void test_asked_counts(void **state)
{
    (void)state;
    const struct {
        enum gpusys_dialect dialect;
        const char *asked, *words;
    } cases[] = {
        {GPUSYS_DIALECT_READ_ONLY, "\x00", "asked for 0 rails, the read-only dialect has 1 to 8"},
        {GPUSYS_DIALECT_READ_ONLY, "\x01", NULL},
        {GPUSYS_DIALECT_READ_ONLY, "\x08", NULL},
        {GPUSYS_DIALECT_READ_ONLY, "\x09", "asked for 9 rails, the read-only dialect has 1 to 8"},
        {GPUSYS_DIALECT_READ_WRITE, "\x00", "asked for 0 rails, the read-write dialect has 1 to 255"},
        {GPUSYS_DIALECT_READ_WRITE, "\x01", NULL},
        {GPUSYS_DIALECT_READ_WRITE, "\xff", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct script_step steps[] = {SCRIPT_GIVE(cases[i].asked, 1)};
        struct heard heard = {0};
        struct play play;
        play_open(&play, cases[i].dialect, 1, steps, 1);
        gpusys_log_set(listen_to, &heard, GPUSYS_LOG_WARN);
        int code = gpusys_handshake_server_begin(&play.handshake, play.stream, play.dialect, play.deadline_ns,
                                                 &play.error);
        gpusys_log_set(NULL, NULL, GPUSYS_LOG_WARN);
        if (cases[i].words) {
            assert_failed(&play, code, -EBADMSG, cases[i].words);
            assert_non_null(strstr(heard.line, cases[i].words));
        } else {
            assert_int_equal(code, 0);
            assert_int_equal(play.handshake.n_rails, (unsigned char)cases[i].asked[0]);
        }
        assert_int_equal(heard.lines, cases[i].words ? 1 : 0);
        play_close(&play);
    }
}

/* The body behind a second count that differs is not waited for. */
static void test_second_count_differs(void **state)
{
    (void)state;
    const char *const counts[] = {"\x00", "\x01", "\x03", "\xff"};
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < COUNT_OF(counts); i++) {
            size_t size;
            const char *step_2 = golden_step_2(both_dialects[d], 2, &size);
            const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_EXPECT(step_2, size),
                                                SCRIPT_GIVE(counts[i], 1)};
            struct heard heard = {0};
            struct play play;
            char words[64];
            play_open(&play, both_dialects[d], 2, steps, COUNT_OF(steps));
            gpusys_log_set(listen_to, &heard, GPUSYS_LOG_WARN);
            int code = play_server(&play);
            gpusys_log_set(NULL, NULL, GPUSYS_LOG_WARN);
            snprintf(words, sizeof words, "asked for 2 rails first and answers with %d",
                     (unsigned char)counts[i][0]);
            assert_failed(&play, code, -EPROTO, words);
            assert_int_equal(heard.lines, 1);
            assert_non_null(strstr(heard.line, words));
            assert_non_null(strstr(heard.line, "the script"));
            play_close(&play);
        }
}

/* A server's own mistakes are found before a byte of step 2 goes out, and can be mended. */
static void test_bad_tables_are_not_written(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_EXPECT(golden_server_rails_ro[2], 81)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 2, steps, COUNT_OF(steps));
    struct gpusys_handshake *handshake = &play.handshake;
    assert_int_equal(
        gpusys_handshake_server_begin(handshake, play.stream, play.dialect, play.deadline_ns, NULL), 0);
    const uint32_t bad[] = {0, GPUSYS_MAX_REGIONS + 1};
    for (size_t i = 0; i < 2; i++) {
        struct gpusys_verbs_server_params rails[2] = {{.n_regions = 1, .regions = play.room},
                                                      {.n_regions = bad[i], .regions = play.room}};
        char words[48];
        assert_int_equal(gpusys_handshake_server_write_ro(handshake, rails, 2, play.deadline_ns, &play.error),
                         -EINVAL);
        snprintf(words, sizeof words, "%u regions for rail 1", bad[i]);
        assert_non_null(strstr(play.error.message, words));
    }
    assert_int_equal(gpusys_handshake_server_write_ro(handshake, play.tables, 1, play.deadline_ns, NULL),
                     -EINVAL);
    assert_int_equal(gpusys_handshake_server_write_rw(handshake, golden_server, 2, play.deadline_ns, NULL),
                     -EINVAL);
    assert_string_equal(script_trace(play.script), "r1");
    assert_int_equal(play_write_server(&play), 0);
    assert_null(script_fault(play.script));
    play_close(&play);
}

static void test_other_number_of_rails(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_EXPECT(golden_server_rails_rw[2], 73)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_WRITE, 2, steps, COUNT_OF(steps));
    struct gpusys_handshake *handshake = &play.handshake;
    assert_int_equal(
        gpusys_handshake_server_begin(handshake, play.stream, play.dialect, play.deadline_ns, NULL), 0);
    assert_int_equal(
        gpusys_handshake_server_write_rw(handshake, golden_server, 1, play.deadline_ns, &play.error),
        -EINVAL);
    assert_non_null(strstr(play.error.message, "2 rails agreed, 1 given for step 2"));
    assert_int_equal(play_write_server(&play), 0);
    assert_int_equal(
        gpusys_handshake_server_read_client(handshake, play.clients, 3, play.deadline_ns, &play.error),
        -EINVAL);
    assert_non_null(strstr(play.error.message, "2 rails agreed, 3 given for step 3"));
    play_close(&play);
}

static void test_ack_of_failure(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_GIVE("\x01", 1), SCRIPT_EXPECT(golden_server_rails_rw[1], 37),
                                        SCRIPT_GIVE(golden_client_rails[1], 25), SCRIPT_EXPECT("\x01", 1)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_WRITE, 1, steps, COUNT_OF(steps));
    struct gpusys_handshake *handshake = &play.handshake;
    assert_int_equal(
        gpusys_handshake_server_begin(handshake, play.stream, play.dialect, play.deadline_ns, NULL), 0);
    assert_int_equal(gpusys_handshake_server_finish(handshake, GPUSYS_STATUS_ERR, play.deadline_ns, NULL),
                     -EINVAL); /* not before its turn */
    assert_int_equal(play_write_server(&play), 0);
    assert_int_equal(gpusys_handshake_server_read_client(handshake, play.clients, 1, play.deadline_ns, NULL),
                     0);
    assert_int_equal(gpusys_handshake_server_finish(handshake, GPUSYS_STATUS_ERR, play.deadline_ns, NULL), 0);
    assert_true(script_done(play.script));
    assert_null(script_fault(play.script));
    play_close(&play);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_bytes_behind_step_3),
        cmocka_unit_test(test_asked_counts),
        cmocka_unit_test(test_second_count_differs),
        cmocka_unit_test(test_bad_tables_are_not_written),
        cmocka_unit_test(test_other_number_of_rails),
        cmocka_unit_test(test_ack_of_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
