/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Coming together: every order, every refusal with its text, every deadline; and handing things round. */
#include "party_crew.h"

#include "base/address.h"
#include "gpu/party_message.h"

#include <errno.h>
#include <gpusys/log.h>
#include <poll.h>
#include <sys/stat.h>

static void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* ---- together ---- */

static uint32_t n_of_all;

static void be_there(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, n_of_all, 15 * CREW_SECOND);
    const struct gs_member *members = gs_party_members(party);
    CHECK(gs_party_rank(party) == seat && gs_party_size(party) == n_of_all);
    for (uint32_t i = 0; i < n_of_all; i++) {
        char host[64];
        snprintf(host, sizeof host, "host%u", i);
        CHECK(strcmp(members[i].host, host) == 0 && members[i].version == 22809);
        CHECK((n_of_all == 1 || members[i].address[0]) &&
              (i != seat || members[i].pid == (uint32_t)getpid()));
    }
    CHECK(crew_gather(party, 1, crew_ranks, n_of_all, 30 * CREW_SECOND, NULL) == 0);
    CHECK(crew_gather(party, 2, crew_ranks, n_of_all, 30 * CREW_SECOND, NULL) == 0);
    CHECK(gs_party_keep(party) == party);
    gs_party_close(party);
    gs_party_close(party);
}

static void come_together(uint32_t n, bool over_tcp, bool hub_last)
{
    struct crew *crew = crew_new(over_tcp);
    n_of_all = n;
    for (uint32_t i = 0; i < n; i++)
        crew_start(crew, hub_last ? n - 1 - i : i, be_there);
    crew_join(crew);
}

static void hub_first(void **state)
{
    (void)state;
    come_together(1, false, false);
    come_together(2, false, false);
    come_together(2, true, false);
    come_together(4, true, false);
    come_together(8, false, false);
}

static void hub_last(void **state)
{
    (void)state;
    come_together(2, false, true);
    come_together(2, true, true);
    come_together(8, true, true);
    come_together(8, false, true);
}

static void sixty_four(void **state)
{
    (void)state;
    come_together(64, false, true);
    come_together(64, true, false);
}

/* Twice at one address, one party behind the other and both at once. */
static void be_there_twice(struct crew *crew, uint32_t seat)
{
    struct gs_party *first = crew_enter(crew, seat, 4, 15 * CREW_SECOND);
    struct gs_party *second = crew_enter(crew, seat, 4, 15 * CREW_SECOND);
    CHECK(crew_gather(second, 1, crew_ranks, 4, 30 * CREW_SECOND, NULL) == 0);
    CHECK(crew_gather(first, 1, crew_ranks, 4, 30 * CREW_SECOND, NULL) == 0);
    gs_party_close(first);
    gs_party_close(second);
}

static void two_parties_at_one_address(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        struct crew *crew = crew_new(over_tcp);
        for (uint32_t i = 0; i < 4; i++)
            crew_start(crew, i, be_there_twice);
        crew_join(crew);
    }
}

static void wrong_options(void **state)
{
    struct gs_party *party = NULL;
    struct gpusys_error error;
    (void)state;
    assert_int_equal(gs_party_open(&party, &(struct gs_party_options){.address = "unix:x"}, &error), -EINVAL);
    expect_text(error.message, "0 ranks");
    assert_int_equal(
        gs_party_open(&party, &(struct gs_party_options){.n_ranks = GS_PARTY_MAX_RANKS + 1}, NULL), -EINVAL);
    assert_int_equal(gs_party_open(&party, &(struct gs_party_options){.n_ranks = 2, .rank = 2}, &error),
                     -EINVAL);
    expect_text(error.message, "rank 2 of 2 ranks, which are 0 to 1");
    assert_int_equal(gs_party_open(&party, &(struct gs_party_options){.n_ranks = 2}, &error), -EINVAL);
    expect_text(error.message, "no address");
    assert_int_equal(
        gs_party_open(&party, &(struct gs_party_options){.n_ranks = 2, .rank = 1, .address = "a:b:c:99999"},
                      &error),
        -EINVAL);
    assert_null(party);
    gs_party_close(NULL);
}

