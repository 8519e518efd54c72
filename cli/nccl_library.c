/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libnccl as it is found here: its file, its version, each function that it has or lacks. */
#include "nccl_library.h"
#include "command.h"
#include "output.h"

#include <fcntl.h>
#include <gpusys/nccl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in the child ---- */

/* Text from outside need not be UTF-8, and JSON must be. */
static json_t *text_of(const char *text)
{
    char safe[4096];
    return text ? json_string(output_safe(safe, sizeof safe, text)) : json_null();
}

static json_t *copies(void)
{
    char text[4096], *rest = text;
    json_t *list = json_array();
    gpusys_nccl_copies(text, sizeof text);
    for (char *path; (path = strsep(&rest, "\n"));)
        if (*path)
            json_array_append_new(list, text_of(path));
    return list;
}

static json_t *library(int code)
{
    char version[32];
    int major, minor, patch;
    gpusys_nccl_version_parts(code, &major, &minor, &patch);
    snprintf(version, sizeof version, "%d.%d.%d", major, minor, patch);
    return json_pack("{s:o, s:s, s:i, s:b, s:o}", "path", text_of(gpusys_nccl_library()), "version", version,
                     "code", code, "reused", (int)gpusys_nccl_reused(), "copies", copies());
}

static json_t *problem(const struct gpusys_error *error)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "message", text_of(error->message), "detail",
                     text_of(error->detail), "cause", text_of(error->cause), "hint", text_of(error->hint));
}

static json_t *functions(void)
{
    json_t *list = json_array();
    struct gpusys_nccl_symbol symbol = {.size = sizeof symbol};
    for (uint32_t at = 0; gpusys_nccl_symbol(at, &symbol, NULL) == 0; at++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:b, s:b}", "name", symbol.name, "since", symbol.since,
                                        "present", (int)symbol.present, "in_table", (int)symbol.in_table));
    return list;
}

json_t *nccl_library_read(void)
{
    struct gpusys_error error = {0};
    int version = 0;
    bool good = gpusys_nccl_version(&version, &error) == 0;
    return json_pack("{s:o, s:o, s:o}", "library", good ? library(version) : json_null(), "problem",
                     good ? json_null() : problem(&error), "functions", good ? functions() : json_array());
}

static enum exit_code run(const struct call *call)
{
    (void)call;
    if (fcntl(CHILD_REPORT_FD, F_SETFD, FD_CLOEXEC))
        return EXIT_USAGE;
    json_t *document = nccl_library_read();
    int failed = json_dumpfd(document, CHILD_REPORT_FD, JSON_COMPACT);
    _exit(failed ? EXIT_FAILED : EXIT_DONE); /* a vendor's exit handlers are none of our business */
}

const struct command command_nccl_child = {
    .name = "nccl-child",
    .summary = "what gpusys nccl says of the library, for its own use",
    .run = run,
    .max_operands = 0,
    .hidden = true,
};

/* ---- in the parent ---- */

void nccl_library_start(struct child *child)
{
    child_start(child, command_nccl_child.name, NULL);
}

static json_t *gone_wrong(ssize_t size, int status)
{
    struct gpusys_error error = {0};
    if (size == -ETIMEDOUT)
        gpusys_error_set(&error, -ETIMEDOUT, "NCCL: loading it did not come to an end in time");
    else if (size < 0)
        gpusys_error_set(&error, (int)size, "NCCL: no process to load it in: %s",
                         strerrordesc_np((int)-size));
    else if (WIFSIGNALED(status))
        gpusys_error_set(&error, -EIO, "NCCL: loading it crashed: signal %d (%s)", WTERMSIG(status),
                         sigdescr_np(WTERMSIG(status)));
    else
        gpusys_error_set(&error, -EIO,
                         "NCCL: the process that loaded it ended with exit code %d and no answer",
                         WEXITSTATUS(status));
    gpusys_error_set_hint(&error, "reinstall libnccl2, or name another file in GPUSYS_LIBNCCL");
    return json_pack("{s:n, s:o, s:[]}", "library", "problem", problem(&error), "functions");
}

json_t *nccl_library_finish(struct child *child, int64_t deadline_ns)
{
    enum { REPORT_BYTES = 1 << 16 };
    int status = 0;
    char *report = malloc(REPORT_BYTES);
    if (!report)
        return NULL;
    ssize_t size = child_finish(child, deadline_ns, report, REPORT_BYTES, &status);
    json_t *document = size > 0 ? json_loadb(report, (size_t)size, 0, NULL) : NULL;
    free(report);
    return document ? document : gone_wrong(size, status);
}

/* ---- text ---- */

static const char *member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Names behind the version that brought them, as many in a line as fit. */
struct lines {
    bool present;
    const char *since; /* of the line that is open; NULL: none */
    size_t used, width;
    unsigned count;
};

static void add_function(struct lines *lines, const json_t *function)
{
    enum { INDENT = 10 };
    const char *name = member(function, "name"), *since = member(function, "since");
    bool other_version = !lines->since || strcmp(lines->since, since) != 0;
    if (other_version || lines->used + strlen(name) + 1 > lines->width) {
        printf("%s  %-*s", lines->since ? "\n" : "", INDENT - 2, other_version ? since : "");
        lines->used = INDENT;
        lines->since = since;
    } else {
        putchar(' ');
        lines->used++;
    }
    fputs(name, stdout);
    lines->used += strlen(name);
}

static unsigned count_functions(const json_t *functions, bool present)
{
    unsigned count = 0;
    size_t at;
    const json_t *function;
    json_array_foreach(functions, at, function) count +=
        json_is_true(json_object_get(function, "present")) == present;
    return count;
}

static void print_functions(const json_t *functions, bool present)
{
    unsigned count = count_functions(functions, present), columns = output_width(stdout);
    struct lines lines = {.present = present, .width = columns ? columns : 100};
    size_t at;
    const json_t *function;
    if (!count)
        return;
    printf("\n%s%u functions that it %s%s, by the version that brought them\n",
           colour(stdout, present ? COLOUR_BOLD : COLOUR_YELLOW), count, present ? "has" : "lacks",
           colour(stdout, COLOUR_PLAIN));
    json_array_foreach(functions, at, function) if (json_is_true(json_object_get(function, "present")) ==
                                                    present) add_function(&lines, function);
    putchar('\n');
}

void nccl_library_print(const json_t *document)
{
    const json_t *library = json_object_get(document, "library"), *copy;
    const json_t *copies = json_object_get(library, "copies"),
                 *functions = json_object_get(document, "functions");
    size_t at;
    if (!json_is_object(library)) {
        const json_t *problem = json_object_get(document, "problem");
        printf("no library: %s\n", member(problem, "message"));
        return;
    }
    printf("%sNCCL %s%s  %s%s\n", colour(stdout, COLOUR_BOLD), member(library, "version"),
           colour(stdout, COLOUR_PLAIN), member(library, "path"),
           json_is_true(json_object_get(library, "reused")) ? ", which was in the process already" : "");
    if (json_array_size(copies) > 1)
        json_array_foreach(copies, at, copy) printf("  mapped too  %s\n", json_string_value(copy));
    print_functions(functions, true);
    print_functions(functions, false);
}
