/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The stand-in libcuda, inside. One lock guards everything but the work itself; every stream that is used has a thread
 * that does its work in order, and everybody who waits for work waits for `progress`.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#pragma GCC visibility push(default)
#include "cuda_api.h"
#include "cuda_control.h"
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

enum { DEVICES = 16, RULES = 32, OVERRIDES = 32 };

/* CUresult. */
enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_UNMATCHED = 903,
};

struct device {
    int number; /* before CUDA_VISIBLE_DEVICES */
    unsigned char uuid[16];
};

struct rule {
    char function[48]; /* "*": any */
    unsigned result;
    uint64_t first, last; /* calls, counted from 1 */
    uint64_t seen;
};

struct override {
    unsigned attribute;
    int value;
    bool is_known;
};

struct config {
    pid_t pid; /* of the process that read it */
    struct device devices[DEVICES];
    int n_devices, version;
    char name[96];
    size_t memory;
    uint64_t delay_us;
    struct override overrides[OVERRIDES];
    unsigned n_overrides;
};

/* ---- objects ---- */

struct CUctx_st {
    int device;
    unsigned retained; /* a primary context */
    struct CUstream_st *default_stream;
    struct CUctx_st *next;
};

/* A point in one or more streams: reached when none is left to come past it. */
struct mark {
    unsigned users, left;
    uint64_t reached_ns;
};

struct CUevent_st {
    struct CUctx_st *context;
    struct CUevent_st *next;
    struct mark *mark; /* NULL: never recorded */
    unsigned flags;
};

enum work_kind { WORK_COPY, WORK_FILL, WORK_FUNCTION, WORK_MARK, WORK_WAIT };

struct work {
    enum work_kind kind;
    unsigned char byte;
    void *to;
    const void *from;
    size_t bytes;
    void (*function)(void *);
    void *data;
    struct mark *mark;
    struct work *next;
};

struct CUstream_st {
    struct CUctx_st *context;
    struct CUstream_st *next;
    struct work *first, **last;
    uint64_t submitted, done;
    pthread_cond_t has_work;
    bool is_default, is_non_blocking, is_capturing, is_closed, has_thread;
};

enum area_kind { AREA_DEVICE, AREA_MANAGED, AREA_HOST, AREA_REGISTERED };

struct area {
    enum area_kind kind;
    uintptr_t start;
    size_t bytes, mapped; /* mapped: whole pages; 0 where we did not map it */
    uint64_t number;
    struct CUctx_st *context;
    struct area *next;
    int fd; /* of what was exported of it; -1: nothing */
    uintptr_t exported;
    size_t exported_bytes;
};

struct state {
    pthread_mutex_t lock;
    pthread_cond_t progress;
    struct config config;
    pid_t owner; /* the process that initialised it */
    struct CUctx_st primaries[DEVICES];
    struct CUctx_st *contexts; /* the others */
    struct CUstream_st *streams;
    struct CUevent_st *events;
    struct area *areas;
    uint64_t n_areas;
    size_t used[DEVICES];
};

extern struct state fake;

/* ---- around every call (cuda_call.c) ---- */

/* Take the lock and look for a rule. 0, or what to answer; the lock is held either way. */
unsigned fake_enter(const char *function);
/* Does not need a driver that was initialised. */
unsigned fake_enter_early(const char *function);
/* Drop it. Gives the result. */
unsigned fake_leave(unsigned result);

#define ENTER                                                                                                \
    do {                                                                                                     \
        unsigned enter_result = fake_enter(__func__);                                                        \
        if (enter_result)                                                                                    \
            return fake_leave(enter_result);                                                                 \
    } while (0)

/* The thread is one of a stream, where nobody may call us. */
void fake_forbid_calls(void);
uint64_t fake_now_ns(void);

void fake_config_read(struct config *config);
/* Rules as in FAKE_CUDA_FAIL, with the counts as they are now. */
unsigned fake_rules_parse(const char *text, struct rule rules[RULES]);

/* All with the lock held: */

/* ---- contexts (cuda_context.c) ---- */

struct CUctx_st *fake_current(void);
bool fake_is_context(const struct CUctx_st *context);
int fake_attribute(unsigned attribute, int device, bool *ret_known);

/* ---- streams (cuda_stream.c) ---- */

/* The one that is meant; NULL with the result in *ret_result. */
struct CUstream_st *fake_stream(struct CUstream_st *stream, unsigned *ret_result);
struct CUstream_st *fake_stream_new(struct CUctx_st *context);
bool fake_is_busy(const struct CUstream_st *stream);
/* Queue a copy of it. */
unsigned fake_submit(struct CUstream_st *stream, const struct work *work);
/* Wait until all is done that is in the stream now, or in all streams of the context. */
unsigned fake_drain(struct CUstream_st *stream);
unsigned fake_drain_context(struct CUctx_st *context);

struct mark *fake_mark_new(void);
void fake_mark_drop(struct mark *mark);
void fake_mark_wait(struct mark *mark); /* which somebody else holds meanwhile */

/* ---- memory (cuda_memory.c) ---- */

struct area *fake_area(unsigned long long address);

#endif
