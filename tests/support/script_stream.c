/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "support/script_stream.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAULT_BYTES = 200, TRACE_BYTES = 4096 };

struct script {
    struct script_step *steps;
    size_t n_steps, write_limit;
    unsigned char *written;
    size_t n_written, early_writes, early_reads;
    bool closed;
    char fault[FAULT_BYTES], trace[TRACE_BYTES];
    size_t trace_end;     /* where the newest entry of the trace starts */
    char trace_direction; /* its letter */
    size_t trace_bytes;   /* and its count */
};

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

GPUSYS_PRINTF(2, 3)
static void set_fault(struct script *script, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!script->fault[0])
        vsnprintf(script->fault, sizeof script->fault, format, arguments);
    va_end(arguments);
}

static void add_trace(struct script *script, char direction, size_t count)
{
    if (direction != script->trace_direction) {
        script->trace_end += strlen(script->trace + script->trace_end);
        script->trace_direction = direction;
        script->trace_bytes = 0;
    }
    script->trace_bytes += count;
    if (script->trace_end < TRACE_BYTES)
        snprintf(script->trace + script->trace_end, TRACE_BYTES - script->trace_end, "%s%c%zu",
                 script->trace_end ? " " : "", direction, script->trace_bytes);
}

static bool is_writing(const struct script_step *step)
{
    return step->kind == SCRIPT_STEP_EXPECT || step->kind == SCRIPT_STEP_ANY ||
           step->kind >= SCRIPT_STEP_WRITE_AGAIN;
}

/* Steps that count something are used up at zero; the others stay for ever. */
static bool is_used_up(const struct script_step *step)
{
    bool counts = step->kind <= SCRIPT_STEP_AGAIN || step->kind == SCRIPT_STEP_WRITE_AGAIN;
    return counts && step->size == 0;
}

static int wait_in_vain(struct script *script, int64_t deadline_ns, const char *for_what)
{
    if (deadline_ns == GPUSYS_NO_DEADLINE) {
        set_fault(script, "the client waits for ever %s", for_what);
        return -EDEADLK;
    }
    return deadline_ns <= gpusys_now_ns() ? -EAGAIN : -ETIMEDOUT;
}

static struct script_step *next_step(struct script *script)
{
    for (size_t i = 0; i < script->n_steps; i++)
        if (!is_used_up(&script->steps[i]))
            return &script->steps[i];
    return NULL;
}

static size_t give(struct script *script, struct script_step *step, void *buffer, size_t size)
{
    if (step->kind == SCRIPT_STEP_DRIP && size > 1)
        size = 1;
    if (size > step->size)
        size = step->size;
    memcpy(buffer, step->bytes, size);
    step->bytes = (const char *)step->bytes + size;
    step->size -= size;
    add_trace(script, 'r', size);
    return size;
}

static int script_read(void *context, void *buffer, size_t size, int64_t deadline_ns, size_t *count)
{
    struct script *script = context;
    struct script_step *step = next_step(script);
    if (step && is_writing(step))
        script->early_reads++;
    if (!step || is_writing(step) || step->kind == SCRIPT_STEP_STALL)
        return wait_in_vain(script, deadline_ns, "to read");
    if (step->kind == SCRIPT_STEP_FAIL)
        return step->error;
    if (step->kind == SCRIPT_STEP_AGAIN) {
        step->size = 0;
        return -EAGAIN;
    }
    *count = step->kind == SCRIPT_STEP_END ? 0 : give(script, step, buffer, size);
    return 0;
}

/* The step that the next byte written belongs to, and whether bytes to read come before it. */
static struct script_step *next_writing(struct script *script, bool *early)
{
    *early = false;
    for (size_t i = 0; i < script->n_steps; i++) {
        struct script_step *step = &script->steps[i];
        if (is_used_up(step))
            continue;
        if (is_writing(step))
            return step;
        *early |= step->kind == SCRIPT_STEP_GIVE || step->kind == SCRIPT_STEP_DRIP;
    }
    return NULL;
}

static void check_bytes(struct script *script, const struct script_step *step, const unsigned char *bytes,
                        size_t size)
{
    const unsigned char *expected = step->bytes;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != expected[i]) {
            set_fault(script, "byte %zu of what was written is 0x%02x instead of 0x%02x",
                      script->n_written + i, bytes[i], expected[i]);
            return;
        }
}

static void keep(struct script *script, const void *bytes, size_t size)
{
    script->written = must(realloc(script->written, script->n_written + size));
    memcpy(script->written + script->n_written, bytes, size);
    script->n_written += size;
    add_trace(script, 'w', size);
}

