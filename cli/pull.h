/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A pull under way, and its parts: each in a file of its own, named in the comments below. */
#ifndef GPUSYS_CLI_PULL_H
#define GPUSYS_CLI_PULL_H

#include "journal.h"
#include "progress.h"
#include "pull_plan.h"
#include "pull_ring.h"
#include "pull_tree.h"
#include "pull_writer.h"

struct pull {
    struct gpusys_remote *remote;
    struct tree tree;
    struct plan plan;
    struct progress progress;
    struct ring ring;
    struct writer *writer;
    struct gpusys_hasher *hasher; /* of what does not come through the ring */
    unsigned char *scratch;       /* SCRATCH_BYTES, warm: what is read or fetched outside the ring */
    char *description;            /* what a peer of the field said of itself; NULL: it is a gpusys server */
    size_t description_bytes;
    bool verify;
    bool same_host; /* the peer passes descriptors */
    int64_t patience_ns;
    uint64_t files_done; /* under their final names, by this pull */
    uint64_t files_present;
    uint64_t resumed_bytes;
};

enum { SCRATCH_BYTES = 1 << 20 };

/* pull.c: from the plan to the files. On failure all that was whole stays, and can be resumed. */
int pull_run(struct pull *pull, struct gpusys_error *error);

/* ---- pull_arrival.c: a file that is arriving, under the name it has until it is whole ---- */

struct arrival {
    const struct plan_entry *entry;
    int directory; /* where it lies */
    const char *leaf;
    int fd;
    struct journal journal; /* only where there is more than one chunk */
    uint64_t next_offset;   /* up to here its bytes are there or on their way */
    uint64_t missing;       /* chunks that have not settled */
    uint64_t asked;         /* checksums of the chunks before this one were asked for */
    struct arrival *next;   /* the one that was begun after it */
};

/* Nothing is opened yet. */
int arrival_new(struct arrival **ret_arrival, const struct plan_entry *entry, struct gpusys_error *error);

/* Open the part file and, for more than one chunk, its journal. Once. */
int arrival_open(struct arrival *arrival, struct pull *pull, struct gpusys_error *error);

/* Writing it ended with `code`, which is returned. */
int arrival_fail(struct arrival *arrival, struct pull *pull, int code, struct gpusys_error *error);

int arrival_write(struct arrival *arrival, struct pull *pull, const void *bytes, uint64_t length,
                  uint64_t offset, struct gpusys_error *error);

/* The chunk is there, and right: on record. */
int arrival_settle(struct arrival *arrival, struct pull *pull, uint64_t chunk, struct gpusys_error *error);

bool arrival_has(const struct arrival *arrival, uint64_t chunk);

/* All is there: mode, time, final name; the journal goes. */
int arrival_finish(struct arrival *arrival, struct pull *pull, struct gpusys_error *error);

/* Let go. What is not finished stays where it can be resumed, and goes where it cannot. */
void arrival_free(struct arrival *arrival);

/* ---- pull_chunk.c: chunks against the peer's checksums ---- */

uint64_t chunk_count(const struct plan_entry *entry);
uint64_t chunk_length(const struct plan_entry *entry, uint64_t chunk);

/* Ask the peer for checksums that will be needed soon. Nothing when not verifying. */
int chunk_ask(struct pull *pull, const struct plan_entry *entry, uint64_t first, uint64_t count,
              struct gpusys_error *error);

/* The same for a file that arrives chunk by chunk: keeps a few chunks ahead. */
int chunk_ask_ahead(struct pull *pull, struct arrival *arrival, uint64_t chunk, struct gpusys_error *error);

/* Do the bytes in a local file match the peer's? A file that is too short does not. */
int chunk_compare(struct pull *pull, const struct plan_entry *entry, uint64_t chunk, int fd, bool *ret_same,
                  struct gpusys_error *error);

/* A whole chunk was written; `here` is its checksum when verifying: compare, fetch it once more if it differs,
 * settle it. -EBADMSG when it still differs. */
int chunk_finish(struct pull *pull, struct arrival *arrival, uint64_t chunk, uint8_t here[GPUSYS_HASH_BYTES],
                 struct gpusys_error *error);

/* What went wrong when a read of this entry ended with `status`. Returns `status`. */
int chunk_fail(const struct plan_entry *entry, int status, struct gpusys_error *error);

/* ---- pull_present.c: mark what lies at the destination already: same length and time, same chunks ---- */
int present_find(struct pull *pull, struct gpusys_error *error);

/* ---- pull_direct.c: on one host, copy from the descriptor that the peer passes ----
 * Fetches all that is missing. -EOPNOTSUPP: this region has no descriptor to pass; nothing was done. */
int direct_fetch(struct pull *pull, struct arrival *arrival, struct gpusys_error *error);

/* ---- field_keep.c: what makes a directory of a pull from the field: experts' header.json, shards' index ---- */
int field_keep(struct pull *pull, struct gpusys_error *error);

#endif
