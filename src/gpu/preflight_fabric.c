/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks at the fabric of NVSwitches and its manager, and at the container that this may be. */
#include "gpu/preflight.h"

#include <ctype.h>
#include <dirent.h>
#include <gpusys/cuda.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- fabric ---- */

enum { SYSTEM_NOT_READY = 802 }; /* CUresult */

static unsigned count_switches(void)
{
    unsigned nodes = gs_count_files("/dev/nvidia-nvswitch[0-9]*");
    return nodes ? nodes : gs_count_files("/proc/driver/nvidia-nvswitch/devices/*");
}

/* "nv-fabricmanager", of which the kernel keeps 15 letters. A container does not see it. */
static bool manager_runs(void)
{
    char path[GS_PATH_BYTES], name[32];
    bool found = false;
    DIR *folder = opendir(gs_path(path, "/proc"));
    for (const struct dirent *entry; folder && !found && (entry = readdir(folder));)
        found = isdigit((unsigned char)entry->d_name[0]) &&
                gs_read_line(name, sizeof name, "/proc/%s/comm", entry->d_name) &&
                strcmp(name, "nv-fabricmanage") == 0;
    if (folder)
        closedir(folder);
    return found;
}

void gs_look_fabric(struct gpusys_finding *finding)
{
    struct gpusys_error error = {0};
    char kernel[32];
    unsigned switches = count_switches();
    int code = gpusys_cuda_status(&error);
    bool waits = code && error.domain == GPUSYS_DOMAIN_CUDA && error.foreign == SYSTEM_NOT_READY;
    if (!switches && !waits) {
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "there is no NVSwitch");
        return;
    }
    bool runs = manager_runs();
    const char *manager = runs ? "its manager runs" : "no manager is seen to run";
    /* CUDA starts only when the manager has set the switches up: that says more than its process. */
    enum gpusys_verdict verdict = code == 0 ? GPUSYS_VERDICT_OK
                                  : waits   ? GPUSYS_VERDICT_BROKEN
                                  : runs    ? GPUSYS_VERDICT_OK
                                            : GPUSYS_VERDICT_MISSING;
    gs_found(finding, verdict, "%u NVSwitches, %s; CUDA %s", switches, manager,
             code == 0 ? "starts"
             : waits   ? "says that the system is not ready"
                       : "does not start");
    gs_kernel_driver(kernel);
    gs_so(finding,
          "no CUDA, or no NVLink SHARP: \"nvls.cc: invalid argument\", \"system not yet initialized\"",
          "on the host: systemctl enable --now nvidia-fabricmanager, in exactly the driver's version%s%s",
          kernel[0] ? ", " : "", kernel);
}

/* ---- container ---- */

/* The numbers that the first namespaces of a kernel have. */
static const unsigned first_ipc = 0xefffffff, first_pid = 0xeffffffc;

/* Is a namespace of ours the host's? */
static bool is_hosts(const char *kind, unsigned first)
{
    char path[GS_PATH_BYTES];
    struct stat status;
    return stat(gs_path(path, "/proc/self/ns/%s", kind), &status) == 0 && status.st_ino == first;
}

void gs_look_container(struct gpusys_finding *finding)
{
    char kernel[32];
    const char *name = gs_container();
    bool has_module = gs_kernel_driver(kernel);
    if (!name) {
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "this is no container");
    } else if (has_module && !gs_gpu_nodes()) {
        gs_found(finding, GPUSYS_VERDICT_MISSING, "%s: the kernel has NVIDIA's driver %s, /dev has no GPU",
                 name, kernel);
        gs_so(finding, "no CUDA in this container",
              "docker run --gpus all, or --device nvidia.com/gpu=all; in Kubernetes: limits: nvidia.com/gpu: "
              "N");
    } else {
        bool ipc = is_hosts("ipc", first_ipc), pid = is_hosts("pid", first_pid);
        gs_found(finding, GPUSYS_VERDICT_OK, "%s, %s IPC and %s PID namespace%s", name,
                 ipc ? "the host's" : "its own", pid ? "the host's" : "its own",
                 ipc ? "" : "; ranks in other containers of this host are reached over the network");
    }
}
