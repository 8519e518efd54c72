/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: events. */
#include "cuda.h"

#include <stdlib.h>

enum { DISABLE_TIMING = 2, ALL_FLAGS = 7 };

static struct CUevent_st **find(const struct CUevent_st *event)
{
    struct CUevent_st **at = &fake.events;
    while (*at && *at != event)
        at = &(*at)->next;
    return at;
}

static bool is_event(const struct CUevent_st *event)
{
    return event && *find(event);
}

unsigned cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    ENTER;
    if (flags > ALL_FLAGS)
        return fake_leave(INVALID_VALUE);
    if (!fake_current())
        return fake_leave(INVALID_CONTEXT);
    struct CUevent_st *made = calloc(1, sizeof *made);
    if (!made)
        return fake_leave(OUT_OF_MEMORY);
    *made = (struct CUevent_st){.context = fake_current(), .next = fake.events, .flags = flags};
    fake.events = made;
    *event = made;
    return fake_leave(0);
}

unsigned cuEventDestroy_v2(struct CUevent_st *event)
{
    ENTER;
    if (!is_event(event))
        return fake_leave(INVALID_HANDLE);
    *find(event) = event->next;
    fake_mark_drop(event->mark);
    free(event);
    return fake_leave(0);
}

static unsigned record(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct mark *mark = fake_mark_new();
    unsigned result =
        mark ? fake_submit(stream, &(struct work){.kind = WORK_MARK, .mark = mark}) : OUT_OF_MEMORY;
    if (result) {
        fake_mark_drop(mark);
        return result;
    }
    fake_mark_drop(event->mark);
    event->mark = mark;
    return 0;
}

unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (!result && (!is_event(event) || event->context != found->context))
        result = INVALID_HANDLE;
    return fake_leave(result ? result : record(event, found));
}

static bool is_pending(const struct CUevent_st *event)
{
    return event->mark && event->mark->left;
}

unsigned cuEventQuery(struct CUevent_st *event)
{
    ENTER;
    if (!is_event(event))
        return fake_leave(INVALID_HANDLE);
    return fake_leave(is_pending(event) ? NOT_READY : 0);
}

unsigned cuEventSynchronize(struct CUevent_st *event)
{
    ENTER;
    if (!is_event(event))
        return fake_leave(INVALID_HANDLE);
    if (is_pending(event)) {
        struct mark *mark = event->mark; /* the event may be recorded anew, or destroyed */
        mark->users++;
        fake_mark_wait(mark);
        fake_mark_drop(mark);
    }
    return fake_leave(0);
}

unsigned cuEventElapsedTime(float *milliseconds, struct CUevent_st *start, struct CUevent_st *end)
{
    ENTER;
    if (!is_event(start) || !is_event(end) || !start->mark || !end->mark ||
        ((start->flags | end->flags) & DISABLE_TIMING))
        return fake_leave(INVALID_HANDLE);
    if (is_pending(start) || is_pending(end))
        return fake_leave(NOT_READY);
    *milliseconds = (float)((double)(int64_t)(end->mark->reached_ns - start->mark->reached_ns) / 1e6);
    return fake_leave(0);
}

unsigned cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (!result && !is_event(event))
        result = INVALID_HANDLE;
    else if (!result && flags > 1)
        result = INVALID_VALUE;
    else if (!result && is_pending(event))
        result = fake_submit(found, &(struct work){.kind = WORK_WAIT, .mark = event->mark});
    return fake_leave(result);
}
