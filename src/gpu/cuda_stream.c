/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Streams and events, and waiting for them until a time. */
#include "base/pause.h"
#include "gpu/cuda.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdbool.h>

int gpusys_cuda_stream_open(struct gpusys_cuda *cuda, struct CUstream_st **ret_stream,
                            struct gpusys_error *error)
{
    struct CUstream_st *stream = NULL;
    unsigned result = GS_CUDA_CALL(cuda, stream_create, &stream, GS_CUDA_STREAM_NON_BLOCKING);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: a new stream", cuda->device);
    *ret_stream = stream;
    return 0;
}

void gpusys_cuda_stream_close(struct gpusys_cuda *cuda, struct CUstream_st *stream)
{
    if (stream)
        gs_cuda_warn(GS_CUDA_CALL(cuda, stream_destroy, stream), "closing a stream");
}

int gpusys_cuda_stream_after(struct gpusys_cuda *cuda, struct CUstream_st *stream, struct CUevent_st *event,
                             struct gpusys_error *error)
{
    unsigned result = GS_CUDA_CALL(cuda, stream_after, stream, event, 0);
    return result ? gs_cuda_fail(error, result, "GPU %u: ordering a stream after an event", cuda->device) : 0;
}

int gs_cuda_is_capturing(struct gpusys_cuda *cuda, struct CUstream_st *stream, struct gpusys_error *error)
{
    unsigned status = 0, result = 0;
    if (cuda->driver->stream_capturing)
        result = GS_CUDA_CALL(cuda, stream_capturing, stream, &status);
    return result ? gs_cuda_fail(error, result, "GPU %u: is a stream captured", cuda->device) : status != 0;
}

int gpusys_cuda_event_open(struct gpusys_cuda *cuda, struct CUevent_st **ret_event,
                           struct gpusys_error *error)
{
    struct CUevent_st *event = NULL;
    unsigned result = GS_CUDA_CALL(cuda, event_create, &event, GS_CUDA_EVENT_DISABLE_TIMING);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: a new event", cuda->device);
    *ret_event = event;
    return 0;
}

void gpusys_cuda_event_close(struct gpusys_cuda *cuda, struct CUevent_st *event)
{
    if (event)
        gs_cuda_warn(GS_CUDA_CALL(cuda, event_destroy, event), "closing an event");
}

int gpusys_cuda_event_record(struct gpusys_cuda *cuda, struct CUevent_st *event, struct CUstream_st *stream,
                             struct gpusys_error *error)
{
    unsigned result = GS_CUDA_CALL(cuda, event_record, event, stream);
    return result ? gs_cuda_fail(error, result, "GPU %u: recording an event", cuda->device) : 0;
}

/* ---- is it done, and when will it be ---- */

/* What is waited for. */
struct work {
    const struct gpusys_cuda *cuda;
    const char *name;
    struct CUstream_st *stream;
    struct CUevent_st *event;
    bool is_event;
};

static unsigned query(const struct work *work)
{
    const struct gs_cuda *driver = work->cuda->driver;
    return work->is_event ? driver->event_query(work->event) : driver->stream_query(work->stream);
}

static unsigned wait_forever(const struct work *work)
{
    const struct gs_cuda *driver = work->cuda->driver;
    return work->is_event ? driver->event_wait(work->event) : driver->stream_wait(work->stream);
}

static unsigned wait_until(const struct work *work, int64_t deadline_ns)
{
    struct gs_pause pause = gs_pause_start();
    unsigned result;
    while ((result = query(work)) == GS_CUDA_NOT_READY)
        if (!gs_pause_once(&pause, deadline_ns))
            break;
    return result;
}

static int wait_for(const struct work *work, int64_t timeout_ns, struct gpusys_error *error)
{
    int64_t deadline_ns = gpusys_deadline_after(timeout_ns);
    unsigned result = gs_cuda_enter(work->cuda);
    if (!result)
        result =
            gs_cuda_leave(work->cuda, timeout_ns < 0 ? wait_forever(work) : wait_until(work, deadline_ns));
    if (!result)
        return 0;
    if (result != GS_CUDA_NOT_READY)
        return gs_cuda_fail(error, result, "GPU %u: waiting for %s", work->cuda->device, work->name);
    gpusys_error_set(error, -ETIMEDOUT, "GPU %u: %s is not done after %.3f s", work->cuda->device, work->name,
                     (double)timeout_ns / 1e9);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_CUDA, GS_CUDA_NOT_READY);
    gpusys_error_set_hint(error, "give it more time; or it waits for something that does not come, as "
                                 "collectives do for a rank that is gone");
    return -ETIMEDOUT;
}

static int ask(const struct work *work, struct gpusys_error *error)
{
    unsigned result = gs_cuda_enter(work->cuda);
    if (!result)
        result = gs_cuda_leave(work->cuda, query(work));
    return result ? gs_cuda_fail(error, result, "GPU %u: %s", work->cuda->device, work->name) : 0;
}

static struct work of_stream(const struct gpusys_cuda *cuda, struct CUstream_st *stream)
{
    return (struct work){
        .cuda = cuda, .name = stream ? "the stream" : "the default stream", .stream = stream};
}

static struct work of_event(const struct gpusys_cuda *cuda, struct CUevent_st *event)
{
    return (struct work){.cuda = cuda, .name = "the event", .event = event, .is_event = true};
}

int gpusys_cuda_stream_query(struct gpusys_cuda *cuda, struct CUstream_st *stream, struct gpusys_error *error)
{
    const struct work work = of_stream(cuda, stream);
    return ask(&work, error);
}

int gpusys_cuda_stream_wait(struct gpusys_cuda *cuda, struct CUstream_st *stream, int64_t timeout_ns,
                            struct gpusys_error *error)
{
    const struct work work = of_stream(cuda, stream);
    return timeout_ns ? wait_for(&work, timeout_ns, error) : ask(&work, error);
}

int gpusys_cuda_event_query(struct gpusys_cuda *cuda, struct CUevent_st *event, struct gpusys_error *error)
{
    const struct work work = of_event(cuda, event);
    return ask(&work, error);
}

int gpusys_cuda_event_wait(struct gpusys_cuda *cuda, struct CUevent_st *event, int64_t timeout_ns,
                           struct gpusys_error *error)
{
    const struct work work = of_event(cuda, event);
    return timeout_ns ? wait_for(&work, timeout_ns, error) : ask(&work, error);
}
