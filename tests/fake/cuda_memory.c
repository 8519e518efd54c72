/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: memory, all of which is the host's, and dmabuf descriptors, which are memfds. */
#include "cuda.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRAIN = 65536, DMABUF_ATTRIBUTE = 124, RANGE_DMABUF = 1 };

struct area *fake_area(unsigned long long address)
{
    for (struct area *at = fake.areas; at; at = at->next)
        if (address >= at->start && address - at->start < at->bytes)
            return at;
    return NULL;
}

/* Aligned to GRAIN, whatever the size of a page. */
static void *map(size_t bytes)
{
    char *wide = mmap(NULL, bytes + GRAIN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wide == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)wide % GRAIN;
    if (before)
        munmap(wide, before);
    if (GRAIN - before)
        munmap(wide + before + bytes, GRAIN - before);
    return wide + before;
}

static struct area *note(enum area_kind kind, void *start, size_t bytes)
{
    struct area *area = malloc(sizeof *area);
    if (!area)
        return NULL;
    *area = (struct area){.kind = kind,
                          .start = (uintptr_t)start,
                          .bytes = bytes,
                          .number = ++fake.n_areas,
                          .context = fake_current(),
                          .next = fake.areas,
                          .fd = -1};
    fake.areas = area;
    return area;
}

static void forget(struct area *area)
{
    struct area **at = &fake.areas;
    while (*at != area)
        at = &(*at)->next;
    *at = area->next;
    if (area->fd >= 0)
        close(area->fd);
    free(area);
}

/* ---- memory of a device ---- */

static unsigned alloc(unsigned long long *address, size_t bytes, enum area_kind kind)
{
    struct CUctx_st *context = fake_current();
    if (!context)
        return INVALID_CONTEXT;
    size_t *used = &fake.used[context->device], mapped = (bytes + GRAIN - 1) & ~(size_t)(GRAIN - 1);
    if (!bytes)
        return INVALID_VALUE;
    if (bytes > fake.config.memory || mapped > fake.config.memory - *used)
        return OUT_OF_MEMORY;
    void *start = map(mapped);
    struct area *area = start ? note(kind, start, bytes) : NULL;
    if (!area) {
        if (start)
            munmap(start, mapped);
        return OUT_OF_MEMORY;
    }
    area->mapped = mapped;
    *used += mapped;
    *address = area->start;
    return 0;
}

unsigned cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
    ENTER;
    return fake_leave(alloc(address, bytes, AREA_DEVICE));
}

unsigned cuMemAllocManaged(unsigned long long *address, size_t bytes, unsigned flags)
{
    ENTER;
    return fake_leave(flags < 1 || flags > 2 ? INVALID_VALUE : alloc(address, bytes, AREA_MANAGED));
}

unsigned cuMemFree_v2(unsigned long long address)
{
    ENTER;
    struct area *area = fake_area(address);
    if (!address)
        return fake_leave(0);
    if (!area || area->start != address || !area->mapped)
        return fake_leave(INVALID_VALUE);
    unsigned result = fake_drain_context(area->context);
    if (result)
        return fake_leave(result);
    fake.used[area->context->device] -= area->mapped;
    munmap((void *)area->start, area->mapped);
    forget(area);
    return fake_leave(0);
}

unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER;
    if (!fake_current())
        return fake_leave(INVALID_CONTEXT);
    *total_bytes = fake.config.memory;
    *free_bytes = fake.config.memory - fake.used[fake_current()->device];
    return fake_leave(0);
}

/* ---- page-locked memory ---- */

static unsigned host_alloc(void **host, size_t bytes)
{
    if (!fake_current())
        return INVALID_CONTEXT;
    if (!bytes)
        return INVALID_VALUE;
    void *start = bytes <= fake.config.memory ? aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095) : NULL;
    if (!start || !note(AREA_HOST, start, bytes)) {
        free(start);
        return OUT_OF_MEMORY;
    }
    *host = start;
    return 0;
}

