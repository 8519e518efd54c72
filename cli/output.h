/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the command says: reports on stderr ("gpusys: ..."), results on stdout, as text or as JSON. Colour
 * only on a terminal, and never when NO_COLOR is set.
 *
 * Text that came from a peer or a file name goes through output_safe (tables do it themselves), so that it
 * cannot steer the terminal.
 */
#ifndef GPUSYS_CLI_OUTPUT_H
#define GPUSYS_CLI_OUTPUT_H

#include <gpusys/error.h>
#include <gpusys/log.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* How much to say: -q, nothing, -v, -vv. Also sends the library's log to stderr, up to this level. */
void output_set_level(enum gpusys_log_level level);

/* "gpusys: MESSAGE" on stderr: something asked for did not happen. */
void report(const char *format, ...) GPUSYS_PRINTF(1, 2);

/* The error as gpusys_error_format writes it, behind "gpusys: ". */
void report_error(const struct gpusys_error *error);

/* "  try     WHAT" under a report. */
void report_hint(const char *what);

/* A line on stderr that -q silences: which transport was chosen, what is being served. */
void note(const char *format, ...) GPUSYS_PRINTF(1, 2);

enum output_colour { COLOUR_PLAIN, COLOUR_BOLD, COLOUR_DIM, COLOUR_RED, COLOUR_GREEN, COLOUR_YELLOW };

/* The escape sequence for `file`, or "" where it gets no colour. COLOUR_PLAIN ends a colour. */
const char *colour(FILE *file, enum output_colour colour);

/* Columns of the terminal behind `file`, or 0 when it is none. */
unsigned output_width(FILE *file);

/* `text` with control bytes and broken UTF-8 as \xNN; cut to fit. Returns `safe`. */
const char *output_safe(char *safe, size_t size, const char *text);

/* Has everything on stdout arrived? Reports and returns -errno when not. */
int output_finish(void);

/* A JSON document starts as an object with "schema": `schema` first. NULL when memory is out. */
json_t *json_document(int schema);

/* Print it with a newline, and drop the reference. 0, or -ENOMEM with a report (also when `document` is
 * NULL). */
int json_print(json_t *document);

enum alignment { ALIGN_LEFT, ALIGN_RIGHT };

struct column {
    const char *title; /* with the unit where cells have none; NULL in all columns: no heading */
    enum alignment align;
};

struct table;

/* A table with these columns (kept by reference). NULL when memory is out; the other calls take that NULL. */
struct table *table_new(const struct column *columns, size_t n_columns);

/* The next cell, row by row from the left. */
void table_cell(struct table *table, const char *format, ...) GPUSYS_PRINTF(2, 3);

/* Print, and free. 0, or -ENOMEM with a report when a cell was lost. */
int table_print(struct table *table, FILE *file);

#endif
