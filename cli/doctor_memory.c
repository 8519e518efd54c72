/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of limits and memory: descriptors, locked pages, sealed memory files, huge pages. */
#include "doctor.h"
#include "quantity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

static void open_files(struct doctor_finding *finding)
{
    enum { ENOUGH = 4096 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) {
        doctor_found(finding, DOCTOR_BROKEN, "getrlimit: %s", strerrordesc_np(errno));
        return;
    }
    bool enough = limit.rlim_cur >= 1024 && limit.rlim_max >= ENOUGH;
    doctor_found(finding, enough ? DOCTOR_OK : DOCTOR_MISSING,
                 "%" PRIuMAX " open descriptors, %" PRIuMAX " at most", (uintmax_t)limit.rlim_cur,
                 (uintmax_t)limit.rlim_max);
    if (!enough)
        doctor_so(finding, "serve turns clients away when descriptors run out",
                  "ulimit -n 65536, or LimitNOFILE=65536 in the service's unit");
}

/* Lock address space without touching it: the limit is asked, and no memory is used. */
static int try_lock(size_t size)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    int error = mlock2(memory, size, MLOCK_ONFAULT) ? -errno : 0;
    munmap(memory, size);
    return error;
}

static void locked_memory(struct doctor_finding *finding)
{
    static const size_t probe = (size_t)1 << 30;
    char text[QUANTITY_BYTES] = "unlimited";
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        quantity_of_bytes(text, limit.rlim_cur);
    int error = try_lock(probe);
    if (!error) {
        doctor_found(finding, DOCTOR_OK, "1 GiB can be locked (the limit is %s)", text);
        return;
    }
    doctor_found(finding, DOCTOR_MISSING, "locking 1 GiB: %s (the limit is %s)", strerrordesc_np(-error),
                 text);
    doctor_so(finding, "RDMA memory regions cannot be larger; the shm and tcp transports do without",
              "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit");
}

/* A memory file that can be written no more from here on: is it so? */
static int try_seals(int fd)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    if (ftruncate(fd, 4096) || fcntl(fd, F_ADD_SEALS, seals))
        return -errno;
    if (write(fd, "x", 1) >= 0 || errno != EPERM)
        return -ENOTRECOVERABLE;
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return errno == EPERM ? 0 : -errno;
    munmap(memory, 4096);
    return -ENOTRECOVERABLE;
}

static void memory_files(struct doctor_finding *finding)
{
    int fd = memfd_create("gpusys-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? -errno : try_seals(fd);
    if (!error)
        doctor_found(finding, DOCTOR_OK, "memory files can be sealed against resizing and writing");
    else if (fd < 0)
        doctor_found(finding, DOCTOR_MISSING, "memfd_create: %s", strerrordesc_np(-error));
    else if (error == -ENOTRECOVERABLE)
        doctor_found(finding, DOCTOR_BROKEN, "a memory file that was sealed can still be written");
    else
        doctor_found(finding, DOCTOR_MISSING, "sealing a memory file: %s", strerrordesc_np(-error));
    if (error)
        doctor_so(finding, "no shm transport: clients on this host are served over tcp",
                  "Linux 5.1 or newer, and a seccomp profile that allows memfd_create");
    if (fd >= 0)
        close(fd);
}

static void shm_size(struct doctor_finding *finding)
{
    char text[QUANTITY_BYTES];
    struct statvfs info;
    if (statvfs("/dev/shm", &info)) {
        doctor_found(finding, DOCTOR_NOT_NEEDED, "/dev/shm: %s; gpusys itself uses memory files",
                     strerrordesc_np(errno));
        return;
    }
    uint64_t size = (uint64_t)info.f_blocks * info.f_frsize;
    bool enough = size == 0 || size >= (uint64_t)1 << 30; /* a tmpfs without a limit shows 0 */
    doctor_found(finding, enough ? DOCTOR_OK : DOCTOR_MISSING, "/dev/shm holds %s",
                 size ? quantity_of_bytes(text, size) : "as much as there is memory");
    if (!enough)
        doctor_so(finding,
                  "NCCL and data loaders run out of it; gpusys itself uses memory files and does not",
                  "docker run --shm-size=8g, or mount -o remount,size=8G /dev/shm");
}

static bool try_hugetlb(void)
{
    int fd = memfd_create("gpusys-doctor", MFD_CLOEXEC | MFD_HUGETLB);
    if (fd < 0)
        return false;
    void *memory = MAP_FAILED; /* mapping reserves the page; it need not be touched */
    if (ftruncate(fd, HUGE_PAGE_BYTES) == 0)
        memory = mmap(NULL, HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED)
        munmap(memory, HUGE_PAGE_BYTES);
    close(fd);
    return memory != MAP_FAILED;
}

/* Is any shared memory of this process mapped by huge pages? */
static bool any_huge_mapping(void)
{
    char line[256];
    unsigned long kilobytes = 0;
    FILE *maps = fopen("/proc/self/smaps", "re");
    while (maps && kilobytes == 0 && fgets(line, sizeof line, maps))
        if (sscanf(line, "ShmemPmdMapped: %lu", &kilobytes) != 1)
            kilobytes = 0;
    if (maps)
        fclose(maps);
    return kilobytes > 0;
}

static bool try_huge_shmem(void)
{
    int fd = memfd_create("gpusys-doctor", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    bool huge = false;
    size_t size = 2 * (size_t)HUGE_PAGE_BYTES; /* holds one whole aligned page wherever it comes to lie */
    char *memory = MAP_FAILED;
    if (ftruncate(fd, (off_t)size) == 0)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) {
        uintptr_t aligned = ((uintptr_t)memory + HUGE_PAGE_BYTES - 1) & ~((uintptr_t)HUGE_PAGE_BYTES - 1);
        madvise(memory, size, MADV_HUGEPAGE);
        *(volatile char *)aligned = 1;
        huge = any_huge_mapping();
        munmap(memory, size);
    }
    close(fd);
    return huge;
}

static void huge_pages(struct doctor_finding *finding)
{
    bool hugetlb = try_hugetlb(), shmem = try_huge_shmem();
    if (hugetlb || shmem) {
        doctor_found(finding, DOCTOR_OK, "%s%s%s", hugetlb ? "reserved ones are free (vm.nr_hugepages)" : "",
                     hugetlb && shmem ? "; " : "", shmem ? "shared memory gets them on request" : "");
        return;
    }
    doctor_found(finding, DOCTOR_MISSING, "none are reserved, and shared memory does not get them");
    doctor_so(
        finding, "arenas and landing buffers are mapped page by page: slower first touch, more TLB misses",
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or sysctl vm.nr_hugepages=512");
}

static const struct doctor_check checks[] = {
    {"open-files", "how many descriptors a process may hold", open_files, 0},
    {"locked-memory", "how much memory a process may lock", locked_memory, 0},
    {"memfd", "memory files with seals, which the shm transport passes", memory_files, 0},
    {"shm-size", "the size of /dev/shm", shm_size, 0},
    {"huge-pages", "huge pages for arenas and landing buffers", huge_pages, 0},
};

const struct doctor_module doctor_memory = DOCTOR_MODULE(checks);
