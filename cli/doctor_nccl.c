/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of NCCL: the library, its settings and what it needs of the machine. gpusys nccl has all of them. */
#include "doctor.h"

static void library(struct doctor_finding *finding)
{
    doctor_look(finding, "library");
}

static void versions(struct doctor_finding *finding)
{
    doctor_look(finding, "versions");
}

static void copies(struct doctor_finding *finding)
{
    doctor_look(finding, "copies");
}

static void environment(struct doctor_finding *finding)
{
    doctor_look(finding, "environment");
}

static void interface(struct doctor_finding *finding)
{
    doctor_look(finding, "interface");
}

static void shm(struct doctor_finding *finding)
{
    doctor_look(finding, "shm");
}

static const struct doctor_check checks[] = {
    {"nccl-library", "libnccl, and what it can do", library, DOCTOR_IN_CHILD},
    {"nccl-versions", "the driver's CUDA against NCCL's", versions, DOCTOR_IN_CHILD},
    {"nccl-copies", "one NCCL, and no other that gets in its way", copies, DOCTOR_IN_CHILD},
    {"nccl-environment", "settings of NCCL, and whether it knows them", environment, DOCTOR_IN_CHILD},
    {"nccl-interface", "the network interface that the ranks meet on", interface, 0},
    {"nccl-shm", "room in /dev/shm for the ranks of this host", shm, 0},
};

const struct doctor_module doctor_nccl = DOCTOR_MODULE(checks);
