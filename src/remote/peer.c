/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The peer: the public side of gpusys/peer.h, its listeners and its workers. */
#include "remote/serve.h"

#include "base/log.h"
#include "base/options.h"
#include "remote/tree.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POOL_THREADS = 4, ACCEPTS_AT_ONCE = 64 };

static const int64_t step_timeout_ns = 10000000000;

/* ---- listening ---- */

static struct gpusys_peer *peer_of(struct gs_source *listener, unsigned index)
{
    return (struct gpusys_peer *)((char *)(listener - index) - offsetof(struct gpusys_peer, listeners));
}

static void pause_listeners(struct gpusys_peer *peer, bool pause)
{
    peer->listeners_paused = pause;
    for (unsigned i = 0; i < 2; i++)
        if (peer->listeners[i].fd >= 0)
            gs_loop_change(peer->workers[0].loop, &peer->listeners[i], pause ? 0 : EPOLLIN);
}

static void accept_some(struct gpusys_peer *peer, int listener)
{
    for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            gs_conn_accept(peer, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            gs_log(GPUSYS_LOG_WARN, "no connections are accepted for a second: %s", strerrordesc_np(errno));
            pause_listeners(peer, true);
            return;
        } else if (errno == EAGAIN) {
            return;
        } /* else: that one connection failed before we took it */
    }
}

static void main_ready(struct gs_source *listener, uint32_t events)
{
    (void)events;
    accept_some(peer_of(listener, 0), listener->fd);
}

static void unix_ready(struct gs_source *listener, uint32_t events)
{
    (void)events;
    accept_some(peer_of(listener, 1), listener->fd);
}

static void first_worker_tick(void *context)
{
    struct gs_worker *worker = context;
    gs_worker_tick(worker);
    if (worker->peer->listeners_paused)
        pause_listeners(worker->peer, false);
}

static int listen_main(struct gpusys_peer *peer, const char *text, struct gpusys_error *error)
{
    int fd = gs_address_listen(text, error);
    if (fd < 0)
        return fd;
    peer->listeners[0] = (struct gs_source){.fd = fd, .ready = main_ready};
    if (!gs_socket_is_local(fd) && !peer->insecure) {
        gpusys_error_set(error, -EACCES,
                         "%s is reachable from other hosts, and nothing would check who comes", text);
        gpusys_error_set_hint(error, "listen on 127.0.0.1 or unix:PATH, or say --insecure to serve anybody");
        return -EACCES;
    }
    int result = gs_address_of_self(fd, peer->address);
    return result ? result : gs_address_parse(&peer->bound, peer->address, error);
}

/* Beside a TCP listener: the Unix socket that same-host clients attach their shm rails to. */
static int listen_unix(struct gpusys_peer *peer, struct gpusys_error *error)
{
    char text[GS_PATH_BYTES + 8];
    if (peer->bound.is_unix) { /* clients may stand in another directory */
        char *whole = realpath(peer->bound.host, NULL);
        snprintf(peer->unix_path, sizeof peer->unix_path, "%s", whole ? whole : "");
        free(whole);
        return 0;
    }
    int result = gs_runtime_path(peer->unix_path, &peer->bound, "sock", error);
    if (result)
        return result;
    snprintf(text, sizeof text, "unix:%s", peer->unix_path);
    int fd = gs_address_listen(text, error);
    if (fd < 0) {
        peer->unix_path[0] = 0;
        return fd;
    }
    peer->listeners[1] = (struct gs_source){.fd = fd, .ready = unix_ready};
    return 0;
}

static int write_cookie(struct gpusys_peer *peer, const char *path, struct gpusys_error *error)
{
    int result = 0;
    if (path)
        snprintf(peer->cookie_path, sizeof peer->cookie_path, "%s", path);
    else
        result = gs_runtime_path(peer->cookie_path, &peer->bound, "cookie", error);
    if (!result)
        result = gs_cookie_write(peer->cookie_path, peer->cookie, error);
    if (result)
        peer->cookie_path[0] = 0;
    return result;
}

/* Of a server that died here: with it a client would insist on a proof that this one does not give. */
static void remove_stale_cookie(const struct gpusys_peer *peer)
{
    char path[GS_PATH_BYTES];
    if (gs_runtime_path(path, &peer->bound, "cookie", NULL) == 0)
        unlink(path);
}

