/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A communicator's watchdog and its failure: between failure.c, watch.c and those that open and close. */
#ifndef GPUSYS_GPU_WATCH_H
#define GPUSYS_GPU_WATCH_H

#include "gpu/comm.h"

enum { GS_WATCHED_OPS = 256 };

/* An operation on the GPU: `event` happens when it is through. */
struct gs_watched_op {
    struct CUevent_st *event; /* made at first use, then used again */
    struct CUstream_st *stream;
    uint64_t sequence;
    int64_t submitted_ns;
    bool through;
};

struct gs_watch {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the failure is there, or `stop` */
    pthread_t thread;
    bool running, stop;
    bool dumped, ended; /* what a failure brings with it was done: the trace, the abort */
    uint32_t state;
    struct gpusys_error failure;
    uint32_t n_suspects, suspects[GS_PARTY_SUSPECTS];

    /* The operations that are watched: a ring that the communicator's thread fills and the watchdog empties. */
    _Atomic uint32_t head, tail;
    struct gs_watched_op ops[GS_WATCHED_OPS];
};

/* From here on failures can be recorded; the thread starts when NCCL is up. -ENOMEM, or what pthread_create said. */
int gs_watch_new(struct gpusys_comm *comm);
int gs_watch_start(struct gpusys_comm *comm);
/* The thread is gone when this returns; it may have been ending NCCL. */
void gs_watch_stop(struct gpusys_comm *comm);
void gs_watch_free(struct gpusys_comm *comm);

/* NCCL's asynchronous error in our words, 0 when it has none; *ret_remote: the ranks are to be compared first. */
int gs_watch_nccl(struct gpusys_comm *comm, struct gpusys_error *error, bool *ret_remote);

/* What a failure brings with it, once: the trace is written and NCCL aborted, which GPUSYS_COMM_KEEP puts off. */
void gs_watch_end(struct gpusys_comm *comm);

/* Let it be known that NCCL did not come back. */
void gs_watch_stuck(struct gpusys_comm *comm);

/* failure.c: what the party calls. */
extern const struct gs_party_handlers gs_comm_handlers;
/* Wait until the communicator has failed: its code, or 0 when it had not by then. */
int gs_comm_await_failure(struct gpusys_comm *comm, int64_t deadline_ns);
/* "rank 2 (node7, process 4711)", of this communicator. */
enum { GS_RANK_TEXT_BYTES = 128 };
const char *gs_rank_text(const struct gpusys_comm *comm, uint32_t rank, char text[GS_RANK_TEXT_BYTES]);

/* comm_close.c: NCCL's abort, by a helper with abort_timeout_ns. false: it did not come back, and is left behind. */
bool gs_comm_abort_handle(struct gpusys_comm *comm, struct ncclComm *handle);
/* comm_close.c: the ring goes to trace_path, if there is one. */
void gs_comm_dump(struct gpusys_comm *comm, const char *reason);

#endif
