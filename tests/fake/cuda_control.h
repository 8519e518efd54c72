/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Steering the stand-in libcuda.so.1, which does its work on the host's memory. By the environment, read once in every
 * process at its first call:
 *
 *   FAKE_CUDA_DEVICES=N       devices, 1 to 16 (1 without it); 0: cuInit answers 100
 *   FAKE_CUDA_UUIDS=A,B,…     their UUIDs, as nvidia-smi writes them or any hexadecimal number; without it, or beyond the
 *                             end of the list, UUIDs that no other process has
 *   FAKE_CUDA_NAME=TEXT       their name ("Fake GPU")
 *   FAKE_CUDA_MEMORY=BYTES    memory of each (16 GiB); more than that cannot be allocated
 *   FAKE_CUDA_VERSION=N       what cuDriverGetVersion says (13000); device attributes that are newer are not known
 *   FAKE_CUDA_ATTRIBUTES=NUMBER=VALUE,…  device attributes by CUdevice_attribute's number; the value "-": not known
 *   FAKE_CUDA_DELAY_US=N      every piece of a stream's work takes so much longer
 *   FAKE_CUDA_FAIL=RULES      see fake_cuda_fail
 *   CUDA_VISIBLE_DEVICES      chooses and renumbers devices as the driver does (by number only)
 *
 * Like the driver it answers 3 (not initialised) to a child of the process that initialised it, and 800 (not permitted) to
 * a host function in a stream. Memory of a device is freed once the work in the streams of its context is done.
 *
 * By functions: look them up with dlsym in the library that was loaded; any thread.
 */
#ifndef FAKE_CUDA_CONTROL_H
#define FAKE_CUDA_CONTROL_H

#include <stdint.h>

enum fake_cuda_kind {
    FAKE_CUDA_CONTEXTS, /* primary contexts, counted as often as they are retained */
    FAKE_CUDA_STREAMS,
    FAKE_CUDA_EVENTS,
    FAKE_CUDA_ALLOCATIONS, /* device, managed and page-locked host memory */
    FAKE_CUDA_REGISTRATIONS,
    FAKE_CUDA_KINDS
};

/*
 * Rules from now on, in the place of all others; NULL: none. "cuMemAlloc_v2=2,cuInit=999@1": a function (by the name that
 * is exported; "*": any) answers so and does nothing; @N: at its Nth call from now only, @N+: from its Nth call on.
 */
void fake_cuda_fail(const char *rules);

/* Calls of a function since the start. */
uint64_t fake_cuda_calls(const char *function);

/* Live objects; the sum of all for FAKE_CUDA_KINDS. */
int64_t fake_cuda_live(enum fake_cuda_kind kind);

/* How deep this thread's stack of current contexts is. */
unsigned fake_cuda_depth(void);

#endif
