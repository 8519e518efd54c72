/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pull.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* Is it still the file that the peer listed? */
static int check_source(const struct plan_entry *entry, int source, struct gpusys_error *error)
{
    struct stat info;
    if (entry->kind != GPUSYS_REGION_FILE || entry->place != GPUSYS_PLACE_FILE)
        return 0;
    if (fstat(source, &info))
        return chunk_fail(entry, -errno, error);
    bool same = (uint64_t)info.st_size == entry->length && tree_mtime_ns(&info) == entry->mtime_ns;
    return same ? 0 : chunk_fail(entry, -ESTALE, error);
}

/* Through the warm buffer, hashed on the way when verifying. */
static int copy_by_hand(struct pull *pull, struct arrival *arrival, int source, uint64_t offset,
                        uint64_t length, struct gpusys_error *error)
{
    gpusys_hasher_reset(pull->hasher);
    while (length > 0) {
        size_t step = length < SCRATCH_BYTES ? length : SCRATCH_BYTES;
        ssize_t got = pread(source, pull->scratch, step, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return chunk_fail(arrival->entry, got < 0 ? -errno : -ESTALE, error);
        if (pull->verify)
            gpusys_hasher_add(pull->hasher, pull->scratch, (size_t)got);
        int code = arrival_write(arrival, pull, pull->scratch, (uint64_t)got, offset, error);
        if (code)
            return code;
        progress_add(&pull->progress, (uint64_t)got, arrival->entry->name);
        offset += (uint64_t)got;
        length -= (uint64_t)got;
    }
    return 0;
}

/* The kernel copies, or shares the blocks where the file system can. *ret_done: how far it got. 0 also when it
 * cannot do this at all. */
static int copy_by_kernel(struct pull *pull, struct arrival *arrival, int source, uint64_t offset,
                          uint64_t length, uint64_t *ret_done, struct gpusys_error *error)
{
    off_t from = (off_t)offset, to = (off_t)offset;
    uint64_t done = 0;
    while (done < length) {
        ssize_t got = copy_file_range(source, &from, arrival->fd, &to, length - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == ENOSPC || errno == EDQUOT))
            break; /* writing by hand meets the same, and reports it */
        if (got == 0)
            return chunk_fail(arrival->entry, -ESTALE, error);
        if (got < 0) /* not between these file systems, or not on this kernel */
            break;
        done += (uint64_t)got;
        progress_add(&pull->progress, (uint64_t)got, arrival->entry->name);
    }
    *ret_done = done;
    return 0;
}

static int copy_chunk(struct pull *pull, struct arrival *arrival, int source, uint64_t chunk,
                      struct gpusys_error *error)
{
    uint64_t offset = chunk * GPUSYS_CHUNK_BYTES, length = chunk_length(arrival->entry, chunk), done = 0;
    uint8_t here[GPUSYS_HASH_BYTES];
    int code = 0;
    if (!pull->verify)
        code = copy_by_kernel(pull, arrival, source, offset, length, &done, error);
    if (!code)
        code = copy_by_hand(pull, arrival, source, offset + done, length - done, error);
    if (!code)
        code = check_source(arrival->entry, source, error);
    if (!code)
        gpusys_hasher_get(pull->hasher, here);
    if (!code)
        code = chunk_finish(pull, arrival, chunk, here, error);
    return code ? code : ring_tend(&pull->ring, error);
}

int direct_fetch(struct pull *pull, struct arrival *arrival, struct gpusys_error *error)
{
    const struct plan_entry *entry = arrival->entry;
    uint64_t n_chunks = chunk_count(entry);
    int source;
    struct gpusys_error own = {0};
    int code = gpusys_remote_fd_of(pull->remote, entry->region, pull->patience_ns, &source, &own);
    if (code == -EOPNOTSUPP)
        return code;
    if (code) {
        if (own.message[0])
            *error = own;
        else
            chunk_fail(entry, code, error);
        return code;
    }
    code = check_source(entry, source, error);
    for (uint64_t chunk = 0; chunk < n_chunks && !code; chunk++) {
        if (arrival_has(arrival, chunk))
            continue;
        code = chunk_ask_ahead(pull, arrival, chunk, error);
        if (!code)
            code = copy_chunk(pull, arrival, source, chunk, error);
    }
    gpusys_remote_release(pull->remote, entry->region);
    return code;
}
