/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A process that runs this command again, its report, and its end. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <gpusys/deadline.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child, between fork and exec: only calls that are safe there. */
static _Noreturn void become_child(char *const argv[], int report)
{
    setpgid(0, 0); /* so that what it starts can be ended with it */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (report != CHILD_REPORT_FD)
        dup2(report, CHILD_REPORT_FD);
    else
        fcntl(report, F_SETFD, 0);
    for (int fd = 0; fd < CHILD_REPORT_FD && null >= 0; fd++)
        dup2(null, fd); /* a library that prints must not spoil our output */
    execv(argv[0], argv);
    _exit(127);
}

void child_start(struct child *child, const char *command, const char *operand)
{
    int ends[2];
    char program[] = "/proc/self/exe", name[64], word[64];
    char *argv[] = {program, name, operand ? word : NULL, NULL};
    snprintf(name, sizeof name, "%s", command);
    snprintf(word, sizeof word, "%s", operand ? operand : "");
    *child = (struct child){.report = -1};
    if (pipe2(ends, O_CLOEXEC)) {
        child->error = -errno;
        return;
    }
    child->pid = fork();
    if (child->pid == 0)
        become_child(argv, ends[1]);
    if (child->pid < 0)
        child->error = -errno;
    close(ends[1]);
    child->report = ends[0];
}

/* Read until the child closes its end. The bytes that came, or -ETIMEDOUT. */
static ssize_t read_report(int fd, int64_t deadline_ns, char *report, size_t size)
{
    size_t used = 0;
    for (;;) {
        int64_t left_ns = deadline_ns - gpusys_now_ns();
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        int ready = poll(&entry, 1, left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0);
        if (ready == 0 && left_ns <= 0)
            return -ETIMEDOUT;
        if (ready <= 0)
            continue;
        ssize_t count = read(fd, report + used, size - used);
        if (count <= 0)
            return (ssize_t)used;
        used += (size_t)count;
    }
}

/* End the child and all it started, and give its wait status. One that has exited keeps the status it had. */
static int end_child(pid_t pid)
{
    int status = 0;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL); /* in case it has not come to setpgid yet */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status;
}

ssize_t child_finish(struct child *child, int64_t deadline_ns, char *report, size_t size, int *ret_status)
{
    ssize_t got = child->error;
    if (child->pid > 0) {
        got = read_report(child->report, deadline_ns, report, size);
        *ret_status = end_child(child->pid);
    }
    if (child->report >= 0)
        close(child->report);
    child->report = -1;
    return got;
}
