/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The ranks of a communicator meet, are looked over, and agree on NCCL's unique id. */
#include "base/helper.h"
#include "gpu/comm_open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The key of a communicator that was opened; its children's are made from it. Every party has one such. */
enum { FIRST_KEY = 1 };

/* ---- on rank 0: may they begin? ---- */

static void parts_of(int version, int parts[3])
{
    gpusys_nccl_version_parts(version, &parts[0], &parts[1], &parts[2]);
}

static int admit_versions(const struct gs_member *members, uint32_t n_ranks, struct gpusys_error *error)
{
    int first[3], other[3];
    parts_of(members[0].version, first);
    for (uint32_t rank = 1; rank < n_ranks; rank++) {
        parts_of(members[rank].version, other);
        if (first[0] == other[0] && first[1] == other[1])
            continue;
        gpusys_error_set(error, -EBADMSG,
                         "the ranks have different NCCLs: %d.%d.%d on rank 0 (%s), %d.%d.%d on rank %u (%s)",
                         first[0], first[1], first[2], members[0].host, other[0], other[1], other[2], rank,
                         members[rank].host);
        gpusys_error_set_hint(error, "use one version everywhere; GPUSYS_LIBNCCL names the file to load");
        return -EBADMSG;
    }
    return 0;
}

static int by_gpu(const void *left, const void *right)
{
    const struct gs_member *const *a = left, *const *b = right;
    int order = memcmp((*a)->gpu, (*b)->gpu, sizeof(*a)->gpu);
    if (!order)
        order = strcmp((*a)->host, (*b)->host);
    return order ? order : (*a > *b) - (*a < *b);
}

static void gpu_text(const uint8_t gpu[16], char text[48])
{
    snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", gpu[0],
             gpu[1], gpu[2], gpu[3], gpu[4], gpu[5], gpu[6], gpu[7], gpu[8], gpu[9], gpu[10], gpu[11],
             gpu[12], gpu[13], gpu[14], gpu[15]);
}

static int same_gpu(const struct gs_member *members, const struct gs_member *a, const struct gs_member *b,
                    struct gpusys_error *error)
{
    char gpu[48];
    gpu_text(a->gpu, gpu);
    gpusys_error_set(error, -EEXIST, "ranks %u and %u on %s both use %s", (uint32_t)(a - members),
                     (uint32_t)(b - members), a->host, gpu);
    gpusys_error_set_hint(error,
                          "give each process its own: GPUSYS_COMM_DEVICE, the launcher's local rank, or "
                          "CUDA_VISIBLE_DEVICES");
    return -EEXIST;
}

static int admit_gpus(const struct gs_member *members, uint32_t n_ranks, struct gpusys_error *error)
{
    static const uint8_t none[16];
    const struct gs_member **sorted = calloc(n_ranks, sizeof *sorted);
    int code = 0;
    if (!sorted)
        return gpusys_error_set_errno(error, -ENOMEM, "communicator of %u ranks", n_ranks);
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        sorted[rank] = &members[rank];
    qsort(sorted, n_ranks, sizeof *sorted, by_gpu);
    for (uint32_t i = 1; i < n_ranks && !code; i++)
        if (memcmp(sorted[i]->gpu, none, sizeof none) && !strcmp(sorted[i - 1]->host, sorted[i]->host) &&
            !memcmp(sorted[i - 1]->gpu, sorted[i]->gpu, sizeof none))
            code = same_gpu(members, sorted[i - 1], sorted[i], error);
    free(sorted);
    return code;
}

int gs_comm_admit(const struct gs_member *members, uint32_t n_ranks, struct gpusys_error *error)
{
    int code = admit_versions(members, n_ranks, error);
    return code ? code : admit_gpus(members, n_ranks, error);
}

/* ---- on every rank ---- */

static uint32_t *all_ranks(uint32_t n_ranks)
{
    uint32_t *ranks = calloc(n_ranks, sizeof *ranks);
    for (uint32_t i = 0; ranks && i < n_ranks; i++)
        ranks[i] = i;
    return ranks;
}

int gs_comm_attach(struct gpusys_comm *comm)
{
    uint32_t *all = comm->ranks ? NULL : all_ranks(comm->n_ranks);
    if (!comm->ranks && !all)
        return -ENOMEM;
    int code = gs_party_attach(comm->party, comm->key, all ? all : comm->ranks, comm->n_ranks,
                               &gs_comm_handlers, comm);
    free(all);
    comm->attached = !code;
    return code;
}

