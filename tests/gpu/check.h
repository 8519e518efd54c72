/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the programs for a machine with a GPU share: one line a check, and a count at the end. */
#ifndef GPUSYS_TESTS_GPU_CHECK_H
#define GPUSYS_TESTS_GPU_CHECK_H

#include <gpusys/gpusys.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ll

static unsigned checks_good, checks_bad;

static inline bool check(bool good, const char *format, ...) GPUSYS_PRINTF(2, 3);
static inline bool check(bool good, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs(good ? "ok      " : "FAILED  ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    fflush(stdout);
    good ? checks_good++ : checks_bad++;
    return good;
}

/* A call that takes an error: what it said is shown when it failed. */
static inline bool check_call(int code, const struct gpusys_error *error, const char *what)
{
    char text[2048] = "";
    if (code)
        gpusys_error_format(error, text, sizeof text);
    return check(code == 0, "%s%s%s", what, code ? ": " : "", text);
}

/* For people to read; proves nothing. */
static inline void remark(const char *format, ...) GPUSYS_PRINTF(1, 2);
static inline void remark(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("        ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    fflush(stdout);
}

static inline int check_end(void)
{
    printf("%u passed, %u failed\n", checks_good, checks_bad);
    return checks_bad || !checks_good ? 1 : 0;
}

#endif
