/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bench_report.h"
#include "output.h"
#include "quantity.h"

static const char *op_name(uint32_t op)
{
    return op == GPUSYS_OP_WRITE ? "write" : "read";
}

static const char *pages_name(enum gpusys_pages pages)
{
    switch (pages) {
    case GPUSYS_PAGES_HUGE: return "huge";
    case GPUSYS_PAGES_TRANSPARENT: return "transparent";
    case GPUSYS_PAGES_NORMAL: break;
    }
    return "normal";
}

void bench_heading_print(const struct bench_run *run)
{
    char size[QUANTITY_BYTES], time[QUANTITY_BYTES], safe[1024];
    const struct gpusys_remote_info *info = &run->target->info;
    printf("%s to %s", gpusys_transport_name(info->transport), output_safe(safe, sizeof safe, run->peer));
    printf(": %s\n", output_safe(safe, sizeof safe, info->reason));
    printf("  %s, %s offsets, ready after %s\n", run->target->name, run->sequential ? "sequential" : "random",
           quantity_of_duration(time, run->target->setup_ns));
    printf("  landing buffer of %s, %s pages\n", quantity_of_bytes(size, run->buffer_bytes),
           pages_name(run->pages));
    fflush(stdout);
}

/* Three digits that matter, four decimals at most. */
static void number(struct table *table, double value)
{
    table_cell(table, "%.*f", value < 0.0995 ? 4 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
}

static void row(struct table *table, const struct bench_result *result)
{
    char text[QUANTITY_BYTES];
    const uint64_t latencies[] = {result->p50_ns, result->p99_ns, result->p999_ns};
    table_cell(table, "  %s", op_name(result->point.op));
    table_cell(table, "%s", quantity_of_bytes(text, result->point.bytes));
    table_cell(table, "%u", result->point.depth);
    number(table, bench_gib_per_second(result));
    number(table, bench_kops_per_second(result));
    for (size_t i = 0; i < sizeof latencies / sizeof *latencies; i++)
        table_cell(table, "%s", quantity_of_duration(text, (int64_t)latencies[i]));
}

int bench_table_print(const struct bench_run *run)
{
    static const struct column columns[] = {
        {"  op", ALIGN_LEFT},    {"size", ALIGN_RIGHT}, {"depth", ALIGN_RIGHT}, {"GiB/s", ALIGN_RIGHT},
        {"kops/s", ALIGN_RIGHT}, {"p50", ALIGN_RIGHT},  {"p99", ALIGN_RIGHT},   {"p99.9", ALIGN_RIGHT},
    };
    struct table *table = table_new(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < run->n_results; i++)
        row(table, &run->results[i]);
    return table_print(table, stdout);
}

static json_t *point_json(const struct bench_result *result)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:{s:I, s:I, s:I, s:I}}", "op",
                     op_name(result->point.op), "size_bytes", (json_int_t)result->point.bytes, "depth",
                     (json_int_t)result->point.depth, "batch", (json_int_t)result->batch, "operations",
                     (json_int_t)result->ops, "seconds", (double)result->elapsed_ns / 1e9, "gib_per_second",
                     bench_gib_per_second(result), "kops_per_second", bench_kops_per_second(result),
                     "latency_ns", "p50", (json_int_t)result->p50_ns, "p99", (json_int_t)result->p99_ns,
                     "p99_9", (json_int_t)result->p999_ns, "max", (json_int_t)result->max_ns);
}

json_t *bench_run_json(const struct bench_run *run)
{
    const struct bench_target *target = run->target;
    json_t *points = json_array();
    for (size_t i = 0; i < run->n_results; i++)
        if (json_array_append_new(points, point_json(&run->results[i]))) {
            json_decref(points);
            return NULL;
        }
    bool arena = target->region.kind == GPUSYS_REGION_ARENA;
    char name[1024];
    output_safe(name, sizeof name, arena ? "" : target->region.name);
    return json_pack("{s:s, s:s, s:s, s:{s:s, s:s?, s:I}, s:s, s:I, s:{s:I, s:s}, s:o}", "transport",
                     gpusys_transport_name(target->info.transport), "reason", target->info.reason, "peer",
                     run->peer, "target", "kind", arena ? "arena" : "region", "name", arena ? NULL : name,
                     "bytes", (json_int_t)target->region.length, "offsets",
                     run->sequential ? "sequential" : "random", "setup_ns", (json_int_t)target->setup_ns,
                     "buffer", "bytes", (json_int_t)run->buffer_bytes, "pages", pages_name(run->pages),
                     "points", points);
}
