/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The commands and their options in mdoc, for the manual page: the part of man/gpusys.1 between its two
 * marks. */
#include "command.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LINE_WIDTH = 72 };

/* Text inside a line. A backslash would begin an escape, and a hyphen prints as a dash. */
static void text(const char *at, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (at[i] == '\\')
            fputs("\\e", stdout);
        else if (at[i] == '-')
            fputs("\\-", stdout);
        else
            putchar(at[i]);
}

/* One line of running text: a dot or a quote at its start would make it a request. */
static void text_line(const char *at, size_t length)
{
    if (length && (at[0] == '.' || at[0] == '\''))
        fputs("\\&", stdout);
    text(at, length);
    putchar('\n');
}

/* A sentence, broken into lines that mandoc does not find too long. */
static void sentence(const char *at, size_t length)
{
    while (length > LINE_WIDTH) {
        size_t line = LINE_WIDTH;
        while (line > 1 && at[line] != ' ')
            --line;
        text_line(at, line);
        at += line + 1;
        length -= line + 1;
    }
    text_line(at, length);
}

/* A summary or the help of an option: no capital and no full stop there, both here. */
static void remark(const char *help)
{
    char line[512];
    int length = snprintf(line, sizeof line, "%c%s.", toupper((unsigned char)help[0]), help + 1);
    sentence(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

/* Words such as "ADDR [NAME...]" as macros, a line each: ".Ar ADDR", ".Op Ar NAME ...". */
static void operands(const char *at)
{
    while (*at) {
        size_t length = strcspn(at, " ");
        bool optional = at[0] == '[' && at[length - 1] == ']';
        const char *word = at + optional;
        size_t n_word = length - 2 * optional;
        bool repeats = n_word > 3 && memcmp(word + n_word - 3, "...", 3) == 0;
        printf(".%s%.*s%s\n", optional ? "Op Ar " : "Ar ", (int)(n_word - 3 * repeats), word,
               repeats ? " ..." : "");
        at += length + (at[length] == ' ');
    }
}

static void option(const struct option *row)
{
    fputs(".It", stdout);
    if (row->letter)
        printf(" Fl %c ,", row->letter);
    printf(" Fl -%s", row->name);
    if (row->argument)
        printf(" Ar %s", row->argument);
    putchar('\n');
    remark(row->help);
}

static void options(const struct option_table *table)
{
    size_t shown = 0;
    for (size_t i = 0; i < table->n_rows; i++) {
        if (!table->rows[i].help)
            continue;
        if (!shown++)
            fputs(".Bl -tag -width Ds\n", stdout);
        option(&table->rows[i]);
    }
    if (shown)
        fputs(".El\n", stdout);
}

/* One sentence a line, as mdoc wants it. */
static void sentences(const char *at, size_t length)
{
    while (length) {
        size_t end = 0;
        while (end < length && !(at[end] == '.' && end + 1 < length && at[end + 1] == ' '))
            ++end;
        size_t line = end < length ? end + 1 : length;
        sentence(at, line);
        line += line < length;
        at += line;
        length -= line;
    }
}

static void paragraph(const char *at, size_t length)
{
    if (at[0] != ' ') {
        fputs(".Pp\n", stdout);
        sentences(at, length);
        return;
    }
    fputs(".Bd -literal -offset indent\n", stdout);
    while (length) {
        size_t line = strcspn(at, "\n"), indent = strspn(at, " ");
        text_line(at + indent, line - indent);
        line += line < length;
        at += line;
        length -= line;
    }
    fputs(".Ed\n", stdout);
}

static void description(const char *at)
{
    while (*at) {
        const char *end = strstr(at, "\n\n");
        size_t length = end ? (size_t)(end - at) : strlen(at);
        paragraph(at, length);
        at += length + (end ? 2 : 0);
    }
}

void help_mdoc(void)
{
    for (size_t i = 0; i < n_commands; i++) {
        const struct command *command = commands[i];
        if (command->hidden)
            continue;
        printf(".Ss gpusys %s\n.Nm gpusys %s Op Ar OPTION ...\n", command->name, command->name);
        if (command->operands)
            operands(command->operands);
        printf(".Pp\n");
        remark(command->summary);
        if (command->description)
            description(command->description);
        options(&command->options);
    }
    printf(".Ss Options of every command\n");
    options(&global_options);
}
