/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static volatile sig_atomic_t caught;
static int event = -1;

static void set_both(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void on_signal(int number)
{
    int saved = errno;
    uint64_t one = 1;
    caught = number;
    set_both(SIG_DFL); /* the next one kills */
    if (write(event, &one, sizeof one) < 0) {
        /* cannot be: the counter is far from full. `caught` is set in any case */
    }
    errno = saved;
}

int interrupt_catch(void)
{
    if (event >= 0)
        return event;
    event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0)
        return -errno;
    set_both(on_signal);
    return event;
}

int interrupt_caught(void)
{
    return caught;
}
