/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The options of a communicator: the caller's, the launcher's, and the defaults. */
#include "base/options.h"
#include "gpu/comm_open.h"
#include <gpusys/deadline.h>
#include <gpusys/job.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { KNOWN_FLAGS = GPUSYS_COMM_DEVICE | GPUSYS_COMM_NO_TRACE | GPUSYS_COMM_RANGES | GPUSYS_COMM_KEEP };

static void set_default(int64_t *timeout_ns, int64_t seconds)
{
    if (!*timeout_ns)
        *timeout_ns = seconds * 1000000000;
}

static void set_defaults(struct gpusys_comm_options *options)
{
    set_default(&options->init_timeout_ns, 120);
    set_default(&options->call_timeout_ns, 60);
    set_default(&options->abort_timeout_ns, 10);
    set_default(&options->silence_timeout_ns, 15);
    if (!options->trace_entries)
        options->trace_entries = 1024;
}

/* What the caller did not say, from the launcher. */
static int ask_launcher(struct gs_opening *opening, struct gpusys_error *error)
{
    static const uint8_t no_job[16];
    struct gpusys_comm_options *options = &opening->options;
    struct gpusys_job job = {.size = sizeof job};
    int code = gpusys_job_from_env(&job, error);
    if (code)
        return code;
    options->n_ranks = job.n_ranks;
    options->rank = job.rank;
    opening->n_local = job.n_local;
    opening->local_rank = job.local_rank;
    if (!memcmp(options->job, no_job, sizeof no_job))
        memcpy(options->job, job.id, sizeof options->job);
    if (!options->address && job.address[0]) {
        snprintf(opening->address, sizeof opening->address, "%s", job.address);
        options->address = opening->address;
    }
    return 0;
}

static int check_place(const struct gpusys_comm_options *options, struct gpusys_error *error)
{
    if (options->rank >= options->n_ranks)
        return gpusys_error_set(error, -EINVAL, "communicator: rank %u of %u ranks: they count from 0",
                                options->rank, options->n_ranks);
    if (options->n_ranks > GS_PARTY_MAX_RANKS)
        return gpusys_error_set(error, -EINVAL, "communicator: %u ranks: %d is the most", options->n_ranks,
                                GS_PARTY_MAX_RANKS);
    if (options->n_ranks == 1 || options->address || options->id)
        return 0;
    gpusys_error_set(error, -EINVAL, "communicator: %u ranks, and neither rank 0's address nor a unique id",
                     options->n_ranks);
    gpusys_error_set_hint(error,
                          "set `address` or GPUSYS_MASTER to HOST:PORT of rank 0, the same on every rank");
    return -EINVAL;
}

/* The caller's struct may be of an older or newer nccl.h; the library knows by its size and version. */
static int take_config(struct gpusys_nccl_config *config, const struct gpusys_nccl_config *given,
                       struct gpusys_error *error)
{
    gpusys_nccl_config_init(config);
    if (given) {
        struct gpusys_nccl_config all = *config;
        if (given->size < offsetof(struct gpusys_nccl_config, cga_cluster_size) || given->magic != all.magic)
            return gpusys_error_set(error, -EINVAL,
                                    "communicator: the config has size %zu and magic 0x%x: it was not "
                                    "initialised (gpusys_nccl_config_init)",
                                    given->size, given->magic);
        size_t size = given->size < sizeof all ? given->size : sizeof all;
        memcpy(config, given, size);
        config->size = size;
    }
    config->blocking = 0;
    if ((config->min_ctas == GPUSYS_NCCL_UNSET) != (config->max_ctas == GPUSYS_NCCL_UNSET))
        return gpusys_error_set(
            error, -EINVAL,
            "communicator: of the config's min_ctas and max_ctas only %s is set: NCCL takes "
            "both or neither",
            config->min_ctas == GPUSYS_NCCL_UNSET ? "max_ctas" : "min_ctas");
    return 0;
}

int gs_opening_take(struct gs_opening *opening, const struct gpusys_comm_options *options,
                    struct gpusys_error *error)
{
    memset(opening, 0, sizeof *opening);
    int code = gs_options_take(&opening->options, sizeof opening->options, options);
    if (code)
        return gpusys_error_set(error, code, "communicator: the options %s",
                                code == -E2BIG ? "ask for something that this gpusys does not know"
                                               : "have no size");
    if (opening->options.flags & ~(uint32_t)KNOWN_FLAGS)
        return gpusys_error_set(error, -EINVAL, "communicator: flags 0x%x are not known",
                                opening->options.flags & ~(uint32_t)KNOWN_FLAGS);
    set_defaults(&opening->options);
    opening->deadline_ns = gpusys_deadline_after(opening->options.init_timeout_ns);
    if (!opening->options.n_ranks)
        code = ask_launcher(opening, error);
    if (!code)
        code = check_place(&opening->options, error);
    if (!code)
        code = take_config(&opening->config, opening->options.config, error);
    return code;
}
