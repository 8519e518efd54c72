/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: the calls that make communicators. */
#include "fake/nccl.h"
#include "fake/nccl_comm.h"

#include <stdlib.h>
#include <string.h>

enum { IDENTITY_AT = 64, LEAKS_SINCE = 22304, NO_COLOR = -1, SHRINK_ABORT = 1 };
static const char magic[8] = "gpusysID";

/* ---- unique ids ---- */

static void write_id(struct fake_nccl_id *id)
{
    struct identity identity = fake_new_identity();
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, magic, sizeof magic);
    memcpy(id->bytes + IDENTITY_AT, &identity, sizeof identity);
}

static int read_id(struct identity *ret_identity, const struct fake_nccl_id *id)
{
    if (memcmp(id->bytes, magic, sizeof magic) != 0)
        return fake_say(INVALID_ARGUMENT, "The unique id was not made by ncclGetUniqueId");
    memcpy(ret_identity, id->bytes + IDENTITY_AT, sizeof *ret_identity);
    return SUCCESS;
}

int ncclGetUniqueId(struct fake_nccl_id *id)
{
    int told = fake_enter(AT_ncclGetUniqueId, NULL);
    if (told != NOTHING)
        return told;
    if (!id)
        return fake_say(INVALID_ARGUMENT, "GetUniqueId: out argument is NULL");
    fake_sweep();
    write_id(id);
    return SUCCESS;
}

int ncclCommGetUniqueId(struct ncclComm *comm, struct fake_nccl_id *id)
{
    int told = fake_enter(AT_ncclCommGetUniqueId, comm);
    if (told != NOTHING)
        return told;
    if (!comm || !id)
        return fake_say(INVALID_ARGUMENT, "ncclCommGetUniqueId: an argument is NULL");
    int ready = fake_ready(comm);
    if (ready == SUCCESS)
        write_id(id);
    return ready;
}

/* ---- from the beginning ---- */

struct init {
    struct ncclComm **place;
    int n_ranks, rank, device;
    struct identity identity;
    struct fake_nccl_config config;
};

static struct job *new_job(struct ncclComm **place, struct ncclComm *comm, struct ncclComm *parent,
                           const struct fake_nccl_config *config)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->comm = comm;
    job->parent = parent;
    job->place = place;
    job->nonblocking = !(parent ? parent->config.blocking : config->blocking);
    if (comm)
        comm->config = *config;
    return job;
}

static struct job *init_job(const struct init *init)
{
    struct ncclComm *comm = fake_comm_new(init->n_ranks, init->rank, init->rank, init->device);
    struct job *job = comm ? new_job(init->place, comm, NULL, &init->config) : NULL;
    if (!job) {
        if (comm)
            fake_comm_free(comm);
        return NULL;
    }
    job->identity = init->identity;
    *init->place = comm;
    return job;
}

static int check_init(const struct init *init)
{
    if (!init->place)
        return fake_say(INVALID_ARGUMENT, "comm argument is NULL");
    if (init->n_ranks < 1 || init->n_ranks > MOST_RANKS)
        return fake_say(INVALID_ARGUMENT, "invalid device count (%d) requested", init->n_ranks);
    if (init->rank < 0 || init->rank >= init->n_ranks)
        return fake_say(INVALID_ARGUMENT, "Invalid rank requested : %d/%d", init->rank, init->n_ranks);
    return SUCCESS;
}

/* The real ones since some version forget to leave the group that they are in when CUDA fails, and that it failed. */
static int cuda_failed(enum function function)
{
    if ((function == AT_ncclCommInitRankConfig || function == AT_ncclCommInitRankScalable) &&
        fake_version >= LEAKS_SINCE)
        fake_group_leak();
    return CUDA_ERROR;
}

static int start_init(struct init *init, const struct fake_nccl_id *id, const struct fake_nccl_config *config)
{
    int result = check_init(init);
    if (result == SUCCESS)
        result = id ? read_id(&init->identity, id) : fake_say(INVALID_ARGUMENT, "commId argument is NULL");
    if (result == SUCCESS)
        result = fake_parse_config(&init->config, config);
    if (result != SUCCESS)
        return result;
    struct job *job = init_job(init);
    return job ? fake_submit_job(job) : fake_say(SYSTEM_ERROR, "Out of memory");
}

static int init_rank(enum function function, struct init *init, const struct fake_nccl_id *id,
                     const struct fake_nccl_config *config)
{
    fake_set_process_rank(init->rank);
    int told = fake_enter_rank(function, init->rank);
    if (told != NOTHING && told != CUDA_ERROR)
        return fake_group_failed(told);
    if (told == CUDA_ERROR || fake_cuda_start(&init->device) != SUCCESS)
        return cuda_failed(function);
    return fake_group_failed(start_init(init, id, config));
}

