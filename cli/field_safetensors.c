/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The header of a safetensors file: [u64 bytes][JSON], then the tensors' data. The JSON maps each tensor's name to
 * its dtype, its shape and where in the data it lies. A file may come from anywhere: nothing it says is believed
 * before it is compared with the file's length.
 */
#include "field.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 100000000, SHAPE_MAX = 64 };

/* A tensor of one file. */
struct tensor {
    const char *name;
    json_t *dtype, *shape;
    uint64_t begin, end; /* in the data */
};

struct reading {
    const struct field_shard *shard;
    uint64_t data_at, data_bytes;
    struct tensor *tensors;
    size_t n_tensors;
    struct gpusys_error *error;
};

static int damaged(const struct reading *reading, const char *tensor, const char *what)
{
    return gpusys_error_set(reading->error, -EBADMSG, "%s is damaged: \"%.100s\": %s", reading->shard->path,
                            tensor, what);
}

/* Bits of an element; 0: a type that we do not know. */
static unsigned bits_of(const char *dtype)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
                 {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
                 {"I32", 32},    {"U32", 32}, {"F32", 32}, {"I64", 64},    {"U64", 64},
                 {"F64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, dtype) == 0)
            return types[i].bits;
    return 0;
}

/* Do the dimensions come to that many bytes? */
static bool shape_fits(const json_t *shape, unsigned bits, uint64_t bytes)
{
    uint64_t total = bits;
    for (size_t i = 0; i < json_array_size(shape); i++)
        if (__builtin_mul_overflow(total, (uint64_t)json_integer_value(json_array_get(shape, i)), &total))
            return false;
    return total / 8 == bytes && total % 8 == 0;
}

static bool is_shape(const json_t *shape)
{
    bool fine = json_is_array(shape) && json_array_size(shape) <= SHAPE_MAX;
    for (size_t i = 0; fine && i < json_array_size(shape); i++)
        fine = json_is_integer(json_array_get(shape, i)) && json_integer_value(json_array_get(shape, i)) >= 0;
    return fine;
}

static int take_tensor(struct reading *reading, const char *name, const json_t *value)
{
    json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_string(dtype) || !is_shape(shape))
        return damaged(reading, name, "it has no dtype and shape");
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
        (uint64_t)json_integer_value(end) > reading->data_bytes)
        return damaged(reading, name, "its data_offsets are not within the file");
    struct tensor tensor = {.name = name,
                            .dtype = dtype,
                            .shape = shape,
                            .begin = (uint64_t)json_integer_value(begin),
                            .end = (uint64_t)json_integer_value(end)};
    unsigned bits = bits_of(json_string_value(dtype));
    if (bits && !shape_fits(shape, bits, tensor.end - tensor.begin))
        return damaged(reading, name, "its shape and its data_offsets do not fit");
    reading->tensors[reading->n_tensors++] = tensor;
    return 0;
}

static int by_place(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int sort_tensors(struct reading *reading)
{
    qsort(reading->tensors, reading->n_tensors, sizeof *reading->tensors, by_place);
    for (size_t i = 1; i < reading->n_tensors; i++)
        if (reading->tensors[i].begin < reading->tensors[i - 1].end)
            return damaged(reading, reading->tensors[i].name, "it overlaps another tensor");
    return 0;
}

static int take_all(struct reading *reading, json_t *header)
{
    const char *name;
    json_t *value;
    int code = 0;
    reading->tensors = calloc(json_object_size(header) + 1, sizeof *reading->tensors);
    if (!reading->tensors)
        return gpusys_error_set(reading->error, -ENOMEM, "out of memory");
    json_object_foreach(header, name, value)
    {
        if (strcmp(name, "__metadata__") != 0)
            code = take_tensor(reading, name, value);
        if (code)
            return code;
    }
    return sort_tensors(reading);
}

/* Is it one of those that the index places here? */
static bool is_wanted(const struct field_shard *shard, const char *name)
{
    const char *file =
        shard->weight_map ? json_string_value(json_object_get(shard->weight_map, name)) : shard->name;
    return file && strcmp(file, shard->name) == 0;
}

static int append(const struct reading *reading, json_t *tensors)
{
    const struct field_shard *shard = reading->shard;
    for (size_t i = 0; i < reading->n_tensors; i++) {
        const struct tensor *tensor = &reading->tensors[i];
        if (!is_wanted(shard, tensor->name))
            continue;
        json_t *row = json_pack("{s:s, s:O, s:O, s:I, s:I, s:i, s:b}", "name", tensor->name, "dtype",
                                tensor->dtype, "shape", tensor->shape, "offset_in_shard",
                                (json_int_t)(reading->data_at + tensor->begin), "len",
                                (json_int_t)(tensor->end - tensor->begin), "shard_index", (int)shard->index,
                                "extra", (int)shard->extra);
        if (!row || json_array_append_new(tensors, row))
            return gpusys_error_set(reading->error, -ENOMEM, "out of memory");
    }
    return 0;
}

static int understand(struct reading *reading, const char *text, size_t bytes, json_t *tensors)
{
    json_error_t why;
    json_t *header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(header)) {
        json_decref(header);
        return gpusys_error_set(reading->error, -EBADMSG, "%s is damaged: its header is no JSON object: %s",
                                reading->shard->path, header ? "another value" : why.text);
    }
    int code = take_all(reading, header);
    if (!code)
        code = append(reading, tensors);
    free(reading->tensors);
    json_decref(header);
    return code;
}

static int read_header(struct reading *reading, int fd, uint64_t file_bytes, json_t *tensors)
{
    uint64_t length;
    if (pread(fd, &length, sizeof length, 0) != sizeof length)
        return gpusys_error_set(reading->error, -EBADMSG,
                                "%s is no safetensors file: it has %" PRIu64 " bytes", reading->shard->path,
                                file_bytes);
    length = le64toh(length);
    if (length < 2 || length > HEADER_MAX || length > file_bytes - sizeof length)
        return gpusys_error_set(reading->error, -EBADMSG,
                                "%s is no safetensors file: a header of %" PRIu64
                                " bytes, in a file of %" PRIu64,
                                reading->shard->path, length, file_bytes);
    reading->data_at = sizeof length + length;
    reading->data_bytes = file_bytes - reading->data_at;
    char *text = malloc(length);
    if (!text)
        return gpusys_error_set(reading->error, -ENOMEM, "out of memory");
    ssize_t got = pread(fd, text, length, sizeof length);
    int code = got == (ssize_t)length ? understand(reading, text, length, tensors)
                                      : gpusys_error_set_errno(reading->error, got < 0 ? -errno : -ESTALE,
                                                               "%s", reading->shard->path);
    free(text);
    return code;
}

int field_shard_list(json_t *tensors, const struct field_shard *shard, uint64_t *ret_bytes,
                     struct gpusys_error *error)
{
    struct reading reading = {.shard = shard, .error = error};
    struct stat info;
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    int code = fd < 0 || fstat(fd, &info) ? gpusys_error_set_errno(error, -errno, "%s", shard->path) : 0;
    if (!code)
        code = read_header(&reading, fd, (uint64_t)info.st_size, tensors);
    if (fd >= 0)
        close(fd);
    if (!code)
        *ret_bytes = (uint64_t)info.st_size;
    return code;
}
