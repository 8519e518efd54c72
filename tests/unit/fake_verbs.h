/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What tests over the stand-in libibverbs share: devices written down in a file, and a hand on the stand-in. */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include "fake/ibverbs_control.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char fake_folder[] = "/tmp/gpusys-verbs-XXXXXX";

/* A function of the stand-in; it is loaded once a port was looked at. */
#define FAKE(name) ((__typeof__(name) *)fake_symbol(#name))

static inline void *fake_symbol(const char *name)
{
    void *library = dlopen(getenv("GPUSYS_LIBIBVERBS"), RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol) {
        fprintf(stderr, "the stand-in has no %s: is GPUSYS_LIBIBVERBS set?\n", name);
        abort();
    }
    return symbol;
}

static inline void fake_path(char path[256], const char *below)
{
    snprintf(path, 256, "%s/%s", fake_folder, below);
}

/* A file below the folder, and the folders on the way to it. */
static inline void fake_file(const char *below, const char *content)
{
    char path[256];
    fake_path(path, below);
    for (char *at = path + sizeof fake_folder; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0755);
        *at = '/';
    }
    FILE *file = fopen(path, "we");
    if (!file || fputs(content, file) < 0 || fclose(file))
        abort();
}

/* Before the library is first used: the devices, FOLDER standing for the folder that the files are in. */
static inline void fake_start(const char *devices)
{
    char text[8192] = "", path[256];
    if (!mkdtemp(fake_folder))
        abort();
    for (const char *at = devices, *folder; *at; at = folder) {
        size_t used = strlen(text);
        folder = strstr(at, "FOLDER");
        int length = folder ? (int)(folder - at) : (int)strlen(at);
        snprintf(text + used, sizeof text - used, "%.*s%s", length, at, folder ? fake_folder : "");
        folder = at + length + (folder ? 6 : 0);
    }
    fake_file("devices", text);
    fake_path(path, "devices");
    setenv("FAKE_IBVERBS_CONFIG", path, 1);
}

static inline void fake_end(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", fake_folder);
    if (system(command))
        abort();
}

#endif
