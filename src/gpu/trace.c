/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The ring of the last submissions. One mutex: taken for some tens of nanoseconds, or for the copy of a dump. */
#include "gpu/trace.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_ENTRIES = 1024, MAX_ENTRIES = 1 << 24, MAX_STREAMS = 64 };

/* What is known of one stream. Counts hold also for submissions that the ring has forgotten. */
struct stream {
    struct CUstream_st *handle;
    uint64_t last;                     /* its last submission */
    uint64_t through;                  /* all up to here are marked */
    uint64_t submitted, submitted_all; /* collectives; with sends and receives */
    uint64_t completed, completed_all;
};

struct gs_trace {
    pthread_mutex_t lock;
    uint64_t last, collectives; /* sequences given so far */
    uint64_t mask;              /* of a sequence: where it is in the ring */
    uint32_t n_streams, recent; /* `recent`: the stream of the last submission */
    struct stream streams[MAX_STREAMS];
    struct gs_submission ring[];
};

int gs_trace_new(struct gs_trace **ret_trace, uint32_t entries)
{
    uint32_t rounded = 1;
    if (!entries)
        entries = DEFAULT_ENTRIES;
    if (entries > MAX_ENTRIES)
        return -EINVAL;
    while (rounded < entries)
        rounded *= 2;
    struct gs_trace *trace = calloc(1, sizeof *trace + rounded * sizeof trace->ring[0]);
    if (!trace)
        return -ENOMEM;
    int error = pthread_mutex_init(&trace->lock, NULL);
    if (error) {
        free(trace);
        return -error;
    }
    trace->mask = rounded - 1;
    *ret_trace = trace;
    return 0;
}

void gs_trace_free(struct gs_trace *trace)
{
    if (!trace)
        return;
    pthread_mutex_destroy(&trace->lock);
    free(trace);
}

/* The number of a stream; n_streams: it is not among them. */
static uint32_t find_stream(const struct gs_trace *trace, const struct CUstream_st *handle)
{
    uint32_t at = 0;
    while (at < trace->n_streams && trace->streams[at].handle != handle)
        at++;
    return at;
}

static uint32_t take_stream(struct gs_trace *trace, struct CUstream_st *handle)
{
    if (trace->n_streams && trace->streams[trace->recent].handle == handle)
        return trace->recent;
    uint32_t at = find_stream(trace, handle);
    if (at == MAX_STREAMS)
        return GS_TRACE_OTHER_STREAM;
    if (at == trace->n_streams)
        trace->streams[trace->n_streams++].handle = handle;
    return trace->recent = at;
}

/* The sequence of the oldest that the ring holds; one more than the last when it holds nothing. */
static uint64_t oldest(const struct gs_trace *trace)
{
    return trace->last > trace->mask ? trace->last - trace->mask : 1;
}

uint64_t gs_trace_add(struct gs_trace *trace, const struct gs_submission *submission,
                      struct CUstream_st *handle)
{
    bool collective = submission->function != GS_SEND && submission->function != GS_RECV;
    pthread_mutex_lock(&trace->lock);
    uint64_t sequence = ++trace->last;
    struct gs_submission *entry = &trace->ring[sequence & trace->mask];
    *entry = *submission;
    entry->sequence = sequence;
    entry->collective = collective ? ++trace->collectives : 0;
    entry->submitted_ns = gpusys_now_ns();
    entry->completed_ns = 0;
    entry->stream = take_stream(trace, handle);
    if (entry->stream != GS_TRACE_OTHER_STREAM) {
        struct stream *stream = &trace->streams[entry->stream];
        stream->last = sequence;
        stream->submitted += collective;
        stream->submitted_all++;
    }
    pthread_mutex_unlock(&trace->lock);
    return sequence;
}

/* What of the stream came after `sequence` is not through; all of that is in the ring still. */
static void count_completed(struct gs_trace *trace, uint32_t number, uint64_t sequence)
{
    struct stream *stream = &trace->streams[number];
    uint64_t later = 0, later_all = 0;
    for (uint64_t at = sequence + 1; at <= stream->last; at++) {
        const struct gs_submission *entry = &trace->ring[at & trace->mask];
        later_all += entry->stream == number;
        later += entry->stream == number && entry->collective;
    }
    stream->completed = stream->submitted - later;
    stream->completed_all = stream->submitted_all - later_all;
}

