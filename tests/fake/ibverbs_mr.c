/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: memory regions. */
#include "ibverbs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* A key is a slot's number and eight bits of its generation; local and remote keys differ, so that no program passes
 * that mixes them up. */
enum { LOCAL_KEY = 1 << 24, REMOTE_KEY = 2 << 24 };

static uint32_t key_of(uint32_t slot)
{
    return slot << 8 | (fake.table->mrs[slot].generation & 0xff);
}

const struct shared_mr *fake_mr_find(uint32_t key, bool is_remote, int32_t pid)
{
    uint32_t slot = (key & 0xffffff) >> 8;
    const struct shared_mr *mr = &fake.table->mrs[slot];
    bool is_it = mr->pid == pid && key == ((is_remote ? REMOTE_KEY : LOCAL_KEY) | key_of(slot));
    return is_it ? mr : NULL;
}

/* ---- can the kernel pin it? ---- */

/* Is a byte of the range in a shared mapping that cannot be written? Old kernels pin everything for writing. */
static bool has_shared_readonly(uintptr_t start, size_t length)
{
    char line[512], rights[5];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, rights) == 3)
            found = from < start + length && to > start && rights[1] == '-' && rights[3] == 's';
    }
    if (maps)
        fclose(maps);
    return found;
}

static int pin(const void *address, size_t length, unsigned access)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)address;
    uintptr_t from = start & ~(page - 1), to = (start + length + page - 1) & ~(page - 1);
    bool writes = access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if (start + length < start)
        return EINVAL;
    if (to > from && madvise((void *)from, to - from, writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) < 0)
        return EFAULT;
    if (fake.config.pin_forced && !writes && has_shared_readonly(start, length))
        return EFAULT;
    return 0;
}

/* ---- registering ---- */

static int check_access(unsigned access)
{
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
    if (access & IBV_ACCESS_ON_DEMAND)
        return EOPNOTSUPP;
    if (access & ~(known | (unsigned)IBV_ACCESS_OPTIONAL_RANGE))
        return EINVAL;
    bool needs_local = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    return needs_local && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

static int check_limits(const struct pd *pd, size_t length)
{
    const struct ibv_device_attr *attr = &context_of(pd->base.context)->device->attr;
    if (!length || length > attr->max_mr_size)
        return EINVAL;
    if (fake.live[FAKE_IBVERBS_MRS] >= attr->max_mr)
        return ENOMEM;
    if (fake.config.memlock_bytes && fake.registered_bytes + length > fake.config.memlock_bytes)
        return ENOMEM;
    return 0;
}

static struct mr *enter_mr(struct pd *pd, void *address, size_t length, uint64_t iova, unsigned access)
{
    uint32_t slot = fake_mr_slot();
    struct mr *mr = slot == UINT32_MAX ? NULL : calloc(1, sizeof *mr);
    if (!mr) {
        if (slot != UINT32_MAX)
            fake_mr_slot_free(slot);
        return NULL;
    }
    struct shared_mr *shared = &fake.table->mrs[slot];
    shared->pd = pd->id;
    shared->access = access;
    shared->start = iova;
    shared->length = length;
    shared->address = (uintptr_t)address;
    mr->slot = slot;
    mr->base = (struct ibv_mr){.context = pd->base.context,
                               .pd = &pd->base,
                               .addr = address,
                               .length = length,
                               .handle = slot,
                               .lkey = LOCAL_KEY | key_of(slot),
                               .rkey = REMOTE_KEY | key_of(slot)};
    pd->users++;
    context_of(pd->base.context)->n_objects++;
    fake.live[FAKE_IBVERBS_MRS]++;
    fake.registered_bytes += length;
    return mr;
}

static struct ibv_mr *register_mr(enum function function, struct ibv_pd *base, void *address, size_t length,
                                  uint64_t iova, unsigned access)
{
    struct pd *pd = (struct pd *)base;
    int error = fake_enter(function, base->context, NULL, NULL);
    if (!error)
        error = check_access(access);
    if (!error)
        error = check_limits(pd, length);
    if (!error)
        error = pin(address, length, access);
    struct mr *mr = error ? NULL : enter_mr(pd, address, length, iova, access);
    return fake_leave_with(mr ? &mr->base : NULL, error ? error : ENOMEM);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    return register_mr(FN_ibv_reg_mr, pd, address, length, (uintptr_t)address, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, int access)
{
    return register_mr(FN_ibv_reg_mr_iova, pd, address, length, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                unsigned access)
{
    return register_mr(FN_ibv_reg_mr_iova2, pd, address, length, iova, access);
}

/* Any descriptor that can be mapped stands for GPU memory. */
static int map_dmabuf(int fd, uint64_t offset, size_t length, void **ret_mapping)
{
    if (fd < 0)
        return EBADF;
    void *mapping = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (mapping == MAP_FAILED)
        return errno;
    *ret_mapping = mapping;
    return 0;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *base, uint64_t offset, size_t length, uint64_t iova, int fd,
                                 int access)
{
    uint64_t in_page = offset % (uint64_t)sysconf(_SC_PAGESIZE);
    void *mapping = NULL;
    struct pd *pd = (struct pd *)base;
    int error = fake_enter(FN_ibv_reg_dmabuf_mr, base->context, NULL, NULL);
    if (!error && !context_of(base->context)->device->has_dmabuf)
        error = EOPNOTSUPP;
    if (!error)
        error = check_access((unsigned)access);
    if (!error)
        error = check_limits(pd, length);
    if (!error)
        error = map_dmabuf(fd, offset - in_page, length + in_page, &mapping);
    struct mr *mr = error ? NULL : enter_mr(pd, (char *)mapping + in_page, length, iova, (unsigned)access);
    if (mr) {
        mr->mapping = mapping;
        mr->mapping_bytes = length + in_page;
        mr->base.addr = (void *)(uintptr_t)offset;
    } else if (mapping) {
        munmap(mapping, length + in_page);
    }
    return fake_leave_with(mr ? &mr->base : NULL, error ? error : ENOMEM);
}

int ibv_dereg_mr(struct ibv_mr *base)
{
    struct mr *mr = (struct mr *)base;
    int error = fake_enter(FN_ibv_dereg_mr, base->context, NULL, NULL);
    if (!error) {
        fake_mr_slot_free(mr->slot);
        ((struct pd *)base->pd)->users--;
        context_of(base->context)->n_objects--;
        fake.live[FAKE_IBVERBS_MRS]--;
        fake.registered_bytes -= base->length;
        if (mr->mapping)
            munmap(mr->mapping, mr->mapping_bytes);
        free(mr);
    }
    return fake_leave(error);
}
