/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages of a party: golden bytes (which docs/protocol.md shows too), every cut, every bound. */
#include "gpu/party_message.h"

#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/party.h"

static struct gs_bytes out;

static int tear_down(void **state)
{
    (void)state;
    gs_bytes_free(&out);
    return 0;
}

/* ---- what is said ---- */

static struct gs_member members[2] = {
    {.host = "node0", .pid = 4710, .version = 22809, .address = "10.0.0.1:7475"},
    {.host = "node7", .pid = 4711, .version = 22809, .address = "10.0.0.7:40000"},
};
static struct gs_party_hello hello = {.version = 1, .n_ranks = 2, .rank = 1};
static const struct gpusys_error error = {
    .code = -EEXIST, .message = "rank 1 came twice", .cause = "why", .hint = "do"};
static const unsigned char share_bytes[4] = {1, 2, 0, 0};
static const uint8_t map[2] = {0x05, 0x02};
static const struct gs_party_gather gather = {.tag = 9,
                                              .digest = UINT64_C(0x1122334455667788),
                                              .n_ranks = 2,
                                              .bytes = 4,
                                              .share = share_bytes,
                                              .share_bytes = 4};
static const struct gs_party_ungathered ungathered = {.tag = 9, .code = -EBADMSG, .text = "no"};
static const struct gs_party_given given = {.tag = 9, .n_ranks = 10, .map = map};
static const struct gs_party_alarm alarm_ = {
    .key = 77, .code = -ETIMEDOUT, .judge = true, .text = "a wait ran out", .n_ranks = 10, .map = map};
static const struct gs_report report = {
    .submitted = 42,
    .completed = 41,
    .n_records = 1,
    .records = {{.sequence = 42, .count = 1024, .function = 1, .type = 7}}};
static const struct gs_failure failure = {
    .code = -ECONNRESET, .n_suspects = 1, .suspects = {3}, .text = "rank 3 died"};
static const uint32_t leaving[2] = {1, 3};

static int set_up(void **state)
{
    (void)state;
    for (uint8_t i = 0; i < 16; i++) {
        members[0].gpu[i] = (uint8_t)(0x10 + i);
        members[1].gpu[i] = (uint8_t)(0x20 + i);
        hello.job[i] = (uint8_t)(0x40 + i);
    }
    hello.member = members[1];
    return 0;
}

static int put_hello(void)
{
    return gs_party_hello_encode(&out, &hello);
}

static int put_welcome(void)
{
    return gs_party_welcome_encode(&out, members, 2, 15000);
}

static int put_refused(void)
{
    return gs_party_refused_encode(&out, &error);
}

static int put_waiting(void)
{
    return gs_party_waiting_encode(&out, "ranks 3 and 5 of 8");
}

static int put_gather(void)
{
    return gs_party_gather_encode(&out, &gather);
}

static int put_gathered(void)
{
    struct gs_bytes shares = {0};
    struct gs_party_share share = {.rank = 1, .bytes = 4, .at = share_bytes};
    assert_int_equal(gs_party_share_encode(&shares, &share), 0);
    share = (struct gs_party_share){.rank = 0, .bytes = 4, .at = (const unsigned char *)"\0\0\0"};
    assert_int_equal(gs_party_share_encode(&shares, &share), 0);
    struct gs_party_gathered gathered = {
        .tag = 9, .n_ranks = 2, .bytes = 4, .shares = gs_cursor_over(shares.data, gs_bytes_queued(&shares))};
    int code = gs_party_gathered_encode(&out, &gathered);
    gs_bytes_free(&shares);
    return code;
}

static int put_ungathered(void)
{
    return gs_party_ungathered_encode(&out, &ungathered);
}

static int put_late(void)
{
    return gs_party_number_encode(&out, GS_PARTY_LATE, 9);
}

static int put_given(void)
{
    return gs_party_given_encode(&out, &given);
}