/* ---- refusals ---- */

/* A member made by hand: its connection, when rank 0 has it among those that came (or has thrown it out). */
static int raw_connect(const struct crew *crew)
{
    int fd;
    while ((fd = gs_address_connect(crew->address, gpusys_deadline_after(CREW_SECOND), NULL)) < 0)
        sched_yield();
    return fd;
}

static int raw_send(const struct crew *crew, const struct gs_party_hello *hello)
{
    struct gs_bytes bytes = {0};
    int fd = raw_connect(crew);
    memcpy(gs_bytes_grow(&bytes, GS_PARTY_MAGIC_BYTES), GS_PARTY_MAGIC, GS_PARTY_MAGIC_BYTES);
    CHECK(gs_party_hello_encode(&bytes, hello) == 0);
    send(fd, bytes.data + bytes.head, gs_bytes_queued(&bytes), MSG_NOSIGNAL); /* it may be refused already */
    gs_bytes_free(&bytes);
    return fd;
}

static void raw_read(int fd, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        CHECK(poll(&ready, 1, CREW_PATIENCE_S * 1000) == 1);
        ssize_t count = read(fd, (char *)to + done, size - done);
        CHECK(count > 0);
        done += (size_t)count;
    }
}

/* It closes, or resets, and says nothing more before. */
static bool raw_ended(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char byte;
    CHECK(poll(&ready, 1, CREW_PATIENCE_S * 1000) == 1);
    return read(fd, &byte, 1) <= 0;
}

/* The first message of rank 0. */
static uint16_t raw_hear(int fd, unsigned char body[4096], struct gs_party_frame *frame)
{
    unsigned char head[GS_PARTY_MAGIC_BYTES + GS_PARTY_FRAME_BYTES];
    raw_read(fd, head, sizeof head);
    CHECK(memcmp(head, GS_PARTY_MAGIC, GS_PARTY_MAGIC_BYTES) == 0);
    CHECK(gs_party_frame_decode(head + GS_PARTY_MAGIC_BYTES, frame) == 0 && frame->body_bytes <= 4096);
    raw_read(fd, body, frame->body_bytes);
    return frame->type;
}

static struct gs_party_hello raw_hello(const struct crew *crew, uint32_t rank, uint32_t n_ranks)
{
    struct gs_party_options options = crew_options(crew, rank, n_ranks);
    struct gs_party_hello hello = {
        .version = GS_PARTY_VERSION, .n_ranks = n_ranks, .rank = rank, .member = options.self};
    memcpy(hello.job, options.job, sizeof hello.job);
    return hello;
}

static struct gs_party_refused raw_refused(const struct crew *crew, const struct gs_party_hello *hello)
{
    struct gs_party_refused refused;
    struct gs_party_frame frame;
    unsigned char body[4096];
    int fd = raw_send(crew, hello);
    CHECK(raw_hear(fd, body, &frame) == GS_PARTY_REFUSED);
    CHECK(gs_party_refused_decode(body, frame.body_bytes, &refused) == 0);
    CHECK(raw_ended(fd));
    close(fd);
    return refused;
}

/* Rank 0 of two waits until rank 1 comes; all that is wrong comes before. */
static void one_of_two(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 2, 15 * CREW_SECOND);
    gs_party_close(party);
}

