/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: contexts, and each thread's stack of current ones. */
#include "cuda.h"

#include <stdlib.h>

static _Thread_local struct {
    struct CUctx_st *stack[32];
    unsigned depth;
} current;

struct CUctx_st *fake_current(void)
{
    return current.depth ? current.stack[current.depth - 1] : NULL;
}

unsigned fake_cuda_depth(void)
{
    return current.depth;
}

bool fake_is_context(const struct CUctx_st *context)
{
    for (int i = 0; i < DEVICES; i++)
        if (context == &fake.primaries[i])
            return context->retained > 0;
    for (const struct CUctx_st *at = fake.contexts; at; at = at->next)
        if (at == context)
            return true;
    return false;
}

static bool is_device(int device)
{
    return device >= 0 && device < fake.config.n_devices;
}

unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    ENTER;
    if (!is_device(device))
        return fake_leave(INVALID_DEVICE);
    fake.primaries[device].device = device;
    fake.primaries[device].retained++;
    *context = &fake.primaries[device];
    return fake_leave(0);
}

/* Unlike the driver's this leaves what is in it, so that it can be counted. */
static unsigned release(int device)
{
    if (!is_device(device))
        return INVALID_DEVICE;
    if (!fake.primaries[device].retained)
        return INVALID_CONTEXT;
    fake.primaries[device].retained--;
    return 0;
}

unsigned cuDevicePrimaryCtxRelease(int device)
{
    ENTER;
    return fake_leave(release(device));
}

unsigned cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER;
    return fake_leave(release(device));
}

unsigned cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    ENTER;
    if (!is_device(device))
        return fake_leave(INVALID_DEVICE);
    *flags = 0;
    *active = fake.primaries[device].retained > 0;
    return fake_leave(0);
}

static unsigned push(struct CUctx_st *context)
{
    if (!fake_is_context(context))
        return INVALID_CONTEXT;
    if (current.depth == sizeof current.stack / sizeof current.stack[0])
        return INVALID_VALUE;
    current.stack[current.depth++] = context;
    return 0;
}

unsigned cuCtxCreate_v2(struct CUctx_st **context, unsigned flags, int device)
{
    (void)flags;
    ENTER;
    struct CUctx_st *made = is_device(device) ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return fake_leave(is_device(device) ? OUT_OF_MEMORY : INVALID_DEVICE);
    made->device = device;
    made->next = fake.contexts;
    fake.contexts = made;
    *context = made;
    return fake_leave(push(made));
}

unsigned cuCtxDestroy_v2(struct CUctx_st *context)
{
    ENTER;
    for (struct CUctx_st **at = &fake.contexts; *at; at = &(*at)->next) {
        if (*at != context)
            continue;
        fake_drain_context(context);
        *at = context->next;
        if (fake_current() == context)
            current.depth--;
        return fake_leave(0); /* streams and memory may name it still: it stays */
    }
    return fake_leave(INVALID_CONTEXT);
}

unsigned cuCtxPushCurrent_v2(struct CUctx_st *context)
{
    ENTER;
    return fake_leave(push(context));
}

unsigned cuCtxPopCurrent_v2(struct CUctx_st **context)
{
    ENTER;
    if (!current.depth)
        return fake_leave(INVALID_CONTEXT);
    if (context)
        *context = fake_current();
    current.depth--;
    return fake_leave(0);
}

unsigned cuCtxSetCurrent(struct CUctx_st *context)
{
    ENTER;
    if (context && !fake_is_context(context))
        return fake_leave(INVALID_CONTEXT);
    if (current.depth)
        current.depth--;
    return fake_leave(context ? push(context) : 0);
}

unsigned cuCtxGetCurrent(struct CUctx_st **context)
{
    ENTER;
    *context = fake_current();
    return fake_leave(0);
}

unsigned cuCtxGetDevice(int *device)
{
    ENTER;
    if (!fake_current())
        return fake_leave(INVALID_CONTEXT);
    *device = fake_current()->device;
    return fake_leave(0);
}

unsigned cuCtxSynchronize(void)
{
    ENTER;
    return fake_leave(fake_current() ? fake_drain_context(fake_current()) : INVALID_CONTEXT);
}

unsigned cuCtxEnablePeerAccess(struct CUctx_st *context, unsigned flags)
{
    ENTER;
    return fake_leave(flags ? INVALID_VALUE : fake_is_context(context) ? 0 : INVALID_CONTEXT);
}

unsigned cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = 0;
    return fake_leave(fake_current() ? 0 : INVALID_CONTEXT);
}