static int put_alarm(void)
{
    return gs_party_alarm_encode(&out, &alarm_);
}

static int put_ask(void)
{
    return gs_party_number_encode(&out, GS_PARTY_ASK, 77);
}

static int put_report(void)
{
    return gs_party_report_encode(&out, 77, &report);
}

static int put_report_none(void)
{
    return gs_party_report_encode(&out, 77, NULL);
}

static int put_failure(void)
{
    return gs_party_failure_encode(&out, &failure);
}

static int put_goodbye(void)
{
    return gs_party_goodbye_encode(&out, leaving, 2);
}

static int put_ping(void)
{
    return gs_party_ping_encode(&out);
}

/* ---- and read to its end ---- */

static int get_hello(const unsigned char *body, size_t size)
{
    struct gs_party_hello back;
    int code = gs_party_hello_decode(body, size, &back);
    if (!code)
        assert_memory_equal(&back.job, &hello.job, sizeof hello.job);
    if (!code)
        assert_true(back.version == 1 && back.n_ranks == 2 && back.rank == 1 && back.member.pid == 4711 &&
                    back.member.version == 22809 && !strcmp(back.member.host, "node7") &&
                    !memcmp(back.member.gpu, members[1].gpu, 16) && !back.member.address[0]);
    return code;
}

static int get_welcome(const unsigned char *body, size_t size)
{
    struct gs_party_welcome back;
    struct gs_member member;
    int code = gs_party_welcome_decode(body, size, &back);
    for (uint32_t i = 0; !code && i < back.n_ranks; i++) {
        code = gs_party_member_next(&back, &member);
        if (!code)
            assert_memory_equal(&member, &members[i], sizeof member);
    }
    if (!code && gs_cursor_left(&back.members))
        code = -EBADMSG;
    if (!code)
        assert_true(back.silence_ms == 15000 && back.n_ranks == 2);
    return code;
}

static int get_refused(const unsigned char *body, size_t size)
{
    struct gs_party_refused back;
    int code = gs_party_refused_decode(body, size, &back);
    if (!code)
        assert_true(back.code == -EEXIST && !strcmp(back.message, error.message) &&
                    !strcmp(back.cause, "why") && !strcmp(back.hint, "do"));
    return code;
}

static int get_waiting(const unsigned char *body, size_t size)
{
    char text[GS_PARTY_TEXT_BYTES];
    int code = gs_party_waiting_decode(body, size, text);
    if (!code)
        assert_string_equal(text, "ranks 3 and 5 of 8");
    return code;
}

/* A share may be cut: what is missing is zero. */
static int get_gather(const unsigned char *body, size_t size)
{
    struct gs_party_gather back;
    int code = gs_party_gather_decode(body, size, &back);
    if (!code)
        assert_true(back.tag == 9 && back.digest == gather.digest && back.n_ranks == 2 && back.bytes == 4 &&
                    back.share_bytes == size - 24 &&
                    !memcmp(back.share, share_bytes, back.share_bytes < 2 ? back.share_bytes : 2));
    return code;
}

static int get_gathered(const unsigned char *body, size_t size)
{
    struct gs_party_gathered back;
    struct gs_party_share share;
    int code = gs_party_gathered_decode(body, size, &back);
    for (uint32_t i = 0; !code && i < back.n_ranks; i++) {
        code = gs_party_share_next(&back, &share);
        if (!code)
            assert_true(share.rank == 1 - i && share.bytes == (i ? 0 : 2) &&
                        !memcmp(share.at, share_bytes, share.bytes));
    }
    return code ? code : gs_cursor_left(&back.shares) ? -EBADMSG : 0;
}

static int get_ungathered(const unsigned char *body, size_t size)
{
    struct gs_party_ungathered back;
    int code = gs_party_ungathered_decode(body, size, &back);
    if (!code)
        assert_memory_equal(&back, &ungathered, sizeof back);
    return code;
}

