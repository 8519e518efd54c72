/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Why the CUDA driver did not start: the library is there, and what it needs is looked for. */
#include "gpu/cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scene {
    struct gpusys_error *error;
    const char *root;
};

static bool exists(const struct scene *scene, const char *path)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", scene->root, path);
    return access(full, F_OK) == 0;
}

/* 0, or the errno of opening a device's node, which is harmless. */
static int cannot_open(const struct scene *scene, const char *path)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", scene->root, path);
    int fd = open(full, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static bool in_container(const struct scene *scene)
{
    return exists(scene, "/.dockerenv") || exists(scene, "/run/.containerenv");
}

static const char gpus[] = "run it with --gpus all (Docker) or --device nvidia.com/gpu=all (Podman, CDI)";

static void explain_stub(struct gpusys_error *error, const char *library)
{
    gpusys_error_set_cause(error, "%.180s is CUDA's stub library, which is for linking only", library);
    gpusys_error_set_hint(error, "take the folder out of LD_LIBRARY_PATH (and GPUSYS_LIBCUDA); libcuda.so.1 "
                                 "itself comes with NVIDIA's driver");
}

static bool hidden_by_environment(struct gpusys_error *error)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible)
        return false;
    gpusys_error_add_detail(error, "CUDA_VISIBLE_DEVICES", "\"%.100s\"", visible);
    bool hides_all = !*visible || strcmp(visible, "-1") == 0 || strcasecmp(visible, "NoDevFiles") == 0;
    if (hides_all)
        gpusys_error_set_cause(error, "CUDA_VISIBLE_DEVICES is \"%.100s\", which hides every GPU", visible);
    else
        gpusys_error_set_cause(error, "CUDA_VISIBLE_DEVICES is \"%.100s\", and none of these is there",
                               visible);
    gpusys_error_set_hint(error, "unset CUDA_VISIBLE_DEVICES, or name GPUs that nvidia-smi -L lists");
    return hides_all;
}

static void no_control_node(const struct scene *scene)
{
    struct gpusys_error *error = scene->error;
    bool has_module = exists(scene, "/proc/driver/nvidia/version");
    if (in_container(scene)) {
        gpusys_error_set_cause(error, "this container has no /dev/nvidiactl: no GPU was given to it%s",
                               has_module ? "" : ", or the host has none");
        gpusys_error_set_hint(error, "%s", gpus);
    } else if (has_module) {
        gpusys_error_set_cause(error, "the kernel module nvidia is loaded, but there is no /dev/nvidiactl");
        gpusys_error_set_hint(error, "as root: nvidia-modprobe -c 0 -u; in a container: %s", gpus);
    } else {
        gpusys_error_set_cause(error, "the kernel module nvidia is not loaded");
        gpusys_error_set_hint(error, "modprobe nvidia, then see dmesg; in a container: %s", gpus);
    }
}

/* What the driver needs, in the order in which it opens it. */
static bool explain_nodes(const struct scene *scene)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    struct gpusys_error *error = scene->error;
    if (exists(scene, "/dev/dxg")) /* Windows' Linux has a driver of its own */
        return false;
    if (!exists(scene, nodes[0])) {
        no_control_node(scene);
        return true;
    }
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        int why = cannot_open(scene, nodes[i]);
        if (!why)
            continue;
        gpusys_error_set_cause(error, "%s cannot be opened: %s", nodes[i], strerrordesc_np(why));
        if (why == EPERM || why == EACCES)
            gpusys_error_set_hint(error, "in a container: %s; else see the node's mode and group", gpus);
        else
            gpusys_error_set_hint(error, "as root: modprobe nvidia-uvm; nvidia-modprobe -c 0 -u");
        return true;
    }
    return false;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  ..." */
static void explain_mismatch(const struct scene *scene, const char *library)
{
    char path[512], line[160] = "";
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/version", scene->root);
    FILE *file = fopen(path, "re");
    if (file && fgets(line, sizeof line, file))
        line[strcspn(line, "\n")] = 0;
    if (file)
        fclose(file);
    gpusys_error_add_detail(scene->error, "kernel module", "%s", *line ? line : "unknown");
    gpusys_error_add_detail(scene->error, "library", "%.200s", library);
    gpusys_error_set_cause(scene->error,
                           "the kernel module and libcuda are of different versions of the driver");
    gpusys_error_set_hint(scene->error, "after an upgrade: reboot, or unload the nvidia modules and load "
                                        "them anew; in a container: restart it");
}

static void explain_rest(struct gpusys_error *error, unsigned result)
{
    switch (result) {
    case GS_CUDA_SYSTEM_NOT_READY:
        gpusys_error_set_cause(error, "the GPUs are joined by NVSwitch, and the fabric manager has not set "
                                      "it up");
        gpusys_error_set_hint(error, "systemctl start nvidia-fabricmanager, in exactly the driver's version");
        break;
    case GS_CUDA_COMPAT_NOT_SUPPORTED:
        gpusys_error_set_cause(error, "this libcuda is newer than the kernel module, and the GPU is not of a "
                                      "kind that may have that");
        gpusys_error_set_hint(error, "take the compat folder out of LD_LIBRARY_PATH (package cuda-compat), "
                                     "or upgrade the driver");
        break;
    case GS_CUDA_MPS_CONNECTION_FAILED:
    case GS_CUDA_MPS_SERVER_NOT_READY: break; /* the hint is there already */
    default: gpusys_error_set_hint(error, "nvidia-smi and dmesg (lines with NVRM and Xid) say more"); break;
    }
}

void gs_cuda_explain(struct gpusys_error *error, unsigned result, const char *root, const char *library)
{
    if (!error || error->cause[0])
        return;
    const struct scene scene = {error, root};
    bool is_general = result == GS_CUDA_NO_DEVICE || result == GS_CUDA_UNKNOWN_ERROR ||
                      result == GS_CUDA_NOT_INITIALIZED || result == GS_CUDA_OPERATING_SYSTEM;
    if (result == GS_CUDA_STUB_LIBRARY || strstr(library, "/stubs/"))
        explain_stub(error, library);
    else if (result == GS_CUDA_DRIVER_MISMATCH)
        explain_mismatch(&scene, library);
    else if (!is_general)
        explain_rest(error, result);
    else if (!(result == GS_CUDA_NO_DEVICE && hidden_by_environment(error)) && !explain_nodes(&scene) &&
             !error->cause[0])
        explain_rest(error, result);
}
