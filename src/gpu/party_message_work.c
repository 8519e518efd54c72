/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages of a party that has come together. */
#include "gpu/party_message.h"

#include "gpu/party_text.h"

#include <errno.h>
#include <string.h>

/* ---- GATHER, GATHERED, UNGATHERED, LATE, GIVEN ---- */

static uint32_t without_zeros(const unsigned char *bytes, uint32_t n)
{
    while (n && bytes[n - 1] == 0)
        n--;
    return n;
}

int gs_party_gather_encode(struct gs_bytes *out, const struct gs_party_gather *gather)
{
    uint32_t n = without_zeros(gather->share, gather->share_bytes);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_GATHER, 24 + (size_t)n);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, gather->tag);
    gs_put_u64(&at, gather->digest);
    gs_put_u32(&at, gather->n_ranks);
    gs_put_u32(&at, gather->bytes);
    gs_put_bytes(&at, gather->share, n);
    return 0;
}

int gs_party_gather_decode(const void *body, size_t size, struct gs_party_gather *ret_gather)
{
    const unsigned char *at = body;
    if (size < 24)
        return -EBADMSG;
    struct gs_party_gather gather = {.tag = gs_get_u64(&at), .digest = gs_get_u64(&at)};
    gather.n_ranks = gs_get_u32(&at);
    gather.bytes = gs_get_u32(&at);
    gather.share = at;
    if (gather.n_ranks == 0 || gather.n_ranks > GS_PARTY_MAX_RANKS || gather.bytes > GS_PARTY_SHARE_BYTES ||
        size - 24 > gather.bytes)
        return -EBADMSG;
    gather.share_bytes = (uint32_t)(size - 24);
    *ret_gather = gather;
    return 0;
}

int gs_party_gathered_encode(struct gs_bytes *out, const struct gs_party_gathered *gathered)
{
    size_t size = gs_cursor_left(&gathered->shares);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_GATHERED, 16 + size);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, gathered->tag);
    gs_put_u32(&at, gathered->n_ranks);
    gs_put_u32(&at, gathered->bytes);
    gs_put_bytes(&at, gathered->shares.at, size);
    return 0;
}

int gs_party_gathered_decode(const void *body, size_t size, struct gs_party_gathered *ret_gathered)
{
    struct gs_party_gathered gathered = {.shares = gs_cursor_over(body, size)};
    const unsigned char *at = gs_cursor_take(&gathered.shares, 16);
    if (!at)
        return -EBADMSG;
    gathered.tag = gs_get_u64(&at);
    gathered.n_ranks = gs_get_u32(&at);
    gathered.bytes = gs_get_u32(&at);
    if (gathered.n_ranks == 0 || gathered.n_ranks > GS_PARTY_MAX_RANKS ||
        gathered.bytes > GS_PARTY_SHARE_BYTES)
        return -EBADMSG;
    *ret_gathered = gathered;
    return 0;
}

int gs_party_share_encode(struct gs_bytes *out, const struct gs_party_share *share)
{
    uint32_t n = without_zeros(share->at, share->bytes);
    unsigned char *at = gs_bytes_grow(out, 8 + (size_t)n);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, share->rank);
    gs_put_u32(&at, n);
    gs_put_bytes(&at, share->at, n);
    return 0;
}

int gs_party_share_next(struct gs_party_gathered *gathered, struct gs_party_share *ret_share)
{
    struct gs_party_share share;
    const unsigned char *at = gs_cursor_take(&gathered->shares, 8);
    if (!at)
        return -EBADMSG;
    share.rank = gs_get_u32(&at);
    share.bytes = gs_get_u32(&at);
    share.at = share.bytes <= gathered->bytes ? gs_cursor_take(&gathered->shares, share.bytes) : NULL;
    if (!share.at)
        return -EBADMSG;
    *ret_share = share;
    return 0;
}

int gs_party_ungathered_encode(struct gs_bytes *out, const struct gs_party_ungathered *ungathered)
{
    size_t text = gs_party_text_bytes(ungathered->text, sizeof ungathered->text);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_UNGATHERED, 12 + text);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, ungathered->tag);
    gs_put_u32(&at, (uint32_t)-ungathered->code);
    gs_party_text_put(&at, ungathered->text, sizeof ungathered->text);
    return 0;
}

int gs_party_ungathered_decode(const void *body, size_t size, struct gs_party_ungathered *ret_ungathered)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_party_ungathered ungathered = {0};
    const unsigned char *at = gs_cursor_take(&cursor, 12);
    if (!at)
        return -EBADMSG;
    ungathered.tag = gs_get_u64(&at);
    if (gs_party_code_get(&at, &ungathered.code) ||
        gs_party_text_get(&cursor, ungathered.text, sizeof ungathered.text) || gs_cursor_left(&cursor))
        return -EBADMSG;
    *ret_ungathered = ungathered;
    return 0;
}

static void put_map(unsigned char **at, const uint8_t *map, uint32_t n_ranks)
{
    gs_put_u32(at, n_ranks);
    gs_put_bytes(at, map, gs_party_map_bytes(n_ranks));
}

