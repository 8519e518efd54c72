/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "options.h"
#include "output.h"
#include "quantity.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One parse: where it stands in argv, and whom to blame. */
struct parse {
    const struct option_target *targets;
    size_t n_targets;
    const char *where;
    char **argv;
    int argc, at;
};

/* What was found for one option on the command line. */
struct match {
    const struct option *option;
    void *member;
};

static bool takes_value(const struct option *option)
{
    return option->kind != OPTION_FLAG && option->kind != OPTION_COUNT;
}

static bool named(const struct option *option, const char *name, size_t length)
{
    return strlen(option->name) == length && memcmp(option->name, name, length) == 0;
}

/* By long name, or by letter when `name` is NULL. */
static bool find(const struct parse *parse, const char *name, size_t length, char letter, struct match *match)
{
    for (size_t t = 0; t < parse->n_targets; t++) {
        const struct option_target *target = &parse->targets[t];
        for (size_t i = 0; i < target->table.n_rows; i++) {
            const struct option *option = &target->table.rows[i];
            if (name ? named(option, name, length) : option->letter == letter) {
                *match = (struct match){.option = option, .member = (char *)target->values + option->offset};
                return true;
            }
        }
    }
    return false;
}

static int add_string(struct string_list *list, const char *text, size_t length)
{
    char **items = reallocarray(list->items, list->count + 1, sizeof *items);
    if (!items)
        return -ENOMEM;
    list->items = items;
    items[list->count] = strndup(text, length);
    if (!items[list->count])
        return -ENOMEM;
    list->count++;
    return 0;
}

static int add_split(struct string_list *list, const char *text)
{
    int error = 0;
    while (!error) {
        size_t length = strcspn(text, ",");
        if (length == 0)
            return -EINVAL;
        error = add_string(list, text, length);
        if (!text[length])
            break;
        text += length + 1;
    }
    return error;
}

void string_list_free(struct string_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct string_list){0};
}

static int store(const struct match *match, const char *value)
{
    switch (match->option->kind) {
    case OPTION_FLAG: *(bool *)match->member = true; return 0;
    case OPTION_COUNT: ++*(unsigned *)match->member; return 0;
    case OPTION_STRING: *(const char **)match->member = value; return 0;
    case OPTION_U64: return quantity_parse_u64(value, match->member);
    case OPTION_BYTES: return quantity_parse_bytes(value, match->member);
    case OPTION_DURATION: return quantity_parse_duration(value, match->member);
    case OPTION_STRINGS: return add_string(match->member, value, strlen(value));
    case OPTION_LIST: return add_split(match->member, value);
    }
    return -EINVAL;
}

static const char *expected(enum option_kind kind)
{
    switch (kind) {
    case OPTION_U64: return "a whole number";
    case OPTION_BYTES: return "a number of bytes such as 65536, 64K or 1.5GiB";
    case OPTION_DURATION: return "a duration such as 500ms, 2s or 1m";
    case OPTION_LIST: return "names with commas between them";
    default: return "another value";
    }
}

/* After a report: where to read on. */
static int refuse(const struct parse *parse)
{
    char hint[128];
    snprintf(hint, sizeof hint, "%s --help", parse->where);
    report_hint(hint);
    return -EINVAL;
}

static int unknown_letter(const struct parse *parse, char letter)
{
    report("unknown option -%c", letter);
    return refuse(parse);
}

static int unknown_name(const struct parse *parse, const char *name, size_t length)
{
    enum { MOST = 128 };
    const char *candidates[MOST];
    size_t n_candidates = 0;
    char word[64] = "";
    strncat(word, name, length < sizeof word ? length : sizeof word - 1);
    for (size_t t = 0; t < parse->n_targets; t++)
        for (size_t i = 0; i < parse->targets[t].table.n_rows && n_candidates < MOST; i++)
            if (parse->targets[t].table.rows[i].help)
                candidates[n_candidates++] = parse->targets[t].table.rows[i].name;
    const char *near = near_miss(word, candidates, n_candidates);
    if (near)
        report("unknown option --%s; did you mean --%s?", word, near);
    else
        report("unknown option --%s", word);
    return refuse(parse);
}

static int store_or_report(const struct parse *parse, const struct match *match, const char *value)
{
    int error = store(match, value);
    if (error == -ENOMEM)
        report("out of memory");
    else if (error == -ERANGE)
        report("--%s %s: too large", match->option->name, value);
    else if (error)
        report("--%s wants %s, not \"%s\"", match->option->name, expected(match->option->kind), value);
    return error ? refuse(parse) : 0;
}

/* The value of an option that needs one: what hangs on it, or the next word. */
static int take_value(struct parse *parse, const struct match *match, const char *attached)
{
    const char *value = attached;
    if (!value && parse->at < parse->argc)
        value = parse->argv[parse->at++];
    if (value)
        return store_or_report(parse, match, value);
    report("--%s needs a value (%s)", match->option->name, match->option->argument);
    return refuse(parse);
}

/* `word` is what stands behind "--". */
static int parse_long(struct parse *parse, const char *word)
{
    size_t length = strcspn(word, "=");
    struct match match;
    const char *attached = word[length] ? word + length + 1 : NULL;
    if (!find(parse, word, length, 0, &match))
        return unknown_name(parse, word, length);
    if (takes_value(match.option))
        return take_value(parse, &match, attached);
    if (!attached)
        return store(&match, NULL);
    report("--%s takes no value", match.option->name);
    return refuse(parse);
}

/* `word` is what stands behind "-": flags may be joined, and a value may hang on its letter. */
static int parse_letters(struct parse *parse, const char *word)
{
    int error = 0;
    for (; *word && !error; ++word) {
        struct match match;
        if (!find(parse, NULL, 0, *word, &match))
            return unknown_letter(parse, *word);
        if (takes_value(match.option))
            return take_value(parse, &match, word[1] ? word + 1 : NULL);
        error = store(&match, NULL);
    }
    return error;
}

/* Move the word at `from` to `to`, keeping the order of those between them. */
static void keep_operand(char **argv, int to, int from)
{
    char *word = argv[from];
    memmove(argv + to + 1, argv + to, (size_t)(from - to) * sizeof *argv);
    argv[to] = word;
}

int options_parse(const struct option_target *targets, size_t n_targets, const char *where, int *argc,
                  char **argv, bool stop_at_operand)
{
    struct parse parse = {
        .targets = targets, .n_targets = n_targets, .where = where, .argv = argv, .argc = *argc};
    int n_operands = 0, error = 0;
    bool options_over = false;
    while (parse.at < parse.argc && !error) {
        const char *word = argv[parse.at++];
        if (options_over || word[0] != '-' || !word[1]) {
            keep_operand(argv, n_operands++, parse.at - 1);
            options_over |= stop_at_operand;
        } else if (strcmp(word, "--") == 0)
            options_over = true;
        else
            error = word[1] == '-' ? parse_long(&parse, word + 2) : parse_letters(&parse, word + 1);
    }
    *argc = n_operands;
    return error;
}

void options_free(const struct option_target *target)
{
    for (size_t i = 0; i < target->table.n_rows; i++) {
        const struct option *option = &target->table.rows[i];
        if (option->kind == OPTION_STRINGS || option->kind == OPTION_LIST)
            string_list_free((struct string_list *)((char *)target->values + option->offset));
    }
}