static void come_wrong(struct crew *crew, uint32_t seat)
{
    struct gs_party_options options = crew_options(crew, 1, 2);
    struct gs_party *party;
    char part[128];
    memset(options.job, 8, sizeof options.job);
    CHECK(!crew_open(crew, &options, seat) && crew->results[seat].code == -EXDEV);
    snprintf(part, sizeof part, "rank 1 (host1, process %d) at ", (int)getpid());
    CHECK(strstr(crew->results[seat].error.message, part));
    CHECK(strstr(crew->results[seat].error.message, "is of another job: 08080808080808080808080808080808"));
    CHECK(strstr(crew->results[seat].error.message, "is of 07070707070707070707070707070707"));
    CHECK(crew->results[seat].error.hint[0]);

    options = crew_options(crew, 1, 4);
    CHECK(!crew_open(crew, &options, seat) && crew->results[seat].code == -EBADMSG);
    CHECK(strstr(crew->results[seat].error.message, "counts 4 ranks, and rank 0 (host0, process "));
    CHECK(strstr(crew->results[seat].error.message, ") counts 2"));

    struct gs_party_hello hello = raw_hello(crew, 2, 2);
    struct gs_party_refused refused = raw_refused(crew, &hello);
    CHECK(refused.code == -EBADMSG && strstr(refused.message, "is none of the ranks 0 to 1"));
    hello = raw_hello(crew, 0, 2);
    refused = raw_refused(crew, &hello);
    CHECK(refused.code == -EEXIST && strstr(refused.message, "rank 0 came twice"));
    hello = raw_hello(crew, 1, 2);
    hello.version = 2;
    refused = raw_refused(crew, &hello);
    CHECK(refused.code == -EPROTONOSUPPORT && strstr(refused.message, "version 2"));

    options = crew_options(crew, 1, 2);
    memset(options.job, 0, sizeof options.job); /* fits any */
    party = crew_open(crew, &options, seat);
    CHECK(party);
    gs_party_close(party);
}

static void who_is_refused(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        struct crew *crew = crew_new(over_tcp);
        crew_start(crew, 0, one_of_two);
        crew_start(crew, 1, come_wrong);
        crew_join(crew);
    }
}

/* Rank 1 of three is there, made by hand; another rank 1 is refused; the first goes, and a third one is let in. */
static void come_twice(struct crew *crew, uint32_t seat)
{
    struct gs_party_hello hello = raw_hello(crew, 1, 3);
    struct gs_party_options options = crew_options(crew, 1, 3);
    struct gs_party_frame frame;
    unsigned char body[4096];
    char text[GS_PARTY_TEXT_BYTES], part[128];
    hello.member.pid = 4711;
    int fd = raw_send(crew, &hello);
    CHECK(raw_hear(fd, body, &frame) == GS_PARTY_WAITING);
    CHECK(gs_party_waiting_decode(body, frame.body_bytes, text) == 0 && strcmp(text, "rank 2 of 3") == 0);
    CHECK(!crew_open(crew, &options, seat) && crew->results[seat].code == -EEXIST);
    snprintf(part, sizeof part, ", and then host1, process %d, at ", (int)getpid());
    CHECK(strstr(crew->results[seat].error.message, "rank 1 came twice: host1, process 4711, at "));
    CHECK(strstr(crew->results[seat].error.message, part));
    close(fd);
    sem_post(&crew->go[2]);
    struct gs_party *party;
    while (!(party = crew_open(crew, &options, seat))) { /* until the hub has seen that it went */
        if (crew->results[seat].code != -EEXIST)
            fprintf(stderr, "%s\n", crew->results[seat].error.message);
        CHECK(crew->results[seat].code == -EEXIST);
    }
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    gs_party_close(party);
}

