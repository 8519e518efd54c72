/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: starting, and devices. */
#include "cuda.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

unsigned cuInit(unsigned flags)
{
    unsigned result = fake_enter_early(__func__);
    if (!result && fake.owner && fake.owner != getpid())
        result = NOT_INITIALIZED;
    if (!result && flags)
        result = INVALID_VALUE;
    if (!result && !fake.config.n_devices)
        result = NO_DEVICE;
    if (!result)
        fake.owner = getpid();
    return fake_leave(result);
}

unsigned cuDriverGetVersion(int *version)
{
    unsigned result = fake_enter_early(__func__);
    if (!result)
        *version = fake.config.version;
    return fake_leave(result);
}

unsigned cuDeviceGetCount(int *count)
{
    ENTER;
    *count = fake.config.n_devices;
    return fake_leave(0);
}

unsigned cuDeviceGet(int *device, int ordinal)
{
    ENTER;
    if (ordinal < 0 || ordinal >= fake.config.n_devices)
        return fake_leave(INVALID_DEVICE);
    *device = ordinal;
    return fake_leave(0);
}

static bool is_device(int device)
{
    return device >= 0 && device < fake.config.n_devices;
}

unsigned cuDeviceGetName(char *name, int size, int device)
{
    ENTER;
    if (!is_device(device))
        return fake_leave(INVALID_DEVICE);
    snprintf(name, (size_t)size, "%s", fake.config.name);
    return fake_leave(0);
}

static unsigned uuid(struct CUuuid_st *place, int device)
{
    if (!is_device(device))
        return INVALID_DEVICE;
    memcpy(place, fake.config.devices[device].uuid, 16);
    return 0;
}

unsigned cuDeviceGetUuid(struct CUuuid_st *place, int device)
{
    ENTER;
    return fake_leave(uuid(place, device));
}

unsigned cuDeviceGetUuid_v2(struct CUuuid_st *place, int device)
{
    ENTER;
    return fake_leave(uuid(place, device));
}

unsigned cuDeviceGetPCIBusId(char *text, int size, int device)
{
    ENTER;
    if (!is_device(device))
        return fake_leave(INVALID_DEVICE);
    snprintf(text, (size_t)size, "%04X:%02X:%02X.0", 0u, 0x1bu + (unsigned)fake.config.devices[device].number,
             0u);
    return fake_leave(0);
}

unsigned cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    ENTER;
    if (!is_device(device))
        return fake_leave(INVALID_DEVICE);
    *bytes = fake.config.memory;
    return fake_leave(0);
}

unsigned cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER;
    if (!is_device(device) || !is_device(peer))
        return fake_leave(INVALID_DEVICE);
    *can = device != peer;
    return fake_leave(0);
}

/* ---- attributes ---- */

/* What is not here is 1. */
static const struct {
    unsigned attribute;
    int value, since;
} attributes[] = {
    {16, 132, 0},      /* multiprocessors */
    {18, 0, 0},        /* integrated */
    {20, 0, 0},        /* compute mode */
    {34, 0, 0},        /* PCI device */
    {50, 0, 0},        /* PCI domain */
    {75, 9, 0},        /* compute capability, major */
    {76, 0, 0},        /* minor */
    {116, 1, 11030},   /* GPUDirect RDMA */
    {117, 1, 11030},   /* how to flush it */
    {118, 100, 11030}, /* how it is ordered */
    {124, 1, 11070},   /* dmabuf */
    {134, 0, 12020},   /* NUMA node of the host */
};

enum { PCI_BUS = 33, LAST_ATTRIBUTE = 150 };

int fake_attribute(unsigned attribute, int device, bool *ret_known)
{
    *ret_known = attribute > 0 && attribute <= LAST_ATTRIBUTE;
    for (unsigned i = 0; i < fake.config.n_overrides; i++) {
        if (fake.config.overrides[i].attribute != attribute)
            continue;
        *ret_known = fake.config.overrides[i].is_known;
        return fake.config.overrides[i].value;
    }
    if (attribute == PCI_BUS)
        return 0x1b + fake.config.devices[device].number;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (attributes[i].attribute != attribute)
            continue;
        *ret_known = attributes[i].since <= fake.config.version;
        return attributes[i].value;
    }
    return 1;
}

unsigned cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    bool is_known;
    ENTER;
    if (!is_device(device))
        return fake_leave(INVALID_DEVICE);
    int found = fake_attribute(attribute, device, &is_known);
    if (is_known)
        *value = found;
    return fake_leave(is_known ? 0 : INVALID_VALUE);
}
