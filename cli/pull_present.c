/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pull.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ASK_CHUNKS = 32 }; /* checksums asked for at once */

/* The file under its final name, if length and time are the peer's: a descriptor, or -1. */
static int open_candidate(struct pull *pull, const struct plan_entry *entry)
{
    const char *leaf;
    int directory;
    struct stat info;
    if (entry->kind != GPUSYS_REGION_FILE || tree_parent(&pull->tree, entry->name, &directory, &leaf, NULL))
        return -1;
    int fd = openat(directory, leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == entry->length &&
        tree_mtime_ns(&info) == entry->mtime_ns)
        return fd;
    close(fd);
    return -1;
}

static int compare_all(struct pull *pull, const struct plan_entry *entry, int fd, bool *ret_same,
                       struct gpusys_error *error)
{
    uint64_t n_chunks = pull->verify ? chunk_count(entry) : 0;
    bool same = true;
    for (uint64_t chunk = 0; chunk < n_chunks && same; chunk++) {
        int code = chunk % ASK_CHUNKS == 0 ? chunk_ask(pull, entry, chunk, ASK_CHUNKS, error) : 0;
        if (!code)
            code = chunk_compare(pull, entry, chunk, fd, &same, error);
        if (!code)
            code = ring_tend(&pull->ring, error);
        if (code)
            return code;
    }
    *ret_same = same;
    return 0;
}

/* A window of files: all are asked for, then all are looked at, so that small ones cost no round trip each. */
static int look_at(struct pull *pull, struct plan_entry *const *entries, const int *fds, size_t count,
                   struct gpusys_error *error)
{
    int code = 0;
    for (size_t i = 0; i < count && !code; i++)
        code = chunk_ask(pull, entries[i], 0, 1, error);
    for (size_t i = 0; i < count; i++) {
        if (!code)
            code = compare_all(pull, entries[i], fds[i], &entries[i]->present, error);
        close(fds[i]);
        if (!code && entries[i]->present) {
            pull->files_present++;
            progress_skip(&pull->progress, entries[i]->length);
        }
    }
    return code;
}

int present_find(struct pull *pull, struct gpusys_error *error)
{
    struct plan_entry *window[ASK_CHUNKS];
    int fds[ASK_CHUNKS], code = 0;
    size_t count = 0;
    for (size_t i = 0; i < pull->plan.n_entries && !code; i++) {
        int fd = open_candidate(pull, &pull->plan.entries[i]);
        if (fd >= 0) {
            window[count] = &pull->plan.entries[i];
            fds[count++] = fd;
        }
        if (count == ASK_CHUNKS) {
            code = look_at(pull, window, fds, count, error);
            count = 0;
        }
    }
    return code ? code : look_at(pull, window, fds, count, error);
}
