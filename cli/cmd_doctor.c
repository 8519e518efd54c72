/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys doctor: run every check, show what was found, judge what was required. */
#include "command.h"
#include "doctor.h"
#include "output.h"

#include <gpusys/deadline.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA = 1 };
static const int64_t child_timeout_ns = INT64_C(5000000000);

struct doctor_options {
    struct string_list require;
    bool json, self_test;
};

#define OPTION(member) offsetof(struct doctor_options, member)

static const struct option rows[] = {
    {"require", 0, "NAME,...", OPTION_LIST, OPTION(require),
     "fail (exit code 1) unless each of these checks is ok"},
    {"json", 0, NULL, OPTION_FLAG, OPTION(json), "print a JSON document instead of text"},
    {"self-test", 0, NULL, OPTION_FLAG, OPTION(self_test), NULL},
};

/* A check, and what came of it. */
struct result {
    const struct doctor_check *check;
    struct child child;
    struct doctor_finding finding;
    bool required;
};

struct examination {
    struct result *results;
    size_t n_results;
    size_t counts[DOCTOR_VERDICTS];
};

static int collect(struct examination *examination, bool self_test)
{
    size_t count = 0;
    while (doctor_check_at(count, self_test))
        count++;
    *examination = (struct examination){.results = calloc(count, sizeof(struct result)), .n_results = count};
    if (!examination->results) {
        report("out of memory");
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        examination->results[i].check = doctor_check_at(i, self_test);
    return 0;
}

static void report_unknown_check(const struct examination *examination, const char *name)
{
    report("doctor: there is no check called \"%s\"", name);
    fputs("  checks ", stderr);
    for (size_t i = 0; i < examination->n_results; i++)
        fprintf(stderr, " %s", examination->results[i].check->name);
    fputc('\n', stderr);
}

static bool mark_required(struct examination *examination, const struct string_list *names)
{
    for (size_t n = 0; n < names->count; n++) {
        bool known = false;
        for (size_t i = 0; i < examination->n_results; i++) {
            bool same = strcmp(examination->results[i].check->name, names->items[n]) == 0;
            examination->results[i].required |= same;
            known |= same;
        }
        if (!known) {
            report_unknown_check(examination, names->items[n]);
            return false;
        }
    }
    return true;
}

/* Children first: they work while the others are made here. */
static void examine(struct examination *examination, int64_t timeout_ns)
{
    int64_t deadline_ns = gpusys_deadline_after(timeout_ns < 0 ? child_timeout_ns : timeout_ns);
    struct result *results = examination->results, *end = results + examination->n_results;
    fflush(NULL);
    for (struct result *result = results; result < end; result++)
        if (result->check->flags & DOCTOR_IN_CHILD)
            doctor_child_start(&result->child, result->check);
    for (struct result *result = results; result < end; result++)
        if (!(result->check->flags & DOCTOR_IN_CHILD))
            result->check->run(&result->finding);
    for (struct result *result = results; result < end; result++) {
        if (result->check->flags & DOCTOR_IN_CHILD)
            doctor_child_finish(&result->child, deadline_ns, &result->finding);
        examination->counts[result->finding.verdict]++;
    }
}

static void print_text(const struct examination *examination)
{
    const size_t *counts = examination->counts;
    for (size_t i = 0; i < examination->n_results; i++)
        doctor_print(examination->results[i].check->name, &examination->results[i].finding);
    printf("\n%zu ok, %zu missing, %zu broken, %zu not needed\n", counts[DOCTOR_OK], counts[DOCTOR_MISSING],
           counts[DOCTOR_BROKEN], counts[DOCTOR_NOT_NEEDED]);
}

static json_t *json_of(const struct result *result)
{
    json_t *object = doctor_json(result->check->name, result->check->title, &result->finding);
    json_object_set_new(object, "required", json_boolean(result->required));
    return object;
}

static int print_json(const struct examination *examination)
{
    json_t *document = json_document(SCHEMA), *checks = json_array(), *counts = json_object();
    for (size_t i = 0; i < examination->n_results; i++)
        json_array_append_new(checks, json_of(&examination->results[i]));
    for (size_t i = 0; i < DOCTOR_VERDICTS; i++)
        json_object_set_new(counts, doctor_verdict_names[i],
                            json_integer((json_int_t)examination->counts[i]));
    json_object_set_new(document, "version", json_string(gpusys_version()));
    json_object_set_new(document, "counts", counts);
    json_object_set_new(document, "checks", checks);
    return json_print(document);
}

static enum exit_code judge(const struct examination *examination)
{
    enum exit_code code = EXIT_DONE;
    for (size_t i = 0; i < examination->n_results; i++) {
        const struct result *result = &examination->results[i];
        if (!result->required || result->finding.verdict == DOCTOR_OK)
            continue;
        report("doctor: %s is required and %s: %s", result->check->name,
               doctor_verdict_names[result->finding.verdict], result->finding.evidence);
        code = EXIT_FAILED;
    }
    return code;
}

static enum exit_code run(const struct call *call)
{
    const struct doctor_options *options = call->options;
    struct examination examination;
    if (collect(&examination, options->self_test))
        return EXIT_FAILED;
    enum exit_code code = EXIT_USAGE;
    if (mark_required(&examination, &options->require)) {
        examine(&examination, call->settings->timeout_ns);
        int failed = 0;
        if (options->json)
            failed = print_json(&examination);
        else if (!call->settings->quiet)
            print_text(&examination);
        code = failed ? EXIT_FAILED : judge(&examination);
    }
    free(examination.results);
    return code;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "say what this machine has, what it lacks and how to mend it",
    .description = "Tries what gpusys builds on, one thing after the other, and gives each a verdict: ok, "
                   "missing, broken, or "
                   "not needed. Where something is amiss it says what was seen, what follows from it, and "
                   "the exact fix. "
                   "A check that has to load a vendor's library runs in a process of its own, which is ended "
                   "after 5 seconds "
                   "or the given --timeout.\n"
                   "\n"
                   "In scripts, name what must be there:\n"
                   "\n"
                   "    gpusys doctor --quiet --require memfd,openat2",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct doctor_options),
    .max_operands = 0,
};
