/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A rank 0 made by hand, that lies, floods or does not listen: its members end in time, and take no memory without bound. */
#include "party_crew.h"

#include "base/address.h"
#include "gpu/party_message.h"

#include <poll.h>

static int refusal; /* the code that the hub gives */

static int hub_accept(const struct crew *crew)
{
    int listener = gs_address_listen(crew->address, NULL), fd;
    CHECK(listener >= 0);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    CHECK(poll(&ready, 1, CREW_PATIENCE_S * 1000) == 1);
    fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    close(listener);
    return fd;
}

static void hub_magic(struct gs_bytes *bytes)
{
    memcpy(gs_bytes_grow(bytes, GS_PARTY_MAGIC_BYTES), GS_PARTY_MAGIC, GS_PARTY_MAGIC_BYTES);
}

static void hub_send(int fd, struct gs_bytes *bytes)
{
    CHECK(send(fd, bytes->data + bytes->head, gs_bytes_queued(bytes), MSG_NOSIGNAL) ==
          (ssize_t)gs_bytes_queued(bytes));
    gs_bytes_free(bytes);
}

static void wait_for_end(int fd)
{
    char bytes[4096];
    while (read(fd, bytes, sizeof bytes) > 0)
        ;
    close(fd);
}

/* ---- a refusal is the end, whatever its code ---- */

static void refuse(struct crew *crew, uint32_t seat)
{
    struct gs_bytes bytes = {0};
    struct gpusys_error error;
    (void)seat;
    int fd = hub_accept(crew);
    hub_magic(&bytes);
    gpusys_error_set(&error, refusal, "not with you");
    CHECK(gs_party_refused_encode(&bytes, &error) == 0);
    hub_send(fd, &bytes);
    wait_for_end(fd); /* the connection stays open until the member has gone */
}

static void be_refused(struct crew *crew, uint32_t seat)
{
    struct gs_party_options options = crew_options(crew, seat, 2);
    crew_open(crew, &options, seat);
}

static void refusals(void **state)
{
    static const int codes[] = {-EPIPE, -ECONNRESET, -ETIMEDOUT, -EBADMSG, -EPROTO, -4095};
    (void)state;
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct crew *crew = crew_new(false);
        refusal = codes[i];
        crew_start(crew, 0, refuse);
        crew_start(crew, 1, be_refused);
        assert_int_equal(crew_end(crew, 1), 0);
        assert_int_equal(crew_end(crew, 0), 0);
        assert_int_equal(crew->results[1].code, codes[i]);
        assert_string_equal(crew->results[1].error.message, "not with you");
        crew_free(crew);
    }
}

/* ---- one that talks for ever, and says nothing ---- */

static void chatter(struct crew *crew, uint32_t seat)
{
    struct gs_bytes bytes = {0};
    (void)seat;
    int fd = hub_accept(crew);
    hub_magic(&bytes);
    hub_send(fd, &bytes);
    for (int i = 0; i < 1000; i++)
        CHECK(gs_party_waiting_encode(&bytes, "rank 7 of 9") == 0);
    while (send(fd, bytes.data + bytes.head, gs_bytes_queued(&bytes), MSG_NOSIGNAL) > 0)
        ;
    gs_bytes_free(&bytes);
    close(fd);
}

static void be_talked_to(struct crew *crew, uint32_t seat)
{
    struct gs_party_options options = crew_options(crew, seat, 2);
    options.deadline_ns = gpusys_deadline_after(CREW_SECOND);
    crew_open(crew, &options, seat);
}

static void endless_talk(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    crew_start(crew, 0, chatter);
    crew_start(crew, 1, be_talked_to);
    assert_int_equal(crew_end(crew, 1), 0); /* else its alarm(2) ends it */
    assert_int_equal(crew_end(crew, 0), 0);
    assert_int_equal(crew->results[1].code, -ETIMEDOUT);
    assert_non_null(strstr(crew->results[1].error.message, "still waits for rank 7 of 9"));
    crew_free(crew);
}

/* ---- one that asks and asks, and does not read the answers ---- */

static void ask_only(struct crew *crew, uint32_t seat)
{
    struct gs_bytes bytes = {0};
    struct gs_member members[2] = {{.host = "host0", .pid = 1}, {.host = "host1", .pid = 2}};
    (void)seat;
    int fd = hub_accept(crew);
    hub_magic(&bytes);
    CHECK(gs_party_welcome_encode(&bytes, members, 2, 0) == 0);
    hub_send(fd, &bytes);
    for (int i = 0; i < 1000; i++)
        CHECK(gs_party_number_encode(&bytes, GS_PARTY_ASK, 7) == 0);
    while (send(fd, bytes.data + bytes.head, gs_bytes_queued(&bytes), MSG_NOSIGNAL) > 0)
        ;
    gs_bytes_free(&bytes);
    close(fd);
}

/* Every answer is as long as can be. */
static void be_asked(struct crew *crew, uint32_t seat)
{
    struct crew_ear ear = {.report = {.submitted = GS_PARTY_RECORDS, .n_records = GS_PARTY_RECORDS}};
    for (uint32_t i = 0; i < GS_PARTY_RECORDS; i++)
        ear.report.records[i].sequence = i + 1;
    struct gs_party *party = crew_enter(crew, seat, 2, 0);
    crew_attach(party, &ear, 7, crew_ranks, 2);
    crew->results[seat].failure = crew_hear(&ear);
    /* Each answer has some 800 bytes: about 5,000 of them fill what may wait, and what the socket takes. */
    CHECK(ear.n_asked < 50000);
    gs_party_close(party);
}

static void endless_questions(void **state)
{
    struct crew *crew = crew_new(false);
    (void)state;
    crew_start(crew, 0, ask_only);
    crew_start(crew, 1, be_asked);
    assert_int_equal(crew_end(crew, 1), 0);
    assert_int_equal(crew_end(crew, 0), 0);
    assert_int_equal(crew->results[1].failure.code, -EHOSTDOWN);
    assert_non_null(strstr(crew->results[1].failure.text, "it does not read what it is sent"));
    crew_free(crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(endless_talk),
        cmocka_unit_test(endless_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
