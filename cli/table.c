/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tables whose columns line up: cells are kept until the end, when every width is known. */
#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct table {
    const struct column *columns;
    size_t n_columns, n_cells, room;
    char **cells;
    bool lost; /* memory ran out for a cell */
};

struct table *table_new(const struct column *columns, size_t n_columns)
{
    struct table *table = calloc(1, sizeof *table);
    if (table) {
        table->columns = columns;
        table->n_columns = n_columns;
    }
    return table;
}

static bool make_room(struct table *table)
{
    if (table->n_cells < table->room)
        return true;
    size_t room = table->room ? table->room * 2 : 64;
    char **cells = reallocarray(table->cells, room, sizeof *cells);
    if (!cells)
        return false;
    table->cells = cells;
    table->room = room;
    return true;
}

/* Characters, not bytes: "µs" is as wide as "ms". */
static size_t width(const char *text)
{
    size_t characters = 0;
    for (; *text; ++text)
        characters += ((unsigned char)*text & 0xc0) != 0x80;
    return characters;
}

void table_cell(struct table *table, const char *format, ...)
{
    char text[1024], safe[4096];
    if (!table || table->lost)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *cell = make_room(table) ? strdup(output_safe(safe, sizeof safe, text)) : NULL;
    if (cell)
        table->cells[table->n_cells++] = cell;
    else
        table->lost = true;
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t widest = table->columns[column].title ? width(table->columns[column].title) : 0;
    for (size_t i = column; i < table->n_cells; i += table->n_columns)
        if (width(table->cells[i]) > widest)
            widest = width(table->cells[i]);
    return widest;
}

static void pad(FILE *file, size_t count)
{
    fprintf(file, "%*s", (int)count, "");
}

static void print_row(const struct table *table, FILE *file, const char *const *cells, const size_t *widths)
{
    for (size_t i = 0; i < table->n_columns; i++) {
        size_t fill = widths[i] - width(cells[i]);
        bool right = table->columns[i].align == ALIGN_RIGHT;
        pad(file, (i ? 2 : 0) + (right ? fill : 0));
        fputs(cells[i], file);
        if (!right && i + 1 < table->n_columns)
            pad(file, fill);
    }
    fputc('\n', file);
}

static void print_heading(const struct table *table, FILE *file, const size_t *widths)
{
    enum { MOST_COLUMNS = 32 };
    const char *titles[MOST_COLUMNS];
    if (!table->columns[0].title || table->n_columns > MOST_COLUMNS)
        return;
    for (size_t i = 0; i < table->n_columns; i++)
        titles[i] = table->columns[i].title;
    fputs(colour(file, COLOUR_BOLD), file);
    print_row(table, file, titles, widths);
    fputs(colour(file, COLOUR_PLAIN), file);
}

static void table_free(struct table *table)
{
    for (size_t i = 0; table && i < table->n_cells; i++)
        free(table->cells[i]);
    if (table)
        free(table->cells);
    free(table);
}

int table_print(struct table *table, FILE *file)
{
    size_t *widths = table ? calloc(table->n_columns, sizeof *widths) : NULL;
    int error = 0;
    if (!widths || table->lost) {
        report("out of memory");
        error = -ENOMEM;
    } else {
        for (size_t i = 0; i < table->n_columns; i++)
            widths[i] = column_width(table, i);
        print_heading(table, file, widths);
        for (size_t at = 0; at + table->n_columns <= table->n_cells; at += table->n_columns)
            print_row(table, file, (const char *const *)table->cells + at, widths);
    }
    free(widths);
    table_free(table);
    return error;
}
