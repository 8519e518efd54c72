/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static enum gpusys_log_level level = GPUSYS_LOG_WARN;

static void log_line(void *context, enum gpusys_log_level line_level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    (void)context;
    char safe[2048];
    fprintf(stderr, "gpusys: %s: %s\n", names[line_level], output_safe(safe, sizeof safe, line));
}

void output_set_level(enum gpusys_log_level new_level)
{
    level = new_level;
    gpusys_log_set(log_line, NULL, level);
}

static void start_report(void)
{
    fprintf(stderr, "%sgpusys:%s ", colour(stderr, COLOUR_RED), colour(stderr, COLOUR_PLAIN));
}

/* One line; what came from outside must not steer the terminal. */
static void put_line(const char *format, va_list arguments)
{
    char line[2048], safe[8192];
    vsnprintf(line, sizeof line, format, arguments);
    fprintf(stderr, "%s\n", output_safe(safe, sizeof safe, line));
}

void report(const char *format, ...)
{
    va_list arguments;
    fflush(stdout); /* so that the two streams keep their order on a terminal */
    start_report();
    va_start(arguments, format);
    put_line(format, arguments);
    va_end(arguments);
}

void report_error(const struct gpusys_error *error)
{
    char text[2048];
    gpusys_error_format(error, text, sizeof text);
    fflush(stdout);
    start_report();
    char safe[8192];
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        fprintf(stderr, "%s\n", output_safe(safe, sizeof safe, line));
}

void report_hint(const char *what)
{
    fprintf(stderr, "  try     %s\n", what);
}

void note(const char *format, ...)
{
    if (level < GPUSYS_LOG_WARN)
        return;
    va_list arguments;
    va_start(arguments, format);
    fputs("gpusys: ", stderr);
    put_line(format, arguments);
    va_end(arguments);
}

static bool colourful(FILE *file)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(fileno(file)) && !(no_colour && *no_colour) && !(terminal && strcmp(terminal, "dumb") == 0);
}

const char *colour(FILE *file, enum output_colour wanted)
{
    static const char *const sequences[] = {"\033[0m",  "\033[1m",  "\033[2m",
                                            "\033[31m", "\033[32m", "\033[33m"};
    return colourful(file) ? sequences[wanted] : "";
}

unsigned output_width(FILE *file)
{
    struct winsize size;
    return isatty(fileno(file)) && ioctl(fileno(file), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* The length of the well-formed UTF-8 sequence at `at` (1 … 4), or 0 for a byte that must be escaped. */
static size_t printable(const unsigned char *at)
{
    if (at[0] < 0x80)
        return at[0] >= 0x20 && at[0] != 0x7f;
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || (at[0] == 0xc2 && at[1] < 0xa0)) /* C1 controls steer terminals too */
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

const char *output_safe(char *safe, size_t size, const char *text)
{
    size_t used = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = printable(at), width = length ? length : 4;
        if (used + width >= size)
            break;
        if (length)
            memcpy(safe + used, at, length);
        else
            snprintf(safe + used, size - used, "\\x%02x", *at);
        used += width;
        at += length ? length : 1;
    }
    safe[used] = 0;
    return safe;
}

int output_finish(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    int error = errno ? errno : EIO;
    report("cannot write to standard output: %s", strerror(error));
    return -error;
}

json_t *json_document(int schema)
{
    return json_pack("{s:i}", "schema", schema);
}

int json_print(json_t *document)
{
    int failed = !document || json_dumpf(document, stdout, JSON_INDENT(2));
    json_decref(document);
    if (failed && !ferror(stdout)) {
        report("out of memory");
        return -ENOMEM;
    }
    putchar('\n');
    return 0;
}
