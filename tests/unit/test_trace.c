/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The ring of submissions, what it reports, and its dump. */
#include "gpu/trace.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char places[100];

static struct CUstream_st *stream(int number)
{
    return (struct CUstream_st *)&places[number];
}

static struct gs_submission of(uint16_t function, uint64_t count)
{
    return (struct gs_submission){.function = function, .count = count, .type = GPUSYS_NCCL_FLOAT32};
}

static uint64_t add(struct gs_trace *trace, uint16_t function, uint64_t count, int number)
{
    struct gs_submission submission = of(function, count);
    return gs_trace_add(trace, &submission, stream(number));
}

static struct gs_trace *trace_of(uint32_t entries)
{
    struct gs_trace *trace;
    assert_int_equal(gs_trace_new(&trace, entries), 0);
    return trace;
}

/* The dump as text. */
static char *dump(struct gs_trace *trace, const struct gs_trace_head *head)
{
    int fd = memfd_create("dump", MFD_CLOEXEC);
    assert_int_equal(gs_trace_write(trace, head, fd), 0);
    off_t length = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)length + 1);
    assert_int_equal(pread(fd, text, (size_t)length, 0), length);
    close(fd);
    return text;
}

static const struct gs_trace_head plain = {
    .reason = "request", .host = "node1", .rank = 3, .n_ranks = 8, .key = 0xabc, .version = 22809};

static void assert_entries(struct gs_trace *trace, uint64_t kept, uint64_t first)
{
    struct gs_submission *entries;
    uint64_t got, submitted;
    assert_int_equal(gs_trace_copy(trace, &entries, &got, &submitted), 0);
    assert_int_equal(got, kept);
    assert_int_equal(submitted, gs_trace_last(trace));
    for (uint64_t i = 0; i < kept; i++)
        assert_int_equal(entries[i].sequence, first + i);
    free(entries);
}

static void it_keeps_the_last_ones(void **state)
{
    (void)state;
    struct gs_trace *trace = trace_of(5); /* as 8 */
    assert_int_equal(gs_trace_last(trace), 0);
    assert_entries(trace, 0, 1);
    for (uint64_t i = 1; i <= 8; i++)
        assert_int_equal(add(trace, GS_ALL_REDUCE, i, 0), i);
    assert_entries(trace, 8, 1);
    add(trace, GS_ALL_REDUCE, 9, 0);
    assert_entries(trace, 8, 2);
    for (uint64_t i = 10; i <= 1000; i++)
        add(trace, GS_ALL_REDUCE, i, 0);
    assert_entries(trace, 8, 993);
    gs_trace_free(trace);
    gs_trace_free(NULL);
}

static void sizes(void **state)
{
    (void)state;
    struct gs_trace *trace = trace_of(1);
    add(trace, GS_ALL_REDUCE, 1, 0);
    add(trace, GS_ALL_REDUCE, 2, 0);
    assert_entries(trace, 1, 2);
    gs_trace_free(trace);
    trace = trace_of(0);
    for (int i = 0; i < 2000; i++)
        add(trace, GS_ALL_REDUCE, 1, 0);
    assert_entries(trace, 1024, 977);
    gs_trace_free(trace);
    assert_int_equal(gs_trace_new(&trace, UINT32_MAX), -EINVAL);
}

static void streams_have_numbers(void **state)
{
    (void)state;
    struct gs_trace *trace = trace_of(128);
    struct gs_submission *entries;
    uint64_t kept, submitted;
    for (int i = 0; i < 66; i++)
        add(trace, GS_ALL_REDUCE, 1, 99 - i);
    add(trace, GS_ALL_REDUCE, 1, 99);
    assert_int_equal(gs_trace_copy(trace, &entries, &kept, &submitted), 0);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(entries[i].stream, i);
    assert_int_equal(entries[64].stream, 65535);
    assert_int_equal(entries[65].stream, 65535);
    assert_int_equal(entries[66].stream, 0);
    gs_trace_complete(trace, stream(34), 66); /* one that has no number: nothing is known of it */
    assert_int_equal(gs_trace_completed(trace), 0);
    free(entries);
    gs_trace_free(trace);
}

