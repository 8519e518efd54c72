/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of the stand-in libnccl share. */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include "fake/nccl_control.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SUCCESS,
    CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE_ERROR,
    IN_PROGRESS
};
enum {
    INT8,
    UINT8,
    INT32,
    UINT32,
    INT64,
    UINT64,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    BFLOAT16,
    FLOAT8E4M3,
    FLOAT8E5M2,
    N_TYPES
};
enum { SUM, PROD, MAX, MIN, AVG, N_OPS };
enum { NOTHING = -1, UNSET = INT32_MIN };

#define NUMBER(name, since) AT_##name,
enum function { FAKE_NCCL_FUNCTIONS(NUMBER) N_FUNCTIONS };
#undef NUMBER

/* ---- nccl_control.c ---- */

extern int fake_version; /* the emulated version's code */
extern int fake_zero;    /* operations do nothing */
extern int fake_no_cuda;
extern const int fake_default_version; /* nccl_version.c, one for each library */

/* At the start of each function: counts it, hangs, or gives the code to fail with, or NOTHING. `comm` may be NULL. */
int fake_enter(enum function function, const struct ncclComm *comm);
int fake_enter_rank(enum function function, int rank);
bool fake_stalls(enum function function, const struct ncclComm *comm);
bool fake_stalls_init(int rank);
int fake_polls_in_progress(enum function function, const struct ncclComm *comm);
/* The asynchronous error after so many operations; 0: none. */
int fake_async_error(const struct ncclComm *comm, uint64_t submitted);
void fake_set_process_rank(int rank);

/* ---- nccl_error.c ---- */

/* Keep a text for ncclGetLastError; gives `code`. */
__attribute__((format(printf, 2, 3))) int fake_say(int code, const char *format, ...);

/* ---- nccl_shared.c: memory of all ranks of a communicator. All zeroes is its beginning. ---- */

enum { CHUNK = 65536, RING = 16384, PAYLOAD = 32, MOST_RANKS = 1024 };

/* What ranks must agree about before a collective moves data. */
struct signature {
    uint64_t function, count, type, op, root;
};

struct rank_slot {
    _Atomic int32_t pid;
    _Atomic uint32_t bell;    /* goes up when there is something for this rank to look at */
    _Atomic uint32_t waiters; /* threads that sleep on it */
    unsigned char payload[PAYLOAD];
    struct signature signature;
};

/* From one rank to another. */
struct channel {
    _Atomic uint64_t offered, finished; /* messages */
    _Atomic uint64_t written, taken;    /* bytes, of all messages */
    uint64_t bytes, type;               /* of the message offered */
    unsigned char ring[RING];
};

struct shared {
    _Atomic uint32_t present;  /* ranks that came */
    _Atomic uint32_t complete; /* all of them */
    _Atomic uint64_t arrived;  /* at barriers, all ranks together */
};

struct memory {
    struct shared *shared;
    struct rank_slot *slots;
    unsigned char *chunks;
    struct channel *channels;
    size_t bytes;
    uint32_t n_ranks;
    int fd; /* while others are waited for; then -1 */
};

struct identity {
    unsigned char bytes[16];
};

struct identity fake_new_identity(void);
/* The same on every rank that says the same. */
struct identity fake_child_identity(const struct identity *parent, uint64_t number, uint64_t what);
/* Come together: false from `go_on` ends the waiting with INTERNAL_ERROR. `payload` may be NULL. */
int fake_meet(struct memory *ret_memory, const struct identity *identity, int n_ranks, int rank,
              const void *payload, bool (*go_on)(void *context), void *context);
void fake_leave(struct memory *memory);
/* Take away the names that dead processes left. */
void fake_sweep(void);

void fake_ring(struct memory *memory, int rank);
void fake_ring_all(struct memory *memory);
/* Sleep until the rank's bell is not `seen` any more; at most timeout_ms (0: no limit). */
void fake_wait(struct memory *memory, int rank, uint32_t seen, int timeout_ms);
struct channel *fake_channel(struct memory *memory, int from, int to);

/* ---- nccl_config.c ---- */

/* INVALID_ARGUMENT with a text, or SUCCESS. NULL config: all defaults. */
int fake_parse_config(struct fake_nccl_config *ret_config, const void *config);

/* ---- nccl_number.c, nccl_reduce.c ---- */

size_t fake_type_bytes(int type);
bool fake_type_known(int type);
/* Small floats, of a type that is no float32 or float64, to and from float32. */
void fake_widen(float *to, const void *from, size_t count, int type);
void fake_narrow(void *to, const float *from, size_t count, int type);
bool fake_is_small(int type);

