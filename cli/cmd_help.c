/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys help: what the commands do, and the files that are made from their tables. */
#include "command.h"
#include "output.h"

#include <string.h>

struct help_options {
    const char *completion;
    bool mdoc;
};

#define OPTION(member) offsetof(struct help_options, member)

static const struct option rows[] = {
    {"completion", 0, "SHELL", OPTION_STRING, OPTION(completion),
     "print completion for a shell; bash is the one there is"},
    {"mdoc", 0, NULL, OPTION_FLAG, OPTION(mdoc), "print the commands as the manual page has them"},
};

static enum exit_code completion(const char *shell)
{
    if (strcmp(shell, "bash") != 0) {
        report("no completion for \"%s\"; there is one for bash", shell);
        return EXIT_USAGE;
    }
    help_completion_bash();
    return EXIT_DONE;
}

static enum exit_code run(const struct call *call)
{
    const struct help_options *options = call->options;
    if (options->completion)
        return completion(options->completion);
    if (options->mdoc) {
        help_mdoc();
        return EXIT_DONE;
    }
    if (call->n_operands == 0) {
        help_overview();
        return EXIT_DONE;
    }
    const struct command *command = command_find(call->operands[0]);
    if (!command)
        return command_unknown(call->operands[0]);
    help_command(command);
    return EXIT_DONE;
}

const struct command command_help = {
    .name = "help",
    .summary = "explain a command, or list them all",
    .operands = "[COMMAND]",
    .description = "Without a command, lists the commands and the options that all of them take.\n"
                   "\n"
                   "To have bash complete commands and options:\n"
                   "\n"
                   "    eval \"$(gpusys help --completion bash)\"",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct help_options),
    .max_operands = 1,
};
