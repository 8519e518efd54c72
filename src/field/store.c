/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Files that devices read: mapped and registered where they lie, one domain per device for all clients with the same
 * right, gone with the last of them. What the kernel cannot pin is copied. Nothing here loads from a mapping of a
 * file: it may shrink.
 */
#include "base/log.h"
#include "field/serve.h"
#include "remote/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COPY_STEP_BYTES = 16 * 1024 * 1024 };

uint64_t gs_memory_available(void)
{
    unsigned long long kib, found = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && !found && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            found = kib;
    if (file)
        fclose(file);
    return found ? found * 1024 : UINT64_MAX;
}

/* ---- life ---- */

/* A folder that came from elsewhere must not lead us out of itself. */
static int refuse_link(const char *path, struct gpusys_error *error)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return gpusys_error_set_errno(error, -errno, "%s", path);
    if (!S_ISLNK(status.st_mode))
        return 0;
    gpusys_error_set(error, -ELOOP, "%s is a symbolic link", path);
    gpusys_error_set_hint(error, "serve what it leads to (gpusys serve --follow)");
    return -ELOOP;
}

static int add_file(struct gs_store *store, struct gs_files *files, const char *path,
                    struct gpusys_error *error)
{
    const char *slash = strrchr(path, '/'), *leaf = slash ? slash + 1 : path;
    struct gs_region **place = &store->files[store->n_files];
    int code = refuse_link(path, error);
    if (!code)
        code = gs_tree_file(place, files, leaf, path, error);
    if (code)
        return code;
    store->n_files++;
    return (*place)->length ? 0 : gpusys_error_set(error, -EINVAL, "%s is empty", path);
}

int gs_store_init(struct gs_store *store, struct gs_files *files, const char *const *paths, uint32_t n_paths,
                  struct gpusys_error *error)
{
    *store = (struct gs_store){0};
    if (n_paths < 1 || n_paths > GPUSYS_MAX_REGIONS)
        return gpusys_error_set(error, -EINVAL, "%u files, 1 to %u are possible", n_paths,
                                GPUSYS_MAX_REGIONS);
    store->files = calloc(n_paths, sizeof *store->files);
    store->pinned = calloc(n_paths, sizeof *store->pinned);
    int code = store->files && store->pinned && pthread_mutex_init(&store->lock, NULL) == 0
                   ? 0
                   : gpusys_error_set_errno(error, -ENOMEM, "%u files", n_paths);
    if (code) {
        free(store->files);
        free(store->pinned);
        store->files = NULL;
        return code;
    }
    for (uint32_t i = 0; i < n_paths && !code; i++)
        code = add_file(store, files, paths[i], error);
    if (code)
        gs_store_free(store);
    return code;
}

void gs_store_free(struct gs_store *store)
{
    if (!store->files)
        return;
    for (uint32_t i = 0; i < store->n_files; i++)
        gs_region_drop(store->files[i]);
    free(store->files);
    free(store->pinned);
    pthread_mutex_destroy(&store->lock);
    *store = (struct gs_store){0};
}

/* ---- memory; all under the lock ---- */

static int copy_file(struct gs_region *file, void *to, const struct gpusys_field *field)
{
    int fd, code = gs_file_pin(file->files, &file->file, &fd);
    if (code)
        return code;
    for (uint64_t done = 0; done < file->length && !code; done += COPY_STEP_BYTES) {
        uint64_t step = file->length - done < COPY_STEP_BYTES ? file->length - done : COPY_STEP_BYTES;
        code = atomic_load(&field->is_closing)
                   ? -ECANCELED
                   : gs_region_pread(file, fd, (char *)to + done, (size_t)step, done);
    }
    gs_file_unpin(file->files, &file->file);
    return code;
}

static int fail_file(const struct gs_region *file, int code, struct gpusys_error *error)
{
    if (code == -ESTALE)
        return gpusys_error_set(error, code, "%s changed while served", file->name);
    return gpusys_error_set_errno(error, code, "%s", file->name);
}

