/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Handing small things round, on the side of those who call it. */
#include "gpu/party_inner.h"

#include "base/deadline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the hub may take to say who did not come, when time is up. */
static const int64_t answer_ns = 1000000000;

/* ---- what was heard, with the lock held ---- */

static void finish(struct gs_party *party, struct gs_party_waiter *waiter, int code, const char *text)
{
    if (waiter->done)
        return;
    waiter->done = true;
    waiter->code = code;
    snprintf(waiter->text, sizeof waiter->text, "%s", text);
    pthread_cond_broadcast(&party->changed);
}

/* Where a rank stands among those that gather; NULL: it does not. */
static const uint32_t *place_of(const struct gs_party_waiter *waiter, uint32_t rank)
{
    uint32_t low = 0, high = waiter->n_ranks;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (waiter->ranks[waiter->order[middle]] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_there = low < waiter->n_ranks && waiter->ranks[waiter->order[low]] == rank;
    return is_there ? &waiter->order[low] : NULL;
}

void gs_party_waiters_fall(struct gs_party *party, const struct gs_failure *failure)
{
    for (struct gs_party_waiter *at = party->waiters; at; at = at->next)
        for (uint32_t i = 0; i < failure->n_suspects; i++) {
            uint32_t rank = failure->suspects[i];
            if (rank == 0 || rank == party->rank || place_of(at, rank))
                finish(party, at, failure->code, failure->text);
        }
}

void gs_party_waiters_left(struct gs_party *party, uint32_t rank)
{
    char name[GS_PARTY_NAME_BYTES], text[GS_PARTY_TEXT_BYTES];
    gs_party_say_rank(name, party->members, rank);
    snprintf(text, sizeof text, "%s has left", name);
    for (struct gs_party_waiter *at = party->waiters; at; at = at->next)
        if (rank == 0 || place_of(at, rank))
            finish(party, at, -ECONNRESET, text);
}

static struct gs_party_waiter *find(struct gs_party *party, uint64_t tag)
{
    struct gs_party_waiter *at = party->waiters;
    while (at && at->tag != tag)
        at = at->next;
    return at;
}

/* Every share to its place. Each rank has one: what is missing or twice leaves another's out. */
static int hear_gathered(struct gs_party *party, const unsigned char *body, size_t size)
{
    struct gs_party_gathered gathered;
    struct gs_party_share share;
    if (gs_party_gathered_decode(body, size, &gathered))
        return -EBADMSG;
    struct gs_party_waiter *waiter = find(party, gathered.tag);
    if (!waiter || waiter->done)
        return 0;
    if (gathered.n_ranks != waiter->n_ranks || gathered.bytes != waiter->bytes)
        return -EBADMSG;
    memset(waiter->given, 0, gs_party_map_bytes(party->n_ranks));
    for (uint32_t i = 0; i < gathered.n_ranks; i++) {
        const uint32_t *place = gs_party_share_next(&gathered, &share) ? NULL : place_of(waiter, share.rank);
        if (!place || gs_party_map_has(waiter->given, share.rank))
            return -EBADMSG;
        gs_party_map_set(waiter->given, share.rank);
        unsigned char *to = waiter->all + (size_t)*place * waiter->bytes;
        memcpy(to, share.at, share.bytes);
        memset(to + share.bytes, 0, waiter->bytes - share.bytes);
    }
    if (gs_cursor_left(&gathered.shares))
        return -EBADMSG;
    finish(party, waiter, 0, "");
    return 0;
}

static int hear_ungathered(struct gs_party *party, const unsigned char *body, size_t size)
{
    struct gs_party_ungathered ungathered;
    if (gs_party_ungathered_decode(body, size, &ungathered))
        return -EBADMSG;
    struct gs_party_waiter *waiter = find(party, ungathered.tag);
    if (waiter)
        finish(party, waiter, ungathered.code, ungathered.text);
    return 0;
}

static int hear_given(struct gs_party *party, const unsigned char *body, size_t size)
{
    struct gs_party_given given;
    if (gs_party_given_decode(body, size, &given) || given.n_ranks != party->n_ranks)
        return -EBADMSG;
    struct gs_party_waiter *waiter = find(party, given.tag);
    if (!waiter || waiter->done)
        return 0;
    memcpy(waiter->given, given.map, gs_party_map_bytes(party->n_ranks));
    waiter->has_given = true;
    finish(party, waiter, -ETIMEDOUT, "");
    return 0;
}

int gs_party_waiters_hear(struct gs_party *party, const struct gs_party_frame *frame,
                          const unsigned char *body)
{
    if (frame->type == GS_PARTY_GATHERED)
        return hear_gathered(party, body, frame->body_bytes);
    if (frame->type == GS_PARTY_UNGATHERED)
        return hear_ungathered(party, body, frame->body_bytes);
    return hear_given(party, body, frame->body_bytes);
}

/* ---- the call ---- */

static int by_rank(const void *one, const void *other, void *ranks)
{
    uint32_t a = ((const uint32_t *)ranks)[*(const uint32_t *)one];
    uint32_t b = ((const uint32_t *)ranks)[*(const uint32_t *)other];
    return (a > b) - (a < b);
}

static int check(const struct gs_party *party, const struct gs_party_waiter *waiter,
                 struct gpusys_error *error)
{
    if (waiter->bytes > GS_PARTY_SHARE_BYTES)
        return gpusys_error_set(error, -EINVAL, "gather: %u bytes from each rank, and %u are the most",
                                waiter->bytes, GS_PARTY_SHARE_BYTES);
    for (uint32_t i = 0; i < waiter->n_ranks; i++) {
        uint32_t rank = waiter->ranks[waiter->order[i]];
        if (rank >= party->n_ranks)
            return gpusys_error_set(error, -EINVAL, "gather: there is no rank %u among %u", rank,
                                    party->n_ranks);
        if (i && rank == waiter->ranks[waiter->order[i - 1]])
            return gpusys_error_set(error, -EINVAL, "gather: rank %u is in it twice", rank);
    }
    if (!place_of(waiter, party->rank))
        return gpusys_error_set(error, -EINVAL, "gather: rank %u, which calls it, is not in it", party->rank);
    return 0;
}

/* FNV-1a, over the ranks as little-endian bytes. */
static uint64_t digest_of(const uint32_t *ranks, uint32_t n_ranks)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < n_ranks; i++)
        for (unsigned shift = 0; shift < 32; shift += 8)
            digest = (digest ^ (ranks[i] >> shift & 0xff)) * UINT64_C(0x100000001b3);
    return digest;
}

