/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* GPU memory, streams and events through gpusys/cuda.h, on what the machine has. Usage: real_cuda */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 8 << 20 };

static void devices(void)
{
    struct gpusys_error error = {0};
    struct gpusys_cuda_info info = {.size = sizeof info};
    uint32_t count = 0;
    int version = 0;
    if (!check_call(gpusys_cuda_count(&count, &error), &error, "devices are counted") ||
        !check(count > 0, "there is a device"))
        return;
    check_call(gpusys_cuda_version(&version, &error), &error, "the driver's version");
    remark("%s, CUDA %d.%d, %u devices", gpusys_cuda_library(), version / 1000, version % 1000 / 10, count);
    for (uint32_t i = 0; i < count; i++) {
        if (!check_call(gpusys_cuda_info(i, &info, &error), &error, "a device says what it is"))
            continue;
        check(strncmp(info.uuid_text, "GPU-", 4) == 0 || strncmp(info.uuid_text, "MIG-", 4) == 0,
              "its UUID has nvidia-smi's form: %s", info.uuid_text);
        check(info.memory_bytes > 0, "it has memory: %llu MiB", (unsigned long long)info.memory_bytes >> 20);
        remark("%s at %s, compute %d.%d, %d multiprocessors", info.name, info.pci, info.compute_major,
               info.compute_minor, info.multiprocessors);
        remark("dmabuf %d, GPUDirect RDMA %d, flush %d, ordering %d, integrated %d, NUMA %d", info.dmabuf,
               info.gpudirect_rdma, info.gpudirect_flush, info.gpudirect_ordering, info.integrated,
               info.host_numa_node);
    }
    check(gpusys_cuda_info(count, &info, &error) == -ENODEV, "no device behind the last: %s", error.message);
}

struct buffers {
    unsigned char *host, *back;
    void *device, *other;
    struct CUstream_st *stream;
    struct CUevent_st *event;
};

static bool buffers_open(struct gpusys_cuda *cuda, struct buffers *b)
{
    struct gpusys_error error = {0};
    void *host = NULL, *back = NULL;
    bool good = check_call(gpusys_cuda_host_alloc(cuda, &host, BYTES, &error), &error, "pinned memory") &&
                check_call(gpusys_cuda_host_alloc(cuda, &back, BYTES, &error), &error, "more of it") &&
                check_call(gpusys_cuda_alloc(cuda, &b->device, BYTES, &error), &error, "device memory") &&
                check_call(gpusys_cuda_alloc(cuda, &b->other, BYTES, &error), &error, "more of it") &&
                check_call(gpusys_cuda_stream_open(cuda, &b->stream, &error), &error, "a stream") &&
                check_call(gpusys_cuda_event_open(cuda, &b->event, &error), &error, "an event");
    b->host = host, b->back = back;
    return good;
}

static void buffers_close(struct gpusys_cuda *cuda, struct buffers *b)
{
    gpusys_cuda_event_close(cuda, b->event);
    gpusys_cuda_stream_close(cuda, b->stream);
    gpusys_cuda_free(cuda, b->other);
    gpusys_cuda_free(cuda, b->device);
    gpusys_cuda_host_free(cuda, b->back);
    gpusys_cuda_host_free(cuda, b->host);
}

