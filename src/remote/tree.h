/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From a path to the regions of what lies there. */
#ifndef GPUSYS_REMOTE_TREE_H
#define GPUSYS_REMOTE_TREE_H

#include "remote/region.h"

/* Regions that are not in a table yet. */
struct gs_region_list {
    struct gs_region **at;
    size_t count, size;
};

void gs_region_list_drop(struct gs_region_list *list);

/* Append the regions of gpusys_peer_add_path. What was appended stays in the list when it fails. */
int gs_tree_scan(struct gs_region_list *list, struct gs_files *files, const char *path, uint32_t flags,
                 struct gpusys_error *error);

/* One file under a name of its own: its region, or the error. Files only. */
int gs_tree_file(struct gs_region **ret_region, struct gs_files *files, const char *name, const char *path,
                 struct gpusys_error *error);

#endif
