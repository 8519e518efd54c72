/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/comm.h: communicators that end: NCCL with a deadline on every call, a watchdog, and a connection between
 * the ranks on the side that says which of them died, stalled, or did something else than the others.
 *
 *     struct gpusys_comm *comm;
 *     struct gpusys_error error;
 *     if (gpusys_comm_open(&comm, NULL, &error) == 0) {       // rank, ranks and rank 0's address: the launcher's
 *         gpusys_comm_all_reduce(comm, send, receive, count, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SUM, stream);
 *         code = gpusys_comm_wait(comm, stream, timeout_ns, &error);
 *         gpusys_comm_close(comm);
 *     }
 *
 * Coming together. Rank 0 listens at an address that all know, the others connect, and each says who it is; the job's
 * id keeps jobs apart that meet by mistake. Rank 0 sees to it that every rank came, once, with the same number of
 * ranks, the same NCCL and a GPU of its own, and otherwise says so to all; then it makes NCCL's unique id
 * and hands it out. None of this is a secret or a defence: whoever reaches the address takes part. A rank 0
 * that listens beyond loopback logs a warning.
 *
 * Staying together. These connections stay. A process that dies closes its own, one that hangs falls silent: either
 * way all ranks know within `silence_timeout_ns` and abort. A wait that runs out asks every rank what it has
 * submitted, and names those that lag behind or submitted something else. Callers who hand out the unique
 * id themselves and give no address have none of this, only NCCL's own errors and their deadlines.
 *
 * After a failure a communicator is unhealthy for good: every call returns the code of the failure,
 * gpusys_comm_failure says more, and the only way on is to close it and open another (with the ranks that are
 * left, or by gpusys_comm_shrink). What was under way is aborted by a thread of its own; if NCCL does
 * not come back from that within `abort_timeout_ns`, or says that it failed, the communicator is *stuck*: closing it leaves
 * it behind (gpusys_comm_left_behind), what is in the stream may never end, freeing its memory may wait for ever, and the
 * process should end with _exit, because NCCL's own destructors may hang too. So close a communicator first, look, and
 * free streams and buffers then.
 *
 * What a deadline is worth. NCCL is called without blocking, and polled; opening, finalizing, destroying and aborting are
 * calls of a thread of their own that can be left behind. Any other call of NCCL that does not come back by itself holds
 * the thread that made it: after call_timeout_ns or init_timeout_ns, whichever is longer, all ranks abort, which wakes
 * what waits inside NCCL, and the other ranks end in any case. Loading libraries, asking for versions and for the words of
 * errors have no deadline.
 *
 * Codes, beside -EINVAL for arguments: -ETIMEDOUT, -ECONNRESET a rank died, -EHOSTDOWN a rank is silent, -EBADMSG ranks
 * submitted different things, -EIO NCCL or CUDA failed, -ECANCELED it was aborted by a call, -ENOSYS this NCCL
 * lacks the function, -EPROTO the ranks do not understand one another; when coming together also -EEXIST two
 * processes with one rank, or two ranks with one GPU, -EXDEV another job's rank 0 answered, -EADDRINUSE.
 *
 * Threads: a communicator belongs to one thread at a time, but gpusys_comm_abort, _status and _failure may be called
 * from any. It has a thread of its own (and one for the abort). Not for use from a child of fork.
 */
#ifndef GPUSYS_COMM_H
#define GPUSYS_COMM_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <gpusys/nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpusys_comm;

#define GPUSYS_COMM_DEVICE   1u /* use `device` */
#define GPUSYS_COMM_NO_TRACE 2u /* keep no ring of submissions; then nobody can say which rank lags */
#define GPUSYS_COMM_RANGES   4u /* an NVTX range around every submission (gpusys/nvtx.h) */
/* After a failure NCCL is not aborted before the close, so that gpusys_comm_shrink can take over what it holds. Until
 * then what is under way on the GPU stays there, and its buffers and streams with it. */
#define GPUSYS_COMM_KEEP 8u

