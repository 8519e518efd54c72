/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys doctor: a table of checks. Each one tries the thing itself rather than asking for a version, and
 * says what it saw, what follows from that, and how to mend it.
 *
 * A check that loads a vendor's library carries DOCTOR_IN_CHILD: it then runs in a process of its own with a
 * deadline, so that a library that crashes or hangs becomes a verdict.
 */
#ifndef GPUSYS_CLI_DOCTOR_H
#define GPUSYS_CLI_DOCTOR_H

#include "child.h"

#include <gpusys/api.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum doctor_verdict {
    DOCTOR_OK,         /* it is there and works */
    DOCTOR_MISSING,    /* it is not there, or there is too little of it */
    DOCTOR_BROKEN,     /* it is there and does not work */
    DOCTOR_NOT_NEEDED, /* it is not there, and nothing here would use it */
};
enum { DOCTOR_VERDICTS = 4 };

extern const char *const doctor_verdict_names[DOCTOR_VERDICTS];

/* What a check found. One line each; consequence and fix are empty when the verdict is ok or not needed. */
struct doctor_finding {
    enum doctor_verdict verdict;
    char evidence[256];
    char consequence[256];
    char fix[256];
};

enum { DOCTOR_IN_CHILD = 1 };

struct doctor_check {
    const char *name;  /* as --require and the JSON have it */
    const char *title; /* what is looked at */
    void (*run)(struct doctor_finding *finding);
    unsigned flags;
};

/* The checks of one part of gpusys. */
struct doctor_module {
    const struct doctor_check *checks;
    size_t n_checks;
};

#define DOCTOR_MODULE(array)                                                                                 \
    {                                                                                                        \
        .checks = (array), .n_checks = sizeof(array) / sizeof *(array)                                       \
    }

/* Set the verdict and the evidence. */
void doctor_found(struct doctor_finding *finding, enum doctor_verdict verdict, const char *format, ...)
    GPUSYS_PRINTF(3, 4);

/* Add what follows and what to do about it. */
void doctor_so(struct doctor_finding *finding, const char *consequence, const char *fix);

/* Every check there is, those of the self-test only when asked for. NULL behind the last. */
const struct doctor_check *doctor_check_at(size_t index, bool self_test);
const struct doctor_check *doctor_check_find(const char *name);

/* doctor_child.c: a check in a process of its own, or a look of the library's. */
void doctor_child_start(struct child *child, const struct doctor_check *check);
void doctor_child_start_look(struct child *child, const char *look);

/* Wait until the deadline (gpusys/deadline.h), end the child whatever it does, and say what came of it. */
void doctor_child_finish(struct child *child, int64_t deadline_ns, struct doctor_finding *finding);

/* doctor_look.c: one of the looks of gpusys_nccl_preflight, as a finding. */
void doctor_look(struct doctor_finding *finding, const char *look);

/* doctor_print.c: one row of text, with what follows and the fix under it; wrapped on a terminal. */
void doctor_print(const char *name, const struct doctor_finding *finding);

/* The finding as a JSON object, behind its name and title. */
json_t *doctor_json(const char *name, const char *title, const struct doctor_finding *finding);

#endif