unsigned cuMemAllocHost_v2(void **host, size_t bytes)
{
    ENTER;
    return fake_leave(host_alloc(host, bytes));
}

unsigned cuMemHostAlloc(void **host, size_t bytes, unsigned flags)
{
    ENTER;
    return fake_leave(flags > 7 ? INVALID_VALUE : host_alloc(host, bytes));
}

unsigned cuMemFreeHost(void *host)
{
    ENTER;
    struct area *area = fake_area((uintptr_t)host);
    if (!area || area->kind != AREA_HOST || area->start != (uintptr_t)host)
        return fake_leave(INVALID_VALUE);
    unsigned result = fake_drain_context(area->context);
    if (result)
        return fake_leave(result);
    forget(area);
    free(host);
    return fake_leave(0);
}

static bool overlaps(uintptr_t start, size_t bytes)
{
    for (const struct area *at = fake.areas; at; at = at->next)
        if (start < at->start + at->bytes && at->start < start + bytes)
            return true;
    return false;
}

unsigned cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    ENTER;
    if (!fake_current())
        return fake_leave(INVALID_CONTEXT);
    if (!host || !bytes || flags > 15)
        return fake_leave(INVALID_VALUE);
    if (overlaps((uintptr_t)host, bytes))
        return fake_leave(ALREADY_REGISTERED);
    return fake_leave(note(AREA_REGISTERED, host, bytes) ? 0 : OUT_OF_MEMORY);
}

unsigned cuMemHostUnregister(void *host)
{
    ENTER;
    struct area *area = fake_area((uintptr_t)host);
    if (!area || area->kind != AREA_REGISTERED || area->start != (uintptr_t)host)
        return fake_leave(NOT_REGISTERED);
    unsigned result = fake_drain_context(area->context);
    if (!result)
        forget(area);
    return fake_leave(result);
}

unsigned cuMemHostGetDevicePointer_v2(unsigned long long *address, void *host, unsigned flags)
{
    ENTER;
    if (flags || !fake_area((uintptr_t)host))
        return fake_leave(INVALID_VALUE);
    *address = (uintptr_t)host;
    return fake_leave(0);
}

/* ---- dmabuf ---- */

/* Put a memfd in the place of the pages, with what is in them. */
static unsigned share(struct area *area, uintptr_t start, size_t bytes)
{
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    if (fd < 0)
        return OUT_OF_MEMORY;
    bool good =
        ftruncate(fd, (off_t)bytes) == 0 && pwrite(fd, (const void *)start, bytes, 0) == (ssize_t)bytes &&
        mmap((void *)start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    if (!good) {
        close(fd);
        return OUT_OF_MEMORY;
    }
    if (area->fd >= 0)
        close(area->fd);
    area->fd = fd;
    area->exported = start;
    area->exported_bytes = bytes;
    return 0;
}

/* The last range that was exported of an allocation is the one that is shared. */
static unsigned export(int *fd, unsigned long long address, size_t bytes)
{
    struct area *area = fake_area(address);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool is_known;
    if (!area || area->kind != AREA_DEVICE || address % page || bytes % page || !bytes ||
        bytes > area->mapped - (address - area->start))
        return INVALID_VALUE;
    if (!fake_attribute(DMABUF_ATTRIBUTE, area->context->device, &is_known) || !is_known)
        return NOT_SUPPORTED;
    bool is_shared = area->fd >= 0 && area->exported == address && area->exported_bytes == bytes;
    unsigned result = is_shared ? 0 : fake_drain_context(area->context);
    if (!result && !is_shared)
        result = share(area, address, bytes);
    if (result)
        return result;
    int copy = dup(area->fd);
    if (copy < 0)
        return OUT_OF_MEMORY;
    *fd = copy;
    return 0;
}

unsigned cuMemGetHandleForAddressRange(void *handle, unsigned long long address, size_t bytes, unsigned type,
                                       unsigned long long flags)
{
    ENTER;
    return fake_leave(type != RANGE_DMABUF || flags ? INVALID_VALUE : export(handle, address, bytes));
}
