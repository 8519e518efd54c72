/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: its version, the texts of results, and the last error. */
#include "fake/nccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[512]; /* of the process, as in the real library */

int fake_say(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    vsnprintf(last, sizeof last, format, arguments);
    pthread_mutex_unlock(&lock);
    va_end(arguments);
    return code;
}

/* Each thread gets a copy, which stands until it asks again. */
const char *ncclGetLastError(struct ncclComm *comm)
{
    static _Thread_local char text[sizeof last];
    fake_enter(AT_ncclGetLastError, comm);
    pthread_mutex_lock(&lock);
    memcpy(text, last, sizeof text);
    pthread_mutex_unlock(&lock);
    return text;
}

const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
        "timeout",
    };
    fake_enter(AT_ncclGetErrorString, NULL);
    int known = fake_version >= 23000 ? 8 : fake_version >= 21400 ? 7 : fake_version >= 21300 ? 6 : 5;
    return result >= 0 && result <= known ? texts[result] : "unknown result code";
}

int ncclGetVersion(int *version)
{
    int told = fake_enter(AT_ncclGetVersion, NULL);
    if (told != NOTHING)
        return told;
    if (!version)
        return fake_say(INVALID_ARGUMENT, "ncclGetVersion: version argument is NULL");
    *version = fake_version;
    return SUCCESS;
}
