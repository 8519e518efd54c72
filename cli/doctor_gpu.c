/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of the CUDA driver: does it start, can the network reach the GPUs' memory. */
#include "doctor.h"

static void driver(struct doctor_finding *finding)
{
    doctor_look(finding, "driver");
}

static void gpudirect(struct doctor_finding *finding)
{
    doctor_look(finding, "gpudirect");
}

static const struct doctor_check checks[] = {
    {"cuda-driver", "the CUDA driver and the GPUs it shows", driver, DOCTOR_IN_CHILD},
    {"cuda-gpudirect", "RDMA straight into the GPUs' memory", gpudirect, DOCTOR_IN_CHILD},
};

const struct doctor_module doctor_gpu = DOCTOR_MODULE(checks);
