/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pull_tree.h"
#include "output.h"
#include "quantity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHOWN_BYTES = 320 };

int tree_fail(const struct tree *tree, const char *name, const char *what, int code,
              struct gpusys_error *error)
{
    char safe[SHOWN_BYTES];
    output_safe(safe, sizeof safe, name);
    gpusys_error_set_errno(error, code, "%s/%s: %s", tree->path, safe, what);
    if (code == -ELOOP || code == -ENOTDIR) {
        gpusys_error_set_cause(error,
                               "a symbolic link or a file stands where a directory should be; links are "
                               "never followed out of the output directory");
        gpusys_error_set_hint(error, "remove it, or pull into another directory");
    }
    return code;
}

uint64_t tree_free_bytes(const struct tree *tree)
{
    struct statvfs info;
    return fstatvfs(tree->root, &info) == 0 ? (uint64_t)info.f_bavail * info.f_frsize : UINT64_MAX;
}

int tree_fail_full(const struct tree *tree, const char *name, uint64_t needed, int code,
                   struct gpusys_error *error)
{
    char text[QUANTITY_BYTES];
    tree_fail(tree, name, code == -EDQUOT ? "the quota is used up" : "the disk is full", code, error);
    gpusys_error_add_detail(error, "needed", "%s more", quantity_of_bytes(text, needed));
    gpusys_error_add_detail(error, "free", "%s", quantity_of_bytes(text, tree_free_bytes(tree)));
    gpusys_error_set_hint(error, "make room and run the same command again: it goes on where it stopped");
    return code;
}

int tree_open(struct tree *ret_tree, const char *path, struct gpusys_error *error)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return gpusys_error_set_errno(error, -errno, "%.300s: cannot make the directory", path);
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return gpusys_error_set_errno(error, -errno, "%.300s: cannot open the directory", path);
    *ret_tree = (struct tree){.path = path, .root = root, .parent = -1};
    return 0;
}

void tree_close(struct tree *tree)
{
    if (tree->parent >= 0)
        close(tree->parent);
    if (tree->root >= 0)
        close(tree->root);
    free(tree->parent_name);
    *tree = (struct tree){.root = -1, .parent = -1};
}

/* In one call, where the kernel (5.6) and its filters allow. */
static int open_beneath(int root, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    long fd = syscall(SYS_openat2, root, name, &how, sizeof how);
    return fd < 0 ? -errno : (int)fd;
}

/* One component, made when missing. Closes `above` unless it is the root. */
static int step_into(int root, int above, const char *component)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(above, component, flags);
    if (fd < 0 && errno == ENOENT && (mkdirat(above, component, 0777) == 0 || errno == EEXIST))
        fd = openat(above, component, flags);
    int code = fd < 0 ? -errno : fd;
    if (above != root)
        close(above);
    return code;
}

/* Component by component, without following links; makes what is missing. */
static int walk(int root, const char *name)
{
    char *copy = strdup(name), *rest = copy, *component;
    int fd = copy ? root : -ENOMEM;
    while (fd >= 0 && (component = strsep(&rest, "/")))
        fd = step_into(root, fd, component);
    free(copy);
    return fd;
}

static int open_directory(const struct tree *tree, const char *name)
{
    if (!*name) {
        int fd = fcntl(tree->root, F_DUPFD_CLOEXEC, 0);
        return fd < 0 ? -errno : fd;
    }
    int fd = open_beneath(tree->root, name);
    return fd == -ENOENT || fd == -ENOSYS || fd == -EPERM ? walk(tree->root, name) : fd;
}

/* Make the directory named by the first `length` bytes of `name` the one used last. */
static int enter(struct tree *tree, const char *name, size_t length, struct gpusys_error *error)
{
    if (tree->parent >= 0 && strlen(tree->parent_name) == length &&
        memcmp(tree->parent_name, name, length) == 0)
        return 0;
    char *directory = strndup(name, length);
    if (!directory)
        return gpusys_error_set(error, -ENOMEM, "out of memory");
    int fd = open_directory(tree, directory);
    if (fd < 0) {
        tree_fail(tree, directory, "cannot open the directory", fd, error);
        free(directory);
        return fd;
    }
    if (tree->parent >= 0)
        close(tree->parent);
    free(tree->parent_name);
    tree->parent = fd;
    tree->parent_name = directory;
    return 0;
}

int tree_parent(struct tree *tree, const char *name, int *ret_directory, const char **ret_leaf,
                struct gpusys_error *error)
{
    const char *slash = strrchr(name, '/');
    int code = enter(tree, name, slash ? (size_t)(slash - name) : 0, error);
    if (code)
        return code;
    *ret_directory = tree->parent;
    *ret_leaf = slash ? slash + 1 : name;
    return 0;
}

int tree_make_directory(struct tree *tree, const char *name, struct gpusys_error *error)
{
    int code = enter(tree, name, strlen(name), error);
    if (code)
        return code;
    struct stat info;
    if (fstat(tree->parent, &info))
        return tree_fail(tree, name, "cannot look at the directory", -errno, error);
    if ((info.st_mode & 0700) != 0700 && fchmod(tree->parent, (info.st_mode & 0777) | 0700))
        return tree_fail(tree, name, "the directory is not writable", -errno, error);
    return 0;
}

int64_t tree_mtime_ns(const struct stat *info)
{
    int64_t ns;
    if (__builtin_mul_overflow((int64_t)info->st_mtim.tv_sec, 1000000000, &ns) ||
        __builtin_add_overflow(ns, (int64_t)info->st_mtim.tv_nsec, &ns))
        return info->st_mtim.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

void tree_times(struct timespec ret_times[2], int64_t mtime_ns)
{
    int64_t part = mtime_ns % 1000000000, seconds = mtime_ns / 1000000000;
    if (part < 0) { /* before 1970 */
        part += 1000000000;
        seconds -= 1;
    }
    ret_times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    ret_times[1] = (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)part};
}

int tree_finish_directory(struct tree *tree, const char *name, uint32_t mode, int64_t mtime_ns,
                          struct gpusys_error *error)
{
    int code = enter(tree, name, strlen(name), error);
    if (code)
        return code;
    struct timespec times[2];
    tree_times(times, mtime_ns);
    if (fchmod(tree->parent, mode & 0777) || futimens(tree->parent, times))
        return tree_fail(tree, name, "cannot set mode and time of the directory", -errno, error);
    return 0;
}