int ncclCommInitRank(struct ncclComm **comm, int n_ranks, struct fake_nccl_id id, int rank)
{
    struct init init = {.place = comm, .n_ranks = n_ranks, .rank = rank};
    return init_rank(AT_ncclCommInitRank, &init, &id, NULL);
}

int ncclCommInitRankConfig(struct ncclComm **comm, int n_ranks, struct fake_nccl_id id, int rank,
                           struct fake_nccl_config *config)
{
    struct init init = {.place = comm, .n_ranks = n_ranks, .rank = rank};
    return init_rank(AT_ncclCommInitRankConfig, &init, &id, config);
}

int ncclCommInitRankScalable(struct ncclComm **comm, int n_ranks, int rank, int n_ids,
                             struct fake_nccl_id *ids, struct fake_nccl_config *config)
{
    struct init init = {.place = comm, .n_ranks = n_ranks, .rank = rank};
    if (n_ids < 1 || n_ids > n_ranks)
        return fake_group_failed(fake_say(INVALID_ARGUMENT, "Invalid number of ids %d", n_ids));
    return init_rank(AT_ncclCommInitRankScalable, &init, ids, config);
}

static void give_back(struct job *jobs)
{
    while (jobs) {
        struct job *job = jobs;
        jobs = job->next;
        *job->place = NULL;
        fake_comm_free(job->comm);
        free(job);
    }
}

static int check_devices(struct ncclComm **comms, int n_devices, const int *devices)
{
    if (!comms || n_devices < 1 || n_devices > MOST_RANKS)
        return fake_say(INVALID_ARGUMENT, "Invalid device count requested : %d", n_devices);
    for (int i = 0; devices && i < n_devices; i++)
        for (int k = 0; k < i; k++)
            if (devices[i] == devices[k])
                return fake_say(INVALID_USAGE, "Duplicate GPU detected : rank %d and rank %d", k, i);
    return SUCCESS;
}

int ncclCommInitAll(struct ncclComm **comms, int n_devices, const int *devices)
{
    struct init init = {.n_ranks = n_devices, .identity = fake_new_identity()};
    int result = fake_enter(AT_ncclCommInitAll, NULL);
    if (result != NOTHING)
        return result;
    result = fake_cuda_start(&init.device);
    if (result == SUCCESS)
        result = check_devices(comms, n_devices, devices);
    if (result == SUCCESS)
        result = fake_parse_config(&init.config, NULL);
    struct job *jobs = NULL;
    for (int rank = 0; result == SUCCESS && rank < n_devices; rank++) {
        init.place = &comms[rank];
        init.rank = rank;
        init.device = devices ? devices[rank] : rank;
        struct job *job = init_job(&init);
        if (!job) {
            give_back(jobs);
            return fake_say(SYSTEM_ERROR, "Out of memory");
        }
        job->next = jobs;
        jobs = job;
    }
    return result == SUCCESS ? fake_run_jobs(jobs) : result;
}

/* ---- from others ---- */

static uint64_t next_child(struct ncclComm *parent)
{
    pthread_mutex_lock(&parent->lock);
    uint64_t number = ++parent->children;
    pthread_mutex_unlock(&parent->lock);
    return number;
}

/* A revoked one may have children, an aborted one not. */
static int check_parent(struct ncclComm *parent)
{
    return parent->ended && !parent->aborted ? SUCCESS : fake_ready(parent);
}

static int child_config(struct fake_nccl_config *ret_config, const struct ncclComm *parent,
                        const struct fake_nccl_config *config)
{
    *ret_config = parent->config;
    return config ? fake_parse_config(ret_config, config) : SUCCESS;
}

/* `is_member` false: this rank gets none. */
static struct job *child_job(struct ncclComm *parent, bool is_member, int n_ranks, int rank,
                             struct ncclComm **place, const struct fake_nccl_config *config)
{
    struct ncclComm *comm =
        is_member ? fake_comm_new(n_ranks, rank, parent->world_rank, parent->device) : NULL;
    struct job *job = comm || !is_member ? new_job(place, comm, parent, config) : NULL;
    if (!job) {
        if (comm)
            fake_comm_free(comm);
        fake_say(SYSTEM_ERROR, "Out of memory");
        return NULL;
    }
    job->number = next_child(parent);
    *place = comm;
    return job;
}

static int split(struct ncclComm *comm, int color, int key, struct ncclComm **new_comm,
                 const struct fake_nccl_config *given)
{
    if (!comm || !new_comm)
        return fake_say(INVALID_ARGUMENT, "comm or newcomm argument is NULL");
    if (color < NO_COLOR)
        return fake_say(INVALID_ARGUMENT, "Invalid color %d", color);
    struct fake_nccl_config config;
    int result = check_parent(comm);
    if (result == SUCCESS)
        result = child_config(&config, comm, given);
    if (result != SUCCESS)
        return result;
    struct job *job = child_job(comm, color != NO_COLOR, comm->n_ranks, 0, new_comm, &config);
    if (!job)
        return SYSTEM_ERROR;
    job->confers = true;
    job->color = color;
    job->key = key;
    return fake_submit_job(job);
}

