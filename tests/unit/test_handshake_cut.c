/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Handshakes that break off: every length of every message, by end of stream, reset, another failure or
 * silence, on both sides; and writes that do not get through.
 */
#include "handshake_play.h"

/* How a peer stops: the script's last step, and what that must become inside a record. */
struct ending {
    struct script_step step;
    int code;
    const char *words;
};

static const struct ending endings[] = {
    {SCRIPT_END(), -EPIPE, "closed the connection inside"},
    {SCRIPT_FAIL(-ECONNRESET), -EPIPE, "closed the connection inside"},
    {SCRIPT_FAIL(-EIO), -EIO, "Input/output error"},
    {SCRIPT_STALL(), -ETIMEDOUT, "no progress by the deadline"},
};

/* What a reader has of which record after `length` bytes of step 2: the end of the message. */
static void describe_step_2(char *text, size_t size, enum gpusys_dialect dialect, size_t length)
{
    bool ro = dialect == GPUSYS_DIALECT_READ_ONLY;
    size_t record = ro ? GOLDEN_VERBS_SERVER_BYTES : GOLDEN_CACHE_SERVER_BYTES;
    if (length == 0) {
        snprintf(text, size, "the rail count: 0 of 1 bytes came");
        return;
    }
    size_t rail = (length - 1) / record, have = (length - 1) % record;
    size_t known = ro && have < 28 ? 28 : record; /* a table's length is not known before its count is */
    snprintf(text, size, "%sServerParams of rail %zu: %zu of %zu bytes came", ro ? "Verbs" : "Cache", rail,
             have, known);
}

/* EIO puts its text behind a comma instead of a colon; compare what both have. */
static void assert_says(const struct play *play, const char *words)
{
    const char *numbers = strchr(words, ':') + 2;
    char record[64];
    snprintf(record, sizeof record, "%.*s", (int)(strchr(words, ':') - words), words);
    if (!strstr(play->error.message, numbers) || !strstr(play->error.message, record))
        fail_msg("\"%s\" is not in \"%s\"", words, play->error.message);
}

static void check_client_cut(enum gpusys_dialect dialect, uint32_t n, size_t length,
                             const struct ending *ending)
{
    size_t size;
    const char *step_2 = golden_step_2(dialect, n, &size);
    const struct script_step steps[] = {SCRIPT_EXPECT(golden_client_rails[n], 1), SCRIPT_GIVE(step_2, length),
                                        ending->step};
    struct play play;
    char words[96];
    play_open(&play, dialect, n, steps, COUNT_OF(steps));
    int code = play_client(&play);
    if (length == 0 && ending->code == -EPIPE) {
        assert_failed(&play, code, -ECONNREFUSED, "refused this client");
    } else {
        assert_failed(&play, code, ending->code, ending->words);
        describe_step_2(words, sizeof words, dialect, length);
        assert_says(&play, words);
    }
    play_close(&play);
}

static void test_client_cut_in_step_2(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (uint32_t n = 1; n <= 2; n++)
            for (size_t e = 0; e < COUNT_OF(endings); e++) {
                size_t size;
                golden_step_2(both_dialects[d], n, &size);
                for (size_t length = 0; length < size; length++)
                    check_client_cut(both_dialects[d], n, length, &endings[e]);
            }
}

static void test_client_cut_before_ack(void **state)
{
    (void)state;
    for (size_t e = 0; e < COUNT_OF(endings); e++) {
        const struct script_step steps[] = {SCRIPT_EXPECT("\x01", 1),
                                            SCRIPT_GIVE(golden_server_rails_rw[1], 37),
                                            SCRIPT_EXPECT(golden_client_rails[1], 25), endings[e].step};
        struct play play;
        play_open(&play, GPUSYS_DIALECT_READ_WRITE, 1, steps, COUNT_OF(steps));
        assert_failed(&play, play_client(&play), endings[e].code, endings[e].words);
        assert_says(&play, "the ack: 0 of 1 bytes came");
        play_close(&play);
    }
}

/* A refusal names the peer, sends the reader to the peer's log and gives the two usual reasons. */
static void test_refusal_is_explained(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_FAIL(-ECONNRESET)};
    struct play play;
    char text[2048];
    play_open(&play, GPUSYS_DIALECT_READ_WRITE, 2, steps, COUNT_OF(steps));
    assert_failed(&play, play_client(&play), -ECONNREFUSED, "its own log has the reason");
    gpusys_error_format(&play.error, text, sizeof text);
    assert_non_null(strstr(text, "--max-blade-gb"));
    assert_non_null(strstr(text, "blob size or kind differ from an arena that an earlier client fixed"));
    assert_non_null(strstr(text, "2 rails, read-write dialect"));
    assert_null(strstr(text, "bytes came"));
    play_close(&play);
}

/* A server may be gone before it is even asked. */
static void test_refusal_before_the_first_write(void **state)
{
    (void)state;
    const int errors[] = {-EPIPE, -ECONNRESET};
    for (size_t i = 0; i < 2; i++) {
        const struct script_step steps[] = {SCRIPT_WRITE_FAIL(errors[i])};
        struct play play;
        play_open(&play, GPUSYS_DIALECT_READ_ONLY, 1, steps, 1);
        assert_failed(&play, play_client(&play), -ECONNREFUSED, "refused this client");
        play_close(&play);
    }
}

