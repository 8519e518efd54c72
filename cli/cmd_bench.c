/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys bench: how fast a peer's memory is, over each transport, against size and queue depth. */
#include "bench_local.h"
#include "bench_report.h"
#include "command.h"
#include "field.h"
#include "interrupt.h"
#include "output.h"
#include "quantity.h"
#include "transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STEPS = 32, /* sizes, depths */
    MOST_DEPTH = 4096,
    IN_FLIGHT_BYTES = 64 << 20, /* of landing buffer, unless one operation alone is larger */
    ARENA_BYTES = 128 << 20,    /* beyond the caches */
    SCHEMA = 1,
};

struct bench_options {
    struct string_list sizes, depths, devices;
    const char *region, *require, *cookie, *dialect;
    uint64_t arena_bytes, n_rails;
    int64_t time_ns;
    bool local, json, read, write, sequential;
};

extern const struct command command_bench;

static const struct bench_options defaults = {.time_ns = 400000000};

#define OPTION(member) offsetof(struct bench_options, member)

static const struct option rows[] = {
    {"local", 0, NULL, OPTION_FLAG, OPTION(local), "start a peer on this host, and measure shm and tcp"},
    {"require", 0, "TRANSPORT", OPTION_STRING, OPTION(require), "shm, tcp or verbs: measure no other"},
    {"cookie", 0, "FILE", OPTION_STRING, OPTION(cookie),
     "the server's cookie, when it is not in its usual place"},
    {"read", 0, NULL, OPTION_FLAG, OPTION(read), "measure reading (what is done without --write)"},
    {"write", 0, NULL, OPTION_FLAG, OPTION(write), "measure writing"},
    {"sizes", 0, "LIST", OPTION_LIST, OPTION(sizes), "bytes an operation (8,4K,64K,1M,4M)"},
    {"depths", 0, "LIST", OPTION_LIST, OPTION(depths), "operations in flight (1,4,16,256)"},
    {"region", 0, "NAME", OPTION_STRING, OPTION(region), "use this region instead of an arena"},
    {"sequential", 0, NULL, OPTION_FLAG, OPTION(sequential), "offsets in order instead of at random"},
    {"time", 0, "DURATION", OPTION_DURATION, OPTION(time_ns),
     "measure each line of the table so long (400ms)"},
    {"json", 0, NULL, OPTION_FLAG, OPTION(json), "print JSON"},
    {"arena", 0, "BYTES", OPTION_BYTES, OPTION(arena_bytes), "ask for an arena of this size (128M)"},
    {"device", 0, "DEV,...", OPTION_LIST, OPTION(devices),
     "the RDMA devices to use, in this order (default: every port that is up)"},
    {"rails", 0, "N", OPTION_U64, OPTION(n_rails), "use so many RDMA rails, 1 to 8"},
    {"dialect", 0, "DIALECT", OPTION_STRING, OPTION(dialect),
     "measure a peer of the field: cache; reading and writing"},
};

/* What was asked for, understood. */
struct plan {
    const struct bench_options *options;
    uint64_t sizes[MOST_STEPS], depths[MOST_STEPS];
    size_t n_sizes, n_depths;
    uint32_t ops[2];
    size_t n_ops;
    uint64_t most_bytes; /* in flight */
    int64_t timeout_ns;
    json_t *runs; /* NULL when text is wanted */
};

typedef int parse_fn(const char *text, uint64_t *ret_value);

static int parse_list(const char *what, const struct string_list *list, const char *const *fallback,
                      parse_fn *parse, uint64_t most, uint64_t *values, size_t *ret_count)
{
    const char *const *items = list->count ? (const char *const *)list->items : fallback;
    size_t count = 0;
    for (; list->count ? count < list->count : items[count] != NULL; count++) {
        if (count == MOST_STEPS) {
            report("bench: more than %d %s", MOST_STEPS, what);
            return -EINVAL;
        }
        if (parse(items[count], &values[count]) || values[count] < 1 || values[count] > most) {
            report("bench: \"%s\" is not one of the possible %s (1 to %llu)", items[count], what,
                   (unsigned long long)most);
            return -EINVAL;
        }
    }
    *ret_count = count;
    return 0;
}

