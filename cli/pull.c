/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The order of things: directories, then what is there already, then the rest through the ring. Filling runs
 * ahead of landing by a ring's worth of bytes, over the ends of files.
 */
#include "pull.h"
#include "output.h"
#include "quantity.h"

#include <errno.h>

/* Below this a descriptor of its own costs more than it saves. */
static const uint64_t direct_bytes = 1 << 20;

static int make_directories(struct pull *pull, struct gpusys_error *error)
{
    int code = 0;
    for (size_t i = 0; i < pull->plan.n_entries && !code; i++)
        if (pull->plan.entries[i].kind == GPUSYS_REGION_DIRECTORY)
            code = tree_make_directory(&pull->tree, pull->plan.entries[i].name, error);
    return code;
}

/* From the deepest up: what is done in a directory changes its time. */
static int finish_directories(struct pull *pull, struct gpusys_error *error)
{
    int code = 0;
    for (size_t i = pull->plan.n_entries; i-- > 0 && !code;) {
        const struct plan_entry *entry = &pull->plan.entries[i];
        if (entry->kind == GPUSYS_REGION_DIRECTORY)
            code = tree_finish_directory(&pull->tree, entry->name, entry->mode, entry->mtime_ns, error);
    }
    return code;
}

/* Chunks on record are believed when not verifying, and hashed when verifying. */
static int resume(struct pull *pull, struct arrival *arrival, struct gpusys_error *error)
{
    struct journal *journal = &arrival->journal;
    int code = 0;
    for (uint64_t chunk = 0; journal->n_done > 0 && chunk < journal->n_chunks && !code; chunk++) {
        bool same = true;
        if (!journal->done[chunk])
            continue;
        if (pull->verify) {
            code = chunk_ask_ahead(pull, arrival, chunk, error);
            if (!code)
                code = chunk_compare(pull, arrival->entry, chunk, arrival->fd, &same, error);
            if (!code)
                code = ring_tend(&pull->ring, error);
        }
        if (!code && same) {
            pull->resumed_bytes += chunk_length(arrival->entry, chunk);
            progress_skip(&pull->progress, chunk_length(arrival->entry, chunk));
        } else if (!code) {
            journal_forget(journal, chunk);
        }
    }
    arrival->missing = journal->n_chunks - journal->n_done;
    return code;
}

/* Move next_offset over what is there already. */
static void skip_settled(struct arrival *arrival)
{
    while (arrival->next_offset < arrival->entry->length &&
           arrival_has(arrival, arrival->next_offset / GPUSYS_CHUNK_BYTES))
        arrival->next_offset += chunk_length(arrival->entry, arrival->next_offset / GPUSYS_CHUNK_BYTES);
}

/* Files of several chunks are opened before anything of them is asked for: part of them may be there. Done at
 * once: empty files, what is whole already, and what a descriptor gives. */
static int begin(struct pull *pull, struct arrival *arrival, struct gpusys_error *error)
{
    const struct plan_entry *entry = arrival->entry;
    bool direct = pull->same_host && entry->length >= direct_bytes;
    int code = 0;
    if (direct || chunk_count(entry) != 1)
        code = arrival_open(arrival, pull, error);
    if (!code && arrival->journal.fd >= 0)
        code = resume(pull, arrival, error);
    if (!code && direct && arrival->missing > 0) {
        code = direct_fetch(pull, arrival, error);
        if (code == -EOPNOTSUPP)
            code = 0; /* through the ring, then */
    }
    skip_settled(arrival);
    if (!code && arrival->missing == 0)
        code = arrival_finish(arrival, pull, error);
    return code;
}

/* Where filling and landing stand. */
struct flow {
    size_t next_entry;
    struct arrival *filling;       /* not all of it is sent for yet */
    struct arrival *oldest, *last; /* all that have pieces to land, in that order */
};

static void append(struct flow *flow, struct arrival *arrival)
{
    if (flow->oldest)
        flow->last->next = arrival;
    else
        flow->oldest = arrival;
    flow->last = flow->filling = arrival;
}

static void drop_oldest(struct flow *flow)
{
    struct arrival *arrival = flow->oldest;
    flow->oldest = arrival->next;
    arrival_free(arrival);
}

/* Find the next file that needs the ring; flow->filling stays NULL when there is none. */
static int next_arrival(struct pull *pull, struct flow *flow, struct gpusys_error *error)
{
    while (!flow->filling && flow->next_entry < pull->plan.n_entries) {
        struct arrival *arrival;
        const struct plan_entry *entry = &pull->plan.entries[flow->next_entry++];
        if (entry->kind == GPUSYS_REGION_DIRECTORY || entry->present)
            continue;
        int code = arrival_new(&arrival, entry, error);
        if (code)
            return code;
        code = begin(pull, arrival, error);
        if (!code && arrival->missing > 0)
            append(flow, arrival);
        else
            arrival_free(arrival);
        if (code)
            return code;
    }
    return 0;
}

