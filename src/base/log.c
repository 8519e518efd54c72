/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/log.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic(gpusys_log_fn *) sink;
static _Atomic(void *) sink_context;
static atomic_int sink_level;

void gpusys_log_set(gpusys_log_fn *fn, void *context, enum gpusys_log_level level)
{
    atomic_store(&sink, NULL);
    atomic_store(&sink_context, context);
    atomic_store(&sink_level, (int)level);
    atomic_store(&sink, fn);
}

void gs_log(enum gpusys_log_level level, const char *format, ...)
{
    gpusys_log_fn *fn = atomic_load(&sink);
    if (!fn || (int)level > atomic_load(&sink_level))
        return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    /* Names of files and words of peers: one line, and nothing for the terminal. */
    gs_text_clean(line, strlen(line));
    fn(atomic_load(&sink_context), level, line);
}
