/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One line on a terminal that says how far a pull has come. Silent everywhere else. */
#ifndef GPUSYS_CLI_PROGRESS_H
#define GPUSYS_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown; /* a terminal, and wanted */
    bool drawn; /* the line is on the screen now */
    uint64_t total_bytes;
    uint64_t done_bytes;
    int64_t drawn_ns;   /* when it was drawn last */
    uint64_t last_done; /* and what had been done by then */
    double rate;        /* bytes a second, smoothed over the last few of seconds */
    const char *name;   /* what is arriving */
};

void progress_start(struct progress *ret_progress, uint64_t total_bytes, bool wanted);

/* So many bytes have arrived; `name` (of what they belong to) must live until the next call. */
void progress_add(struct progress *progress, uint64_t bytes, const char *name);

/* So many need not arrive: they count neither as done nor as to be done. */
void progress_skip(struct progress *progress, uint64_t bytes);

/* Draw again if the last time is a tenth of a second ago. */
void progress_refresh(struct progress *progress);

/* Take the line away. */
void progress_end(struct progress *progress);

/*
 * The line for a terminal of `width` columns, without colour: name, bar, share, bytes, rate, time left, as
 * many of them as fit. Returns `line`.
 */
enum { PROGRESS_BYTES = 1024 };
const char *progress_line(const struct progress *progress, unsigned width, char line[PROGRESS_BYTES]);

#endif
