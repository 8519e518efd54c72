/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The calls that start transfers and wait for them, over the engine. */
#include "remote/client.h"

#include "base/options.h"
#include "base/range.h"

#include <gpusys/deadline.h>

#include <errno.h>

static int check_io(const struct gpusys_remote *remote, const struct gpusys_io *io)
{
    const struct gs_listed *listed = gs_listed_at(remote, io->region);
    if (io->op > GPUSYS_OP_WRITE || (!io->buffer && io->length))
        return -EINVAL;
    if (io->memory != GPUSYS_MEMORY_HOST)
        return -EOPNOTSUPP;
    if (!listed || listed->kind == GPUSYS_REGION_DIRECTORY)
        return -ENOENT;
    if (listed->changed)
        return -ESTALE;
    if (!(listed->access & (io->op == GPUSYS_OP_WRITE ? GPUSYS_ACCESS_WRITE : GPUSYS_ACCESS_READ)))
        return -EACCES;
    return io->offset <= listed->length && io->length <= listed->length - io->offset ? 0 : -ERANGE;
}

/* The shm rail needs the region's descriptor first; verbs rails ask for its keys by themselves. */
static int prepare(struct gpusys_remote *remote, uint32_t region, int64_t deadline_ns)
{
    enum { PREPARE_MS = 10000 };
    const struct gs_lane *lane = &remote->lanes[0];
    if (remote->transport == GPUSYS_TRANSPORT_VERBS)
        return gs_verbs_expect(remote, region);
    if (!remote->shm || gs_shm_mapping(remote->shm, region))
        return 0;
    int64_t limit = gpusys_deadline_after((int64_t)PREPARE_MS * 1000000);
    return gs_remote_prepare(remote, lane, region, deadline_ns < limit ? deadline_ns : limit, NULL);
}

static int check_ios(struct gpusys_remote *remote, const struct gpusys_io *ios, size_t n_ios,
                     int64_t deadline_ns)
{
    int error = remote->dead ? -ENOTCONN : 0;
    for (size_t i = 0; i < n_ios && !error; i++)
        error = check_io(remote, &ios[i]);
    for (size_t i = 0; i < n_ios && !error; i++)
        if (ios[i].length)
            error = prepare(remote, ios[i].region, deadline_ns);
    return error;
}

/* Keep what has bytes to move. */
static void keep_ios(struct gs_batch *batch, const struct gpusys_io *ios, size_t n_ios)
{
    for (size_t i = 0; i < n_ios; i++)
        if (ios[i].length)
            batch->ios[batch->n_ios++] = ios[i];
}

int gpusys_remote_submit(struct gpusys_remote *remote, const struct gpusys_io *ios, size_t n_ios,
                         const struct gpusys_batch_options *options, uint64_t *ret_batch)
{
    struct gpusys_batch_options known;
    int error = gs_options_take(&known, sizeof known, options);
    if (error)
        return error;
    if (known.reserved || known.note_bytes > GPUSYS_NOTE_BYTES || (known.note_bytes && !known.note))
        return -EINVAL;
    if (known.note_bytes && remote->is_silent)
        return -EOPNOTSUPP;
    int64_t deadline = known.timeout_ns ? gpusys_deadline_after(known.timeout_ns) : GPUSYS_NO_DEADLINE;
    error = check_ios(remote, ios, n_ios, deadline);
    if (error)
        return error;
    struct gs_batch *batch = gs_engine_batch(remote, n_ios);
    if (!batch)
        return -ENOMEM;
    batch->id = ++remote->last_batch;
    batch->user = known.user;
    batch->deadline_ns = deadline;
    batch->note_bytes = (uint16_t)known.note_bytes;
    if (known.note_bytes)
        memcpy(batch->note, known.note, known.note_bytes);
    keep_ios(batch, ios, n_ios);
    if (ret_batch)
        *ret_batch = batch->id;
    gs_engine_begin(remote, batch);
    return 0;
}

static void give(struct gpusys_remote *remote, struct gs_batch *batch,
                 struct gpusys_completion *ret_completion)
{
    *ret_completion = (struct gpusys_completion){.batch = batch->id,
                                                 .user = batch->user,
                                                 .bytes = batch->bytes,
                                                 .status = batch->status,
                                                 .flags = batch->flags};
    gs_engine_free(remote, batch);
}

static int take_done(struct gpusys_remote *remote, struct gpusys_completion *ret_completions, unsigned max)
{
    unsigned count = 0;
    while (remote->first_done && count < max) {
        struct gs_batch *batch = remote->first_done;
        if (!(remote->first_done = batch->next))
            remote->last_done = &remote->first_done;
        give(remote, batch, &ret_completions[count++]);
    }
    if (count)
        gs_engine_signal(remote);
    return (int)count;
}

int gpusys_remote_poll(struct gpusys_remote *remote, struct gpusys_completion *ret_completions, unsigned max)
{
    if (!remote->dead)
        gs_engine_turn(remote, 0);
    int count = take_done(remote, ret_completions, max);
    return count == 0 && remote->dead ? -ENOTCONN : count;
}

int gpusys_remote_wait(struct gpusys_remote *remote, struct gpusys_completion *ret_completions, unsigned max,
                       int64_t timeout_ns)
{
    int64_t deadline = gpusys_deadline_after(timeout_ns);
    int error = 0;
    while (!remote->first_done && !error) {
        if (remote->dead)
            return -ENOTCONN;
        if (!remote->oldest)
            return -ENOENT;
        error = gs_engine_turn(remote, deadline);
    }
    int count = take_done(remote, ret_completions, max);
    return count ? count : remote->dead ? -ENOTCONN : error;
}

