/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is made of the ranks' answers. */
#include "gpu/function.h"
#include "gpu/party.h"

#include <errno.h>
#include <gpusys/nccl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 40 };

static struct gs_answer answers[MOST];
static struct gs_member members[MOST];
static struct gs_failure failure;

static struct gs_record make(uint64_t sequence, uint16_t function, uint64_t count, uint8_t type)
{
    return (struct gs_record){.sequence = sequence, .count = count, .function = function, .type = type};
}

/* So many ranks that all submitted all_reduce of 10 float32 so often. */
static int begin(uint32_t n, uint64_t submitted)
{
    memset(answers, 0, sizeof answers);
    for (uint32_t i = 0; i < n; i++) {
        struct gs_report *report = &answers[i].report;
        answers[i].rank = i;
        snprintf(members[i].host, sizeof members[i].host, "node%u", i);
        members[i].pid = 4000 + i;
        report->submitted = report->completed = submitted;
        for (uint64_t k = submitted > GS_PARTY_RECORDS ? submitted - GS_PARTY_RECORDS + 1 : 1; k <= submitted;
             k++)
            report->records[report->n_records++] = make(k, GS_ALL_REDUCE, 10, GPUSYS_NCCL_FLOAT32);
    }
    failure = (struct gs_failure){.key = 5, .code = -ETIMEDOUT, .text = "a wait ran out"};
    return 0;
}

/* One fewer on that rank. */
static void forget_last(uint32_t rank)
{
    answers[rank].report.submitted--;
    answers[rank].report.n_records--;
}

static void expect(uint32_t n, int code, const char *text, uint32_t n_suspects, const uint32_t *suspects)
{
    gs_verdict(answers, n, members, &failure);
    assert_string_equal(failure.text, text);
    assert_int_equal(failure.code, code);
    assert_int_equal(failure.n_suspects, n_suspects);
    if (n_suspects)
        assert_memory_equal(failure.suspects, suspects, n_suspects * sizeof *suspects);
    assert_true(failure.key == 5);
}
#define SUSPECTS(...)                                                                                        \
    sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (uint32_t[])                                       \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

static void nobody(void **state)
{
    (void)state;
    begin(3, 42);
    expect(
        3, -ETIMEDOUT,
        "a wait ran out; all 3 ranks submitted the same 42 collectives, so that it is the network or a GPU",
        0, NULL);
    begin(2, 0);
    failure.code = -EIO;
    expect(2, -EIO,
           "a wait ran out; all 2 ranks submitted the same 0 collectives, so that it is the network or a GPU",
           0, NULL);
}

static void no_account(void **state)
{
    (void)state;
    begin(3, 42);
    answers[1].report = (struct gs_report){.submitted = GS_REPORT_NO_ACCOUNT};
    expect(3, -ETIMEDOUT, "a wait ran out; 1 of 3 ranks keep no trace, so that nobody can say who lags", 0,
           NULL);
    begin(3, 42);
    answers[1].report = (struct gs_report){.submitted = GS_REPORT_NO_ACCOUNT};
    forget_last(2); /* that is seen all the same */
    gs_verdict(answers, 3, members, &failure);
    assert_int_equal(failure.n_suspects, 1);
    assert_int_equal(failure.suspects[0], 2);
}

static void one_lags(void **state)
{
    (void)state;
    begin(4, 42);
    forget_last(2);
    expect(
        4, -ETIMEDOUT,
        "rank 2 (node2, process 4002) lags: it has submitted 41 collectives, the others 42; it never came to "
        "all_reduce of 10 float32, sum (collective 42)",
        SUSPECTS(2));
}

static void several_lag(void **state)
{
    (void)state;
    begin(5, 42);
    forget_last(1);
    forget_last(4);
    expect(5, -ETIMEDOUT,
           "ranks 1 and 4 lag: they have submitted 41 collectives, the others 42; they never came to "
           "all_reduce of 10 "
           "float32, sum (collective 42)",
           SUSPECTS(1, 4));
    begin(3, 42); /* the furthest behind is the one */
    forget_last(0);
    forget_last(1);
    forget_last(1);
    expect(3, -ETIMEDOUT,
           "rank 1 (node1, process 4001) lags: it has submitted 40 collectives, the others up to 42; it "
           "never came to "
           "all_reduce of 10 float32, sum (collective 41)",
           SUSPECTS(1));
}

/* So far behind that nobody remembers what it missed. */
static void far_behind(void **state)
{
    (void)state;
    begin(2, 100);
    answers[1].report.submitted = 10;
    answers[1].report.n_records = 1;
    answers[1].report.records[0] = make(10, GS_BROADCAST, 3, GPUSYS_NCCL_INT8);
    expect(2, -ETIMEDOUT,
           "rank 1 (node1, process 4001) lags: it has submitted 10 collectives, the others 100", SUSPECTS(1));
}