/* It has a bit for each rank, and nothing is behind it. */
static int get_map(struct gs_cursor *cursor, const uint8_t **ret_map, uint32_t *ret_n_ranks)
{
    const unsigned char *at = gs_cursor_take(cursor, 4);
    uint32_t n_ranks = at ? gs_get_u32(&at) : 0;
    if (n_ranks == 0 || n_ranks > GS_PARTY_MAX_RANKS || gs_cursor_left(cursor) != gs_party_map_bytes(n_ranks))
        return -EBADMSG;
    const uint8_t *map = gs_cursor_take(cursor, gs_party_map_bytes(n_ranks));
    if (n_ranks % 8 && map[n_ranks / 8] >> n_ranks % 8)
        return -EBADMSG;
    *ret_map = map;
    *ret_n_ranks = n_ranks;
    return 0;
}

int gs_party_given_encode(struct gs_bytes *out, const struct gs_party_given *given)
{
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_GIVEN, 12 + gs_party_map_bytes(given->n_ranks));
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, given->tag);
    put_map(&at, given->map, given->n_ranks);
    return 0;
}

int gs_party_given_decode(const void *body, size_t size, struct gs_party_given *ret_given)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_party_given given;
    const unsigned char *at = gs_cursor_take(&cursor, 8);
    if (!at)
        return -EBADMSG;
    given.tag = gs_get_u64(&at);
    if (get_map(&cursor, &given.map, &given.n_ranks))
        return -EBADMSG;
    *ret_given = given;
    return 0;
}

/* ---- ALARM, ASK, REPORT, FAILURE ---- */

int gs_party_alarm_encode(struct gs_bytes *out, const struct gs_party_alarm *alarm)
{
    size_t size =
        16 + gs_party_text_bytes(alarm->text, sizeof alarm->text) + 4 + gs_party_map_bytes(alarm->n_ranks);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_ALARM, size);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, alarm->key);
    gs_put_u32(&at, (uint32_t)-alarm->code);
    gs_put_u8(&at, alarm->judge);
    gs_put_u8(&at, 0);
    gs_put_u16(&at, 0);
    gs_party_text_put(&at, alarm->text, sizeof alarm->text);
    put_map(&at, alarm->map, alarm->n_ranks);
    return 0;
}

int gs_party_alarm_decode(const void *body, size_t size, struct gs_party_alarm *ret_alarm)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_party_alarm alarm = {0};
    const unsigned char *at = gs_cursor_take(&cursor, 16);
    if (!at)
        return -EBADMSG;
    alarm.key = gs_get_u64(&at);
    if (alarm.key == 0 || gs_party_code_get(&at, &alarm.code))
        return -EBADMSG;
    uint8_t judge = gs_get_u8(&at), zero = gs_get_u8(&at);
    if (judge > 1 || zero || gs_get_u16(&at) || gs_party_text_get(&cursor, alarm.text, sizeof alarm.text) ||
        get_map(&cursor, &alarm.map, &alarm.n_ranks))
        return -EBADMSG;
    alarm.judge = judge;
    *ret_alarm = alarm;
    return 0;
}

int gs_party_number_encode(struct gs_bytes *out, enum gs_party_type type, uint64_t number)
{
    unsigned char *at = gs_party_frame_begin(out, type, 8);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, number);
    return 0;
}

int gs_party_number_decode(const void *body, size_t size, uint64_t *ret_number)
{
    const unsigned char *at = body;
    if (size != 8)
        return -EBADMSG;
    *ret_number = gs_get_u64(&at);
    return 0;
}

enum { REPORT_BYTES = 8 + 4 + 4 + 8 + 8, RECORD_BYTES = 24 };

static void put_record(unsigned char **at, const struct gs_record *record)
{
    gs_put_u64(at, record->sequence);
    gs_put_u64(at, record->count);
    gs_put_u16(at, record->function);
    gs_put_u8(at, record->type);
    gs_put_u8(at, record->op);
    gs_put_u32(at, record->root);
}

static void get_record(const unsigned char **at, struct gs_record *record)
{
    record->sequence = gs_get_u64(at);
    record->count = gs_get_u64(at);
    record->function = gs_get_u16(at);
    record->type = gs_get_u8(at);
    record->op = gs_get_u8(at);
    record->root = gs_get_u32(at);
}

int gs_party_report_encode(struct gs_bytes *out, uint64_t key, const struct gs_report *report)
{
    static const struct gs_report nothing;
    const struct gs_report *from = report ? report : &nothing;
    uint32_t n = from->n_records < GS_PARTY_RECORDS ? from->n_records : GS_PARTY_RECORDS;
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_REPORT, REPORT_BYTES + (size_t)n * RECORD_BYTES);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, key);
    gs_put_u8(&at, report != NULL);
    gs_put_u8(&at, 0);
    gs_put_u16(&at, 0);
    gs_put_u32(&at, n);
    gs_put_u64(&at, from->submitted);
    gs_put_u64(&at, from->completed);
    for (uint32_t i = 0; i < n; i++)
        put_record(&at, &from->records[i]);
    return 0;
}

