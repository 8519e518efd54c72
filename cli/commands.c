/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The table of commands, in the order in which help shows them. */
#include "command.h"
#include "output.h"

#include <string.h>

extern const struct command command_bench, command_doctor, command_doctor_child, command_help, command_ls,
    command_nccl, command_nccl_child, command_pull, command_rails, command_serve;

const struct command *const commands[] = {
    &command_serve, &command_ls,   &command_pull, &command_bench,        &command_doctor,
    &command_rails, &command_nccl, &command_help, &command_doctor_child, &command_nccl_child,
};
const size_t n_commands = sizeof commands / sizeof *commands;

#define SETTING(member) offsetof(struct settings, member)

static const struct option rows[] = {
    {"timeout", 0, "DURATION", OPTION_DURATION, SETTING(timeout_ns),
     "give up when the other side says nothing for this long (500ms, 2s, 1m)"},
    {"quiet", 'q', NULL, OPTION_FLAG, SETTING(quiet), "say nothing but errors"},
    {"verbose", 'v', NULL, OPTION_COUNT, SETTING(verbose),
     "say which choices were made and why; twice: everything"},
    {"help", 'h', NULL, OPTION_FLAG, SETTING(help), "show this help"},
    {"version", 0, NULL, OPTION_FLAG, SETTING(version), "show the version and what was built in"},
};
const struct option_table global_options = OPTION_TABLE(rows);

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

enum exit_code command_unknown(const char *name)
{
    const char *names[sizeof commands / sizeof *commands];
    size_t n_names = 0;
    for (size_t i = 0; i < n_commands; i++)
        if (!commands[i]->hidden)
            names[n_names++] = commands[i]->name;
    const char *near = near_miss(name, names, n_names);
    if (near)
        report("unknown command \"%s\"; did you mean %s?", name, near);
    else
        report("unknown command \"%s\"", name);
    report_hint("gpusys help");
    return EXIT_USAGE;
}

enum exit_code command_misused(const struct command *command, const char *what)
{
    char hint[64];
    report("%s: %s", command->name, what);
    snprintf(hint, sizeof hint, "gpusys %s --help", command->name);
    report_hint(hint);
    return EXIT_USAGE;
}
