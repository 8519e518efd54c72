/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct gs_file_identity gs_file_identity_of(const struct stat *status)
{
    return (struct gs_file_identity){
        .device = status->st_dev, .inode = status->st_ino, .size = status->st_size, .mtime = status->st_mtim};
}

bool gs_file_identity_same(const struct gs_file_identity *a, const struct gs_file_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* Half of what the process may open is left to sockets and to the application. */
static unsigned open_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / 2 > 65536)
        return 65536;
    return limit.rlim_cur < 32 ? 16 : (unsigned)limit.rlim_cur / 2;
}

int gs_files_init(struct gs_files *files)
{
    *files = (struct gs_files){.limit = open_limit()};
    return -pthread_mutex_init(&files->lock, NULL);
}

void gs_files_free(struct gs_files *files)
{
    pthread_mutex_destroy(&files->lock);
}

/* The directory behind `fd` as a root, which takes the descriptor over; NULL: out of memory. */
static struct gs_root *share_root(struct gs_files *files, int fd, const struct stat *status)
{
    struct gs_root *root;
    pthread_mutex_lock(&files->lock);
    for (root = files->roots; root; root = root->next)
        if (root->device == status->st_dev && root->inode == status->st_ino)
            break;
    if (root) {
        root->holders++;
        close(fd);
    } else if ((root = malloc(sizeof *root))) {
        *root = (struct gs_root){
            .fd = fd, .device = status->st_dev, .inode = status->st_ino, .holders = 1, .next = files->roots};
        files->roots = root;
    }
    pthread_mutex_unlock(&files->lock);
    return root;
}

int gs_root_open(struct gs_root **ret_root, struct gs_files *files, const char *path,
                 struct gpusys_error *error)
{
    struct stat status;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return gpusys_error_set_errno(error, -errno, "%s", path);
    int code = fstat(fd, &status) < 0 ? -errno : 0;
    struct gs_root *root = code ? NULL : share_root(files, fd, &status);
    if (!root) {
        close(fd);
        return gpusys_error_set_errno(error, code ? code : -ENOMEM, "%s", path);
    }
    *ret_root = root;
    return 0;
}

struct gs_root *gs_root_hold(struct gs_files *files, struct gs_root *root)
{
    pthread_mutex_lock(&files->lock);
    root->holders++;
    pthread_mutex_unlock(&files->lock);
    return root;
}

void gs_root_drop(struct gs_files *files, struct gs_root *root)
{
    if (!root)
        return;
    pthread_mutex_lock(&files->lock);
    bool last = --root->holders == 0;
    struct gs_root **link = &files->roots;
    while (last && *link != root)
        link = &(*link)->next;
    if (last)
        *link = root->next;
    pthread_mutex_unlock(&files->lock);
    if (!last)
        return;
    close(root->fd);
    free(root);
}

int gs_root_openat(const struct gs_root *root, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOCTTY),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    for (;;) {
        long fd = syscall(SYS_openat2, root->fd, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno != EINTR && errno != EAGAIN) /* EAGAIN: the tree moved while the kernel walked it */
            return -errno;
    }
}

void gs_file_init(struct gs_files *files, struct gs_file *file, struct gs_root *root, char *path,
                  const struct stat *status)
{
    *file = (struct gs_file){
        .root = gs_root_hold(files, root), .path = path, .identity = gs_file_identity_of(status), .fd = -1};
}

/* ---- the list of open files without pins; all under the lock ---- */

static void unlink_file(struct gs_files *files, struct gs_file *file)
{
    *(file->newer ? &file->newer->older : &files->newest) = file->older;
    *(file->older ? &file->older->newer : &files->oldest) = file->newer;
    file->newer = file->older = NULL;
}

static void link_newest(struct gs_files *files, struct gs_file *file)
{
    file->older = files->newest;
    *(files->newest ? &files->newest->newer : &files->oldest) = file;
    files->newest = file;
}

static void close_file(struct gs_files *files, struct gs_file *file)
{
    unlink_file(files, file);
    close(file->fd);
    file->fd = -1;
    files->open--;
}

void gs_file_free(struct gs_files *files, struct gs_file *file)
{
    if (!file->root)
        return;
    pthread_mutex_lock(&files->lock);
    if (file->fd >= 0)
        close_file(files, file);
    pthread_mutex_unlock(&files->lock);
    gs_root_drop(files, file->root);
    free(file->path);
    *file = (struct gs_file){.fd = -1};
}

int gs_file_check(const struct gs_file *file, int fd)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return -errno;
    struct gs_file_identity now = gs_file_identity_of(&status);
    return gs_file_identity_same(&now, &file->identity) ? 0 : -ESTALE;
}

/* Errnos of open that mean "another thing lies there now". */
static bool means_changed(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EXDEV || error == -EISDIR;
}

int gs_file_open(const struct gs_file *file)
{
    int fd = gs_root_openat(file->root, file->path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return means_changed(fd) ? -ESTALE : fd;
    int error = gs_file_check(file, fd);
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

int gs_file_pin(struct gs_files *files, struct gs_file *file, int *ret_fd)
{
    int result = 0;
    pthread_mutex_lock(&files->lock);
    if (file->fd < 0) {
        while (files->open >= files->limit && files->oldest)
            close_file(files, files->oldest);
        result = gs_file_open(file);
        if (result >= 0) {
            file->fd = result;
            files->open++;
            file->pins = 1;
            result = 0;
        }
    } else if (file->pins++ == 0) {
        unlink_file(files, file);
    }
    if (result == 0)
        *ret_fd = file->fd;
    pthread_mutex_unlock(&files->lock);
    return result;
}

void gs_file_unpin(struct gs_files *files, struct gs_file *file)
{
    pthread_mutex_lock(&files->lock);
    if (--file->pins == 0)
        link_newest(files, file);
    pthread_mutex_unlock(&files->lock);
}