static void collectives_are_counted_apart(void **state)
{
    (void)state;
    struct gs_report report;
    struct gs_trace *trace = trace_of(64);
    struct gs_submission reduce = {
        .function = GS_REDUCE, .count = 7, .type = GPUSYS_NCCL_INT8, .op = GPUSYS_NCCL_MAX, .root = 2};
    add(trace, GS_SEND, 1, 0);
    add(trace, GS_ALL_REDUCE, 5, 0);
    add(trace, GS_RECV, 1, 0);
    gs_trace_add(trace, &reduce, stream(0));
    gs_trace_report(trace, &report);
    assert_int_equal(report.submitted, 2);
    assert_int_equal(report.completed, 0);
    assert_int_equal(report.n_records, 2);
    const struct gs_record expected[] = {
        {.sequence = 1, .count = 5, .function = GS_ALL_REDUCE, .type = GPUSYS_NCCL_FLOAT32},
        {.sequence = 2,
         .count = 7,
         .function = GS_REDUCE,
         .type = GPUSYS_NCCL_INT8,
         .op = GPUSYS_NCCL_MAX,
         .root = 2},
    };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(report.records[i].sequence, expected[i].sequence);
        assert_int_equal(report.records[i].count, expected[i].count);
        assert_int_equal(report.records[i].function, expected[i].function);
        assert_int_equal(report.records[i].type, expected[i].type);
        assert_int_equal(report.records[i].op, expected[i].op);
        assert_int_equal(report.records[i].root, expected[i].root);
    }
    gs_trace_free(trace);
}

static void a_report_has_the_last_32(void **state)
{
    (void)state;
    struct gs_report report;
    struct gs_trace *trace = trace_of(64);
    for (uint64_t i = 1; i <= 100; i++) {
        add(trace, GS_BROADCAST, i, 0);
        add(trace, GS_SEND, 1, 0);
    }
    gs_trace_report(trace, &report); /* half of the ring's 64 are collectives */
    assert_int_equal(report.submitted, 100);
    assert_int_equal(report.n_records, 32);
    for (uint64_t i = 0; i < 32; i++)
        assert_int_equal(report.records[i].count, 69 + i);
    for (int i = 0; i < 44; i++)
        add(trace, GS_RECV, 1, 0); /* the ring forgets */
    gs_trace_report(trace, &report);
    assert_int_equal(report.submitted, 100);
    assert_int_equal(report.n_records, 10);
    assert_int_equal(report.records[0].count, 91);
    assert_int_equal(report.records[9].sequence, 100);
    assert_int_equal(report.records[10].sequence, 0);
    gs_trace_free(trace);
}

static uint64_t reported_complete(struct gs_trace *trace)
{
    struct gs_report report;
    gs_trace_report(trace, &report);
    return report.completed;
}

static void completion_is_of_one_stream(void **state)
{
    (void)state;
    struct gs_submission *entries;
    uint64_t kept, submitted;
    struct gs_trace *trace = trace_of(16);
    for (int i = 0; i < 3; i++) {
        add(trace, GS_ALL_REDUCE, 1, 0); /* 1, 4, 7 */
        add(trace, GS_ALL_REDUCE, 1, 1); /* 2, 5, 8 */
        add(trace, GS_SEND, 1, 0);       /* 3, 6, 9 */
    }
    gs_trace_complete(trace, stream(0), 5);
    assert_int_equal(gs_trace_completed(trace), 3);
    assert_int_equal(reported_complete(trace), 2);
    gs_trace_complete(trace, stream(0), 4); /* known already */
    gs_trace_complete(trace, stream(2), 9); /* never seen */
    assert_int_equal(gs_trace_completed(trace), 3);
    assert_int_equal(gs_trace_copy(trace, &entries, &kept, &submitted), 0);
    for (uint64_t i = 0; i < 9; i++)
        assert_int_equal(entries[i].completed_ns != 0, i == 0 || i == 2 || i == 3);
    assert_true(entries[0].completed_ns >= entries[0].submitted_ns);
    free(entries);
    gs_trace_complete(trace, stream(1), 1000); /* more than there are: all */
    gs_trace_complete(trace, stream(0), 9);
    assert_int_equal(gs_trace_completed(trace), 9);
    assert_int_equal(reported_complete(trace), 6);
    add(trace, GS_ALL_REDUCE, 1, 1);
    assert_int_equal(gs_trace_completed(trace), 9);
    gs_trace_complete(trace, stream(1), 10);
    assert_int_equal(gs_trace_completed(trace), 10);
    gs_trace_free(trace);
}

