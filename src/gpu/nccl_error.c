/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a result of NCCL's means: an errno, its own words, and the cause where those words, or what they speak of, show
 * it. NCCL keeps one last error for the whole process and never clears it, so that words left by an earlier call may
 * still be there: a cause counts only with a result that it can have led to.
 */
#include "gpu/nccl.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int errno_of(int result)
{
    switch (result) {
    case GPUSYS_NCCL_SUCCESS: return 0;
    case GPUSYS_NCCL_INTERNAL_ERROR: return -EPROTO;
    case GPUSYS_NCCL_INVALID_ARGUMENT:
    case GPUSYS_NCCL_INVALID_USAGE: return -EINVAL;
    case GPUSYS_NCCL_IN_PROGRESS: return -EAGAIN;
    case GPUSYS_NCCL_TIMEOUT: return -ETIMEDOUT;
    default: return -EIO;
    }
}

/* ---- causes ---- */

static void say_no_driver(struct gpusys_error *error)
{
    if (access("/proc/driver/nvidia/version", F_OK) < 0)
        gpusys_error_set_cause(error, "no NVIDIA driver is loaded on this host");
    else
        gpusys_error_set_cause(error,
                               "the driver is older than the CUDA of this NCCL, or its libcuda.so.1 is "
                               "not to be found here");
    gpusys_error_set_hint(error,
                          "see that nvidia-smi works here; install or upgrade the driver, or start the "
                          "container with --gpus all");
}

static void say_stub(struct gpusys_error *error)
{
    gpusys_error_set_cause(error, "the libcuda.so.1 in this process is the toolkit's stub, for linking only, "
                                  "and no driver");
    gpusys_error_set_hint(error, "take the toolkit's stubs folder out of LD_LIBRARY_PATH; install the driver "
                                 "if there is none");
}

static void say_no_memory(struct gpusys_error *error)
{
    gpusys_error_set_cause(error, "the GPU's memory is full");
    gpusys_error_set_hint(error, "see who uses it with nvidia-smi; leave NCCL some hundred MiB, or lower "
                                 "NCCL_BUFFSIZE and max_ctas");
}

/* The names of this host's interfaces, as many as fit. */
static void list_interfaces(char *text, size_t size)
{
    struct if_nameindex *all = if_nameindex();
    size_t used = 0;
    text[0] = 0;
    for (struct if_nameindex *one = all; one && one->if_index; one++)
        if (used + strlen(one->if_name) + 3 <= size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", one->if_name);
    if_freenameindex(all);
}

static void say_no_interface(struct gpusys_error *error)
{
    char names[128];
    const char *wanted = secure_getenv("NCCL_SOCKET_IFNAME");
    list_interfaces(names, sizeof names);
    if (wanted && *wanted)
        gpusys_error_set_cause(error,
                               "NCCL_SOCKET_IFNAME is \"%.80s\", and no interface that is up and has an "
                               "address fits it",
                               wanted);
    else
        gpusys_error_set_cause(error,
                               "no interface of this host is up and has an address that NCCL would take");
    gpusys_error_set_hint(error, "set NCCL_SOCKET_IFNAME to one of: %s", names);
}

static void say_duplicate_gpu(struct gpusys_error *error)
{
    gpusys_error_set_cause(error, "two ranks were started on one GPU");
    gpusys_error_set_hint(error,
                          "give each rank of a host a GPU of its own, by its local rank (cudaSetDevice, "
                          "or CUDA_VISIBLE_DEVICES)");
}

static void say_other_version(struct gpusys_error *error)
{
    gpusys_error_set_cause(error, "the ranks have loaded different versions of NCCL");
    gpusys_error_set_hint(error,
                          "see with `gpusys nccl` on each host which file is loaded, and name the same "
                          "one everywhere in GPUSYS_LIBNCCL");
}

static void say_shm(struct gpusys_error *error)
{
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0)
        gpusys_error_set_cause(error,
                               "NCCL could not get its memory in /dev/shm, which has %llu of %llu MiB "
                               "free",
                               (unsigned long long)shm.f_bavail * shm.f_frsize >> 20,
                               (unsigned long long)shm.f_blocks * shm.f_frsize >> 20);
    else
        gpusys_error_set_cause(error, "NCCL could not get its memory in /dev/shm, which is not there");
    gpusys_error_set_hint(error,
                          "start the container with --shm-size=1g or --ipc=host; on a host, remove what "
                          "fills /dev/shm (old nccl-* files)");
}

static void say_nvls(struct gpusys_error *error)
{
    gpusys_error_set_cause(error, "NVLink multicast (NVLS) could not be set up; that is so where the fabric "
                                  "manager does not run");
    gpusys_error_set_hint(error,
                          "see systemctl status nvidia-fabricmanager, and the fabric state in nvidia-smi "
                          "-q; NCCL_NVLS_ENABLE=0 goes on without it");
}

static void say_locked_memory(struct gpusys_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        gpusys_error_set_cause(error, "RDMA memory could not be registered: only %llu KiB may be locked",
                               (unsigned long long)limit.rlim_cur >> 10);
    else
        gpusys_error_set_cause(error, "RDMA memory could not be registered");
    gpusys_error_set_hint(error, "raise the limit: ulimit -l unlimited, LimitMEMLOCK=infinity, or --ulimit "
                                 "memlock=-1 of the container");
}

