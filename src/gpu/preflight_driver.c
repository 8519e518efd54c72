/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks at the CUDA driver: does it start, what does it show, does NCCL fit it, RDMA into its memory. */
#include "gpu/preflight.h"

#include <errno.h>
#include <gpusys/cuda.h>
#include <gpusys/nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STUB_LIBRARY = 34 }; /* CUresult */
enum { EXCLUSIVE = 1, PROHIBITED = 2, EXCLUSIVE_PROCESS = 3 };

/* "13.0" of 13000. */
static const char *version_text(char text[16], int version)
{
    snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

static const char *served(char text[16])
{
    int version;
    return gpusys_cuda_version(&version, NULL) == 0 ? version_text(text, version) : "?";
}

/* ---- driver ---- */

/* A library that was found and does not do is broken; one that is not there is missing, where there is a GPU. */
static enum gpusys_verdict judge(int code, const struct gpusys_error *error)
{
    bool is_stub = error->domain == GPUSYS_DOMAIN_CUDA && error->foreign == STUB_LIBRARY;
    if (code == -ELIBBAD || code == -ELIBACC || code == -ENOSYS)
        return GPUSYS_VERDICT_BROKEN;
    if (code == -ENOENT || (code == -ENODEV && !is_stub && !gs_gpu_nodes()))
        return gs_amiss(GPUSYS_VERDICT_MISSING);
    return gs_amiss(GPUSYS_VERDICT_BROKEN);
}

static bool is_named(void)
{
    const char *path = secure_getenv("GPUSYS_LIBCUDA");
    return path && *path;
}

/* A kernel that has the driver while this process has no libcuda: that is a container. */
static void say_fix(struct gpusys_finding *finding, const struct gpusys_error *error)
{
    static const char nothing[] = "no CUDA, and so no NCCL, in this process";
    char kernel[32];
    bool is_container = gs_container() != NULL || (gs_kernel_driver(kernel) && error->code == -ENOENT);
    if (error->code == -ENOENT && is_named())
        gs_so(finding, nothing, "%s", error->hint);
    else if (error->code == -ENOENT && is_container)
        gs_so(finding, nothing,
              "docker run --gpus all (with the NVIDIA Container Toolkit on the host), or "
              "--device nvidia.com/gpu=all");
    else if (error->code == -ENOENT)
        gs_so(finding, nothing,
              "install NVIDIA's driver (packages nvidia-driver and libcuda1, or cuda-drivers)");
    else
        gs_so(finding, nothing, "%s", error->hint[0] ? error->hint : "reinstall NVIDIA's driver");
}

void gs_look_driver(struct gpusys_finding *finding)
{
    struct gpusys_error error = {0};
    struct gs_names pci = {.count = 0};
    char kernel[32], cuda[16];
    uint32_t count = 0;
    int code = gpusys_cuda_status(&error);
    bool loaded = gs_kernel_driver(kernel);
    gs_gpus_on_pci(&pci);
    const char *library = gpusys_cuda_library();
    if (code == 0) {
        gpusys_cuda_count(&count, NULL);
        gs_found(finding, GPUSYS_VERDICT_OK, "%u GPU%s, CUDA %s, kernel driver %s, %.120s", count,
                 count == 1 ? "" : "s", served(cuda), loaded ? kernel : "not shown", library);
        return;
    }
    enum gpusys_verdict verdict = judge(code, &error);
    if (verdict == GPUSYS_VERDICT_NOT_NEEDED)
        gs_found(finding, verdict, "no NVIDIA GPU on this host; %.160s",
                 code == -ENOENT && !is_named() ? "no libcuda.so.1"
                 : error.cause[0]               ? error.cause
                                                : error.message);
    else
        gs_found(finding, verdict, "%.110s%s%.100s%s%s%s%.40s", error.message, error.cause[0] ? ": " : "",
                 error.cause, loaded ? "; kernel driver " : "", loaded ? kernel : "",
                 pci.count ? "; GPUs at " : "", pci.text);
    say_fix(finding, &error);
}

/* ---- gpus ---- */

struct gpus {
    struct gpusys_cuda_info list[64];
    uint32_t count;
    struct gs_names closed, same, all;
};

static void name_gpus(struct gpus *gpus)
{
    for (uint32_t i = 0; i < gpus->count; i++) {
        const struct gpusys_cuda_info *gpu = &gpus->list[i];
        bool first = i == 0 || strcmp(gpu->name, gpus->list[i - 1].name) != 0;
        gs_name_add(&gpus->all, ", ", "%s%s%u %.16s", first ? gpu->name : "", first ? " " : "", gpu->device,
                    gpu->uuid_text);
        if (gpu->compute_mode == PROHIBITED)
            gs_name_add(&gpus->closed, " ", "%u", gpu->device);
        for (uint32_t j = 0; j < i; j++)
            if (memcmp(gpu->uuid, gpus->list[j].uuid, sizeof gpu->uuid) == 0)
                gs_name_add(&gpus->same, ", ", "%u and %u are %s", gpus->list[j].device, gpu->device,
                            gpu->uuid_text);
    }
}

static int read_gpus(struct gpus *gpus, struct gpusys_error *error)
{
    uint32_t count;
    int code = gpusys_cuda_count(&count, error);
    for (uint32_t i = 0; i < count && !code && gpus->count < 64; i++) {
        struct gpusys_cuda_info *gpu = &gpus->list[gpus->count++];
        *gpu = (struct gpusys_cuda_info){.size = sizeof *gpu};
        code = gpusys_cuda_info(i, gpu, error);
    }
    return code;
}

static bool any_exclusive(const struct gpus *gpus)
{
    for (uint32_t i = 0; i < gpus->count; i++)
        if (gpus->list[i].compute_mode == EXCLUSIVE || gpus->list[i].compute_mode == EXCLUSIVE_PROCESS)
            return true;
    return false;
}

void gs_look_gpus(struct gpusys_finding *finding)
{
    struct gpusys_error error = {0};
    struct gpus *gpus = calloc(1, sizeof *gpus);
    int code = gpus ? gpusys_cuda_status(&error) : -ENOMEM;
    bool no_driver = code != 0;
    if (!no_driver)
        code = read_gpus(gpus, &error);
    if (no_driver) {
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "CUDA does not start here: see the look at the driver");
    } else if (code) {
        gs_found(finding, GPUSYS_VERDICT_BROKEN, "%.200s", error.message);
        gs_so(finding, "a GPU that cannot be asked cannot be used", "nvidia-smi -L; dmesg | grep -i xid");
    } else {
        name_gpus(gpus);
        bool bad = gpus->same.count || gpus->closed.count;
        gs_found(finding, bad ? GPUSYS_VERDICT_BROKEN : GPUSYS_VERDICT_OK, "%s%s%s",
                 gpus->same.count     ? gpus->same.text
                 : gpus->closed.count ? "compute mode \"prohibited\": GPU "
                                      : gpus->all.text,
                 gpus->closed.count && !gpus->same.count ? gpus->closed.text : "",
                 !bad && any_exclusive(gpus) ? "; exclusive: one process a GPU" : "");
        if (gpus->same.count)
            gs_so(finding,
                  "two ranks would come to share a GPU, and NCCL refuses: \"Duplicate GPU detected\"",
                  "name each GPU once in CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them), one for each rank");
        else
            gs_so(finding, "no process can have a context there: ncclCommInitRank fails",
                  "nvidia-smi -i %s -c DEFAULT", gpus->closed.text);
    }
    free(gpus);
}

