/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys, the command: find the row of the table, parse by its options, run it. */
#include "command.h"
#include "output.h"

#include <fcntl.h>
#include <gpusys/api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum exit_code show_version(void)
{
    printf("gpusys %s\n%s\n", gpusys_version(), gpusys_build_info());
    return EXIT_DONE;
}

static void apply(const struct settings *settings)
{
    static const enum gpusys_log_level levels[] = {GPUSYS_LOG_WARN, GPUSYS_LOG_INFO, GPUSYS_LOG_DEBUG};
    unsigned verbose = settings->verbose < 2 ? settings->verbose : 2;
    output_set_level(settings->quiet ? GPUSYS_LOG_ERROR : levels[verbose]);
}

static enum exit_code wrong_number(const struct command *command, const char *how_many)
{
    char what[128];
    snprintf(what, sizeof what, "%s words on the command line; it takes %s", how_many,
             command->operands ? command->operands : "options alone");
    return command_misused(command, what);
}

static enum exit_code run(const struct command *command, const struct call *call)
{
    if (call->settings->help) {
        help_command(command);
        return EXIT_DONE;
    }
    if (call->settings->version)
        return show_version();
    if (call->n_operands < command->min_operands)
        return wrong_number(command, "too few");
    if (command->max_operands >= 0 && call->n_operands > command->max_operands)
        return wrong_number(command, "too many");
    if (call->settings->timeout_ns == 0)
        return command_misused(command, "--timeout wants more than 0");
    apply(call->settings);
    return command->run(call);
}

static enum exit_code parse_and_run(const struct command *command, struct settings *settings, int argc,
                                    char **argv)
{
    char where[64];
    void *options = calloc(1, command->options_size + 1);
    if (!options) {
        report("out of memory");
        return EXIT_FAILED;
    }
    if (command->defaults)
        memcpy(options, command->defaults, command->options_size);
    struct option_target targets[] = {{command->options, options}, {global_options, settings}};
    snprintf(where, sizeof where, "gpusys %s", command->name);
    enum exit_code code = EXIT_USAGE;
    if (options_parse(targets, 2, where, &argc, argv, false) == 0) {
        argv[argc] = NULL;
        code = run(command, &(struct call){settings, options, argv, argc});
    }
    options_free(&targets[0]);
    free(options);
    return code;
}

/* Global options may stand in front of the command's name as well as behind it. */
static enum exit_code start(int argc, char **argv)
{
    struct settings settings = {.timeout_ns = -1};
    struct option_target target = {global_options, &settings};
    if (options_parse(&target, 1, "gpusys", &argc, argv, true))
        return EXIT_USAGE;
    if (settings.version)
        return show_version();
    if (argc > 0) {
        const struct command *command = command_find(argv[0]);
        return command ? parse_and_run(command, &settings, argc - 1, argv + 1) : command_unknown(argv[0]);
    }
    if (settings.help) {
        help_overview();
        return EXIT_DONE;
    }
    report("no command was given");
    report_hint("gpusys help");
    return EXIT_USAGE;
}

/* A stream that was closed must not turn into the first file that is opened. Using it still fails. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    enum exit_code code = argc > 0 ? start(argc - 1, argv + 1) : EXIT_USAGE;
    return output_finish() && code == EXIT_DONE ? EXIT_FAILED : (int)code;
}
