/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks that misbehave as a vendor's library might, for the tests of doctor itself (--self-test). */
#include "doctor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void fine(struct doctor_finding *finding)
{
    doctor_found(finding, DOCTOR_OK, "answered");
}

static void noisy(struct doctor_finding *finding)
{
    puts("noise on standard output");
    fputs("noise on standard error\n", stderr);
    fflush(NULL);
    doctor_found(finding, DOCTOR_MISSING, "a noisy library");
    doctor_so(finding, "nothing follows", "nothing to do");
}

static void crash(struct doctor_finding *finding)
{
    (void)finding;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would turn it into an exit */
    raise(SIGSEGV);
}

static void hang(struct doctor_finding *finding)
{
    (void)finding;
    for (;;)
        pause();
}

/* Leaves a process behind that keeps the pipe open. */
static void fork_and_leave(struct doctor_finding *finding)
{
    if (fork() == 0)
        hang(finding);
    _exit(0);
}

static void leave(struct doctor_finding *finding)
{
    (void)finding;
    _exit(3);
}

static void garbage(struct doctor_finding *finding)
{
    static const char bytes[] = {'o', 'k', 0, 'h', 'a', 'l', 'f'};
    (void)finding;
    _exit(write(3, bytes, sizeof bytes) < 0);
}

static void flood(struct doctor_finding *finding)
{
    char bytes[4096] = {0};
    (void)finding;
    while (write(3, bytes, sizeof bytes) > 0)
        continue;
    _exit(1);
}

static const struct doctor_check checks[] = {
    {"self-test-fine", "a check that answers", fine, DOCTOR_IN_CHILD},
    {"self-test-noisy", "a library that prints", noisy, DOCTOR_IN_CHILD},
    {"self-test-crash", "a library that crashes", crash, DOCTOR_IN_CHILD},
    {"self-test-hang", "a library that hangs", hang, DOCTOR_IN_CHILD},
    {"self-test-fork", "a library that leaves a process behind", fork_and_leave, DOCTOR_IN_CHILD},
    {"self-test-exit", "a library that exits", leave, DOCTOR_IN_CHILD},
    {"self-test-garbage", "an answer that is cut short", garbage, DOCTOR_IN_CHILD},
    {"self-test-flood", "an answer without end", flood, DOCTOR_IN_CHILD},
};

const struct doctor_module doctor_self_test = DOCTOR_MODULE(checks);