static void one_differs(void **state)
{
    (void)state;
    begin(4, 9);
    answers[1].report.records[6] = make(7, GS_ALL_GATHER, 10, GPUSYS_NCCL_INT8);
    forget_last(3); /* no matter: what differs comes first */
    expect(4, -EBADMSG,
           "rank 1 (node1, process 4001) differs at collective 7: it submitted all_gather of 10 int8, the "
           "others "
           "all_reduce of 10 float32, sum",
           SUSPECTS(1));
    begin(4, 9); /* rank 0 is no more right than others */
    answers[0].report.records[2].op = GPUSYS_NCCL_MAX;
    expect(4, -EBADMSG,
           "rank 0 (node0, process 4000) differs at collective 3: it submitted all_reduce of 10 float32, "
           "max, the "
           "others all_reduce of 10 float32, sum",
           SUSPECTS(0));
}

/* Of several differences it is the first, for all that follow come of it. */
static void the_first_difference(void **state)
{
    (void)state;
    begin(3, 9);
    answers[0].report.records[5].count = 11;
    answers[2].report.records[4].count = 12;
    expect(3, -EBADMSG,
           "rank 2 (node2, process 4002) differs at collective 5: it submitted all_reduce of 12 float32, "
           "sum, the "
           "others all_reduce of 10 float32, sum",
           SUSPECTS(2));
}

static void every_field_counts(void **state)
{
    (void)state;
    for (int field = 0; field < 5; field++) {
        begin(3, 1);
        struct gs_record *record = &answers[1].report.records[0];
        record->function = field == 0 ? GS_REDUCE : record->function;
        record->count += field == 1;
        record->type = field == 2 ? GPUSYS_NCCL_INT32 : record->type;
        record->op = field == 3 ? GPUSYS_NCCL_PROD : record->op;
        record->root = field == 4 ? 2 : record->root;
        gs_verdict(answers, 3, members, &failure);
        assert_int_equal(failure.code, -EBADMSG);
        assert_true(failure.n_suspects == 1 && failure.suspects[0] == 1);
    }
}

static void several_differ(void **state)
{
    (void)state;
    begin(5, 3);
    answers[2].report.records[1].count = 20;
    answers[4].report.records[1].count = 20;
    expect(5, -EBADMSG,
           "ranks 2 and 4 differ at collective 2: rank 2 submitted all_reduce of 20 float32, sum, the others "
           "all_reduce of 10 float32, sum",
           SUSPECTS(2, 4));
}

static void no_majority(void **state)
{
    (void)state;
    begin(2, 3);
    answers[1].report.records[2] = make(3, GS_BROADCAST, 10, GPUSYS_NCCL_INT8);
    answers[1].report.records[2].root = 1;
    expect(2, -EBADMSG,
           "the ranks differ at collective 3: rank 0 (node0, process 4000) submitted all_reduce of 10 "
           "float32, sum, "
           "rank 1 (node1, process 4001) broadcast of 10 int8, root 1",
           SUSPECTS(0, 1));
    begin(3, 3); /* each his own */
    answers[1].report.records[0].count = 11;
    answers[2].report.records[0].count = 12;
    gs_verdict(answers, 3, NULL, &failure);
    assert_int_equal(failure.n_suspects, 3);
    assert_string_equal(failure.text,
                        "the ranks differ at collective 1: rank 0 submitted all_reduce of 10 float32, "
                        "sum, rank 1 all_reduce of 11 float32, sum");
}

/* Windows that do not meet say nothing; those that overlap are compared where they do. */
static void edges_of_the_windows(void **state)
{
    (void)state;
    begin(2, 40); /* 9 … 40 */
    struct gs_report *other = &answers[1].report;
    other->submitted = other->completed = 9;
    other->n_records = 2;
    other->records[0] = make(8, GS_BROADCAST, 1, GPUSYS_NCCL_INT8); /* the first does not have it any more */
    other->records[1] = make(9, GS_ALL_REDUCE, 10, GPUSYS_NCCL_FLOAT32);
    expect(
        2, -ETIMEDOUT,
        "rank 1 (node1, process 4001) lags: it has submitted 9 collectives, the others 40; it never came to "
        "all_reduce of 10 float32, sum (collective 10)",
        SUSPECTS(1));
    begin(2, 40);
    other->submitted = 9;
    other->n_records = 1;
    other->records[0] = make(9, GS_ALL_REDUCE, 11, GPUSYS_NCCL_FLOAT32);
    gs_verdict(answers, 2, members, &failure);
    assert_int_equal(failure.code, -EBADMSG);
}

