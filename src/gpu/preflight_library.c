/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks at libnccl: is it there, what can it do, and is there another one that programs might get instead. */
#include "gpu/preflight.h"

#include <errno.h>
#include <glob.h>
#include <gpusys/nccl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- library ---- */

static const char version_names[] = "NCCL version ";

void gs_nccl_banner(const char *path, char banner[64])
{
    if (gs_file_string(path, version_names, "+cuda", banner, 64))
        banner[0] = 0;
}

static void count_functions(unsigned *ret_present, unsigned *ret_all)
{
    struct gpusys_nccl_symbol symbol = {.size = sizeof symbol};
    *ret_present = *ret_all = 0;
    for (uint32_t at = 0; gpusys_nccl_symbol(at, &symbol, NULL) == 0; at++) {
        ++*ret_all;
        *ret_present += symbol.present;
    }
}

/* What 2.14 brought is what bounds the start of a communicator in time. */
static void judge_library(struct gpusys_finding *finding, const struct gpusys_nccl *nccl, int version)
{
    int major, minor, patch;
    unsigned present, all;
    gpusys_nccl_version_parts(version, &major, &minor, &patch);
    count_functions(&present, &all);
    bool too_old = !nccl->comm_init_rank_config;
    gs_found(finding, too_old ? GPUSYS_VERDICT_MISSING : GPUSYS_VERDICT_OK,
             "%d.%d.%d, %u of %u functions known, %.150s%s", major, minor, patch, present, all,
             gpusys_nccl_library(), gpusys_nccl_reused() ? ", already in the process" : "");
    gs_so(finding,
          "ncclCommInitRank of this version cannot be given up: a rank that does not come is waited for "
          "without end",
          "install NCCL 2.14 or newer: package libnccl2, or pip install --upgrade nvidia-nccl-cu13");
}

void gs_look_library(struct gpusys_finding *finding)
{
    struct gpusys_error error = {0};
    const struct gpusys_nccl *nccl;
    int version = 0, code = gpusys_nccl_table(&nccl, &error);
    if (!code)
        code = gpusys_nccl_version(&version, &error);
    if (!code) {
        judge_library(finding, nccl, version);
        return;
    }
    enum gpusys_verdict verdict = code == -ENOENT ? gs_amiss(GPUSYS_VERDICT_MISSING) : GPUSYS_VERDICT_BROKEN;
    gs_found(finding, verdict, "%.140s%s%.100s", error.message, error.cause[0] ? ": " : "", error.cause);
    gs_so(finding, "no collectives between GPUs", "%s",
          error.hint[0] ? error.hint : "reinstall libnccl2, or name another file in GPUSYS_LIBNCCL");
}

/* ---- copies ---- */

/* Files called libnccl.so.2 where loaders, toolkits and Python keep them; one file under two names counts once. */
struct finds {
    char *paths[32];
    char versions[32][64];
    unsigned count;
};

static void note_file(struct finds *finds, const char *path)
{
    char *real = realpath(path, NULL);
    bool fresh = real && finds->count < sizeof finds->paths / sizeof *finds->paths;
    for (unsigned i = 0; fresh && i < finds->count; i++)
        fresh = strcmp(finds->paths[i], real) != 0;
    if (!fresh) {
        free(real);
        return;
    }
    gs_nccl_banner(real, finds->versions[finds->count]);
    finds->paths[finds->count++] = real;
}

static void note_pattern(struct finds *finds, const char *pattern)
{
    glob_t list = {.gl_pathc = 0};
    if (glob(pattern, 0, NULL, &list) == 0)
        for (size_t i = 0; i < list.gl_pathc; i++)
            note_file(finds, list.gl_pathv[i]);
    globfree(&list);
}

static void note_in(struct finds *finds, const char *folder, const char *tail)
{
    char path[GS_PATH_BYTES];
    if (folder[0] == '/')
        note_pattern(finds, gs_path(path, "%s%s", folder, tail));
}

/* Every folder of a variable such as LD_LIBRARY_PATH. */
static void note_folders(struct finds *finds, const char *variable)
{
    const char *at = secure_getenv(variable);
    while (at && *at) {
        char folder[PATH_MAX];
        size_t length = strcspn(at, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)length, at);
        note_in(finds, folder, "/libnccl.so.2");
        at += length + (at[length] == ':');
    }
}

/* The folders that ldconfig reads; what it includes is one level deep in practice. */
static void note_ld_conf(struct finds *finds)
{
    char path[GS_PATH_BYTES], line[512];
    glob_t list = {.gl_pathc = 0};
    if (glob(gs_path(path, "/etc/ld.so.conf.d/*.conf"), 0, NULL, &list) == 0)
        for (size_t i = 0; i < list.gl_pathc; i++) {
            FILE *file = fopen(list.gl_pathv[i], "re");
            while (file && fgets(line, sizeof line, file)) {
                line[strcspn(line, " \t\n#")] = 0;
                note_in(finds, line, "/libnccl.so.2");
            }
            if (file)
                fclose(file);
        }
    globfree(&list);
}

