/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Help on the terminal and completion for bash, made from the tables. */
#include "command.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

enum { OPTION_WIDTH = 26, LINE_WIDTH = 80 };

static void heading(const char *text)
{
    printf("\n%s%s%s\n", colour(stdout, COLOUR_BOLD), text, colour(stdout, COLOUR_PLAIN));
}

static void option_line(const struct option *option)
{
    char left[64], letter[8] = "    ";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->argument ? " " : "",
             option->argument ? option->argument : "");
    if (strlen(left) > OPTION_WIDTH)
        printf("  %s\n  %*s  %s\n", left, OPTION_WIDTH, "", option->help);
    else
        printf("  %-*s  %s\n", OPTION_WIDTH, left, option->help);
}

static void options(const char *title, const struct option_table *table)
{
    bool any = false;
    for (size_t i = 0; i < table->n_rows; i++) {
        if (!table->rows[i].help)
            continue;
        if (!any)
            heading(title);
        any = true;
        option_line(&table->rows[i]);
    }
}

/* A paragraph, broken into lines that fit. */
static void wrap(const char *at, size_t length)
{
    size_t column = 0;
    while (length) {
        size_t word = strcspn(at, " \n");
        word = word < length ? word : length;
        if (column && column + 1 + word > LINE_WIDTH) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column ? " " : "", (int)word, at);
        word += word < length;
        at += word;
        length -= word;
    }
    putchar('\n');
}

static void description(const char *at)
{
    while (at && *at) {
        const char *end = strstr(at, "\n\n");
        size_t length = end ? (size_t)(end - at) : strlen(at);
        putchar('\n');
        if (*at == ' ')
            printf("%.*s\n", (int)length, at);
        else
            wrap(at, length);
        at += length + (end ? 2 : 0);
    }
}

void help_overview(void)
{
    printf("gpusys: the layer between a GPU server and its machine\n"
           "\n"
           "Usage: gpusys COMMAND [OPTION...] [OPERAND...]\n");
    heading("Commands");
    for (size_t i = 0; i < n_commands; i++)
        if (!commands[i]->hidden)
            printf("  %-10s%s\n", commands[i]->name, commands[i]->summary);
    options("Options of every command", &global_options);
    printf("\n\"gpusys help COMMAND\" explains one command. Exit codes: 0 done, 1 failed,\n"
           "2 wrong usage, 77 not supported here.\n");
}

void help_command(const struct command *command)
{
    printf("gpusys %s: %s\n\nUsage: gpusys %s [OPTION...]%s%s\n", command->name, command->summary,
           command->name, command->operands ? " " : "", command->operands ? command->operands : "");
    description(command->description);
    options("Options", &command->options);
    options("Options of every command", &global_options);
}

static void completion_words(const struct option_table *table)
{
    for (size_t i = 0; i < table->n_rows; i++)
        if (table->rows[i].help)
            printf(" --%s", table->rows[i].name);
}

void help_completion_bash(void)
{
    printf("# bash completion for gpusys; made by \"gpusys help --completion bash\"\n"
           "_gpusys()\n"
           "{\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
           "    COMPREPLY=()\n"
           "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < n_commands; i++) {
        if (commands[i]->hidden)
            continue;
        printf("    %s) words=\"", commands[i]->name);
        completion_words(&commands[i]->options);
        completion_words(&global_options);
        printf("\" ;;\n");
    }
    printf("    esac\n"
           "    if [[ $COMP_CWORD == 1 || ( $COMP_CWORD == 2 && ${COMP_WORDS[1]} == help ) ]]; then\n"
           "        words=\"");
    for (size_t i = 0; i < n_commands; i++)
        if (!commands[i]->hidden)
            printf(" %s", commands[i]->name);
    printf(" $words\"\n"
           "    elif [[ $word != -* ]]; then\n"
           "        return\n"
           "    fi\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
           "}\n"
           "complete -o default -F _gpusys gpusys\n");
}
