/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the tests of NVTX share. Who listens is found out once in a process, so each case runs in a child with an
 * environment of its own, and leaves its words in a file.
 */
#ifndef GPUSYS_TEST_NVTX_PLAY_H
#define GPUSYS_TEST_NVTX_PLAY_H

#include <gpusys/log.h>
#include <gpusys/nvtx.h>

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* In a child, where cmocka's assertions do not work. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                          \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* A file of this process, empty at first. */
static inline const char *play_file_of_words(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/gpusys-nvtx-%d", (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

/* What is in it; it is gone then. */
static inline const char *play_words(const char *path)
{
    static char words[1024 * 1024];
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    words[fread(words, 1, sizeof words - 1, file)] = 0;
    fclose(file);
    unlink(path);
    return words;
}

static inline unsigned play_lines(const char *words)
{
    unsigned count = 0;
    for (; *words; words++)
        count += *words == '\n';
    return count;
}

/* `environment`: pairs, NULL at the end. Gives the child's number. */
static inline int play_in_child(void (*body)(void), const char *const *environment)
{
    static const char *const none[] = {"NVTX_INJECTION64_PATH", "GPUSYS_NVTX_CHECK", "GPUSYS_NVTX_RANGES",
                                       "FAKE_NVTX_LOG", "FAKE_NVTX_MODE"};
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka would go on with the next test */
        signal(SIGABRT, SIG_DFL);
        for (size_t i = 0; i < COUNT_OF(none); i++)
            unsetenv(none[i]);
        for (; environment[0]; environment += 2)
            setenv(environment[0], environment[1], 1);
        body();
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return (int)child;
}

#endif
