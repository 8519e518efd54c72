/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The pauses of a poll: most of what is polled is over in microseconds, the rest can bear to be noticed a millisecond late. */
#ifndef GPUSYS_BASE_PAUSE_H
#define GPUSYS_BASE_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

struct gs_pause {
    int64_t spin_until_ns, next_ns;
};

struct gs_pause gs_pause_start(void);

/* Yield at first, then sleep, longer each time. false: the deadline has passed. */
bool gs_pause_once(struct gs_pause *pause, int64_t deadline_ns);

#endif