/* One after the other, up to the last that was submitted. */
static int get_records(const unsigned char *at, struct gs_report *report)
{
    uint64_t next = report->submitted - report->n_records;
    if (report->n_records > report->submitted)
        return -EBADMSG;
    for (uint32_t i = 0; i < report->n_records; i++) {
        get_record(&at, &report->records[i]);
        if (report->records[i].sequence != ++next)
            return -EBADMSG;
    }
    return 0;
}

int gs_party_report_decode(const void *body, size_t size, uint64_t *ret_key, bool *ret_known,
                           struct gs_report *ret_report)
{
    const unsigned char *at = body;
    struct gs_report report = {0};
    if (size < REPORT_BYTES)
        return -EBADMSG;
    uint64_t key = gs_get_u64(&at);
    uint8_t known = gs_get_u8(&at), zero = gs_get_u8(&at);
    uint16_t zeros = gs_get_u16(&at);
    report.n_records = gs_get_u32(&at);
    report.submitted = gs_get_u64(&at);
    report.completed = gs_get_u64(&at);
    if (known > 1 || zero || zeros || report.n_records > GS_PARTY_RECORDS ||
        size != REPORT_BYTES + (size_t)report.n_records * RECORD_BYTES)
        return -EBADMSG;
    if (!known && (report.n_records || report.submitted || report.completed))
        return -EBADMSG;
    if (get_records(at, &report))
        return -EBADMSG;
    *ret_key = key;
    *ret_known = known;
    *ret_report = report;
    return 0;
}

int gs_party_failure_encode(struct gs_bytes *out, const struct gs_failure *failure)
{
    uint32_t n = failure->n_suspects < GS_PARTY_SUSPECTS ? failure->n_suspects : GS_PARTY_SUSPECTS;
    size_t text = gs_party_text_bytes(failure->text, sizeof failure->text);
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_FAILURE, 16 + 4 * (size_t)n + text);
    if (!at)
        return -ENOMEM;
    gs_put_u64(&at, failure->key);
    gs_put_u32(&at, (uint32_t)-failure->code);
    gs_put_u32(&at, n);
    for (uint32_t i = 0; i < n; i++)
        gs_put_u32(&at, failure->suspects[i]);
    gs_party_text_put(&at, failure->text, sizeof failure->text);
    return 0;
}

int gs_party_failure_decode(const void *body, size_t size, struct gs_failure *ret_failure)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    struct gs_failure failure = {0};
    const unsigned char *at = gs_cursor_take(&cursor, 16);
    if (!at)
        return -EBADMSG;
    failure.key = gs_get_u64(&at);
    if (gs_party_code_get(&at, &failure.code))
        return -EBADMSG;
    failure.n_suspects = gs_get_u32(&at);
    if (failure.n_suspects > GS_PARTY_SUSPECTS || (failure.key == 0 && failure.n_suspects == 0))
        return -EBADMSG;
    at = gs_cursor_take(&cursor, 4 * (size_t)failure.n_suspects);
    if (!at)
        return -EBADMSG;
    for (uint32_t i = 0; i < failure.n_suspects; i++)
        failure.suspects[i] = gs_get_u32(&at);
    if (gs_party_text_get(&cursor, failure.text, sizeof failure.text) || gs_cursor_left(&cursor))
        return -EBADMSG;
    *ret_failure = failure;
    return 0;
}

/* ---- PING, GOODBYE ---- */

int gs_party_ping_encode(struct gs_bytes *out)
{
    return gs_party_frame_begin(out, GS_PARTY_PING, 0) ? 0 : -ENOMEM;
}

int gs_party_goodbye_encode(struct gs_bytes *out, const uint32_t *ranks, uint32_t n)
{
    unsigned char *at = gs_party_frame_begin(out, GS_PARTY_GOODBYE, 4 + 4 * (size_t)n);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, n);
    for (uint32_t i = 0; i < n; i++)
        gs_put_u32(&at, ranks[i]);
    return 0;
}

int gs_party_goodbye_decode(const void *body, size_t size, struct gs_party_goodbye *ret_goodbye)
{
    struct gs_party_goodbye goodbye = {.ranks = gs_cursor_over(body, size)};
    const unsigned char *at = gs_cursor_take(&goodbye.ranks, 4);
    goodbye.n_ranks = at ? gs_get_u32(&at) : 0;
    if (goodbye.n_ranks == 0 || goodbye.n_ranks > GS_PARTY_MAX_RANKS ||
        gs_cursor_left(&goodbye.ranks) != 4 * (size_t)goodbye.n_ranks)
        return -EBADMSG;
    *ret_goodbye = goodbye;
    return 0;
}

int gs_party_goodbye_next(struct gs_party_goodbye *goodbye, uint32_t *ret_rank)
{
    const unsigned char *at = gs_cursor_take(&goodbye->ranks, 4);
    if (!at)
        return -EBADMSG;
    *ret_rank = gs_get_u32(&at);
    return 0;
}
