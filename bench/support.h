/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the measuring programs share. All of it ends the process when something goes wrong. */
#ifndef GPUSYS_BENCH_SUPPORT_H
#define GPUSYS_BENCH_SUPPORT_H

#include <gpusys/gpusys.h>

_Noreturn void die(const struct gpusys_error *error, const char *what);

/* A session with the transport asked for; its table has been fetched. */
struct gpusys_remote *session_open(const char *address, const char *transport);

/* A region of the session, by name. */
struct gpusys_region_info region_named(struct gpusys_remote *remote, const char *name);

/* An arena of this session. */
struct gpusys_region_info region_of_arena(struct gpusys_remote *remote, uint64_t bytes);

/* Memory that is there already. *ret_pages (may be NULL): "huge", "transparent" or "normal". */
unsigned char *landing_new(uint64_t bytes, const char **ret_pages);

void sort_values(double *values, size_t n);

/* Random offsets: a multiple of `step` below `range`. */
uint64_t random_offset(uint64_t *state, uint64_t range, uint64_t step);

enum { NO_LIMIT = -1 };

#endif
