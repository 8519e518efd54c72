/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Served files: where one lies, that it is still the file that was shown, and a bounded number of open
 * descriptors.
 *
 * A file is opened when it is first read, beneath the directory that was served and through no symbolic link,
 * and its identity (device, inode, size, mtime) is compared with what was seen when it was added. Descriptors
 * that nobody has pinned are closed, oldest first, when more are open than the limit. Any thread.
 */
#ifndef GPUSYS_REMOTE_FILES_H
#define GPUSYS_REMOTE_FILES_H

#include <gpusys/error.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct gs_file_identity {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec mtime;
};

struct gs_file_identity gs_file_identity_of(const struct stat *status);
bool gs_file_identity_same(const struct gs_file_identity *a, const struct gs_file_identity *b);

/* A directory that is served; files hold it. */
struct gs_root {
    int fd; /* O_PATH */
    dev_t device;
    ino_t inode;
    unsigned holders;     /* under the files' lock, and so is the list */
    struct gs_root *next; /* among those in use */
};

struct gs_file {
    struct gs_root *root;
    char *path; /* below the root, no leading '/' */
    struct gs_file_identity identity;
    bool in_memory; /* tmpfs and the like: there is no disk to wait for */
    int fd;         /* -1: closed */
    unsigned pins;
    struct gs_file *newer, *older; /* among the open ones without pins */
};

struct gs_files {
    pthread_mutex_t lock;
    unsigned open, limit;
    struct gs_file *newest, *oldest;
    struct gs_root *roots;
};

int gs_files_init(struct gs_files *files);
void gs_files_free(struct gs_files *files);

/* A root for `path` (a directory); one that is in use already serves again. */
int gs_root_open(struct gs_root **ret_root, struct gs_files *files, const char *path,
                 struct gpusys_error *error);
struct gs_root *gs_root_hold(struct gs_files *files, struct gs_root *root);
void gs_root_drop(struct gs_files *files, struct gs_root *root);

/* Open beneath a root without following any link. A descriptor or a negative errno. */
int gs_root_openat(const struct gs_root *root, const char *path, int flags);

/* Takes over `path` (malloc); holds `root`. */
void gs_file_init(struct gs_files *files, struct gs_file *file, struct gs_root *root, char *path,
                  const struct stat *status);
void gs_file_free(struct gs_files *files, struct gs_file *file);

/*
 * A descriptor that stays open until unpin. -ESTALE: the file is not the one that was served (gone, replaced,
 * its size or mtime changed). Other errnos from open.
 */
int gs_file_pin(struct gs_files *files, struct gs_file *file, int *ret_fd);
void gs_file_unpin(struct gs_files *files, struct gs_file *file);

/* A read-only descriptor of its own, to be given away. It, or an errno as pin's. */
int gs_file_open(const struct gs_file *file);

/* Is the open file still as it was? 0, -ESTALE, or fstat's errno. */
int gs_file_check(const struct gs_file *file, int fd);

#endif