/* With the lock held: is one of them gone already? */
static void look_back(struct gs_party *party, struct gs_party_waiter *waiter)
{
    for (struct gs_party_loss *loss = party->losses; loss; loss = loss->next)
        gs_party_waiters_fall(party, &loss->failure);
    if (party->states[0] == GS_PARTY_LEFT)
        gs_party_waiters_left(party, 0);
    for (uint32_t i = 0; i < waiter->n_ranks && !waiter->done; i++)
        if (party->states[waiter->ranks[i]] == GS_PARTY_LEFT)
            gs_party_waiters_left(party, waiter->ranks[i]);
}

static void wait_until(struct gs_party *party, const struct gs_party_waiter *waiter, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    int code = 0;
    while (!waiter->done && !code)
        code = deadline_ns == GPUSYS_NO_DEADLINE
                   ? pthread_cond_wait(&party->changed, &party->lock)
                   : pthread_cond_timedwait(&party->changed, &party->lock, &until);
}

static void post_late(struct gs_party *party, uint64_t tag)
{
    struct gs_bytes frame = {0};
    if (gs_party_number_encode(&frame, GS_PARTY_LATE, tag) == 0)
        gs_party_post(party, &frame);
}

/* Wait for it. When time is up the share is taken back, and the hub says who gave; so it is after a failure. */
static void wait_for(struct gs_party *party, struct gs_party_waiter *waiter, int64_t deadline_ns)
{
    pthread_mutex_lock(&party->lock);
    wait_until(party, waiter, deadline_ns > 0 ? deadline_ns : 0);
    bool is_late = !waiter->done, is_lost = waiter->done && waiter->code;
    pthread_mutex_unlock(&party->lock);
    if (is_late || is_lost)
        post_late(party, waiter->tag);
    pthread_mutex_lock(&party->lock);
    if (is_late)
        wait_until(party, waiter, gpusys_deadline_after(answer_ns));
    if (!waiter->done)
        waiter->code = -ETIMEDOUT;
    struct gs_party_waiter **link = &party->waiters;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
    pthread_mutex_unlock(&party->lock);
}

