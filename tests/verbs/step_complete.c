/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The steps that look at completions and events. */
#include "world.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_MS = 20000, SILENCE_MS = 100 };

static const struct {
    const char *name;
    enum ibv_wc_status status;
} statuses[] = {{"success", IBV_WC_SUCCESS},           {"loc_len", IBV_WC_LOC_LEN_ERR},
                {"loc_qp_op", IBV_WC_LOC_QP_OP_ERR},   {"loc_prot", IBV_WC_LOC_PROT_ERR},
                {"flush", IBV_WC_WR_FLUSH_ERR},        {"rem_inv", IBV_WC_REM_INV_REQ_ERR},
                {"rem_access", IBV_WC_REM_ACCESS_ERR}, {"rem_op", IBV_WC_REM_OP_ERR},
                {"retry", IBV_WC_RETRY_EXC_ERR},       {"rnr", IBV_WC_RNR_RETRY_EXC_ERR}};

static int status_of(const char *word)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (strcmp(statuses[i].name, word) == 0)
            return (int)statuses[i].status;
    return -1;
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The next completion, as far as it comes in time. What the poll gave last. */
static int next_completion(struct object *cq, struct ibv_wc *ret_wc, long patience_ms)
{
    int count;
    for (long until = now_ms() + patience_ms;;) {
        memset(ret_wc, 0, sizeof *ret_wc);
        count = cq->cq->context->ops.poll_cq(cq->cq, 1, ret_wc);
        if (count || now_ms() > until)
            return count;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static void expect_completion(struct world *world, struct object *cq, const uint64_t *id, const char *status)
{
    struct ibv_wc wc;
    int wanted = status_of(status), count = next_completion(cq, &wc, PATIENCE_MS);
    if (count != 1)
        world_fault(world, "no completion came (%d)", count);
    else if ((int)wc.status != wanted || (id && wc.wr_id != *id))
        world_fault(world, "expected %s of %lld, got %s of %llu", status, id ? (long long)*id : -1,
                    world->verbs->wc_status_str(wc.status), (unsigned long long)wc.wr_id);
}

static bool step_queue(struct world *world, char **words, struct object *cq)
{
    struct ibv_wc wc;
    if (strcmp(words[0], "wc") == 0) {
        uint64_t id = strtoull(words[2], NULL, 0);
        expect_completion(world, cq, &id, world->is_rxe ? value_of(words, "rxe", words[3]) : words[3]);
    } else if (strcmp(words[0], "flushes") == 0) {
        for (int i = 0; i < atoi(words[2]) && !world->fault[0]; i++)
            expect_completion(world, cq, NULL, "flush");
    } else if (strcmp(words[0], "successes") == 0) {
        for (int i = 0; i < atoi(words[2]) && !world->fault[0]; i++)
            expect_completion(world, cq, NULL, "success");
    } else if (strcmp(words[0], "none") == 0) {
        if (next_completion(cq, &wc, SILENCE_MS))
            world_fault(world, "a completion came: %s of %llu", world->verbs->wc_status_str(wc.status),
                        (unsigned long long)wc.wr_id);
    } else if (strcmp(words[0], "fails") == 0) {
        if (next_completion(cq, &wc, SILENCE_MS) >= 0)
            world_fault(world, "a poll that had to fail did not");
    } else if (strcmp(words[0], "arm") == 0) {
        int code = cq->cq->context->ops.req_notify_cq(cq->cq, words[2] && strcmp(words[2], "solicited") == 0);
        expect_code(world, positive(code), words);
    } else {
        return false;
    }
    return true;
}

/* ---- events ---- */

static bool is_readable(int fd, int patience_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, patience_ms) == 1;
}

static void step_event(struct world *world, struct ibv_comp_channel *channel, struct object *cq)
{
    struct ibv_cq *found;
    void *context;
    if (!is_readable(channel->fd, PATIENCE_MS) || world->verbs->get_cq_event(channel, &found, &context))
        world_fault(world, "no completion event came");
    else if (found != cq->cq)
        world_fault(world, "the completion event is of another queue");
}

static void step_quiet(struct world *world, struct ibv_comp_channel *channel)
{
    struct ibv_cq *found;
    void *context;
    if (is_readable(channel->fd, SILENCE_MS))
        world_fault(world, "a completion event came");
    else if (world->verbs->get_cq_event(channel, &found, &context) != -1 || errno != EAGAIN)
        world_fault(world, "asking a silent channel gave no EAGAIN");
}

static void step_async(struct world *world, const char *wanted)
{
    struct ibv_async_event event;
    if (!is_readable(world->context->async_fd, PATIENCE_MS) ||
        world->verbs->get_async_event(world->context, &event)) {
        world_fault(world, "no asynchronous event came");
        return;
    }
    const char *found = world->verbs->event_type_str(event.event_type);
    if ((int)event.event_type != atoi(wanted))
        world_fault(world, "the asynchronous event is %d, %s", (int)event.event_type, found);
    world->verbs->ack_async_event(&event);
}

bool steps_complete(struct world *world, char **words)
{
    struct object *channel = world_find(world, "channel", KIND_CHANNEL);
    if (channel && strcmp(words[0], "quiet") == 0) {
        step_quiet(world, channel->channel);
        return true;
    }
    if (strcmp(words[0], "async") == 0) {
        step_async(world, words[1]);
        return true;
    }
    struct object *cq = world_find(world, words[1], KIND_CQ);
    if (!cq || !channel)
        return true;
    if (strcmp(words[0], "event") == 0) {
        step_event(world, channel->channel, cq);
        return true;
    }
    if (strcmp(words[0], "ack") == 0) {
        world->verbs->ack_cq_events(cq->cq, (unsigned)atoi(words[2]));
        return true;
    }
    return step_queue(world, words, cq);
}