/* Host to device, device to device, and back: the bytes must be the same, and the tail what was filled in. */
static void copies(struct gpusys_cuda *cuda, struct buffers *b)
{
    struct gpusys_error error = {0};
    for (size_t i = 0; i < BYTES; i++)
        b->host[i] = (unsigned char)(i * 31 >> 3);
    int code = gpusys_cuda_copy_async(cuda, b->device, b->host, BYTES, b->stream, &error);
    if (!code)
        code = gpusys_cuda_copy_async(cuda, b->other, b->device, BYTES, b->stream, &error);
    if (!code)
        code = gpusys_cuda_fill_async(cuda, (char *)b->other + BYTES - 4096, 0x5a, 4096, b->stream, &error);
    if (!code)
        code = gpusys_cuda_copy_async(cuda, b->back, b->other, BYTES, b->stream, &error);
    if (!code)
        code = gpusys_cuda_event_record(cuda, b->event, b->stream, &error);
    if (!code)
        code = gpusys_cuda_event_wait(cuda, b->event, 20 * SECOND, &error);
    if (!check_call(code, &error, "copies through a stream, waited for by an event"))
        return;
    check(memcmp(b->host, b->back, BYTES - 4096) == 0, "what came back is what went");
    check(b->back[BYTES - 4096] == 0x5a && b->back[BYTES - 1] == 0x5a, "the tail is filled");
    check(gpusys_cuda_stream_query(cuda, b->stream, &error) == 0, "the stream is idle afterwards");
    memset(b->back, 0, BYTES);
    check_call(gpusys_cuda_copy(cuda, b->back, b->device, BYTES, &error), &error, "a copy that waits");
    check(memcmp(b->host, b->back, BYTES) == 0, "and brought all of it");
}

/* Work that keeps the stream busy: a wait without time looks, one with too little runs out, one with enough is good. */
static void waits(struct gpusys_cuda *cuda, struct buffers *b)
{
    struct gpusys_error error = {0};
    int code = 0, looked = -EAGAIN;
    for (int i = 0; i < 4000 && !code; i++)
        code = gpusys_cuda_copy_async(cuda, b->other, b->device, BYTES, b->stream, &error);
    looked = gpusys_cuda_stream_wait(cuda, b->stream, 0, &error);
    check_call(code, &error, "a long queue of copies");
    check(looked == -EAGAIN || looked == 0, "a look at it says %d", looked);
    check_call(gpusys_cuda_stream_wait(cuda, b->stream, 60 * SECOND, &error), &error, "and it ends");
}

static void pointers(struct gpusys_cuda *cuda, struct buffers *b)
{
    struct gpusys_error error = {0};
    struct gpusys_cuda_pointer p = {.size = sizeof p};
    int here = 0, fd = -1;
    uint64_t offset = 0;
    check(gpusys_cuda_pointer((char *)b->device + 4096, &p, &error) == 0 && p.kind == GPUSYS_CUDA_DEVICE &&
              p.start == b->device,
          "device memory is known as that, and where it starts");
    check(gpusys_cuda_pointer(b->host, &p, &error) == 0 && p.kind == GPUSYS_CUDA_HOST, "pinned memory too");
    check(gpusys_cuda_pointer(&here, &p, &error) == 0 && p.kind == GPUSYS_CUDA_UNKNOWN,
          "the stack is neither");
    int code = gpusys_cuda_dmabuf(cuda, b->device, BYTES, &fd, &offset, &error);
    if (code == -EOPNOTSUPP || code == -ENOSYS)
        remark("no dmabuf here: %s", error.message);
    else if (check_call(code, &error, "exported as a dmabuf"))
        remark("descriptor %d, offset %llu", fd, (unsigned long long)offset);
    if (fd >= 0)
        close(fd);
}

int main(void)
{
    struct gpusys_error error = {0};
    struct gpusys_cuda *cuda;
    struct buffers b = {0};
    uint64_t free_before = 0, free_after = 0, total = 0;
    devices();
    if (!check_call(gpusys_cuda_open(&cuda, 0, &error), &error, "the primary context of device 0"))
        return check_end();
    check_call(gpusys_cuda_memory(cuda, &free_before, &total, &error), &error, "free and total memory");
    if (buffers_open(cuda, &b)) {
        copies(cuda, &b);
        waits(cuda, &b);
        pointers(cuda, &b);
    }
    buffers_close(cuda, &b);
    gpusys_cuda_memory(cuda, &free_after, &total, &error);
    check(total > 0 && free_after <= total, "%llu of %llu MiB are free at the end, %llu at the start",
          (unsigned long long)free_after >> 20, (unsigned long long)total >> 20,
          (unsigned long long)free_before >> 20);
    gpusys_cuda_close(cuda);
    return check_end();
}