static int get_number(const unsigned char *body, size_t size)
{
    uint64_t number;
    int code = gs_party_number_decode(body, size, &number);
    if (!code)
        assert_true(number == 9 || number == 77);
    return code;
}

static int get_given(const unsigned char *body, size_t size)
{
    struct gs_party_given back;
    int code = gs_party_given_decode(body, size, &back);
    if (!code)
        assert_true(back.tag == 9 && back.n_ranks == 10 && !memcmp(back.map, map, 2));
    return code;
}

static int get_alarm(const unsigned char *body, size_t size)
{
    struct gs_party_alarm back;
    int code = gs_party_alarm_decode(body, size, &back);
    if (!code)
        assert_true(back.key == 77 && back.code == -ETIMEDOUT && back.judge &&
                    !strcmp(back.text, alarm_.text) && back.n_ranks == 10 && !memcmp(back.map, map, 2));
    return code;
}

static int get_report(const unsigned char *body, size_t size)
{
    struct gs_report back;
    uint64_t key;
    bool known;
    int code = gs_party_report_decode(body, size, &key, &known, &back);
    if (!code && known)
        assert_memory_equal(&back, &report, sizeof back);
    if (!code)
        assert_true(key == 77 && (known || (!back.submitted && !back.n_records)));
    return code;
}

static int get_failure(const unsigned char *body, size_t size)
{
    struct gs_failure back;
    int code = gs_party_failure_decode(body, size, &back);
    if (!code)
        assert_memory_equal(&back, &failure, sizeof back);
    return code;
}

static int get_goodbye(const unsigned char *body, size_t size)
{
    struct gs_party_goodbye back;
    uint32_t one, two;
    int code = gs_party_goodbye_decode(body, size, &back);
    if (!code)
        assert_true(back.n_ranks == 2 && gs_party_goodbye_next(&back, &one) == 0 &&
                    gs_party_goodbye_next(&back, &two) == 0 && one == 1 && two == 3 &&
                    gs_party_goodbye_next(&back, &one) == -EBADMSG);
    return code;
}

static int get_ping(const unsigned char *body, size_t size)
{
    (void)body;
    return size ? -EBADMSG : 0;
}

static const struct golden {
    const char *name, *hex;
    uint16_t type;
    int (*put)(void);
    int (*get)(const unsigned char *body, size_t size);
} goldens[] = {
    {"HELLO", GOLDEN_PARTY_HELLO, GS_PARTY_HELLO, put_hello, get_hello},
    {"WELCOME", GOLDEN_PARTY_WELCOME, GS_PARTY_WELCOME, put_welcome, get_welcome},
    {"REFUSED", GOLDEN_PARTY_REFUSED, GS_PARTY_REFUSED, put_refused, get_refused},
    {"WAITING", GOLDEN_PARTY_WAITING, GS_PARTY_WAITING, put_waiting, get_waiting},
    {"PING", GOLDEN_PARTY_PING, GS_PARTY_PING, put_ping, get_ping},
    {"GATHER", GOLDEN_PARTY_GATHER, GS_PARTY_GATHER, put_gather, get_gather},
    {"GATHERED", GOLDEN_PARTY_GATHERED, GS_PARTY_GATHERED, put_gathered, get_gathered},
    {"UNGATHERED", GOLDEN_PARTY_UNGATHERED, GS_PARTY_UNGATHERED, put_ungathered, get_ungathered},
    {"LATE", GOLDEN_PARTY_LATE, GS_PARTY_LATE, put_late, get_number},
    {"GIVEN", GOLDEN_PARTY_GIVEN, GS_PARTY_GIVEN, put_given, get_given},
    {"ALARM", GOLDEN_PARTY_ALARM, GS_PARTY_ALARM, put_alarm, get_alarm},
    {"ASK", GOLDEN_PARTY_ASK, GS_PARTY_ASK, put_ask, get_number},
    {"REPORT", GOLDEN_PARTY_REPORT, GS_PARTY_REPORT, put_report, get_report},
    {"REPORT of none", GOLDEN_PARTY_REPORT_NONE, GS_PARTY_REPORT, put_report_none, get_report},
    {"FAILURE", GOLDEN_PARTY_FAILURE, GS_PARTY_FAILURE, put_failure, get_failure},
    {"GOODBYE", GOLDEN_PARTY_GOODBYE, GS_PARTY_GOODBYE, put_goodbye, get_goodbye},
};
enum { N_GOLDENS = sizeof goldens / sizeof goldens[0] };

