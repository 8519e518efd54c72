/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A check in a process of its own: the command runs itself again with a hidden command and reads the finding
 * from a pipe, as four texts that each end in a NUL. Whatever the child does, the parent is through by the
 * deadline.
 */
#include "command.h"
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <gpusys/deadline.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPORT_FD = 3, REPORT_BYTES = 1024 };

/* In the child, between fork and exec: only calls that are safe there. */
static _Noreturn void become_child(const char *name, int report)
{
    char program[] = "/proc/self/exe", command[] = "doctor-child", check[64] = "";
    char *argv[] = {program, command, check, NULL};
    strncat(check, name, sizeof check - 1);
    setpgid(0, 0); /* so that what it starts can be ended with it */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (report != REPORT_FD)
        dup2(report, REPORT_FD);
    else
        fcntl(report, F_SETFD, 0);
    for (int fd = 0; fd < REPORT_FD && null >= 0; fd++)
        dup2(null, fd); /* a library that prints must not spoil our output */
    execv(program, argv);
    _exit(127);
}

void doctor_child_start(struct doctor_child *child, const struct doctor_check *check)
{
    int ends[2];
    *child = (struct doctor_child){.report = -1};
    if (pipe2(ends, O_CLOEXEC)) {
        child->error = -errno;
        return;
    }
    child->pid = fork();
    if (child->pid == 0)
        become_child(check->name, ends[1]);
    if (child->pid < 0)
        child->error = -errno;
    close(ends[1]);
    child->report = ends[0];
}

/* Read until the child closes its end. The bytes that came, or -ETIMEDOUT. */
static ssize_t read_report(int fd, int64_t deadline_ns, char report[REPORT_BYTES])
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
        ssize_t count = read(fd, report + used, REPORT_BYTES - used);
        if (count <= 0)
            return (ssize_t)used;
        used += (size_t)count;
    }
}

/* The next text of the report, or NULL when it does not end. */
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at, *nul = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    if (nul)
        *at = nul + 1;
    return nul ? text : NULL;
}

static bool unpack(const char *report, size_t size, struct doctor_finding *finding)
{
    const char *at = report, *end = report + size;
    const char *verdict = next_text(&at, end), *evidence = next_text(&at, end);
    const char *consequence = next_text(&at, end), *fix = next_text(&at, end);
    if (!fix || at != end)
        return false;
    for (int i = 0; i < DOCTOR_VERDICTS; i++)
        if (strcmp(verdict, doctor_verdict_names[i]) == 0) {
            doctor_found(finding, (enum doctor_verdict)i, "%s", evidence);
            doctor_so(finding, consequence, fix);
            return true;
        }
    return false;
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

static void judge(int status, ssize_t size, const char *report, struct doctor_finding *finding)
{
    if (size == -ETIMEDOUT)
        doctor_found(finding, DOCTOR_BROKEN, "the check did not come back in time and was ended");
    else if (size > 0 && unpack(report, (size_t)size, finding))
        return;
    else if (size > 0)
        doctor_found(finding, DOCTOR_BROKEN, "the check answered something unreadable (%zd bytes)", size);
    else if (WIFSIGNALED(status))
        doctor_found(finding, DOCTOR_BROKEN, "the check crashed: signal %d (%s)", WTERMSIG(status),
                     sigdescr_np(WTERMSIG(status)));
    else
        doctor_found(finding, DOCTOR_BROKEN, "the check ended with exit code %d and no answer",
                     WEXITSTATUS(status));
    doctor_so(finding, "programs that load this library can hang or crash in the same way",
              "reinstall the package that the library belongs to, in the version of the driver");
}

void doctor_child_finish(struct doctor_child *child, int64_t deadline_ns, struct doctor_finding *finding)
{
    char report[REPORT_BYTES];
    if (child->pid <= 0) {
        doctor_found(finding, DOCTOR_BROKEN, "no process for the check: %s", strerrordesc_np(-child->error));
        doctor_so(finding, "the check was not made", "ulimit -u, ulimit -n: allow more processes and files");
    } else {
        ssize_t size = read_report(child->report, deadline_ns, report);
        judge(end_child(child->pid), size, report, finding);
    }
    if (child->report >= 0)
        close(child->report);
}

static enum exit_code run(const struct call *call)
{
    const struct doctor_check *check = doctor_check_find(call->operands[0]);
    struct doctor_finding finding;
    if (!check || fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC))
        return EXIT_USAGE;
    doctor_found(&finding, DOCTOR_BROKEN, "the check said nothing");
    check->run(&finding);
    dprintf(REPORT_FD, "%s%c%s%c%s%c%s%c", doctor_verdict_names[finding.verdict], 0, finding.evidence, 0,
            finding.consequence, 0, finding.fix, 0);
    _exit(EXIT_DONE); /* a vendor's exit handlers are none of our business */
}

const struct command command_doctor_child = {
    .name = "doctor-child",
    .summary = "one check of gpusys doctor, for its own use",
    .operands = "CHECK",
    .run = run,
    .min_operands = 1,
    .max_operands = 1,
    .hidden = true,
};
