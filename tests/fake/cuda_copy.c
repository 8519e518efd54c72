/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: copying and filling. */
#include "cuda.h"

/* An address that we know must have room for it; what we do not know is ordinary memory of the host. */
static bool fits(unsigned long long address, size_t bytes)
{
    const struct area *area = fake_area(address);
    return address && (!area || bytes <= area->bytes - (address - area->start));
}

/* `wait`: until it is done. */
static unsigned submit(const struct work *work, struct CUstream_st *stream, bool wait)
{
    unsigned result;
    struct CUstream_st *found = fake_stream(stream, &result);
    if (result)
        return result;
    if (!work->bytes)
        return 0;
    if (!fits((uintptr_t)work->to, work->bytes) ||
        (work->kind == WORK_COPY && !fits((uintptr_t)work->from, work->bytes)) ||
        (work->kind == WORK_FILL && !fake_area((uintptr_t)work->to)))
        return INVALID_VALUE;
    result = fake_submit(found, work);
    return result || !wait ? result : fake_drain(found);
}

static unsigned copy(unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream,
                     bool wait)
{
    const struct work work = {.kind = WORK_COPY,
                              .to = (void *)(uintptr_t)to,
                              .from = (const void *)(uintptr_t)from,
                              .bytes = bytes};
    return submit(&work, stream, wait);
}

static unsigned fill(unsigned long long to, unsigned char byte, size_t bytes, struct CUstream_st *stream,
                     bool wait)
{
    const struct work work = {.kind = WORK_FILL, .to = (void *)(uintptr_t)to, .byte = byte, .bytes = bytes};
    return submit(&work, stream, wait);
}

unsigned cuMemcpy(unsigned long long to, unsigned long long from, size_t bytes)
{
    ENTER;
    return fake_leave(copy(to, from, bytes, NULL, true));
}

unsigned cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes,
                       struct CUstream_st *stream)
{
    ENTER;
    return fake_leave(copy(to, from, bytes, stream, false));
}

unsigned cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    ENTER;
    return fake_leave(copy(to, (uintptr_t)from, bytes, NULL, true));
}

unsigned cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes,
                              struct CUstream_st *stream)
{
    ENTER;
    return fake_leave(copy(to, (uintptr_t)from, bytes, stream, false));
}

unsigned cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    ENTER;
    return fake_leave(copy((uintptr_t)to, from, bytes, NULL, true));
}

unsigned cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream)
{
    ENTER;
    return fake_leave(copy((uintptr_t)to, from, bytes, stream, false));
}

unsigned cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes)
{
    ENTER;
    return fake_leave(copy(to, from, bytes, NULL, false)); /* as the driver: the host goes on */
}

unsigned cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                              struct CUstream_st *stream)
{
    ENTER;
    return fake_leave(copy(to, from, bytes, stream, false));
}

unsigned cuMemcpyPeer(unsigned long long to, struct CUctx_st *to_context, unsigned long long from,
                      struct CUctx_st *from_context, size_t bytes)
{
    ENTER;
    if (!fake_is_context(to_context) || !fake_is_context(from_context))
        return fake_leave(INVALID_CONTEXT);
    return fake_leave(copy(to, from, bytes, NULL, true));
}

unsigned cuMemcpyPeerAsync(unsigned long long to, struct CUctx_st *to_context, unsigned long long from,
                           struct CUctx_st *from_context, size_t bytes, struct CUstream_st *stream)
{
    ENTER;
    if (!fake_is_context(to_context) || !fake_is_context(from_context))
        return fake_leave(INVALID_CONTEXT);
    return fake_leave(copy(to, from, bytes, stream, false));
}

unsigned cuMemsetD8_v2(unsigned long long to, unsigned char byte, size_t bytes)
{
    ENTER;
    return fake_leave(fill(to, byte, bytes, NULL, true));
}

unsigned cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t bytes, struct CUstream_st *stream)
{
    ENTER;
    return fake_leave(fill(to, byte, bytes, stream, false));
}