/* ---- bytes ---- */

static void check_hex(const unsigned char *at, size_t size, const char *hex)
{
    for (size_t i = 0; i < size; i++) {
        char two[3];
        snprintf(two, sizeof two, "%02x", at[i]);
        hex += strspn(hex, " ");
        assert_memory_equal(hex, two, 2);
        hex += 2;
    }
    assert_int_equal(*hex, 0);
}

/* The body of one on the heap, exactly as long, so that a sanitizer sees a read past its end. */
static unsigned char *body_of(const struct golden *golden, size_t *ret_size, size_t more)
{
    assert_int_equal(golden->put(), 0);
    size_t size = gs_bytes_queued(&out) - GS_PARTY_FRAME_BYTES;
    unsigned char *body = malloc(size + more ? size + more : 1);
    assert_non_null(body);
    memcpy(body, out.data + out.head + GS_PARTY_FRAME_BYTES, size);
    memset(body + size, 0, more);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    *ret_size = size + more;
    return body;
}

static void golden_bytes(void **state)
{
    struct gs_party_frame frame;
    (void)state;
    check_hex((const unsigned char *)GS_PARTY_MAGIC, GS_PARTY_MAGIC_BYTES, GOLDEN_PARTY_MAGIC);
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        assert_int_equal(goldens[i].put(), 0);
        check_hex(out.data + out.head, gs_bytes_queued(&out), goldens[i].hex);
        assert_int_equal(gs_party_frame_decode(out.data + out.head, &frame), 0);
        assert_int_equal(frame.type, goldens[i].type);
        assert_int_equal(frame.body_bytes, gs_bytes_queued(&out) - GS_PARTY_FRAME_BYTES);
        gs_bytes_drop(&out, gs_bytes_queued(&out));
    }
}

static void and_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        size_t size;
        unsigned char *body = body_of(&goldens[i], &size, 0);
        assert_int_equal(goldens[i].get(body, size), 0);
        free(body);
    }
}

static void every_cut_and_one_more(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        size_t size, least = goldens[i].type == GS_PARTY_GATHER ? 24 : SIZE_MAX;
        unsigned char *body = body_of(&goldens[i], &size, 0);
        for (size_t cut = 0; cut < size; cut++) {
            unsigned char *copy = malloc(cut ? cut : 1);
            assert_non_null(copy);
            memcpy(copy, body, cut);
            assert_int_equal(goldens[i].get(copy, cut), cut >= least ? 0 : -EBADMSG);
            free(copy);
        }
        free(body);
        body = body_of(&goldens[i], &size, least == 24 ? 3 : 1);
        assert_int_equal(goldens[i].get(body, size), -EBADMSG);
        free(body);
    }
}

/* ---- bounds ---- */

/* The golden body with `bytes` at `at` instead. */
static int with(uint16_t type, size_t at, const char *bytes, size_t n)
{
    const struct golden *golden = goldens;
    size_t size;
    while (golden->type != type)
        golden++;
    unsigned char *body = body_of(golden, &size, 0);
    assert_true(at + n <= size);
    memcpy(body + at, bytes, n);
    int code = golden->get(body, size);
    free(body);
    return code;
}

#define REFUSES(type, at, bytes) assert_int_equal(with(type, at, bytes, sizeof bytes - 1), -EBADMSG)

