/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checksums of chunks, asked for ahead and kept until they are wanted. */
#include "remote/client.h"

#include "remote/region.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdlib.h>

bool gs_sums_answer(struct gpusys_remote *remote, const struct gs_frame *frame, const unsigned char *body)
{
    struct gs_sum_ask *ask = remote->asks;
    while (ask && (ask->serial != frame->serial || ask->have))
        ask = ask->next;
    if (!ask)
        return false;
    struct gs_sums sums;
    struct gs_refused refused;
    ask->have = true;
    if (frame->type == GS_REFUSED && gs_refused_decode(body, frame->body_bytes, &refused) == 0)
        ask->error = gs_refusal_errno(refused.refusal);
    else if (frame->type != GS_SUMS || gs_sums_decode(body, frame->body_bytes, &sums) ||
             sums.region != ask->region || sums.first != ask->first || sums.count != ask->count)
        ask->error = -EPROTO;
    else
        memcpy(ask->hashes, sums.hashes, (size_t)sums.count * GPUSYS_HASH_BYTES);
    return true;
}

void gs_sums_free(struct gpusys_remote *remote)
{
    while (remote->asks) {
        struct gs_sum_ask *next = remote->asks->next;
        free(remote->asks);
        remote->asks = next;
    }
    remote->last_ask = &remote->asks;
}

static void forget(struct gpusys_remote *remote, struct gs_sum_ask *ask)
{
    struct gs_sum_ask **link = &remote->asks;
    while (*link != ask)
        link = &(*link)->next;
    *link = ask->next;
    if (!ask->next)
        remote->last_ask = link;
    free(ask);
}

static int send_ask(struct gpusys_remote *remote, uint32_t region, uint64_t first, uint32_t count)
{
    struct gs_sum sum = {.region = region, .first = first, .count = count};
    struct gs_sum_ask *ask = calloc(1, sizeof *ask + (size_t)count * GPUSYS_HASH_BYTES);
    if (!ask)
        return -ENOMEM;
    *ask = (struct gs_sum_ask){
        .serial = gs_control_serial(remote), .first = first, .region = region, .count = count};
    if (gs_sum_encode(&remote->channel.out, ask->serial, &sum)) {
        free(ask);
        return -ENOMEM;
    }
    *remote->last_ask = ask;
    remote->last_ask = &ask->next;
    return 0;
}

static int check(const struct gpusys_remote *remote, uint32_t region, uint64_t first, uint32_t count)
{
    const struct gs_listed *listed = gs_listed_at(remote, region);
    if (remote->dead)
        return -ENOTCONN;
    if (remote->is_silent)
        return -EOPNOTSUPP;
    if (!listed)
        return -ENOENT;
    return count && gs_range_fits(gs_chunk_count(listed->length), first, count) ? 0 : -ERANGE;
}

int gpusys_remote_checksums_ask(struct gpusys_remote *remote, uint32_t region, uint64_t first, uint32_t count)
{
    int error = check(remote, region, first, count);
    while (!error && count) {
        uint32_t step = count < GS_CHECKSUMS_MAX ? count : GS_CHECKSUMS_MAX;
        error = send_ask(remote, region, first, step);
        first += step;
        count -= step;
    }
    return error ? error : gs_control_progress(remote);
}

static struct gs_sum_ask *covering(const struct gpusys_remote *remote, uint32_t region, uint64_t chunk)
{
    struct gs_sum_ask *ask = remote->asks;
    while (ask && (ask->region != region || chunk < ask->first || chunk - ask->first >= ask->count))
        ask = ask->next;
    return ask;
}

/* One chunk's checksum. The ask is forgotten with its last chunk, or when it failed. */
static int take(struct gpusys_remote *remote, uint32_t region, uint64_t chunk, uint8_t *ret_hash,
                int64_t deadline_ns)
{
    struct gs_sum_ask *ask = covering(remote, region, chunk);
    if (!ask)
        return -ENOENT;
    while (!ask->have) {
        int error = gs_engine_turn(remote, deadline_ns) ?: remote->dead;
        if (error && !ask->have)
            return error == -EAGAIN ? -ETIMEDOUT : error;
    }
    int error = ask->error;
    if (!error)
        memcpy(ret_hash, ask->hashes[chunk - ask->first], GPUSYS_HASH_BYTES);
    if (error || chunk - ask->first == ask->count - 1)
        forget(remote, ask);
    return error;
}

static int explain(const struct gpusys_remote *remote, uint32_t region, int code, struct gpusys_error *error)
{
    const struct gs_listed *listed = gs_listed_at(remote, region);
    const char *name = listed && listed->name ? listed->name : "the region";
    if (code == -ESTALE) {
        gpusys_error_set(error, code, "%s: \"%s\" changed while it was served", remote->address, name);
        gpusys_error_set_hint(error, "serve it again when nobody writes to it any more");
        return code;
    }
    return gpusys_error_set_errno(error, code, "%s: the checksums of \"%s\"", remote->address, name);
}

int gpusys_remote_checksums(struct gpusys_remote *remote, uint32_t region, uint64_t first, uint32_t count,
                            uint8_t (*ret_hashes)[GPUSYS_HASH_BYTES], int64_t timeout_ns,
                            struct gpusys_error *error)
{
    int64_t deadline = gpusys_deadline_after(timeout_ns);
    int result = check(remote, region, first, count);
    for (uint32_t i = 0; i < count && !result; i++) {
        if (!covering(remote, region, first + i)) {
            uint32_t rest = count - i < GS_CHECKSUMS_MAX ? count - i : GS_CHECKSUMS_MAX;
            result = gpusys_remote_checksums_ask(remote, region, first + i, rest);
        }
        if (!result)
            result = take(remote, region, first + i, ret_hashes[i], deadline);
    }
    return result ? explain(remote, region, result, error) : 0;
}
