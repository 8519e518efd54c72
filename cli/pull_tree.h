/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The directory that a pull writes into. Nothing outside it is opened or made, whatever the names say and
 * whatever links lie about in it: no component of a name is ever followed through a symbolic link.
 */
#ifndef GPUSYS_CLI_PULL_TREE_H
#define GPUSYS_CLI_PULL_TREE_H

#include <gpusys/error.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

struct tree {
    const char *path; /* as the user wrote it */
    int root;
    int parent;        /* the directory used last, -1 for none */
    char *parent_name; /* its name below the root, "" for the root */
};

/* `path` is made when it is missing (its parent is not). */
int tree_open(struct tree *ret_tree, const char *path, struct gpusys_error *error);
void tree_close(struct tree *tree);

/*
 * The directory in which `name` lies, made with all above it when missing. The descriptor is the tree's and
 * good until the next call; *ret_leaf points into `name`.
 */
int tree_parent(struct tree *tree, const char *name, int *ret_directory, const char **ret_leaf,
                struct gpusys_error *error);

/* Make the directory, or make sure that the owner can write into the one that is there. */
int tree_make_directory(struct tree *tree, const char *name, struct gpusys_error *error);

/* Give a directory its mode and time, after all that lies in it is done. */
int tree_finish_directory(struct tree *tree, const char *name, uint32_t mode, int64_t mtime_ns,
                          struct gpusys_error *error);

/* A file's modification time in nanoseconds since 1970, as the library gives it: the nearest that fits. */
int64_t tree_mtime_ns(const struct stat *info);

/* For futimens: the access time stays, the modification time becomes this. */
void tree_times(struct timespec ret_times[2], int64_t mtime_ns);

/* A report about NAME below the tree: "DIR/NAME: WHAT: errno's text". Returns `code`. */
int tree_fail(const struct tree *tree, const char *name, const char *what, int code,
              struct gpusys_error *error);

/* Is the tree's file system full? The error for it, with what is still `needed` and what is free. */
int tree_fail_full(const struct tree *tree, const char *name, uint64_t needed, int code,
                   struct gpusys_error *error);

/* Free bytes that this user may fill; UINT64_MAX when that is unknown. */
uint64_t tree_free_bytes(const struct tree *tree);

#endif