int ncclCommSplit(struct ncclComm *comm, int color, int key, struct ncclComm **new_comm,
                  struct fake_nccl_config *config)
{
    int told = fake_enter(AT_ncclCommSplit, comm);
    return fake_group_failed(told != NOTHING ? told : split(comm, color, key, new_comm, config));
}

/* What the ranks that stay are called by, the same for all who exclude the same ones; and my new number. -1: the list
 * is not one, or has me in it. */
static int shrunk_rank(const struct ncclComm *comm, const int *exclude, int n_exclude, uint64_t *ret_what)
{
    int rank = 0;
    *ret_what = 2;
    for (int old = 0; old < comm->n_ranks; old++) {
        int times = 0;
        for (int i = 0; i < n_exclude; i++)
            times += exclude[i] == old;
        if (times > 1 || (times && old == comm->rank))
            return -1;
        if (times)
            *ret_what = *ret_what * 1000003u + (uint64_t)old + 1;
        rank += old < comm->rank && !times;
    }
    for (int i = 0; i < n_exclude; i++)
        if (exclude[i] < 0 || exclude[i] >= comm->n_ranks)
            return -1;
    return rank;
}

static int shrink(struct ncclComm *comm, const int *exclude, int n_exclude, struct ncclComm **new_comm,
                  const struct fake_nccl_config *given, int flags)
{
    if (!comm || !new_comm || !exclude || n_exclude < 1 || n_exclude >= comm->n_ranks)
        return fake_say(INVALID_ARGUMENT,
                        "ncclCommShrink: an argument is NULL, or the list too short or too long");
    uint64_t what;
    int rank = shrunk_rank(comm, exclude, n_exclude, &what);
    if (rank < 0)
        return fake_say(INVALID_ARGUMENT, "ncclCommShrink: the list of excluded ranks cannot be");
    struct fake_nccl_config config;
    bool aborts = (flags & SHRINK_ABORT) != 0;
    int result = aborts ? SUCCESS : check_parent(comm);
    if (result == SUCCESS)
        result = child_config(&config, comm, given);
    if (result != SUCCESS)
        return result;
    if (aborts)
        fake_comm_end_operations(comm);
    struct job *job = child_job(comm, true, comm->n_ranks - n_exclude, rank, new_comm, &config);
    if (!job)
        return SYSTEM_ERROR;
    job->identity = fake_child_identity(&comm->identity, job->number, (what << 32) | what);
    return fake_submit_job(job);
}

int ncclCommShrink(struct ncclComm *comm, int *exclude, int n_exclude, struct ncclComm **new_comm,
                   struct fake_nccl_config *config, int flags)
{
    int told = fake_enter(AT_ncclCommShrink, comm);
    return fake_group_failed(told != NOTHING ? told
                                             : shrink(comm, exclude, n_exclude, new_comm, config, flags));
}

static int grow_old(struct ncclComm *comm, int n_ranks, const struct fake_nccl_id *id, int rank,
                    struct ncclComm **new_comm, const struct fake_nccl_config *given)
{
    if (rank != -1 || n_ranks <= comm->n_ranks || n_ranks > MOST_RANKS || !new_comm)
        return fake_say(INVALID_ARGUMENT, "ncclCommGrow: rank %d is not -1, or %d ranks are not more than %d",
                        rank, n_ranks, comm->n_ranks);
    struct fake_nccl_config config;
    struct identity identity = {{0}};
    int result = check_parent(comm);
    if (result == SUCCESS)
        result = child_config(&config, comm, given);
    if (result == SUCCESS && id)
        result = read_id(&identity, id);
    if (result != SUCCESS)
        return result;
    struct job *job = child_job(comm, true, n_ranks, comm->rank, new_comm, &config);
    if (!job)
        return SYSTEM_ERROR;
    job->grows = true;
    job->confers = true;
    job->has_identity = id != NULL;
    job->identity = identity;
    return fake_submit_job(job);
}

int ncclCommGrow(struct ncclComm *comm, int n_ranks, const struct fake_nccl_id *id, int rank,
                 struct ncclComm **new_comm, struct fake_nccl_config *config)
{
    if (!comm) {
        struct init init = {.place = new_comm, .n_ranks = n_ranks, .rank = rank};
        return init_rank(AT_ncclCommGrow, &init, id, config);
    }
    int told = fake_enter(AT_ncclCommGrow, comm);
    return fake_group_failed(told != NOTHING ? told : grow_old(comm, n_ranks, id, rank, new_comm, config));
}
