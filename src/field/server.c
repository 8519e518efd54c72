/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A field server: its listener, what it serves, its life. */
#include "base/log.h"
#include "base/options.h"
#include "field/records.h"
#include "field/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t step_timeout_ns = 10000000000;

enum { CLIENTS_USUAL = 64, CLIENTS_MAX = 65536 };

/* ---- opening ---- */

static int take_options(struct gpusys_field_server_options *options,
                        const struct gpusys_field_server_options *given, struct gpusys_error *error)
{
    int result = gs_options_take(options, sizeof *options, given);
    if (result)
        return gpusys_error_set(error, result, "the field server's options are of another version");
    if (options->kind < GPUSYS_FIELD_WEIGHTS || options->kind > GPUSYS_FIELD_EXPERTS ||
        options->flags & ~GPUSYS_FIELD_INSECURE || (options->n_devices > 0) != (options->devices != NULL) ||
        options->max_clients > CLIENTS_MAX)
        return gpusys_error_set(
            error, -EINVAL,
            "the field server's options: kind %u of 1…3, flags %#x, %u devices with %s list, %u "
            "clients of at most %d",
            options->kind, options->flags, options->n_devices, options->devices ? "a" : "no",
            options->max_clients, CLIENTS_MAX);
    return 0;
}

static uint64_t quarter_of_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes / 4 : UINT64_C(1) << 30;
}

static void set_options(struct gpusys_field *field, const struct gpusys_field_server_options *options)
{
    field->kind = options->kind;
    field->insecure = options->flags & GPUSYS_FIELD_INSECURE;
    field->max_clients = options->max_clients ? options->max_clients : CLIENTS_USUAL;
    field->max_arena_bytes = options->max_arena_bytes ? options->max_arena_bytes : quarter_of_memory();
    field->step_timeout_ns = options->step_timeout_ns ? options->step_timeout_ns : step_timeout_ns;
    field->listener = field->wake = -1;
}

static int open_listener(struct gpusys_field *field, const char *text, struct gpusys_error *error)
{
    struct gs_address address;
    int code = gs_address_parse(&address, text, error);
    if (!code && address.is_unix)
        code = gpusys_error_set(error, -EINVAL, "%s: the field's dialects are spoken over TCP", text);
    if (code)
        return code;
    field->listener = gs_address_listen(text, error);
    if (field->listener < 0)
        return field->listener;
    if (!gs_socket_is_local(field->listener) && !field->insecure) {
        gpusys_error_set(error, -EACCES,
                         "%s is reachable from other hosts, and nothing would check who comes", text);
        gpusys_error_set_hint(error, "listen on 127.0.0.1, or say --insecure to serve anybody");
        return -EACCES;
    }
    code = gs_address_of_self(field->listener, field->address);
    return code ? gpusys_error_set_errno(error, code, "%s", text) : 0;
}

static int open_parts(struct gpusys_field *field, const struct gpusys_field_server_options *options,
                      struct gpusys_error *error)
{
    int code = open_listener(field, options->listen ? options->listen : "127.0.0.1", error);
    if (code)
        return code;
    field->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (field->wake < 0)
        return gpusys_error_set_errno(error, -errno, "%s", field->address);
    return gs_devices_open(field, options, error);
}

int gpusys_field_open(struct gpusys_field **ret_field, const struct gpusys_field_server_options *options,
                      struct gpusys_error *error)
{
    struct gpusys_field_server_options known;
    int code = take_options(&known, options, error);
    if (code)
        return code;
    struct gpusys_field *field = calloc(1, sizeof *field);
    if (!field || gs_files_init(&field->files)) {
        free(field);
        return gpusys_error_set_errno(error, -ENOMEM, "the field server");
    }
    pthread_mutex_init(&field->lock, NULL);
    set_options(field, &known);
    code = open_parts(field, &known, error);
    if (code)
        gpusys_field_close(field);
    else
        *ret_field = field;
    return code;
}

/* ---- what it serves ---- */

static int copy_text(void **ret_copy, const void *text, size_t bytes, size_t most, const char *what,
                     struct gpusys_error *error)
{
    if (bytes < 1 || bytes > most)
        return gpusys_error_set(error, -EINVAL, "%s of %zu bytes, 1 to %zu are possible", what, bytes, most);
    *ret_copy = malloc(bytes);
    if (!*ret_copy)
        return gpusys_error_set_errno(error, -ENOMEM, "%s of %zu bytes", what, bytes);
    memcpy(*ret_copy, text, bytes);
    return 0;
}