/* Counts go on past what the ring holds; what cannot be known is not claimed. */
static void completion_behind_the_ring(void **state)
{
    (void)state;
    struct gs_trace *trace = trace_of(4);
    for (int i = 0; i < 100; i++)
        add(trace, GS_ALL_REDUCE, 1, 0);
    gs_trace_complete(trace, stream(0), 50);
    assert_int_equal(gs_trace_completed(trace), 0);
    gs_trace_complete(trace, stream(0), 96);
    assert_int_equal(gs_trace_completed(trace), 96);
    gs_trace_complete(trace, stream(0), 100);
    assert_int_equal(gs_trace_completed(trace), 100);
    assert_int_equal(reported_complete(trace), 100);
    gs_trace_free(trace);
}

/* The next line of a text. */
static char *next_line(char **text)
{
    char *line = strsep(text, "\n");
    assert_non_null(line);
    return line;
}

static void assert_head(const char *line, int64_t before, time_t wall)
{
    char start[256], time_text[64];
    int64_t monotonic;
    struct tm parts = {0};
    snprintf(start, sizeof start,
             "{\"schema\":1,\"kind\":\"gpusys-nccl-trace\",\"reason\":\"request\",\"rank\":3,\"ranks\":8,"
             "\"host\":\"node1\",\"process\":%d,\"nccl\":\"2.28.9\",\"communicator\":\"0000000000000abc\","
             "\"time\":\"",
             (int)getpid());
    assert_int_equal(strncmp(line, start, strlen(start)), 0);
    line += strlen(start);
    assert_int_equal(sscanf(line, "%63[^\"]\",\"monotonic_ns\":%" SCNd64, time_text, &monotonic), 2);
    assert_true(monotonic >= before && monotonic <= gpusys_now_ns());
    assert_int_equal(strlen(time_text), 30);
    assert_int_equal(time_text[29], 'Z');
    assert_non_null(strptime(time_text, "%Y-%m-%dT%H:%M:%S", &parts));
    assert_true(timegm(&parts) >= wall && timegm(&parts) <= time(NULL));
    assert_string_equal(strstr(line, ",\"error\""), ",\"error\":null,\"kept\":5,\"submitted\":5}");
}

/* Up to the times, which differ. */
static void assert_line(const char *line, const char *start, bool completed)
{
    int64_t submitted, through = 0;
    char end = 0;
    assert_int_equal(strncmp(line, start, strlen(start)), 0);
    line += strlen(start);
    if (completed) {
        int fields = sscanf(line, ",\"submitted_ns\":%" SCNd64 ",\"completed_ns\":%" SCNd64 "%c", &submitted,
                            &through, &end);
        assert_int_equal(fields, 3);
        assert_true(through >= submitted);
        assert_int_equal(end, '}');
    } else {
        int length = 0;
        assert_int_equal(
            sscanf(line, ",\"submitted_ns\":%" SCNd64 ",\"completed_ns\":null}%n", &submitted, &length), 1);
        assert_int_equal(length, strlen(line));
    }
    assert_true(submitted > 0 && submitted <= gpusys_now_ns());
}

