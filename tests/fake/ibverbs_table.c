/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: the table that processes share. */
#include "ibverbs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t magic = 0x66616b6569627631; /* changes with the layout's meaning */

static void fail(const char *what)
{
    fprintf(stderr, "stand-in libibverbs: %s: %m\n", what);
    abort();
}

static void init_table(struct table *table)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&table->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    table->next_pd = 1;
    table->mr_slots = table->qp_slots = table->cq_slots = (struct slots){UINT32_MAX, 0};
    table->bytes = sizeof *table;
    table->magic = magic;
}

static struct table *map(int fd)
{
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED)
        fail("mapping the shared table");
    return memory;
}

struct table *fake_table_open(const char *folder)
{
    char path[4096];
    int fd = -1;
    if (folder) {
        snprintf(path, sizeof path, "%s/table", folder);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 || flock(fd, LOCK_EX) < 0 || ftruncate(fd, sizeof(struct table)) < 0)
            fail(path);
    }
    struct table *table = map(fd);
    if (table->magic != magic)
        init_table(table);
    if (table->bytes != sizeof *table) {
        errno = EPROTO;
        fail("a shared table of another build");
    }
    if (fd >= 0) {
        flock(fd, LOCK_UN); /* closing would not: the mapping keeps the file open */
        close(fd);
    }
    return table;
}

bool fake_is_alive(int32_t pid)
{
    return pid == fake.pid || kill(pid, 0) == 0 || errno != ESRCH;
}

/* The three tables have slots that begin alike: owner, next free one, generation. */
struct slot {
    int32_t pid;
    uint32_t next_free, generation;
};

static struct slot *slot_at(void *first, size_t bytes, uint32_t index)
{
    return (struct slot *)((char *)first + bytes * index);
}

static void free_slot(struct slots *slots, void *first, size_t bytes, uint32_t index)
{
    struct slot *slot = slot_at(first, bytes, index);
    slot->pid = 0;
    slot->next_free = slots->first_free;
    slots->first_free = index;
}

static void free_slots_of(struct slots *slots, void *first, size_t bytes, bool only_dead)
{
    for (uint32_t i = 0; i < slots->fresh; i++) {
        int32_t pid = slot_at(first, bytes, i)->pid;
        if (pid && (only_dead ? !fake_is_alive(pid) : pid == fake.pid))
            free_slot(slots, first, bytes, i);
    }
}

static uint32_t take_slot(struct slots *slots, void *first, size_t bytes, uint32_t count)
{
    if (slots->first_free == UINT32_MAX && slots->fresh == count)
        free_slots_of(slots, first, bytes, true);
    uint32_t index = slots->first_free;
    if (index != UINT32_MAX)
        slots->first_free = slot_at(first, bytes, index)->next_free;
    else if (slots->fresh < count)
        index = slots->fresh++;
    else
        return UINT32_MAX;
    struct slot *slot = slot_at(first, bytes, index);
    uint32_t generation = slot->generation + 1;
    memset(slot, 0, bytes);
    slot->pid = fake.pid;
    slot->generation = generation;
    return index;
}

uint32_t fake_mr_slot(void)
{
    return take_slot(&fake.table->mr_slots, fake.table->mrs, sizeof *fake.table->mrs, MR_SLOTS);
}

uint32_t fake_cq_slot(void)
{
    return take_slot(&fake.table->cq_slots, fake.table->cqs, sizeof *fake.table->cqs, CQ_SLOTS);
}

uint32_t fake_qp_slot(void)
{
    return take_slot(&fake.table->qp_slots, fake.table->qps, sizeof *fake.table->qps, QP_SLOTS);
}

void fake_mr_slot_free(uint32_t slot)
{
    free_slot(&fake.table->mr_slots, fake.table->mrs, sizeof *fake.table->mrs, slot);
}

void fake_cq_slot_free(uint32_t slot)
{
    free_slot(&fake.table->cq_slots, fake.table->cqs, sizeof *fake.table->cqs, slot);
}

void fake_qp_slot_free(uint32_t slot)
{
    free_slot(&fake.table->qp_slots, fake.table->qps, sizeof *fake.table->qps, slot);
}

void fake_table_leave(void)
{
    struct table *table = fake.table;
    free_slots_of(&table->mr_slots, table->mrs, sizeof *table->mrs, false);
    free_slots_of(&table->cq_slots, table->cqs, sizeof *table->cqs, false);
    free_slots_of(&table->qp_slots, table->qps, sizeof *table->qps, false);
}

void fake_write_to(int32_t pid, int fd, const void *bytes, size_t count)
{
    if (fd < 0)
        return;
    if (pid == fake.pid) {
        if (write(fd, bytes, count) < 0)
            return;
        return;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int copy = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (copy < 0)
        return;
    if (write(copy, bytes, count) < 0)
        errno = 0; /* the other is full or gone */
    close(copy);
}
