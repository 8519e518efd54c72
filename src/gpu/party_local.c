/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The local side: who is attached here, and what is known of failures. */
#include "gpu/party_inner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gs_party_local_init(struct gs_party *party)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&party->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&party->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    party->states = calloc(party->n_ranks, 1);
    party->members = calloc(party->n_ranks, sizeof *party->members);
    return party->states && party->members ? 0 : -ENOMEM;
}

void gs_party_local_end(struct gs_party *party)
{
    for (struct gs_party_attachment *at = party->attachments, *next; at; at = next) {
        next = at->next;
        free(at);
    }
    for (struct gs_party_loss *at = party->losses, *next; at; at = next) {
        next = at->next;
        free(at);
    }
    gs_bytes_free(&party->outbox);
    free(party->states);
    free(party->members);
    pthread_cond_destroy(&party->changed);
    pthread_mutex_destroy(&party->lock);
}

void gs_party_wake(struct gs_party *party)
{
    uint64_t one = 1;
    while (write(party->wake, &one, sizeof one) < 0 && errno == EINTR)
        ; /* EAGAIN: it is awake */
}

int gs_party_post(struct gs_party *party, struct gs_bytes *frame)
{
    size_t size = gs_bytes_queued(frame);
    pthread_mutex_lock(&party->lock);
    unsigned char *room = gs_bytes_grow(&party->outbox, size);
    if (room)
        memcpy(room, frame->data + frame->head, size);
    pthread_mutex_unlock(&party->lock);
    gs_bytes_free(frame);
    if (!room)
        return -ENOMEM;
    gs_party_wake(party);
    return 0;
}

/* ---- failures ---- */

static bool concerns(const struct gs_party *party, const struct gs_failure *failure, uint64_t key,
                     const uint8_t *map)
{
    if (failure->key)
        return failure->key == key;
    for (uint32_t i = 0; i < failure->n_suspects; i++)
        if (gs_party_map_has(map, failure->suspects[i]) || failure->suspects[i] == 0 ||
            failure->suspects[i] == party->rank)
            return true;
    return false;
}

/* Of those attached whom it concerns, one that was not told yet. */
static struct gs_party_attachment *next_to_tell(struct gs_party *party, const struct gs_failure *failure)
{
    for (struct gs_party_attachment *at = party->attachments; at; at = at->next)
        if (!at->told && concerns(party, failure, at->key, at->map))
            return at;
    return NULL;
}

static void tell(struct gs_party *party, const struct gs_failure *failure)
{
    struct gs_party_attachment *at;
    pthread_mutex_lock(&party->lock);
    while ((at = next_to_tell(party, failure))) {
        at->told = at->busy = true;
        pthread_mutex_unlock(&party->lock);
        at->handlers.failed(at->context, failure);
        pthread_mutex_lock(&party->lock);
        at->busy = false;
        pthread_cond_broadcast(&party->changed);
    }
    pthread_mutex_unlock(&party->lock);
}

/* Is anything new about it? A rank is lost once, so that what is kept is bounded. */
static bool take_in(struct gs_party *party, const struct gs_failure *failure)
{
    bool is_news = false;
    if (failure->key) {
        party->recent[party->n_recent++ % GS_PARTY_RECENT] = *failure;
        return true;
    }
    for (uint32_t i = 0; i < failure->n_suspects; i++) {
        uint32_t rank = failure->suspects[i];
        is_news |= party->states[rank] == GS_PARTY_THERE;
        party->states[rank] = GS_PARTY_LOST;
        if (party->rank != 0 && (rank == 0 || rank == party->rank))
            party->hub_state = GS_PARTY_LOST;
    }
    struct gs_party_loss *loss = is_news ? malloc(sizeof *loss) : NULL;
    if (loss) {
        *loss = (struct gs_party_loss){.next = party->losses, .failure = *failure};
        party->losses = loss;
    }
    return is_news;
}

void gs_party_fell(struct gs_party *party, const struct gs_failure *failure)
{
    pthread_mutex_lock(&party->lock);
    bool is_news = take_in(party, failure);
    if (is_news && !failure->key)
        gs_party_waiters_fall(party, failure);
    pthread_mutex_unlock(&party->lock);
    if (is_news)
        tell(party, failure);
}