/* All zero: everything from the environment, the defaults elsewhere. */
struct gpusys_comm_options {
    size_t size;      /* sizeof(struct gpusys_comm_options) */
    uint32_t flags;   /* GPUSYS_COMM_… */
    uint32_t n_ranks; /* 0: n_ranks, rank, address and job from gpusys_job_from_env */
    uint32_t rank;
    uint32_t
        device; /* with GPUSYS_COMM_DEVICE: CUDA's ordinal; else the local rank where that is known and there are
                            as many devices, else the device that is current on this thread */
    const char *address; /* where rank 0 listens: "HOST:PORT", "unix:PATH". NULL with n_ranks > 0: nowhere */
    uint8_t job[16];     /* 0: whatever job the others are of */
    const struct gpusys_nccl_id
        *id; /* the unique id, handed out by the caller; NULL: by rank 0, over `address` */
    const struct gpusys_nccl_config *config; /* NULL: the defaults. `blocking` is ignored */
    int64_t init_timeout_ns; /* until every rank is there and NCCL is up. 0: 120 s; -1 none. Here and below */
    int64_t call_timeout_ns; /* of one call of NCCL to come back. 0: 60 s */
    int64_t abort_timeout_ns;   /* 0: 10 s */
    int64_t silence_timeout_ns; /* a rank from which nothing was heard. 0: 15 s */
    int64_t op_timeout_ns; /* of one operation from submission to its end on the GPU, watched by an event each
                                   (about a microsecond more). 0: not watched, gpusys_comm_wait has deadlines */
    uint32_t trace_entries; /* submissions kept, rounded up to a power of two. 0: 1024 */
    const char
        *trace_path; /* where the ring goes when the communicator fails or is closed. NULL: GPUSYS_NCCL_TRACE
                                   of the environment, nowhere when that is not set. "%r" is the rank, "%p" the
                                   process, "%h" the host; without "%r", ".RANK" is appended */
};

/*
 * Come together and bring NCCL up. -ENODEV: no driver or device; the errors of gpusys_nccl_table. NCCL's part is
 * called on a thread of its own: where it does not come back in time (before 2.14 it waits for the other ranks, and
 * cannot be interrupted), that thread and the GPU's context are left behind.
 */
GPUSYS_API int gpusys_comm_open(struct gpusys_comm **ret_comm, const struct gpusys_comm_options *options,
                                struct gpusys_error *error);

/*
 * Finalize and destroy; what is under way is waited for up to call_timeout_ns, then aborted. While a group is open that it
 * has operations in, it is closed at the group's end. NULL is fine.
 */
GPUSYS_API void gpusys_comm_close(struct gpusys_comm *comm);

/* How many communicators of this process were left behind, closed or not: not 0, and the process should end with _exit. Any
 * thread. */
GPUSYS_API uint32_t gpusys_comm_left_behind(void);

/* End it now, on all ranks: what is under way and what comes returns -ECANCELED. Does not wait. */
GPUSYS_API void gpusys_comm_abort(struct gpusys_comm *comm);

enum gpusys_comm_state {
    GPUSYS_COMM_HEALTHY = 1,
    GPUSYS_COMM_UNHEALTHY = 2, /* failed; being aborted, or aborted */
    GPUSYS_COMM_STUCK = 3,     /* failed, and NCCL did not come back from the abort */
};

struct gpusys_comm_status {
    size_t size;    /* in: sizeof(struct gpusys_comm_status) */
    uint32_t state; /* enum gpusys_comm_state */
    int32_t code;   /* of the failure, negative errno; 0 while healthy */
    uint32_t n_ranks, rank, device;
    uint32_t n_suspects;   /* ranks that the failure is about, as far as that is known */
    uint32_t suspects[16]; /* the first of them */
    uint64_t submitted;    /* operations, on this rank */
    uint64_t completed;    /* of these, known to be through */
};
GPUSYS_API int gpusys_comm_status(const struct gpusys_comm *comm, struct gpusys_comm_status *ret_status);

/* The failure in words; the code is its result. 0 and untouched while healthy. */
GPUSYS_API int gpusys_comm_failure(const struct gpusys_comm *comm, struct gpusys_error *error);

GPUSYS_API struct ncclComm *gpusys_comm_nccl(const struct gpusys_comm *comm);

/* ---- operations ----
 *
 * Queued into `stream`, as NCCL's own; buffers are device memory (or what ncclMemAlloc gave) and NCCL's until
 * the stream has come past. `count` is in elements and, as in NCCL, of what one rank gives to a gather or
 * gets from a scatter. Arguments are checked first: -EINVAL, and nothing was queued. What only NCCL can see (an operator
 * that nobody made, a buffer of another device) it refuses with -EINVAL as well, and then the communicator has failed,
 * because other ranks may have queued theirs. No error text here: it is the data path; gpusys_comm_check explains
 * arguments, gpusys_comm_failure a failure.
 */
