/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where NCCL's settings come from, in the order in which it looks: the environment, then the file that NCCL_CONF_FILE
 * names or else ~/.nccl.conf of the user's home directory, then /etc/nccl.conf. The first one that has a name counts. A
 * file has lines of NAME=VALUE; those that begin with # are remarks.
 */
#include "gpu/preflight.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static bool users_file(char path[GS_PATH_BYTES])
{
    char text[1024];
    struct passwd entry, *found = NULL;
    const char *named = secure_getenv("NCCL_CONF_FILE");
    if (named && *named) {
        gs_path(path, "%s", named);
        return true;
    }
    if (getpwuid_r(getuid(), &entry, text, sizeof text, &found) || !found)
        return false;
    gs_path(path, "%s/.nccl.conf", found->pw_dir);
    return true;
}

bool gs_nccl_conf_file(unsigned at, char path[GS_PATH_BYTES])
{
    if (at == 0 && !users_file(path))
        return gs_nccl_conf_file(1, path);
    if (at == 1)
        gs_path(path, "/etc/nccl.conf");
    return at <= 1;
}

/* A line of a file, or of the environment, cut in two: the name ends where its '=' was. */
static char *split(char *line)
{
    line[strcspn(line, "\n")] = 0;
    char *value = line[0] == '#' ? NULL : strchr(line, '=');
    if (value)
        *value++ = 0;
    return value;
}

/* ---- every one ---- */

struct visitor {
    bool (*visit)(void *context, const char *name, const char *value, const char *source);
    void *context;
};

static bool visit_line(const struct visitor *visitor, char *line, const char *source)
{
    char *value = split(line);
    bool is_ours = value && strncmp(line, "NCCL_", 5) == 0;
    /* Once it is in the environment, no file has a say. */
    if (!is_ours || (source[0] && secure_getenv(line)))
        return true;
    return visitor->visit(visitor->context, line, value, source);
}

FILE *gs_nccl_conf_open(const char *path)
{
    enum { MOST = 1 << 20 };
    struct stat stat_of;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool good = fd >= 0 && fstat(fd, &stat_of) == 0 && S_ISREG(stat_of.st_mode) && stat_of.st_size <= MOST;
    FILE *file = good ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !file)
        close(fd);
    return file;
}

static bool visit_file(const struct visitor *visitor, const char *path)
{
    char *line = NULL;
    size_t size = 0;
    bool more = true;
    FILE *file = gs_nccl_conf_open(path);
    while (file && more && getline(&line, &size, file) > 0)
        more = visit_line(visitor, line, path);
    free(line);
    if (file)
        fclose(file);
    return more;
}

static bool visit_environment(const struct visitor *visitor)
{
    bool more = true;
    for (char **at = environ; more && at && *at; at++) {
        if (strncmp(*at, "NCCL_", 5) != 0)
            continue;
        char *line = strdup(*at);
        more = !line || visit_line(visitor, line, "");
        free(line);
    }
    return more;
}

void gs_nccl_settings(bool (*visit)(void *context, const char *name, const char *value, const char *source),
                      void *context)
{
    char first[GS_PATH_BYTES], path[GS_PATH_BYTES];
    struct visitor visitor = {visit, context};
    bool more = visit_environment(&visitor);
    for (unsigned at = 0; more && gs_nccl_conf_file(at, path); at++) {
        if (at == 0)
            snprintf(first, sizeof first, "%s", path);
        if (at == 0 || strcmp(first, path) != 0)
            more = visit_file(&visitor, path);
    }
}

/* ---- one ---- */

struct wanted {
    const char *name;
    char *value, *source;
    bool found;
};

static bool take(void *context, const char *name, const char *value, const char *source)
{
    struct wanted *wanted = context;
    if (strcmp(name, wanted->name) != 0)
        return true;
    snprintf(wanted->value, GS_SETTING_BYTES, "%s", value);
    if (wanted->source)
        snprintf(wanted->source, GS_PATH_BYTES, "%s", source);
    wanted->found = true;
    return false;
}

bool gs_nccl_setting(const char *name, char value[GS_SETTING_BYTES], char source[GS_PATH_BYTES])
{
    struct wanted wanted = {.name = name, .value = value, .source = source};
    gs_nccl_settings(take, &wanted);
    return wanted.found;
}