static void frames(void **state)
{
    struct gs_party_frame frame;
    (void)state;
    assert_int_equal(gs_party_frame_decode((const unsigned char *)"\0\0\0\0\0\0\0\0", &frame), -EBADMSG);
    assert_int_equal(gs_party_frame_decode((const unsigned char *)"\0\0\0\0\x10\0\0\0", &frame), -EBADMSG);
    assert_int_equal(gs_party_frame_decode((const unsigned char *)"\0\0\0\0\x05\x01\0\0", &frame), -EBADMSG);
    assert_int_equal(gs_party_frame_decode((const unsigned char *)"\0\0\0\0\x05\0\x01\0", &frame), -EBADMSG);
    assert_int_equal(gs_party_frame_decode((const unsigned char *)"\0\0\0\0\x05\0\0\x01", &frame), -EBADMSG);
    assert_int_equal(gs_party_frame_decode((const unsigned char *)"\xff\xff\xff\xff\x05\0\0\0", &frame), 0);
    assert_true(frame.body_bytes == UINT32_MAX);
}

static void fields_that_cannot_be(void **state)
{
    (void)state;
    REFUSES(GS_PARTY_HELLO, 0, "\0\0\0\0"); /* version */
    REFUSES(GS_PARTY_HELLO, 52, "\x40\0");  /* a host of 64 bytes */
    REFUSES(GS_PARTY_HELLO, 55, "\n");      /* a control byte in it */
    REFUSES(GS_PARTY_HELLO, 55, "\x7f");
    REFUSES(GS_PARTY_HELLO, 55, "\0");
    REFUSES(GS_PARTY_HELLO, 54, "\xc2\x9b");    /* a control of one character, as UTF-8 */
    REFUSES(GS_PARTY_HELLO, 55, "\x9b");        /* and as none */
    REFUSES(GS_PARTY_WELCOME, 0, "\0\0\0\0");   /* no ranks */
    REFUSES(GS_PARTY_WELCOME, 0, "\1\0\1\0");   /* 65537 */
    REFUSES(GS_PARTY_WELCOME, 0, "\3\0\0\0");   /* more than there are */
    REFUSES(GS_PARTY_WELCOME, 0, "\1\0\0\0");   /* fewer */
    REFUSES(GS_PARTY_REFUSED, 0, "\0\0\0\0");   /* no error */
    REFUSES(GS_PARTY_REFUSED, 0, "\0\x10\0\0"); /* 4096 */
    REFUSES(GS_PARTY_REFUSED, 0, "\x0b\0\0\0"); /* EAGAIN */
    REFUSES(GS_PARTY_GATHER, 16, "\0\0\0\0");
    REFUSES(GS_PARTY_GATHER, 16, "\1\0\1\0");
    REFUSES(GS_PARTY_GATHER, 20, "\1\4\0\0"); /* 1025 bytes */
    REFUSES(GS_PARTY_GATHER, 20, "\1\0\0\0"); /* a share longer than that */
    REFUSES(GS_PARTY_GATHERED, 8, "\0\0\0\0");
    REFUSES(GS_PARTY_GATHERED, 8, "\1\0\1\0");
    REFUSES(GS_PARTY_GATHERED, 12, "\1\4\0\0");
    REFUSES(GS_PARTY_GATHERED, 12, "\1\0\0\0");
    REFUSES(GS_PARTY_GATHERED, 20, "\xff\xff\xff\xff");
    REFUSES(GS_PARTY_UNGATHERED, 8, "\0\0\0\0");
    REFUSES(GS_PARTY_GIVEN, 8, "\0\0\0\0");
    REFUSES(GS_PARTY_GIVEN, 8, "\x08\0\0\0"); /* a byte too many */
    REFUSES(GS_PARTY_GIVEN, 8, "\x11\0\0\0"); /* one too few */
    REFUSES(GS_PARTY_GIVEN, 13, "\4");        /* rank 10 of 10 */
    REFUSES(GS_PARTY_ALARM, 0, "\0");         /* key 0 */
    REFUSES(GS_PARTY_ALARM, 8, "\0");
    REFUSES(GS_PARTY_ALARM, 12, "\2");
    REFUSES(GS_PARTY_ALARM, 13, "\1");
    REFUSES(GS_PARTY_ALARM, 14, "\1");
    REFUSES(GS_PARTY_ALARM, 16, "\0\1"); /* a text of 256 bytes */
    REFUSES(GS_PARTY_ALARM, 37, "\x80");
    REFUSES(GS_PARTY_REPORT, 8, "\2");
    REFUSES(GS_PARTY_REPORT, 8, "\0"); /* not one of it, and numbers all the same */
    REFUSES(GS_PARTY_REPORT, 9, "\1");
    REFUSES(GS_PARTY_REPORT, 11, "\1");
    REFUSES(GS_PARTY_REPORT, 12, "\x21\0\0\0"); /* 33 records */
    REFUSES(GS_PARTY_REPORT, 12, "\0\0\0\0");
    REFUSES(GS_PARTY_REPORT, 32, "\0");   /* sequence 0 */
    REFUSES(GS_PARTY_REPORT, 32, "\x29"); /* not the last that was submitted */
    REFUSES(GS_PARTY_REPORT, 16, "\xff\xff\xff\xff\xff\xff\xff\xff");
    REFUSES(GS_PARTY_FAILURE, 8, "\0");
    REFUSES(GS_PARTY_FAILURE, 12, "\x11\0\0\0"); /* 17 suspects */
    REFUSES(GS_PARTY_FAILURE, 12, "\0\0\0\0");   /* key 0 and nobody */
    REFUSES(GS_PARTY_GOODBYE, 0, "\0\0\0\0");
    REFUSES(GS_PARTY_GOODBYE, 0, "\3\0\0\0");
}

