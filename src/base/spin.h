/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * epoll_wait that does not sleep when the next event is near. To be woken costs tens of microseconds on many
 * machines, several times what a short request takes. A waiter spins only after it was woken soon, and stops
 * as soon as spinning was in vain; with a single processor it never does, for then the other side could not
 * run.
 */
#ifndef GPUSYS_BASE_SPIN_H
#define GPUSYS_BASE_SPIN_H

#include <stdbool.h>
#include <sys/epoll.h>

struct gs_spin {
    bool on;
};

/*
 * As epoll_wait, with the same results. `bulk`: long transfers are under way, so a wake-up matters little and
 * the processor is better left to the network's own work.
 */
int gs_spin_wait(struct gs_spin *spin, bool bulk, int epoll, struct epoll_event *events, int max,
                 int timeout_ms);

#endif
