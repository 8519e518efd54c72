/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys pull: files from a peer into a directory. */
#include "command.h"
#include "field.h"
#include "interrupt.h"
#include "output.h"
#include "pull.h"
#include "quantity.h"
#include "transport.h"

#include <gpusys/deadline.h>
#include <gpusys/memory.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct pull_options {
    const char *directory;
    const char *require;
    const char *cookie;
    const char *dialect;
    struct string_list devices;
    uint64_t n_rails;
    bool no_verify;
};

extern const struct command command_pull;

#define OPTION(member) offsetof(struct pull_options, member)

static const struct option rows[] = {
    {"output", 'o', "DIR", OPTION_STRING, OPTION(directory),
     "the directory to write into; made when missing"},
    {"no-verify", 0, NULL, OPTION_FLAG, OPTION(no_verify), "do not compare with the peer's checksums"},
    {"require", 0, "TRANSPORT", OPTION_STRING, OPTION(require), "shm, tcp or verbs: refuse any other"},
    {"cookie", 0, "FILE", OPTION_STRING, OPTION(cookie),
     "the server's cookie, when it is not in its usual place"},
    {"device", 0, "DEV,...", OPTION_LIST, OPTION(devices),
     "the RDMA devices to use, in this order (default: every port that is up)"},
    {"rails", 0, "N", OPTION_U64, OPTION(n_rails), "use so many RDMA rails, 1 to 8"},
    {"dialect", 0, "DIALECT", OPTION_STRING, OPTION(dialect),
     "pull from a peer of the field: weights or experts"},
};

static const int64_t default_patience_ns = 20 * INT64_C(1000000000);

static int connect_own(struct pull *pull, const char *address, const struct call *call, uint32_t transport,
                       struct gpusys_error *error)
{
    const struct pull_options *options = call->options;
    struct gpusys_remote_options remote = {.size = sizeof remote,
                                           .require = transport,
                                           .cookie_file = options->cookie,
                                           .devices = (const char *const *)options->devices.items,
                                           .n_devices = (uint32_t)options->devices.count,
                                           .n_rails = (uint32_t)options->n_rails};
    if (call->settings->timeout_ns > 0)
        remote.timeout_ns = call->settings->timeout_ns;
    return gpusys_remote_open(&pull->remote, address, &remote, error);
}

static int connect_field(struct pull *pull, const char *address, const struct call *call, uint32_t transport,
                         struct gpusys_error *error)
{
    const struct pull_options *options = call->options;
    struct field_wishes wishes = {.kind = (uint32_t)gpusys_field_kind_parse(options->dialect),
                                  .address = address,
                                  .model = call->operands[1],
                                  .options = {.size = sizeof wishes.options,
                                              .require = transport,
                                              .devices = (const char *const *)options->devices.items,
                                              .n_devices = (uint32_t)options->devices.count,
                                              .n_rails = (uint32_t)options->n_rails}};
    if (call->settings->timeout_ns > 0)
        wishes.options.timeout_ns = call->settings->timeout_ns;
    return field_open(&pull->remote, &wishes, &pull->description, &pull->description_bytes, error);
}

static int connect_to(struct pull *pull, const char *address, const struct call *call, uint32_t transport,
                      struct gpusys_error *error)
{
    const struct pull_options *options = call->options;
    struct gpusys_remote_info info = {.size = sizeof info};
    int code = options->dialect ? connect_field(pull, address, call, transport, error)
                                : connect_own(pull, address, call, transport, error);
    if (!code)
        code = gpusys_remote_info(pull->remote, &info);
    if (code)
        return code;
    pull->same_host = info.transport == GPUSYS_TRANSPORT_SHM;
    note("%s over %s: %s", info.address, gpusys_transport_name(info.transport), info.reason);
    return 0;
}

/* Of a peer of the field, everything: its regions are no files with a time, so the plan wants them named. */
static int plan_field(struct pull *pull, uint64_t n_regions, struct gpusys_error *error)
{
    char **names = calloc(n_regions + 1, sizeof *names);
    int code = names ? 0 : gpusys_error_set(error, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < n_regions && !code; i++) {
        struct gpusys_region_info info = {.size = sizeof info};
        code = gpusys_remote_region(pull->remote, i, &info);
        names[i] = (char *)(uintptr_t)info.name; /* the remote's, and only read */
    }
    if (!code)
        code = plan_make(&pull->plan, pull->remote, n_regions, names, n_regions, error);
    free(names);
    return code;
}

