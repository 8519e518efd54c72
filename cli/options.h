/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Options as tables: help, the manual page, completion and the parser all read the same rows.
 *
 * A row says where its value goes as an offset into a struct of the command's own. The struct starts as the
 * command's defaults; a row that is not given leaves its member alone.
 */
#ifndef GPUSYS_CLI_OPTIONS_H
#define GPUSYS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum option_kind {
    OPTION_FLAG,   /* bool, becomes true */
    OPTION_COUNT,  /* unsigned, counts how often it was given */
    OPTION_STRING, /* const char *, points into argv */
    OPTION_U64,    /* uint64_t, decimal or 0x hexadecimal */
    OPTION_BYTES, /* uint64_t, with K M G T (powers of 1000 as kB MB, of 1024 as Ki K Mi M: see quantity.h) */
    OPTION_DURATION, /* int64_t nanoseconds: 500ms 2s 1m; a bare number is seconds */
    OPTION_STRINGS,  /* struct string_list, one more each time it is given */
    OPTION_LIST,     /* struct string_list, given once or more, each value split at its commas */
};

struct option {
    const char *name;     /* the long name, without its dashes */
    char letter;          /* the short name, 0 for none */
    const char *argument; /* what help calls the value; NULL for flags and counts */
    enum option_kind kind;
    size_t offset;    /* of the member that takes the value */
    const char *help; /* NULL: understood, and shown nowhere */
};

struct option_table {
    const struct option *rows;
    size_t n_rows;
};

#define OPTION_TABLE(array)                                                                                  \
    {                                                                                                        \
        .rows = (array), .n_rows = sizeof(array) / sizeof *(array)                                           \
    }

struct string_list {
    char **items; /* each one allocated */
    size_t count;
};

void string_list_free(struct string_list *list);

/* A table and the struct that its offsets point into. */
struct option_target {
    struct option_table table;
    void *values;
};

/*
 * Parse `argv[0 … *argc)`: options of any of the targets, and operands, in any order; `--` ends the options.
 * Operands are moved to the front of argv and counted in *argc. With `stop_at_operand`, parsing ends at the
 * first operand, and what follows it stays as it is. On a mistake a report goes to stderr and -EINVAL comes
 * back; `where` is what --help hints are given for ("gpusys pull").
 */
int options_parse(const struct option_target *targets, size_t n_targets, const char *where, int *argc,
                  char **argv, bool stop_at_operand);

/* Free what options_parse allocated in the target. */
void options_free(const struct option_target *target);

/* The best of `candidates` for a word that was mistyped, or NULL when none is near. */
const char *near_miss(const char *word, const char *const *candidates, size_t n_candidates);

#endif