static int make_plan(struct plan *plan, const struct call *call)
{
    static const char *const sizes[] = {"8", "4K", "64K", "1M", "4M", NULL};
    static const char *const depths[] = {"1", "4", "16", "256", NULL};
    const struct bench_options *options = call->options;
    *plan = (struct plan){.options = options, .most_bytes = IN_FLIGHT_BYTES};
    plan->timeout_ns = call->settings->timeout_ns < 0 ? 10000000000 : call->settings->timeout_ns;
    if (options->read || !options->write)
        plan->ops[plan->n_ops++] = GPUSYS_OP_READ;
    if (options->write || (options->dialect && !options->read))
        plan->ops[plan->n_ops++] = GPUSYS_OP_WRITE;
    if (parse_list("sizes", &options->sizes, sizes, quantity_parse_bytes, UINT64_C(1) << 30, plan->sizes,
                   &plan->n_sizes) ||
        parse_list("depths", &options->depths, depths, quantity_parse_u64, MOST_DEPTH, plan->depths,
                   &plan->n_depths))
        return -EINVAL;
    for (size_t i = 0; i < plan->n_sizes; i++)
        if (plan->sizes[i] > plan->most_bytes)
            plan->most_bytes = plan->sizes[i];
    return 0;
}

static bool fits(const struct plan *plan, const struct bench_range *range, const struct bench_point *point)
{
    char size[QUANTITY_BYTES];
    if (point->bytes > range->length)
        note("%s is more than the region holds: left out", quantity_of_bytes(size, point->bytes));
    else if (point->bytes * point->depth > plan->most_bytes && plan->options->sizes.count)
        note("%s, %u deep, is more than the landing buffer holds: left out",
             quantity_of_bytes(size, point->bytes), point->depth);
    return point->bytes <= range->length && point->bytes * point->depth <= plan->most_bytes;
}

static int measure_points(const struct plan *plan, const struct bench_range *range, struct bench_run *run,
                          struct bench_result *results)
{
    int error = 0;
    for (size_t i = 0; i < plan->n_ops * plan->n_sizes * plan->n_depths && !error; i++) {
        struct bench_point point = {
            .op = plan->ops[i / plan->n_depths / plan->n_sizes],
            .bytes = plan->sizes[i / plan->n_depths % plan->n_sizes],
            .depth = (uint32_t)plan->depths[i % plan->n_depths],
        };
        if (interrupt_caught())
            break;
        if (!fits(plan, range, &point))
            continue;
        error = bench_point_run(range, &point, plan->options->time_ns, &results[run->n_results]);
        run->n_results += !error;
    }
    return error || run->n_results || interrupt_caught() ? error : -ENODATA;
}

static int show(const struct plan *plan, const struct bench_run *run)
{
    if (!plan->runs)
        return bench_table_print(run);
    return json_array_append_new(plan->runs, bench_run_json(run)) ? -ENOMEM : 0;
}

/* The session is closed here: only then are the landing buffer's bytes surely nobody else's. */
static int measure_target(const struct plan *plan, struct bench_target *target, const char *peer)
{
    void *buffer;
    struct bench_run run = {.target = target,
                            .peer = peer,
                            .buffer_bytes = plan->most_bytes,
                            .sequential = plan->options->sequential};
    struct bench_result *results = calloc(2 * MOST_STEPS * MOST_STEPS, sizeof *results);
    if (!results)
        return -ENOMEM;
    run.results = results;
    int error = gpusys_memory_alloc(&buffer, plan->most_bytes, &run.pages);
    if (!error) {
        gpusys_remote_register(target->remote, buffer, plan->most_bytes, NULL); /* without it: slower */
        if (!plan->runs)
            bench_heading_print(&run);
        struct bench_range range = {.remote = target->remote,
                                    .region = target->region.region,
                                    .length = target->region.length,
                                    .buffer = buffer,
                                    .buffer_bytes = plan->most_bytes,
                                    .timeout_ns = plan->timeout_ns,
                                    .sequential = run.sequential};
        error = measure_points(plan, &range, &run, results);
        int shown = show(plan, &run);
        error = error ? error : shown;
        bench_target_close(target);
        gpusys_memory_free(buffer, plan->most_bytes);
    }
    free(results);
    return error;
}

static uint64_t arena_bytes(const struct plan *plan)
{
    if (plan->options->arena_bytes)
        return plan->options->arena_bytes;
    return plan->most_bytes > ARENA_BYTES ? plan->most_bytes : ARENA_BYTES;
}

