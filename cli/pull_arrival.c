/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "part_name.h"
#include "pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int arrival_new(struct arrival **ret_arrival, const struct plan_entry *entry, struct gpusys_error *error)
{
    struct arrival *arrival = calloc(1, sizeof *arrival);
    if (!arrival)
        return gpusys_error_set(error, -ENOMEM, "out of memory");
    *arrival = (struct arrival){
        .entry = entry, .directory = -1, .fd = -1, .journal = {.fd = -1}, .missing = chunk_count(entry)};
    *ret_arrival = arrival;
    return 0;
}

/* May this be written to? Not a pipe or a device, not a file that has another name elsewhere. */
static bool is_ours(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 && info.st_uid == geteuid();
}

/* Does the name still stand for this file? Another pull may have finished and renamed it. */
static bool is_at(int fd, int directory, const char *name)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && fstatat(directory, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

/* Open or make, and lock: -EAGAIN while another pull writes it. *ret_fresh: there was nothing of use. */
static int open_part(int directory, const char *name, bool *ret_fresh)
{
    int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    bool fresh = false;
    int fd = openat(directory, name, flags);
    if (fd >= 0 && !is_ours(fd)) {
        close(fd);
        fd = unlinkat(directory, name, 0) ? -1 : openat(directory, name, flags | O_CREAT | O_EXCL, 0600);
        fresh = true;
    } else if (fd < 0 && errno == ENOENT) {
        fd = openat(directory, name, flags | O_CREAT | O_EXCL, 0600);
        fresh = true;
    }
    if (fd < 0)
        return -errno;
    if ((flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) || !is_at(fd, directory, name)) {
        close(fd);
        return -EAGAIN;
    }
    *ret_fresh = fresh;
    return fd;
}

int arrival_fail(struct arrival *arrival, struct pull *pull, int code, struct gpusys_error *error)
{
    if (code == -ENOSPC || code == -EDQUOT)
        return tree_fail_full(&pull->tree, arrival->entry->name,
                              pull->progress.total_bytes - pull->progress.done_bytes, code, error);
    tree_fail(&pull->tree, arrival->entry->name, "cannot write its .part file", code, error);
    if (code == -EAGAIN)
        gpusys_error_set_cause(error, "another pull is writing the same file");
    return code;
}

/* A chunk on record counts only as far as the part file reaches: the two may have been parted by a loss of
 * power. */
static int forget_missing(struct arrival *arrival)
{
    struct stat info;
    if (fstat(arrival->fd, &info))
        return -errno;
    for (uint64_t chunk = 0; chunk < arrival->journal.n_chunks && arrival->journal.n_done > 0; chunk++) {
        uint64_t end = chunk * GPUSYS_CHUNK_BYTES + chunk_length(arrival->entry, chunk);
        if (arrival->journal.done[chunk] && end > (uint64_t)info.st_size)
            journal_forget(&arrival->journal, chunk);
    }
    return 0;
}

static int open_journal(struct arrival *arrival, bool fresh)
{
    char name[PART_NAME_BYTES];
    const struct plan_entry *entry = arrival->entry;
    int code = journal_open(&arrival->journal, arrival->directory, part_journal_name(name, arrival->leaf),
                            entry->length, entry->mtime_ns, fresh);
    if (!code)
        code = forget_missing(arrival);
    if (!code)
        arrival->missing = arrival->journal.n_chunks - arrival->journal.n_done;
    return code;
}

int arrival_open(struct arrival *arrival, struct pull *pull, struct gpusys_error *error)
{
    char name[PART_NAME_BYTES];
    int directory;
    bool fresh = false, several = chunk_count(arrival->entry) > 1;
    int code = tree_parent(&pull->tree, arrival->entry->name, &directory, &arrival->leaf, error);
    if (code)
        return code;
    arrival->directory = fcntl(directory, F_DUPFD_CLOEXEC, 0);
    if (arrival->directory < 0)
        return arrival_fail(arrival, pull, -errno, error);
    arrival->fd = open_part(arrival->directory, part_name(name, arrival->leaf), &fresh);
    if (arrival->fd < 0)
        return arrival_fail(arrival, pull, arrival->fd, error);
    /* memory changes without its name or length doing so: what was there is only worth something verified */
    fresh |= arrival->entry->kind == GPUSYS_REGION_MEMORY && !pull->verify;
    code = several ? open_journal(arrival, fresh) : 0;
    if (!code && (!several || arrival->journal.n_done == 0) && ftruncate(arrival->fd, 0))
        code = -errno;
    return code ? arrival_fail(arrival, pull, code, error) : 0;
}

int arrival_write(struct arrival *arrival, struct pull *pull, const void *bytes, uint64_t length,
                  uint64_t offset, struct gpusys_error *error)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t wrote = pwrite(arrival->fd, at, length, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return arrival_fail(arrival, pull, wrote < 0 ? -errno : -ENOSPC, error);
        at += wrote;
        offset += (uint64_t)wrote;
        length -= (uint64_t)wrote;
    }
    return 0;
}

bool arrival_has(const struct arrival *arrival, uint64_t chunk)
{
    return arrival->journal.fd >= 0 && arrival->journal.done[chunk];
}

int arrival_settle(struct arrival *arrival, struct pull *pull, uint64_t chunk, struct gpusys_error *error)
{
    int code = arrival->journal.fd >= 0 ? journal_add(&arrival->journal, chunk) : 0;
    if (code)
        return arrival_fail(arrival, pull, code, error);
    arrival->missing--;
    return 0;
}

/* Set-user-ID and the like are not the peer's to give. */
static int set_attributes(const struct arrival *arrival)
{
    const struct plan_entry *entry = arrival->entry;
    struct timespec times[2];
    if (entry->kind != GPUSYS_REGION_FILE)
        return fchmod(arrival->fd, 0644) ? -errno : 0;
    tree_times(times, entry->mtime_ns);
    return fchmod(arrival->fd, entry->mode & 0777) || futimens(arrival->fd, times) ? -errno : 0;
}

int arrival_finish(struct arrival *arrival, struct pull *pull, struct gpusys_error *error)
{
    char name[PART_NAME_BYTES];
    /* the part may be longer than the file when it was left by an older, longer one */
    int code = ftruncate(arrival->fd, (off_t)arrival->entry->length) ? -errno : set_attributes(arrival);
    if (!code &&
        renameat(arrival->directory, part_name(name, arrival->leaf), arrival->directory, arrival->leaf))
        code = -errno;
    if (code)
        return arrival_fail(arrival, pull, code, error);
    if (arrival->journal.fd >= 0)
        unlinkat(arrival->directory, part_journal_name(name, arrival->leaf), 0);
    close(arrival->fd);
    arrival->fd = -1;
    pull->files_done++;
    return 0;
}

void arrival_free(struct arrival *arrival)
{
    char name[PART_NAME_BYTES];
    if (!arrival)
        return;
    if (arrival->fd >= 0 && arrival->journal.fd < 0) /* one chunk, and not whole: nothing to resume */
        unlinkat(arrival->directory, part_name(name, arrival->leaf), 0);
    if (arrival->fd >= 0)
        close(arrival->fd);
    if (arrival->directory >= 0)
        close(arrival->directory);
    journal_close(&arrival->journal);
    free(arrival);
}