static void a_dump_is_lines_of_json(void **state)
{
    (void)state;
    struct gs_trace *trace = trace_of(16);
    struct gs_submission submissions[] = {
        {.function = GS_ALL_REDUCE, .count = 1024, .type = GPUSYS_NCCL_BFLOAT16, .op = GPUSYS_NCCL_AVG},
        {.function = GS_REDUCE, .count = 3, .type = GPUSYS_NCCL_FLOAT64, .op = 255, .root = 7},
        {.function = GS_BROADCAST, .count = 5, .type = GPUSYS_NCCL_INT8, .root = 1},
        {.function = GS_SEND, .count = UINT64_C(1) << 40, .type = GPUSYS_NCCL_FLOAT8E5M2, .root = 2},
        {.function = GS_ALL_TO_ALL, .count = 0, .type = GPUSYS_NCCL_UINT32},
    };
    int64_t before = gpusys_now_ns();
    time_t wall = time(NULL);
    for (int i = 0; i < 5; i++)
        gs_trace_add(trace, &submissions[i], i < 4 ? stream(0) : NULL);
    gs_trace_complete(trace, stream(0), 2);
    char *text = dump(trace, &plain), *rest = text;
    assert_head(next_line(&rest), before, wall);
    assert_line(
        next_line(&rest),
        "{\"sequence\":1,\"collective\":1,\"function\":\"all_reduce\",\"type\":\"bfloat16\",\"op\":\"avg\","
        "\"count\":1024,\"bytes\":2048,\"stream\":0",
        true);
    assert_line(
        next_line(&rest),
        "{\"sequence\":2,\"collective\":2,\"function\":\"reduce\",\"type\":\"float64\",\"op\":\"custom\","
        "\"count\":3,\"bytes\":24,\"stream\":0,\"root\":7",
        true);
    assert_line(next_line(&rest),
                "{\"sequence\":3,\"collective\":3,\"function\":\"broadcast\",\"type\":\"int8\",\"op\":null,"
                "\"count\":5,\"bytes\":5,\"stream\":0,\"root\":1",
                false);
    assert_line(
        next_line(&rest),
        "{\"sequence\":4,\"collective\":null,\"function\":\"send\",\"type\":\"float8e5m2\",\"op\":null,"
        "\"count\":1099511627776,\"bytes\":1099511627776,\"stream\":0,\"peer\":2",
        false);
    assert_line(
        next_line(&rest),
        "{\"sequence\":5,\"collective\":4,\"function\":\"all_to_all\",\"type\":\"uint32\",\"op\":null,"
        "\"count\":0,\"bytes\":0,\"stream\":1",
        false);
    assert_string_equal(rest, "");
    free(text);
    gs_trace_free(trace);
}

static void strings_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *json;
    } rows[] = {
        {"", "\"\""},
        {"a \"b\" \\c", "\"a \\\"b\\\" \\\\c\""},
        {"a\nb\x01\x7f", "\"a\\u000ab\\u0001\\u007f\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff|\xc3|\xe2\x82|\x80", "\"\\ufffd|\\ufffd|\\ufffd\\ufffd|\\ufffd\""},
        {"\xc0\x80|\xed\xa0\x80|\xf4\x90\x80\x80|\xf0\x9f\x98",
         "\"\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd\""},
    };
    struct gs_trace *trace = trace_of(1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gs_trace_head head = {.reason = rows[i].text, .host = rows[i].text, .error = rows[i].text};
        char expected[256];
        char *text = dump(trace, &head);
        snprintf(expected, sizeof expected, "\"reason\":%s,\"rank\":0", rows[i].json);
        assert_non_null(strstr(text, expected));
        snprintf(expected, sizeof expected, "\"host\":%s,\"process\"", rows[i].json);
        assert_non_null(strstr(text, expected));
        snprintf(expected, sizeof expected, "\"error\":%s,\"kept\":0,\"submitted\":0}\n", rows[i].json);
        assert_non_null(strstr(text, expected));
        free(text);
    }
    char *text = dump(trace, &(struct gs_trace_head){.host = "h"});
    assert_non_null(strstr(text, "\"reason\":\"request\""));
    free(text);
    gs_trace_free(trace);
}

/* An error text as long as they come, and more entries than one buffer holds. */
static void long_dumps_are_whole(void **state)
{
    (void)state;
    char error[1500];
    struct gs_trace *trace = trace_of(1024);
    memset(error, 1, sizeof error - 1);
    error[sizeof error - 1] = 0;
    struct gs_trace_head head = plain;
    head.error = error;
    for (uint64_t i = 1; i <= 1024; i++)
        add(trace, GS_ALL_GATHER, i, 0);
    char *text = dump(trace, &head), *rest = text;
    char *line = next_line(&rest);
    int escapes = 0;
    for (const char *at = line; (at = strstr(at, "\\u0001")); at++)
        escapes++;
    assert_int_equal(escapes, 1499);
    for (unsigned i = 1; i <= 1024; i++) {
        char start[64];
        int length = snprintf(start, sizeof start, "{\"sequence\":%u,\"collective\":%u,", i, i);
        assert_int_equal(strncmp(next_line(&rest), start, (size_t)length), 0);
    }
    assert_string_equal(rest, "");
    free(text);
    gs_trace_free(trace);
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    struct gs_trace *trace = trace_of(1024);
    for (int i = 0; i < 1024; i++)
        add(trace, GS_ALL_GATHER, 1, 0);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(gs_trace_write(trace, &plain, fd), -ENOSPC);
    close(fd);
    assert_int_equal(gs_trace_write(trace, &plain, -1), -EBADF);
    /* Some of it fits: the write that is cut short is gone on with, and then the error comes. */
    struct rlimit old, small;
    fd = memfd_create("small", MFD_CLOEXEC);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 20000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int code = gs_trace_write(trace, &plain, fd);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(code, -EFBIG);
    assert_int_equal(lseek(fd, 0, SEEK_END), 20000);
    close(fd);
    gs_trace_free(trace);
}

