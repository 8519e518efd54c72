/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A thread that waits on descriptors and runs small tasks, and a pool of threads for what blocks. */
#ifndef GPUSYS_REMOTE_LOOP_H
#define GPUSYS_REMOTE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct gs_loop;

/* Embedded in what owns the descriptor. `ready` gets EPOLL… bits, on the loop's thread. */
struct gs_source {
    int fd;
    uint32_t events; /* what is watched for now */
    void (*ready)(struct gs_source *source, uint32_t events);
};

/* Embedded in what is to be done; runs once on the loop's thread, after the events of the current round. */
struct gs_task {
    void (*run)(struct gs_task *task);
    struct gs_task *next;
};

/* `tick` runs on the loop's thread about once a second. */
int gs_loop_start(struct gs_loop **ret_loop, void (*tick)(void *context), void *context);

/*
 * Run the tasks that are left, those that they post too, then end the thread and free the loop. NULL is fine.
 */
void gs_loop_stop(struct gs_loop *loop);

/* On the loop's thread (or before anything is watched). An events of 0 watches for nothing but hang-ups. */
int gs_loop_watch(struct gs_loop *loop, struct gs_source *source, uint32_t events);
void gs_loop_change(struct gs_loop *loop, struct gs_source *source, uint32_t events);
void gs_loop_forget(struct gs_loop *loop, struct gs_source *source);

/* Was the last thing done part of a long transfer? Then the loop sleeps at once instead of spinning first. */
void gs_loop_set_bulk(struct gs_loop *loop, bool bulk);

/* Any thread. */
void gs_loop_post(struct gs_loop *loop, struct gs_task *task);

/* ---- the pool ---- */

struct gs_pool;

/* `work` runs on a thread of the pool and may block; then `done.run` on the loop. */
struct gs_job {
    struct gs_task done;
    struct gs_loop *loop;
    void (*work)(struct gs_job *job);
    struct gs_job *next;
};

int gs_pool_start(struct gs_pool **ret_pool, unsigned threads);
void gs_pool_stop(struct gs_pool *pool); /* every job handed in is worked off first. NULL is fine */
void gs_pool_submit(struct gs_pool *pool, struct gs_job *job);

#endif
