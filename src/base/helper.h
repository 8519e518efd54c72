/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A foreign call that may never come back, on a thread of its own: whoever waits for it has a deadline and can walk
 * away. The thread is then left behind, with what it needs.
 */
#ifndef GPUSYS_BASE_HELPER_H
#define GPUSYS_BASE_HELPER_H

#include <stdint.h>

struct gs_helper;

/*
 * Run `run(context)`. `discard(context)` comes when the thread is through and gs_helper_let_go was called, whichever is
 * later. 0, or what pthread_create said: then nothing was run or discarded.
 */
int gs_helper_start(struct gs_helper **ret_helper, int (*run)(void *context), void (*discard)(void *context),
                    void *context);

/* 0 and what `run` returned, or -ETIMEDOUT. */
int gs_helper_wait(struct gs_helper *helper, int64_t deadline_ns, int *ret_result);

void gs_helper_let_go(struct gs_helper *helper);

#endif
