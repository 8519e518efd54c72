/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/job.h: which process of a job this is: its rank among how many, and where rank 0 is to be met, as the
 * launcher left it in the environment.
 *
 * Any thread, while nobody calls setenv; lookups use secure_getenv.
 */
#ifndef GPUSYS_JOB_H
#define GPUSYS_JOB_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpusys_job {
    size_t size; /* in: sizeof(struct gpusys_job) */
    uint32_t n_ranks, rank;
    uint32_t n_local, local_rank; /* those on this host; n_local 0: the launcher does not say */
    char launcher[16];            /* "torchrun", "openmpi", "mpich", "slurm", "gpusys" */
    char address[256];            /* where rank 0 listens, "HOST:PORT" or "unix:PATH"; empty: not known */
    uint8_t id[16]; /* of this job and no other, made from what the launcher calls it; 0: not known */
};

/*
 * Read the environment. The first that is complete (a rank and a number of ranks; empty is not there) wins:
 *
 *     gpusys    GPUSYS_RANK, GPUSYS_RANKS, GPUSYS_LOCAL_RANK, GPUSYS_LOCAL_RANKS
 *     torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; TORCHELASTIC_RUN_ID with MASTER_ADDR, MASTER_PORT
 *     openmpi   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid
 *     mpich     PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS; PMI_JOBID, or, when all ranks are on this host, the
 *               hydra_pmi_proxy that they come from. Not when SLURM_PROCID is there and MPI_LOCALRANKID is not: it is srun's
 *     slurm     SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE at SLURM_NODEID; SLURM_JOB_ID with
 *               SLURM_STEP_ID
 *
 * The address is GPUSYS_MASTER; else MASTER_ADDR with MASTER_PORT (GPUSYS_COMM_PORT where there is none); else, when all
 * ranks are on this host and the job has an id, a Unix socket in XDG_RUNTIME_DIR or /tmp, named by the user and the id;
 * else of Slurm the first host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST. torchrun (TORCHELASTIC_RUN_ID) itself listens at
 * MASTER_PORT: there the Unix socket comes before MASTER_ADDR, and the port is the next one. GPUSYS_JOB_ID (32 hexadecimal
 * digits) is the id before all others.
 *
 * -ENOENT: no launcher's names are there, or of each only half (the error says which); -EINVAL: they are, and make no
 * sense (the error names one and shows its value).
 */
GPUSYS_API int gpusys_job_from_env(struct gpusys_job *ret_job, struct gpusys_error *error);

#define GPUSYS_COMM_PORT 7475

#ifdef __cplusplus
}
#endif

#endif
