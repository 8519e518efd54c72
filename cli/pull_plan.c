/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pull_plan.h"
#include "output.h"
#include "part_name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 256 };

static int rank(unsigned char byte)
{
    return byte == 0 ? 0 : byte == '/' ? 1 : byte + 1;
}

int plan_compare_names(const char *left, const char *right)
{
    while (*left && *left == *right) {
        ++left;
        ++right;
    }
    return rank((unsigned char)*left) - rank((unsigned char)*right);
}

static int compare_entries(const void *left, const void *right)
{
    const struct plan_entry *a = left, *b = right;
    return plan_compare_names(a->name, b->name);
}

/* Is `name` the directory `above`, or below it? */
static bool is_below(const char *name, const char *above, size_t above_length)
{
    return strncmp(name, above, above_length) == 0 && (name[above_length] == 0 || name[above_length] == '/');
}

static size_t without_slashes(const char *name)
{
    size_t length = strlen(name);
    while (length > 0 && name[length - 1] == '/')
        --length;
    return length;
}

/* Is this region asked for? Marks the names that it answers to. */
static bool is_wanted(const struct gpusys_region_info *info, char *const *names, size_t n_names,
                      bool *matched)
{
    if (n_names == 0)
        return info->kind == GPUSYS_REGION_FILE || info->kind == GPUSYS_REGION_DIRECTORY;
    bool wanted = false;
    for (size_t i = 0; i < n_names; i++)
        if (is_below(info->name, names[i], without_slashes(names[i])))
            wanted = matched[i] = true;
    return wanted && info->kind != GPUSYS_REGION_ARENA;
}

/* No file system in use holds a longer file; and a journal has a byte for each of its chunks. */
#define MOST_BYTES (UINT64_C(1) << 46)

static int add_entry(struct plan *plan, const struct gpusys_region_info *info, struct gpusys_error *error)
{
    int code = gpusys_name_check(info->name, error);
    if (code)
        return code;
    if (info->length > MOST_BYTES)
        return gpusys_error_set(error, -EFBIG, "%.200s: the peer says it has %" PRIu64 " bytes", info->name,
                                info->length);
    plan->entries[plan->n_entries++] = (struct plan_entry){.name = info->name,
                                                           .length = info->length,
                                                           .mtime_ns = info->mtime_ns,
                                                           .region = info->region,
                                                           .kind = info->kind,
                                                           .place = info->place,
                                                           .mode = info->mode};
    if (info->kind != GPUSYS_REGION_DIRECTORY) {
        plan->files++;
        plan->bytes += info->length;
    }
    return 0;
}

static int choose(struct plan *plan, const struct gpusys_remote *remote, uint64_t n_regions,
                  char *const *names, size_t n_names, bool *matched, struct gpusys_error *error)
{
    char safe[SHOWN_BYTES];
    for (uint32_t region = 0; region < n_regions; region++) {
        struct gpusys_region_info info = {.size = sizeof info};
        int code = gpusys_remote_region(remote, region, &info);
        if (!code && is_wanted(&info, names, n_names, matched))
            code = add_entry(plan, &info, error);
        else if (code)
            gpusys_error_set_errno(error, code, "region %u of the table", region);
        if (code)
            return code;
    }
    for (size_t i = 0; i < n_names; i++)
        if (!matched[i]) {
            gpusys_error_set(error, -ENOENT, "the peer serves nothing named \"%s\"",
                             output_safe(safe, sizeof safe, names[i]));
            gpusys_error_set_hint(error, "gpusys ls ADDR shows what there is");
            return -ENOENT;
        }
    return 0;
}

static int refuse_pair(const struct plan_entry *first, const struct plan_entry *second, const char *why,
                       struct gpusys_error *error)
{
    char one[SHOWN_BYTES], two[SHOWN_BYTES];
    gpusys_error_set(error, -EEXIST, "the peer's names collide, nothing was written: %s", why);
    gpusys_error_add_detail(error, "first", "%s", output_safe(one, sizeof one, first->name));
    gpusys_error_add_detail(error, "second", "%s", output_safe(two, sizeof two, second->name));
    gpusys_error_set_hint(error, "pull them one at a time, by name, into different directories");
    return -EEXIST;
}

/* The entry with this name, or the first one below it; NULL when there is neither. */
static const struct plan_entry *find_at_or_below(const struct plan *plan, const char *name)
{
    size_t low = 0, high = plan->n_entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan_compare_names(plan->entries[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plan->n_entries && is_below(plan->entries[low].name, name, strlen(name))
               ? &plan->entries[low]
               : NULL;
}

/* Would another entry land where this file lies while it arrives? */
static const struct plan_entry *find_in_the_way(const struct plan *plan, const struct plan_entry *entry)
{
    char path[GPUSYS_NAME_BYTES + PART_NAME_BYTES], leaf_name[PART_NAME_BYTES];
    const char *slash = strrchr(entry->name, '/'), *leaf = slash ? slash + 1 : entry->name;
    int parent = (int)(leaf - entry->name);
    snprintf(path, sizeof path, "%.*s%s", parent, entry->name, part_name(leaf_name, leaf));
    const struct plan_entry *other = find_at_or_below(plan, path);
    if (other)
        return other;
    snprintf(path, sizeof path, "%.*s%s", parent, entry->name, part_journal_name(leaf_name, leaf));
    return find_at_or_below(plan, path);
}

int plan_check(const struct plan *plan, struct gpusys_error *error)
{
    for (size_t i = 0; i < plan->n_entries; i++) {
        const struct plan_entry *entry = &plan->entries[i], *next = entry + 1, *other;
        bool directory = entry->kind == GPUSYS_REGION_DIRECTORY;
        if (i + 1 < plan->n_entries && strcmp(entry->name, next->name) == 0)
            return refuse_pair(entry, next, "two have the same name", error);
        if (i + 1 < plan->n_entries && !directory && is_below(next->name, entry->name, strlen(entry->name)))
            return refuse_pair(entry, next, "one is a file and the other lies below it", error);
        if (!directory && (other = find_in_the_way(plan, entry)))
            return refuse_pair(entry, other, "the second has the name that the first bears while it arrives",
                               error);
    }
    return 0;
}

int plan_make(struct plan *ret_plan, const struct gpusys_remote *remote, uint64_t n_regions,
              char *const *names, size_t n_names, struct gpusys_error *error)
{
    struct plan plan = {.entries = calloc(n_regions + 1, sizeof *plan.entries)};
    bool *matched = calloc(n_names + 1, sizeof *matched);
    int code = plan.entries && matched ? 0 : gpusys_error_set(error, -ENOMEM, "out of memory");
    if (!code)
        code = choose(&plan, remote, n_regions, names, n_names, matched, error);
    if (!code && plan.n_entries == 0) {
        code = gpusys_error_set(error, -ENOENT, "the peer serves no files");
        gpusys_error_set_hint(error, "memory regions are pulled by name; gpusys ls ADDR shows them");
    }
    if (!code) {
        qsort(plan.entries, plan.n_entries, sizeof *plan.entries, compare_entries);
        code = plan_check(&plan, error);
    }
    free(matched);
    if (code)
        plan_free(&plan);
    else
        *ret_plan = plan;
    return code;
}

void plan_free(struct plan *plan)
{
    free(plan->entries);
    *plan = (struct plan){0};
}