static int prepare(struct pull *pull, const struct call *call, struct gpusys_error *error)
{
    const struct pull_options *options = call->options;
    uint64_t n_regions;
    void *scratch;
    int code = gpusys_remote_list(pull->remote, pull->patience_ns, &n_regions, error);
    if (!code && options->dialect)
        code = plan_field(pull, n_regions, error);
    else if (!code)
        code = plan_make(&pull->plan, pull->remote, n_regions, call->operands + 1,
                         (size_t)call->n_operands - 1, error);
    if (!code)
        code = tree_open(&pull->tree, options->directory, error);
    if (code)
        return code;
    progress_start(&pull->progress, pull->plan.bytes, !call->settings->quiet);
    code = ring_open(&pull->ring, pull->remote, &pull->progress, pull->patience_ns, error);
    if (code)
        return code;
    code = gpusys_hasher_new(&pull->hasher);
    if (!code)
        code = writer_start(&pull->writer, pull->verify);
    if (!code)
        code = gpusys_memory_alloc(&scratch, SCRATCH_BYTES, NULL);
    if (code)
        return gpusys_error_set(error, code, "out of memory");
    pull->scratch = scratch;
    return 0;
}

/* Batches under way write into the ring until the remote is closed. */
static void clean_up(struct pull *pull)
{
    progress_end(&pull->progress);
    writer_stop(pull->writer);
    gpusys_remote_close(pull->remote);
    ring_close(&pull->ring);
    gpusys_hasher_free(pull->hasher);
    gpusys_memory_free(pull->scratch, SCRATCH_BYTES);
    free(pull->description);
    plan_free(&pull->plan);
    tree_close(&pull->tree);
}

/* What there is to show for it, and how to go on. */
static void add_what_arrived(const struct pull *pull, struct gpusys_error *error)
{
    char done[QUANTITY_BYTES], total[QUANTITY_BYTES];
    gpusys_error_add_detail(
        error, "arrived", "%s of %s; %" PRIu64 " of %" PRIu64 " files are whole",
        quantity_of_bytes(done, pull->plan.bytes - pull->progress.total_bytes + pull->progress.done_bytes),
        quantity_of_bytes(total, pull->plan.bytes), pull->files_done + pull->files_present, pull->plan.files);
    if (!error->hint[0])
        gpusys_error_set_hint(error, pull->description
                                         ? "run the same command again; in this dialect it begins anew"
                                         : "run the same command again: it goes on where this one stopped");
}

static const char *files_text(char text[64], uint64_t count)
{
    snprintf(text, 64, "%" PRIu64 " file%s", count, count == 1 ? "" : "s");
    return text;
}

static void print_what_came(const struct pull *pull, int64_t ns, const char *transport)
{
    char bytes[QUANTITY_BYTES], rate[QUANTITY_BYTES], time[QUANTITY_BYTES], files[64];
    double seconds = ns > 0 ? (double)ns / 1e9 : 1e-9;
    uint64_t done = pull->progress.done_bytes;
    printf("pulled %s in %s in %s, ", quantity_of_bytes(bytes, done), files_text(files, pull->files_done),
           quantity_of_duration(time, ns));
    if (done)
        printf("%s ", quantity_of_rate(rate, (double)done / seconds));
    printf("over %s, %s", transport,
           pull->verify        ? "verified"
           : pull->description ? "not verified (the dialect has no checksums)"
                               : "not verified");
    if (pull->files_present)
        printf("; %s already here", files_text(files, pull->files_present));
    if (pull->resumed_bytes)
        printf("; %s here from before", quantity_of_bytes(bytes, pull->resumed_bytes));
}

static void print_summary(const struct pull *pull, int64_t ns)
{
    char files[64];
    struct gpusys_remote_info info = {.size = sizeof info};
    gpusys_remote_info(pull->remote, &info);
    if (pull->files_done == 0)
        printf("nothing to pull: %s already here, %s", files_text(files, pull->files_present),
               pull->verify ? "verified" : "by length and time alone");
    else
        print_what_came(pull, ns, gpusys_transport_name(info.transport));
    putchar('\n');
}

/* RDMA failed for want of memory that may be locked, here or at the peer, and nobody insisted on it. */
static bool better_over_tcp(const struct pull *pull, int code, uint32_t transport)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    return transport == GPUSYS_TRANSPORT_ANY && (code == -ENOMEM || code == -EDQUOT) && pull->remote &&
           gpusys_remote_info(pull->remote, &info) == 0 && info.transport == GPUSYS_TRANSPORT_VERBS;
}

