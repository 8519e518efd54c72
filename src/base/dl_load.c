/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Finding a library, and what to say when there is none. The dynamic loader reports only a text, in the
 * user's language; what is read from it is the object it is about, which comes first: "OBJECT: what is
 * wrong".
 */
#include "base/dl.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the candidates had against them; the first that was found but did not load sets the code. */
struct failure {
    int code;
    char cause[256];
    struct gpusys_error rows;
};

static bool read_head(const char *path, Elf64_Ehdr *head)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, head, sizeof *head);
    close(fd);
    return got == (ssize_t)sizeof *head && memcmp(head->e_ident, ELFMAG, SELFMAG) == 0;
}

/* Readable, and yet not a file that this machine could load? (The fields compared lie alike in ELF32 and 64.)
 */
static bool is_foreign(const char *path)
{
    Elf64_Ehdr own, head;
    if (access(path, R_OK) < 0 || !read_head("/proc/self/exe", &own))
        return false;
    return !read_head(path, &head) || head.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] ||
           head.e_ident[EI_DATA] != own.e_ident[EI_DATA] || head.e_machine != own.e_machine;
}

/* Whose fault it is that a file that exists does not load. */
static void explain(struct failure *failure, const char *text)
{
    char object[256];
    const char *end = strstr(text, ": ");
    snprintf(object, sizeof object, "%.*s", end ? (int)(end - text) : 0, text);
    failure->code = -ELIBACC;
    if (object[0] && !strchr(object, '/')) {
        snprintf(failure->cause, sizeof failure->cause, "it needs %.200s, which is not there", object);
    } else if (is_foreign(object)) {
        failure->code = -ELIBBAD;
        snprintf(failure->cause, sizeof failure->cause, "%.180s is damaged or made for another machine",
                 object);
    } else {
        snprintf(failure->cause, sizeof failure->cause, "%s", text);
    }
}

static void note_failure(struct failure *failure, const char *candidate)
{
    const char *text = dlerror();
    size_t length = strlen(candidate);
    if (!text)
        text = "the loader gave no reason";
    bool about_it = strncmp(text, candidate, length) == 0 && strncmp(text + length, ": ", 2) == 0;
    gpusys_error_add_detail(&failure->rows, candidate, "%.160s", about_it ? text + length + 2 : text);
    bool not_found = about_it && (!strchr(candidate, '/') || access(candidate, F_OK) < 0);
    if (!not_found && failure->code == -ENOENT)
        explain(failure, text);
}

static int fail(const struct gpusys_dl_library *library, const char *override, const struct failure *failure,
                struct gpusys_error *error)
{
    const char *what = failure->code == -ENOENT ? "not found" : "found, but it cannot be loaded";
    if (!error)
        return failure->code;
    if (override)
        gpusys_error_set(error, failure->code, "%s: %s: %s, which %s names", library->name, what, override,
                         library->path_variable);
    else
        gpusys_error_set(error, failure->code, "%s: %s", library->name, what);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_LOADER, 0);
    memcpy(error->detail, failure->rows.detail, sizeof error->detail);
    gpusys_error_set_cause(error, "%s", failure->cause);
    if (override)
        gpusys_error_set_hint(error, "correct %s, or unset it", library->path_variable);
    else
        gpusys_error_set_hint(error, "%s", library->hint ? library->hint : "");
    return failure->code;
}

/* A path to what is no file: to open a FIFO is to wait for who writes to it. */
static bool is_no_file(const char *candidate)
{
    struct stat stat_of;
    return strchr(candidate, '/') && stat(candidate, &stat_of) == 0 && !S_ISREG(stat_of.st_mode);
}

static void note_no_file(struct failure *failure, const char *candidate)
{
    gpusys_error_add_detail(&failure->rows, candidate, "not a regular file");
    if (failure->code != -ENOENT)
        return;
    failure->code = -ELIBBAD;
    snprintf(failure->cause, sizeof failure->cause, "%.180s is not a regular file", candidate);
}

/* The first candidate that opens. `failure` NULL: only what is loaded already. */
static void *open_first(const char *const *candidates, int mode, struct failure *failure)
{
    for (; *candidates; candidates++) {
        if (is_no_file(*candidates)) {
            if (failure)
                note_no_file(failure, *candidates);
            continue;
        }
        void *handle = dlopen(*candidates, mode);
        if (handle)
            return handle;
        if (failure)
            note_failure(failure, *candidates);
    }
    dlerror(); /* nobody shall find ours */
    return NULL;
}

int gs_dl_load(void **ret_handle, bool *ret_reused, const struct gpusys_dl_library *library,
               struct gpusys_error *error)
{
    const char *override = library->path_variable ? secure_getenv(library->path_variable) : NULL;
    if (override && !*override)
        override = NULL;
    const char *const alone[] = {override, NULL};
    const char *const *candidates = override ? alone : library->sonames;
    int mode = RTLD_NOW | (library->flags & GPUSYS_DL_GLOBAL ? RTLD_GLOBAL : RTLD_LOCAL) |
               (library->flags & GPUSYS_DL_MAY_UNLOAD ? 0 : RTLD_NODELETE);
    struct failure failure = {.code = -ENOENT};
    void *handle = open_first(candidates, mode | RTLD_NOLOAD, NULL);
    bool reused = handle != NULL;
    if (!handle)
        handle = open_first(candidates, mode, &failure);
    if (!handle)
        return fail(library, override, &failure, error);
    *ret_reused = reused;
    *ret_handle = handle;
    return 0;
}