static void gather_of_three(struct crew *crew, uint32_t seat)
{
    if (seat == 2)
        crew_meet(crew, seat); /* when rank 1 is in */
    struct gs_party *party = crew_enter(crew, seat, 3, 15 * CREW_SECOND);
    CHECK(crew_gather(party, 1, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    gs_party_close(party);
}

static void a_rank_that_comes_twice(void **state)
{
    struct crew *crew = crew_new(false); /* where an end is seen before what comes after it */
    (void)state;
    crew_start(crew, 0, gather_of_three);
    crew_start(crew, 1, come_twice);
    crew_start(crew, 2, gather_of_three);
    crew_join(crew);
}

/* Those that say nothing or nonsense are in nobody's way, however many they are. */
static void pester(struct crew *crew, uint32_t seat)
{
    enum { SILENT = 200 };
    static const char *const nonsense[] = {"GET / HTTP/1.1\r\n\r\n", "GPUSYS/Q",
                                           "GPUSYS/P\xff\xff\xff\xff\x01\0\0", "GPUSYS/P\0\0\0\0\x05\0\0"};
    static const size_t sizes[] = {18, 8, 16, 16};
    int fds[SILENT];
    for (unsigned i = 0; i < 4; i++) {
        int fd = raw_connect(crew);
        CHECK(write(fd, nonsense[i], sizes[i]) == (ssize_t)sizes[i]);
        char magic[GS_PARTY_MAGIC_BYTES];
        raw_read(fd, magic, sizeof magic);
        CHECK(raw_ended(fd)); /* thrown out */
        close(fd);
    }
    for (unsigned i = 0; i < SILENT; i++)
        fds[i] = raw_connect(crew);
    struct gs_party *party = crew_enter(crew, 1, 2, 15 * CREW_SECOND);
    for (unsigned i = 0; i < SILENT; i++)
        close(fds[i]);
    gs_party_close(party);
    (void)seat;
}

static void nonsense_and_silence(void **state)
{
    struct crew *crew = crew_new(true);
    (void)state;
    crew_start(crew, 0, one_of_two);
    crew_start(crew, 1, pester);
    crew_join(crew);
}

/* What answers is no party: an echo of nothing that fits. */
static void answer_nonsense(struct crew *crew, uint32_t seat)
{
    int listener = gs_address_listen(crew->address, NULL), fd;
    CHECK(listener >= 0);
    crew_meet(crew, seat);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    CHECK(poll(&ready, 1, CREW_PATIENCE_S * 1000) == 1 && (fd = accept(listener, NULL, NULL)) >= 0);
    CHECK(write(fd, "220 mail.example.org", 20) == 20);
    while (read(fd, &(char){0}, 1) > 0)
        ;
    close(fd);
    close(listener);
}

static void meet_nonsense(struct crew *crew, uint32_t seat)
{
    struct gs_party_options options = crew_options(crew, 1, 2);
    CHECK(!crew_open(crew, &options, seat) && crew->results[seat].code == -EPROTO);
    CHECK(strstr(crew->results[seat].error.message, "is no rank 0 of a party"));
}

static void no_party_at_all(void **state)
{
    struct crew *crew = crew_new(true);
    (void)state;
    crew_start(crew, 0, answer_nonsense);
    crew_await(crew, 1);
    crew_go(crew);
    crew_start(crew, 1, meet_nonsense);
    crew_join(crew);
}

/* ---- admission ---- */

static int refuse_pair(const struct gs_member *members, uint32_t n_ranks, struct gpusys_error *error)
{
    CHECK(n_ranks == 3 && strcmp(members[2].host, "host2") == 0);
    gpusys_error_set(error, -EEXIST, "ranks 1 and 2 have one GPU");
    gpusys_error_set_cause(error, "both are on host1");
    gpusys_error_set_hint(error, "give each its own");
    return -EEXIST;
}

static void not_admitted(struct crew *crew, uint32_t seat)
{
    struct gs_party_options options = crew_options(crew, seat, 3);
    const struct gpusys_error *error = &crew->results[seat].error;
    options.admit = seat == 0 ? refuse_pair : NULL;
    CHECK(!crew_open(crew, &options, seat) && crew->results[seat].code == -EEXIST && error->code == -EEXIST);
    CHECK(strcmp(error->message, "ranks 1 and 2 have one GPU") == 0);
    CHECK(strcmp(error->cause, "both are on host1") == 0 && strcmp(error->hint, "give each its own") == 0);
}

static void admission(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        crew_start(crew, i, not_admitted);
    crew_join(crew);
}

/* ---- deadlines ---- */

static int64_t timeouts[CREW_MOST];
static uint32_t n_awaited;

static void wait_in_vain(struct crew *crew, uint32_t seat)
{
    struct gs_party_options options = crew_options(crew, seat, n_awaited);
    options.deadline_ns = gpusys_deadline_after(timeouts[seat]);
    CHECK(!crew_open(crew, &options, seat));
}

static void the_hub_waits_in_vain(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    n_awaited = 6;
    timeouts[0] = 2 * CREW_SECOND;
    timeouts[1] = timeouts[2] = timeouts[4] = 30 * CREW_SECOND;
    crew_start(crew, 0, wait_in_vain);
    crew_start(crew, 1, wait_in_vain);
    crew_start(crew, 2, wait_in_vain);
    crew_start(crew, 4, wait_in_vain);
    for (uint32_t i = 0; i < 5; i++)
        if (crew->pids[i])
            assert_int_equal(crew_end(crew, i), 0);
    expect_text(crew->results[0].error.message, "ranks 3 and 5 of 6 did not come: rank 0 (host0, process ");
    for (uint32_t i = 0; i < 5; i++)
        if (i != 3) {
            assert_int_equal(crew->results[i].code, -ETIMEDOUT);
            assert_string_equal(crew->results[i].error.message, crew->results[0].error.message);
            assert_true(crew->results[i].error.hint[0]);
        }
    crew_free(crew);
}

static void many_are_missing(void **state)
{
    struct crew *crew = crew_new(true);
    (void)state;
    n_awaited = 64;
    timeouts[0] = CREW_SECOND / 10;
    crew_start(crew, 0, wait_in_vain);
    assert_int_equal(crew_end(crew, 0), 0);
    assert_int_equal(crew->results[0].code, -ETIMEDOUT);
    expect_text(crew->results[0].error.message,
                "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 47 more of 64 did not come");
    crew_free(crew);
}

static void the_others_wait_in_vain(void **state)
{
    struct crew *crew = crew_new(false);
    char part[192];
    (void)state;
    n_awaited = 4;
    timeouts[0] = 30 * CREW_SECOND;
    timeouts[1] = 3 * CREW_SECOND;
    crew_start(crew, 0, wait_in_vain);
    crew_start(crew, 1, wait_in_vain);
    assert_int_equal(crew_end(crew, 1), 0);
    kill(crew->pids[0], SIGKILL);
    crew_end(crew, 0);
    assert_int_equal(crew->results[1].code, -ETIMEDOUT);
    snprintf(part, sizeof part, "rank 0 at %s still waits for ranks 2 and 3 of 4", crew->address);
    expect_text(crew->results[1].error.message, part);
    unlink(crew->address + 5);
    crew_free(crew);
}

static void nobody_is_there(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        struct crew *crew = crew_new(over_tcp);
        struct gs_party_options options = crew_options(crew, 1, 2);
        struct gs_party *party = NULL;
        struct gpusys_error error;
        char part[192];
        options.deadline_ns = gpusys_deadline_after(CREW_SECOND / 5);
        assert_int_equal(gs_party_open(&party, &options, &error), -ETIMEDOUT); /* it makes no thread */
        snprintf(part, sizeof part, "no rank 0 answered at %s in 0.", crew->address);
        expect_text(error.message, part);
        expect_text(error.message, over_tcp ? "Connection refused" : "No such file");
        assert_true(error.hint[0]);
        options.deadline_ns = 0;
        assert_int_equal(gs_party_open(&party, &options, NULL), -ETIMEDOUT);
        crew_free(crew);
    }
}

static void address_in_use(void **state)
{
    struct crew *crew = crew_new(false);
    struct gs_party_options options = crew_options(crew, 0, 2);
    struct gs_party *party = NULL;
    (void)state;
    int listener = gs_address_listen(crew->address, NULL);
    assert_true(listener >= 0);
    assert_int_equal(gs_party_open(&party, &options, NULL), -EADDRINUSE);
    close(listener);
    unlink(crew->address + 5);
    crew_free(crew);
}

/* ---- other users ---- */

static void come_as_nobody(struct crew *crew, uint32_t seat)
{
    enum { NOBODY = 65534 };
    struct gs_party_hello hello = raw_hello(crew, 1, 2);
    struct gs_party_options options = crew_options(crew, 1, 2);
    close(raw_connect(crew)); /* it listens */
    CHECK(chmod(crew->folder, 0755) == 0 && chmod(crew->address + 5, 0666) == 0);
    CHECK(setuid(NOBODY) == 0);
    struct gs_party_refused refused = raw_refused(crew, &hello);
    CHECK(refused.code == -EACCES && strstr(refused.message, "is user 65534's, and rank 0 is user 0's"));
    CHECK(!crew_open(crew, &options, seat) && crew->results[seat].code == -EACCES);
    CHECK(strstr(crew->results[seat].error.message, "is user 0's, and this process user 65534's"));
}

static void another_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    struct crew *crew = crew_new(false);
    crew_start(crew, 0, one_of_two);
    crew_start(crew, 2, come_as_nobody);
    assert_int_equal(crew_end(crew, 2), 0);
    crew->pids[2] = 0;
    crew_start(crew, 1, one_of_two);
    crew_join(crew);
}

