/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The stand-in libcuda: streams. Each is a queue, and a thread that is started with the first piece of work and ends
 * once the stream is destroyed and empty. Threads are detached and hold nothing when a process exits.
 */
#include "cuda.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- marks ---- */

struct mark *fake_mark_new(void)
{
    struct mark *mark = calloc(1, sizeof *mark);
    if (mark)
        mark->users = 1;
    return mark;
}

void fake_mark_drop(struct mark *mark)
{
    if (mark && --mark->users == 0)
        free(mark);
}

void fake_mark_wait(struct mark *mark)
{
    while (mark->left)
        pthread_cond_wait(&fake.progress, &fake.lock);
}

/* ---- the thread of a stream ---- */

static void unlink_stream(struct CUstream_st *stream)
{
    struct CUstream_st **at = &fake.streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    pthread_cond_destroy(&stream->has_work);
    free(stream);
}

static void delay(uint64_t us)
{
    const struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    if (us)
        nanosleep(&time, NULL);
}

/* Without the lock. */
static void do_work(const struct work *work, uint64_t delay_us)
{
    delay(delay_us);
    if (work->kind == WORK_COPY)
        memmove(work->to, work->from, work->bytes);
    else if (work->kind == WORK_FILL)
        memset(work->to, work->byte, work->bytes);
    else
        work->function(work->data);
}

static void do_mark(struct mark *mark)
{
    if (--mark->left == 0)
        mark->reached_ns = fake_now_ns();
}

static void finish(struct CUstream_st *stream, struct work *work)
{
    fake_mark_drop(work->mark);
    free(work);
    stream->done++;
    pthread_cond_broadcast(&fake.progress);
}

static void *run(void *argument)
{
    struct CUstream_st *stream = argument;
    fake_forbid_calls();
    pthread_mutex_lock(&fake.lock);
    for (;;) {
        while (!stream->first && !stream->is_closed)
            pthread_cond_wait(&stream->has_work, &fake.lock);
        struct work *work = stream->first;
        if (!work)
            break;
        stream->first = work->next;
        if (!work->next)
            stream->last = &stream->first;
        if (work->kind == WORK_MARK) {
            do_mark(work->mark);
        } else if (work->kind == WORK_WAIT) {
            fake_mark_wait(work->mark);
        } else {
            uint64_t delay_us = fake.config.delay_us;
            pthread_mutex_unlock(&fake.lock);
            do_work(work, delay_us);
            pthread_mutex_lock(&fake.lock);
        }
        finish(stream, work);
    }
    unlink_stream(stream);
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static bool start(struct CUstream_st *stream)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stream->has_thread = pthread_create(&thread, NULL, run, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (stream->has_thread)
        pthread_detach(thread);
    return stream->has_thread;
}

/* ---- queueing ---- */

bool fake_is_busy(const struct CUstream_st *stream)
{
    return stream->done < stream->submitted;
}

static unsigned append(struct CUstream_st *stream, const struct work *work)
{
    struct work *copy = malloc(sizeof *copy);
    if (!copy || !(stream->has_thread || start(stream))) {
        free(copy);
        return OUT_OF_MEMORY;
    }
    *copy = *work;
    copy->next = NULL;
    if (copy->mark)
        copy->mark->users++;
    if (copy->kind == WORK_MARK)
        copy->mark->left++;
    *stream->last = copy;
    stream->last = &copy->next;
    stream->submitted++;
    pthread_cond_signal(&stream->has_work);
    return 0;
}

/* Must work in the one wait for what is in the other? The default stream and blocking ones wait for each other. */
static bool is_ordered(const struct CUstream_st *one, const struct CUstream_st *other)
{
    return one != other && one->context == other->context && (one->is_default || other->is_default) &&
           !one->is_non_blocking && !other->is_non_blocking;
}

static unsigned wait_for_ordered(struct CUstream_st *stream)
{
    unsigned result = 0;
    struct mark *mark = NULL;
    for (struct CUstream_st *at = fake.streams; at && !result; at = at->next) {
        if (!is_ordered(stream, at) || !fake_is_busy(at))
            continue;
        if (!mark && !(mark = fake_mark_new()))
            return OUT_OF_MEMORY;
        result = append(at, &(struct work){.kind = WORK_MARK, .mark = mark});
    }
    if (mark && !result)
        result = append(stream, &(struct work){.kind = WORK_WAIT, .mark = mark});
    fake_mark_drop(mark);
    return result;
}

unsigned fake_submit(struct CUstream_st *stream, const struct work *work)
{
    if (stream->is_capturing) /* it becomes part of a graph, which nobody runs */
        return 0;
    unsigned result = wait_for_ordered(stream);
    return result ? result : append(stream, work);
}

/* ---- waiting ---- */

static bool has_unfinished(const struct CUstream_st *stream)
{
    bool busy = fake_is_busy(stream);
    for (const struct CUstream_st *at = fake.streams; at && stream->is_default; at = at->next)
        busy = busy || (is_ordered(stream, at) && fake_is_busy(at));
    return busy;
}

unsigned fake_drain(struct CUstream_st *stream)
{
    if (!has_unfinished(stream))
        return 0;
    struct mark *mark = fake_mark_new();
    unsigned result =
        mark ? fake_submit(stream, &(struct work){.kind = WORK_MARK, .mark = mark}) : OUT_OF_MEMORY;
    if (!result)
        fake_mark_wait(mark);
    fake_mark_drop(mark);
    return result;
}

unsigned fake_drain_context(struct CUctx_st *context)
{
    unsigned result = 0;
    struct mark *mark = fake_mark_new();
    if (!mark)
        return OUT_OF_MEMORY;
    for (struct CUstream_st *at = fake.streams; at && !result; at = at->next)
        if (at->context == context && fake_is_busy(at))
            result = append(at, &(struct work){.kind = WORK_MARK, .mark = mark});
    if (!result)
        fake_mark_wait(mark);
    fake_mark_drop(mark);
    return result;
}

/* ---- streams ---- */

struct CUstream_st *fake_stream_new(struct CUctx_st *context)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    pthread_cond_init(&stream->has_work, NULL);
    stream->context = context;
    stream->last = &stream->first;
    stream->next = fake.streams;
    fake.streams = stream;
    return stream;
}

