/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every body of a party: the first byte is the message's type, the rest its body. What decodes encodes to the same. */
#include "fuzz.h"

#include "gpu/party_message.h"

#include <errno.h>
#include <string.h>

static struct gs_bytes out;

static void check_same(uint8_t type, const uint8_t *body, size_t size)
{
    struct gs_party_frame frame;
    REQUIRE(gs_bytes_queued(&out) == GS_PARTY_FRAME_BYTES + size);
    REQUIRE(gs_party_frame_decode(out.data + out.head, &frame) == 0);
    REQUIRE(frame.type == type && frame.body_bytes == size);
    REQUIRE(size == 0 || memcmp(out.data + out.head + GS_PARTY_FRAME_BYTES, body, size) == 0);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
}

static bool round_hello(const uint8_t *body, size_t size)
{
    struct gs_party_hello hello = {0};
    if (gs_party_hello_decode(body, size, &hello) || hello.version != GS_PARTY_VERSION)
        return false;
    REQUIRE(strlen(hello.member.host) < sizeof hello.member.host);
    return gs_party_hello_encode(&out, &hello) == 0;
}

static bool round_welcome(const uint8_t *body, size_t size)
{
    enum { MOST = 64 };
    static struct gs_member members[MOST];
    struct gs_party_welcome welcome;
    if (gs_party_welcome_decode(body, size, &welcome) || welcome.n_ranks > MOST)
        return false;
    for (uint32_t i = 0; i < welcome.n_ranks; i++)
        if (gs_party_member_next(&welcome, &members[i]))
            return false;
    return !gs_cursor_left(&welcome.members) &&
           gs_party_welcome_encode(&out, members, welcome.n_ranks, welcome.silence_ms) == 0;
}

static bool round_refused(const uint8_t *body, size_t size)
{
    struct gs_party_refused refused;
    struct gpusys_error error = {0};
    if (gs_party_refused_decode(body, size, &refused))
        return false;
    REQUIRE(refused.code < 0 && refused.code >= -4095);
    error.code = refused.code;
    strcpy(error.message, refused.message);
    strcpy(error.cause, refused.cause);
    strcpy(error.hint, refused.hint);
    return gs_party_refused_encode(&out, &error) == 0;
}

static bool round_waiting(const uint8_t *body, size_t size)
{
    char text[GS_PARTY_TEXT_BYTES];
    return gs_party_waiting_decode(body, size, text) == 0 && gs_party_waiting_encode(&out, text) == 0;
}

/* Zeros at the end of a share may be there; we leave them out. */
static bool round_gather(const uint8_t *body, size_t size)
{
    struct gs_party_gather gather;
    if (gs_party_gather_decode(body, size, &gather))
        return false;
    REQUIRE(gather.share_bytes <= gather.bytes && gather.bytes <= GS_PARTY_SHARE_BYTES);
    return (gather.share_bytes == 0 || gather.share[gather.share_bytes - 1]) &&
           gs_party_gather_encode(&out, &gather) == 0;
}

static bool round_gathered(const uint8_t *body, size_t size)
{
    struct gs_party_gathered gathered;
    struct gs_party_share share;
    if (gs_party_gathered_decode(body, size, &gathered))
        return false;
    struct gs_party_gathered copy = gathered;
    for (uint32_t i = 0; i < gathered.n_ranks; i++) {
        if (gs_party_share_next(&gathered, &share))
            return false;
        REQUIRE(share.bytes <= gathered.bytes && share.at + share.bytes <= body + size);
    }
    return gs_party_gathered_encode(&out, &copy) == 0;
}

static bool round_ungathered(const uint8_t *body, size_t size)
{
    struct gs_party_ungathered ungathered;
    return gs_party_ungathered_decode(body, size, &ungathered) == 0 &&
           gs_party_ungathered_encode(&out, &ungathered) == 0;
}

static bool round_number(uint8_t type, const uint8_t *body, size_t size)
{
    uint64_t number;
    return gs_party_number_decode(body, size, &number) == 0 &&
           gs_party_number_encode(&out, type, number) == 0;
}

static bool round_given(const uint8_t *body, size_t size)
{
    struct gs_party_given given;
    return gs_party_given_decode(body, size, &given) == 0 && gs_party_given_encode(&out, &given) == 0;
}

static bool round_alarm(const uint8_t *body, size_t size)
{
    struct gs_party_alarm alarm;
    return gs_party_alarm_decode(body, size, &alarm) == 0 && gs_party_alarm_encode(&out, &alarm) == 0;
}

static bool round_report(const uint8_t *body, size_t size)
{
    struct gs_report report;
    uint64_t key;
    bool known;
    if (gs_party_report_decode(body, size, &key, &known, &report))
        return false;
    REQUIRE(report.n_records <= GS_PARTY_RECORDS);
    for (uint32_t i = 0; i < report.n_records; i++)
        REQUIRE(report.records[i].sequence > (i ? report.records[i - 1].sequence : 0));
    return gs_party_report_encode(&out, key, known ? &report : NULL) == 0;
}

static bool round_failure(const uint8_t *body, size_t size)
{
    struct gs_failure failure;
    if (gs_party_failure_decode(body, size, &failure))
        return false;
    REQUIRE(failure.n_suspects <= GS_PARTY_SUSPECTS && failure.code < 0);
    return gs_party_failure_encode(&out, &failure) == 0;
}

static bool round_goodbye(const uint8_t *body, size_t size)
{
    enum { MOST = 64 };
    uint32_t ranks[MOST];
    struct gs_party_goodbye goodbye;
    if (gs_party_goodbye_decode(body, size, &goodbye) || goodbye.n_ranks > MOST)
        return false;
    for (uint32_t i = 0; i < goodbye.n_ranks; i++)
        REQUIRE(gs_party_goodbye_next(&goodbye, &ranks[i]) == 0);
    return gs_party_goodbye_encode(&out, ranks, goodbye.n_ranks) == 0;
}

static bool round_of(uint8_t type, const uint8_t *body, size_t size)
{
    switch (type) {
    case GS_PARTY_HELLO: return round_hello(body, size);
    case GS_PARTY_WELCOME: return round_welcome(body, size);
    case GS_PARTY_REFUSED: return round_refused(body, size);
    case GS_PARTY_WAITING: return round_waiting(body, size);
    case GS_PARTY_GATHER: return round_gather(body, size);
    case GS_PARTY_GATHERED: return round_gathered(body, size);
    case GS_PARTY_UNGATHERED: return round_ungathered(body, size);
    case GS_PARTY_LATE:
    case GS_PARTY_ASK: return round_number(type, body, size);
    case GS_PARTY_GIVEN: return round_given(body, size);
    case GS_PARTY_ALARM: return round_alarm(body, size);
    case GS_PARTY_REPORT: return round_report(body, size);
    case GS_PARTY_FAILURE: return round_failure(body, size);
    case GS_PARTY_GOODBYE: return round_goodbye(body, size);
    default: return false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && round_of(data[0], data + 1, size - 1))
        check_same(data[0], data + 1, size - 1);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    return 0;
}
