/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A look of the library's (gpusys_nccl_preflight) as a finding of doctor. */
#include "doctor.h"

#include <gpusys/nccl.h>

void doctor_look(struct doctor_finding *finding, const char *look)
{
    static const enum doctor_verdict verdicts[] = {
        [GPUSYS_VERDICT_OK] = DOCTOR_OK,
        [GPUSYS_VERDICT_MISSING] = DOCTOR_MISSING,
        [GPUSYS_VERDICT_BROKEN] = DOCTOR_BROKEN,
        [GPUSYS_VERDICT_NOT_NEEDED] = DOCTOR_NOT_NEEDED,
    };
    struct gpusys_finding found = {.size = sizeof found};
    if (gpusys_nccl_look(look, &found) || found.verdict >= DOCTOR_VERDICTS) {
        doctor_found(finding, DOCTOR_BROKEN, "this gpusys has no look called \"%.60s\"", look);
        doctor_so(finding, "the check was not made", "install the command and the library in one version");
        return;
    }
    doctor_found(finding, verdicts[found.verdict], "%s", found.evidence);
    doctor_so(finding, found.consequence, found.fix);
}