/* ---- a warning ---- */

static char warning[512];

static void keep_warning(void *context, enum gpusys_log_level level, const char *line)
{
    (void)context;
    if (level == GPUSYS_LOG_WARN)
        snprintf(warning, sizeof warning, "%s", line);
}

static void beyond_this_machine(void **state)
{
    struct gs_party *party = NULL;
    struct gs_party_options options = {.n_ranks = 2, .address = "0.0.0.0:0"};
    (void)state;
    gpusys_log_set(keep_warning, NULL, GPUSYS_LOG_WARN);
    assert_int_equal(gs_party_open(&party, &options, NULL), -ETIMEDOUT);
    expect_text(warning, "listens at 0.0.0.0:");
    warning[0] = 0;
    options.address = "127.0.0.1:0";
    assert_int_equal(gs_party_open(&party, &options, NULL), -ETIMEDOUT);
    assert_string_equal(warning, "");
    gpusys_log_set(NULL, NULL, GPUSYS_LOG_ERROR);
}

/* ---- gathers ---- */

static void gather_much(struct crew *crew, uint32_t seat)
{
    static const uint32_t odd[] = {3, 1};
    struct gs_party *party = crew_enter(crew, seat, 4, 15 * CREW_SECOND);
    static unsigned char mine[GS_PARTY_SHARE_BYTES], all[4 * GS_PARTY_SHARE_BYTES];
    struct gpusys_error error;
    int64_t deadline_ns = gpusys_deadline_after(30 * CREW_SECOND);
    memset(mine, (int)seat + 1, sizeof mine);
    CHECK(gs_party_gather(party, 1, crew_ranks, 4, mine, sizeof mine, all, deadline_ns, NULL) == 0);
    for (uint32_t i = 0; i < sizeof all; i++)
        CHECK(all[i] == i / GS_PARTY_SHARE_BYTES + 1);
    memset(mine, 0, sizeof mine); /* zeros, and nothing at all */
    mine[9] = 9;
    memset(all, 0xff, sizeof all);
    CHECK(gs_party_gather(party, 2, crew_ranks, 4, mine, 16, all, deadline_ns, NULL) == 0);
    for (uint32_t i = 0; i < 64; i++)
        CHECK(all[i] == (i % 16 == 9 ? 9 : 0));
    CHECK(all[64] == 0xff);
    CHECK(gs_party_gather(party, 3, crew_ranks, 4, NULL, 0, NULL, deadline_ns, NULL) == 0);
    if (seat % 2)
        CHECK(crew_gather(party, 4, odd, 2, 30 * CREW_SECOND, NULL) == 0);
    CHECK(gs_party_gather(party, 5, crew_ranks, 4, mine, GS_PARTY_SHARE_BYTES + 1, all, deadline_ns,
                          &error) == -EINVAL);
    CHECK(strstr(error.message, "1025 bytes"));
    CHECK(gs_party_gather(party, 5, (const uint32_t[]){seat, seat}, 2, mine, 1, all, deadline_ns, &error) ==
          -EINVAL);
    CHECK(gs_party_gather(party, 5, (const uint32_t[]){seat, 4}, 2, mine, 1, all, deadline_ns, &error) ==
          -EINVAL);
    CHECK(gs_party_gather(party, 5, (const uint32_t[]){(seat + 1) % 4}, 1, mine, 1, all, deadline_ns,
                          &error) == -EINVAL);
    CHECK(crew_gather(party, 6, crew_ranks, 4, 30 * CREW_SECOND, NULL) == 0);
    gs_party_close(party);
}

