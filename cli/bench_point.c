/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bench_point.h"
#include "bench_histogram.h"
#include "interrupt.h"

#include <errno.h>
#include <gpusys/deadline.h>

enum {
    MOST_BATCH = 32,         /* operations submitted together: enough to make the system calls cheap */
    BATCH_BYTES = 256 << 10, /* a batch ends when its last operation does: do not make large ones wait */
    MOST_SLOTS = 4096,
    GROUP = 64, /* operations between two looks at the clock, where one alone is too quick to time */
    QUICK_NS = 500,
};

struct run {
    const struct bench_range *range;
    struct bench_point point;
    uint32_t batch;
    uint64_t places, state, ops;
    int64_t time_ns, start_ns, stop_ns;
    struct histogram latencies;
    int64_t started_ns[MOST_SLOTS]; /* of the batch in each slot */
};

double bench_gib_per_second(const struct bench_result *result)
{
    double bytes = (double)result->ops * (double)result->point.bytes;
    return result->elapsed_ns > 0 ? bytes / (double)result->elapsed_ns * 1e9 / (1 << 30) : 0;
}

double bench_kops_per_second(const struct bench_result *result)
{
    return result->elapsed_ns > 0 ? (double)result->ops / (double)result->elapsed_ns * 1e6 : 0;
}

static uint64_t next_offset(struct run *run)
{
    if (run->range->sequential)
        return run->state++ % run->places * run->point.bytes;
    run->state ^= run->state << 13;
    run->state ^= run->state >> 7;
    run->state ^= run->state << 17;
    __extension__ unsigned __int128 product = (unsigned __int128)run->state * run->places;
    return (uint64_t)(product >> 64) * run->point.bytes;
}

static int one(struct run *run)
{
    const struct bench_range *range = run->range;
    uint64_t offset = next_offset(run);
    if (run->point.op == GPUSYS_OP_WRITE)
        return gpusys_remote_write(range->remote, range->region, offset, range->buffer, run->point.bytes,
                                   range->timeout_ns);
    return gpusys_remote_read(range->remote, range->region, offset, range->buffer, run->point.bytes,
                              range->timeout_ns);
}

static void start_clock(struct run *run)
{
    run->start_ns = gpusys_now_ns();
    run->stop_ns = run->start_ns + run->time_ns;
}

/* `count` operations, one after the other. */
static int group(struct run *run, unsigned count, int64_t *ret_ns)
{
    int64_t start = gpusys_now_ns();
    for (unsigned i = 0; i < count; i++) {
        int error = one(run);
        if (error)
            return error;
    }
    *ret_ns = (gpusys_now_ns() - start) / count;
    return 0;
}

static int run_blocking(struct run *run)
{
    int64_t ns = 0;
    int error = group(run, GROUP, &ns);
    unsigned count = ns < QUICK_NS ? GROUP : 1;
    start_clock(run);
    while (!error && gpusys_now_ns() < run->stop_ns && !interrupt_caught()) {
        error = group(run, count, &ns);
        if (error)
            break;
        histogram_add(&run->latencies, (uint64_t)ns, count);
        run->ops += count;
    }
    return error;
}

static int submit(struct run *run, uint32_t slot)
{
    struct gpusys_io ios[MOST_BATCH];
    const struct bench_range *range = run->range;
    for (uint32_t i = 0; i < run->batch; i++)
        ios[i] = (struct gpusys_io){
            .op = run->point.op,
            .region = range->region,
            .offset = next_offset(run),
            .buffer = range->buffer + ((uint64_t)slot * run->batch + i) * run->point.bytes,
            .length = run->point.bytes,
        };
    struct gpusys_batch_options options = {
        .size = sizeof options, .timeout_ns = range->timeout_ns, .user = slot};
    run->started_ns[slot] = gpusys_now_ns();
    return gpusys_remote_submit(range->remote, ios, run->batch, &options, NULL);
}

/* Wait for batches, count them, and send others in their place while there is time. */
static int turn(struct run *run, uint32_t *in_flight)
{
    struct gpusys_completion done[MOST_BATCH];
    int count = gpusys_remote_wait(run->range->remote, done, MOST_BATCH, run->range->timeout_ns);
    if (count < 0)
        return count;
    *in_flight -= (uint32_t)count;
    int64_t now = gpusys_now_ns();
    int error = 0;
    for (int i = 0; i < count && !error; i++) {
        uint32_t slot = (uint32_t)done[i].user;
        error = done[i].status;
        histogram_add(&run->latencies, (uint64_t)(now - run->started_ns[slot]), run->batch);
        run->ops += run->batch;
        if (!error && now < run->stop_ns && !interrupt_caught()) {
            error = submit(run, slot);
            *in_flight += !error;
        }
    }
    return error;
}

static int run_queued(struct run *run)
{
    uint32_t in_flight = 0;
    int error = 0;
    start_clock(run);
    while (!error && in_flight < run->point.depth / run->batch) {
        error = submit(run, in_flight);
        in_flight += !error;
    }
    while (!error && in_flight)
        error = turn(run, &in_flight);
    return error;
}

/* The largest power of two of operations that may be submitted together: never more than half the depth, so
 * that the peer always has something to do. */
static uint32_t batch_for(const struct bench_point *point)
{
    uint32_t batch = 1;
    while (batch * 2 <= MOST_BATCH && batch * 4 <= point->depth && point->depth % (batch * 2) == 0 &&
           batch * 2 * point->bytes <= BATCH_BYTES)
        batch *= 2;
    return batch;
}

int bench_point_run(const struct bench_range *range, const struct bench_point *point, int64_t time_ns,
                    struct bench_result *ret_result)
{
    static struct run run;
    run =
        (struct run){.range = range, .point = *point, .batch = batch_for(point), .state = 88172645463325252u};
    run.time_ns = time_ns;
    run.places = range->length / point->bytes;
    if (!run.places || point->depth / run.batch > MOST_SLOTS)
        return -EINVAL;
    int error = point->depth == 1 ? run_blocking(&run) : run_queued(&run);
    if (error)
        return error;
    *ret_result = (struct bench_result){
        .point = *point,
        .batch = run.batch,
        .ops = run.ops,
        .elapsed_ns = gpusys_now_ns() - run.start_ns,
        .p50_ns = histogram_at(&run.latencies, 0.5),
        .p99_ns = histogram_at(&run.latencies, 0.99),
        .p999_ns = histogram_at(&run.latencies, 0.999),
        .max_ns = run.latencies.largest,
    };
    return 0;
}