/* ---- the server ---- */

static void check_server_cut(enum gpusys_dialect dialect, size_t length, const struct ending *ending)
{
    size_t size;
    const char *step_2 = golden_step_2(dialect, 2, &size);
    const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_EXPECT(step_2, size),
                                        SCRIPT_GIVE(golden_client_rails[2], length), ending->step};
    struct play play;
    char words[96] = "the second rail count: 0 of 1 bytes came";
    if (length > 0)
        snprintf(words, sizeof words, "VerbsClientParams of rail %zu: %zu of 24 bytes came",
                 (length - 1) / 24, (length - 1) % 24);
    play_open(&play, dialect, 2, steps, COUNT_OF(steps));
    assert_failed(&play, play_server(&play), ending->code, ending->words);
    assert_says(&play, words);
    play_close(&play);
}

static void test_server_cut_in_step_3(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t e = 0; e < COUNT_OF(endings); e++)
            for (size_t length = 0; length < 49; length++)
                check_server_cut(both_dialects[d], length, &endings[e]);
}

static void test_server_cut_in_step_1(void **state)
{
    (void)state;
    for (size_t e = 0; e < COUNT_OF(endings); e++) {
        struct play play;
        play_open(&play, GPUSYS_DIALECT_READ_ONLY, 1, &endings[e].step, 1);
        int code = play_server(&play);
        if (endings[e].code == -EPIPE) {
            assert_failed(&play, code, -ECONNRESET, "left before it asked for rails");
        } else {
            assert_failed(&play, code, endings[e].code, endings[e].words);
            assert_says(&play, "the rail count: 0 of 1 bytes came");
        }
        play_close(&play);
    }
}

/* ---- writes that do not get through ---- */

static const struct ending write_endings[] = {
    {SCRIPT_WRITE_FAIL(-EPIPE), -EPIPE, "closed the connection inside"},
    {SCRIPT_WRITE_FAIL(-ECONNRESET), -EPIPE, "closed the connection inside"},
    {SCRIPT_WRITE_STALL(), -ETIMEDOUT, "no progress by the deadline"},
};

static void test_client_write_cut(void **state)
{
    (void)state;
    for (size_t e = 0; e < COUNT_OF(write_endings); e++)
        for (size_t length = 0; length < 25; length++) {
            const struct script_step steps[] = {
                SCRIPT_EXPECT("\x01", 1), SCRIPT_GIVE(golden_server_rails_rw[1], 37),
                SCRIPT_EXPECT(golden_client_rails[1], length), write_endings[e].step};
            struct play play;
            char words[64];
            play_open(&play, GPUSYS_DIALECT_READ_WRITE, 1, steps, COUNT_OF(steps));
            snprintf(words, sizeof words, "the client's rails: %zu of 25 bytes went", length);
            assert_failed(&play, play_client(&play), write_endings[e].code, write_endings[e].words);
            assert_says(&play, words);
            play_close(&play);
        }
}

static void test_server_write_cut(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t e = 0; e < COUNT_OF(write_endings); e++) {
            size_t size;
            const char *step_2 = golden_step_2(both_dialects[d], 2, &size);
            const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_EXPECT(step_2, size - 5),
                                                write_endings[e].step};
            struct play play;
            char words[64];
            play_open(&play, both_dialects[d], 2, steps, COUNT_OF(steps));
            snprintf(words, sizeof words, "the server's rails: %zu of %zu bytes went", size - 5, size);
            assert_failed(&play, play_server(&play), write_endings[e].code, write_endings[e].words);
            assert_says(&play, words);
            play_close(&play);
        }
}

/* A deadline that was past from the start is a timeout too: a handshake cannot be taken up again. */
static void test_deadline_past_from_the_start(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x01", 1), SCRIPT_STALL()};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 1, steps, COUNT_OF(steps));
    play.deadline_ns = 0;
    assert_failed(&play, play_client(&play), -ETIMEDOUT, "step 2 of the handshake");
    play_close(&play);
}

/* No one has to ask why. */
static void test_failure_without_an_error_struct(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_EXPECT("\x01", 1), SCRIPT_END()};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 1, steps, COUNT_OF(steps));
    assert_int_equal(
        gpusys_handshake_client_begin(&play.handshake, play.stream, play.dialect, 1, play.deadline_ns, NULL),
        0);
    assert_int_equal(gpusys_handshake_client_read_ro(&play.handshake, play.tables, 1, play.deadline_ns, NULL),
                     -ECONNREFUSED);
    assert_int_equal(
        gpusys_handshake_client_read_ro(&play.handshake, play.tables, 1, play.deadline_ns, &play.error),
        -EINVAL);
    assert_non_null(strstr(play.error.message, "it has ended"));
    play_close(&play);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_cut_in_step_2),
        cmocka_unit_test(test_client_cut_before_ack),
        cmocka_unit_test(test_refusal_is_explained),
        cmocka_unit_test(test_refusal_before_the_first_write),
        cmocka_unit_test(test_server_cut_in_step_3),
        cmocka_unit_test(test_server_cut_in_step_1),
        cmocka_unit_test(test_client_write_cut),
        cmocka_unit_test(test_server_write_cut),
        cmocka_unit_test(test_deadline_past_from_the_start),
        cmocka_unit_test(test_failure_without_an_error_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