static void say_too_many_files(struct gpusys_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        gpusys_error_set_cause(error, "the limit of %llu open files is reached",
                               (unsigned long long)limit.rlim_cur);
    gpusys_error_set_hint(error,
                          "raise it: ulimit -n 65536, LimitNOFILE=, or --ulimit nofile= of the container");
}

static void say_closed(struct gpusys_error *error)
{
    gpusys_error_set_cause(error, "another rank's process ended, or aborted");
    gpusys_error_set_hint(error, "look for the first error in the output of the other ranks");
}

static void say_unreachable(struct gpusys_error *error)
{
    gpusys_error_set_cause(error, "another rank could not be reached at the address that NCCL chose");
    gpusys_error_set_hint(error, "choose the interface that joins the hosts with NCCL_SOCKET_IFNAME, and let "
                                 "NCCL's ports (any above 1024) through the firewall");
}

/* The results that a cause can lead to. */
#define BIT(result) (1u << GPUSYS_NCCL_##result)
#define CUDA        BIT(UNHANDLED_CUDA_ERROR)
#define SYSTEM      BIT(SYSTEM_ERROR)
#define USAGE       (BIT(INVALID_USAGE) | BIT(INVALID_ARGUMENT))
#define NETWORK     (BIT(SYSTEM_ERROR) | BIT(REMOTE_ERROR))
#define SET_UP      (BIT(SYSTEM_ERROR) | BIT(INTERNAL_ERROR) | BIT(INVALID_USAGE))

/* The first whose words are both in the last error, in capitals or not. */
static const struct {
    const char *word, *other;
    unsigned results;
    void (*say)(struct gpusys_error *error);
} causes[] = {
    {"driver version is insufficient", "", CUDA, say_no_driver},
    {"driver is a stub", "", CUDA, say_stub},
    {"no CUDA-capable device", "", CUDA, say_no_driver},
    {"NVLS", "fail", CUDA | SYSTEM, say_nvls},
    {"multicast", "fail", CUDA | SYSTEM, say_nvls},
    {"out of memory", "", CUDA, say_no_memory},
    {"no socket interface found", "", SET_UP, say_no_interface},
    {"Duplicate GPU", "", USAGE, say_duplicate_gpu},
    {"Mismatched NCCL version", "", USAGE | SYSTEM, say_other_version},
    {"shared memory segment", "", SYSTEM, say_shm},
    {"/dev/shm", "", SYSTEM, say_shm},
    {"ibv_reg_", "Cannot allocate memory", SYSTEM, say_locked_memory},
    {"Too many open files", "", SYSTEM, say_too_many_files},
    {"closed by remote peer", "", NETWORK, say_closed},
    {"connect", "timed out", NETWORK, say_unreachable},
    {"connect", "refused", NETWORK, say_unreachable},
    {"connect", "no route", NETWORK, say_unreachable},
    {"connect", "unreachable", NETWORK, say_unreachable},
};

static void add_cause(struct gpusys_error *error, int result, const char *text)
{
    unsigned bit = result > 0 && result < 32 ? 1u << result : 0;
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if ((causes[i].results & bit) && strcasestr(text, causes[i].word) &&
            strcasestr(text, causes[i].other)) {
            causes[i].say(error);
            return;
        }
}

/* NCCL's last error, one line; empty when there is none. */
static void take_last_error(const struct gpusys_nccl *nccl, struct ncclComm *comm, char *text, size_t size)
{
    const char *last = nccl->get_last_error ? nccl->get_last_error(comm) : NULL;
    snprintf(text, size, "%.*s", (int)size - 1, last ? last : "");
    text[strcspn(text, "\n")] = 0;
}

static void add_words(const struct gpusys_nccl *nccl, int result, struct ncclComm *comm,
                      struct gpusys_error *error)
{
    char text[400];
    int version = 0, major, minor, patch;
    take_last_error(nccl, comm, text, sizeof text);
    if (text[0])
        gpusys_error_add_detail(error, "last error", "%s", text);
    if (nccl->get_version(&version) == GPUSYS_NCCL_SUCCESS) {
        gpusys_nccl_version_parts(version, &major, &minor, &patch);
        gpusys_error_add_detail(error, "NCCL", "%d.%d.%d, %s", major, minor, patch, gpusys_nccl_library());
    }
    gpusys_error_set_hint(error, "run again with NCCL_DEBUG=INFO to see more");
    add_cause(error, result, text);
}

int gpusys_nccl_error(int result, const char *call, struct ncclComm *comm, struct gpusys_error *error)
{
    int code = errno_of(result);
    if (!code || !error)
        return code;
    const struct gpusys_nccl *nccl = gs_nccl_loaded();
    const char *name = nccl ? nccl->get_error_string(result) : gpusys_nccl_result_name(result);
    gpusys_error_set(error, code, "%s: %s", call, name);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_NCCL, result);
    if (nccl && result != GPUSYS_NCCL_IN_PROGRESS)
        add_words(nccl, result, comm, error);
    return code;
}
