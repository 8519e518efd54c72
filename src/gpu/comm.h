/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of a communicator share. */
#ifndef GPUSYS_GPU_COMM_H
#define GPUSYS_GPU_COMM_H

#include "gpu/function.h"
#include "gpu/party.h"

#include <gpusys/comm.h>
#include <gpusys/cuda.h>
#include <pthread.h>
#include <stdatomic.h>

struct gs_trace;

/* One submission, as it goes into the trace. */
struct gs_submission {
    uint64_t sequence;   /* of all submissions, from 1 */
    uint64_t collective; /* of the collectives, from 1; 0: a send or receive */
    uint64_t count;
    int64_t submitted_ns, completed_ns; /* CLOCK_MONOTONIC; completed 0: not known */
    uint32_t stream;                    /* the number of its stream, from 0 in the order of first use */
    uint32_t root;                      /* or peer */
    uint16_t function;                  /* enum gs_function */
    uint8_t type;
    uint8_t op; /* enum gpusys_nccl_op; 255: a made one */
};

/* ---- trace.c: the ring. Its own lock; any thread. ---- */

int gs_trace_new(struct gs_trace **ret_trace, uint32_t entries);
void gs_trace_free(struct gs_trace *trace);
/* Take one in; `sequence`, `collective`, `submitted_ns` and `stream` are filled in by the ring. Gives the sequence. */
uint64_t gs_trace_add(struct gs_trace *trace, const struct gs_submission *submission,
                      struct CUstream_st *stream);
/* All that was submitted to `stream` up to `sequence` is through. */
void gs_trace_complete(struct gs_trace *trace, struct CUstream_st *stream, uint64_t sequence);
/* The sequence of the last submission. */
uint64_t gs_trace_last(struct gs_trace *trace);
/* How many submissions are known to be through. */
uint64_t gs_trace_completed(struct gs_trace *trace);
void gs_trace_report(struct gs_trace *trace, struct gs_report *ret_report);
/* What stands in the head of a dump. */
struct gs_trace_head {
    const char *reason, *host, *error; /* error may be NULL */
    uint32_t rank, n_ranks;
    uint64_t key;
    int version; /* of NCCL */
};
/* JSON lines. 0 or what write(2) said. */
int gs_trace_write(struct gs_trace *trace, const struct gs_trace_head *head, int fd);
/* "%r", "%p", "%h" replaced; ".RANK" appended when there is no "%r". -ENAMETOOLONG. */
int gs_trace_path(const char *pattern, uint32_t rank, const char *host, char *path, size_t size);

/* ---- the communicator ---- */

struct gpusys_comm {
    /* What the data path touches. */
    _Atomic int code; /* of the failure; 0 while healthy */
    uint32_t n_ranks, rank, flags;
    const struct gpusys_nccl *nccl;
    struct ncclComm *handle;
    struct gs_trace *trace;           /* NULL: none */
    struct gpusys_comm *next_grouped; /* of this thread's group; itself: the last, NULL: in none */
    int64_t call_timeout_ns, abort_timeout_ns, op_timeout_ns;
    bool nonblocking; /* calls may answer IN_PROGRESS */

    /* What it stands on. */
    struct gpusys_cuda *cuda;
    struct gs_party *party; /* NULL: the caller handed out the id */
    uint64_t key;           /* of the party's; 0 without */
    uint32_t *ranks;     /* of the party, by rank of the communicator; NULL: the same numbers, or no party */
    uint32_t n_children; /* made from it so far, for their keys */
    char *trace_path;    /* NULL: nowhere */
    char host[64];
    int version; /* of NCCL */

    struct gs_watch *watch;  /* watch.c: its thread, and the failure */
    _Atomic uint64_t inside; /* see gs_comm_enter */
    _Atomic bool held;       /* by a group that is open: the operations in it use the handle until its end */
    bool close_at_end;       /* of that group */
    uint32_t device;
    bool attached;           /* to the party, by its key */
    int64_t init_timeout_ns; /* for children, as is the next */
    uint32_t trace_entries;
};

/*
 * Every call of NCCL with the handle stands between these two, and calls in a group up to the end of the group: the
 * abort, which frees the handle, waits for them to leave (for an open group as long as that takes, for a call that NCCL does
 * not come back from not for ever). `inside` has how many are under way, and in front of that how many there were: so
 * the watchdog sees one that stays. Not 0: the failure; do not call, do not leave.
 */
enum { GS_INSIDE_BITS = 16 };
#define GS_INSIDE_ENTRY ((UINT64_C(1) << GS_INSIDE_BITS) + 1)

/* Calls that are under way. */
static inline uint64_t gs_inside_now(uint64_t inside)
{
    return inside & ((UINT64_C(1) << GS_INSIDE_BITS) - 1);
}

static inline void gs_comm_leave(struct gpusys_comm *comm)
{
    uint64_t inside = atomic_load_explicit(&comm->inside, memory_order_relaxed); /* one thread at a time */
    atomic_store_explicit(&comm->inside, inside - 1, memory_order_release);
}

static inline int gs_comm_enter(struct gpusys_comm *comm)
{
    uint64_t inside = atomic_load_explicit(&comm->inside, memory_order_relaxed);
    atomic_store(&comm->inside,
                 inside + GS_INSIDE_ENTRY); /* before the code is read, or the abort would not see us */
    int code = atomic_load(&comm->code);
    if (code)
        gs_comm_leave(comm);
    return code;
}

/*
 * What became of a call of NCCL on `handle` that answered `result`: asks until it is no longer IN_PROGRESS. The
 * ncclResult_t; -ETIMEDOUT; or the code of the communicator's failure, if it fails meanwhile.
 */
int gs_comm_settle(struct gpusys_comm *comm, struct ncclComm *handle, int result, int64_t deadline_ns);

/* Results behind which there may be another rank's death: the ranks are to be compared before anything is said. */
static inline bool gs_comm_is_remote(int result)
{
    return result == GPUSYS_NCCL_SYSTEM_ERROR || result == GPUSYS_NCCL_REMOTE_ERROR ||
           result == GPUSYS_NCCL_TIMEOUT;
}

/* ---- comm_group.c ---- */

/* A group is open on this thread: what is called now is queued, and cannot be waited for. */
bool gs_group_is_open(void);

/* ---- failure.c: the end of a communicator. The first failure wins. Any thread; not between enter and leave. ---- */

/*
 * It failed with `code` and, in words, `error`. With `judge` and a party the ranks are compared first, and what comes of that
 * is the failure: for this the call waits, some seconds at most. Returns the code that is recorded.
 */
int gs_comm_fail(struct gpusys_comm *comm, int code, const struct gpusys_error *error, bool judge);

/* ---- watch.c ---- */

/* With op_timeout_ns: what was just submitted to `stream` as `sequence` (0: no trace) is to be through in time. */
void gs_comm_watch_op(struct gpusys_comm *comm, struct CUstream_st *stream, uint64_t sequence);

#endif