static int explain(const struct gs_party *party, const struct gs_party_waiter *waiter,
                   struct gpusys_error *error)
{
    uint32_t missing[GS_PARTY_SUSPECTS], n = 0;
    char list[GS_PARTY_TEXT_BYTES];
    if (waiter->text[0])
        return gpusys_error_set(error, waiter->code, "gather: %s", waiter->text);
    for (uint32_t i = 0; waiter->has_given && i < waiter->n_ranks; i++)
        if (waiter->ranks[i] != party->rank && !gs_party_map_has(waiter->given, waiter->ranks[i])) {
            if (n < GS_PARTY_SUSPECTS)
                missing[n] = waiter->ranks[i];
            n++;
        }
    if (n == 0)
        return gpusys_error_set(error, waiter->code,
                                "gather: time was up, and rank 0 does not say who did not come");
    gs_party_say_ranks(list, sizeof list, missing, n);
    gpusys_error_set(error, waiter->code, "gather: %s of %u did not come to it in time", list,
                     waiter->n_ranks);
    gpusys_error_set_hint(error, "are those ranks still busy, or did their programs take another way?");
    return waiter->code;
}

static int gather(struct gs_party *party, struct gs_party_waiter *waiter, const void *mine,
                  int64_t deadline_ns, struct gpusys_error *error)
{
    struct gs_party_gather gather = {.tag = waiter->tag,
                                     .digest = digest_of(waiter->ranks, waiter->n_ranks),
                                     .n_ranks = waiter->n_ranks,
                                     .bytes = waiter->bytes,
                                     .share = mine,
                                     .share_bytes = waiter->bytes};
    struct gs_bytes frame = {0};
    if (gs_party_gather_encode(&frame, &gather)) {
        gs_bytes_free(&frame);
        return gpusys_error_set_errno(error, -ENOMEM, "gather");
    }
    pthread_mutex_lock(&party->lock);
    bool is_twice = find(party, waiter->tag);
    if (!is_twice) {
        waiter->next = party->waiters;
        party->waiters = waiter;
        look_back(party, waiter);
    }
    bool is_over = waiter->done;
    pthread_mutex_unlock(&party->lock);
    if (is_twice) {
        gs_bytes_free(&frame);
        return gpusys_error_set(error, -EINVAL, "gather: one with this tag is under way on this rank");
    }
    if (is_over)
        gs_bytes_free(&frame);
    else
        gs_party_post(party, &frame); /* without memory it is as if nobody had come: the deadline holds */
    wait_for(party, waiter, deadline_ns);
    return waiter->code ? explain(party, waiter, error) : 0;
}

int gs_party_gather(struct gs_party *party, uint64_t tag, const uint32_t *ranks, uint32_t n_ranks,
                    const void *mine, size_t bytes, void *ret_all, int64_t deadline_ns,
                    struct gpusys_error *error)
{
    struct gs_party_waiter waiter = {.tag = tag,
                                     .n_ranks = n_ranks,
                                     .bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX,
                                     .ranks = ranks};
    size_t size = n_ranks * bytes;
    waiter.order = calloc(n_ranks ? n_ranks : 1, sizeof *waiter.order);
    waiter.given = calloc(gs_party_map_bytes(party->n_ranks), 1);
    waiter.all = bytes <= GS_PARTY_SHARE_BYTES ? malloc(size ? size : 1) : NULL;
    for (uint32_t i = 0; waiter.order && i < n_ranks; i++)
        waiter.order[i] = i;
    if (waiter.order)
        qsort_r(waiter.order, n_ranks, sizeof *waiter.order, by_rank, (void *)(uintptr_t)ranks);
    int code = waiter.order ? check(party, &waiter, error) : 0;
    if (!code && (!waiter.order || !waiter.given || !waiter.all))
        code = gpusys_error_set_errno(error, -ENOMEM, "gather");
    if (!code)
        code = gather(party, &waiter, mine, deadline_ns, error);
    if (!code && size)
        memcpy(ret_all, waiter.all, size);
    free(waiter.order);
    free(waiter.given);
    free(waiter.all);
    return code;
}
