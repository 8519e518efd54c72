/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A party: the processes of one job, joined by a connection of each with rank 0, the hub. It brings them together,
 * hands small things round, notices who died or fell silent, and asks everybody what he did when something hangs.
 * docs/protocol.md has its bytes. It knows nothing of NCCL.
 *
 * A thread of its own does all that comes after the opening. Handlers are called on that thread, never two at once, and
 * must not block or call the party (but for gs_party_alarm).
 *
 * When the hub dies every other rank's party is over: each says that rank 0 is lost, and nobody can be asked any more.
 * When another rank dies the rest of the party goes on without it.
 */
#ifndef GPUSYS_GPU_PARTY_H
#define GPUSYS_GPU_PARTY_H

#include <gpusys/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GS_PARTY_MAX_RANKS = 65536,
    GS_PARTY_SHARE_BYTES = 1024, /* the most that one rank puts into a gather */
    GS_PARTY_RECORDS = 32,       /* the most recent submissions that a rank reports */
    GS_PARTY_SUSPECTS = 16,      /* the most ranks that a failure names */
    GS_PARTY_TEXT_BYTES = 256,
};

/* Who takes part, as he says himself. */
struct gs_member {
    char host[64];
    uint32_t pid;
    uint8_t gpu[16];  /* its UUID; 0: none */
    int32_t version;  /* of NCCL */
    char address[64]; /* as the hub sees him; not sent by him */
};

/* One collective that was submitted. Those of two ranks with one sequence must be alike in everything. */
struct gs_record {
    uint64_t sequence; /* from 1, of the communicator's collectives */
    uint64_t count;
    uint16_t function; /* enum gs_function */
    uint8_t type, op;
    uint32_t root;
};

/* What a rank has done in one communicator. */
#define GS_REPORT_NO_ACCOUNT UINT64_MAX
struct gs_report {
    uint64_t submitted, completed; /* collectives; submitted GS_REPORT_NO_ACCOUNT: it keeps none */
    uint32_t n_records;
    struct gs_record records[GS_PARTY_RECORDS]; /* the last ones, the oldest first */
};

/* The end of a communicator, or (key 0) of every one that a suspect is in. */
struct gs_failure {
    uint64_t key;
    int code; /* negative errno */
    uint32_t n_suspects;
    uint32_t suspects[GS_PARTY_SUSPECTS]; /* ranks of the party */
    char text[GS_PARTY_TEXT_BYTES];       /* "rank 3 (node7, process 4711) died: its connection was closed" */
};

struct gs_party;

struct gs_party_options {
    uint32_t n_ranks, rank;
    const char *address;
    uint8_t job[16];
    struct gs_member self;
    int64_t deadline_ns; /* of the opening */
    int64_t silence_ns;  /* rank 0's holds for all; 0 or less: nobody is ever silent */
    /* On the hub, when all are there: may they begin? Not 0: all fail with this error's code and text. May be NULL. */
    int (*admit)(const struct gs_member *members, uint32_t n_ranks, struct gpusys_error *error);
};

/*
 * Come together; every rank calls it. The hub waits for all, the others for its word. -ETIMEDOUT (the hub names the
 * ranks that did not come; the others say whether there was no hub or it still waits), -EEXIST a rank that came twice,
 * -EXDEV another job, -EBADMSG another number of ranks, -EPROTO bytes that are no party's, -EACCES another user (on a
 * Unix socket), -EPROTONOSUPPORT another version, -EADDRINUSE, -EMFILE, what `admit` said.
 */
int gs_party_open(struct gs_party **ret_party, const struct gs_party_options *options,
                  struct gpusys_error *error);

/* One more who uses it; gs_party_close is to be called once for each, and the last one leaves in good order. */
struct gs_party *gs_party_keep(struct gs_party *party);
void gs_party_close(struct gs_party *party);

/* Every member, by rank; lives as long as the party. */
const struct gs_member *gs_party_members(const struct gs_party *party);
uint32_t gs_party_rank(const struct gs_party *party);
uint32_t gs_party_size(const struct gs_party *party);

/* Who takes part in a communicator of that key (not 0, the same on all its ranks), by rank of the party. */
struct gs_party_handlers {
    void (*report)(void *context, struct gs_report *ret_report);
    void (*failed)(void *context, const struct gs_failure *failure);
};

/*
 * From here on failures of any of `ranks` (sorted or not; copied) are told, once. One that happened before is told at
 * once, on this thread. Returns -ENOMEM.
 */
int gs_party_attach(struct gs_party *party, uint64_t key, const uint32_t *ranks, uint32_t n_ranks,
                    const struct gs_party_handlers *handlers, void *context);
/* No handler of it runs any more when this returns. */
void gs_party_detach(struct gs_party *party, uint64_t key);

/*
 * Every one of `ranks` gives `bytes` bytes (at most GS_PARTY_SHARE_BYTES) and gets those of all, in the order of `ranks`.
 * `tag` must be the same on all and used once. -ETIMEDOUT names those that did not give; the code of a failure when
 * one of them is lost (-ECONNRESET also when it has left); -EBADMSG when they disagree about `bytes` or `ranks`;
 * -EBUSY when this rank waits in 64 others. It may overrun its deadline by a second. Zeros cost nothing on the way.
 */
int gs_party_gather(struct gs_party *party, uint64_t tag, const uint32_t *ranks, uint32_t n_ranks,
                    const void *mine, size_t bytes, void *ret_all, int64_t deadline_ns,
                    struct gpusys_error *error);

/*
 * Something is wrong in the communicator `key`: the hub asks its ranks what they did (for at most a second or two), judges,
 * and tells all of them. With `judge` false it tells them `code` and `text` as they are, and that this rank is suspect
 * (but for -ECANCELED). Does not wait: `failed` comes. From any thread; while attached.
 */
void gs_party_alarm(struct gs_party *party, uint64_t key, int code, const char *text, bool judge);

/* verdict.c: what came of asking. Pure. */
struct gs_answer {
    uint32_t rank; /* of the party */
    enum gs_answer_state {
        GS_ANSWER_GOOD,
        GS_ANSWER_SILENT,
        GS_ANSWER_LOST,
        GS_ANSWER_AWAY, /* it takes no part: detached, not attached yet, or said goodbye */
    } state;
    struct gs_report report;
};
/*
 * Who is it? Lost ones first; then the first collective in which a minority differs (-EBADMSG); then silent ones
 * (-EHOSTDOWN); then those that take no part, then those that submitted fewer than the others (-ETIMEDOUT); else
 * nobody: the network or a GPU. Code and text are replaced by what was found; where it is nobody, the code stays and
 * the text goes on. `members` (by rank of the party; may be NULL) is for the words.
 */
void gs_verdict(const struct gs_answer *answers, uint32_t n, const struct gs_member *members,
                struct gs_failure *failure);

/* What a record says, for people: "all_reduce of 1024 float32, sum (collective 42)". */
enum { GS_RECORD_TEXT_BYTES = 128 };
void gs_record_text(const struct gs_record *record, char text[GS_RECORD_TEXT_BYTES]);

#endif
