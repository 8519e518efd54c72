/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What to pull: the regions that were asked for, their names checked against each other before anything is
 * written.
 */
#ifndef GPUSYS_CLI_PULL_PLAN_H
#define GPUSYS_CLI_PULL_PLAN_H

#include <gpusys/remote.h>

struct plan_entry {
    const char *name; /* the table's: lives as long as the remote */
    uint64_t length;
    int64_t mtime_ns;
    uint32_t region;
    uint32_t kind; /* enum gpusys_region_kind: memory, file or directory */
    uint32_t place;
    uint32_t mode;
    bool present; /* the same file lies at the destination already */
};

struct plan {
    struct plan_entry *entries; /* sorted so that what lies below a directory follows it at once */
    size_t n_entries;
    uint64_t files; /* memory regions become files too */
    uint64_t bytes;
};

/*
 * Choose from the remote's table (gpusys_remote_list was called): each name stands for a region or for all
 * that is below a directory; no names stand for all files and directories. -ENOENT: nothing has that name.
 * -EEXIST: two names would get into each other's way. -ENOMEM.
 */
int plan_make(struct plan *ret_plan, const struct gpusys_remote *remote, uint64_t n_regions,
              char *const *names, size_t n_names, struct gpusys_error *error);

void plan_free(struct plan *plan);

/* The order of the entries: bytes, with '/' before all others. */
int plan_compare_names(const char *left, const char *right);

/* The checks alone, on entries in that order. */
int plan_check(const struct plan *plan, struct gpusys_error *error);

#endif