static int listen_all(struct gpusys_peer *peer, const struct gpusys_peer_options *options,
                      struct gpusys_error *error)
{
    int result = listen_main(peer, options->listen ? options->listen : "127.0.0.1", error);
    if (result)
        return result;
    if (peer->insecure)
        remove_stale_cookie(peer);
    else if ((result = write_cookie(peer, options->cookie_file, error)) != 0)
        return result;
    result = listen_unix(peer, error);
    if (result && peer->insecure) { /* a convenience then, for clients that happen to be here */
        gs_log(GPUSYS_LOG_WARN, "no shm transport for clients on this host: %s", strerrordesc_np(-result));
        result = 0;
    }
    return result;
}

/* ---- life ---- */

static unsigned default_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > GS_WORKERS_MAX ? GS_WORKERS_MAX : (unsigned)cores;
}

static int take_options(struct gpusys_peer_options *options, const struct gpusys_peer_options *given,
                        struct gpusys_error *error)
{
    int result = gs_options_take(options, sizeof *options, given);
    if (result)
        return gpusys_error_set(error, result, "the peer's options are of another version");
    if (options->flags & ~(GPUSYS_PEER_INSECURE | GPUSYS_PEER_NO_VERBS) || options->reserved ||
        options->reserved2)
        return gpusys_error_set(error, -EINVAL, "the peer's options: unknown flags %#x, or a reserved field",
                                options->flags);
    if (options->n_devices > GS_PORTS_MAX || (options->n_devices && options->flags & GPUSYS_PEER_NO_VERBS))
        return gpusys_error_set(error, -EINVAL,
                                "the peer's options: %u RDMA ports of at most %d, or none wanted",
                                options->n_devices, GS_PORTS_MAX);
    if (options->cookie_file && (options->flags & GPUSYS_PEER_INSECURE))
        return gpusys_error_set(error, -EINVAL, "an insecure peer has no cookie, so there is no file for it");
    if (options->cookie_file && strlen(options->cookie_file) >= GS_PATH_BYTES)
        return gpusys_error_set(error, -ENAMETOOLONG, "the cookie file's path is too long");
    return 0;
}

static void set_options(struct gpusys_peer *peer, const struct gpusys_peer_options *options)
{
    peer->insecure = options->flags & GPUSYS_PEER_INSECURE;
    peer->max_clients = options->max_clients ? options->max_clients : 1024;
    peer->step_timeout_ns = options->step_timeout_ns ? options->step_timeout_ns : step_timeout_ns;
    peer->arena_limit = options->arena_bytes;
    peer->on_note = options->on_note;
    peer->context = options->context;
    peer->n_workers = options->threads ? options->threads : default_threads();
    if (peer->n_workers > GS_WORKERS_MAX)
        peer->n_workers = GS_WORKERS_MAX;
    peer->listeners[0].fd = peer->listeners[1].fd = -1;
}

static int init_locked_parts(struct gpusys_peer *peer)
{
    if (pthread_mutex_init(&peer->lock, NULL))
        return -ENOMEM;
    if (gs_files_init(&peer->files) == 0) {
        if (gs_table_init(&peer->table) == 0)
            return 0;
        gs_files_free(&peer->files);
    }
    pthread_mutex_destroy(&peer->lock);
    return -ENOMEM;
}

int gpusys_peer_open(struct gpusys_peer **ret_peer, const struct gpusys_peer_options *options,
                     struct gpusys_error *error)
{
    struct gpusys_peer_options known;
    int result = take_options(&known, options, error);
    if (result)
        return result;
    struct gpusys_peer *peer = calloc(1, sizeof *peer);
    if (!peer || init_locked_parts(peer)) {
        free(peer);
        return gpusys_error_set_errno(error, -ENOMEM, "the peer");
    }
    set_options(peer, &known);
    if (!(known.flags & GPUSYS_PEER_NO_VERBS))
        result = gs_verbs_serve_open(peer, known.devices, known.n_devices, error);
    if (!result)
        result = listen_all(peer, &known, error);
    if (result) {
        gpusys_peer_close(peer);
        return result;
    }
    *ret_peer = peer;
    return 0;
}

struct close_task {
    struct gs_task task;
    struct gs_worker *worker;
    sem_t *closed;
};