/* How a rank takes part in a reduction. */
struct reduction {
    int op;                    /* of enum SUM… ; N_OPS: sum of what was multiplied with the scalar */
    const void *device_scalar; /* NULL: it lies here */
    unsigned char scalar[8];
};
/* `to` = `from` as this rank gives it: copied, or multiplied. */
void fake_contribute(void *to, const void *from, size_t count, int type, const struct reduction *reduction);
/* Reduce `count` elements of `n` ranks, rank r's at from + r * stride, into `to` (of any alignment). */
void fake_reduce(void *to, const unsigned char *from, size_t stride, int n, size_t count, int type, int op);

/* ---- nccl_comm.c ---- */

struct ncclComm {
    struct memory memory;
    struct identity identity;
    int n_ranks, rank, world_rank, device;
    struct fake_nccl_config config;
    atomic_int state;    /* result; IN_PROGRESS while it comes up or goes down */
    atomic_int polls;    /* that shall still say IN_PROGRESS */
    atomic_bool ended;   /* aborted or revoked: operations return */
    atomic_bool aborted; /* so that who brings it, or a child of it, up gives that up */
    atomic_bool finalized, suspended;
    atomic_uint_fast64_t turn; /* collectives that are through */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    uint64_t collectives, submitted, children;
    uint64_t *sends, *receives; /* by peer: submitted */
    int queued;                 /* operations submitted and not through */
    int running;                /* of them, those that somebody works on now */
    int helpers;                /* threads that bring it, or a child of it, up */
    bool gone;                  /* destroyed: the last one frees it */
    struct reduction *reductions;
    int *reduction_types; /* -1: free */
    int n_reductions;

    /* What the operation whose turn it is works with. */
    uint64_t barriers;
    atomic_uint_fast64_t *sent, *received; /* by peer: through */
};

/* INVALID_ARGUMENT or the state where it cannot be used now. */
int fake_ready(struct ncclComm *comm);
/* It is to be looked at anew by whoever waits in it. */
void fake_comm_ring(struct ncclComm *comm);
/* One more operation; its lock is held. */
void fake_comm_queued(struct ncclComm *comm);
void fake_comm_running(struct ncclComm *comm, int by);
/* One operation less; it may be gone with it. */
void fake_comm_through(struct ncclComm *comm);

/* ---- nccl_job.c: what brings a communicator up, in the call or on a thread ---- */

struct job {
    struct job *next;
    struct ncclComm *comm;   /* the new one; NULL: this rank gets none of a split */
    struct ncclComm *parent; /* or NULL */
    struct ncclComm **place; /* where the caller wants it */
    bool confers;            /* with all of the parent, before the new ones meet */
    bool grows;              /* and in that finds out the identity, rather than who has its color */
    int color, key;
    uint64_t number; /* of the parent's children */
    bool has_identity;
    struct identity identity; /* of the new one, where that is known */
    bool nonblocking, on_thread;
    pthread_t thread;
    int result;
};

/* Do them all, at once; frees them. The first failure, or IN_PROGRESS. */
int fake_run_jobs(struct job *jobs);

/* ---- nccl_group.c ---- */

struct operation {
    struct operation *next;
    struct ncclComm *comm;
    struct CUstream_st *stream;
    enum function function;
    const void *send;
    void *receive;
    size_t count;
    int type, root; /* or peer */
    struct reduction reduction;
    bool stalled, running;
    uint64_t ticket;
    int stage;
    size_t offset;
};

/* Take it over. Outside of a group it is done at once. */
int fake_submit(struct operation *operation);
int fake_submit_job(struct job *job);
/* A call in this thread's group failed; gives `code`. */
int fake_group_failed(int code);
/* The real library's fault: a start without its end. */
void fake_group_leak(void);

/* ---- nccl_collective.c, nccl_message.c, nccl_batch.c ---- */

enum step { STEP_BLOCKED, STEP_MOVED, STEP_DONE };
enum step fake_step_collective(struct operation *operation);
enum step fake_step_message(struct operation *operation);
/* A list of operations, until all are through; frees them. To be called as a host function of a stream. */
void fake_run_batch(void *operations);

/* ---- nccl_cuda.c ---- */

/* Is there a driver? 0, or CUDA_ERROR with a text. */
int fake_cuda_start(int *ret_device);
bool fake_cuda_has_streams(void);
/* Have the stream call it when its turn comes. */
int fake_cuda_launch(struct CUstream_st *stream, void (*call)(void *context), void *context);
void *fake_cuda_alloc(size_t bytes);
bool fake_cuda_free(void *address);

#endif
