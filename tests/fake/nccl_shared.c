/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: the memory that the ranks of a communicator share, and how they wake each other in it. */
#include "fake/nccl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char prefix[] = "gpusys-nccl-";
enum { NAME_BYTES = 64, GIVE_UP_CHECK_MS = 20 };

/* ---- identities ---- */

struct identity fake_new_identity(void)
{
    struct identity identity;
    while (getrandom(&identity, sizeof identity, 0) != sizeof identity)
        ;
    return identity;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct identity fake_child_identity(const struct identity *parent, uint64_t number, uint64_t what)
{
    uint64_t words[2];
    memcpy(words, parent, sizeof words);
    for (int i = 0; i < 2; i++)
        words[i] = mix(mix(words[i], number), what);
    struct identity child;
    memcpy(&child, words, sizeof child);
    return child;
}

static void name_of(const struct identity *identity, char name[NAME_BYTES])
{
    int length = snprintf(name, NAME_BYTES, "/%s", prefix);
    for (size_t i = 0; i < sizeof identity->bytes; i++)
        length += snprintf(name + length, NAME_BYTES - (size_t)length, "%02x", identity->bytes[i]);
}

/* ---- mapping ---- */

static size_t page(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static size_t slots_end(size_t n)
{
    return page(64 + n * sizeof(struct rank_slot));
}

static size_t bytes_for(size_t n)
{
    return slots_end(n) + page(n * CHUNK) + page(n * n * sizeof(struct channel));
}

/* The first one gives it its size. */
static int set_size(int fd, size_t bytes, uint32_t n_ranks)
{
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat status;
    int result = SUCCESS;
    fcntl(fd, F_OFD_SETLKW, &alone);
    if (fstat(fd, &status) != 0 || (status.st_size == 0 && ftruncate(fd, (off_t)bytes) != 0))
        result = fake_say(SYSTEM_ERROR, "Shared memory of %zu bytes: %s", bytes, strerror(errno));
    else if (status.st_size != 0 && status.st_size != (off_t)bytes)
        result = fake_say(INVALID_USAGE, "Other ranks say that there are not %u of them", n_ranks);
    alone.l_type = F_UNLCK;
    fcntl(fd, F_OFD_SETLK, &alone);
    return result;
}

/* Whoever waits for others holds a shared lock: without one the file is a dead one's, and anybody may take its name. */
static int open_and_hold(const char *name)
{
    for (;;) {
        int fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct stat status;
        if (fd < 0 || (flock(fd, LOCK_SH) == 0 && fstat(fd, &status) == 0 && status.st_nlink > 0))
            return fd;
        close(fd);
    }
}

static int map(struct memory *ret_memory, const char *name, uint32_t n_ranks)
{
    size_t bytes = bytes_for(n_ranks);
    int fd = open_and_hold(name);
    if (fd < 0)
        return fake_say(SYSTEM_ERROR, "Shared memory %s: %s", name, strerror(errno));
    int result = set_size(fd, bytes, n_ranks);
    void *address = MAP_FAILED;
    if (result == SUCCESS) {
        address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (address == MAP_FAILED)
            result = fake_say(SYSTEM_ERROR, "Mapping %zu bytes: %s", bytes, strerror(errno));
    }
    if (result != SUCCESS) {
        close(fd);
        return result;
    }
    unsigned char *start = address;
    size_t channels = slots_end(n_ranks) + page(n_ranks * CHUNK);
    *ret_memory = (struct memory){.shared = address,
                                  .slots = (struct rank_slot *)(void *)(start + 64),
                                  .chunks = start + slots_end(n_ranks),
                                  .channels = (struct channel *)(void *)(start + channels),
                                  .bytes = bytes,
                                  .n_ranks = n_ranks,
                                  .fd = fd};
    return SUCCESS;
}

static void let_go(struct memory *memory)
{
    if (memory->fd >= 0)
        close(memory->fd);
    memory->fd = -1;
}

void fake_leave(struct memory *memory)
{
    if (!memory->shared)
        return;
    let_go(memory);
    munmap(memory->shared, memory->bytes);
    *memory = (struct memory){.fd = -1};
}

struct channel *fake_channel(struct memory *memory, int from, int to)
{
    return &memory->channels[(size_t)from * memory->n_ranks + (size_t)to];
}

/* ---- bells ---- */

void fake_ring(struct memory *memory, int rank)
{
    struct rank_slot *slot = &memory->slots[rank];
    slot->bell++;
    if (slot->waiters)
        syscall(SYS_futex, &slot->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void fake_ring_all(struct memory *memory)
{
    for (uint32_t rank = 0; rank < memory->n_ranks; rank++)
        fake_ring(memory, (int)rank);
}

void fake_wait(struct memory *memory, int rank, uint32_t seen, int timeout_ms)
{
    struct rank_slot *slot = &memory->slots[rank];
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    slot->waiters++;
    syscall(SYS_futex, &slot->bell, FUTEX_WAIT, seen, timeout_ms ? &timeout : NULL, NULL, 0);
    slot->waiters--;
}

/* ---- coming together ---- */

static int come(struct memory *memory, int rank, const void *payload)
{
    struct rank_slot *slot = &memory->slots[rank];
    int32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&slot->pid, &nobody, getpid()))
        return fake_say(INVALID_USAGE, "Rank %d is there already, process %d", rank, (int)nobody);
    if (payload)
        memcpy(slot->payload, payload, PAYLOAD);
    return SUCCESS;
}

/* The last one takes the name away; who is there has the memory. */
static void count_in(struct memory *memory, const char *name)
{
    if (atomic_fetch_add(&memory->shared->present, 1) + 1 < memory->n_ranks)
        return;
    shm_unlink(name);
    memory->shared->complete = 1;
    fake_ring_all(memory);
}

static void give_up(struct memory *memory, int rank, const char *name)
{
    memory->slots[rank].pid = 0;
    if (atomic_fetch_sub(&memory->shared->present, 1) == 1)
        shm_unlink(name);
    fake_leave(memory);
}

int fake_meet(struct memory *ret_memory, const struct identity *identity, int n_ranks, int rank,
              const void *payload, bool (*go_on)(void *context), void *context)
{
    char name[NAME_BYTES];
    name_of(identity, name);
    struct memory memory = {.fd = -1};
    int result = map(&memory, name, (uint32_t)n_ranks);
    if (result != SUCCESS)
        return result;
    result = come(&memory, rank, payload);
    if (result != SUCCESS) {
        fake_leave(&memory);
        return result;
    }
    count_in(&memory, name);
    for (;;) {
        uint32_t seen = memory.slots[rank].bell;
        if (memory.shared->complete)
            break;
        if (!go_on(context)) {
            give_up(&memory, rank, name);
            return fake_say(INTERNAL_ERROR, "Rank %d gave up waiting for the others", rank);
        }
        fake_wait(&memory, rank, seen, GIVE_UP_CHECK_MS);
    }
    let_go(&memory);
    *ret_memory = memory;
    return SUCCESS;
}

/* ---- leftovers ---- */

static void sweep_one(const char *file)
{
    char name[NAME_BYTES];
    if (snprintf(name, sizeof name, "/%s", file) >= (int)sizeof name)
        return;
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    /* Alone with it, and it still is what the name stands for: nobody else can take the name away from it now. */
    struct stat status;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &status) == 0 && status.st_nlink > 0)
        shm_unlink(name);
    close(fd);
}

void fake_sweep(void)
{
    DIR *folder = opendir("/dev/shm");
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0)
            sweep_one(entry->d_name);
    closedir(folder);
}
