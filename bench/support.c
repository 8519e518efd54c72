/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void die(const struct gpusys_error *error, const char *what)
{
    char text[2048] = "";
    if (error)
        gpusys_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, what, error ? ": " : "", text);
    exit(1);
}

struct gpusys_remote *session_open(const char *address, const char *transport)
{
    struct gpusys_remote *remote;
    struct gpusys_error error;
    int required = gpusys_transport_parse(transport);
    struct gpusys_remote_options options = {.size = sizeof options};
    if (required < 0)
        die(NULL, "no such transport");
    options.require = (uint32_t)required;
    if (gpusys_remote_open(&remote, address, &options, &error))
        die(&error, "cannot open a session");
    if (gpusys_remote_list(remote, NO_LIMIT, NULL, &error))
        die(&error, "cannot list");
    return remote;
}

static struct gpusys_region_info region_numbered(struct gpusys_remote *remote, uint32_t region)
{
    struct gpusys_region_info info = {.size = sizeof info};
    if (gpusys_remote_region(remote, region, &info))
        die(NULL, "a region is not there");
    return info;
}

struct gpusys_region_info region_named(struct gpusys_remote *remote, const char *name)
{
    uint32_t region;
    if (gpusys_remote_find(remote, name, &region))
        die(NULL, "no region of that name");
    return region_numbered(remote, region);
}

struct gpusys_region_info region_of_arena(struct gpusys_remote *remote, uint64_t bytes)
{
    uint32_t region;
    struct gpusys_error error;
    if (gpusys_remote_arena_new(remote, bytes, NO_LIMIT, &region, &error))
        die(&error, "no arena");
    return region_numbered(remote, region);
}

unsigned char *landing_new(uint64_t bytes, const char **ret_pages)
{
    static const char *const names[] = {"normal", "transparent", "huge"};
    void *memory;
    enum gpusys_pages pages;
    if (gpusys_memory_alloc(&memory, bytes, &pages))
        die(NULL, "no memory to land in");
    if (ret_pages)
        *ret_pages = names[pages];
    return memory;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_values(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
}

uint64_t random_offset(uint64_t *state, uint64_t range, uint64_t step)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % (range / step) * step;
}
