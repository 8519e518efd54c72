/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The operations of a communicator: their numbers on the wire and in traces, their names, what they take. */
#ifndef GPUSYS_GPU_FUNCTION_H
#define GPUSYS_GPU_FUNCTION_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers are on the wire: append only. */
enum gs_function {
    GS_ALL_REDUCE = 1,
    GS_BROADCAST = 2,
    GS_REDUCE = 3,
    GS_ALL_GATHER = 4,
    GS_REDUCE_SCATTER = 5,
    GS_ALL_TO_ALL = 6,
    GS_GATHER = 7,
    GS_SCATTER = 8,
    GS_SEND = 9,
    GS_RECV = 10,
};

struct gs_function_row {
    const char *name;      /* "all_reduce"; NULL: no such function */
    bool collective;       /* every rank submits it */
    bool has_op, has_root; /* has_root: or a peer */
    bool sends, receives;  /* on every rank, so that the pointer may not be NULL unless the count is 0 */
};

/* Never NULL. */
const struct gs_function_row *gs_function(uint32_t function);

#endif