static enum exit_code pull_all(struct pull *pull, const struct call *call, uint32_t transport,
                               bool *ret_over_tcp)
{
    struct gpusys_error error = {0};
    int code = connect_to(pull, call->operands[0], call, transport, &error);
    if (!code)
        code = prepare(pull, call, &error);
    *ret_over_tcp = better_over_tcp(pull, code, transport);
    if (code) {
        report_error(&error);
        return field_exit_code(code, transport == GPUSYS_TRANSPORT_VERBS);
    }
    signal(SIGXFSZ, SIG_IGN); /* a file above the limit is an error like another */
    interrupt_catch();        /* until here a signal ends the process, and nothing is lost */
    int64_t start = gpusys_now_ns();
    code = pull_run(pull, &error);
    if (!code && pull->description)
        code = field_keep(pull, &error);
    int64_t ns = gpusys_now_ns() - start;
    progress_end(&pull->progress);
    *ret_over_tcp = better_over_tcp(pull, code, transport);
    if (code) {
        add_what_arrived(pull, &error);
        report_error(&error);
        return EXIT_FAILED;
    }
    if (!call->settings->quiet)
        print_summary(pull, ns);
    return EXIT_DONE;
}

/* What does not go together; NULL: it does. */
static const char *misuse_of_dialect(const struct call *call)
{
    const struct pull_options *options = call->options;
    int kind = gpusys_field_kind_parse(options->dialect);
    if (kind != GPUSYS_FIELD_WEIGHTS && kind != GPUSYS_FIELD_EXPERTS)
        return "--dialect takes weights or experts";
    if (options->cookie)
        return "the dialects of the field have no --cookie";
    if (kind == GPUSYS_FIELD_WEIGHTS && call->n_operands != 2)
        return "the weights dialect takes ADDR and MODEL";
    if (kind == GPUSYS_FIELD_EXPERTS && call->n_operands != 1)
        return "the experts dialect takes ADDR alone";
    return NULL;
}

static enum exit_code pull_once(const struct call *call, uint32_t transport, bool *ret_over_tcp)
{
    const struct pull_options *options = call->options;
    int64_t timeout_ns = call->settings->timeout_ns;
    struct pull pull = {.tree = {.root = -1, .parent = -1},
                        .verify = !options->no_verify && !options->dialect,
                        .patience_ns = timeout_ns > 0 ? timeout_ns : default_patience_ns};
    enum exit_code code = pull_all(&pull, call, transport, ret_over_tcp);
    clean_up(&pull);
    return code;
}

static enum exit_code run(const struct call *call)
{
    const struct pull_options *options = call->options;
    const char *misuse = options->dialect ? misuse_of_dialect(call) : NULL;
    const char *why = NULL;
    int transport = transport_wanted(options->require, options->devices.count || options->n_rails, &why);
    if (!options->directory)
        return command_misused(&command_pull, "-o DIR is missing");
    if (transport < 0)
        return command_misused(&command_pull, why);
    if (misuse)
        return command_misused(&command_pull, misuse);
    if (options->n_rails > 8)
        return command_misused(&command_pull, "--rails takes 1 to 8");
    bool over_tcp = false;
    enum exit_code code = pull_once(call, (uint32_t)transport, &over_tcp);
    if (over_tcp) {
        note("once more, over tcp");
        code = pull_once(call, GPUSYS_TRANSPORT_TCP, &over_tcp);
    }
    return code;
}

const struct command command_pull = {
    .name = "pull",
    .summary = "copy files from a server into a directory",
    .operands = "ADDR [NAME...]",
    .description =
        "Copies what gpusys serve offers at ADDR into the directory DIR: everything, or the "
        "regions named, or what lies below the directories named. Memory regions are copied "
        "when they are named.\n"
        "\n"
        "Every chunk of 16 MiB is compared with the server's checksum. A file has the name "
        "NAME.part until it is whole; when a pull is interrupted, the same command goes on "
        "where it stopped. Mode and modification time are kept. A file that is there "
        "already, with the same length, time and content, stays.\n"
        "\n"
        "With --dialect the server is a peer of the field: weights fetches the shard files of MODEL (a "
        "path on the server, or the last part of one), experts the header and the layer files. Those "
        "peers have no checksums and no times, so nothing is verified, and a pull begins anew.\n"
        "\n"
        "    gpusys pull 127.0.0.1:7471 -o models\n"
        "    gpusys pull 127.0.0.1:7471 llama/config.json llama/shards -o models --require "
        "shm\n"
        "    gpusys pull --dialect weights 10.0.0.1:7471 llama -o models/llama",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct pull_options),
    .min_operands = 1,
    .max_operands = -1,
};
