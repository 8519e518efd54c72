/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote/tree.h"

#include "base/filetime.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* What one scan carries along. */
struct scan {
    struct gs_region_list *list;
    struct gs_files *files;
    bool follow;
    struct gpusys_error *error;
    struct gs_root *root;   /* of the path that was given */
    struct gs_root *system; /* "/", for what links lead to; opened when the first one is met */
};

/* One directory on the way down; the chain shows loops that links make. */
struct level {
    const struct level *up;
    struct gs_root *root; /* the files in it lie beneath this … */
    const char *below;    /* … at this path */
    const char *name;     /* and are served as NAME/… */
    dev_t device;
    ino_t inode;
};

static char *join(const char *directory, const char *entry)
{
    char *path = NULL;
    if (!*directory)
        return strdup(entry);
    return asprintf(&path, "%s/%s", directory, entry) < 0 ? NULL : path;
}

void gs_region_list_drop(struct gs_region_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        gs_region_drop(list->at[i]);
    free(list->at);
    *list = (struct gs_region_list){0};
}

static int append(struct gs_region_list *list, struct gs_region *region)
{
    if (list->count == list->size) {
        size_t size = list->size ? 2 * list->size : 16;
        struct gs_region **at = realloc(list->at, size * sizeof *at);
        if (!at)
            return -ENOMEM;
        list->at = at;
        list->size = size;
    }
    list->at[list->count++] = region;
    return 0;
}

static int new_region(struct gs_region **ret_region, struct gs_files *files, const char *name,
                      const struct stat *status, struct gpusys_error *error)
{
    struct gs_region *region;
    int result = gpusys_name_check(name, error);
    if (result)
        return result;
    if (gs_region_new(&region, files, name))
        return gpusys_error_set_errno(error, -ENOMEM, "%s", name);
    region->access = GPUSYS_ACCESS_READ;
    region->place = GPUSYS_PLACE_FILE;
    region->mode = status->st_mode & 07777;
    region->mtime_ns = gs_mtime_ns(status);
    *ret_region = region;
    return 0;
}

static int new_file(struct gs_region **ret_region, struct gs_files *files, const char *name,
                    struct gs_root *root, const char *path, const struct stat *status,
                    struct gpusys_error *error)
{
    int result = new_region(ret_region, files, name, status, error);
    if (result)
        return result;
    char *copy = strdup(path);
    if (!copy) {
        gs_region_drop(*ret_region);
        return gpusys_error_set_errno(error, -ENOMEM, "%s", name);
    }
    (*ret_region)->kind = GPUSYS_REGION_FILE;
    (*ret_region)->length = (uint64_t)status->st_size;
    gs_file_init(files, &(*ret_region)->file, root, copy, status);
    return 0;
}

static int keep(struct scan *scan, int result, struct gs_region *region)
{
    if (result)
        return result;
    result = append(scan->list, region);
    if (result) {
        gs_region_drop(region);
        return gpusys_error_set_errno(scan->error, result, "the list of regions");
    }
    return 0;
}

static int add_file(struct scan *scan, const char *name, struct gs_root *root, const char *path,
                    const struct stat *status)
{
    struct gs_region *region = NULL;
    int fd = gs_root_openat(root, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) /* better now, to whoever serves it, than later to a client */
        return gpusys_error_set_errno(scan->error, fd, "cannot serve \"%.300s\"", name);
    struct statfs system;
    bool in_memory =
        fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
    close(fd);
    int result = new_file(&region, scan->files, name, root, path, status, scan->error);
    if (!result)
        region->file.in_memory = in_memory;
    return keep(scan, result, region);
}

static int add_directory(struct scan *scan, const struct level *level, const struct stat *status)
{
    struct gs_region *region = NULL;
    int result = new_region(&region, scan->files, level->name, status, scan->error);
    if (!result)
        region->kind = GPUSYS_REGION_DIRECTORY;
    return keep(scan, result, region);
}

static int scan_directory(struct scan *scan, const struct level *level, const struct stat *status);

/* Anything but a link, at `path` beneath `root`. */
static int scan_thing(struct scan *scan, const struct level *up, const char *name, struct gs_root *root,
                      const char *path, const struct stat *status)
{
    if (S_ISREG(status->st_mode))
        return add_file(scan, name, root, path, status);
    if (!S_ISDIR(status->st_mode)) {
        gs_log(GPUSYS_LOG_WARN, "not served: \"%.300s\" is neither a file nor a directory", name);
        return 0;
    }
    for (const struct level *at = up; at; at = at->up)
        if (at->device == status->st_dev && at->inode == status->st_ino)
            return gpusys_error_set(scan->error, -ELOOP,
                                    "cannot serve \"%.300s\": the link leads back to \"%.300s\"", name,
                                    at->name);
    struct level level = {.up = up,
                          .root = root,
                          .below = path,
                          .name = name,
                          .device = status->st_dev,
                          .inode = status->st_ino};
    return scan_directory(scan, &level, status);
}

static int refuse_link(struct scan *scan, const char *name, int directory, const char *entry)
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(directory, entry, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    gpusys_error_set(scan->error, -ELOOP, "\"%.300s\" is a symbolic link (to %s)", name, target);
    gpusys_error_set_cause(scan->error,
                           "links may lead out of what is served, so they are not followed unasked");
    gpusys_error_set_hint(scan->error, "serve with --follow to resolve links once, at the start");
    return -ELOOP;
}