/* Take one particular batch out of those that are done. */
static bool take_batch(struct gpusys_remote *remote, uint64_t id, struct gpusys_completion *ret_completion)
{
    struct gs_batch **link = &remote->first_done;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    struct gs_batch *batch = *link;
    if (!batch)
        return false;
    *link = batch->next;
    if (!batch->next)
        remote->last_done = link;
    give(remote, batch, ret_completion);
    gs_engine_signal(remote);
    return true;
}

static bool is_under_way(const struct gpusys_remote *remote, uint64_t id)
{
    const struct gs_batch *batch = remote->newest;
    while (batch && batch->id != id)
        batch = batch->older;
    return batch;
}

int gpusys_remote_wait_batch(struct gpusys_remote *remote, uint64_t batch,
                             struct gpusys_completion *ret_completion, int64_t timeout_ns)
{
    int64_t deadline = gpusys_deadline_after(timeout_ns);
    int error = 0;
    for (;;) {
        if (take_batch(remote, batch, ret_completion))
            return 0;
        if (error)
            return error;
        if (!is_under_way(remote, batch))
            return -ENOENT;
        error = gs_engine_turn(remote, deadline);
        if (remote->dead)
            error = -ENOTCONN;
    }
}

/* ---- one read, one write ---- */

static int move(struct gpusys_remote *remote, const struct gpusys_io *io, int64_t timeout_ns)
{
    struct gpusys_batch_options options = {.size = sizeof options,
                                           .timeout_ns = timeout_ns == 0 ? 1 : timeout_ns};
    struct gpusys_completion completion;
    uint64_t batch;
    int error = gpusys_remote_submit(remote, io, 1, &options, &batch);
    if (!error)
        error = gpusys_remote_wait_batch(remote, batch, &completion, -1);
    return error ? error : completion.status;
}

/* Remember the region when all of it is faulted in, and nobody wants to see its reads and writes. */
static void heat(struct gpusys_remote *remote, uint32_t region)
{
    if (gs_range_ops)
        return;
    struct gs_mapping *mapping = remote->shm && !remote->dead ? gs_shm_mapping(remote->shm, region) : NULL;
    if (!mapping || !gs_shm_is_ready(mapping, 0, mapping->length))
        return;
    remote->hot = (struct gs_hot){
        .bytes = mapping->length, .base = mapping->base, .region = region, .writable = mapping->writable};
}

/* The way without the hot entry: a mapping whose bytes can be touched at once, or the engine. */
static int move_slowly(struct gpusys_remote *remote, uint8_t op, uint32_t region, uint64_t offset,
                       void *buffer, uint64_t length, int64_t timeout_ns)
{
    struct gs_mapping *mapping = remote->shm && !remote->dead ? gs_shm_mapping(remote->shm, region) : NULL;
    if (mapping && offset <= mapping->length && length <= mapping->length - offset &&
        gs_shm_is_ready(mapping, offset, length)) {
        heat(remote, region);
        void *range = gs_range_start(op == GPUSYS_OP_READ ? "read" : "write", length);
        int error = gs_shm_copy(mapping, op, offset, buffer, (size_t)length);
        gs_range_end(range);
        return error;
    }
    struct gpusys_io io = {.op = op, .region = region, .offset = offset, .buffer = buffer, .length = length};
    return move(remote, &io, timeout_ns);
}

/* With the arguments of the calls below, so that those can jump here and need no frame of their own. */
__attribute__((noinline)) static int read_slowly(struct gpusys_remote *remote, uint32_t region,
                                                 uint64_t offset, void *buffer, uint64_t length,
                                                 int64_t timeout_ns)
{
    return move_slowly(remote, GPUSYS_OP_READ, region, offset, buffer, length, timeout_ns);
}

__attribute__((noinline)) static int write_slowly(struct gpusys_remote *remote, uint32_t region,
                                                  uint64_t offset, const void *buffer, uint64_t length,
                                                  int64_t timeout_ns)
{
    return move_slowly(remote, GPUSYS_OP_WRITE, region, offset, (void *)(uintptr_t)buffer, length,
                       timeout_ns);
}

static inline bool is_hot(const struct gpusys_remote *remote, uint32_t region, uint64_t offset,
                          uint64_t length)
{
    const struct gs_hot *hot = &remote->hot;
    return region == hot->region && offset < hot->bytes && length - 1 < hot->bytes - offset;
}

/* Word by word where a call of memcpy would cost more than the bytes. */
static inline void copy(void *to, const void *from, uint64_t length)
{
    if (length == 8)
        memcpy(to, from, 8);
    else if (length == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, (size_t)length);
}

int gpusys_remote_read(struct gpusys_remote *remote, uint32_t region, uint64_t offset, void *buffer,
                       uint64_t length, int64_t timeout_ns)
{
    if (__builtin_expect(!is_hot(remote, region, offset, length), 0))
        return read_slowly(remote, region, offset, buffer, length, timeout_ns);
    copy(buffer, remote->hot.base + offset, length);
    return 0;
}

int gpusys_remote_write(struct gpusys_remote *remote, uint32_t region, uint64_t offset, const void *buffer,
                        uint64_t length, int64_t timeout_ns)
{
    if (__builtin_expect(!remote->hot.writable || !is_hot(remote, region, offset, length), 0))
        return write_slowly(remote, region, offset, buffer, length, timeout_ns);
    copy(remote->hot.base + offset, buffer, length);
    return 0;
}
