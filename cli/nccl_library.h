/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What gpusys nccl says of the library: read in a child, handed over as JSON. */
#ifndef GPUSYS_CLI_NCCL_LIBRARY_H
#define GPUSYS_CLI_NCCL_LIBRARY_H

#include "child.h"

#include <jansson.h>
#include <stdint.h>

/*
 * {"library": {"path", "version", "code", "reused", "copies"} or null, "problem": null or {"message", "detail", "cause",
 * "hint"}, "functions": [{"name", "since", "present", "in_table"}]}. NULL when memory is out.
 */
json_t *nccl_library_read(void);

void nccl_library_start(struct child *child);
/* The same, of the child; what became of it is a "problem". NULL when memory is out. */
json_t *nccl_library_finish(struct child *child, int64_t deadline_ns);

/* As text, on stdout. */
void nccl_library_print(const json_t *document);

#endif
