/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The field's dialects at the command: descriptions made from files, and those of peers understood. */
#ifndef GPUSYS_CLI_FIELD_H
#define GPUSYS_CLI_FIELD_H

#include "command.h"
#include <gpusys/field.h>
#include <jansson.h>
#include <stdbool.h>

/* ---- serving: what lies in a directory ---- */

/* A directory as it is served. `paths` are its files in the order of the regions. */
struct field_folder {
    char *path; /* absolute */
    char *text; /* the manifest or the header */
    size_t text_bytes;
    char **paths;
    uint32_t n_paths;
    uint64_t bytes;        /* of the files */
    uint64_t record_bytes; /* experts */
};

/* field_model.c: a model's shards and the manifest of its tensors. */
int field_model_open(struct field_folder *ret_folder, const char *directory, bool follow,
                     struct gpusys_error *error);

/* field_experts.c: header.json (or experts.json) and the file of each layer. */
int field_experts_open(struct field_folder *ret_folder, const char *directory, bool follow,
                       struct gpusys_error *error);

void field_folder_free(struct field_folder *folder);

/* field_folder.c: directory/name, what it leads to with `follow`; an error names a link otherwise. Allocated. */
int field_folder_add(struct field_folder *folder, const char *name, bool follow, struct gpusys_error *error);

/* Read a file of at most `most` bytes; a NUL follows. Allocated. -ENOENT without an error set. */
int field_read_file(const char *path, size_t most, char **ret_text, size_t *ret_bytes,
                    struct gpusys_error *error);

/* One safetensors file: append its tensors to an array, as the manifest has them. (field_safetensors.c) */
struct field_shard {
    const char *path, *name;
    uint32_t index;
    bool extra;
    const json_t *weight_map; /* only tensors that it places in this file; NULL: all */
};
int field_shard_list(json_t *tensors, const struct field_shard *shard, uint64_t *ret_bytes,
                     struct gpusys_error *error);

/* cmd_serve's other half (field_serve.c): serve until a signal comes. */
struct field_serving {
    const char *listen;
    uint32_t kind; /* enum gpusys_field_kind */
    char *const *folders;
    int n_folders;
    bool follow, insecure, quiet;
    uint64_t max_arena_bytes;
    const char *const *devices; /* NULL: all */
    uint32_t n_devices;
};
enum exit_code field_serve(const struct field_serving *serving, int event);

/* The exit code for `code`; where only verbs would do and this machine has none, that is no failure of the work. */
enum exit_code field_exit_code(int code, bool only_verbs);

/* ---- pulling: what a peer says ---- (field_table.c) */

struct field_table {
    struct gpusys_field_region *regions;
    uint32_t n_regions;
    uint64_t record_bytes;
    char **names; /* what the regions' names point to, where they are no part of `json` */
    json_t *json;
};

int field_table_of_manifest(struct field_table *ret_table, const char *text, size_t bytes,
                            struct gpusys_error *error);
int field_table_of_header(struct field_table *ret_table, const char *text, size_t bytes,
                          struct gpusys_error *error);
void field_table_free(struct field_table *table);

/*
 * The layers' file names by the header's file_template, whose one placeholder is {}, {layer}, {moe_layer} (counted
 * from 0) or {model_layer} (by moe_layer_to_model_layer), each with a width if wanted ({layer:04}), or %d, %04d. NULL
 * with *ret_code 0: it has none. Allocated, as is each of them. (field_template.c)
 */
char **field_template_names(const json_t *header, uint32_t n_layers, int *ret_code,
                            struct gpusys_error *error);
void field_names_free(char **names, uint32_t n_names);

/* A whole number of a JSON object, 0 … `most`. -EBADMSG, with `what` named. */
int field_number(const json_t *object, const char *what, const char *key, uint64_t most, uint64_t *ret_value,
                 struct gpusys_error *error);

/* Ask the peer, understand it, connect. *ret_text (allocated): what it said of itself. (field_open.c) */
struct field_wishes {
    uint32_t kind;
    const char *address, *model;
    struct gpusys_field_options options;
};
int field_open(struct gpusys_remote **ret_remote, const struct field_wishes *wishes, char **ret_text,
               size_t *ret_bytes, struct gpusys_error *error);

#endif
