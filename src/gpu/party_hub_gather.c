/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The hub's side of gathers: shares of one tag, until as many have come as there should be. */
#include "gpu/party_hub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static struct gs_hub_gather **find(struct gs_party_hub *hub, uint64_t tag)
{
    struct gs_hub_gather **link = &hub->gathers;
    while (*link && (*link)->tag != tag)
        link = &(*link)->next;
    return link;
}

/* Take it out of the list; those who gave have one less open. */
static void drop(struct gs_party_hub *hub, struct gs_hub_gather **link)
{
    struct gs_hub_gather *gather = *link;
    for (uint32_t rank = 0; rank < hub->party->n_ranks; rank++)
        if (gs_party_map_has(gather->given, rank))
            hub->n_open[rank]--;
    *link = gather->next;
    gs_bytes_free(&gather->shares);
    free(gather);
}

void gs_hub_free_gathers(struct gs_party_hub *hub)
{
    while (hub->gathers)
        drop(hub, &hub->gathers);
}

static void complete(struct gs_party_hub *hub, struct gs_hub_gather **link)
{
    struct gs_hub_gather *gather = *link;
    struct gs_party_gathered gathered = {
        .tag = gather->tag,
        .n_ranks = gather->n_ranks,
        .bytes = gather->bytes,
        .shares = gs_cursor_over(gather->shares.data + gather->shares.head, gs_bytes_queued(&gather->shares)),
    };
    struct gs_bytes frame = {0};
    if (gs_party_gathered_encode(&frame, &gathered) == 0)
        gs_hub_send_all(hub, gather->given, &frame);
    drop(hub, link);
}

static void send_failed(struct gs_party_hub *hub, const uint8_t *map, uint32_t rank,
                        const struct gs_party_ungathered *failed)
{
    struct gs_bytes frame = {0};
    if (gs_party_ungathered_encode(&frame, failed))
        return;
    if (map)
        gs_hub_send_all(hub, map, &frame);
    else
        gs_hub_send(hub, rank, &frame);
}

/* The first who gave, for the words. */
static uint32_t first_of(const struct gs_party_hub *hub, const struct gs_hub_gather *gather)
{
    uint32_t rank = 0;
    while (rank + 1 < hub->party->n_ranks && !gs_party_map_has(gather->given, rank))
        rank++;
    return rank;
}

/* Two ranks do not mean the same gather: it fails for all that gave, and for those who come later. */
static void disagree(struct gs_party_hub *hub, struct gs_hub_gather **link, uint32_t rank,
                     const struct gs_party_gather *other)
{
    struct gs_hub_gather *gather = *link;
    struct gs_party_ungathered *failed = &hub->failed[hub->n_failed++ % GS_HUB_RECENT];
    char one[GS_PARTY_NAME_BYTES], two[GS_PARTY_NAME_BYTES];
    *failed = (struct gs_party_ungathered){.tag = gather->tag, .code = -EBADMSG};
    gs_party_say_rank(one, hub->party->members, rank);
    gs_party_say_rank(two, hub->party->members, first_of(hub, gather));
    if (gather->bytes != other->bytes)
        snprintf(failed->text, sizeof failed->text, "%s gives %u bytes, %s %u", one, other->bytes, two,
                 gather->bytes);
    else if (gather->n_ranks != other->n_ranks)
        snprintf(failed->text, sizeof failed->text, "%s means %u ranks, %s %u", one, other->n_ranks, two,
                 gather->n_ranks);
    else
        snprintf(failed->text, sizeof failed->text, "%s and %s mean different ranks", one, two);
    gs_party_map_set(gather->given, rank);
    hub->n_open[rank]++; /* drop takes it back */
    send_failed(hub, gather->given, 0, failed);
    drop(hub, link);
}

static struct gs_hub_gather *begin(struct gs_party_hub *hub, const struct gs_party_gather *from)
{
    struct gs_hub_gather *gather = calloc(1, sizeof *gather + gs_party_map_bytes(hub->party->n_ranks));
    if (!gather)
        return NULL;
    gather->tag = from->tag;
    gather->digest = from->digest;
    gather->n_ranks = from->n_ranks;
    gather->bytes = from->bytes;
    gather->next = hub->gathers;
    hub->gathers = gather;
    return gather;
}