GPUSYS_API int gpusys_comm_all_reduce(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                                      int type, int op, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_broadcast(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                                     int type, uint32_t root, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_reduce(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                                  int type, int op, uint32_t root, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_all_gather(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                                      int type, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_reduce_scatter(struct gpusys_comm *comm, const void *send, void *receive,
                                          size_t count, int type, int op, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_send(struct gpusys_comm *comm, const void *send, size_t count, int type,
                                uint32_t peer, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_recv(struct gpusys_comm *comm, void *receive, size_t count, int type,
                                uint32_t peer, struct CUstream_st *stream);
/* These three of sends and receives where the library is older than 2.28.3 (2.7 at least). */
GPUSYS_API int gpusys_comm_all_to_all(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                                      int type, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_gather(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                                  int type, uint32_t root, struct CUstream_st *stream);
GPUSYS_API int gpusys_comm_scatter(struct gpusys_comm *comm, const void *send, void *receive, size_t count,
                                   int type, uint32_t root, struct CUstream_st *stream);

/* An operation in words, for gpusys_comm_check: what would these arguments come to? */
struct gpusys_comm_call {
    size_t size;          /* sizeof(struct gpusys_comm_call) */
    const char *function; /* "all_reduce" and so on, without the prefix */
    const void *send, *receive;
    size_t count;
    int type, op;
    uint32_t root; /* or the peer */
};
/* 0, or -EINVAL (or the failure) with an error that names each argument that is wrong, its value and what it may be. */
GPUSYS_API int gpusys_comm_check(const struct gpusys_comm *comm, const struct gpusys_comm_call *call,
                                 struct gpusys_error *error);

/*
 * Between these two, on one thread, operations (of several communicators too) are queued as one: sends and receives do
 * not wait for one another. Pairs nest. The end returns the first failure of what was in it: also of an operation that
 * was refused, although the others were submitted, because nothing takes them back. -EINVAL: none is open. While one is open, splitting, shrinking and windows are refused
 * (-EINVAL), and a communicator that fails is aborted at the end.
 */
GPUSYS_API int gpusys_comm_group_start(void);
GPUSYS_API int gpusys_comm_group_end(void);

/*
 * Wait until what is in `stream` is through. A timeout of 0 only looks (-EAGAIN). One that runs out is the end of the
 * communicator: the ranks are compared, the error names who lags or differs, and all abort.
 */
GPUSYS_API int gpusys_comm_wait(struct gpusys_comm *comm, struct CUstream_st *stream, int64_t timeout_ns,
                                struct gpusys_error *error);

/* ---- communicators from communicators ----
 *
 * Called by every rank of the parent (of shrink: every one that is left). The child shares the parent's connections to
 * the other ranks, and may outlive it. Its trace goes to the parent's file's name with ".child0" and so on appended.
 * All take NCCL's own errors and -ENOSYS with the version to have.
 */
/* `color` GPUSYS_NCCL_NO_COLOR: *ret_comm is NULL. Since 2.18. */
GPUSYS_API int gpusys_comm_split(struct gpusys_comm *parent, int color, int key,
                                 struct gpusys_comm **ret_comm, struct gpusys_error *error);
/*
 * Without these ranks. With GPUSYS_NCCL_SHRINK_ABORT also of a parent that has failed, if that was opened with
 * GPUSYS_COMM_KEEP (otherwise NCCL's part of it is gone: its failure is returned) and rank 0 of the job, by way of
 * whom the ranks find one another, is alive: -ECONNRESET when it is not. Since 2.27.
 */
GPUSYS_API int gpusys_comm_shrink(struct gpusys_comm *parent, const uint32_t *exclude, uint32_t n_exclude,
                                  int flags, struct gpusys_comm **ret_comm, struct gpusys_error *error);

/* ---- buffers and operators ---- */

/* Memory that NCCL likes best, and registering other memory with it. Since 2.19. */
GPUSYS_API int gpusys_comm_mem_alloc(struct gpusys_comm *comm, void **ret_address, size_t bytes,
                                     struct gpusys_error *error);
GPUSYS_API int gpusys_comm_mem_free(struct gpusys_comm *comm, void *address, struct gpusys_error *error);
GPUSYS_API int gpusys_comm_register(struct gpusys_comm *comm, void *buffer, size_t bytes, void **ret_handle,
                                    struct gpusys_error *error);
GPUSYS_API int gpusys_comm_deregister(struct gpusys_comm *comm, void *handle, struct gpusys_error *error);
/* A window, on every rank at once; symmetric ones at GPUSYS_NCCL_WINDOW_ALIGNMENT. Since 2.27. */
GPUSYS_API int gpusys_comm_window_open(struct gpusys_comm *comm, void *buffer, size_t bytes, int flags,
                                       struct ncclWindow_vidmem **ret_window, struct gpusys_error *error);
GPUSYS_API int gpusys_comm_window_close(struct gpusys_comm *comm, struct ncclWindow_vidmem *window,
                                        struct gpusys_error *error);
/* An operator that multiplies each rank's values by its own scalar, then adds. Since 2.11. */
GPUSYS_API int gpusys_comm_op_open(struct gpusys_comm *comm, const void *scalar, int type, int residence,
                                   int *ret_op, struct gpusys_error *error);
GPUSYS_API int gpusys_comm_op_close(struct gpusys_comm *comm, int op, struct gpusys_error *error);

/* ---- the trace ----
 *
 * A ring of the last submissions: JSON lines, a head first and then one line an operation, the oldest first. No
 * contents of buffers and no addresses.
 */

/* Write what the ring holds to a file descriptor. `reason` stands in the head; NULL: "request". */
GPUSYS_API int gpusys_comm_trace(const struct gpusys_comm *comm, int fd, const char *reason,
                                 struct gpusys_error *error);

#ifdef __cplusplus
}
#endif

#endif
