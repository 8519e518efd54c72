/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "journal.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct header {
    char magic[8];
    uint32_t version;
    uint32_t chunk_bytes;
    uint64_t length;
    uint64_t mtime_ns;
    uint8_t hash[GPUSYS_HASH_BYTES]; /* of all before it */
};

struct record {
    uint64_t chunk;
    uint8_t check[8];
};

_Static_assert(sizeof(struct header) == 48 && sizeof(struct record) == 16, "the journal is these bytes");

static struct header make_header(uint64_t length, int64_t mtime_ns)
{
    struct header header = {.magic = "gpusysJ",
                            .version = htole32(1),
                            .chunk_bytes = htole32((uint32_t)GPUSYS_CHUNK_BYTES),
                            .length = htole64(length),
                            .mtime_ns = htole64((uint64_t)mtime_ns)};
    gpusys_hash(&header, offsetof(struct header, hash), header.hash);
    return header;
}

static struct record make_record(const struct journal *journal, uint64_t chunk)
{
    struct record record = {.chunk = htole64(chunk)};
    uint8_t covered[GPUSYS_HASH_BYTES + sizeof record.chunk], hash[GPUSYS_HASH_BYTES];
    memcpy(covered, journal->key, sizeof journal->key);
    memcpy(covered + sizeof journal->key, &record.chunk, sizeof record.chunk);
    gpusys_hash(covered, sizeof covered, hash);
    memcpy(record.check, hash, sizeof record.check);
    return record;
}

static int write_whole(int fd, const void *bytes, size_t size)
{
    ssize_t wrote = write(fd, bytes, size);
    if (wrote == (ssize_t)size)
        return 0;
    return wrote < 0 ? -errno : -ENOSPC;
}

static void take_record(struct journal *journal, const struct record *record)
{
    uint64_t chunk = le64toh(record->chunk);
    struct record expected = make_record(journal, chunk);
    if (chunk >= journal->n_chunks || memcmp(record, &expected, sizeof expected) != 0 || journal->done[chunk])
        return;
    journal->done[chunk] = true;
    journal->n_done++;
}

/* Read what a journal of this very file says. 0 also when it is another's: then nothing is done. */
static int load(struct journal *journal, const struct header *expected, off_t *ret_end)
{
    struct header header;
    struct record records[256];
    *ret_end = 0;
    ssize_t got = pread(journal->fd, &header, sizeof header, 0);
    if (got < 0)
        return -errno;
    if (got != sizeof header || memcmp(&header, expected, sizeof header) != 0)
        return 0;
    *ret_end = sizeof header;
    while ((got = pread(journal->fd, records, sizeof records, *ret_end)) >= (ssize_t)sizeof *records) {
        size_t count = (size_t)got / sizeof *records;
        for (size_t i = 0; i < count; i++)
            take_record(journal, &records[i]);
        *ret_end += (off_t)(count * sizeof *records);
    }
    return got < 0 ? -errno : 0;
}

/* Load, and leave the file so that the next record goes behind the last whole one. */
static int start(struct journal *journal, const struct header *header, bool fresh)
{
    off_t end = 0;
    int code = fresh ? 0 : load(journal, header, &end);
    if (code)
        return code;
    if (ftruncate(journal->fd, end) || lseek(journal->fd, end, SEEK_SET) < 0)
        return -errno;
    return end == 0 ? write_whole(journal->fd, header, sizeof *header) : 0;
}

static int open_regular(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    struct stat info;
    int code = fstat(fd, &info) ? -errno : !S_ISREG(info.st_mode) || info.st_nlink != 1 ? -EEXIST : 0;
    if (code) {
        close(fd);
        return code;
    }
    return fd;
}

int journal_open(struct journal *ret_journal, int directory, const char *name, uint64_t length,
                 int64_t mtime_ns, bool fresh)
{
    struct header header = make_header(length, mtime_ns);
    uint64_t n_chunks = length / GPUSYS_CHUNK_BYTES + (length % GPUSYS_CHUNK_BYTES != 0);
    struct journal journal = {.fd = open_regular(directory, name), .n_chunks = n_chunks};
    memcpy(journal.key, header.hash, sizeof journal.key);
    if (journal.fd < 0)
        return journal.fd;
    journal.done = calloc(n_chunks + 1, sizeof *journal.done);
    int code = journal.done ? start(&journal, &header, fresh) : -ENOMEM;
    if (code)
        journal_close(&journal);
    else
        *ret_journal = journal;
    return code;
}

void journal_close(struct journal *journal)
{
    if (journal->fd >= 0)
        close(journal->fd);
    free(journal->done);
    *journal = (struct journal){.fd = -1};
}

int journal_add(struct journal *journal, uint64_t chunk)
{
    struct record record = make_record(journal, chunk);
    int code = write_whole(journal->fd, &record, sizeof record);
    if (!code && !journal->done[chunk]) {
        journal->done[chunk] = true;
        journal->n_done++;
    }
    return code;
}

void journal_forget(struct journal *journal, uint64_t chunk)
{
    if (journal->done[chunk])
        journal->n_done--;
    journal->done[chunk] = false;
}
