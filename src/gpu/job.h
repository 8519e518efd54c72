/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files about jobs share. */
#ifndef GPUSYS_GPU_JOB_H
#define GPUSYS_GPU_JOB_H

#include <gpusys/job.h>
#include <stdbool.h>
#include <sys/types.h>

/* A variable of the environment; NULL when it is not set or empty, or `name` is NULL. */
const char *gs_job_variable(const char *name);

/* -EINVAL: this variable makes no sense. */
int gs_job_refuse(struct gpusys_error *error, const char *name, const char *value, const char *why);

/* Where rank 0 is met, from all that is known already. */
int gs_job_address(struct gpusys_job *job, struct gpusys_error *error);

/* The tasks of a step on this node: of SLURM_STEP_TASKS_PER_NODE ("2(x3),1") the one at SLURM_NODEID. 0: not told. */
int gs_job_slurm_local(uint32_t n_ranks, uint32_t *ret_n_local, struct gpusys_error *error);

/* The first host of a list like "node[01-03,7],gpu-a". -EINVAL it is none, -ENAMETOOLONG. */
int gs_job_slurm_first(const char *list, char *host, size_t size);

/* The nearest ancestor process that is called so, and when it was started (in ticks since boot). */
bool gs_job_ancestor(const char *name, pid_t *ret_pid, uint64_t *ret_started);

#endif