/* A piece never crosses the end of a chunk. */
static int add_piece(struct pull *pull, struct slot *slot, struct arrival *arrival,
                     struct gpusys_error *error)
{
    const struct plan_entry *entry = arrival->entry;
    uint64_t chunk = arrival->next_offset / GPUSYS_CHUNK_BYTES;
    uint64_t left = chunk * GPUSYS_CHUNK_BYTES + chunk_length(entry, chunk) - arrival->next_offset;
    int code = chunk_ask_ahead(pull, arrival, chunk, error);
    arrival->next_offset += slot_add(slot, arrival, entry->region, arrival->next_offset, left);
    skip_settled(arrival);
    return code;
}

static int fill(struct pull *pull, struct flow *flow, struct slot *slot, struct gpusys_error *error)
{
    while (!slot_is_full(slot)) {
        int code = next_arrival(pull, flow, error);
        if (code || !flow->filling)
            return code;
        code = add_piece(pull, slot, flow->filling, error);
        if (code)
            return code;
        if (flow->filling->next_offset >= flow->filling->entry->length)
            flow->filling = NULL;
    }
    return 0;
}

static int fill_all(struct pull *pull, struct flow *flow, struct gpusys_error *error)
{
    struct slot *slot;
    while ((slot = ring_to_fill(&pull->ring))) {
        int code = fill(pull, flow, slot, error);
        if (code || slot->n_pieces == 0)
            return code;
        code = ring_submit(&pull->ring, error);
        if (code)
            return code;
    }
    return 0;
}

/* A piece was written: settle the chunk and the file that it ends. */
static int settle_piece(struct pull *pull, struct piece *piece, struct gpusys_error *error)
{
    struct arrival *arrival = piece->arrival;
    uint64_t chunk = piece->offset / GPUSYS_CHUNK_BYTES, end = piece->offset + piece->length;
    int code = piece->code ? arrival_fail(arrival, pull, piece->code, error) : 0;
    if (!code && end == chunk * GPUSYS_CHUNK_BYTES + chunk_length(arrival->entry, chunk))
        code = chunk_finish(pull, arrival, chunk, piece->hash, error);
    if (!code)
        progress_add(&pull->progress, piece->length, arrival->entry->name);
    if (!code && arrival->missing == 0)
        code = arrival_finish(arrival, pull, error);
    return code;
}

/* A batch failed as a whole: read its pieces one by one, to name the one at fault. */
static int blame(struct pull *pull, const struct slot *slot, struct gpusys_error *error)
{
    for (unsigned i = 0; i < slot->n_pieces; i++) {
        const struct piece *piece = &slot->pieces[i];
        const struct plan_entry *entry = piece->arrival->entry;
        int code = slot->n_pieces == 1 ? slot->status
                                       : gpusys_remote_read(pull->remote, entry->region, piece->offset,
                                                            piece->bytes, piece->length, pull->patience_ns);
        if (code)
            return chunk_fail(entry, code, error);
    }
    return chunk_fail(slot->pieces[0].arrival->entry, slot->status, error);
}

/* What has arrived goes to the writer, with its part files open. */
static int land(struct pull *pull, struct slot *slot, struct gpusys_error *error)
{
    int code = slot->status ? blame(pull, slot, error) : 0;
    for (unsigned i = 0; i < slot->n_pieces && !code; i++)
        if (slot->pieces[i].arrival->fd < 0)
            code = arrival_open(slot->pieces[i].arrival, pull, error);
    if (!code)
        writer_give(pull->writer, slot);
    return code;
}

static int settle(struct pull *pull, struct flow *flow, struct slot *slot, struct gpusys_error *error)
{
    int code = 0;
    writer_wait(pull->writer);
    for (unsigned i = 0; i < slot->n_pieces && !code; i++) {
        code = settle_piece(pull, &slot->pieces[i], error);
        if (!code && slot->pieces[i].arrival->missing == 0)
            drop_oldest(flow);
    }
    if (!code)
        ring_release(&pull->ring);
    return code;
}

/* One slot is written while the next is received. */
static int run_flow(struct pull *pull, struct flow *flow, struct gpusys_error *error)
{
    struct slot *writing = NULL, *slot;
    for (;;) {
        int code = fill_all(pull, flow, error);
        if (!code)
            code = ring_land(&pull->ring, &slot, error);
        if (!code && writing)
            code = settle(pull, flow, writing, error);
        if (code || (!slot && !writing))
            return code;
        writing = slot;
        code = slot ? land(pull, slot, error) : 0;
        if (code)
            return code;
    }
}

static void warn_when_tight(const struct pull *pull)
{
    char needed[QUANTITY_BYTES], available[QUANTITY_BYTES];
    uint64_t free_bytes = tree_free_bytes(&pull->tree);
    if (pull->progress.total_bytes > free_bytes)
        note("warning: %s has %s free, up to %s are to come", pull->tree.path,
             quantity_of_bytes(available, free_bytes), quantity_of_bytes(needed, pull->progress.total_bytes));
}

int pull_run(struct pull *pull, struct gpusys_error *error)
{
    struct flow flow = {0};
    int code = make_directories(pull, error);
    if (!code)
        code = present_find(pull, error);
    if (!code)
        warn_when_tight(pull);
    if (!code)
        code = run_flow(pull, &flow, error);
    writer_wait(pull->writer);
    while (flow.oldest)
        drop_oldest(&flow);
    return code ? code : finish_directories(pull, error);
}