static int hear_failure(struct gs_party *party, const unsigned char *body, size_t size)
{
    struct gs_failure failure;
    if (gs_party_failure_decode(body, size, &failure))
        return -EBADMSG;
    for (uint32_t i = 0; i < failure.n_suspects; i++)
        if (failure.suspects[i] >= party->n_ranks)
            return -EBADMSG;
    gs_party_fell(party, &failure);
    return 0;
}

/* Rank 0 has left: alarms that it may not have heard any more. */
static void answer_alarms(struct gs_party *party)
{
    for (;;) {
        pthread_mutex_lock(&party->lock);
        const struct gs_party_attachment *at = party->attachments;
        while (at && (at->told || !at->alarm_code))
            at = at->next;
        uint64_t key = at ? at->key : 0;
        int code = at ? at->alarm_code : 0;
        char text[GS_PARTY_TEXT_BYTES] = "";
        if (at)
            memcpy(text, at->alarm_text, sizeof text);
        pthread_mutex_unlock(&party->lock);
        if (!code)
            return;
        gs_party_alarm_alone(party, key, code, text);
    }
}

static int hear_goodbye(struct gs_party *party, const unsigned char *body, size_t size)
{
    struct gs_party_goodbye goodbye;
    uint32_t rank;
    int code = gs_party_goodbye_decode(body, size, &goodbye);
    pthread_mutex_lock(&party->lock);
    for (uint32_t i = 0; !code && i < goodbye.n_ranks; i++) {
        if (gs_party_goodbye_next(&goodbye, &rank) || rank >= party->n_ranks) {
            code = -EBADMSG;
        } else if (party->states[rank] == GS_PARTY_THERE) {
            party->states[rank] = GS_PARTY_LEFT;
            if (rank == 0 && party->rank != 0)
                party->hub_state = GS_PARTY_LEFT;
            gs_party_waiters_left(party, rank);
        }
    }
    bool is_over = party->hub_state == GS_PARTY_LEFT;
    pthread_mutex_unlock(&party->lock);
    if (is_over)
        answer_alarms(party);
    return code;
}

/* ---- being asked ---- */

static struct gs_party_attachment *find(struct gs_party *party, uint64_t key)
{
    struct gs_party_attachment *at = party->attachments;
    while (at && at->key != key)
        at = at->next;
    return at;
}

static int hear_ask(struct gs_party *party, const unsigned char *body, size_t size)
{
    struct gs_report report = {0};
    struct gs_bytes frame = {0};
    uint64_t key;
    if (gs_party_number_decode(body, size, &key))
        return -EBADMSG;
    pthread_mutex_lock(&party->lock);
    struct gs_party_attachment *at = find(party, key);
    if (at) {
        at->busy = true;
        pthread_mutex_unlock(&party->lock);
        at->handlers.report(at->context, &report);
        pthread_mutex_lock(&party->lock);
        at->busy = false;
        pthread_cond_broadcast(&party->changed);
    }
    pthread_mutex_unlock(&party->lock);
    int code = gs_party_report_encode(&frame, key, at ? &report : NULL);
    return code ? code : gs_party_post(party, &frame);
}

int gs_party_hear(struct gs_party *party, const struct gs_party_frame *frame, const unsigned char *body)
{
    switch (frame->type) {
    case GS_PARTY_PING: return frame->body_bytes ? -EBADMSG : 0;
    case GS_PARTY_FAILURE: return hear_failure(party, body, frame->body_bytes);
    case GS_PARTY_GOODBYE: return hear_goodbye(party, body, frame->body_bytes);
    case GS_PARTY_ASK: return hear_ask(party, body, frame->body_bytes);
    case GS_PARTY_GATHERED:
    case GS_PARTY_UNGATHERED:
    case GS_PARTY_GIVEN: {
        pthread_mutex_lock(&party->lock);
        int code = gs_party_waiters_hear(party, frame, body);
        pthread_mutex_unlock(&party->lock);
        return code;
    }
    default: return -EBADMSG;
    }
}

/* ---- what callers do ---- */

