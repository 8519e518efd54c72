/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lanes: rails that die, and are brought back.
 *
 * A dead rail is silenced here at once, and its reads go to whichever lane has room. A write that the peer
 * may have seen part of waits until the peer says (FENCED) that nothing more of the dead rail will be
 * applied: otherwise its late bytes could land on top of the replay. A new connection is made on a helper
 * thread, for connecting can block.
 */
#include "remote/client.h"

#include "base/log.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ATTEMPTS_MAX = 4 };

static const int64_t connect_timeout_ns = 2000000000, first_pause_ns = 50000000, slow_pause_ns = 2000000000;

/* Shared by the lane and its helper thread; whoever is last frees it. */
struct gs_reconnect {
    pthread_mutex_t lock;
    const struct gs_rail_ops *ops;
    struct gs_rail_target target;
    struct gs_verbs_pair pair; /* holds its end */
    char address[GS_TEXT_MAX], unix_path[GS_TEXT_MAX + 1];
    uint8_t session[GS_NONCE_BYTES], proof[GS_NONCE_BYTES];
    int wake; /* a duplicate of the remote's */
    bool finished, abandoned;
    struct gs_rail *rail;
    struct gpusys_error error;
};

static void free_reconnect(struct gs_reconnect *reconnect)
{
    if (reconnect->rail)
        reconnect->ops->close(reconnect->rail);
    gs_verbs_end_drop(reconnect->pair.end);
    close(reconnect->wake);
    pthread_mutex_destroy(&reconnect->lock);
    free(reconnect);
}

static void *reconnect_main(void *argument)
{
    struct gs_reconnect *self = argument;
    struct gs_rail *rail = NULL;
    uint64_t one = 1;
    self->ops->connect(&rail, &self->target, gpusys_deadline_after(connect_timeout_ns), &self->error);
    pthread_mutex_lock(&self->lock);
    self->rail = rail;
    self->finished = true;
    bool abandoned = self->abandoned;
    if (!abandoned && write(self->wake, &one, sizeof one) < 0) {
        /* it is awake already */
    }
    pthread_mutex_unlock(&self->lock);
    if (abandoned)
        free_reconnect(self);
    return NULL;
}

/* The thread's own copy of where to go: the remote may be gone before it ends. */
static struct gs_reconnect *new_reconnect(const struct gpusys_remote *remote, const struct gs_lane *lane)
{
    struct gs_reconnect *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->wake = dup(remote->wake);
    if (self->wake < 0) {
        free(self);
        return NULL;
    }
    pthread_mutex_init(&self->lock, NULL);
    self->ops = lane->ops;
    memcpy(self->address, remote->address, sizeof self->address);
    memcpy(self->unix_path, remote->unix_path, sizeof self->unix_path);
    memcpy(self->session, remote->session, GS_NONCE_BYTES);
    memcpy(self->proof, remote->proof, GS_NONCE_BYTES);
    self->target = remote->target;
    self->target.address = self->address;
    self->target.unix_path = self->unix_path;
    self->target.session = self->session;
    self->target.proof = self->proof;
    if (lane->pair) {
        self->pair = *lane->pair;
        gs_verbs_end_hold(self->pair.end);
        self->target.pair = &self->pair;
    }
    self->target.index = (uint8_t)(lane - remote->lanes);
    self->target.generation = lane->generation;
    return self;
}

static void start_reconnect(struct gpusys_remote *remote, struct gs_lane *lane)
{
    lane->generation++;
    struct gs_reconnect *self = new_reconnect(remote, lane);
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    lane->retry_at_ns = GPUSYS_NO_DEADLINE;
    if (!self)
        return;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setsigmask_np(&attributes, &all); /* signals are for the application's threads */
    if (pthread_create(&thread, &attributes, reconnect_main, self))
        free_reconnect(self);
    else
        lane->reconnect = self;
    pthread_attr_destroy(&attributes);
}

/* Not while a fence is awaited: it names one generation of the rail, and must come before there is a next
 * one. */
int64_t gs_lane_retry_at(const struct gs_lane *lane)
{
    return lane->rail || lane->reconnect || lane->fence_serial ? GPUSYS_NO_DEADLINE : lane->retry_at_ns;
}

static bool all_given_up(const struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < remote->n_lanes; i++)
        if (remote->lanes[i].rail || remote->lanes[i].reconnect ||
            remote->lanes[i].retry_at_ns != GPUSYS_NO_DEADLINE)
            return false;
    return true;
}

static bool any_alive(const struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < remote->n_lanes; i++)
        if (remote->lanes[i].rail)
            return true;
    return false;
}

/*
 * Plan the next attempt, later each time. After some it goes on slowly as long as another rail carries the session:
 * a cable may be mended after an hour.
 */
