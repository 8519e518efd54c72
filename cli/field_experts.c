/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A directory as an expert peer serves it: a header in JSON, and a file of records for each layer. */
#include "field.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER_MAX = 16 * 1024 * 1024 };

static int read_header(struct field_folder *folder, const char *directory, struct gpusys_error *error)
{
    static const char *const names[] = {"header.json", "experts.json"};
    int code = -ENOENT;
    for (int i = 0; i < 2 && code == -ENOENT; i++) {
        char *path;
        if (asprintf(&path, "%s/%s", folder->path, names[i]) < 0)
            return gpusys_error_set(error, -ENOMEM, "out of memory");
        code = field_read_file(path, HEADER_MAX, &folder->text, &folder->text_bytes, error);
        free(path);
    }
    return code == -ENOENT ? gpusys_error_set(error, code, "%s: there is no header.json in it", directory)
                           : code;
}

static int is_layer(const struct dirent *entry)
{
    return fnmatch("*.bin", entry->d_name, 0) == 0;
}

static int by_bytes(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* Without a template: all *.bin files, in the order of their names. */
static int add_sorted(struct field_folder *folder, uint32_t n_layers, bool follow, struct gpusys_error *error)
{
    struct dirent **entries = NULL;
    int count = scandir(folder->path, &entries, is_layer, by_bytes);
    int code = count < 0 ? gpusys_error_set_errno(error, -errno, "%s", folder->path) : 0;
    if (!code && (uint32_t)count != n_layers)
        code = gpusys_error_set(error, -EINVAL, "%s has %d files *.bin, its header has %u layers",
                                folder->path, count, n_layers);
    for (int i = 0; i < count; i++) {
        if (!code)
            code = field_folder_add(folder, entries[i]->d_name, follow, error);
        free(entries[i]);
    }
    free(entries);
    return code;
}

static int add_named(struct field_folder *folder, char *const *names, uint32_t n_layers, bool follow,
                     struct gpusys_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < n_layers && !code; i++)
        code = field_folder_add(folder, names[i], follow, error);
    return code;
}

static int check_lengths(struct field_folder *folder, uint64_t layer_bytes, struct gpusys_error *error)
{
    for (uint32_t i = 0; i < folder->n_paths; i++) {
        struct stat info;
        if (stat(folder->paths[i], &info))
            return gpusys_error_set_errno(error, -errno, "%s", folder->paths[i]);
        if ((uint64_t)info.st_size != layer_bytes)
            return gpusys_error_set(
                error, -EINVAL,
                "%s has %lld bytes; by the header's num_experts and record_stride a layer has "
                "%" PRIu64,
                folder->paths[i], (long long)info.st_size, layer_bytes);
    }
    folder->bytes = layer_bytes * folder->n_paths;
    return 0;
}

static int add_layers(struct field_folder *folder, const json_t *header, const struct field_table *table,
                      bool follow, struct gpusys_error *error)
{
    int code;
    char **names = field_template_names(header, table->n_regions, &code, error);
    if (!code)
        code = names ? add_named(folder, names, table->n_regions, follow, error)
                     : add_sorted(folder, table->n_regions, follow, error);
    field_names_free(names, table->n_regions);
    return code ? code : check_lengths(folder, table->regions[0].length, error);
}

int field_experts_open(struct field_folder *ret_folder, const char *directory, bool follow,
                       struct gpusys_error *error)
{
    struct field_folder folder = {.path = realpath(directory, NULL)};
    struct field_table table = {0};
    int code = folder.path ? read_header(&folder, directory, error)
                           : gpusys_error_set_errno(error, -errno, "%s", directory);
    if (!code)
        code = field_table_of_header(&table, folder.text, folder.text_bytes, error);
    if (!code)
        code = add_layers(&folder, table.json, &table, follow, error);
    folder.record_bytes = table.record_bytes;
    field_table_free(&table);
    if (code)
        field_folder_free(&folder);
    else
        *ret_folder = folder;
    return code;
}
