/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pull_ring.h"
#include "interrupt.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <gpusys/memory.h>

enum { MAX_PINGS = 4 };

int ring_open(struct ring *ring, struct gpusys_remote *remote, struct progress *progress, int64_t patience_ns,
              struct gpusys_error *error)
{
    void *memory;
    int code = gpusys_memory_alloc(&memory, (uint64_t)RING_SLOTS * SLOT_BYTES, NULL);
    if (code)
        return gpusys_error_set_errno(error, code, "no memory for the landing buffers (%d MiB)",
                                      RING_SLOTS * SLOT_BYTES >> 20);
    *ring =
        (struct ring){.remote = remote, .progress = progress, .patience_ns = patience_ns, .memory = memory};
    for (size_t i = 0; i < RING_SLOTS; i++)
        ring->slots[i].buffer = (unsigned char *)memory + i * SLOT_BYTES;
    return gpusys_remote_register(remote, memory, (uint64_t)RING_SLOTS * SLOT_BYTES, error);
}

void ring_close(struct ring *ring)
{
    gpusys_memory_free(ring->memory, (uint64_t)RING_SLOTS * SLOT_BYTES);
    ring->memory = NULL;
}

struct slot *ring_to_fill(struct ring *ring)
{
    return ring->n_busy < RING_SLOTS ? &ring->slots[(ring->oldest + ring->n_busy) % RING_SLOTS] : NULL;
}

bool slot_is_full(const struct slot *slot)
{
    return slot->used == SLOT_BYTES || slot->n_pieces == SLOT_PIECES;
}

uint64_t slot_add(struct slot *slot, struct arrival *arrival, uint32_t region, uint64_t offset,
                  uint64_t length)
{
    unsigned char *bytes = slot->buffer + slot->used;
    if (length > SLOT_BYTES - slot->used)
        length = SLOT_BYTES - slot->used;
    slot->pieces[slot->n_pieces] =
        (struct piece){.arrival = arrival, .offset = offset, .length = length, .bytes = bytes};
    slot->ios[slot->n_pieces] = (struct gpusys_io){
        .op = GPUSYS_OP_READ, .region = region, .offset = offset, .buffer = bytes, .length = length};
    slot->n_pieces++;
    slot->used += length;
    return length;
}

static int fail_session(const struct ring *ring, int code, struct gpusys_error *error)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    if (code == -ETIMEDOUT || code == -EOPNOTSUPP) /* a peer of the field answers no ping */
        gpusys_error_set(error, code = -ETIMEDOUT, "the peer has stopped answering");
    else
        gpusys_error_set_errno(error, code, "the peer is gone");
    if (gpusys_remote_info(ring->remote, &info) == 0 && info.fault[0])
        gpusys_error_set_cause(error, "%s", info.fault);
    return code;
}

int ring_submit(struct ring *ring, struct gpusys_error *error)
{
    struct slot *slot = ring_to_fill(ring);
    struct gpusys_batch_options options = {.size = sizeof options, .user = (uint64_t)(slot - ring->slots)};
    slot->done = false;
    int code = gpusys_remote_submit(ring->remote, slot->ios, slot->n_pieces, &options, NULL);
    if (code == -ENOTCONN || code == -ECONNRESET || code == -EPIPE)
        return fail_session(ring, code, error);
    if (code) { /* refused before anything moved: the slot's own error, told when it is landed */
        slot->status = code;
        slot->done = true;
    }
    ring->n_busy++;
    return 0;
}

static int check_signal(struct gpusys_error *error)
{
    if (!interrupt_caught())
        return 0;
    return gpusys_error_set(error, -EINTR, "stopped by a signal");
}

static void mark(struct ring *ring, const struct gpusys_completion *completions, int count)
{
    for (int i = 0; i < count; i++) {
        struct slot *slot = &ring->slots[completions[i].user % RING_SLOTS];
        slot->status = completions[i].status;
        slot->done = true;
    }
}

int ring_tend(struct ring *ring, struct gpusys_error *error)
{
    struct gpusys_completion completions[RING_SLOTS];
    int count = gpusys_remote_poll(ring->remote, completions, RING_SLOTS);
    mark(ring, completions, count);
    progress_refresh(ring->progress);
    return count < 0 ? fail_session(ring, count, error) : check_signal(error);
}

struct ring_watch ring_watch_start(const struct ring *ring)
{
    return (struct ring_watch){.until_ns = gpusys_deadline_after(ring->patience_ns)};
}

int ring_watch_check(struct ring *ring, struct ring_watch *watch, struct gpusys_error *error)
{
    if (gpusys_now_ns() < watch->until_ns)
        return 0;
    int code = watch->pings++ < MAX_PINGS ? gpusys_remote_ping(ring->remote, ring->patience_ns) : -ETIMEDOUT;
    watch->until_ns = gpusys_deadline_after(ring->patience_ns);
    return code ? fail_session(ring, code, error) : 0;
}

static int wait_for(struct ring *ring, const struct slot *slot, struct gpusys_error *error)
{
    struct gpusys_completion completions[RING_SLOTS];
    struct ring_watch watch = ring_watch_start(ring);
    while (!slot->done) {
        int code = check_signal(error);
        if (code)
            return code;
        int count = gpusys_remote_wait(ring->remote, completions, RING_SLOTS, RING_TICK_NS);
        mark(ring, completions, count);
        progress_refresh(ring->progress);
        if (count < 0 && count != -ETIMEDOUT)
            return fail_session(ring, count, error);
        if (count > 0)
            watch = ring_watch_start(ring);
        else if ((code = ring_watch_check(ring, &watch, error)))
            return code;
    }
    return 0;
}

int ring_land(struct ring *ring, struct slot **ret_slot, struct gpusys_error *error)
{
    bool some = ring->n_busy > ring->n_landed;
    struct slot *slot = some ? &ring->slots[(ring->oldest + ring->n_landed) % RING_SLOTS] : NULL;
    int code = slot ? wait_for(ring, slot, error) : 0;
    if (code)
        return code;
    ring->n_landed += some;
    *ret_slot = slot;
    return 0;
}

void ring_release(struct ring *ring)
{
    struct slot *slot = &ring->slots[ring->oldest];
    slot->n_pieces = 0;
    slot->used = 0;
    ring->oldest = (ring->oldest + 1) % RING_SLOTS;
    ring->n_busy--;
    ring->n_landed--;
}
