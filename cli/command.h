/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A command is one `struct command`, defined in its own cmd_NAME.c and listed in commands.c. Help, the manual
 * page, completion and the parser all read it.
 */
#ifndef GPUSYS_CLI_COMMAND_H
#define GPUSYS_CLI_COMMAND_H

#include "options.h"
#include <errno.h>
#include <stdint.h>

/* What the process ends with. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NOT_HERE = 77, /* this machine, or this build, cannot do it */
};

/* The exit code for a negative errno of the library: what is not supported is no failure of the work. */
static inline enum exit_code exit_code_of(int code)
{
    return !code ? EXIT_DONE : code == -EOPNOTSUPP ? EXIT_NOT_HERE : EXIT_FAILED;
}

/* The options that every command takes. */
struct settings {
    int64_t timeout_ns; /* -1 when not given: each command has its own default */
    bool quiet, help, version;
    unsigned verbose;
};

/* A command that is being run. */
struct call {
    const struct settings *settings;
    const void *options; /* the command's own struct, filled */
    char **operands;     /* NULL behind the last one */
    int n_operands;
};

struct command {
    const char *name;
    const char *summary;     /* one line, no full stop */
    const char *operands;    /* "ADDR [NAME...]", or NULL */
    const char *description; /* paragraphs, each one line however long, an empty line between them; one whose
                                lines begin with a blank is an example and stays as it is */
    enum exit_code (*run)(const struct call *call);
    struct option_table options;
    size_t options_size;            /* of the command's struct; 0 for none */
    const void *defaults;           /* what it starts as; NULL: all zero */
    int min_operands, max_operands; /* -1: no limit */
    bool hidden;
};

extern const struct command *const commands[];
extern const size_t n_commands;
extern const struct option_table global_options;

const struct command *command_find(const char *name);

/* Reports that there is no such command, with the nearest name. EXIT_USAGE. */
enum exit_code command_unknown(const char *name);

/* Reports a mistake in the command line, pointing to the command's help. EXIT_USAGE. */
enum exit_code command_misused(const struct command *command, const char *what);

/* help.c: the three forms that are made from the tables. */
void help_overview(void);
void help_command(const struct command *command);
void help_mdoc(void);
void help_completion_bash(void);

#endif