static bool failed_before(struct gs_party_hub *hub, uint32_t rank, uint64_t tag)
{
    for (uint32_t i = 0; i < GS_HUB_RECENT && i < hub->n_failed; i++)
        if (hub->failed[i].tag == tag) {
            send_failed(hub, NULL, rank, &hub->failed[i]);
            return true;
        }
    return false;
}

int gs_hub_hear_gather(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size)
{
    struct gs_party_gather from;
    if (gs_party_gather_decode(body, size, &from) || from.n_ranks > hub->party->n_ranks)
        return -EBADMSG;
    if (failed_before(hub, rank, from.tag))
        return 0;
    struct gs_hub_gather **link = find(hub, from.tag), *gather = *link;
    if (gather && gs_party_map_has(gather->given, rank))
        return -EBADMSG;
    if (gather &&
        (gather->digest != from.digest || gather->n_ranks != from.n_ranks || gather->bytes != from.bytes)) {
        disagree(hub, link, rank, &from);
        return 0;
    }
    if (hub->n_open[rank] >= GS_HUB_OPEN_GATHERS) {
        struct gs_party_ungathered many = {.tag = from.tag, .code = -EBUSY};
        snprintf(many.text, sizeof many.text, "rank %u waits in %u gathers already", rank,
                 GS_HUB_OPEN_GATHERS);
        send_failed(hub, NULL, rank, &many);
        return 0;
    }
    if (!gather)
        gather = begin(hub, &from);
    struct gs_party_share share = {.rank = rank, .bytes = from.share_bytes, .at = from.share};
    if (!gather || gs_party_share_encode(&gather->shares, &share))
        return -ENOMEM;
    gs_party_map_set(gather->given, rank);
    hub->n_open[rank]++;
    if (++gather->n_given == gather->n_ranks)
        complete(hub, find(hub, from.tag));
    return 0;
}

/* Without that rank's share: the others move up. */
static void cut_out(struct gs_hub_gather *gather, uint32_t rank)
{
    struct gs_party_gathered all = {
        .bytes = gather->bytes,
        .shares = gs_cursor_over(gather->shares.data + gather->shares.head, gs_bytes_queued(&gather->shares)),
    };
    struct gs_party_share share;
    unsigned char *at = all.shares.at;
    while (gs_party_share_next(&all, &share) == 0 && share.rank != rank)
        at = all.shares.at;
    size_t behind = gs_cursor_left(&all.shares);
    memmove(at, all.shares.at, behind);
    gather->shares.tail = (size_t)(at - gather->shares.data) + behind;
}

static void take_back(struct gs_party_hub *hub, struct gs_hub_gather **link, uint32_t rank)
{
    struct gs_hub_gather *gather = *link;
    if (!gs_party_map_has(gather->given, rank))
        return;
    cut_out(gather, rank);
    gs_party_map_clear(gather->given, rank);
    hub->n_open[rank]--;
    if (--gather->n_given == 0)
        drop(hub, link);
}

int gs_hub_hear_late(struct gs_party_hub *hub, uint32_t rank, const unsigned char *body, size_t size)
{
    struct gs_party_given given = {.n_ranks = hub->party->n_ranks};
    struct gs_bytes frame = {0};
    if (gs_party_number_decode(body, size, &given.tag))
        return -EBADMSG;
    struct gs_hub_gather **link = find(hub, given.tag);
    if (!*link)
        return 0; /* complete or failed: that answer is under way */
    given.map = (*link)->given;
    if (gs_party_given_encode(&frame, &given) == 0)
        gs_hub_send(hub, rank, &frame);
    take_back(hub, link, rank);
    return 0;
}

void gs_hub_forget_shares(struct gs_party_hub *hub, uint32_t rank)
{
    for (struct gs_hub_gather **link = &hub->gathers; hub->n_open[rank] && *link;) {
        struct gs_hub_gather *gather = *link;
        take_back(hub, link, rank);
        if (*link == gather)
            link = &gather->next;
    }
}
