/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys serve: offer files and memory to other processes and hosts until told to stop. */
#include "command.h"
#include "field.h"
#include "interrupt.h"
#include "output.h"
#include "quantity.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <gpusys/peer.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>

struct serve_options {
    const char *listen;
    const char *cookie;
    const char *dialect;
    struct string_list devices;
    uint64_t arena_bytes;
    uint64_t max_arena_bytes;
    uint64_t threads;
    bool follow;
    bool insecure;
};

extern const struct command command_serve;

#define OPTION(member) offsetof(struct serve_options, member)

static const struct option rows[] = {
    {"listen", 0, "ADDR", OPTION_STRING, OPTION(listen),
     "HOST:PORT or unix:PATH; port 0 takes any (default: 127.0.0.1:7471)"},
    {"arena", 0, "BYTES", OPTION_BYTES, OPTION(arena_bytes),
     "memory that all clients together may ask for (default: none)"},
    {"follow", 0, NULL, OPTION_FLAG, OPTION(follow), "serve what symbolic links lead to, as they are now"},
    {"insecure", 0, NULL, OPTION_FLAG, OPTION(insecure),
     "no cookie, any address: whoever reaches the port may read"},
    {"threads", 0, "N", OPTION_U64, OPTION(threads), "threads that serve (default: one per core, at most 8)"},
    {"cookie", 0, "FILE", OPTION_STRING, OPTION(cookie),
     "where to put the cookie (default: the runtime directory)"},
    {"device", 0, "DEV,...", OPTION_LIST, OPTION(devices),
     "the RDMA devices to offer, in this order (default: every port that is up)"},
    {"dialect", 0, "DIALECT", OPTION_STRING, OPTION(dialect),
     "be a peer of the field instead: weights, cache or experts"},
    {"max-arena", 0, "BYTES", OPTION_BYTES, OPTION(max_arena_bytes),
     "cache: what all arenas together may take (default: a quarter of the memory)"},
};

/* Every client and every file takes a descriptor; the soft limit is low for the sake of select(2) only. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int open_peer(struct gpusys_peer **ret_peer, const struct serve_options *options,
                     struct gpusys_error *error)
{
    struct gpusys_peer_options peer = {.size = sizeof peer,
                                       .listen = options->listen,
                                       .cookie_file = options->cookie,
                                       .flags = options->insecure ? GPUSYS_PEER_INSECURE : 0,
                                       .threads = (uint32_t)options->threads,
                                       .arena_bytes = options->arena_bytes,
                                       .devices = (const char *const *)options->devices.items,
                                       .n_devices = (uint32_t)options->devices.count};
    return gpusys_peer_open(ret_peer, &peer, error);
}

static int add_and_start(struct gpusys_peer *peer, const struct call *call, struct gpusys_error *error)
{
    const struct serve_options *options = call->options;
    int code = 0;
    for (int i = 0; i < call->n_operands && !code; i++)
        code = gpusys_peer_add_path(peer, call->operands[i], options->follow ? GPUSYS_PATH_FOLLOW : 0, NULL,
                                    error);
    return code ? code : gpusys_peer_start(peer, error);
}

/* One line, and at once: scripts wait for it. */
static void say_ready(const struct gpusys_peer *peer, const struct serve_options *options)
{
    char bytes[QUANTITY_BYTES], arena[QUANTITY_BYTES];
    struct gpusys_peer_stats stats = {.size = sizeof stats};
    gpusys_peer_stats(peer, &stats);
    printf("ready at %s: %" PRIu64 " regions, %s", gpusys_peer_address(peer), stats.regions,
           quantity_of_bytes(bytes, stats.region_bytes));
    if (options->arena_bytes)
        printf(", arenas up to %s", quantity_of_bytes(arena, options->arena_bytes));
    printf(", %s\n", options->insecure ? "for anybody who reaches the port" : "for this user on this host");
    fflush(stdout);
}

static void say_totals(const struct gpusys_peer *peer, int64_t ns)
{
    char sent[QUANTITY_BYTES], received[QUANTITY_BYTES], time[QUANTITY_BYTES];
    struct gpusys_peer_stats stats = {.size = sizeof stats};
    gpusys_peer_stats(peer, &stats);
    printf("stopped after %s: %" PRIu64 " clients, %" PRIu64
           " refused, %s sent and %s received over tcp, %" PRIu64 " regions handed out over shm\n",
           quantity_of_duration(time, ns), stats.clients_total, stats.refused_total,
           quantity_of_bytes(sent, stats.read_bytes), quantity_of_bytes(received, stats.write_bytes),
           stats.maps_total);
}

static void wait_for_signal(int event)
{
    struct pollfd fd = {.fd = event, .events = POLLIN};
    while (!interrupt_caught())
        poll(&fd, 1, -1);
}

