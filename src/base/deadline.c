/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/deadline.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <time.h>

int64_t gpusys_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t gpusys_deadline_after(int64_t timeout_ns)
{
    int64_t deadline;
    if (timeout_ns < 0 || __builtin_add_overflow(gpusys_now_ns(), timeout_ns, &deadline))
        return GPUSYS_NO_DEADLINE;
    return deadline;
}

int gs_deadline_ms(int64_t deadline_ns)
{
    if (deadline_ns == GPUSYS_NO_DEADLINE)
        return -1;
    int64_t left = deadline_ns > 0 ? deadline_ns - gpusys_now_ns() : 0;
    if (left <= 0)
        return 0;
    int64_t milliseconds = left / 1000000 + (left % 1000000 != 0);
    return milliseconds < INT_MAX ? (int)milliseconds : INT_MAX;
}

int gs_wait_fd(int fd, short events, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = fd, .events = events};
    int error = -EAGAIN; /* until we have really waited */
    for (;;) {
        int timeout = gs_deadline_ms(deadline_ns);
        int ready = poll(&entry, 1, timeout);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (timeout == 0 && ready == 0)
            return error;
        error = -ETIMEDOUT;
    }
}