static void gathers(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        crew_start(crew, i, gather_much);
    crew_join(crew);
}

static void gather_apart(struct crew *crew, uint32_t seat)
{
    static const uint32_t turned[] = {1, 0, 2};
    struct gs_party *party = crew_enter(crew, seat, 3, 15 * CREW_SECOND);
    unsigned char mine[8] = {1}, all[64];
    struct gpusys_error error = {0};
    int64_t deadline_ns = gpusys_deadline_after(30 * CREW_SECOND);
    /* Rank 1 gives 5 bytes, the others 4; rank 2 may come when it is over already. */
    CHECK(gs_party_gather(party, 1, crew_ranks, 3, mine, seat == 1 ? 5 : 4, all, deadline_ns, &error) ==
          -EBADMSG);
    CHECK(strstr(error.message, "gives 5 bytes") || strstr(error.message, " 5"));
    CHECK(gs_party_gather(party, 2, seat == 1 ? turned : crew_ranks, 3, mine, 4, all, deadline_ns, &error) ==
          -EBADMSG);
    CHECK(strstr(error.message, "rank 1 (host1, process ") && strstr(error.message, "mean different ranks"));
    CHECK(gs_party_gather(party, 3, crew_ranks, seat == 1 ? 2 : 3, mine, 4, all, deadline_ns, &error) ==
          -EBADMSG);
    CHECK(strstr(error.message, "2 ranks") || strstr(error.message, " 2"));
    /* The party is none the worse for it. */
    CHECK(crew_gather(party, 4, crew_ranks, 3, 30 * CREW_SECOND, NULL) == 0);
    gs_party_close(party);
}

