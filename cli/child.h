/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Work in a process of its own: the command runs itself again with a hidden command, which writes its report to the
 * descriptor CHILD_REPORT_FD. Whatever a vendor's library does there, the parent is through by the deadline.
 */
#ifndef GPUSYS_CLI_CHILD_H
#define GPUSYS_CLI_CHILD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILD_REPORT_FD = 3 };

struct child {
    pid_t pid;  /* 0: it could not be started */
    int report; /* the pipe that it writes to */
    int error;  /* why it could not be started, negative errno */
};

/* Run `gpusys COMMAND [OPERAND]`; `operand` may be NULL. */
void child_start(struct child *child, const char *command, const char *operand);

/*
 * Wait until the deadline (gpusys/deadline.h) for the child to close its end, then end it and all that it started.
 * Returns the bytes of the report, as many as fit; -ETIMEDOUT; or why there was no child. `*ret_status` is what
 * waitpid gave.
 */
ssize_t child_finish(struct child *child, int64_t deadline_ns, char *report, size_t size, int *ret_status);

#endif
