/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys serve --dialect: a peer of the field until told to stop. */
#include "field.h"
#include "interrupt.h"
#include "output.h"
#include "quantity.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <inttypes.h>
#include <poll.h>

/* What was found to serve. */
struct found {
    uint32_t files;
    uint64_t bytes;
};

static int add_model(struct gpusys_field *field, const char *directory, bool follow, struct found *found,
                     struct gpusys_error *error)
{
    struct field_folder folder;
    int code = field_model_open(&folder, directory, follow, error);
    if (code)
        return code;
    code = gpusys_field_add_model(field, folder.path, folder.text, folder.text_bytes,
                                  (const char *const *)folder.paths, folder.n_paths, error);
    found->files += folder.n_paths;
    found->bytes += folder.bytes;
    field_folder_free(&folder);
    return code;
}

static int set_layers(struct gpusys_field *field, const char *directory, bool follow, struct found *found,
                      struct gpusys_error *error)
{
    struct field_folder folder;
    int code = field_experts_open(&folder, directory, follow, error);
    if (code)
        return code;
    code = gpusys_field_set_layers(field, folder.text, folder.text_bytes, folder.record_bytes,
                                   (const char *const *)folder.paths, folder.n_paths, error);
    *found = (struct found){.files = folder.n_paths, .bytes = folder.bytes};
    field_folder_free(&folder);
    return code;
}

static int add_all(struct gpusys_field *field, const struct field_serving *serving, struct found *found,
                   struct gpusys_error *error)
{
    int code = 0;
    for (int i = 0; i < serving->n_folders && !code; i++)
        code = serving->kind == GPUSYS_FIELD_WEIGHTS
                   ? add_model(field, serving->folders[i], serving->follow, found, error)
                   : set_layers(field, serving->folders[i], serving->follow, found, error);
    return code ? code : gpusys_field_start(field, error);
}

static void say_ready(const struct gpusys_field *field, const struct field_serving *serving,
                      const struct found *found)
{
    char bytes[QUANTITY_BYTES];
    printf("ready at %s: %s, ", gpusys_field_address(field), gpusys_field_kind_name(serving->kind));
    if (serving->kind == GPUSYS_FIELD_CACHE && serving->max_arena_bytes)
        printf("arenas up to %s", quantity_of_bytes(bytes, serving->max_arena_bytes));
    else if (serving->kind == GPUSYS_FIELD_CACHE)
        printf("arenas up to a quarter of the memory");
    else
        printf("%u file%s, %s", found->files, found->files == 1 ? "" : "s",
               quantity_of_bytes(bytes, found->bytes));
    printf(", %s\n", serving->insecure ? "for anybody who reaches the port" : "for anybody on this host");
    fflush(stdout);
}

static void say_totals(const struct gpusys_field *field, int64_t ns)
{
    char sent[QUANTITY_BYTES], copied[QUANTITY_BYTES], time[QUANTITY_BYTES];
    struct gpusys_field_stats stats = {.size = sizeof stats};
    gpusys_field_stats(field, &stats);
    printf("stopped after %s: %" PRIu64 " clients, %" PRIu64 " of them over verbs, %" PRIu64
           " refused, %s sent over tcp",
           quantity_of_duration(time, ns), stats.clients_total, stats.verbs_total, stats.refused_total,
           quantity_of_bytes(sent, stats.tcp_bytes));
    if (stats.copied_bytes)
        printf(", %s copied into memory", quantity_of_bytes(copied, stats.copied_bytes));
    putchar('\n');
}

static int open_server(struct gpusys_field **ret_field, const struct field_serving *serving,
                       struct gpusys_error *error)
{
    struct gpusys_field_server_options options = {.size = sizeof options,
                                                  .kind = serving->kind,
                                                  .flags = serving->insecure ? GPUSYS_FIELD_INSECURE : 0,
                                                  .listen = serving->listen,
                                                  .n_devices = serving->n_devices,
                                                  .devices = serving->devices,
                                                  .max_arena_bytes = serving->max_arena_bytes};
    return gpusys_field_open(ret_field, &options, error);
}

static void wait_for_signal(int event)
{
    struct pollfd fd = {.fd = event, .events = POLLIN};
    while (!interrupt_caught())
        poll(&fd, 1, -1);
}

enum exit_code field_serve(const struct field_serving *serving, int event)
{
    struct gpusys_error error = {0};
    struct gpusys_field *field;
    struct found found = {0};
    int code = open_server(&field, serving, &error);
    if (code) {
        report_error(&error);
        return field_exit_code(code, serving->kind == GPUSYS_FIELD_CACHE);
    }
    code = add_all(field, serving, &found, &error);
    int64_t start = gpusys_now_ns();
    if (code) {
        report_error(&error);
    } else {
        if (!serving->quiet)
            say_ready(field, serving, &found);
        wait_for_signal(event);
        if (!serving->quiet)
            say_totals(field, gpusys_now_ns() - start);
    }
    gpusys_field_close(field);
    return exit_code_of(code);
}
