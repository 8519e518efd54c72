/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/spin.h"

#include <gpusys/deadline.h>

#include <stdatomic.h>
#include <unistd.h>

static const int64_t spin_ns = 50000, near_ns = 150000; /* the second has the wake-up in it */

static bool has_company(void)
{
    static atomic_long processors;
    long count = atomic_load_explicit(&processors, memory_order_relaxed);
    if (count == 0)
        atomic_store_explicit(&processors, count = sysconf(_SC_NPROCESSORS_ONLN), memory_order_relaxed);
    return count > 1;
}

static int spin_for(int epoll, struct epoll_event *events, int max, int64_t end_ns)
{
    int count;
    do
        count = epoll_wait(epoll, events, max, 0);
    while (count == 0 && gpusys_now_ns() < end_ns);
    return count;
}

int gs_spin_wait(struct gs_spin *spin, bool bulk, int epoll, struct epoll_event *events, int max,
                 int timeout_ms)
{
    if (timeout_ms == 0 || bulk)
        return epoll_wait(epoll, events, max, timeout_ms);
    int64_t start = gpusys_now_ns();
    if (spin->on) {
        int count = spin_for(epoll, events, max, start + spin_ns);
        if (count)
            return count;
        spin->on = false;
    }
    int count = epoll_wait(epoll, events, max, timeout_ms);
    spin->on = count > 0 && gpusys_now_ns() - start < near_ns && has_company();
    return count;
}
