/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The session that is measured, and the region in it that is read and written. */
#ifndef GPUSYS_CLI_BENCH_TARGET_H
#define GPUSYS_CLI_BENCH_TARGET_H

#include <gpusys/remote.h>
#include <stdbool.h>

struct bench_target {
    struct gpusys_remote *remote;
    struct gpusys_remote_info info;
    struct gpusys_region_info region;
    char name[256];   /* of the region, fit to print: "an arena of 128 MiB", "model/shard-0, 4.00 GiB" */
    int64_t setup_ns; /* from nothing to a region that can be read */
};

struct bench_wishes {
    const char *region; /* its name; NULL: an arena, or else the largest region that can be read */
    bool write;         /* must be writable */
    uint64_t arena_bytes;
    const char *cookie;         /* the file; NULL: where it usually is */
    uint32_t require;           /* enum gpusys_transport */
    bool cache;                 /* a cache peer of the field: an arena of arena_bytes */
    const char *const *devices; /* RDMA; NULL: every port that is up */
    uint32_t n_devices, n_rails;
    int64_t timeout_ns;
};

/* 0 or a negative errno with the error set. */
int bench_target_open(struct bench_target *ret_target, const char *address, const struct bench_wishes *wishes,
                      struct gpusys_error *error);

void bench_target_close(struct bench_target *target);

#endif