static void mark(struct gs_trace *trace, uint32_t number, uint64_t sequence)
{
    struct stream *stream = &trace->streams[number];
    uint64_t first = oldest(trace), at = stream->through + 1;
    int64_t now = gpusys_now_ns();
    for (at = at > first ? at : first; at <= sequence; at++) {
        struct gs_submission *entry = &trace->ring[at & trace->mask];
        if (entry->stream == number)
            entry->completed_ns = now;
    }
    stream->through = sequence;
    if (sequence + 1 >= first)
        count_completed(trace, number, sequence);
}

void gs_trace_complete(struct gs_trace *trace, struct CUstream_st *handle, uint64_t sequence)
{
    pthread_mutex_lock(&trace->lock);
    uint32_t number = find_stream(trace, handle);
    if (sequence > trace->last)
        sequence = trace->last;
    if (number < trace->n_streams && sequence > trace->streams[number].through)
        mark(trace, number, sequence);
    pthread_mutex_unlock(&trace->lock);
}

uint64_t gs_trace_last(struct gs_trace *trace)
{
    pthread_mutex_lock(&trace->lock);
    uint64_t last = trace->last;
    pthread_mutex_unlock(&trace->lock);
    return last;
}

uint64_t gs_trace_completed(struct gs_trace *trace)
{
    uint64_t completed = 0;
    pthread_mutex_lock(&trace->lock);
    for (uint32_t i = 0; i < trace->n_streams; i++)
        completed += trace->streams[i].completed_all;
    pthread_mutex_unlock(&trace->lock);
    return completed;
}

/* The last collectives, written from the end of `records` to the front; how many. */
static uint32_t last_records(const struct gs_trace *trace, struct gs_record records[GS_PARTY_RECORDS])
{
    uint32_t n = 0;
    for (uint64_t at = trace->last; at >= oldest(trace) && n < GS_PARTY_RECORDS; at--) {
        const struct gs_submission *entry = &trace->ring[at & trace->mask];
        if (entry->collective)
            records[GS_PARTY_RECORDS - ++n] = (struct gs_record){
                .sequence = entry->collective,
                .count = entry->count,
                .function = entry->function,
                .type = entry->type,
                .op = entry->op,
                .root = entry->root,
            };
    }
    return n;
}

void gs_trace_report(struct gs_trace *trace, struct gs_report *ret_report)
{
    memset(ret_report, 0, sizeof *ret_report);
    pthread_mutex_lock(&trace->lock);
    ret_report->submitted = trace->collectives;
    for (uint32_t i = 0; i < trace->n_streams; i++)
        ret_report->completed += trace->streams[i].completed;
    ret_report->n_records = last_records(trace, ret_report->records);
    pthread_mutex_unlock(&trace->lock);
    uint32_t empty = GS_PARTY_RECORDS - ret_report->n_records;
    memmove(ret_report->records, ret_report->records + empty,
            ret_report->n_records * sizeof ret_report->records[0]);
    memset(ret_report->records + ret_report->n_records, 0, empty * sizeof ret_report->records[0]);
}

int gs_trace_copy(struct gs_trace *trace, struct gs_submission **ret_entries, uint64_t *ret_kept,
                  uint64_t *ret_submitted)
{
    uint64_t kept = 0;
    struct gs_submission *entries = malloc((trace->mask + 1) * sizeof *entries);
    if (!entries)
        return -ENOMEM;
    pthread_mutex_lock(&trace->lock);
    for (uint64_t at = oldest(trace); at <= trace->last; at++)
        entries[kept++] = trace->ring[at & trace->mask];
    *ret_submitted = trace->last;
    pthread_mutex_unlock(&trace->lock);
    *ret_entries = entries;
    *ret_kept = kept;
    return 0;
}