static void free_model(struct gs_model *model)
{
    gs_store_free(&model->store);
    free(model->manifest);
    free(model->path);
    free(model);
}

/* Without slashes at its end, so that there is a last part. */
static char *model_path(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return strndup(path, length);
}

static int link_model(struct gpusys_field *field, struct gs_model *model, struct gpusys_error *error)
{
    struct gs_model *other;
    pthread_mutex_lock(&field->lock);
    for (other = field->models; other && strcmp(other->path, model->path) != 0; other = other->next)
        ;
    if (!other) {
        model->next = field->models;
        field->models = model;
    }
    pthread_mutex_unlock(&field->lock);
    return other ? gpusys_error_set(error, -EEXIST, "%s is served already", model->path) : 0;
}

int gpusys_field_add_model(struct gpusys_field *field, const char *path, const void *manifest,
                           size_t manifest_bytes, const char *const *shards, uint32_t n_shards,
                           struct gpusys_error *error)
{
    if (field->kind != GPUSYS_FIELD_WEIGHTS)
        return gpusys_error_set(error, -EINVAL, "%s: only a weight server has models", path);
    if (!path[0] || strlen(path) > GS_MODEL_MAX)
        return gpusys_error_set(error, -EINVAL, "a model's path of %zu bytes, 1 to %d are possible",
                                strlen(path), GS_MODEL_MAX);
    struct gs_model *model = calloc(1, sizeof *model);
    if (!model)
        return gpusys_error_set_errno(error, -ENOMEM, "%s", path);
    model->path = model_path(path);
    int code = model->path ? copy_text(&model->manifest, manifest, manifest_bytes, GS_MANIFEST_MAX,
                                       "a manifest", error)
                           : gpusys_error_set_errno(error, -ENOMEM, "%s", path);
    model->manifest_bytes = manifest_bytes;
    if (!code)
        code = gs_store_init(&model->store, &field->files, shards, n_shards, error);
    if (!code)
        code = link_model(field, model, error);
    if (code)
        free_model(model);
    return code;
}

static int check_layers(const struct gs_store *layers, uint64_t record_bytes, struct gpusys_error *error)
{
    for (uint32_t i = 0; i < layers->n_files; i++)
        if (layers->files[i]->length % record_bytes)
            return gpusys_error_set(
                error, -EINVAL, "%s has %" PRIu64 " bytes, which is no whole number of records of %" PRIu64,
                layers->files[i]->name, layers->files[i]->length, record_bytes);
    return 0;
}

int gpusys_field_set_layers(struct gpusys_field *field, const void *header, size_t header_bytes,
                            uint64_t record_bytes, const char *const *layers, uint32_t n_layers,
                            struct gpusys_error *error)
{
    struct gs_store store = {0};
    void *copy = NULL;
    if (field->kind != GPUSYS_FIELD_EXPERTS || field->is_started || field->header || record_bytes < 1 ||
        record_bytes > INT32_MAX)
        return gpusys_error_set(
            error, -EINVAL,
            "layers are set once, before start, for an expert server, with records of 1 to %d "
            "bytes (here %" PRIu64 ")",
            INT32_MAX, record_bytes);
    int code = gs_store_init(&store, &field->files, layers, n_layers, error);
    if (!code)
        code = check_layers(&store, record_bytes, error);
    if (!code)
        code = copy_text(&copy, header, header_bytes, GS_HEADER_MAX, "a header", error);
    if (code) {
        gs_store_free(&store);
        return code;
    }
    field->layers = store;
    field->header = copy;
    field->header_bytes = header_bytes;
    field->record_bytes = record_bytes;
    return 0;
}

/* ---- the acceptor ---- */

static void shut_all(struct gpusys_field *field)
{
    pthread_mutex_lock(&field->lock);
    for (struct gs_field_client *client = field->clients; client; client = client->next)
        if (client->fd >= 0)
            shutdown(client->fd, SHUT_RDWR);
    pthread_mutex_unlock(&field->lock);
}

/* Join the clients that are over; all of them when the server closes. */
static void reap(struct gpusys_field *field, bool all)
{
    for (;;) {
        pthread_mutex_lock(&field->lock);
        struct gs_field_client **link = &field->clients;
        while (*link && !all && !(*link)->is_over)
            link = &(*link)->next;
        struct gs_field_client *client = *link;
        if (client) {
            *link = client->next;
            field->n_clients--;
        }
        pthread_mutex_unlock(&field->lock);
        if (!client)
            return;
        pthread_join(client->thread, NULL);
        free(client);
    }
}

