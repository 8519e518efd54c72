/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of the kernel: calls that are tried one by one, the clock, the processors. */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <gpusys/deadline.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5 */
#endif

static int open_beneath(int directory, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
    int fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static void openat2_beneath(struct doctor_finding *finding)
{
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int inside = open_beneath(root, "."), outside = open_beneath(root, "..");
    if (root >= 0)
        close(root);
    if (inside == 0 && outside == -EXDEV) {
        doctor_found(finding, DOCTOR_OK, "a path that leads out of its root is refused");
        return;
    }
    if (inside == 0)
        doctor_found(finding, DOCTOR_BROKEN, "a path that leads out of its root was opened");
    else
        doctor_found(finding, DOCTOR_MISSING, "openat2: %s", strerrordesc_np(-inside));
    doctor_so(finding, "serve cannot keep names inside the served directories and refuses to serve them",
              "Linux 5.6 or newer, and a seccomp profile that allows openat2");
}

static void preadv2_nowait(struct doctor_finding *finding)
{
    char byte;
    struct iovec iov = {&byte, 1};
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t count = preadv2(fd, &iov, 1, 0, RWF_NOWAIT);
    int error = count >= 0 ? 0 : errno;
    if (fd >= 0)
        close(fd);
    if (!error || error == EAGAIN) {
        doctor_found(finding, DOCTOR_OK, "the page cache can be read without waiting for the disk");
        return;
    }
    doctor_found(finding, DOCTOR_MISSING, "preadv2 with RWF_NOWAIT on our own file: %s",
                 strerrordesc_np(error));
    doctor_so(finding, "every read of a served file goes through the pool of readers, cached or not",
              "serve from ext4, xfs, btrfs or tmpfs; a seccomp profile that allows preadv2");
}

static void populate_read(struct doctor_finding *finding)
{
    size_t size = 16 * 4096;
    void *memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int error = memory == MAP_FAILED || madvise(memory, size, MADV_POPULATE_READ) ? errno : 0;
    if (memory != MAP_FAILED)
        munmap(memory, size);
    if (!error) {
        doctor_found(finding, DOCTOR_OK, "mappings can be populated ahead of use");
        return;
    }
    doctor_found(finding, DOCTOR_MISSING, "madvise(MADV_POPULATE_READ): %s", strerrordesc_np(error));
    doctor_so(finding, "the shm transport takes a page fault for every page it reads first",
              "Linux 5.14 or newer");
}

static int try_copy(int from, int to)
{
    if (from < 0 || to < 0 || write(from, "gpusys", 6) != 6)
        return -errno;
    loff_t offset = 0;
    ssize_t count = copy_file_range(from, &offset, to, NULL, 6, 0);
    return count == 6 ? 0 : count < 0 ? -errno : -EIO;
}

static void file_copies(struct doctor_finding *finding)
{
    int from = memfd_create("gpusys-doctor", MFD_CLOEXEC), to = memfd_create("gpusys-doctor", MFD_CLOEXEC);
    int error = try_copy(from, to);
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    if (!error) {
        doctor_found(finding, DOCTOR_OK, "the kernel copies between files");
        return;
    }
    doctor_found(finding, DOCTOR_MISSING, "copy_file_range: %s", strerrordesc_np(-error));
    doctor_so(finding, "a pull on the same host reads and writes every byte instead",
              "a seccomp profile that allows copy_file_range");
}

static void page_cache_counts(struct doctor_finding *finding)
{
    struct {
        uint64_t offset, length;
    } range = {0, 4096};
    uint64_t counts[5];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    long failed = syscall(SYS_cachestat, fd, &range, counts, 0);
    int error = failed ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (error)
        doctor_found(finding, DOCTOR_NOT_NEEDED, "cachestat: %s; preadv2 tells the same",
                     strerrordesc_np(error));
    else
        doctor_found(finding, DOCTOR_OK, "the page cache of a file can be counted");
}

static void read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, size, file))
        snprintf(line, (size_t)size, "unknown");
    line[strcspn(line, "\n")] = 0;
    if (file)
        fclose(file);
}

/* What one reading takes: the shortest of several rounds, for the others had a busy machine in them. */
static int64_t reading_ns(void)
{
    enum { ROUNDS = 20, READINGS = 100 };
    int64_t least_ns = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ns = gpusys_now_ns();
        for (int i = 1; i < READINGS; i++)
            (void)gpusys_now_ns();
        int64_t cost_ns = (gpusys_now_ns() - start_ns) / READINGS;
        least_ns = cost_ns < least_ns ? cost_ns : least_ns;
    }
    return least_ns;
}

static void clock_cost(struct doctor_finding *finding)
{
    enum { DEAR_NS = 500 };
    char source[64];
    read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    int64_t cost_ns = reading_ns();
    bool dear = cost_ns > DEAR_NS;
    doctor_found(finding, dear ? DOCTOR_MISSING : DOCTOR_OK, "%s, %lld ns a reading", source,
                 (long long)cost_ns);
    if (dear)
        doctor_so(finding, "each deadline costs a system call, and short latencies are measured too long",
                  "clocksource=tsc on the kernel's command line, where the processor's counter is stable");
}

static void processors(struct doctor_finding *finding)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int ours = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    doctor_found(finding, ours > 1 ? DOCTOR_OK : DOCTOR_MISSING, "%d of %ld may be used", ours, online);
    if (ours <= 1)
        doctor_so(finding, "the two ends of a transfer on this host take turns on one processor",
                  "taskset -c, the container's cpuset, or a larger machine");
}

static void kernel(struct doctor_finding *finding)
{
    struct utsname name;
    if (uname(&name))
        doctor_found(finding, DOCTOR_BROKEN, "uname: %s", strerrordesc_np(errno));
    else
        doctor_found(finding, DOCTOR_OK, "%s %s, %s", name.sysname, name.release, name.machine);
}

static const struct doctor_check checks[] = {
    {"kernel", "which kernel runs here", kernel, 0},
    {"openat2", "paths that cannot leave their root", openat2_beneath, 0},
    {"preadv2-nowait", "reads that do not wait for the disk", preadv2_nowait, 0},
    {"populate-read", "mappings populated ahead of use", populate_read, 0},
    {"copy-file-range", "copies made by the kernel", file_copies, 0},
    {"cachestat", "counts of cached pages", page_cache_counts, 0},
    {"clock", "what reading the clock costs", clock_cost, 0},
    {"processors", "how many processors may be used", processors, 0},
};

const struct doctor_module doctor_kernel = DOCTOR_MODULE(checks);
