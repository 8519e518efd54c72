/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The frame of gpusys doctor: which checks there are, and the words for what they found. */
#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

extern const struct doctor_module doctor_memory, doctor_sockets, doctor_kernel, doctor_rdma, doctor_rails,
    doctor_gpu, doctor_nccl, doctor_self_test;

static const struct doctor_module *const modules[] = {
    &doctor_memory, &doctor_sockets, &doctor_kernel, &doctor_rdma, &doctor_rails, &doctor_gpu, &doctor_nccl};
static const size_t n_modules = sizeof modules / sizeof *modules;

const char *const doctor_verdict_names[DOCTOR_VERDICTS] = {"ok", "missing", "broken", "not needed"};

void doctor_found(struct doctor_finding *finding, enum doctor_verdict verdict, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    *finding = (struct doctor_finding){.verdict = verdict};
    vsnprintf(finding->evidence, sizeof finding->evidence, format, arguments);
    va_end(arguments);
}

void doctor_so(struct doctor_finding *finding, const char *consequence, const char *fix)
{
    snprintf(finding->consequence, sizeof finding->consequence, "%s", consequence);
    snprintf(finding->fix, sizeof finding->fix, "%s", fix);
}

const struct doctor_check *doctor_check_at(size_t index, bool self_test)
{
    for (size_t i = 0; i < n_modules + self_test; i++) {
        const struct doctor_module *module = i < n_modules ? modules[i] : &doctor_self_test;
        if (index < module->n_checks)
            return &module->checks[index];
        index -= module->n_checks;
    }
    return NULL;
}

const struct doctor_check *doctor_check_find(const char *name)
{
    const struct doctor_check *check;
    for (size_t i = 0; (check = doctor_check_at(i, true)); i++)
        if (strcmp(check->name, name) == 0)
            return check;
    return NULL;
}