/* ---- versions ---- */

/* The CUDA version that NCCL was built for; 0: it does not say. */
static int built_for(const char *banner)
{
    int major, minor;
    const char *cuda = strstr(banner, "+cuda");
    return cuda && sscanf(cuda, "+cuda%d.%d", &major, &minor) == 2 ? major * 1000 + minor * 10 : 0;
}

void gs_look_versions(struct gpusys_finding *finding)
{
    char banner[64] = "", driver_text[16], built_text[16];
    int driver = 0, nccl = 0;
    bool has_driver = gpusys_cuda_version(&driver, NULL) == 0, has_nccl = !gpusys_nccl_version(&nccl, NULL);
    if (has_nccl)
        gs_nccl_banner(gpusys_nccl_library(), banner);
    int built = built_for(banner);
    version_text(driver_text, driver);
    version_text(built_text, built);
    if (!has_driver || !has_nccl || !built) {
        gs_found(finding, has_driver && has_nccl ? GPUSYS_VERDICT_OK : GPUSYS_VERDICT_NOT_NEEDED,
                 "%s%s; %s%s%s%s", has_driver ? "the driver serves CUDA " : "there is no driver",
                 has_driver ? driver_text : "", has_nccl ? "NCCL " : "there is no NCCL", built ? banner : "",
                 built ? " was built for CUDA " : "",
                 built      ? built_text
                 : has_nccl ? "does not say what it was built for"
                            : "");
        return;
    }
    bool too_old = driver / 1000 < built / 1000;
    gs_found(finding, too_old ? GPUSYS_VERDICT_BROKEN : GPUSYS_VERDICT_OK,
             "the driver serves CUDA %s, NCCL %.40s was built for CUDA %s", driver_text, banner, built_text);
    gs_so(finding,
          "\"CUDA driver version is insufficient for CUDA runtime version\" at the first communicator",
          "upgrade the driver to one that serves CUDA %d, or install an NCCL for CUDA %d: pip install "
          "nvidia-nccl-cu%d",
          built / 1000, driver / 1000, driver / 1000);
}