struct writer {
    struct gs_trace *trace;
    int number;
};

enum { THREAD_ADDS = 20000 };

static void *add_many(void *context)
{
    struct writer *writer = context;
    for (int i = 0; i < THREAD_ADDS; i++) {
        uint64_t sequence = add(writer->trace, GS_ALL_REDUCE, (uint64_t)writer->number, writer->number);
        if (i % 8 == 0)
            gs_trace_complete(writer->trace, stream(writer->number), sequence);
    }
    return NULL;
}

static void threads_may_add_and_dump(void **state)
{
    (void)state;
    pthread_t threads[2];
    struct writer writers[2];
    struct gs_trace *trace = trace_of(64);
    for (int i = 0; i < 2; i++) {
        writers[i] = (struct writer){trace, i};
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, &writers[i]), 0);
    }
    do { /* each copy is of one moment */
        struct gs_submission *entries;
        struct gs_report report;
        uint64_t kept, submitted;
        assert_int_equal(gs_trace_copy(trace, &entries, &kept, &submitted), 0);
        assert_int_equal(kept, submitted < 64 ? submitted : 64);
        for (uint64_t i = 0; i < kept; i++) {
            assert_int_equal(entries[i].sequence, submitted - kept + 1 + i);
            assert_true(i == 0 || entries[i].submitted_ns >= entries[i - 1].submitted_ns);
        }
        free(entries);
        gs_trace_report(trace, &report);
        assert_true(report.completed <= report.submitted);
        free(dump(trace, &plain));
    } while (gs_trace_last(trace) < 2 * THREAD_ADDS);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    gs_trace_complete(trace, stream(0), 2 * THREAD_ADDS);
    gs_trace_complete(trace, stream(1), 2 * THREAD_ADDS);
    assert_int_equal(gs_trace_completed(trace), 2 * THREAD_ADDS);
    gs_trace_free(trace);
}

static void paths(void **state)
{
    (void)state;
    char path[64], expected[64], process[16];
    static const struct {
        const char *pattern, *path;
    } rows[] = {
        {"/tmp/trace", "/tmp/trace.12"},
        {"%r", "12"},
        {"t-%h-%r", "t-node1-12"},
        {"%h", "node1.12"},
        {"%r%r", "1212"},
        {"%x%r", "%x12"},
        {"%%r", "%12"},
        {"a%", "a%.12"},
        {"", ".12"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(gs_trace_path(rows[i].pattern, 12, "node1", path, sizeof path), 0);
        assert_string_equal(path, rows[i].path);
        size_t length = strlen(rows[i].path);
        assert_int_equal(gs_trace_path(rows[i].pattern, 12, "node1", path, length + 1), 0);
        assert_int_equal(gs_trace_path(rows[i].pattern, 12, "node1", path, length), -ENAMETOOLONG);
    }
    snprintf(process, sizeof process, "%d", (int)getpid());
    snprintf(expected, sizeof expected, "a.%s.12", process);
    assert_int_equal(gs_trace_path("a.%p", 12, "node1", path, sizeof path), 0);
    assert_string_equal(path, expected);
    assert_int_equal(gs_trace_path("a", 1, "h", path, 0), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_keeps_the_last_ones),
        cmocka_unit_test(sizes),
        cmocka_unit_test(streams_have_numbers),
        cmocka_unit_test(collectives_are_counted_apart),
        cmocka_unit_test(a_report_has_the_last_32),
        cmocka_unit_test(completion_is_of_one_stream),
        cmocka_unit_test(completion_behind_the_ring),
        cmocka_unit_test(a_dump_is_lines_of_json),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(long_dumps_are_whole),
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(threads_may_add_and_dump),
        cmocka_unit_test(paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
