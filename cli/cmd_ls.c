/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys ls: what a server offers. */
#include "command.h"
#include "output.h"
#include "quantity.h"

#include <fnmatch.h>
#include <gpusys/remote.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { SCHEMA = 1 };

struct ls_options {
    const char *require;
    const char *cookie;
    bool json;
};

extern const struct command command_ls;

#define OPTION(member) offsetof(struct ls_options, member)

static const struct option rows[] = {
    {"json", 0, NULL, OPTION_FLAG, OPTION(json), "print JSON instead of a table"},
    {"require", 0, "TRANSPORT", OPTION_STRING, OPTION(require), "shm, tcp or verbs: refuse any other"},
    {"cookie", 0, "FILE", OPTION_STRING, OPTION(cookie),
     "the server's cookie, when it is not in its usual place"},
};

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"memory", "file", "directory", "arena"};
    return kind < sizeof names / sizeof *names ? names[kind] : "other";
}

static const char *place_name(uint32_t place)
{
    static const char *const names[] = {"memory", "file", "copy"};
    return place < sizeof names / sizeof *names ? names[place] : "other";
}

static const char *access_name(uint32_t access)
{
    return access & GPUSYS_ACCESS_WRITE ? "rw" : "r";
}

static bool has_mtime(const struct gpusys_region_info *info)
{
    return info->kind == GPUSYS_REGION_FILE || info->kind == GPUSYS_REGION_DIRECTORY;
}

static const char *time_text(char text[32], const struct gpusys_region_info *info)
{
    struct tm parts;
    time_t seconds = (time_t)(info->mtime_ns / 1000000000);
    if (!has_mtime(info) || !localtime_r(&seconds, &parts) ||
        !strftime(text, 32, "%Y-%m-%d %H:%M:%S", &parts))
        return "-";
    return text;
}

/* A pattern is a glob, or the beginning of a name. */
static bool is_wanted(const char *name, char *const *patterns)
{
    bool any = false;
    for (; *patterns; ++patterns) {
        any = true;
        if (strncmp(name, *patterns, strlen(*patterns)) == 0 || fnmatch(*patterns, name, 0) == 0)
            return true;
    }
    return !any;
}

/* Call `show` for every region that is wanted. Their number. */
static uint64_t each_region(const struct gpusys_remote *remote, uint64_t n_regions, char *const *patterns,
                            void (*show)(void *context, const struct gpusys_region_info *info), void *context)
{
    uint64_t shown = 0;
    for (uint32_t region = 0; region < n_regions; region++) {
        struct gpusys_region_info info = {.size = sizeof info};
        if (gpusys_remote_region(remote, region, &info) || !is_wanted(info.name, patterns))
            continue;
        show(context, &info);
        shown++;
    }
    return shown;
}

static void show_row(void *context, const struct gpusys_region_info *info)
{
    char bytes[QUANTITY_BYTES], time[32];
    bool directory = info->kind == GPUSYS_REGION_DIRECTORY;
    table_cell(context, "%s%s", info->name, directory ? "/" : "");
    table_cell(context, "%s", directory ? "-" : quantity_of_bytes(bytes, info->length));
    table_cell(context, "%s", kind_name(info->kind));
    table_cell(context, "%s", time_text(time, info));
    table_cell(context, "%s", access_name(info->access));
}

static int print_table(const struct gpusys_remote *remote, uint64_t n_regions, char *const *patterns,
                       uint64_t *ret_shown)
{
    static const struct column columns[] = {{"NAME", ALIGN_LEFT},
                                            {"SIZE", ALIGN_RIGHT},
                                            {"KIND", ALIGN_LEFT},
                                            {"MODIFIED", ALIGN_LEFT},
                                            {"ACCESS", ALIGN_LEFT}};
    struct table *table = table_new(columns, sizeof columns / sizeof *columns);
    *ret_shown = each_region(remote, n_regions, patterns, show_row, table);
    return table_print(table, stdout);
}