static void plan(const struct gpusys_remote *remote, struct gs_lane *lane)
{
    unsigned failures = lane->failures++;
    if (remote->is_silent)
        lane->retry_at_ns = GPUSYS_NO_DEADLINE; /* there is nobody to ask for another */
    else if (failures == 0)
        lane->retry_at_ns = gpusys_now_ns();
    else if (failures < ATTEMPTS_MAX)
        lane->retry_at_ns = gpusys_deadline_after(first_pause_ns << failures);
    else
        lane->retry_at_ns = any_alive(remote) ? gpusys_deadline_after(slow_pause_ns) : GPUSYS_NO_DEADLINE;
}

static void finish_reconnect(struct gpusys_remote *remote, struct gs_lane *lane)
{
    struct gs_reconnect *self = lane->reconnect;
    pthread_mutex_lock(&self->lock);
    bool finished = self->finished;
    pthread_mutex_unlock(&self->lock);
    if (!finished)
        return;
    lane->reconnect = NULL;
    lane->rail = self->rail;
    self->rail = NULL;
    if (lane->rail) {
        gs_log(GPUSYS_LOG_INFO, "%s: rail %u is back", remote->address, (unsigned)(lane - remote->lanes));
    } else {
        gs_log(GPUSYS_LOG_WARN, "%s: rail %u did not come back: %s", remote->address,
               (unsigned)(lane - remote->lanes), self->error.message);
        plan(remote, lane);
    }
    free_reconnect(self);
}

void gs_lanes_tend(struct gpusys_remote *remote)
{
    for (unsigned i = 0; i < remote->n_lanes && !remote->dead; i++) {
        struct gs_lane *lane = &remote->lanes[i];
        if (lane->reconnect)
            finish_reconnect(remote, lane);
        else if (gpusys_now_ns() >= gs_lane_retry_at(lane))
            start_reconnect(remote, lane);
    }
    if (!remote->dead && remote->n_lanes > 0 && all_given_up(remote))
        gs_remote_fail(remote, -ECONNRESET);
}

static int ask_for_fence(struct gpusys_remote *remote, struct gs_lane *lane)
{
    struct gs_fence fence = {.rail = (uint8_t)(lane - remote->lanes), .generation = lane->generation};
    if (lane->fence_serial)
        return 0;
    lane->fence_serial = gs_control_serial(remote);
    return gs_fence_encode(&remote->channel.out, lane->fence_serial, &fence);
}

void gs_lane_died(struct gpusys_remote *remote, struct gs_lane *lane, int why)
{
    struct gs_slices outstanding = {0};
    struct gs_slice *slice;
    gs_log(GPUSYS_LOG_WARN, "%s: rail %u (%s) died: %s", remote->address, (unsigned)(lane - remote->lanes),
           gpusys_transport_name(lane->ops->transport), strerrordesc_np(-why));
    snprintf(lane->last_words, sizeof lane->last_words, "%s", strerrordesc_np(-why));
    if (lane->ops->fd(lane->rail) >= 0)
        gs_engine_watch(remote, lane->ops->fd(lane->rail), &lane->watched, 0, 0);
    lane->ops->quiesce(lane->rail, &outstanding);
    lane->ops->close(lane->rail);
    lane->rail = NULL;
    int error = 0;
    while ((slice = gs_slices_pop(&outstanding))) {
        if (remote->is_silent && slice->sent)
            slice->failures =
                UINT8_MAX - 1; /* nobody can say whether some of it will still arrive: no replay */
        if (slice->owner && slice->sent && !remote->dead && !remote->is_silent) {
            gs_slices_push(&lane->fenced, slice);
            error = ask_for_fence(remote, lane);
        } else {
            gs_engine_again(remote, slice, -ECONNRESET);
        }
    }
    if (why == -EBUSY) /* by our own hand, for a deadline: no fault of the rail's */
        lane->failures = 0;
    plan(remote, lane);
    if (error)
        gs_remote_fail(remote, error);
}

void gs_lane_fenced(struct gpusys_remote *remote, struct gs_lane *lane)
{
    struct gs_slice *slice;
    lane->fence_serial = 0;
    while ((slice = gs_slices_pop(&lane->fenced))) {
        slice->sent = false;
        gs_engine_again(remote, slice, -ECONNRESET);
    }
}

void gs_lane_close(struct gpusys_remote *remote, struct gs_lane *lane)
{
    (void)remote;
    if (lane->rail)
        lane->ops->close(lane->rail);
    lane->rail = NULL;
    struct gs_reconnect *self = lane->reconnect;
    if (!self)
        return;
    lane->reconnect = NULL;
    pthread_mutex_lock(&self->lock);
    bool finished = self->finished;
    self->abandoned = true;
    pthread_mutex_unlock(&self->lock);
    if (finished)
        free_reconnect(self);
}