static void close_worker(struct gs_task *task)
{
    struct close_task *self = (struct close_task *)task;
    struct gpusys_peer *peer = self->worker->peer;
    for (unsigned i = 0; i < 2 && self->worker == &peer->workers[0]; i++)
        if (peer->listeners[i].fd >= 0)
            gs_loop_forget(self->worker->loop, &peer->listeners[i]);
    for (unsigned i = 0; i < peer->ports.n && self->worker == &peer->workers[0]; i++)
        gs_loop_forget(self->worker->loop, &peer->ports.at[i].source);
    gs_worker_close_all(self->worker);
    sem_post(self->closed);
}

/*
 * First every worker closes what it has, and `closing` has those on their way between workers closed as they
 * arrive. Only when all have done so, and so nothing moves any more, do the threads end.
 */
static void close_workers(struct gpusys_peer *peer)
{
    struct close_task tasks[GS_WORKERS_MAX];
    sem_t closed;
    sem_init(&closed, 0, 0);
    atomic_store(&peer->closing, true);
    for (unsigned i = 0; i < GS_WORKERS_MAX; i++) {
        tasks[i] =
            (struct close_task){.task.run = close_worker, .worker = &peer->workers[i], .closed = &closed};
        if (peer->workers[i].loop)
            gs_loop_post(peer->workers[i].loop, &tasks[i].task);
    }
    for (unsigned i = 0; i < GS_WORKERS_MAX; i++)
        while (peer->workers[i].loop && sem_wait(&closed) < 0)
            ;
    sem_destroy(&closed);
    gs_pool_stop(peer->pool);
    for (unsigned i = 0; i < GS_WORKERS_MAX; i++)
        gs_loop_stop(peer->workers[i].loop);
}

static void close_listeners(struct gpusys_peer *peer)
{
    if (peer->unix_path[0])
        unlink(peer->unix_path);
    if (peer->cookie_path[0])
        gs_cookie_remove(peer->cookie_path, peer->cookie);
    for (unsigned i = 0; i < 2; i++)
        if (peer->listeners[i].fd >= 0)
            close(peer->listeners[i].fd);
}

void gpusys_peer_close(struct gpusys_peer *peer)
{
    if (!peer)
        return;
    close_workers(peer);
    close_listeners(peer);
    gs_verbs_serve_close(peer);
    gs_table_free(&peer->table);
    gs_files_free(&peer->files);
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}

static int start_workers(struct gpusys_peer *peer)
{
    int result = gs_pool_start(&peer->pool, POOL_THREADS);
    for (unsigned i = 0; i < peer->n_workers && !result; i++) {
        struct gs_worker *worker = &peer->workers[i];
        worker->peer = peer;
        result = gs_loop_start(&worker->loop, i == 0 ? first_worker_tick : gs_worker_tick, worker);
    }
    return result;
}

int gpusys_peer_start(struct gpusys_peer *peer, struct gpusys_error *error)
{
    if (peer->started)
        return gpusys_error_set(error, -EALREADY, "the peer serves already");
    peer->started = true;
    int result = start_workers(peer);
    for (unsigned i = 0; i < 2 && !result; i++)
        if (peer->listeners[i].fd >= 0)
            result = gs_loop_watch(peer->workers[0].loop, &peer->listeners[i], EPOLLIN);
    if (!result)
        gs_verbs_serve_watch(peer);
    return result ? gpusys_error_set_errno(error, result, "the peer's threads") : 0;
}

const char *gpusys_peer_address(const struct gpusys_peer *peer)
{
    return peer->address;
}

int gpusys_peer_stats(const struct gpusys_peer *peer, struct gpusys_peer_stats *ret_stats)
{
    struct gpusys_peer *from = (struct gpusys_peer *)(uintptr_t)peer; /* atomic loads want it so */
    struct gpusys_peer_stats stats = {.size = ret_stats->size,
                                      .regions = atomic_load(&from->table.count),
                                      .region_bytes = atomic_load(&from->table.bytes),
                                      .clients = atomic_load(&from->clients),
                                      .clients_total = atomic_load(&from->clients_total),
                                      .refused_total = atomic_load(&from->refused_total),
                                      .read_bytes = atomic_load(&from->read_bytes),
                                      .write_bytes = atomic_load(&from->write_bytes),
                                      .maps_total = atomic_load(&from->maps_total),
                                      .arenas = atomic_load(&from->arenas),
                                      .arena_bytes = atomic_load(&from->arena_bytes),
                                      .ports = from->ports.n,
                                      .rails_total = atomic_load(&from->rails_total),
                                      .keyed_bytes = atomic_load(&from->ports.keyed_bytes),
                                      .copied_bytes = atomic_load(&from->ports.copied_bytes)};
    return gs_info_give(ret_stats, &stats, sizeof stats);
}