static enum exit_code serve(struct gpusys_peer *peer, const struct call *call, int event)
{
    struct gpusys_error error = {0};
    if (add_and_start(peer, call, &error)) {
        report_error(&error);
        return EXIT_FAILED;
    }
    int64_t start = gpusys_now_ns();
    if (!call->settings->quiet)
        say_ready(peer, call->options);
    wait_for_signal(event);
    if (!call->settings->quiet)
        say_totals(peer, gpusys_now_ns() - start);
    return EXIT_DONE;
}

/* What does not go together; NULL: it does. */
static const char *misuse_of_dialect(const struct call *call, int kind)
{
    const struct serve_options *options = call->options;
    if (kind < 0)
        return "--dialect takes weights, cache or experts";
    if (options->cookie || options->arena_bytes || options->threads)
        return "the dialects of the field have no --cookie, --arena and --threads";
    if (options->max_arena_bytes && kind != GPUSYS_FIELD_CACHE)
        return "--max-arena is for the cache dialect";
    if (kind == GPUSYS_FIELD_WEIGHTS && call->n_operands == 0)
        return "nothing to serve: name a model's directory";
    if (kind == GPUSYS_FIELD_CACHE && call->n_operands != 0)
        return "the cache dialect serves no files";
    if (kind == GPUSYS_FIELD_EXPERTS && call->n_operands != 1)
        return "the experts dialect serves one directory";
    return NULL;
}

static enum exit_code run_dialect(const struct call *call)
{
    const struct serve_options *options = call->options;
    int kind = gpusys_field_kind_parse(options->dialect);
    const char *misuse = misuse_of_dialect(call, kind);
    if (misuse)
        return command_misused(&command_serve, misuse);
    int event = interrupt_catch();
    if (event < 0) {
        report("cannot wait for signals: %s", strerror(-event));
        return EXIT_FAILED;
    }
    raise_descriptor_limit();
    struct field_serving serving = {.listen = options->listen,
                                    .kind = (uint32_t)kind,
                                    .folders = call->operands,
                                    .n_folders = call->n_operands,
                                    .follow = options->follow,
                                    .insecure = options->insecure,
                                    .quiet = call->settings->quiet,
                                    .max_arena_bytes = options->max_arena_bytes,
                                    .devices = (const char *const *)options->devices.items,
                                    .n_devices = (uint32_t)options->devices.count};
    return field_serve(&serving, event);
}

static enum exit_code run(const struct call *call)
{
    const struct serve_options *options = call->options;
    struct gpusys_error error = {0};
    struct gpusys_peer *peer;
    if (options->dialect)
        return run_dialect(call);
    if (options->max_arena_bytes)
        return command_misused(&command_serve, "--max-arena is for --dialect cache");
    if (call->n_operands == 0 && options->arena_bytes == 0)
        return command_misused(&command_serve, "nothing to serve: name a PATH, or give --arena");
    if (options->threads > 64)
        return command_misused(&command_serve, "--threads takes 1 to 64");
    int event = interrupt_catch();
    if (event < 0) {
        report("cannot wait for signals: %s", strerror(-event));
        return EXIT_FAILED;
    }
    raise_descriptor_limit();
    if (open_peer(&peer, options, &error)) {
        report_error(&error);
        return EXIT_FAILED;
    }
    enum exit_code code = serve(peer, call, event);
    gpusys_peer_close(peer);
    return code;
}

const struct command command_serve = {
    .name = "serve",
    .summary = "offer files, directories and memory to clients",
    .operands = "[PATH...]",
    .description =
        "Serves each PATH, a file or a directory with all that is below it, until SIGINT or "
        "SIGTERM. Clients read them with gpusys pull, or with the library. The first line on "
        "stdout says where it listens, once it does.\n"
        "\n"
        "Served files are opened for reading only, and should not change: one that does is "
        "refused from then on. A symbolic link below PATH is an error without --follow.\n"
        "\n"
        "Where this host has RDMA ports they are offered to clients on other hosts (gpusys rails shows "
        "them); what those read is registered with the ports, and counts against the limit on locked "
        "memory.\n"
        "\n"
        "On loopback and on Unix sockets clients must show a cookie that only this user can "
        "read. Other addresses need --insecure, and then there is no cookie and no "
        "encryption.\n"
        "\n"
        "With --dialect it is a peer of the field, for programs that do not know gpusys: weights "
        "serves the models in the directories named (safetensors; clients ask for a model by its "
        "directory's path, or the last part of that), experts the layer files of one directory with "
        "a header.json, cache gives each client an arena. None of these has any authentication. "
        "Without RDMA, weights and experts go over tcp alone.\n"
        "\n"
        "    gpusys serve ~/models\n"
        "    gpusys serve --follow snapshots/main --listen 127.0.0.1:0\n"
        "    gpusys serve --arena 8G --listen unix:/run/user/1000/arena\n"
        "    gpusys serve --dialect weights ~/models/llama",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct serve_options),
    .max_operands = -1,
};
