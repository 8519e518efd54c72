/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A model's directory as a weight peer serves it: which files are its shards, and the manifest of their tensors. */
#include "field.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_MAX = 256 * 1024 * 1024, MANIFEST_MAX = 256 * 1024 * 1024, SHARDS_MAX = 4096 };

#define EXTRA_NAME "extra_weights.safetensors"

/* The shards' names in order, while they are looked for. */
struct shards {
    const char *directory; /* as given */
    char *names[SHARDS_MAX + 1];
    uint32_t n_names;
    bool has_extra; /* the last of them */
    json_t *index;  /* NULL: there is none */
    json_t *weight_map;
    struct gpusys_error *error;
};

static int add_name(struct shards *shards, const char *name)
{
    if (shards->n_names == SHARDS_MAX)
        return gpusys_error_set(shards->error, -EINVAL, "%s has more than %d shards", shards->directory,
                                SHARDS_MAX);
    shards->names[shards->n_names] = strdup(name);
    if (!shards->names[shards->n_names])
        return gpusys_error_set(shards->error, -ENOMEM, "out of memory");
    shards->n_names++;
    return 0;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorted, each once. */
static void sort_names(struct shards *shards)
{
    uint32_t kept = 0;
    qsort(shards->names, shards->n_names, sizeof *shards->names, by_name);
    for (uint32_t i = 0; i < shards->n_names; i++) {
        if (kept && strcmp(shards->names[kept - 1], shards->names[i]) == 0)
            free(shards->names[i]);
        else
            shards->names[kept++] = shards->names[i];
    }
    shards->n_names = kept;
}

/* ---- by an index ---- */

/* Many tensors share a file: those in a row are taken once. */
static int take_index_names(struct shards *shards, const char *path)
{
    const char *tensor, *last = NULL;
    json_t *file;
    json_object_foreach(shards->weight_map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (!name || strchr(name, '/') || gpusys_name_check(name, NULL))
            return gpusys_error_set(shards->error, -EBADMSG, "%s is damaged: \"%.100s\" is in no plain file",
                                    path, tensor);
        if (last && strcmp(last, name) == 0)
            continue;
        last = name;
        if (shards->n_names == SHARDS_MAX)
            sort_names(shards);
        int code = add_name(shards, name);
        if (code)
            return code;
    }
    sort_names(shards);
    return shards->n_names ? 0 : gpusys_error_set(shards->error, -EBADMSG, "%s names no file", path);
}

/* -ENOENT, without an error: there is no such index. */
static int use_index(struct shards *shards, const char *folder, const char *name)
{
    json_error_t why;
    char *path, *text;
    size_t bytes;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return gpusys_error_set(shards->error, -ENOMEM, "out of memory");
    int code = field_read_file(path, INDEX_MAX, &text, &bytes, shards->error);
    if (!code) {
        shards->index = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
        free(text);
        shards->weight_map = json_object_get(shards->index, "weight_map");
        code = json_is_object(shards->weight_map)
                   ? take_index_names(shards, path)
                   : gpusys_error_set(shards->error, -EBADMSG, "%s is damaged: %s", path,
                                      shards->index ? "it has no weight_map" : why.text);
    }
    free(path);
    return code;
}

/* ---- by name ---- */

static bool is_there(const char *folder, const char *name)
{
    char path[4096 + 256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static int use_patterns(struct shards *shards, const char *folder)
{
    DIR *stream = opendir(folder);
    if (!stream)
        return gpusys_error_set_errno(shards->error, -errno, "%s", shards->directory);
    int code = 0;
    for (struct dirent *entry; !code && (entry = readdir(stream));)
        if (fnmatch("model.safetensors-*.safetensors", entry->d_name, 0) == 0 ||
            fnmatch("consolidated-*.safetensors", entry->d_name, 0) == 0)
            code = add_name(shards, entry->d_name);
    closedir(stream);
    sort_names(shards);
    return code;
}

/* The first rule that matches. */
static int find_shards(struct shards *shards, const char *folder)
{
    static const char *const indexes[] = {"model.safetensors.index.json",
                                          "consolidated.safetensors.index.json"};
    static const char *const single[] = {"model.safetensors", "adapter_model.safetensors"};
    int code = -ENOENT;
    for (int i = 0; i < 2 && code == -ENOENT; i++)
        code = use_index(shards, folder, indexes[i]);
    for (int i = 0; i < 2 && code == -ENOENT; i++)
        if (is_there(folder, single[i]))
            code = add_name(shards, single[i]);
    if (code == -ENOENT)
        code = use_patterns(shards, folder);
    if (!code && shards->n_names == 0) {
        gpusys_error_set(shards->error, -ENOENT, "%s: there is no safetensors model in it",
                         shards->directory);
        gpusys_error_set_hint(shards->error,
                              "model.safetensors, or shards with model.safetensors.index.json");
        return -ENOENT;
    }
    if (!code && is_there(folder, EXTRA_NAME)) {
        shards->has_extra = true;
        code = add_name(shards, EXTRA_NAME);
    }
    return code;
}

/* ---- the manifest ---- */

static int list_shard(struct field_folder *folder, const struct shards *shards, uint32_t at, json_t *tensors,
                      json_t *files, json_t *lengths)
{
    uint64_t bytes;
    bool extra = shards->has_extra && at + 1 == shards->n_names;
    struct field_shard shard = {.path = folder->paths[at],
                                .name = shards->names[at],
                                .index = at,
                                .extra = extra,
                                .weight_map = extra ? NULL : shards->weight_map};
    int code = field_shard_list(tensors, &shard, &bytes, shards->error);
    if (code)
        return code;
    folder->bytes += bytes;
    return json_array_append_new(files, json_string(shard.name)) ||
                   json_array_append_new(lengths, json_integer((json_int_t)bytes))
               ? gpusys_error_set(shards->error, -ENOMEM, "%s: out of memory, or a name that is not UTF-8",
                                  shard.path)
               : 0;
}

/* A tensor that the index promises and no shard has. */
static int check_index(const struct shards *shards, const json_t *tensors, size_t n_extra)
{
    size_t promised = json_object_size(shards->weight_map), found = json_array_size(tensors) - n_extra;
    if (!shards->weight_map || promised == found)
        return 0;
    return gpusys_error_set(shards->error, -EBADMSG,
                            "%s is damaged: its index places %zu tensors, and %zu of them are in the files",
                            shards->directory, promised, found);
}

static int list_all(struct field_folder *folder, const struct shards *shards, json_t *tensors, json_t *files,
                    json_t *lengths)
{
    int code = 0;
    size_t before_extra = 0;
    for (uint32_t i = 0; i < shards->n_names && !code; i++) {
        before_extra = json_array_size(tensors);
        code = list_shard(folder, shards, i, tensors, files, lengths);
    }
    return code ? code
                : check_index(shards, tensors,
                              shards->has_extra ? json_array_size(tensors) - before_extra : 0);
}

static int write_manifest(struct field_folder *folder, const struct shards *shards, json_t *manifest)
{
    folder->text = manifest ? json_dumps(manifest, JSON_COMPACT) : NULL;
    if (!folder->text)
        return gpusys_error_set(shards->error, -ENOMEM, "%s: out of memory, or a name that is not UTF-8",
                                shards->directory);
    folder->text_bytes = strlen(folder->text);
    return folder->text_bytes <= MANIFEST_MAX
               ? 0
               : gpusys_error_set(shards->error, -EFBIG,
                                  "%s: a manifest of %zu bytes, at most %d can be sent", shards->directory,
                                  folder->text_bytes, MANIFEST_MAX);
}

static int make_manifest(struct field_folder *folder, const struct shards *shards)
{
    const char *slash = strrchr(folder->path, '/');
    json_t *tensors = json_array(), *files = json_array(), *lengths = json_array();
    int code = list_all(folder, shards, tensors, files, lengths);
    json_t *manifest = code ? NULL
                            : json_pack("{s:i, s:s, s:O, s:O, s:O}", "version", 1, "model_id",
                                        slash[1] ? slash + 1 : folder->path, "shard_files", files,
                                        "shard_lens", lengths, "tensors", tensors);
    if (!code)
        code = write_manifest(folder, shards, manifest);
    json_decref(manifest);
    json_decref(tensors);
    json_decref(files);
    json_decref(lengths);
    return code;
}

int field_model_open(struct field_folder *ret_folder, const char *directory, bool follow,
                     struct gpusys_error *error)
{
    struct field_folder folder = {.path = realpath(directory, NULL)};
    struct shards shards = {.directory = directory, .error = error};
    int code = folder.path ? find_shards(&shards, folder.path)
                           : gpusys_error_set_errno(error, -errno, "%s", directory);
    for (uint32_t i = 0; i < shards.n_names && !code; i++)
        code = field_folder_add(&folder, shards.names[i], follow, error);
    if (!code)
        code = make_manifest(&folder, &shards);
    for (uint32_t i = 0; i < shards.n_names; i++)
        free(shards.names[i]);
    json_decref(shards.index);
    if (code)
        field_folder_free(&folder);
    else
        *ret_folder = folder;
    return code;
}