/* What comes of another version may be anything. */
static void another_version(void **state)
{
    struct gs_party_hello back = {.rank = 7};
    (void)state;
    assert_int_equal(gs_party_hello_decode("\2\0\0\0", 4, &back), 0);
    assert_true(back.version == 2 && back.rank == 7);
    assert_int_equal(gs_party_hello_decode("\2\0\0\0and more", 12, &back), 0);
    assert_int_equal(gs_party_hello_decode("\2\0\0", 3, &back), -EBADMSG);
}

/* The largest of everything fits into what the two sides take. */
static void the_largest(void **state)
{
    static uint8_t full[GS_PARTY_MAP_MOST];
    struct gs_party_alarm most = {.key = 1, .code = -1, .n_ranks = GS_PARTY_MAX_RANKS, .map = full};
    struct gs_party_hello long_hello = {.version = 1};
    struct gs_report long_report = {.submitted = 32, .n_records = GS_PARTY_RECORDS};
    struct gs_report back;
    uint64_t key;
    bool known;
    (void)state;
    memset(full, 0xff, sizeof full);
    memset(most.text, 'x', sizeof most.text); /* not terminated: it is cut */
    memset(long_hello.member.host, 'h', sizeof long_hello.member.host);
    assert_int_equal(gs_party_alarm_encode(&out, &most), 0);
    assert_true(gs_bytes_queued(&out) - GS_PARTY_FRAME_BYTES <= GS_PARTY_MEMBER_MOST);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    assert_int_equal(gs_party_hello_encode(&out, &long_hello), 0);
    assert_true(gs_bytes_queued(&out) - GS_PARTY_FRAME_BYTES <= GS_PARTY_HELLO_MOST);
    struct gs_party_hello hello_back;
    assert_int_equal(gs_party_hello_decode(out.data + out.head + 8, gs_bytes_queued(&out) - 8, &hello_back),
                     0);
    assert_int_equal(strlen(hello_back.member.host), 63);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    for (uint32_t i = 0; i < GS_PARTY_RECORDS; i++)
        long_report.records[i] = (struct gs_record){.sequence = i + 1};
    assert_int_equal(gs_party_report_encode(&out, 5, &long_report), 0);
    assert_true(gs_bytes_queued(&out) - GS_PARTY_FRAME_BYTES <= GS_PARTY_MEMBER_MOST);
    assert_int_equal(
        gs_party_report_decode(out.data + out.head + 8, gs_bytes_queued(&out) - 8, &key, &known, &back), 0);
    assert_true(key == 5 && known);
    assert_memory_equal(&back, &long_report, sizeof back);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    assert_true(gs_party_hub_most(1) >= 16 + 8 + GS_PARTY_SHARE_BYTES);
    assert_true(gs_party_hub_most(GS_PARTY_MAX_RANKS) < UINT32_MAX);
    struct gpusys_error long_error = {.code = -1};
    memset(long_error.message, 'm', 511);
    memset(long_error.cause, 'c', 255);
    memset(long_error.hint, 'h', 255);
    assert_int_equal(gs_party_refused_encode(&out, &long_error), 0);
    assert_true(gs_bytes_queued(&out) - GS_PARTY_FRAME_BYTES <= gs_party_hub_most(1));
    gs_bytes_drop(&out, gs_bytes_queued(&out));
}