static int pin_copy(struct gs_store *store, uint32_t at, struct gpusys_field *field,
                    struct gpusys_error *error)
{
    struct gs_region *file = store->files[at];
    uint64_t available = gs_memory_available();
    if (file->length > available)
        return gpusys_error_set(error, -ENOMEM,
                                "%s: the kernel cannot pin its %" PRIu64 " bytes where they lie, and %" PRIu64
                                " bytes of memory are free for a copy",
                                file->name, file->length, available);
    void *map = mmap(NULL, file->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return fail_file(file, -errno, error);
    int code = copy_file(file, map, field);
    if (code) {
        munmap(map, file->length);
        return fail_file(file, code, error);
    }
    if (!store->pinned[at].is_told)
        gs_log(GPUSYS_LOG_WARN,
               "%s: this kernel cannot pin it where it lies, %" PRIu64 " bytes were copied into memory",
               file->name, file->length);
    store->pinned[at] = (struct gs_pinned){.map = map, .is_copied = true, .is_told = true};
    atomic_fetch_add(&field->copied_bytes, file->length);
    return 0;
}

static int pin_in_place(struct gs_store *store, uint32_t at, struct gpusys_error *error)
{
    struct gs_region *file = store->files[at];
    int fd = gs_file_open(&file->file);
    if (fd < 0)
        return fail_file(file, fd, error);
    void *map = mmap(NULL, file->length, PROT_READ, MAP_SHARED, fd, 0);
    int code = map == MAP_FAILED ? -errno : 0;
    close(fd);
    if (code)
        return fail_file(file, code, error);
    store->pinned[at].map = map;
    return 0;
}

static void unpin(struct gs_store *store, uint32_t at)
{
    struct gs_pinned *pinned = &store->pinned[at];
    if (pinned->map)
        munmap(pinned->map, store->files[at]->length);
    pinned->map = NULL;
    pinned->is_copied = false;
}

static bool is_registered(const struct gs_store *store, uint32_t at)
{
    for (uint32_t i = 0; i < GS_DEVICES_MAX; i++)
        if (store->mrs[i] && store->mrs[i][at])
            return true;
    return false;
}

static int register_file(struct gs_store *store, struct gpusys_field *field, uint32_t device, uint32_t at,
                         struct gpusys_error *error)
{
    struct gs_pinned *pinned = &store->pinned[at];
    struct gs_region *file = store->files[at];
    struct gpusys_mr **mr = &store->mrs[device][at];
    uint64_t most = field->devices[device].info.max_mr_bytes;
    if (most && file->length > most)
        return gpusys_error_set(error, -EMSGSIZE,
                                "%s has %" PRIu64 " bytes, and %s registers at most %" PRIu64 " in one piece",
                                file->name, file->length, field->devices[device].info.device, most);
    int code = pinned->map ? 0 : pin_in_place(store, at, error);
    if (!code)
        code = gpusys_mr_open(mr, store->pds[device], pinned->map, file->length, GPUSYS_MR_PEER_READ, error);
    if (code != -EFAULT || pinned->is_copied || is_registered(store, at))
        return code;
    unpin(store, at);
    code = pin_copy(store, at, field, error);
    return code ? code
                : gpusys_mr_open(mr, store->pds[device], pinned->map, file->length, GPUSYS_MR_PEER_READ,
                                 error);
}

static int take_key(struct gs_store *store, uint32_t device, uint32_t at)
{
    struct gpusys_mr_info info = {.size = sizeof info};
    int code = gpusys_mr_info(store->mrs[device][at], &info);
    if (!code)
        store->keys[device][at] = (struct gpusys_region_key){.base = info.address, .rkey = info.rkey};
    return code;
}

/* All or none of a device's, so that `keys` is whole when it is there. */
static void forget_device(struct gs_store *store, uint32_t device)
{
    for (uint32_t i = 0; store->mrs[device] && i < store->n_files; i++)
        gpusys_mr_close(store->mrs[device][i]);
    free(store->mrs[device]);
    free(store->keys[device]);
    store->mrs[device] = NULL;
    store->keys[device] = NULL;
}

static int register_device(struct gs_store *store, struct gpusys_field *field, uint32_t device,
                           struct gpusys_error *error)
{
    if (store->mrs[device])
        return 0;
    store->mrs[device] = calloc(store->n_files, sizeof **store->mrs);
    store->keys[device] = calloc(store->n_files, sizeof **store->keys);
    int code = store->mrs[device] && store->keys[device]
                   ? 0
                   : gpusys_error_set_errno(error, -ENOMEM, "%u regions", store->n_files);
    for (uint32_t i = 0; i < store->n_files && !code; i++) {
        code = atomic_load(&field->is_closing) ? gpusys_error_set(error, -ECANCELED, "the server is closing")
                                               : register_file(store, field, device, i, error);
        if (!code)
            code = take_key(store, device, i);
    }
    if (code)
        forget_device(store, device);
    return code;
}

int gs_store_register(struct gs_store *store, struct gpusys_field *field, uint32_t n_devices,
                      struct gpusys_error *error)
{
    int code = 0;
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < n_devices && !code; i++)
        code = register_device(store, field, i, error);
    pthread_mutex_unlock(&store->lock);
    return code;
}

/* ---- holders ---- */

static int check_files(struct gs_store *store, struct gpusys_error *error)
{
    for (uint32_t i = 0; i < store->n_files; i++) {
        int fd, code = gs_file_pin(store->files[i]->files, &store->files[i]->file, &fd);
        if (code)
            return fail_file(store->files[i], code, error);
        code = gs_file_check(&store->files[i]->file, fd);
        gs_file_unpin(store->files[i]->files, &store->files[i]->file);
        if (code)
            return fail_file(store->files[i], code, error);
    }
    return 0;
}

static void let_go(struct gs_store *store)
{
    for (uint32_t i = 0; i < GS_DEVICES_MAX; i++) {
        forget_device(store, i);
        gpusys_pd_close(store->pds[i]);
        store->pds[i] = NULL;
    }
    for (uint32_t i = 0; i < store->n_files; i++)
        unpin(store, i);
}

int gs_store_hold(struct gs_store *store, struct gpusys_field *field, struct gpusys_error *error)
{
    pthread_mutex_lock(&store->lock);
    int code = check_files(store, error);
    for (uint32_t i = 0; i < field->n_devices && !code && store->holders == 0; i++)
        code = gpusys_pd_open(&store->pds[i], field->devices[i].verbs, error);
    if (!code)
        store->holders++;
    else if (store->holders == 0)
        let_go(store);
    pthread_mutex_unlock(&store->lock);
    return code;
}

void gs_store_drop(struct gs_store *store)
{
    pthread_mutex_lock(&store->lock);
    if (--store->holders == 0)
        let_go(store);
    pthread_mutex_unlock(&store->lock);
}
