/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Files of a directory that is to be served in a dialect of the field. */
#include "field.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void field_names_free(char **names, uint32_t n_names)
{
    for (uint32_t i = 0; names && i < n_names; i++)
        free(names[i]);
    free(names);
}

void field_folder_free(struct field_folder *folder)
{
    field_names_free(folder->paths, folder->n_paths);
    free(folder->path);
    free(folder->text);
    *folder = (struct field_folder){0};
}

/* Is a symbolic link on the way from the folder to the file, or the file one? */
static bool leads_elsewhere(const struct field_folder *folder, const char *name, const char *real)
{
    char *base = realpath(folder->path, NULL);
    size_t length = base ? strlen(base) : 0;
    bool is_here = base && strncmp(real, base, length) == 0 && real[length] == '/' &&
                   strcmp(real + length + 1, name) == 0;
    free(base);
    return !is_here;
}

/* Where the file really is; with `follow` that may be anywhere. */
static int resolve(const struct field_folder *folder, const char *name, char **path, bool follow,
                   struct gpusys_error *error)
{
    struct stat info;
    char *real = realpath(*path, NULL);
    if (!real)
        return gpusys_error_set_errno(error, -errno, "%s", *path);
    if (!follow && leads_elsewhere(folder, name, real)) {
        free(real);
        gpusys_error_set(error, -ELOOP, "%s is a symbolic link, or behind one", *path);
        gpusys_error_set_hint(error, "--follow serves what links lead to");
        return -ELOOP;
    }
    free(*path);
    *path = real;
    if (stat(*path, &info) || !S_ISREG(info.st_mode))
        return gpusys_error_set(error, -EINVAL, "%s is no plain file", *path);
    return 0;
}

int field_folder_add(struct field_folder *folder, const char *name, bool follow, struct gpusys_error *error)
{
    char *path = NULL;
    char **longer = realloc(folder->paths, (folder->n_paths + 1) * sizeof *longer);
    if (longer)
        folder->paths = longer;
    if (!longer || asprintf(&path, "%s/%s", folder->path, name) < 0)
        return gpusys_error_set(error, -ENOMEM, "out of memory");
    int code = resolve(folder, name, &path, follow, error);
    if (code)
        free(path);
    else
        folder->paths[folder->n_paths++] = path;
    return code;
}

static int read_all(int fd, size_t most, char **ret_text, size_t *ret_bytes)
{
    struct stat info;
    if (fstat(fd, &info))
        return -errno;
    if (!S_ISREG(info.st_mode))
        return -EINVAL;
    if ((uint64_t)info.st_size > most)
        return -EFBIG;
    size_t size = (size_t)info.st_size;
    char *text = malloc(size + 1);
    if (!text)
        return -ENOMEM;
    ssize_t got = pread(fd, text, size, 0);
    if (got != (ssize_t)size) {
        free(text);
        return got < 0 ? -errno : -ESTALE;
    }
    text[size] = 0;
    *ret_text = text;
    *ret_bytes = size;
    return 0;
}

int field_read_file(const char *path, size_t most, char **ret_text, size_t *ret_bytes,
                    struct gpusys_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0)
        return gpusys_error_set_errno(error, -errno, "%s", path);
    int code = read_all(fd, most, ret_text, ret_bytes);
    close(fd);
    if (code == -EFBIG)
        return gpusys_error_set(error, code, "%s is longer than %zu bytes", path, most);
    return code ? gpusys_error_set_errno(error, code, "%s", path) : 0;
}
