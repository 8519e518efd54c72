/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A file region's copy in memory: one for all who need it, however many grants it is registered in. */
#include "remote/region.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PIECE_BYTES = 16 << 20 };

static uint64_t available_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        ;
    if (file)
        fclose(file);
    return (uint64_t)kib * 1024;
}

static int fill(struct gs_region *region, char *copy)
{
    int fd, result = gs_file_pin(region->files, &region->file, &fd);
    if (result)
        return result;
    for (uint64_t at = 0; at < region->length && !result;) {
        uint64_t left = region->length - at, piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        result = gs_region_pread(region, fd, copy + at, (size_t)piece, at);
        at += piece;
    }
    gs_file_unpin(region->files, &region->file);
    return result;
}

static int make(struct gs_region *region, struct gpusys_error *error)
{
    size_t length = (size_t)region->length;
    uint64_t available = available_bytes();
    if (region->length > available / 8 * 7)
        return gpusys_error_set(
            error, -ENOMEM,
            "\"%s\" has %llu bytes and cannot be registered where it lies; a copy would not "
            "fit into the %llu bytes of memory that are available",
            region->name, (unsigned long long)region->length, (unsigned long long)available);
    void *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return gpusys_error_set_errno(error, -errno, "\"%s\": a copy of %zu bytes", region->name, length);
    int result = fill(region, copy);
    if (result) {
        munmap(copy, length);
        return gs_region_fail(region, result, error);
    }
    region->copy = copy;
    gs_log(GPUSYS_LOG_INFO,
           "\"%s\" is copied into memory (%zu bytes): this kernel cannot register it where it lies",
           region->name, length);
    return 0;
}

int gs_region_copy_get(struct gs_region *region, void **ret_copy, bool *ret_is_new,
                       struct gpusys_error *error)
{
    pthread_mutex_lock(&region->copy_lock);
    *ret_is_new = region->copy_users == 0;
    int result = *ret_is_new ? make(region, error) : 0;
    if (!result) {
        region->copy_users++;
        *ret_copy = region->copy;
    }
    pthread_mutex_unlock(&region->copy_lock);
    return result;
}

bool gs_region_copy_put(struct gs_region *region)
{
    pthread_mutex_lock(&region->copy_lock);
    bool is_last = --region->copy_users == 0;
    if (is_last) {
        munmap(region->copy, (size_t)region->length);
        region->copy = NULL;
    }
    pthread_mutex_unlock(&region->copy_lock);
    return is_last;
}
