/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What `gpusys bench` found, as text or as JSON. */
#ifndef GPUSYS_CLI_BENCH_REPORT_H
#define GPUSYS_CLI_BENCH_REPORT_H

#include "bench_point.h"
#include "bench_target.h"
#include "output.h"
#include <gpusys/memory.h>

/* The measurements over one transport. */
struct bench_run {
    const struct bench_target *target;
    const char *peer; /* the address, or what else to call it */
    enum gpusys_pages pages;
    uint64_t buffer_bytes;
    bool sequential;
    const struct bench_result *results;
    size_t n_results;
};

/* What stands above the table, before anything is measured. */
void bench_heading_print(const struct bench_run *run);

/* 0 or a negative errno, reported. */
int bench_table_print(const struct bench_run *run);

/* One member of "runs"; NULL when memory is out. */
json_t *bench_run_json(const struct bench_run *run);

#endif