static void show_object(void *context, const struct gpusys_region_info *info)
{
    json_t *object = json_pack("{s:s, s:I, s:s, s:s, s:s}", "name", info->name, "bytes",
                               (json_int_t)info->length, "kind", kind_name(info->kind), "place",
                               place_name(info->place), "access", access_name(info->access));
    if (object && has_mtime(info)) {
        json_object_set_new(object, "mode", json_integer(info->mode));
        json_object_set_new(object, "mtime_ns", json_integer(info->mtime_ns));
    }
    json_array_append_new(context, object);
}

static int print_json(const struct gpusys_remote *remote, uint64_t n_regions, char *const *patterns,
                      uint64_t *ret_shown)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    gpusys_remote_info(remote, &info);
    json_t *document = json_document(SCHEMA), *regions = json_array();
    *ret_shown = each_region(remote, n_regions, patterns, show_object, regions);
    json_object_set_new(document, "address", json_string(info.address));
    json_object_set_new(document, "transport", json_string(gpusys_transport_name(info.transport)));
    json_object_set_new(document, "reason", json_string(info.reason));
    json_object_set_new(document, "arena_bytes", json_integer((json_int_t)info.arena_bytes));
    json_object_set_new(document, "regions", regions);
    return json_print(document);
}

static const int64_t patience_ns = 20000000000; /* for the whole table, unless --timeout says otherwise */

static enum exit_code list(struct gpusys_remote *remote, const struct call *call)
{
    const struct ls_options *options = call->options;
    char *const *patterns = call->operands + 1;
    struct gpusys_error error = {0};
    uint64_t n_regions, shown;
    if (gpusys_remote_list(remote, call->settings->timeout_ns > 0 ? call->settings->timeout_ns : patience_ns,
                           &n_regions, &error)) {
        report_error(&error);
        return EXIT_FAILED;
    }
    int code = options->json ? print_json(remote, n_regions, patterns, &shown)
                             : print_table(remote, n_regions, patterns, &shown);
    if (!code && shown == 0 && *patterns) {
        report("the peer serves nothing that matches");
        return EXIT_FAILED;
    }
    struct gpusys_remote_info info = {.size = sizeof info};
    gpusys_remote_info(remote, &info);
    if (!code && n_regions == 0 && info.arena_bytes > 0)
        note("no regions; arenas can be had (gpusys bench measures them)");
    return code ? EXIT_FAILED : EXIT_DONE;
}

static enum exit_code run(const struct call *call)
{
    const struct ls_options *options = call->options;
    struct gpusys_remote_options remote_options = {.size = sizeof remote_options,
                                                   .cookie_file = options->cookie};
    int transport = options->require ? gpusys_transport_parse(options->require) : GPUSYS_TRANSPORT_ANY;
    if (transport < 0)
        return command_misused(&command_ls, "--require takes shm, tcp or verbs");
    remote_options.require = (uint32_t)transport;
    if (call->settings->timeout_ns > 0)
        remote_options.timeout_ns = call->settings->timeout_ns;
    struct gpusys_error error = {0};
    struct gpusys_remote *remote;
    int result = gpusys_remote_open(&remote, call->operands[0], &remote_options, &error);
    if (result) {
        report_error(&error);
        return exit_code_of(result);
    }
    enum exit_code code = list(remote, call);
    gpusys_remote_close(remote);
    return code;
}

const struct command command_ls = {
    .name = "ls",
    .summary = "list what a server offers",
    .operands = "ADDR [NAME...]",
    .description = "Lists the regions of the server at ADDR. A NAME is the beginning of a name, or a "
                   "pattern with *, ? and [...], where * also stands for slashes.\n"
                   "\n"
                   "    gpusys ls 127.0.0.1:7471\n"
                   "    gpusys ls 127.0.0.1:7471 '*.safetensors' --json",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct ls_options),
    .min_operands = 1,
    .max_operands = -1,
};