/* A link is resolved once, now: what it leads to is served as if it lay here, beneath "/" and through no
 * further link. */
static int scan_link(struct scan *scan, const struct level *up, const char *name, int directory,
                     const char *entry)
{
    char handle[64], resolved[PATH_MAX];
    struct stat status;
    if (!scan->follow)
        return refuse_link(scan, name, directory, entry);
    int fd = openat(directory, entry, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0) {
        int code = -errno;
        if (fd >= 0)
            close(fd);
        gpusys_error_set_errno(scan->error, code, "the link \"%.300s\" leads nowhere", name);
        gpusys_error_set_hint(scan->error, "remove the link, or serve what lies beside it");
        return code;
    }
    snprintf(handle, sizeof handle, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(handle, resolved, sizeof resolved - 1);
    close(fd);
    if (length <= 1 || resolved[0] != '/')
        return gpusys_error_set(scan->error, -ELOOP, "the link \"%.300s\" leads to no path", name);
    resolved[length] = 0;
    int result = scan->system ? 0 : gs_root_open(&scan->system, scan->files, "/", scan->error);
    return result ? result : scan_thing(scan, up, name, scan->system, resolved + 1, &status);
}

static int scan_entry(struct scan *scan, const struct level *level, int directory, const char *entry)
{
    struct stat status;
    int result;
    char *name = join(level->name, entry), *path = join(level->below, entry);
    if (!name || !path)
        result = gpusys_error_set_errno(scan->error, -ENOMEM, "%s", entry);
    else if (fstatat(directory, entry, &status, AT_SYMLINK_NOFOLLOW) < 0)
        result = gpusys_error_set_errno(scan->error, -errno, "cannot serve \"%.300s\"", name);
    else if (S_ISLNK(status.st_mode))
        result = scan_link(scan, level, name, directory, entry);
    else
        result = scan_thing(scan, level, name, level->root, path, &status);
    free(name);
    free(path);
    return result;
}

static int is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of their names, so that the same tree always makes the same table. */
static int scan_directory(struct scan *scan, const struct level *level, const struct stat *status)
{
    int result = add_directory(scan, level, status);
    if (result)
        return result;
    int fd = gs_root_openat(level->root, *level->below ? level->below : ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return gpusys_error_set_errno(scan->error, fd, "cannot read the directory \"%.300s\"", level->name);
    struct dirent **entries = NULL;
    int count = scandirat(fd, ".", &entries, is_entry, by_bytes);
    if (count < 0)
        result =
            gpusys_error_set_errno(scan->error, -errno, "cannot read the directory \"%.300s\"", level->name);
    for (int i = 0; i < count; i++) {
        if (!result)
            result = scan_entry(scan, level, fd, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    close(fd);
    return result;
}

/* Split a canonical path into the directory it lies in and its last component. "/" has none. */
static int split(char *path, const char **ret_directory, const char **ret_last, struct gpusys_error *error)
{
    char *slash = strrchr(path, '/');
    if (!slash || !slash[1])
        return gpusys_error_set(error, -EINVAL, "\"/\" has no name to be served under");
    *slash = 0;
    *ret_directory = slash == path ? "/" : path;
    *ret_last = slash + 1;
    return 0;
}

/* The path that was given is the user's own word: links in it are followed, whatever `follow` says. */
static int scan_top(struct scan *scan, const char *path)
{
    const char *directory = NULL, *last = NULL;
    struct stat status;
    char *real = realpath(path, NULL);
    if (!real)
        return gpusys_error_set_errno(scan->error, -errno, "cannot serve \"%.300s\"", path);
    int result = split(real, &directory, &last, scan->error);
    if (!result)
        result = gs_root_open(&scan->root, scan->files, directory, scan->error);
    if (!result && fstatat(scan->root->fd, last, &status, AT_SYMLINK_NOFOLLOW) < 0)
        result = gpusys_error_set_errno(scan->error, -errno, "cannot serve \"%.300s\"", path);
    if (!result && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        result = gpusys_error_set(scan->error, -EINVAL,
                                  "cannot serve \"%.300s\": neither a file nor a directory", path);
    if (!result)
        result = scan_thing(scan, NULL, last, scan->root, last, &status);
    free(real);
    return result;
}

int gs_tree_scan(struct gs_region_list *list, struct gs_files *files, const char *path, uint32_t flags,
                 struct gpusys_error *error)
{
    struct scan scan = {.list = list, .files = files, .follow = flags & GPUSYS_PATH_FOLLOW, .error = error};
    int result = scan_top(&scan, path);
    gs_root_drop(files, scan.root);
    gs_root_drop(files, scan.system);
    return result;
}

int gs_tree_file(struct gs_region **ret_region, struct gs_files *files, const char *name, const char *path,
                 struct gpusys_error *error)
{
    struct gs_region_list list = {0};
    int result = gs_tree_scan(&list, files, path, 0, error);
    if (!result && list.at[0]->kind != GPUSYS_REGION_FILE)
        result = gpusys_error_set(error, -EISDIR, "\"%.300s\" is a directory", path);
    if (!result)
        result = gpusys_name_check(name, error);
    char *copy = result ? NULL : strdup(name);
    if (!result && !copy)
        result = gpusys_error_set_errno(error, -ENOMEM, "%s", name);
    if (!result) {
        free(list.at[0]->name);
        list.at[0]->name = copy;
        *ret_region = gs_region_hold(list.at[0]);
    }
    gs_region_list_drop(&list);
    return result;
}
