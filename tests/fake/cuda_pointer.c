/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: what an address is; and sharing between processes, which it has not. */
#include "cuda.h"

#include <string.h>

struct CUipcMemHandle_st {
    char reserved[64];
};

struct CUipcEventHandle_st {
    char reserved[64];
};

enum { HOST = 1, DEVICE = 2, NO_DEVICE_ORDINAL = -2, ORDINAL = 9 };

/* What the driver writes for each attribute. */
union value {
    void *pointer;
    uint64_t number;
    unsigned small;
    int device;
    unsigned char tokens[16];
};

static const unsigned char sizes[] = {
    [1] = 8,  [2] = 4,  [3] = 8,  [4] = 8,  [5] = 16, [6] = 4,  [7] = 8,  [8] = 4,  [9] = 4,
    [10] = 4, [11] = 8, [12] = 8, [13] = 4, [14] = 8, [15] = 4, [16] = 4, [17] = 8,
};

static union value value_of(const struct area *area, unsigned attribute, unsigned long long address)
{
    bool is_host = area->kind == AREA_HOST || area->kind == AREA_REGISTERED;
    bool is_device = area->kind == AREA_DEVICE;
    switch (attribute) {
    case 1: return (union value){.pointer = area->context};
    case 2: return (union value){.small = is_host ? HOST : DEVICE};
    case 3: return (union value){.number = address};
    case 4: return (union value){.number = is_device ? 0 : address};
    case 7: return (union value){.number = area->number};
    case 8: return (union value){.small = area->kind == AREA_MANAGED};
    case ORDINAL: return (union value){.device = area->context->device};
    case 11: return (union value){.number = area->start};
    case 12: return (union value){.number = area->bytes};
    case 13: return (union value){.small = 1};
    case 15: return (union value){.small = is_device};
    case 16: return (union value){.small = 3};
    default: return (union value){.number = 0};
    }
}

static bool is_attribute(unsigned attribute)
{
    return attribute < sizeof sizes && sizes[attribute];
}

unsigned cuPointerGetAttribute(void *value, unsigned attribute, unsigned long long address)
{
    ENTER;
    const struct area *area = fake_area(address);
    if (!area || !is_attribute(attribute))
        return fake_leave(INVALID_VALUE);
    const union value found = value_of(area, attribute, address);
    memcpy(value, &found, sizes[attribute]);
    return fake_leave(0);
}

/* Unlike the one before, this knows every address. */
unsigned cuPointerGetAttributes(unsigned count, unsigned *attributes, void **values,
                                unsigned long long address)
{
    ENTER;
    const struct area *area = fake_area(address);
    for (unsigned i = 0; i < count; i++) {
        if (!is_attribute(attributes[i]))
            return fake_leave(INVALID_VALUE);
        union value found = {.tokens = {0}};
        if (area)
            found = value_of(area, attributes[i], address);
        else if (attributes[i] == ORDINAL)
            found.device = NO_DEVICE_ORDINAL;
        memcpy(values[i], &found, sizes[attributes[i]]);
    }
    return fake_leave(0);
}

unsigned cuPointerSetAttribute(const void *value, unsigned attribute, unsigned long long address)
{
    (void)value;
    ENTER;
    return fake_leave(is_attribute(attribute) && fake_area(address) ? 0 : INVALID_VALUE);
}

unsigned cuMemGetAddressRange_v2(unsigned long long *start, size_t *bytes, unsigned long long address)
{
    ENTER;
    const struct area *area = fake_area(address);
    if (!area)
        return fake_leave(NOT_FOUND);
    if (start)
        *start = area->start;
    if (bytes)
        *bytes = area->bytes;
    return fake_leave(0);
}

/* ---- between processes ---- */

unsigned cuIpcGetMemHandle(struct CUipcMemHandle_st *handle, unsigned long long address)
{
    (void)handle;
    (void)address;
    ENTER;
    return fake_leave(NOT_SUPPORTED);
}

unsigned cuIpcOpenMemHandle(unsigned long long *address, struct CUipcMemHandle_st handle, unsigned flags)
{
    (void)address;
    (void)handle;
    (void)flags;
    ENTER;
    return fake_leave(NOT_SUPPORTED);
}

unsigned cuIpcOpenMemHandle_v2(unsigned long long *address, struct CUipcMemHandle_st handle, unsigned flags)
{
    (void)address;
    (void)handle;
    (void)flags;
    ENTER;
    return fake_leave(NOT_SUPPORTED);
}

unsigned cuIpcCloseMemHandle(unsigned long long address)
{
    (void)address;
    ENTER;
    return fake_leave(NOT_SUPPORTED);
}

unsigned cuIpcGetEventHandle(struct CUipcEventHandle_st *handle, struct CUevent_st *event)
{
    (void)handle;
    (void)event;
    ENTER;
    return fake_leave(NOT_SUPPORTED);
}

unsigned cuIpcOpenEventHandle(struct CUevent_st **event, struct CUipcEventHandle_st handle)
{
    (void)event;
    (void)handle;
    ENTER;
    return fake_leave(NOT_SUPPORTED);
}
