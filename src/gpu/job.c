/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which process of a job this is, from the environment that its launcher left. */
#include "gpu/job.h"
#include "base/options.h"
#include <gpusys/env.h>
#include <gpusys/hash.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a launcher calls things. NULL: it has no name for that. */
struct launcher {
    const char *name;
    const char *rank, *n_ranks, *local_rank, *n_local;
    const char *id[3];     /* what names the job: without the first (or `old_id`) nothing does */
    const char *old_id;    /* in place of the first, of older versions */
    const char *unless[2]; /* not this launcher when the first is there and the second is not */
};

static const struct launcher launchers[] = {
    {.name = "gpusys",
     .rank = "GPUSYS_RANK",
     .n_ranks = "GPUSYS_RANKS",
     .local_rank = "GPUSYS_LOCAL_RANK",
     .n_local = "GPUSYS_LOCAL_RANKS"},
    /* The run's id alone is "none" unless somebody chose one. */
    {.name = "torchrun",
     .rank = "RANK",
     .n_ranks = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .n_local = "LOCAL_WORLD_SIZE",
     .id = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
    {.name = "openmpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .n_ranks = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .n_local = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .id = {"PMIX_NAMESPACE"},
     .old_id = "OMPI_MCA_ess_base_jobid"},
    /* Slurm's own srun may set the first two as well, but not the local ones: then Slurm's row knows more. */
    {.name = "mpich",
     .rank = "PMI_RANK",
     .n_ranks = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .n_local = "MPI_LOCALNRANKS",
     .id = {"PMI_JOBID"},
     .unless = {"SLURM_PROCID", "MPI_LOCALRANKID"}},
    {.name = "slurm",
     .rank = "SLURM_PROCID",
     .n_ranks = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .id = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};
enum { N_LAUNCHERS = sizeof launchers / sizeof launchers[0] };

const char *gs_job_variable(const char *name)
{
    return name ? gpusys_env_first_nonempty(&name, 1, NULL) : NULL;
}

int gs_job_refuse(struct gpusys_error *error, const char *name, const char *value, const char *why)
{
    gpusys_error_set(error, -EINVAL, "%s is \"%.200s\": %s", name, value, why);
    gpusys_error_set_hint(error, "set %s to what the launcher means, or unset it", name);
    return -EINVAL;
}

/* A number of the environment that is below `limit`; unset: `fallback`. */
static int read_number(const char *name, uint32_t limit, uint32_t fallback, uint32_t *ret_value,
                       struct gpusys_error *error)
{
    const char *text = gs_job_variable(name);
    uint64_t value = 0;
    *ret_value = fallback;
    if (!text)
        return 0;
    if (text[strspn(text, "0123456789")])
        return gs_job_refuse(error, name, text, "that is not a decimal number");
    for (; *text && value < limit; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    if (value >= limit) {
        char why[48];
        snprintf(why, sizeof why, "it must be below %u", (unsigned)limit);
        return gs_job_refuse(error, name, gs_job_variable(name), why);
    }
    *ret_value = (uint32_t)value;
    return 0;
}

static int refuse_zero(struct gpusys_error *error, const char *name)
{
    return gs_job_refuse(error, name, gs_job_variable(name), "a job has at least one rank");
}

/* Ranks of this host; Slurm tells them in a way of its own. */
static int read_local(struct gpusys_job *job, const struct launcher *from, struct gpusys_error *error)
{
    int code = from->n_local ? read_number(from->n_local, job->n_ranks + 1, 0, &job->n_local, error)
                             : gs_job_slurm_local(job->n_ranks, &job->n_local, error);
    if (code)
        return code;
    if (from->n_local && !job->n_local && gs_job_variable(from->n_local))
        return refuse_zero(error, from->n_local);
    return read_number(from->local_rank, job->n_local ? job->n_local : job->n_ranks, 0, &job->local_rank,
                       error);
}

static int read_ranks(struct gpusys_job *job, const struct launcher *from, struct gpusys_error *error)
{
    int code = read_number(from->n_ranks, INT32_MAX, 0, &job->n_ranks, error);
    if (!code && !job->n_ranks)
        code = refuse_zero(error, from->n_ranks);
    if (!code)
        code = read_number(from->rank, job->n_ranks, 0, &job->rank, error);
    return code ? code : read_local(job, from, error);
}

static int hex_digit(char digit)
{
    const char *digits = "0123456789abcdef", *at = strchr(digits, digit | (digit >= 'A' ? 0x20 : 0));
    return digit && at ? (int)(at - digits) : -1;
}

static int read_id(uint8_t id[16], const char *text, struct gpusys_error *error)
{
    if (strlen(text) != 32)
        return gs_job_refuse(error, "GPUSYS_JOB_ID", text, "that is not 32 hexadecimal digits");
    for (int i = 0; i < 16; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return gs_job_refuse(error, "GPUSYS_JOB_ID", text, "that is not 32 hexadecimal digits");
        id[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* The process that mpich's mpirun starts on each host has all ranks of the host below it; "" when there is none. */
static void hydra_text(char *text, size_t size)
{
    pid_t pid = 0;
    uint64_t started = 0;
    text[0] = 0;
    if (gs_job_ancestor("hydra_pmi_proxy", &pid, &started))
        snprintf(text, size, "hydra_pmi_proxy %d %llu", (int)pid, (unsigned long long)started);
}

/* What the launcher calls the job, in one text; false when it says nothing that only this job has. */
static bool job_text(const struct gpusys_job *job, const struct launcher *from, char *text, size_t size)
{
    const char *first = gs_job_variable(from->id[0]);
    char hydra[64] = "";
    if (!first)
        first = gs_job_variable(from->old_id);
    if (!first && strcmp(from->name, "mpich") == 0 && job->n_local == job->n_ranks) {
        hydra_text(hydra, sizeof hydra);
        first = hydra[0] ? hydra : NULL;
    }
    if (!first)
        return false;
    const char *second = gs_job_variable(from->id[1]), *third = gs_job_variable(from->id[2]);
    snprintf(text, size, "%s\n%s\n%s\n%s", from->name, first, second ? second : "", third ? third : "");
    return true;
}

static int make_id(struct gpusys_job *job, const struct launcher *from, struct gpusys_error *error)
{
    const char *given = gs_job_variable("GPUSYS_JOB_ID");
    char text[1024];
    if (given)
        return read_id(job->id, given, error);
    if (job_text(job, from, text, sizeof text))
        gpusys_hash(text, strlen(text), job->id);
    return 0;
}

static bool applies(const struct launcher *launcher)
{
    return !(gs_job_variable(launcher->unless[0]) && !gs_job_variable(launcher->unless[1]));
}

static const struct launcher *find_launcher(void)
{
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (applies(&launchers[i]) && gs_job_variable(launchers[i].rank) &&
            gs_job_variable(launchers[i].n_ranks))
            return &launchers[i];
    return NULL;
}

/* No set is complete; those of which half is there are worth a row. */
static int none_found(struct gpusys_error *error)
{
    int half = 0;
    gpusys_error_set(error, -ENOENT, "the environment says nothing of a job");
    for (int i = 0; i < N_LAUNCHERS; i++) {
        const struct launcher *at = &launchers[i];
        bool rank = gs_job_variable(at->rank), n_ranks = gs_job_variable(at->n_ranks);
        if (!rank && !n_ranks)
            continue;
        gpusys_error_add_detail(error, at->name, "%s is set, %s is not", rank ? at->rank : at->n_ranks,
                                rank ? at->n_ranks : at->rank);
        half++;
    }
    if (half)
        gpusys_error_set_cause(error,
                               "the rank and the number of ranks are needed, and only one of them is set");
    gpusys_error_set_hint(error,
                          "start it with mpirun, srun or torchrun, or set GPUSYS_RANK, GPUSYS_RANKS and "
                          "GPUSYS_MASTER");
    return -ENOENT;
}

int gpusys_job_from_env(struct gpusys_job *ret_job, struct gpusys_error *error)
{
    struct gpusys_job job = {.size = sizeof job};
    const struct launcher *from = find_launcher();
    if (!ret_job || ret_job->size < sizeof ret_job->size)
        return gpusys_error_set(error, -EINVAL, "job: `size` is not set");
    if (!from)
        return none_found(error);
    snprintf(job.launcher, sizeof job.launcher, "%s", from->name);
    int code = read_ranks(&job, from, error);
    if (!code)
        code = make_id(&job, from, error);
    if (!code)
        code = gs_job_address(&job, error);
    return code ? code : gs_info_give(ret_job, &job, sizeof job);
}