/* Names of hosts and words of libraries may hold anything; nobody's terminal sees it. */
static void control_bytes_go_as_question_marks(void **state)
{
    char text[GS_PARTY_TEXT_BYTES];
    (void)state;
    assert_int_equal(gs_party_waiting_encode(&out, "a\tb\x7f\x1b[2J"), 0);
    assert_int_equal(gs_party_waiting_decode(out.data + out.head + 8, gs_bytes_queued(&out) - 8, text), 0);
    assert_string_equal(text, "a?b??[2J");
    gs_bytes_drop(&out, gs_bytes_queued(&out));
}

static void maps(void **state)
{
    uint8_t bits[2] = {0};
    (void)state;
    assert_int_equal(gs_party_map_bytes(1), 1);
    assert_int_equal(gs_party_map_bytes(8), 1);
    assert_int_equal(gs_party_map_bytes(9), 2);
    gs_party_map_set(bits, 0);
    gs_party_map_set(bits, 2);
    gs_party_map_set(bits, 9);
    gs_party_map_set(bits, 7);
    gs_party_map_clear(bits, 7);
    assert_memory_equal(bits, map, 2);
    assert_true(gs_party_map_has(map, 9) && !gs_party_map_has(map, 8) && !gs_party_map_has(map, 1));
}

/* ---- the document ---- */

static char *packed(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (!isspace((unsigned char)*from))
            *to++ = *from;
    *to = 0;
    return text;
}

static void the_document_shows_these_bytes(void **state)
{
    enum { MOST = 1 << 20 };
    FILE *file = fopen(PROTOCOL_DOCUMENT, "rb");
    char *document = calloc(1, MOST);
    (void)state;
    if (!file)
        fail_msg("%s is not there", PROTOCOL_DOCUMENT);
    assert_true(document && fread(document, 1, MOST - 1, file) > 0);
    fclose(file);
    packed(document);
    for (unsigned i = 0; i < N_GOLDENS; i++) {
        char *hex = packed(strdup(goldens[i].hex));
        if (!strstr(document, hex))
            fail_msg("docs/protocol.md does not show %s: %s", goldens[i].name, goldens[i].hex);
        free(hex);
    }
    free(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes),
        cmocka_unit_test(and_back),
        cmocka_unit_test(every_cut_and_one_more),
        cmocka_unit_test(frames),
        cmocka_unit_test(fields_that_cannot_be),
        cmocka_unit_test(another_version),
        cmocka_unit_test(the_largest),
        cmocka_unit_test(control_bytes_go_as_question_marks),
        cmocka_unit_test(maps),
        cmocka_unit_test(the_document_shows_these_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