/* Take bytes for one step. How many, 0 when the script lets no more through, or what write returns. */
static ssize_t take(struct script *script, const unsigned char *bytes, size_t size, int64_t deadline_ns)
{
    bool early;
    struct script_step *step = next_writing(script, &early);
    if (!step) {
        set_fault(script, "%zu bytes were written where none were expected, after %zu", size,
                  script->n_written);
        keep(script, bytes, size);
        return -EPIPE;
    }
    if (step->kind == SCRIPT_STEP_WRITE_FAIL)
        return step->error;
    if (step->kind == SCRIPT_STEP_WRITE_STALL)
        return wait_in_vain(script, deadline_ns, "to write");
    if (step->kind == SCRIPT_STEP_WRITE_AGAIN) {
        step->size = 0;
        return -EAGAIN;
    }
    if (size > step->size)
        size = step->size;
    if (step->kind == SCRIPT_STEP_EXPECT) {
        check_bytes(script, step, bytes, size);
        step->bytes = (const char *)step->bytes + size;
    }
    keep(script, bytes, size);
    step->size -= size;
    script->early_writes += early ? size : 0;
    return script->fault[0] ? -EPROTO : (ssize_t)size;
}

/* As a socket does: what comes before trouble counts, and the trouble is the next call's. */
static bool must_stop(struct script *script, size_t done)
{
    bool early;
    const struct script_step *step = next_writing(script, &early);
    return done > 0 && (done == script->write_limit || (step && step->kind >= SCRIPT_STEP_WRITE_AGAIN));
}

static bool is_empty(const struct iovec *iov, int n_iov)
{
    for (int i = 0; i < n_iov; i++)
        if (iov[i].iov_len)
            return false;
    return true;
}

static int script_write(void *context, const struct iovec *iov, int n_iov, int64_t deadline_ns, size_t *count)
{
    struct script *script = context;
    size_t done = 0, at = 0;
    if (is_empty(iov, n_iov))
        set_fault(script, "a write of no bytes, after %zu", script->n_written);
    for (int i = 0; i < n_iov && !must_stop(script, done);) {
        size_t size = iov[i].iov_len - at;
        if (script->write_limit && size > script->write_limit - done)
            size = script->write_limit - done;
        ssize_t taken =
            size ? take(script, (const unsigned char *)iov[i].iov_base + at, size, deadline_ns) : 0;
        if (taken < 0)
            return (int)taken;
        at += (size_t)taken;
        done += (size_t)taken;
        if (at == iov[i].iov_len) {
            at = 0;
            i++;
        }
    }
    *count = done;
    return 0;
}

static void script_close(void *context)
{
    ((struct script *)context)->closed = true;
}

static const struct gpusys_stream_ops script_ops = {
    .size = sizeof script_ops, .read = script_read, .write = script_write, .close = script_close};

struct script *script_new(const struct script_step *steps, size_t n_steps)
{
    struct script *script = must(calloc(1, sizeof *script));
    script->steps = must(calloc(n_steps + 1, sizeof *steps));
    memcpy(script->steps, steps, n_steps * sizeof *steps);
    script->n_steps = n_steps;
    return script;
}

void script_free(struct script *script)
{
    if (!script)
        return;
    free(script->steps);
    free(script->written);
    free(script);
}

struct gpusys_stream *script_open(struct script *script)
{
    struct gpusys_stream *stream = NULL;
    if (gpusys_stream_new(&stream, &script_ops, script, "the script"))
        abort();
    return stream;
}

void script_limit_writes(struct script *script, size_t limit)
{
    script->write_limit = limit;
}

const char *script_fault(const struct script *script)
{
    return script->fault[0] ? script->fault : NULL;
}

bool script_done(const struct script *script)
{
    for (size_t i = 0; i < script->n_steps; i++)
        if (script->steps[i].kind <= SCRIPT_STEP_AGAIN && !is_used_up(&script->steps[i]))
            return false;
    return true;
}

bool script_closed(const struct script *script)
{
    return script->closed;
}

size_t script_written(const struct script *script, const unsigned char **ret_bytes)
{
    *ret_bytes = script->written;
    return script->n_written;
}

size_t script_early_writes(const struct script *script)
{
    return script->early_writes;
}

size_t script_early_reads(const struct script *script)
{
    return script->early_reads;
}

const char *script_trace(const struct script *script)
{
    return script->trace;
}