static enum exit_code measure(const struct plan *plan, const char *address, const char *peer,
                              uint32_t require)
{
    struct gpusys_error error;
    struct bench_target target;
    struct bench_wishes wishes = {.region = plan->options->region,
                                  .write = plan->options->write,
                                  .arena_bytes = arena_bytes(plan),
                                  .require = require,
                                  .cookie = plan->options->cookie,
                                  .cache = plan->options->dialect != NULL,
                                  .devices = (const char *const *)plan->options->devices.items,
                                  .n_devices = (uint32_t)plan->options->devices.count,
                                  .n_rails = (uint32_t)plan->options->n_rails,
                                  .timeout_ns = plan->timeout_ns};
    int code = bench_target_open(&target, address, &wishes, &error);
    if (code) {
        report_error(&error);
        return field_exit_code(code, wishes.cache || require == GPUSYS_TRANSPORT_VERBS);
    }
    code = measure_target(plan, &target, peer);
    if (code == -ENODATA)
        report("bench: %s: nothing was measured: no size and depth fits", peer);
    else if (code)
        report("bench: %s: %s", peer, strerror(-code));
    bench_target_close(&target);
    return exit_code_of(code);
}

/* Each built-in transport in turn, or the one that was asked for. */
static enum exit_code measure_local(const struct plan *plan, uint32_t require)
{
    static const uint32_t both[] = {GPUSYS_TRANSPORT_SHM, GPUSYS_TRANSPORT_TCP};
    const uint32_t *transports = require ? &require : both;
    struct bench_local local;
    enum exit_code worst = EXIT_DONE;
    /* twice what one session takes: the first one's may be gone a moment after the second has begun */
    if (bench_local_start(&local, 2 * arena_bytes(plan)))
        return EXIT_FAILED;
    for (size_t i = 0; i < (require ? 1 : 2) && !interrupt_caught(); i++) {
        if (i && !plan->runs)
            putchar('\n');
        enum exit_code code = measure(plan, local.address, "a peer on this host", transports[i]);
        if (code != EXIT_DONE)
            worst = code;
    }
    bench_local_stop(&local);
    return worst;
}

static int print_json(json_t *runs)
{
    json_t *document = json_document(SCHEMA);
    if (document && (json_object_set_new(document, "interrupted", json_boolean(interrupt_caught() != 0)) ||
                     json_object_set(document, "runs", runs))) {
        json_decref(document);
        document = NULL;
    }
    return json_print(document);
}

/* What does not go together; NULL: it does. */
static const char *misuse(const struct call *call)
{
    const struct bench_options *options = call->options;
    if (options->local == (call->n_operands == 1))
        return "either a peer's address or --local is wanted";
    if (options->n_rails > 8)
        return "--rails takes 1 to 8";
    if (!options->dialect)
        return NULL;
    if (gpusys_field_kind_parse(options->dialect) != GPUSYS_FIELD_CACHE)
        return "--dialect takes cache";
    if (options->local || options->region || options->cookie)
        return "the cache dialect has no --local, --region and --cookie";
    return NULL;
}

static enum exit_code run(const struct call *call)
{
    struct plan plan;
    const struct bench_options *options = call->options;
    const char *why = NULL;
    int require = transport_wanted(options->require, options->devices.count || options->n_rails, &why);
    if (require < 0)
        return command_misused(&command_bench, why);
    if (misuse(call))
        return command_misused(&command_bench, misuse(call));
    if (make_plan(&plan, call))
        return EXIT_USAGE;
    plan.runs = options->json ? json_array() : NULL;
    interrupt_catch();
    enum exit_code code = options->local
                              ? measure_local(&plan, (uint32_t)require)
                              : measure(&plan, call->operands[0], call->operands[0], (uint32_t)require);
    if (options->json && print_json(plan.runs))
        code = EXIT_FAILED;
    json_decref(plan.runs);
    if (interrupt_caught())
        report("bench: interrupted; what was measured until then is shown");
    return interrupt_caught() ? EXIT_FAILED : code;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure a peer: bandwidth and latency against size and depth",
    .operands = "[ADDR]",
    .description =
        "Reads (and with --write, writes) a peer's memory in pieces of each size, with so many of them in "
        "flight, and prints how many bytes and operations a second that makes and how long an operation "
        "took, "
        "from its submission to its completion: the median, and what 99 % and 99.9 % of them did not "
        "exceed.\n"
        "\n"
        "An arena is used if the peer gives one (gpusys serve --arena), or else the largest of the regions "
        "that "
        "can be read. Up to 32 small operations are submitted together, never more than half the depth; at "
        "depth "
        "1 each is a plain read or write. Operations below half a microsecond are timed in groups of 64.\n"
        "\n"
        "With --dialect cache the peer is one of the field's, over RDMA.\n"
        "\n"
        "    gpusys bench --local\n"
        "    gpusys bench host:7471 --require tcp --sizes 4K,1M --depths 1,16",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct bench_options),
    .defaults = &defaults,
    .max_operands = 1,
};
