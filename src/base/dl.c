/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The one loader of foreign libraries. */
#include "base/dl.h"
#include "base/log.h"
#include "base/options.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpusys_dl {
    const struct gpusys_dl_library *library;
    void *handle;
    char *path;
    bool reused;
};

/* The default version of a symbol serves where the one asked for is absent: stand-ins often have none. */
static void *find_symbol(void *handle, const struct gpusys_dl_symbol *symbol)
{
    void *address = symbol->version ? dlvsym(handle, symbol->name, symbol->version) : NULL;
    return address ? address : dlsym(handle, symbol->name);
}

static int missing(const struct gpusys_dl *dl, const char *name, const char *since,
                   struct gpusys_error *error)
{
    const char *library = dl->library->name, *hint = dl->library->hint;
    gpusys_error_set(error, -ENOSYS, "%s: %s has no %s", library, dl->path, name);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_LOADER, 0);
    if (since) {
        gpusys_error_add_detail(error, "since", "%s %s", library, since);
        gpusys_error_set_cause(error, "this %s is older than %s", library, since);
    }
    gpusys_error_set_hint(error, "%s%s%s", since ? "upgrade it" : "", since && hint ? ": " : "",
                          hint ? hint : "");
    return -ENOSYS;
}

int gpusys_dl_missing(const struct gpusys_dl *dl, const char *symbol, struct gpusys_error *error)
{
    const struct gpusys_dl_library *library = dl->library;
    for (size_t i = 0; i < library->n_symbols; i++)
        if (strcmp(library->symbols[i].name, symbol) == 0)
            return find_symbol(dl->handle, &library->symbols[i])
                       ? 0
                       : missing(dl, symbol, library->symbols[i].since, error);
    return missing(dl, symbol, NULL, error);
}

/* All or nothing: the caller's table is written once every required symbol is there. */
static int fill_table(const struct gpusys_dl *dl, void *table, struct gpusys_error *error)
{
    const struct gpusys_dl_library *library = dl->library;
    char *draft = calloc(1, library->table_bytes + 1);
    if (!draft)
        return gpusys_error_set_errno(error, -ENOMEM, "%s", library->name);
    int code = 0;
    for (size_t i = 0; i < library->n_symbols && !code; i++) {
        const struct gpusys_dl_symbol *symbol = &library->symbols[i];
        void *address = find_symbol(dl->handle, symbol);
        if (!address && symbol->rank == GPUSYS_DL_REQUIRED)
            code = missing(dl, symbol->name, symbol->since, error);
        memcpy(draft + symbol->offset, &address, sizeof address);
    }
    if (!code)
        memcpy(table, draft, library->table_bytes);
    free(draft);
    return code;
}

static char *mapped_path(void *handle)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) < 0 || !map)
        return strdup("an unknown file");
    char *path = realpath(map->l_name, NULL);
    return path ? path : strdup(map->l_name); /* the file may be gone by now, its mapping is not */
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "libzeta.so.1" and "libzeta.so.1.2.3" are of one stem, "libzeta.so"; "libzeta_net.so" is not. */
static bool same_stem(const char *one, const char *other)
{
    const char *end = strstr(one, ".so");
    size_t stem = end ? (size_t)(end - one) + 3 : strlen(one);
    return strncmp(one, other, stem) == 0 && (other[stem] == 0 || other[stem] == '.');
}

struct copies {
    const struct gpusys_dl *dl;
    char *text;
    size_t size, used;
    int count;
};

static int note_copy(struct dl_phdr_info *info, size_t info_size, void *context)
{
    (void)info_size;
    struct copies *copies = context;
    char *path = realpath(info->dlpi_name, NULL);
    const char *shown = path ? path : info->dlpi_name;
    const char *wanted = base_name(copies->dl->library->sonames[0]);
    if (strcmp(shown, copies->dl->path) == 0 || same_stem(wanted, base_name(info->dlpi_name))) {
        size_t length = strlen(shown) + (copies->used ? 1 : 0);
        if (copies->used + length < copies->size) {
            snprintf(copies->text + copies->used, copies->size - copies->used, "%s%s",
                     copies->used ? "\n" : "", shown);
            copies->used += length;
        }
        copies->count++;
    }
    free(path);
    return 0;
}

int gpusys_dl_copies(const struct gpusys_dl *dl, char *text, size_t size)
{
    struct copies copies = {.dl = dl, .text = text, .size = size};
    if (size)
        text[0] = 0;
    dl_iterate_phdr(note_copy, &copies);
    return copies.count;
}

static struct gpusys_dl *dl_new(const struct gpusys_dl_library *library, void *handle, bool reused)
{
    struct gpusys_dl *dl = malloc(sizeof *dl);
    char *path = mapped_path(handle);
    if (!dl || !path) {
        free(dl);
        free(path);
        return NULL;
    }
    *dl = (struct gpusys_dl){.library = library, .handle = handle, .path = path, .reused = reused};
    return dl;
}

void gpusys_dl_close(struct gpusys_dl *dl)
{
    if (!dl)
        return;
    dlclose(dl->handle); /* opened with RTLD_NODELETE, unless it may go */
    free(dl->path);
    free(dl);
}

const char *gpusys_dl_path(const struct gpusys_dl *dl)
{
    return dl->path;
}

bool gpusys_dl_reused(const struct gpusys_dl *dl)
{
    return dl->reused;
}

static void remark(const struct gpusys_dl *dl)
{
    char paths[800];
    int count = gpusys_dl_copies(dl, paths, sizeof paths);
    gs_log(GPUSYS_LOG_INFO, "%s: %s%s", dl->library->name, dl->path, dl->reused ? ", already loaded" : "");
    for (char *at = paths; (at = strchr(at, '\n'));)
        *at = ' ';
    if (count > 1)
        gs_log(GPUSYS_LOG_WARN, "%s: %d copies in this process: %s", dl->library->name, count, paths);
}

static bool is_complete(const struct gpusys_dl_library *library)
{
    return library->name && library->sonames && library->sonames[0] &&
           (library->symbols || !library->n_symbols);
}

int gpusys_dl_open(struct gpusys_dl **ret_dl, const struct gpusys_dl_library *library, void *table,
                   struct gpusys_error *error)
{
    int code = gs_options_check(library, sizeof *library);
    if (code == -E2BIG)
        return gpusys_error_set(error, code, "library: the description asks for more than this gpusys knows");
    if (code || !is_complete(library))
        return gpusys_error_set(error, -EINVAL, "library: the description is not complete");
    void *handle;
    bool reused;
    code = gs_dl_load(&handle, &reused, library, error);
    if (code)
        return code;
    struct gpusys_dl *dl = dl_new(library, handle, reused);
    if (!dl) {
        dlclose(handle);
        return gpusys_error_set_errno(error, -ENOMEM, "%s", library->name);
    }
    code = fill_table(dl, table, error);
    if (code) {
        gpusys_dl_close(dl);
        return code;
    }
    remark(dl);
    *ret_dl = dl;
    return 0;
}
