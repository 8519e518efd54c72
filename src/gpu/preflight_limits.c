/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks at what a process may have: room in /dev/shm, locked memory, descriptors. */
#include "gpu/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const uint64_t mebibyte = 1 << 20;

/* "512 MiB", "8.0 GiB". */
static const char *size_text(char text[32], uint64_t bytes)
{
    if (bytes >= 1024 * mebibyte)
        snprintf(text, 32, "%.1f GiB", (double)bytes / (double)(1024 * mebibyte));
    else
        snprintf(text, 32, "%" PRIu64 " MiB", bytes / mebibyte);
    return text;
}

/* ---- shm ---- */

static int try_file(void)
{
    char path[GS_PATH_BYTES];
    int fd = open(gs_path(path, "/dev/shm"), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EOPNOTSUPP ? 0 : -errno; /* not a tmpfs; a file may be possible all the same */
    close(fd);
    return 0;
}

static void judge_room(struct gpusys_finding *finding, const struct statvfs *info)
{
    static const uint64_t share = 64;
    char size[32], free_text[32];
    unsigned gpus = gs_gpu_nodes();
    uint64_t wanted = share * mebibyte * (gpus ? gpus : 1);
    uint64_t all = (uint64_t)info->f_blocks * info->f_frsize,
             left = (uint64_t)info->f_bavail * info->f_frsize;
    /* All of Docker's default, 64 MiB, is too little for one GPU; a tmpfs without a limit shows 0. */
    bool enough = all == 0 || (left >= wanted && all > share * mebibyte);
    size_text(size, all);
    size_text(free_text, left);
    char gpus_text[32] = "";
    if (gpus)
        snprintf(gpus_text, sizeof gpus_text, ", for %u GPU%s", gpus, gpus == 1 ? "" : "s");
    gs_found(finding, enough ? GPUSYS_VERDICT_OK : gs_amiss(GPUSYS_VERDICT_MISSING),
             all ? "%s, %s of it free%s" : "no limit%.0s%.0s%s", size, free_text, gpus_text);
    gs_so(finding,
          "ranks of one host talk through it: \"unhandled system error\", \"No space left on device\", or a "
          "crash",
          "%s",
          gs_container() ? "docker run --shm-size=1g (or --ipc=host); in Kubernetes an emptyDir of medium "
                           "Memory at /dev/shm"
                         : "mount -o remount,size=8G /dev/shm, and rm what is left over there");
}

void gs_look_shm(struct gpusys_finding *finding)
{
    char path[GS_PATH_BYTES];
    struct statvfs info;
    int code = statvfs(gs_path(path, "/dev/shm"), &info) ? -errno : try_file();
    if (!code) {
        judge_room(finding, &info);
        return;
    }
    gs_found(finding, gs_amiss(GPUSYS_VERDICT_MISSING), "/dev/shm: %s", strerrordesc_np(-code));
    gs_so(finding, "ranks of one host talk through it: \"unhandled system error\" at the first communicator",
          "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; chmod 1777 /dev/shm");
}

/* ---- memlock ---- */

/* Lock address space without touching it: the limit is asked, and no memory is used. */
static int try_lock(size_t size)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    int code = mlock2(memory, size, MLOCK_ONFAULT) ? -errno : 0;
    munmap(memory, size);
    return code;
}

void gs_look_memlock(struct gpusys_finding *finding)
{
    static const size_t probe = (size_t)1 << 30;
    struct rlimit limit = {0};
    char text[32] = "unlimited";
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        size_text(text, limit.rlim_cur);
    unsigned devices = gs_rdma_devices();
    if (!devices) {
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "there is no RDMA device (the limit is %s)", text);
        return;
    }
    int code = try_lock(probe);
    if (!code) {
        gs_found(finding, GPUSYS_VERDICT_OK, "1 GiB can be locked (the limit is %s)", text);
        return;
    }
    gs_found(finding, gs_amiss(GPUSYS_VERDICT_MISSING),
             "locking 1 GiB: %s (the limit is %s), and there are %u RDMA "
             "devices",
             strerrordesc_np(-code), text, devices);
    gs_so(finding, "NCCL cannot register its buffers: \"ibv_reg_mr failed: Cannot allocate memory\"", "%s",
          gs_container() ? "docker run --ulimit memlock=-1"
                         : "ulimit -l unlimited; LimitMEMLOCK=infinity in the service's unit; for Slurm "
                           "PropagateResourceLimitsExcept=MEMLOCK");
}

/* ---- open files ---- */

/* NCCL raises the soft limit to the hard one by itself. */
void gs_look_files(struct gpusys_finding *finding)
{
    enum { ENOUGH = 4096 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) {
        gs_found(finding, GPUSYS_VERDICT_BROKEN, "getrlimit: %s", strerrordesc_np(errno));
        gs_so(finding, "how many descriptors there are is not known",
              "a seccomp profile that allows prlimit64");
        return;
    }
    bool enough = limit.rlim_max >= ENOUGH;
    gs_found(finding, enough ? GPUSYS_VERDICT_OK : gs_amiss(GPUSYS_VERDICT_MISSING),
             "%ju open descriptors, %ju at most", (uintmax_t)limit.rlim_cur, (uintmax_t)limit.rlim_max);
    gs_so(finding, "a large job runs out of sockets: \"Too many open files\"", "%s",
          gs_container() ? "docker run --ulimit nofile=65536"
                         : "ulimit -Hn 65536, or LimitNOFILE=65536 in the service's unit");
}
