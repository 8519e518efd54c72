/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: memory, and what is registered of it. */
#include "fake/nccl.h"

#include <stdlib.h>

enum { WINDOW_ALIGNMENT = 4096, SYMMETRIC = 1, STAT_SUSPENDED = 1, STAT_LAST = 3 };

struct registration {
    const struct ncclComm *comm;
    size_t bytes;
};

struct ncclWindow_vidmem {
    const struct ncclComm *comm;
    void *address;
};

int ncclMemAlloc(void **address, size_t bytes)
{
    int device, told = fake_enter(AT_ncclMemAlloc, NULL);
    if (told != NOTHING)
        return told;
    if (!address || bytes == 0)
        return fake_say(INVALID_ARGUMENT, "ncclMemAlloc: no place for the address, or no bytes");
    int result = fake_cuda_start(&device);
    if (result != SUCCESS)
        return result;
    void *memory = fake_cuda_alloc(bytes);
    if (!memory)
        return fake_say(CUDA_ERROR, "Cuda failure 'out of memory'");
    *address = memory;
    return SUCCESS;
}

int ncclMemFree(void *address)
{
    int told = fake_enter(AT_ncclMemFree, NULL);
    if (told != NOTHING)
        return told;
    if (address && !fake_cuda_free(address))
        return fake_say(CUDA_ERROR, "Cuda failure 'invalid argument'");
    return SUCCESS;
}

int ncclCommRegister(struct ncclComm *comm, void *buffer, size_t bytes, void **handle)
{
    int told = fake_enter(AT_ncclCommRegister, comm);
    if (told != NOTHING)
        return told;
    if (!comm || !handle || !buffer)
        return fake_say(INVALID_ARGUMENT, "ncclCommRegister: an argument is NULL");
    struct registration *registration = malloc(sizeof *registration);
    if (!registration)
        return fake_say(SYSTEM_ERROR, "Out of memory");
    *registration = (struct registration){comm, bytes};
    *handle = registration;
    return SUCCESS;
}

int ncclCommDeregister(struct ncclComm *comm, void *handle)
{
    int told = fake_enter(AT_ncclCommDeregister, comm);
    if (told != NOTHING)
        return told;
    struct registration *registration = handle;
    if (registration && registration->comm != comm)
        return fake_say(INVALID_USAGE, "Deregister: the handle is another communicator's");
    free(registration);
    return SUCCESS;
}

int ncclCommWindowRegister(struct ncclComm *comm, void *buffer, size_t bytes,
                           struct ncclWindow_vidmem **window, int flags)
{
    int told = fake_enter(AT_ncclCommWindowRegister, comm);
    if (told != NOTHING)
        return told;
    if (!comm || !window || !buffer || bytes == 0)
        return fake_say(INVALID_ARGUMENT, "ncclCommWindowRegister: an argument is NULL or 0");
    if ((flags & SYMMETRIC) && (uintptr_t)buffer % WINDOW_ALIGNMENT)
        return fake_say(INVALID_ARGUMENT, "The window's address must be a multiple of %d", WINDOW_ALIGNMENT);
    struct ncclWindow_vidmem *made = malloc(sizeof *made);
    if (!made)
        return fake_say(SYSTEM_ERROR, "Out of memory");
    *made = (struct ncclWindow_vidmem){comm, buffer};
    *window = made;
    return SUCCESS;
}

int ncclCommWindowDeregister(struct ncclComm *comm, struct ncclWindow_vidmem *window)
{
    int told = fake_enter(AT_ncclCommWindowDeregister, comm);
    if (told != NOTHING)
        return told;
    if (window && window->comm != comm)
        return fake_say(INVALID_USAGE, "The window is another communicator's");
    free(window);
    return SUCCESS;
}

int ncclWinGetUserPtr(struct ncclComm *comm, struct ncclWindow_vidmem *window, void **address)
{
    int told = fake_enter(AT_ncclWinGetUserPtr, comm);
    if (told != NOTHING)
        return told;
    if (!comm || !window || !address)
        return fake_say(INVALID_ARGUMENT, "ncclWinGetUserPtr: an argument is NULL");
    *address = window->address;
    return SUCCESS;
}

/* It has no memory on a GPU. */
int ncclCommMemStats(struct ncclComm *comm, int stat, uint64_t *value)
{
    int told = fake_enter(AT_ncclCommMemStats, comm);
    if (told != NOTHING)
        return told;
    if (!comm || !value || stat < 0 || stat > STAT_LAST)
        return fake_say(INVALID_ARGUMENT, "ncclCommMemStats: an argument is NULL, or no statistic %d", stat);
    *value = stat == STAT_SUSPENDED ? comm->suspended : 0;
    return SUCCESS;
}