static int meet(struct gpusys_comm *comm, const struct gs_opening *opening, struct gpusys_error *error)
{
    struct gs_party_options options = {
        .n_ranks = comm->n_ranks,
        .rank = comm->rank,
        .address = opening->options.address,
        .self = {.pid = (uint32_t)getpid(), .version = comm->version},
        .deadline_ns = opening->deadline_ns,
        .silence_ns = opening->options.silence_timeout_ns,
        .admit = gs_comm_admit,
    };
    memcpy(options.job, opening->options.job, sizeof options.job);
    memcpy(options.self.host, comm->host, sizeof options.self.host);
    memcpy(options.self.gpu, opening->gpu, sizeof options.self.gpu);
    int code = gs_party_open(&comm->party, &options, error);
    if (code)
        return code;
    comm->key = FIRST_KEY;
    code = gs_comm_attach(comm);
    return code ? gpusys_error_set_errno(error, code, "communicator: rank %u", comm->rank) : 0;
}

/* What each rank puts on the table: rank 0, or everybody who has it from the caller, the unique id. */
struct share {
    int32_t code;    /* why there is none, */
    char bytes[128]; /* and in words */
};

/* NCCL opens sockets for it and looks names up, which can take longer than there is time. */
struct id_call {
    const struct gpusys_nccl *nccl;
    struct gpusys_nccl_id id;
};

static int run_id(void *context)
{
    struct id_call *call = context;
    return call->nccl->get_unique_id(&call->id);
}

static int ask_id(const struct gpusys_comm *comm, int64_t deadline_ns, struct gpusys_nccl_id *id,
                  struct gpusys_error *error)
{
    struct gs_helper *helper;
    int result = 0;
    struct id_call *call = calloc(1, sizeof *call);
    if (!call)
        return gpusys_error_set_errno(error, -ENOMEM, "ncclGetUniqueId");
    call->nccl = comm->nccl;
    int code = gs_helper_start(&helper, run_id, free, call);
    if (code) {
        free(call);
        return gpusys_error_set_errno(error, code, "ncclGetUniqueId");
    }
    code = gs_helper_wait(helper, deadline_ns, &result);
    if (!code && !result)
        *id = call->id;
    gs_helper_let_go(helper);
    return code ? gpusys_error_set(error, code, "ncclGetUniqueId: NCCL did not come back from it in time")
                : gpusys_nccl_error(result, "ncclGetUniqueId", NULL, error);
}

static int make_id(const struct gpusys_comm *comm, const struct gs_opening *opening,
                   struct gpusys_nccl_id *id, struct gpusys_error *error)
{
    if (opening->options.id)
        *id = *opening->options.id;
    else if (comm->rank == 0)
        return ask_id(comm, opening->deadline_ns, id, error);
    return 0;
}

static int read_shares(const struct gpusys_comm *comm, const struct share *shares, bool given,
                       struct gpusys_error *error)
{
    if (shares[0].code)
        return gpusys_error_set(error, shares[0].code, "rank 0 has no unique id of NCCL: %.*s",
                                (int)sizeof shares[0].bytes, shares[0].bytes);
    for (uint32_t rank = 1; given && rank < comm->n_ranks; rank++)
        if (memcmp(shares[0].bytes, shares[rank].bytes, sizeof shares[0].bytes))
            return gpusys_error_set(error, -EBADMSG,
                                    "ranks 0 and %u were given different unique ids by their callers", rank);
    return 0;
}

/* Every rank waits for all here, so that nobody is alone in NCCL, which has no time-out of its own. */
static int agree(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error)
{
    struct gpusys_error own = {.code = 0};
    struct share mine = {.code = make_id(comm, opening, &opening->id, &own)};
    uint32_t *ranks = all_ranks(comm->n_ranks);
    struct share *shares = calloc(comm->n_ranks, sizeof *shares);
    int code = -ENOMEM;
    if (mine.code)
        snprintf(mine.bytes, sizeof mine.bytes, "%s", own.message);
    else
        memcpy(mine.bytes, opening->id.bytes, sizeof mine.bytes);
    if (ranks && shares)
        code = gs_party_gather(comm->party, comm->key, ranks, comm->n_ranks, &mine, sizeof mine, shares,
                               opening->deadline_ns, error);
    else
        gpusys_error_set_errno(error, code, "communicator: rank %u", comm->rank);
    if (mine.code && error) /* what came after follows from it */
        *error = own;
    code = mine.code ? mine.code : code ? code : read_shares(comm, shares, opening->options.id, error);
    if (!code)
        memcpy(opening->id.bytes, shares[0].bytes, sizeof opening->id.bytes);
    free(shares);
    free(ranks);
    return code;
}

int gs_comm_join(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error)
{
    if (comm->n_ranks == 1 || !opening->options.address)
        return make_id(comm, opening, &opening->id, error);
    int code = meet(comm, opening, error);
    return code ? code : agree(comm, opening, error);
}
