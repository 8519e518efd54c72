/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bench_histogram.h"

#include <string.h>

enum { STEP_BITS = 6 }; /* HISTOGRAM_STEPS is 1 << STEP_BITS */

/* Values below 64 have a bucket each; above, each power of two is cut into 64. */
static unsigned bucket_of(uint64_t value)
{
    if (value < HISTOGRAM_STEPS)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - STEP_BITS;
    return (shift + 1) * HISTOGRAM_STEPS + (unsigned)(value >> shift) - HISTOGRAM_STEPS;
}

static uint64_t end_of(unsigned bucket)
{
    if (bucket < HISTOGRAM_STEPS)
        return bucket;
    unsigned shift = bucket / HISTOGRAM_STEPS - 1;
    return ((uint64_t)(HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS) << shift) + (UINT64_C(1) << shift) - 1;
}

void histogram_clear(struct histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
}

void histogram_add(struct histogram *histogram, uint64_t value, uint64_t count)
{
    histogram->buckets[bucket_of(value)] += count;
    histogram->samples += count;
    if (value > histogram->largest)
        histogram->largest = value;
}

uint64_t histogram_at(const struct histogram *histogram, double share)
{
    double exact = share * (double)histogram->samples;
    uint64_t wanted = (uint64_t)exact, seen = 0;
    wanted += (double)wanted < exact;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS && histogram->samples; i++) {
        seen += histogram->buckets[i];
        if (seen && seen >= wanted)
            return end_of(i) < histogram->largest ? end_of(i) : histogram->largest;
    }
    return histogram->largest;
}
