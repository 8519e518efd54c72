/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Slurm's short forms: lists of nodes, and of tasks on each. */
#include "gpu/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of "[01-03,7]" the "01". `at` is behind the bracket; gives what follows the closing one, NULL: there is none. */
static const char *first_number(const char *at, size_t *ret_digits)
{
    *ret_digits = strspn(at, "0123456789");
    const char *end = strchr(at, ']');
    bool whole = *ret_digits && strchr("-,]", at[*ret_digits]);
    return end && whole ? end + 1 : NULL;
}

int gs_job_slurm_first(const char *list, char *host, size_t size)
{
    size_t length = 0;
    while (*list && *list != ',') {
        const char *from = list;
        size_t bytes = strcspn(list, "[,]");
        list += bytes;
        if (!bytes && *list == '[') {
            from = list + 1;
            list = first_number(from, &bytes);
        }
        if (!list || !bytes)
            return -EINVAL;
        if (length + bytes >= size)
            return -ENAMETOOLONG;
        memcpy(host + length, from, bytes);
        length += bytes;
    }
    host[length] = 0;
    return length ? 0 : -EINVAL;
}

/* Take a number off the front of a text. -1: there is none. */
static long take_number(const char **text)
{
    char *end;
    if (**text < '0' || **text > '9')
        return -1;
    long value = strtol(*text, &end, 10);
    *text = end;
    return value <= INT32_MAX ? value : -1;
}

/* One entry, "2" or "2(x3)": the tasks of how many nodes. */
static bool take_entry(const char **text, long *tasks, long *nodes)
{
    *tasks = take_number(text);
    *nodes = 1;
    if (strncmp(*text, "(x", 2) == 0) {
        *text += 2;
        *nodes = take_number(text);
        if (**text != ')')
            return false;
        (*text)++;
    }
    return *tasks > 0 && *nodes > 0 && (**text == 0 || **text == ',');
}

int gs_job_slurm_local(uint32_t n_ranks, uint32_t *ret_n_local, struct gpusys_error *error)
{
    const char *const names[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"};
    const char *text = gs_job_variable(names[0]), *node_text = gs_job_variable(names[1]);
    long tasks = 0, nodes = 0;
    *ret_n_local = 0;
    if (!text || !node_text)
        return 0;
    const char *list = text, *rest = node_text;
    long node = take_number(&rest);
    if (node < 0 || *rest)
        return gs_job_refuse(error, names[1], node_text, "that is not a decimal number");
    for (; node >= 0; node -= nodes) {
        if (!take_entry(&list, &tasks, &nodes))
            return gs_job_refuse(error, names[0], text,
                                 "that is no list like \"2(x3),1\" with this node in it");
        list += *list == ',';
    }
    if (tasks > (long)n_ranks)
        return gs_job_refuse(error, names[0], text, "this node has more tasks in it than the step");
    *ret_n_local = (uint32_t)tasks;
    return 0;
}
