/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One point of a measurement: one operation, one size, one queue depth, for a given time. */
#ifndef GPUSYS_CLI_BENCH_POINT_H
#define GPUSYS_CLI_BENCH_POINT_H

#include <gpusys/remote.h>
#include <stdbool.h>
#include <stdint.h>

/* What is read from or written to, and the memory on this side. */
struct bench_range {
    struct gpusys_remote *remote;
    uint32_t region;
    uint64_t length; /* of the region */
    unsigned char *buffer;
    uint64_t buffer_bytes;
    int64_t timeout_ns; /* for any one transfer */
    bool sequential;    /* offsets in order; otherwise at random */
};

struct bench_point {
    uint32_t op;    /* enum gpusys_op */
    uint32_t depth; /* operations in flight */
    uint64_t bytes; /* of each; at most the region's length; depth * bytes at most buffer_bytes */
};

struct bench_result {
    struct bench_point point;
    uint32_t batch; /* operations that were submitted together */
    uint64_t ops;
    int64_t elapsed_ns;
    /* Per operation, from submission to completion. What takes below half a microsecond is timed in groups:
     * these are then means over 64 operations. */
    uint64_t p50_ns, p99_ns, p999_ns, max_ns;
};

double bench_gib_per_second(const struct bench_result *result);
double bench_kops_per_second(const struct bench_result *result);

/* Measure for `time_ns`, or until interrupted (then with what there is). 0 or the first error of a
 * transfer: transfers may then be under way still, and the remote is good for closing only. */
int bench_point_run(const struct bench_range *range, const struct bench_point *point, int64_t time_ns,
                    struct bench_result *ret_result);

#endif