static const char wheel[] = "/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2";

/* The packages of the python3 that the PATH leads to: its program lies in PREFIX/bin. */
static void note_python(struct finds *finds)
{
    char path[GS_PATH_BYTES], folder[PATH_MAX];
    const char *at = secure_getenv("PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)length, at);
        at += length + (at[length] == ':');
        char *real = realpath(gs_path(path, "%s/python3", folder), NULL);
        char *slash = real ? strrchr(real, '/') : NULL;
        if (!slash)
            continue;
        *slash = 0;
        snprintf(folder, sizeof folder, "%s/..%s", real, wheel);
        note_pattern(finds, folder);
        free(real);
        return;
    }
}

static void look_for_files(struct finds *finds)
{
    static const char *const folders[] = {"/usr/lib/*-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib",
                                          "/usr/local/lib",
                                          "/usr/local/lib64",
                                          "/usr/local/cuda*/lib64",
                                          "/usr/local/cuda*/lib",
                                          "/usr/local/cuda*/targets/*/lib"};
    static const char *const prefixes[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    note_folders(finds, "LD_LIBRARY_PATH");
    note_ld_conf(finds);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        note_in(finds, folders[i], "/libnccl.so.2");
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const char *prefix = secure_getenv(prefixes[i]);
        if (prefix) {
            note_in(finds, prefix, wheel);
            note_in(finds, prefix, "/lib/libnccl.so.2");
        }
    }
    note_in(finds, "/usr/local", wheel);
    note_in(finds, "/usr", "/local/lib/python3*/dist-packages/nvidia/nccl/lib/libnccl.so.2");
    note_python(finds);
}

static bool differ(const struct finds *finds)
{
    for (unsigned i = 1; i < finds->count; i++)
        if (strcmp(finds->versions[0], finds->versions[i]) != 0)
            return true;
    return false;
}

/* The one that is taken first, then the others. */
static struct gs_names describe(const struct finds *finds, const char *taken)
{
    struct gs_names names = {.count = 0};
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < finds->count; i++)
            if ((taken && strcmp(finds->paths[i], taken) == 0) == (round == 0))
                gs_name_add(&names, ", ", "%s%s%s%s", finds->paths[i], finds->versions[i][0] ? " (" : "",
                            finds->versions[i], finds->versions[i][0] ? ")" : "");
    return names;
}

static void judge_files(struct gpusys_finding *finding, const struct finds *finds, const char *taken)
{
    struct gs_names files = describe(finds, taken);
    if (finds->count == 0)
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "there is no libnccl.so.2");
    else if (finds->count == 1)
        gs_found(finding, GPUSYS_VERDICT_OK, "one: %s", files.text);
    else
        gs_found(finding, differ(finds) ? gs_amiss(GPUSYS_VERDICT_MISSING) : GPUSYS_VERDICT_OK,
                 "%u files%s: %s", finds->count, taken ? ", the first one is taken" : "", files.text);
    gs_so(finding,
          "programs and frameworks may get different ones; two in one process have nothing to do with one "
          "another",
          "keep one (pip uninstall, apt remove), or set GPUSYS_LIBNCCL and LD_LIBRARY_PATH to the same");
}

void gs_look_copies(struct gpusys_finding *finding)
{
    const struct gpusys_nccl *nccl;
    char mapped[800];
    const char *taken = gpusys_nccl_table(&nccl, NULL) == 0 ? gpusys_nccl_library() : NULL;
    int count = gpusys_nccl_copies(mapped, sizeof mapped);
    if (count > 1) {
        for (char *at = mapped; (at = strchr(at, '\n'));)
            *at = ' ';
        gs_found(finding, GPUSYS_VERDICT_BROKEN, "%d in this process: %.200s", count, mapped);
        gs_so(finding, "communicators of one mean nothing to the other: invalid arguments, crashes",
              "keep one of them; GPUSYS_LIBNCCL names the one for gpusys");
        return;
    }
    struct finds *finds = calloc(1, sizeof *finds);
    if (!finds) {
        gs_found(finding, GPUSYS_VERDICT_BROKEN, "out of memory");
        gs_so(finding, "the look was not made", "free some memory");
        return;
    }
    if (taken)
        note_file(finds, taken);
    look_for_files(finds);
    judge_files(finding, finds, taken);
    for (unsigned i = 0; i < finds->count; i++)
        free(finds->paths[i]);
    free(finds);
}
