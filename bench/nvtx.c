/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A push and a pop by gpusys/nvtx.h beside the same by NVTX's own headers, in turn: without a tool, and with one that
 * counts. This program runs itself for each of the two, for who listens is found out once in a process.
 *
 * Output: for each round of each a line of JSON, {"tool": …, "ours_ns": …, "bare_ns": …}: medians for a push and a pop.
 */
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS = 100000, SLICES = 101 };

/* The work between; without it the compiler would make one of many. */
#define WORK() __asm__ volatile("" ::: "memory")

typedef void pairs_fn(void);

__attribute__((noinline)) static void ours(void)
{
    for (int i = 0; i < PAIRS; i++) {
        gpusys_nvtx_push("range");
        WORK();
        gpusys_nvtx_pop();
        WORK();
    }
}

__attribute__((noinline)) static void bare(void)
{
    for (int i = 0; i < PAIRS; i++) {
        nvtxRangePushA("range");
        WORK();
        nvtxRangePop();
        WORK();
    }
}

static double time_pair(pairs_fn *pairs)
{
    int64_t start = gpusys_now_ns();
    pairs();
    return (double)(gpusys_now_ns() - start) / PAIRS;
}

/* Prints nothing without a name. */
static void round_of(const char *tool)
{
    double of_ours[SLICES], of_bare[SLICES];
    for (int i = 0; i < SLICES; i++) {
        if (i % 2)
            of_bare[i] = time_pair(bare);
        of_ours[i] = time_pair(ours);
        if (i % 2 == 0)
            of_bare[i] = time_pair(bare);
    }
    sort_values(of_ours, SLICES);
    sort_values(of_bare, SLICES);
    if (tool)
        printf("{\"tool\": \"%s\", \"ours_ns\": %.3f, \"bare_ns\": %.3f}\n", tool, of_ours[SLICES / 2],
               of_bare[SLICES / 2]);
}

/* Did the tool see every push and pop of both? */
static void check_count(const char *path, int rounds)
{
    void *tool = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    uint64_t (*count)(void) = (uint64_t(*)(void))(uintptr_t)(tool ? dlsym(tool, "fake_nvtx_count") : NULL);
    if (!count || count() != (uint64_t)(rounds + 1) * SLICES * 2 * PAIRS * 2)
        die(NULL, "the tool did not see everything");
}

static int measure(const char *path, int rounds)
{
    if (gpusys_nvtx_enabled() != !!path)
        die(NULL, path ? "the tool was not loaded" : "there is a tool");
    round_of(NULL); /* warms up */
    for (int round = 0; round < rounds; round++)
        round_of(path ? "counting" : "none");
    if (path)
        check_count(path, rounds);
    return 0;
}

static int run_self(const char *path, const char *rounds)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        unsetenv("GPUSYS_NVTX_CHECK");
        unsetenv("FAKE_NVTX_LOG");
        unsetenv("NVTX_INJECTION64_PATH");
        if (path)
            setenv("NVTX_INJECTION64_PATH", path, 1);
        execl("/proc/self/exe", program_invocation_name, "-", rounds, path, (char *)NULL);
        _exit(1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "-") == 0)
        return measure(argv[3], atoi(argv[2]));
    if (argc != 3) {
        fprintf(stderr, "usage: %s TOOL ROUNDS\n", argv[0]);
        return 2;
    }
    return run_self(NULL, argv[2]) && run_self(argv[1], argv[2]) ? 0 : 1;
}