/* ---- regions ---- */

static int add(struct gpusys_peer *peer, struct gs_region *region, struct gpusys_error *error)
{
    int result = gs_table_add(&peer->table, &region, 1, error);
    if (result)
        gs_region_drop(region);
    return result;
}

int gpusys_peer_add_memory(struct gpusys_peer *peer, const char *name, uint64_t bytes, uint32_t access,
                           void **ret_address, struct gpusys_error *error)
{
    struct gs_region *region;
    int result = gpusys_name_check(name, error);
    if (result)
        return result;
    if (access != GPUSYS_ACCESS_READ && access != (GPUSYS_ACCESS_READ | GPUSYS_ACCESS_WRITE))
        return gpusys_error_set(error, -EINVAL, "\"%s\": an access of %u is neither read nor read and write",
                                name, access);
    if (gs_region_new(&region, &peer->files, name))
        return gpusys_error_set_errno(error, -ENOMEM, "\"%s\"", name);
    region->kind = GPUSYS_REGION_MEMORY;
    region->place = GPUSYS_PLACE_MEMORY;
    region->access = (uint8_t)access;
    region->length = bytes;
    result = gs_shared_open(&region->memory, "gpusys region", bytes, access & GPUSYS_ACCESS_WRITE,
                            access & GPUSYS_ACCESS_WRITE ? GS_HUGE_NEVER : GS_HUGE_IF_FREE);
    if (result) {
        gs_region_drop(region);
        return gpusys_error_set_errno(error, result, "\"%s\": %llu bytes of memory", name,
                                      (unsigned long long)bytes);
    }
    void *address = region->memory.map;
    result = add(peer, region, error);
    if (!result && ret_address)
        *ret_address = address;
    return result;
}

/* Part of a file: what a client gets hold of must not reach the rest, so it is a copy. */
static int copy_part(struct gs_region *region, uint64_t offset, uint64_t length)
{
    int fd, result = gs_shared_open(&region->memory, "gpusys part of a file", length, false, GS_HUGE_IF_FREE);
    if (!result)
        result = gs_file_pin(region->files, &region->file, &fd);
    if (result)
        return result;
    result = gs_region_pread(region, fd, region->memory.map, (size_t)length, offset);
    gs_file_unpin(region->files, &region->file);
    region->place = GPUSYS_PLACE_COPY;
    region->length = length;
    return result;
}

int gpusys_peer_add_file(struct gpusys_peer *peer, const char *name, const char *path, uint64_t offset,
                         uint64_t length, struct gpusys_error *error)
{
    struct gs_region *region;
    int result = gs_tree_file(&region, &peer->files, name, path, error);
    if (result)
        return result;
    uint64_t whole = region->length;
    if (length == 0 && offset <= whole)
        length = whole - offset;
    if (!gs_range_fits(whole, offset, length)) {
        gs_region_drop(region);
        return gpusys_error_set(error, -ERANGE, "\"%s\": %llu bytes at %llu of %s, which has %llu", name,
                                (unsigned long long)length, (unsigned long long)offset, path,
                                (unsigned long long)whole);
    }
    if (length < whole && length > 0)
        result = copy_part(region, offset, length);
    else if (length < whole)
        result = -EINVAL;
    if (result) {
        gs_region_drop(region);
        return gpusys_error_set_errno(error, result, "\"%s\": %llu bytes of %s", name,
                                      (unsigned long long)length, path);
    }
    return add(peer, region, error);
}

int gpusys_peer_add_path(struct gpusys_peer *peer, const char *path, uint32_t flags, uint64_t *ret_count,
                         struct gpusys_error *error)
{
    struct gs_region_list list = {0};
    if (flags & ~GPUSYS_PATH_FOLLOW)
        return gpusys_error_set(error, -EINVAL, "unknown flags %#x", flags);
    int result = gs_tree_scan(&list, &peer->files, path, flags, error);
    if (!result)
        result = gs_table_add(&peer->table, list.at, list.count, error);
    if (result) {
        gs_region_list_drop(&list);
        return result;
    }
    if (ret_count)
        *ret_count = list.count;
    free(list.at); /* the table holds the regions now */
    return 0;
}
