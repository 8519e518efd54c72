/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a pull from a peer of the field writes beside the files that it fetched: the header of the experts, and for a
 * model of several shards the index that says which tensor lies in which, made from the manifest. With these the
 * directory can be served, and a model loaded.
 */
#include "field.h"
#include "output.h"
#include "pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_taken(const struct pull *pull, const char *name)
{
    for (size_t i = 0; i < pull->plan.n_entries; i++)
        if (strcmp(pull->plan.entries[i].name, name) == 0)
            return true;
    return false;
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno != EINTR)
            return -errno;
        text += wrote > 0 ? wrote : 0;
        bytes -= wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

/* Under another name until it is whole. */
static int keep(struct pull *pull, const char *name, const char *text, size_t bytes,
                struct gpusys_error *error)
{
    char part[64];
    const char *leaf;
    int directory;
    snprintf(part, sizeof part, "%s.part", name); /* names without a folder */
    if (is_taken(pull, name) || is_taken(pull, part)) {
        note("%s is not written: the peer has a file of that name, or of its name while it is written", name);
        return 0;
    }
    int code = tree_parent(&pull->tree, name, &directory, &leaf, error);
    if (code)
        return code;
    unlinkat(directory, part, 0);
    int fd = openat(directory, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    code = fd < 0 ? -errno : write_all(fd, text, bytes);
    if (fd >= 0)
        close(fd);
    if (!code && renameat(directory, part, directory, leaf))
        code = -errno;
    return code ? tree_fail(&pull->tree, name, "cannot write it", code, error) : 0;
}

static int place_tensor(json_t *weight_map, const json_t *tensor, const json_t *files)
{
    const char *name = json_string_value(json_object_get(tensor, "name"));
    const json_t *at = json_object_get(tensor, "shard_index");
    json_t *file = json_array_get(files, json_is_integer(at) && json_integer_value(at) >= 0
                                             ? (size_t)json_integer_value(at)
                                             : SIZE_MAX);
    if (!name || !file || json_is_true(json_object_get(tensor, "extra")))
        return 0;
    return json_object_set(weight_map, name, file) ? -ENOMEM : 0;
}

/* Allocated; NULL: out of memory. */
static char *make_index(const json_t *manifest)
{
    json_t *weight_map = json_object(), *tensor;
    const json_t *files = json_object_get(manifest, "shard_files");
    size_t at;
    int code = weight_map ? 0 : -ENOMEM;
    json_array_foreach(json_object_get(manifest, "tensors"), at, tensor)
    {
        if (!code)
            code = place_tensor(weight_map, tensor, files);
    }
    json_t *index = code ? NULL : json_pack("{s:{}, s:O}", "metadata", "weight_map", weight_map);
    char *text = index ? json_dumps(index, JSON_INDENT(2)) : NULL;
    json_decref(index);
    json_decref(weight_map);
    return text;
}

static int keep_index(struct pull *pull, const json_t *manifest, struct gpusys_error *error)
{
    char *text = make_index(manifest);
    if (!text)
        return gpusys_error_set(error, -ENOMEM, "out of memory");
    int code = keep(pull, "model.safetensors.index.json", text, strlen(text), error);
    free(text);
    return code;
}

int field_keep(struct pull *pull, struct gpusys_error *error)
{
    json_t *said = json_loadb(pull->description, pull->description_bytes, 0, NULL);
    const json_t *files = json_object_get(said, "shard_files");
    int code = 0;
    if (!files)
        code = keep(pull, "header.json", pull->description, pull->description_bytes, error);
    else if (json_array_size(files) > 1)
        code = keep_index(pull, said, error);
    json_decref(said);
    return code;
}
