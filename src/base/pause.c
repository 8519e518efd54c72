/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/pause.h"

#include <gpusys/deadline.h>

#include <sched.h>
#include <time.h>

static const int64_t spin_ns = 20000, first_ns = 10000, longest_ns = 1000000;

struct gs_pause gs_pause_start(void)
{
    return (struct gs_pause){.spin_until_ns = gpusys_now_ns() + spin_ns, .next_ns = first_ns};
}

bool gs_pause_once(struct gs_pause *pause, int64_t deadline_ns)
{
    int64_t now_ns = gpusys_now_ns(), left_ns = deadline_ns - now_ns;
    if (left_ns <= 0)
        return false;
    if (now_ns < pause->spin_until_ns) {
        sched_yield();
        return true;
    }
    const struct timespec sleep = {.tv_nsec = pause->next_ns < left_ns ? pause->next_ns : left_ns};
    nanosleep(&sleep, NULL);
    pause->next_ns = 2 * pause->next_ns < longest_ns ? 2 * pause->next_ns : longest_ns;
    return true;
}
