/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer to measure against, in a process of its own. */
#ifndef GPUSYS_CLI_BENCH_LOCAL_H
#define GPUSYS_CLI_BENCH_LOCAL_H

#include <stdint.h>
#include <sys/types.h>

struct bench_local {
    pid_t child;
    int keep; /* the child ends when this is closed, or when this process dies */
    char address[128];
};

/* Start one on loopback that gives arenas of `arena_bytes` in all. Call before there are threads. 0 or a
 * negative errno, which has been reported. */
int bench_local_start(struct bench_local *ret_local, uint64_t arena_bytes);

void bench_local_stop(struct bench_local *local);

#endif
