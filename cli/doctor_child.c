/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A check in a process of its own. Its finding comes back as four texts that each end in a NUL. */
#include "command.h"
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPORT_BYTES = 1024 };
static const char look_mark[] = "look:";

void doctor_child_start(struct child *child, const struct doctor_check *check)
{
    child_start(child, "doctor-child", check->name);
}

void doctor_child_start_look(struct child *child, const char *look)
{
    char operand[64];
    snprintf(operand, sizeof operand, "%s%s", look_mark, look);
    child_start(child, "doctor-child", operand);
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

void doctor_child_finish(struct child *child, int64_t deadline_ns, struct doctor_finding *finding)
{
    char report[REPORT_BYTES];
    int status = 0;
    ssize_t size = child_finish(child, deadline_ns, report, sizeof report, &status);
    if (child->pid > 0) {
        judge(status, size, report, finding);
        return;
    }
    doctor_found(finding, DOCTOR_BROKEN, "no process for the check: %s", strerrordesc_np((int)-size));
    doctor_so(finding, "the check was not made", "ulimit -u, ulimit -n: allow more processes and files");
}

static enum exit_code run(const struct call *call)
{
    const char *name = call->operands[0];
    bool is_look = strncmp(name, look_mark, sizeof look_mark - 1) == 0;
    const struct doctor_check *check = is_look ? NULL : doctor_check_find(name);
    struct doctor_finding finding;
    if ((!check && !is_look) || fcntl(CHILD_REPORT_FD, F_SETFD, FD_CLOEXEC))
        return EXIT_USAGE;
    doctor_found(&finding, DOCTOR_BROKEN, "the check said nothing");
    if (is_look)
        doctor_look(&finding, name + sizeof look_mark - 1);
    else
        check->run(&finding);
    dprintf(CHILD_REPORT_FD, "%s%c%s%c%s%c%s%c", doctor_verdict_names[finding.verdict], 0, finding.evidence,
            0, finding.consequence, 0, finding.fix, 0);
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
