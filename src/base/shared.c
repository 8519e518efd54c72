/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <gpusys/memory.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* linux/mman.h, 5.14 */
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26) /* linux/memfd.h: log2 of the size, shifted */
#endif

uint64_t gs_map_bytes(uint64_t bytes, bool huge)
{
    uint64_t page = huge ? GS_HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Fault every page in now. Kernels before 5.14 have no such advice: touch the pages instead. */
static int fault_in(void *map, uint64_t bytes)
{
    if (madvise(map, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return errno == EFAULT ? -ENOMEM : -errno;
    long page = sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += (uint64_t)page)
        ((volatile char *)map)[at] = 0;
    return 0;
}

static int size_and_map(struct gs_shared *shared)
{
    uint64_t bytes = gs_map_bytes(shared->bytes, shared->huge);
    if (bytes < shared->bytes || bytes > INT64_MAX)
        return -ENOMEM;
    if (ftruncate(shared->fd, (off_t)bytes) < 0)
        return -errno;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    shared->map = map;
    if (!shared->huge)
        madvise(map, bytes, MADV_HUGEPAGE); /* only a wish */
    return fault_in(map, bytes);
}

static int create(struct gs_shared *ret_shared, const char *name, uint64_t bytes, bool others_write,
                  bool huge)
{
    struct gs_shared shared = {.bytes = bytes, .huge = huge};
    shared.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
    if (shared.fd < 0)
        return -errno;
    int error = size_and_map(&shared);
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (others_write ? 0 : F_SEAL_FUTURE_WRITE);
    if (!error && fcntl(shared.fd, F_ADD_SEALS, seals) < 0)
        error = -errno;
    if (error)
        gs_shared_close(&shared);
    else
        *ret_shared = shared;
    return error;
}

int gs_shared_open(struct gs_shared *ret_shared, const char *name, uint64_t bytes, bool others_write,
                   enum gs_huge huge)
{
    if (bytes == 0)
        return -EINVAL;
    if (huge == GS_HUGE_IF_FREE && bytes >= GS_HUGE_BYTES &&
        create(ret_shared, name, bytes, others_write, true) == 0)
        return 0;
    return create(ret_shared, name, bytes, others_write, false);
}

void gs_shared_close(struct gs_shared *shared)
{
    if (shared->map)
        munmap(shared->map, gs_map_bytes(shared->bytes, shared->huge));
    if (shared->fd >= 0)
        close(shared->fd);
    *shared = (struct gs_shared){.fd = -1};
}

/* ---- private buffers (gpusys/memory.h) ---- */

static void *map_huge(uint64_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* Base pages at a 2-MiB boundary: map more, give back what lies outside. */
static void *map_aligned(uint64_t bytes)
{
    uint64_t more = bytes + GS_HUGE_BYTES;
    char *map = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    uint64_t before = (GS_HUGE_BYTES - (uintptr_t)map % GS_HUGE_BYTES) % GS_HUGE_BYTES;
    if (before)
        munmap(map, before);
    munmap(map + before + bytes, more - before - bytes);
    return map + before;
}

int gpusys_memory_alloc(void **ret_memory, uint64_t bytes, enum gpusys_pages *ret_pages)
{
    if (bytes == 0)
        return -EINVAL;
    uint64_t rounded = gs_map_bytes(bytes, bytes >= GS_HUGE_BYTES);
    if (rounded < bytes || rounded > INT64_MAX - GS_HUGE_BYTES)
        return -ENOMEM;
    enum gpusys_pages pages = GPUSYS_PAGES_HUGE;
    void *memory = bytes >= GS_HUGE_BYTES ? map_huge(rounded) : NULL;
    if (!memory) {
        memory = map_aligned(rounded);
        if (!memory)
            return -ENOMEM;
        pages = bytes >= GS_HUGE_BYTES && madvise(memory, rounded, MADV_HUGEPAGE) == 0
                    ? GPUSYS_PAGES_TRANSPARENT
                    : GPUSYS_PAGES_NORMAL;
    }
    int error = fault_in(memory, rounded);
    if (error) {
        munmap(memory, rounded);
        return error;
    }
    *ret_memory = memory;
    if (ret_pages)
        *ret_pages = pages;
    return 0;
}

void gpusys_memory_free(void *memory, uint64_t bytes)
{
    if (memory)
        munmap(memory, gs_map_bytes(bytes, bytes >= GS_HUGE_BYTES));
}
