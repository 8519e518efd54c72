/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waiting on descriptors until a deadline. */
#ifndef GPUSYS_BASE_DEADLINE_H
#define GPUSYS_BASE_DEADLINE_H

#include <gpusys/deadline.h>

/* Milliseconds for poll(2) and epoll_wait(2) until the deadline: rounded up, 0 when past, -1 for no deadline.
 */
int gs_deadline_ms(int64_t deadline_ns);

/*
 * Wait until `fd` shows one of `events` (POLLIN, POLLOUT) or an error condition. 0, or -EAGAIN when the
 * deadline was past from the start, -ETIMEDOUT when it passed meanwhile, or poll's errno. Signals do not cut
 * the wait short.
 */
int gs_wait_fd(int fd, short events, int64_t deadline_ns);

#endif
