/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a peer of the field says of itself, as a table of regions. Nothing it says is believed unseen. */
#include "field.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGIONS_MAX = 4096 };

/* No file system in use holds a longer file. */
#define MOST_BYTES (UINT64_C(1) << 46)

void field_table_free(struct field_table *table)
{
    field_names_free(table->names, table->names ? table->n_regions : 0);
    free(table->regions);
    json_decref(table->json);
    *table = (struct field_table){0};
}

static int load(struct field_table *table, const char *what, const char *text, size_t bytes,
                struct gpusys_error *error)
{
    json_error_t why;
    table->json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(table->json))
        return gpusys_error_set(error, -EBADMSG, "%s is no JSON object: %s", what,
                                table->json ? "another value" : why.text);
    return 0;
}

static int make_room(struct field_table *table, uint64_t n_regions, const char *what,
                     struct gpusys_error *error)
{
    if (n_regions < 1 || n_regions > REGIONS_MAX)
        return gpusys_error_set(error, -EBADMSG, "%s is damaged: %" PRIu64 " regions, 1 to %d are possible",
                                what, n_regions, REGIONS_MAX);
    table->regions = calloc(n_regions, sizeof *table->regions);
    if (!table->regions)
        return gpusys_error_set(error, -ENOMEM, "out of memory");
    table->n_regions = (uint32_t)n_regions;
    return 0;
}

/* ---- weights ---- */

static int take_shard(struct field_table *table, const json_t *files, const json_t *lengths, uint32_t at,
                      struct gpusys_error *error)
{
    const char *name = json_string_value(json_array_get(files, at));
    const json_t *length = json_array_get(lengths, at);
    if (!name || gpusys_name_check(name, NULL))
        return gpusys_error_set(error, -EBADMSG, "the manifest's shard %u has no possible name: \"%.100s\"",
                                at, name ? name : "");
    if (!json_is_integer(length) || json_integer_value(length) < 1 ||
        (uint64_t)json_integer_value(length) > MOST_BYTES)
        return gpusys_error_set(error, -EBADMSG,
                                "the manifest's shard %u, \"%.100s\", has no possible length", at, name);
    table->regions[at] =
        (struct gpusys_field_region){.name = name, .length = (uint64_t)json_integer_value(length)};
    return 0;
}

static int read_manifest(struct field_table *table, const char *text, size_t bytes,
                         struct gpusys_error *error)
{
    uint64_t version = 0;
    int code = load(table, "the manifest", text, bytes, error);
    if (!code && json_object_get(table->json, "num_moe_layers"))
        code = gpusys_error_set(error, -EPROTO,
                                "this is the header of an expert peer, not the manifest of a model");
    if (!code)
        code = field_number(table->json, "the manifest", "version", INT64_MAX, &version, error);
    if (!code && version != 1)
        code = gpusys_error_set(error, -EPROTONOSUPPORT,
                                "the manifest's version is %" PRIu64 ", 1 is understood", version);
    const json_t *files = json_object_get(table->json, "shard_files"),
                 *lengths = json_object_get(table->json, "shard_lens");
    if (!code && (!json_is_array(files) || json_array_size(files) != json_array_size(lengths)))
        code = gpusys_error_set(error, -EBADMSG, "the manifest is damaged: %zu shard_files, %zu shard_lens",
                                json_array_size(files), json_array_size(lengths));
    if (!code)
        code = make_room(table, json_array_size(files), "the manifest", error);
    for (uint32_t i = 0; !code && i < table->n_regions; i++)
        code = take_shard(table, files, lengths, i, error);
    return code;
}

int field_table_of_manifest(struct field_table *ret_table, const char *text, size_t bytes,
                            struct gpusys_error *error)
{
    struct field_table table = {0};
    int code = read_manifest(&table, text, bytes, error);
    if (code)
        field_table_free(&table);
    else
        *ret_table = table;
    return code;
}

/* ---- experts ---- */

/* Without a template: names that sort as the layers do. */
static int plain_names(struct field_table *table, struct gpusys_error *error)
{
    table->names = calloc(table->n_regions, sizeof *table->names);
    for (uint32_t i = 0; table->names && i < table->n_regions; i++)
        if (asprintf(&table->names[i], "layer-%04u.bin", i) < 0) {
            table->names[i] = NULL;
            return gpusys_error_set(error, -ENOMEM, "out of memory");
        }
    return table->names ? 0 : gpusys_error_set(error, -ENOMEM, "out of memory");
}

static int name_layers(struct field_table *table, uint64_t layer_bytes, struct gpusys_error *error)
{
    int code;
    table->names = field_template_names(table->json, table->n_regions, &code, error);
    if (!code && !table->names)
        code = plain_names(table, error);
    for (uint32_t i = 0; !code && i < table->n_regions; i++)
        table->regions[i] = (struct gpusys_field_region){.name = table->names[i], .length = layer_bytes};
    return code;
}

static int read_header(struct field_table *table, const char *text, size_t bytes, struct gpusys_error *error)
{
    static const char what[] = "the header";
    uint64_t layers = 0, experts = 0, stride = 0, total;
    int code = load(table, what, text, bytes, error);
    if (!code)
        code = field_number(table->json, what, "num_moe_layers", REGIONS_MAX, &layers, error);
    if (!code)
        code = field_number(table->json, what, "num_experts", UINT32_MAX, &experts, error);
    if (!code)
        code = field_number(table->json, what, "record_stride", INT32_MAX, &stride, error);
    if (!code && (experts == 0 || stride == 0 || __builtin_mul_overflow(experts, stride, &total) ||
                  total > MOST_BYTES))
        code = gpusys_error_set(error, -EBADMSG,
                                "the header is damaged: %" PRIu64 " experts of %" PRIu64 " bytes each",
                                experts, stride);
    if (!code)
        code = make_room(table, layers, what, error);
    if (!code)
        code = name_layers(table, experts * stride, error);
    table->record_bytes = stride;
    return code;
}

int field_table_of_header(struct field_table *ret_table, const char *text, size_t bytes,
                          struct gpusys_error *error)
{
    struct field_table table = {0};
    int code = read_header(&table, text, bytes, error);
    if (code)
        field_table_free(&table);
    else
        *ret_table = table;
    return code;
}
