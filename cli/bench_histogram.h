/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Latencies counted in buckets whose width is at most 1/64 of their value: any number of samples in fixed
 * memory, and no percentile is off by more than 1.6 %.
 */
#ifndef GPUSYS_CLI_BENCH_HISTOGRAM_H
#define GPUSYS_CLI_BENCH_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_STEPS = 64, HISTOGRAM_BUCKETS = 59 * HISTOGRAM_STEPS };

struct histogram {
    uint64_t samples, largest;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_clear(struct histogram *histogram);

/* `count` samples of `value`. */
void histogram_add(struct histogram *histogram, uint64_t value, uint64_t count);

/* The smallest value that at least `share` (0 … 1) of the samples do not exceed, rounded up to its bucket's
 * end; 0 when there are none. */
uint64_t histogram_at(const struct histogram *histogram, double share);

#endif