/* What is known already of a failure that concerns those ranks or that key. */
static bool known_before(const struct gs_party *party, uint64_t key, const uint8_t *map,
                         struct gs_failure *ret_failure)
{
    for (const struct gs_party_loss *loss = party->losses; loss; loss = loss->next)
        if (concerns(party, &loss->failure, key, map)) {
            *ret_failure = loss->failure;
            return true;
        }
    uint32_t n = party->n_recent < GS_PARTY_RECENT ? party->n_recent : GS_PARTY_RECENT;
    for (uint32_t i = 0; i < n; i++)
        if (party->recent[i].key == key) {
            *ret_failure = party->recent[i];
            return true;
        }
    return false;
}

int gs_party_attach(struct gs_party *party, uint64_t key, const uint32_t *ranks, uint32_t n_ranks,
                    const struct gs_party_handlers *handlers, void *context)
{
    struct gs_failure failure;
    struct gs_party_attachment *at = calloc(1, sizeof *at + gs_party_map_bytes(party->n_ranks));
    if (!at)
        return -ENOMEM;
    at->key = key;
    at->handlers = *handlers;
    at->context = context;
    for (uint32_t i = 0; i < n_ranks; i++)
        gs_party_map_set(at->map, ranks[i]);
    pthread_mutex_lock(&party->lock);
    at->told = known_before(party, key, at->map, &failure);
    if (at->told) { /* before anybody else can call its handlers */
        pthread_mutex_unlock(&party->lock);
        handlers->failed(context, &failure);
        pthread_mutex_lock(&party->lock);
    }
    at->next = party->attachments;
    party->attachments = at;
    pthread_mutex_unlock(&party->lock);
    return 0;
}

void gs_party_detach(struct gs_party *party, uint64_t key)
{
    pthread_mutex_lock(&party->lock);
    struct gs_party_attachment **link = &party->attachments;
    while (*link && (*link)->key != key)
        link = &(*link)->next;
    struct gs_party_attachment *at = *link;
    if (at) {
        *link = at->next;
        while (at->busy)
            pthread_cond_wait(&party->changed, &party->lock);
    }
    pthread_mutex_unlock(&party->lock);
    free(at);
}

void gs_party_alarm(struct gs_party *party, uint64_t key, int code, const char *text, bool judge)
{
    struct gs_party_alarm alarm = {.key = key, .code = code, .judge = judge, .n_ranks = party->n_ranks};
    struct gs_bytes frame = {0};
    snprintf(alarm.text, sizeof alarm.text, "%s", text);
    uint8_t *map = malloc(gs_party_map_bytes(party->n_ranks));
    if (!map)
        return;
    memset(map, 0, gs_party_map_bytes(party->n_ranks));
    pthread_mutex_lock(&party->lock);
    struct gs_party_attachment *at = find(party, key);
    if (at) {
        memcpy(map, at->map, gs_party_map_bytes(party->n_ranks));
        memcpy(at->alarm_text, alarm.text, sizeof at->alarm_text);
        at->alarm_code = code;
    }
    pthread_mutex_unlock(&party->lock);
    gs_party_map_set(map, party->rank);
    alarm.map = map;
    if (gs_party_alarm_encode(&frame, &alarm) == 0)
        gs_party_post(party, &frame);
    free(map);
}

void gs_party_alarm_alone(struct gs_party *party, uint64_t key, int code, const char *text)
{
    struct gs_failure failure = {.key = key, .code = code};
    char name[GS_PARTY_NAME_BYTES];
    gs_party_say_rank(name, party->members, 0);
    snprintf(failure.text, sizeof failure.text, "%.120s; %s has left, so that nobody else was asked or told",
             text, name);
    gs_party_fell(party, &failure);
}

/* ---- small things ---- */

struct gs_party *gs_party_keep(struct gs_party *party)
{
    atomic_fetch_add(&party->holds, 1);
    return party;
}

const struct gs_member *gs_party_members(const struct gs_party *party)
{
    return party->members;
}

uint32_t gs_party_rank(const struct gs_party *party)
{
    return party->rank;
}

uint32_t gs_party_size(const struct gs_party *party)
{
    return party->n_ranks;
}