static void gathers_that_disagree(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        crew_start(crew, i, gather_apart);
    crew_join(crew);
}

static void gather_late(struct crew *crew, uint32_t seat)
{
    struct gs_party *party = crew_enter(crew, seat, 4, 15 * CREW_SECOND);
    struct gpusys_error error = {0};
    if (seat < 2) {
        CHECK(crew_gather(party, 1, crew_ranks, 4, CREW_SECOND, &error) == -ETIMEDOUT);
        CHECK(strstr(error.message, "ranks 2 and 3 of 4 did not come to it in time") ||
              strstr(error.message, "ranks 1, 2 and 3 of 4") ||
              strstr(error.message, "ranks 0, 2 and 3 of 4"));
        CHECK(crew_gather(party, 2, (const uint32_t[]){0, 1, 3}, 3, 0, &error) == -ETIMEDOUT);
    }
    CHECK(crew_gather(party, 9, crew_ranks, 4, 30 * CREW_SECOND, NULL) == 0);
    gs_party_close(party);
}

static void gathers_that_are_late(void **state)
{
    struct crew *crew = crew_new(true);
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        crew_start(crew, i, gather_late);
    crew_join(crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(hub_first),
        cmocka_unit_test(hub_last),
        cmocka_unit_test(sixty_four),
        cmocka_unit_test(two_parties_at_one_address),
        cmocka_unit_test(who_is_refused),
        cmocka_unit_test(a_rank_that_comes_twice),
        cmocka_unit_test(nonsense_and_silence),
        cmocka_unit_test(no_party_at_all),
        cmocka_unit_test(admission),
        cmocka_unit_test(the_hub_waits_in_vain),
        cmocka_unit_test(many_are_missing),
        cmocka_unit_test(the_others_wait_in_vain),
        cmocka_unit_test(nobody_is_there),
        cmocka_unit_test(address_in_use),
        cmocka_unit_test(another_user),
        cmocka_unit_test(beyond_this_machine),
        cmocka_unit_test(gathers),
        cmocka_unit_test(gathers_that_disagree),
        cmocka_unit_test(gathers_that_are_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