static void lost_ones_come_first(void **state)
{
    (void)state;
    begin(4, 5);
    answers[0].report.records[1].count = 9;
    answers[1].state = GS_ANSWER_SILENT;
    answers[3].state = GS_ANSWER_LOST;
    expect(4, -ECONNRESET, "rank 3 (node3, process 4003) is lost", SUSPECTS(3));
    answers[2].state = GS_ANSWER_LOST;
    expect(4, -ECONNRESET, "ranks 2 and 3 are lost", SUSPECTS(2, 3));
}

static void silent_ones(void **state)
{
    (void)state;
    begin(4, 5);
    answers[1].state = GS_ANSWER_SILENT;
    answers[1].report.records[0].count = 9; /* it did not say that */
    answers[2].state = GS_ANSWER_AWAY;
    forget_last(3);
    expect(4, -EHOSTDOWN, "rank 1 (node1, process 4001) does not answer: its process hangs or is stopped",
           SUSPECTS(1));
    begin(4, 5);
    answers[1].state = GS_ANSWER_SILENT;
    answers[3].report.records[3].type = GPUSYS_NCCL_INT8; /* that explains more */
    gs_verdict(answers, 4, members, &failure);
    assert_int_equal(failure.code, -EBADMSG);
}

static void those_away(void **state)
{
    (void)state;
    begin(3, 5);
    answers[1].state = GS_ANSWER_AWAY;
    answers[1].report = (struct gs_report){0};
    forget_last(2);
    expect(3, -ETIMEDOUT,
           "rank 1 (node1, process 4001) takes no part in it: it has closed the communicator, or not opened "
           "it yet",
           SUSPECTS(1));
}

static void many_suspects(void **state)
{
    (void)state;
    begin(MOST, 5);
    for (uint32_t i = 0; i < 20; i++)
        answers[i].state = GS_ANSWER_LOST;
    gs_verdict(answers, MOST, members, &failure);
    assert_int_equal(failure.n_suspects, GS_PARTY_SUSPECTS);
    assert_int_equal(failure.suspects[15], 15);
    assert_string_equal(failure.text,
                        "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more are lost");
}

/* The longest of everything is cut, and ends. */
static void long_words(void **state)
{
    (void)state;
    begin(2, 1);
    memset(members[0].host, 'a', 63);
    memset(members[1].host, 'b', 63);
    answers[0].report.records[0].count = UINT64_MAX;
    gs_verdict(answers, 2, members, &failure);
    assert_true(strlen(failure.text) < sizeof failure.text);
    memset(members, 0, sizeof members);
    begin(2, 5);
    memset(failure.text, 'x', sizeof failure.text - 1);
    gs_verdict(answers, 2, members, &failure);
    assert_non_null(strstr(failure.text, "x; all 2 ranks"));
    assert_non_null(strstr(failure.text, "or a GPU"));
}

static void records_in_words(void **state)
{
    static const struct {
        struct gs_record record;
        const char *text;
    } cases[] = {
        {{42, 1024, GS_ALL_REDUCE, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SUM, 0},
         "all_reduce of 1024 float32, sum (collective 42)"},
        {{1, 10, GS_REDUCE, GPUSYS_NCCL_INT8, GPUSYS_NCCL_AVG, 3},
         "reduce of 10 int8, avg, root 3 (collective 1)"},
        {{2, 0, GS_ALL_GATHER, GPUSYS_NCCL_BFLOAT16, 9, 9}, "all_gather of 0 bfloat16 (collective 2)"},
        {{3, 1, GS_REDUCE_SCATTER, GPUSYS_NCCL_FLOAT64, 255, 0},
         "reduce_scatter of 1 float64, custom (collective 3)"},
        {{4, 1, 99, 99, 0, 0}, "an unknown function of 1 unknown (collective 4)"},
    };
    char text[GS_RECORD_TEXT_BYTES];
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        gs_record_text(&cases[i].record, text);
        assert_string_equal(text, cases[i].text);
    }
    gs_record_text(&(struct gs_record){UINT64_MAX, UINT64_MAX, GS_REDUCE_SCATTER, 10, 255, UINT32_MAX}, text);
    assert_true(strlen(text) < GS_RECORD_TEXT_BYTES && text[strlen(text) - 1] == ')');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody),
        cmocka_unit_test(no_account),
        cmocka_unit_test(one_lags),
        cmocka_unit_test(several_lag),
        cmocka_unit_test(far_behind),
        cmocka_unit_test(one_differs),
        cmocka_unit_test(the_first_difference),
        cmocka_unit_test(every_field_counts),
        cmocka_unit_test(several_differ),
        cmocka_unit_test(no_majority),
        cmocka_unit_test(edges_of_the_windows),
        cmocka_unit_test(lost_ones_come_first),
        cmocka_unit_test(silent_ones),
        cmocka_unit_test(those_away),
        cmocka_unit_test(many_suspects),
        cmocka_unit_test(long_words),
        cmocka_unit_test(records_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