/* ---- gpudirect ---- */

struct reach {
    uint32_t dmabuf, rdma, no_rdma, count;
};

static int read_reach(struct reach *reach)
{
    int code = gpusys_cuda_status(NULL);
    if (!code)
        code = gpusys_cuda_count(&reach->count, NULL);
    for (uint32_t i = 0; i < reach->count && !code; i++) {
        struct gpusys_cuda_info gpu = {.size = sizeof gpu};
        code = gpusys_cuda_info(i, &gpu, NULL);
        reach->dmabuf += gpu.dmabuf == 1;
        reach->rdma += gpu.gpudirect_rdma == 1;
        reach->no_rdma += gpu.gpudirect_rdma == 0;
    }
    return code;
}

static const char *peermem_module(void)
{
    return gs_exists("/sys/module/nvidia_peermem") ? "nvidia_peermem"
           : gs_exists("/sys/module/nv_peer_mem")  ? "nv_peer_mem"
                                                   : NULL;
}

static void judge_reach(struct gpusys_finding *finding, const struct reach *reach, unsigned devices)
{
    const char *module = peermem_module();
    bool by_dmabuf = reach->dmabuf == reach->count, unable = reach->no_rdma == reach->count;
    bool good = !unable && (by_dmabuf || module);
    gs_found(finding,
             good      ? GPUSYS_VERDICT_OK
             : devices ? GPUSYS_VERDICT_MISSING
                       : GPUSYS_VERDICT_NOT_NEEDED,
             "dmabuf on %u of %u GPUs, %s; %u RDMA device%s%s", reach->dmabuf, reach->count,
             module ? module : "nvidia_peermem is not loaded", devices, devices == 1 ? "" : "s",
             unable ? "; these GPUs have no GPUDirect RDMA" : "");
    gs_so(finding,
          "what goes over the network is copied through the host's memory first: a fraction of the speed",
          "%s",
          unable ? "nothing: this kind of GPU shares the host's memory, or is of a line without GPUDirect"
                 : "modprobe nvidia-peermem; or the open kernel modules of the driver, which have dmabuf");
}

void gs_look_gpudirect(struct gpusys_finding *finding)
{
    struct reach reach = {0};
    unsigned devices = gs_rdma_devices();
    if (read_reach(&reach) || !reach.count)
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "no GPU that CUDA shows; %u RDMA device%s", devices,
                 devices == 1 ? "" : "s");
    else
        judge_reach(finding, &reach, devices);
}