static struct CUstream_st *default_stream(unsigned *ret_result)
{
    struct CUctx_st *context = fake_current();
    if (context && !context->default_stream && (context->default_stream = fake_stream_new(context)))
        context->default_stream->is_default = true;
    *ret_result = !context ? INVALID_CONTEXT : context->default_stream ? 0 : OUT_OF_MEMORY;
    return context ? context->default_stream : NULL;
}

struct CUstream_st *fake_stream(struct CUstream_st *stream, unsigned *ret_result)
{
    if ((uintptr_t)stream <= 2) /* the default one by its three names */
        return default_stream(ret_result);
    for (struct CUstream_st *at = fake.streams; at; at = at->next) {
        if (at == stream && !at->is_closed) {
            *ret_result = 0;
            return at;
        }
    }
    *ret_result = INVALID_HANDLE;
    return NULL;
}

static unsigned create(struct CUstream_st **stream, unsigned flags)
{
    if (flags > 1)
        return INVALID_VALUE;
    if (!fake_current())
        return INVALID_CONTEXT;
    struct CUstream_st *made = fake_stream_new(fake_current());
    if (!made)
        return OUT_OF_MEMORY;
    made->is_non_blocking = flags == 1;
    *stream = made;
    return 0;
}

unsigned cuStreamCreate(struct CUstream_st **stream, unsigned flags)
{
    ENTER;
    return fake_leave(create(stream, flags));
}

unsigned cuStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority)
{
    (void)priority;
    ENTER;
    return fake_leave(create(stream, flags));
}

unsigned cuStreamDestroy_v2(struct CUstream_st *stream)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found && found->is_default)
        result = INVALID_HANDLE;
    if (result)
        return fake_leave(result);
    found->is_closed = true;
    if (found->has_thread)
        pthread_cond_signal(&found->has_work);
    else
        unlink_stream(found);
    return fake_leave(0);
}

unsigned cuStreamQuery(struct CUstream_st *stream)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found && found->is_capturing)
        result = CAPTURE_UNSUPPORTED;
    else if (found)
        result = has_unfinished(found) ? NOT_READY : 0;
    return fake_leave(result);
}

unsigned cuStreamSynchronize(struct CUstream_st *stream)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found)
        result = found->is_capturing ? CAPTURE_UNSUPPORTED : fake_drain(found);
    return fake_leave(result);
}

unsigned cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **context)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found)
        *context = found->context;
    return fake_leave(result);
}

unsigned cuLaunchHostFunc(struct CUstream_st *stream, void (*function)(void *), void *data)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found)
        result = !function
                     ? INVALID_VALUE
                     : fake_submit(found,
                                   &(struct work){.kind = WORK_FUNCTION, .function = function, .data = data});
    return fake_leave(result);
}

/* ---- capture ---- */

unsigned cuStreamIsCapturing(struct CUstream_st *stream, unsigned *status)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found)
        *status = found->is_capturing;
    return fake_leave(result);
}

unsigned cuStreamBeginCapture_v2(struct CUstream_st *stream, unsigned mode)
{
    unsigned result;
    (void)mode;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found && found->is_default)
        result = CAPTURE_UNSUPPORTED;
    else if (found && found->is_capturing)
        result = ILLEGAL_STATE;
    else if (found)
        found->is_capturing = true;
    return fake_leave(result);
}

unsigned cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph)
{
    unsigned result;
    ENTER;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (found && !found->is_capturing)
        result = CAPTURE_UNMATCHED;
    if (result)
        return fake_leave(result);
    found->is_capturing = false;
    *graph = NULL;
    return fake_leave(0);
}
