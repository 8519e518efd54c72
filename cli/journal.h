/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which chunks of a file have arrived, kept beside it so that an interrupted pull goes on where it stopped.
 *
 * A header says of what file (length, modification time, chunk size); fixed records follow, one a chunk, each
 * with a check of its own that covers the header too. A record that was cut short or belongs to another file
 * does not count. All integers little-endian. A record is written after its chunk, but neither is forced to
 * the disk: after a loss of power the journal may promise too much, and a verified pull finds that out by
 * hashing.
 */
#ifndef GPUSYS_CLI_JOURNAL_H
#define GPUSYS_CLI_JOURNAL_H

#include <gpusys/hash.h>
#include <stdbool.h>
#include <stdint.h>

struct journal {
    int fd;
    uint64_t n_chunks;
    uint64_t n_done;
    bool *done;                     /* by chunk */
    uint8_t key[GPUSYS_HASH_BYTES]; /* of the header: every record's check begins with it */
};

/*
 * Open or make `name` in `directory` for a file of `length` bytes and that time. A journal of another file,
 * or any when `fresh`, starts empty. -ELOOP and the like when something else lies there; -ENOMEM.
 */
int journal_open(struct journal *ret_journal, int directory, const char *name, uint64_t length,
                 int64_t mtime_ns, bool fresh);

/* The file stays. A journal that is all zero but for fd = -1 is fine. */
void journal_close(struct journal *journal);

/* The chunk has arrived: on record from here on. */
int journal_add(struct journal *journal, uint64_t chunk);

/* It turned out not to be there: not done, until it is added again. */
void journal_forget(struct journal *journal, uint64_t chunk);

#endif