/* False: the process has no descriptor left, so the listener would only wake us again. */
static bool accept_all(struct gpusys_field *field)
{
    for (;;) {
        int fd = accept4(field->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            reap(field, false);
            gs_client_accept(field, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            gs_log(GPUSYS_LOG_WARN, "no connections are accepted for a second: %s", strerrordesc_np(errno));
            return false;
        } else if (errno == EAGAIN) {
            return true;
        } /* else: that one connection failed before we took it */
    }
}

static void *acceptor_main(void *argument)
{
    struct gpusys_field *field = argument;
    struct pollfd fds[2 + GS_DEVICES_MAX];
    bool accepting = true;
    uint64_t count;
    while (!atomic_load(&field->is_closing)) {
        fds[0] = (struct pollfd){.fd = field->wake, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = accepting ? field->listener : -1, .events = POLLIN};
        for (uint32_t i = 0; i < field->n_devices; i++)
            fds[2 + i] = (struct pollfd){.fd = gpusys_verbs_fd(field->devices[i].verbs), .events = POLLIN};
        int ready = poll(fds, 2 + field->n_devices, accepting ? -1 : 1000);
        if (read(field->wake, &count, sizeof count) > 0)
            reap(field, false);
        gs_devices_tend(field);
        accepting = ready == 0 || (accepting && (!fds[1].revents || accept_all(field)));
    }
    return NULL;
}

/* ---- life ---- */

static int start_acceptor(struct gpusys_field *field)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = -pthread_create(&field->acceptor, NULL, acceptor_main, field);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

int gpusys_field_start(struct gpusys_field *field, struct gpusys_error *error)
{
    if (field->is_started)
        return gpusys_error_set(error, -EALREADY, "%s serves already", field->address);
    if ((field->kind == GPUSYS_FIELD_WEIGHTS && !field->models) ||
        (field->kind == GPUSYS_FIELD_EXPERTS && !field->header))
        return gpusys_error_set(error, -EINVAL, "%s has nothing to serve: %s", field->address,
                                field->kind == GPUSYS_FIELD_WEIGHTS ? "no model was added"
                                                                    : "no layers were set");
    int code = start_acceptor(field);
    if (code)
        return gpusys_error_set_errno(error, code, "%s: its thread", field->address);
    field->is_started = true;
    return 0;
}

const char *gpusys_field_address(const struct gpusys_field *field)
{
    return field->address;
}

int gpusys_field_stats(const struct gpusys_field *field, struct gpusys_field_stats *ret_stats)
{
    struct gpusys_field *from =
        (struct gpusys_field *)(uintptr_t)field; /* the lock and atomic loads want it so */
    struct gpusys_field_stats stats = {.clients_total = atomic_load(&from->clients_total),
                                       .refused_total = atomic_load(&from->refused_total),
                                       .verbs_total = atomic_load(&from->verbs_total),
                                       .tcp_bytes = atomic_load(&from->tcp_bytes),
                                       .copied_bytes = atomic_load(&from->copied_bytes)};
    pthread_mutex_lock(&from->lock);
    for (const struct gs_field_client *client = from->clients; client; client = client->next)
        stats.clients += !client->is_over;
    stats.arena_bytes = from->arena_bytes;
    pthread_mutex_unlock(&from->lock);
    return gs_info_give(ret_stats, &stats, sizeof stats);
}

static void stop(struct gpusys_field *field)
{
    uint64_t one = 1;
    atomic_store(&field->is_closing, true);
    if (!field->is_started)
        return;
    if (write(field->wake, &one, sizeof one) < 0) {
        /* it is awake already */
    }
    pthread_join(field->acceptor, NULL);
    shut_all(field);
    reap(field, true);
}

void gpusys_field_close(struct gpusys_field *field)
{
    if (!field)
        return;
    stop(field);
    while (field->models) {
        struct gs_model *next = field->models->next;
        free_model(field->models);
        field->models = next;
    }
    gs_store_free(&field->layers);
    free(field->header);
    gs_devices_close(field);
    if (field->listener >= 0)
        close(field->listener);
    if (field->wake >= 0)
        close(field->wake);
    gs_files_free(&field->files);
    pthread_mutex_destroy(&field->lock);
    free(field);
}
