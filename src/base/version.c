/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <gpusys/api.h>

#define TEXT_OF(value) #value
#define TEXT(value)    TEXT_OF(value)

const char *gpusys_version(void)
{
    return TEXT(GPUSYS_VERSION_MAJOR) "." TEXT(GPUSYS_VERSION_MINOR) "." TEXT(GPUSYS_VERSION_PATCH);
}

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#if defined(__x86_64__)
#define ARCHITECTURE "x86-64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "another architecture"
#endif

#if GS_HAS_RDMA
#define TRANSPORTS "shm verbs tcp"
#else
#define TRANSPORTS "shm tcp"
#endif

#if GS_HAS_NVTX
#define NVTX ", nvtx"
#else
#define NVTX ""
#endif

const char *gpusys_build_info(void)
{
    return ARCHITECTURE ", " COMPILER ", transports " TRANSPORTS NVTX;
}
