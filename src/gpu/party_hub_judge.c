/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The hub's side of alarms: ask everybody, for a bounded time, then judge once and tell them all. */
#include "gpu/party_hub.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdio.h>
#include <stdlib.h>

static const int64_t most_ns = 2000000000;

static bool is_over(const struct gs_party_hub *hub, uint64_t key)
{
    for (uint32_t i = 0; i < GS_HUB_RECENT && i < hub->n_over; i++)
        if (hub->over[i] == key)
            return true;
    return false;
}

static struct gs_hub_case **find(struct gs_party_hub *hub, uint64_t key)
{
    struct gs_hub_case **link = &hub->cases;
    while (*link && (*link)->failure.key != key)
        link = &(*link)->next;
    return link;
}

/* To everybody: who has nothing to do with the key keeps it in mind, should he come to it late. */
static void announce(struct gs_party_hub *hub, const struct gs_failure *failure)
{
    struct gs_bytes frame = {0};
    hub->over[hub->n_over++ % GS_HUB_RECENT] = failure->key;
    if (gs_party_failure_encode(&frame, failure) == 0)
        gs_hub_send_all(hub, NULL, &frame);
}

static void free_case(struct gs_party_hub *hub, struct gs_hub_case *one)
{
    hub->n_answers -= one->n_answers;
    free(one->answers);
    free(one);
}

static void judge(struct gs_party_hub *hub, struct gs_hub_case **link)
{
    struct gs_hub_case *one = *link;
    *link = one->next;
    gs_verdict(one->answers, one->n_answers, hub->party->members, &one->failure);
    announce(hub, &one->failure);
    free_case(hub, one);
}

void gs_hub_cases_end(struct gs_party_hub *hub)
{
    for (struct gs_hub_case *one; (one = hub->cases);) {
        hub->cases = one->next;
        announce(hub, &one->failure);
        free_case(hub, one);
    }
}

void gs_hub_free_cases(struct gs_party_hub *hub)
{
    for (struct gs_hub_case *one = hub->cases, *next; one; one = next) {
        next = one->next;
        free_case(hub, one);
    }
    hub->cases = NULL;
}

/* ---- asking ---- */

static void list_ranks(const struct gs_party_hub *hub, struct gs_hub_case *one, const uint8_t *map)
{
    for (uint32_t rank = 0; rank < hub->party->n_ranks; rank++) {
        if (!gs_party_map_has(map, rank))
            continue;
        struct gs_answer *answer = &one->answers[one->n_answers++];
        answer->rank = rank;
        answer->state = hub->states[rank] == GS_PARTY_LOST   ? GS_ANSWER_LOST
                        : hub->states[rank] == GS_PARTY_LEFT ? GS_ANSWER_AWAY
                                                             : GS_ANSWER_SILENT;
        one->n_awaited += answer->state == GS_ANSWER_SILENT;
    }
}

static uint32_t count(const uint8_t *map, uint32_t n_ranks)
{
    uint32_t n = 0;
    for (size_t i = 0; i < gs_party_map_bytes(n_ranks); i++)
        n += (uint32_t)__builtin_popcount(map[i]);
    return n;
}

static int ask(struct gs_party_hub *hub, const struct gs_failure *failure, const uint8_t *map)
{
    struct gs_bytes frame = {0};
    struct gs_hub_case *one = calloc(1, sizeof *one);
    int64_t half = hub->party->silence_ns / 2;
    uint32_t n = count(map, hub->party->n_ranks);
    if (!one || n == 0 || hub->n_answers + n > (uint64_t)GS_HUB_ANSWERS * hub->party->n_ranks) {
        free(one);
        return -ENOMEM;
    }
    one->answers = calloc(n, sizeof *one->answers);
    if (!one->answers || gs_party_number_encode(&frame, GS_PARTY_ASK, failure->key)) {
        free_case(hub, one);
        return -ENOMEM;
    }
    one->failure = *failure;
    one->until_ns = gpusys_deadline_after(half && half < most_ns ? half : most_ns);
    list_ranks(hub, one, map);
    hub->n_answers += one->n_answers;
    one->next = hub->cases;
    hub->cases = one;
    gs_hub_send_all(hub, map, &frame);
    return 0;
}

int gs_hub_hear_alarm(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size)
{
    struct gs_party_alarm alarm;
    if (gs_party_alarm_decode(body, size, &alarm) || alarm.n_ranks != hub->party->n_ranks)
        return -EBADMSG;
    if (is_over(hub, alarm.key) || *find(hub, alarm.key))
        return 0;
    struct gs_failure failure = {.key = alarm.key, .code = alarm.code};
    snprintf(failure.text, sizeof failure.text, "%s", alarm.text);
    /* Without memory to ask, what was said goes on as it is. */
    if (alarm.judge && ask(hub, &failure, alarm.map) == 0)
        return 0;
    if (alarm.code != -ECANCELED)
        failure.suspects[failure.n_suspects++] = rank;
    announce(hub, &failure);
    return 0;
}

/* ---- answers ---- */

static struct gs_answer *answer_of(struct gs_hub_case *one, uint32_t rank)
{
    uint32_t low = 0, high = one->n_answers;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (one->answers[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < one->n_answers && one->answers[low].rank == rank ? &one->answers[low] : NULL;
}

/* One that is awaited gets its state. The case may end by that, and be gone. */
static void settle(struct gs_party_hub *hub, struct gs_hub_case **link, uint32_t rank,
                   enum gs_answer_state state, const struct gs_report *report)
{
    struct gs_hub_case *one = *link;
    struct gs_answer *answer = answer_of(one, rank);
    if (!answer || answer->state != GS_ANSWER_SILENT)
        return;
    answer->state = state;
    if (report)
        answer->report = *report;
    if (--one->n_awaited == 0)
        judge(hub, link);
}

int gs_hub_hear_report(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size)
{
    struct gs_report report;
    uint64_t key;
    bool is_known;
    if (gs_party_report_decode(body, size, &key, &is_known, &report))
        return -EBADMSG;
    struct gs_hub_case **link = find(hub, key);
    if (*link) /* else it comes too late */
        settle(hub, link, rank, is_known ? GS_ANSWER_GOOD : GS_ANSWER_AWAY, &report);
    return 0;
}

void gs_hub_cases_lose(struct gs_party_hub *hub, uint32_t rank, enum gs_party_state state)
{
    for (struct gs_hub_case **link = &hub->cases; *link;) {
        struct gs_hub_case *one = *link;
        settle(hub, link, rank, state == GS_PARTY_LOST ? GS_ANSWER_LOST : GS_ANSWER_AWAY, NULL);
        if (*link == one)
            link = &one->next;
    }
}

int64_t gs_hub_cases_expire(struct gs_party_hub *hub, int64_t now_ns)
{
    int64_t next_ns = GPUSYS_NO_DEADLINE;
    for (struct gs_hub_case **link = &hub->cases; *link;) {
        struct gs_hub_case *one = *link;
        if (one->until_ns <= now_ns) {
            judge(hub, link);
        } else {
            next_ns = one->until_ns < next_ns ? one->until_ns : next_ns;
            link = &one->next;
        }
    }
    return next_ns;
}
