/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The first signal leaves a mark, the second one kills. */
#include "interrupt.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, 0);
}

/* In a process of its own: exit code 0 when all is as it should be, until the second signal. */
static void stop_twice(int first, int second)
{
    int fd = interrupt_catch();
    if (fd < 0 || interrupt_catch() != fd || interrupt_caught() || readable(fd) != 0)
        _exit(1);
    raise(first);
    if (interrupt_caught() != first || readable(fd) != 1 || readable(fd) != 1)
        _exit(2);
    raise(second);
    _exit(3);
}

static int status_of(int first, int second)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        stop_twice(first, second);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void killed_by(int first, int second)
{
    int status = status_of(first, second);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), second);
}

static void the_second_signal_kills(void **state)
{
    (void)state;
    killed_by(SIGINT, SIGINT);
    killed_by(SIGTERM, SIGTERM);
    killed_by(SIGINT, SIGTERM);
    killed_by(SIGTERM, SIGINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_second_signal_kills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
