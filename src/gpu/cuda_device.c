/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* CUDA's devices: how many, and what they are. */
#include "base/options.h"
#include "gpu/cuda.h"

#include <stdio.h>
#include <stdlib.h>

int gpusys_cuda_count(uint32_t *ret_count, struct gpusys_error *error)
{
    int code, count = 0;
    const struct gs_cuda *driver = gs_cuda(&code, error);
    if (!driver)
        return code;
    unsigned result = driver->device_count(&count);
    if (result)
        return gs_cuda_fail(error, result, "CUDA: the number of GPUs");
    *ret_count = (uint32_t)count;
    return 0;
}

int gs_cuda_device(const struct gs_cuda *driver, uint32_t device, int *ret_handle, struct gpusys_error *error)
{
    unsigned result =
        device > INT32_MAX ? GS_CUDA_INVALID_DEVICE : driver->device_get(ret_handle, (int)device);
    if (!result)
        return 0;
    int code = gs_cuda_fail(error, result, "GPU %u", device), count = 0;
    if (result != GS_CUDA_INVALID_DEVICE || driver->device_count(&count))
        return code;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    gpusys_error_add_detail(error, "GPUs", "%d", count);
    gpusys_error_add_detail(error, "CUDA_VISIBLE_DEVICES", "%.100s", visible ? visible : "not set");
    gpusys_error_set_cause(error, count == 1 ? "there is 1, number 0" : "there are %d, numbered from 0",
                           count);
    gpusys_error_set_hint(error, "name one of those; CUDA_VISIBLE_DEVICES hides and renumbers GPUs");
    return code;
}

int gpusys_cuda_attribute(uint32_t device, int attribute, int *ret_value, struct gpusys_error *error)
{
    int code, handle = 0, value = 0;
    const struct gs_cuda *driver = gs_cuda(&code, error);
    if (driver)
        code = gs_cuda_device(driver, device, &handle, error);
    if (code)
        return code;
    unsigned result = driver->device_attribute(&value, (unsigned)attribute, handle);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: attribute %d", device, attribute);
    *ret_value = value;
    return 0;
}

/* -1 where the driver does not know the attribute. */
static int32_t optional(const struct gs_cuda *driver, int handle, unsigned attribute)
{
    int value;
    return driver->device_attribute(&value, attribute, handle) ? -1 : value;
}

static unsigned read_attributes(const struct gs_cuda *driver, int handle, struct gpusys_cuda_info *info)
{
    int domain = 0, bus = 0, slot = 0;
    const struct {
        unsigned attribute;
        int *value;
    } wanted[] = {
        {GS_CUDA_COMPUTE_MAJOR, &info->compute_major},
        {GS_CUDA_COMPUTE_MINOR, &info->compute_minor},
        {GS_CUDA_MULTIPROCESSORS, &info->multiprocessors},
        {GS_CUDA_COMPUTE_MODE, &info->compute_mode},
        {GS_CUDA_PCI_DOMAIN, &domain},
        {GS_CUDA_PCI_BUS, &bus},
        {GS_CUDA_PCI_DEVICE, &slot},
    };
    unsigned result = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && !result; i++)
        result = driver->device_attribute(wanted[i].value, wanted[i].attribute, handle);
    snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.0", (unsigned)domain & 0xffffffu,
             (unsigned)bus & 0xffu, (unsigned)slot & 0x1fu);
    info->integrated = optional(driver, handle, GS_CUDA_INTEGRATED);
    info->dmabuf = optional(driver, handle, GS_CUDA_DMABUF);
    info->gpudirect_rdma = optional(driver, handle, GS_CUDA_GPUDIRECT_RDMA);
    info->gpudirect_flush = optional(driver, handle, GS_CUDA_GPUDIRECT_FLUSH);
    info->gpudirect_ordering = optional(driver, handle, GS_CUDA_GPUDIRECT_ORDERING);
    info->host_numa_node = optional(driver, handle, GS_CUDA_HOST_NUMA_NODE);
    return result;
}

/* As nvidia-smi has it. The driver says that it is a MIG instance nowhere but in the name. */
static unsigned read_uuid(const struct gs_cuda *driver, int handle, struct gpusys_cuda_info *info)
{
    struct CUuuid_st *place = (struct CUuuid_st *)info->uuid;
    if (!driver->device_uuid_v2 && !driver->device_uuid)
        return 0;
    unsigned result =
        driver->device_uuid_v2 ? driver->device_uuid_v2(place, handle) : driver->device_uuid(place, handle);
    if (result)
        return result;
    int used = snprintf(info->uuid_text, sizeof info->uuid_text, "%s",
                        strstr(info->name, " MIG ") ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++)
        used += snprintf(info->uuid_text + used, sizeof info->uuid_text - (size_t)used, "%s%02x",
                         i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", info->uuid[i]);
    return 0;
}

int gpusys_cuda_info(uint32_t device, struct gpusys_cuda_info *ret_info, struct gpusys_error *error)
{
    struct gpusys_cuda_info info = {.size = sizeof info, .device = device};
    int code, handle = 0;
    size_t bytes = 0;
    const struct gs_cuda *driver = gs_cuda(&code, error);
    if (driver)
        code = gs_cuda_device(driver, device, &handle, error);
    if (code)
        return code;
    unsigned result = driver->device_name(info.name, sizeof info.name, handle);
    if (!result)
        result = read_uuid(driver, handle, &info);
    if (!result)
        result = driver->device_memory(&bytes, handle);
    if (!result)
        result = read_attributes(driver, handle, &info);
    if (result)
        return gs_cuda_fail(error, result, "GPU %u: what it is", device);
    info.memory_bytes = bytes;
    if (gs_info_give(ret_info, &info, sizeof info))
        return gpusys_error_set(error, -EINVAL, "GPU %u: the size of the information is not set", device);
    return 0;
}
