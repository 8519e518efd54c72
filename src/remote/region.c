/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

int gs_region_new(struct gs_region **ret_region, struct gs_files *files, const char *name)
{
    struct gs_region *region = calloc(1, sizeof *region);
    char *copy = strdup(name);
    if (!region || !copy || pthread_mutex_init(&region->sums_lock, NULL)) {
        free(region);
        free(copy);
        return -ENOMEM;
    }
    pthread_mutex_init(&region->copy_lock, NULL); /* cannot fail here */
    atomic_init(&region->holders, 1);
    region->files = files;
    region->name = copy;
    region->memory.fd = region->file.fd = -1;
    *ret_region = region;
    return 0;
}

struct gs_region *gs_region_hold(struct gs_region *region)
{
    atomic_fetch_add(&region->holders, 1);
    return region;
}

void gs_region_drop(struct gs_region *region)
{
    if (!region || atomic_fetch_sub(&region->holders, 1) != 1)
        return;
    gs_shared_close(&region->memory);
    gs_file_free(region->files, &region->file);
    pthread_mutex_destroy(&region->sums_lock);
    pthread_mutex_destroy(&region->copy_lock);
    free(region->sums);
    free(region->sums_known);
    free(region->name);
    free(region);
}

int gs_region_fail(const struct gs_region *region, int code, struct gpusys_error *error)
{
    if (code == -ESTALE)
        return gpusys_error_set(error, code, "\"%s\" changed while it was served", region->name);
    return gpusys_error_set_errno(error, code, "\"%s\"", region->name);
}

int gs_region_pread(struct gs_region *region, int fd, void *buffer, size_t length, uint64_t offset)
{
    for (size_t done = 0; done < length;) {
        ssize_t count = pread(fd, (char *)buffer + done, length - done, (off_t)(offset + done));
        if (count == 0)
            return -ESTALE;
        if (count < 0 && errno != EINTR)
            return -errno;
        done += count > 0 ? (size_t)count : 0;
    }
    return gs_file_check(&region->file, fd);
}

/* Is a hole in it possible and deadly? */
static bool may_fault(const struct gs_region *region)
{
    return region->memory.huge && (region->access & GPUSYS_ACCESS_WRITE);
}

bool gs_region_can_guard(void)
{
    char from = 1, to = 0;
    struct iovec local = {.iov_base = &from, .iov_len = 1}, remote = {.iov_base = &to, .iov_len = 1};
    return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == 1;
}

int gs_region_load(const struct gs_region *region, uint64_t offset, void *to, size_t length)
{
    if (!may_fault(region)) {
        memcpy(to, (char *)region->memory.map + offset, length);
        return 0;
    }
    return pread(region->memory.fd, to, length, (off_t)offset) == (ssize_t)length ? 0 : -EFAULT;
}

int gs_region_store(const struct gs_region *region, uint64_t offset, const void *from, size_t length)
{
    char *to = (char *)region->memory.map + offset;
    if (!may_fault(region)) {
        memcpy(to, from, length);
        return 0;
    }
    struct iovec local = {.iov_base = (void *)(uintptr_t)from, .iov_len = length};
    struct iovec remote = {.iov_base = to, .iov_len = length};
    return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)length ? 0 : -EFAULT;
}

/* ---- checksums ---- */

enum { PIECE_BYTES = 1 << 20 };

static int hash_pieces(struct gs_region *region, int fd, struct gpusys_hasher *hasher, void *piece,
                       uint64_t offset, uint64_t length)
{
    for (uint64_t done = 0; done < length;) {
        size_t count = length - done < PIECE_BYTES ? (size_t)(length - done) : PIECE_BYTES;
        int error = fd < 0 ? gs_region_load(region, offset + done, piece, count)
                           : gs_region_pread(region, fd, piece, count, offset + done);
        if (error)
            return error;
        gpusys_hasher_add(hasher, piece, count);
        done += count;
    }
    return 0;
}

static int hash_region(struct gs_region *region, uint64_t offset, uint64_t length, uint8_t *ret_hash)
{
    struct gpusys_hasher *hasher = NULL;
    void *piece = malloc(PIECE_BYTES);
    bool is_file = gs_region_is_file(region);
    int fd = -1, error = piece ? gpusys_hasher_new(&hasher) : -ENOMEM;
    if (!error && is_file)
        error = gs_file_pin(region->files, &region->file, &fd);
    if (!error)
        error = hash_pieces(region, fd, hasher, piece, offset, length);
    if (fd >= 0)
        gs_file_unpin(region->files, &region->file);
    if (!error)
        gpusys_hasher_get(hasher, ret_hash);
    gpusys_hasher_free(hasher);
    free(piece);
    return error;
}

/* The remembered checksum, or false. Makes room for remembering on the way; without memory nothing is
 * remembered. */
static bool recall(struct gs_region *region, uint64_t chunk, uint8_t *ret_hash)
{
    pthread_mutex_lock(&region->sums_lock);
    if (!region->sums) {
        size_t count = (size_t)gs_chunk_count(region->length);
        region->sums = calloc(count, GPUSYS_HASH_BYTES);
        region->sums_known = region->sums ? calloc(count, 1) : NULL;
        if (!region->sums_known) {
            free(region->sums);
            region->sums = NULL;
        }
    }
    bool known = region->sums && region->sums_known[chunk];
    if (known)
        memcpy(ret_hash, region->sums[chunk], GPUSYS_HASH_BYTES);
    pthread_mutex_unlock(&region->sums_lock);
    return known;
}

static void remember(struct gs_region *region, uint64_t chunk, const uint8_t *hash)
{
    pthread_mutex_lock(&region->sums_lock);
    if (region->sums) {
        memcpy(region->sums[chunk], hash, GPUSYS_HASH_BYTES);
        region->sums_known[chunk] = 1;
    }
    pthread_mutex_unlock(&region->sums_lock);
}

/* A remembered checksum only counts while the file is the one it was computed from. */
static int still_same(struct gs_region *region)
{
    int fd, error = gs_file_pin(region->files, &region->file, &fd);
    if (error)
        return error;
    error = gs_file_check(&region->file, fd);
    gs_file_unpin(region->files, &region->file);
    return error;
}

int gs_region_sum(struct gs_region *region, uint64_t chunk, uint8_t ret_hash[GPUSYS_HASH_BYTES])
{
    if (chunk >= gs_chunk_count(region->length))
        return -ERANGE;
    uint64_t offset = chunk * GPUSYS_CHUNK_BYTES, length = region->length - offset;
    if (length > GPUSYS_CHUNK_BYTES)
        length = GPUSYS_CHUNK_BYTES;
    if (!gs_region_is_file(region))
        return hash_region(region, offset, length, ret_hash);
    if (recall(region, chunk, ret_hash))
        return still_same(region);
    int error = hash_region(region, offset, length, ret_hash);
    if (!error)
        remember(region, chunk, ret_hash);
    return error;
}
