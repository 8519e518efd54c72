/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Communicators from communicators. A child has its own NCCL, trace and watchdog, and shares the party. */
#include "gpu/comm_open.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number that all ranks find by themselves and that no other communicator of the party has: of the parent, of how
 * many were made from it before, and of which of its parts this is. Never 0. */
static uint64_t derive(uint64_t parent, uint32_t child, int64_t part)
{
    uint64_t sum = parent;
    for (int round = 0; round < 2; round++) {
        sum += round == 0 ? child : (uint64_t)part;
        sum = (sum ^ sum >> 30) * 0xbf58476d1ce4e5b9u + 0x9e3779b97f4a7c15u;
        sum = (sum ^ sum >> 27) * 0x94d049bb133111ebu;
        sum ^= sum >> 31;
    }
    return sum ? sum : 1;
}

static const int64_t part_gather = -1, part_shrink = -2; /* the others are colours */

static uint32_t party_rank(const struct gpusys_comm *comm, uint32_t rank)
{
    return comm->ranks ? comm->ranks[rank] : rank;
}

/* ---- making the child ---- */

static int child_trace(struct gpusys_comm *child, const struct gpusys_comm *parent)
{
    if (!parent->trace)
        return 0;
    int code = gs_trace_new(&child->trace, parent->trace_entries);
    if (!code && parent->trace_path &&
        asprintf(&child->trace_path, "%s.child%u", parent->trace_path, parent->n_children) < 0) {
        child->trace_path = NULL;
        code = -ENOMEM;
    }
    return code;
}

static int child_attach(struct gpusys_comm *child, const struct gpusys_comm *parent, uint64_t key,
                        const uint32_t *members)
{
    if (!parent->party)
        return 0;
    child->ranks = calloc(child->n_ranks, sizeof *child->ranks);
    if (!child->ranks)
        return -ENOMEM;
    for (uint32_t i = 0; i < child->n_ranks; i++)
        child->ranks[i] = party_rank(parent, members[i]);
    child->key = key;
    child->party = gs_party_keep(parent->party);
    return gs_comm_attach(child);
}

/* `members` are ranks of the parent by rank of the child; NULL: not known yet. */
static int child_new(struct gpusys_comm **ret_child, const struct gpusys_comm *parent, uint64_t key,
                     const uint32_t *members, uint32_t n_members, struct gpusys_error *error)
{
    struct gpusys_comm *child = calloc(1, sizeof *child);
    if (!child)
        return gpusys_error_set_errno(error, -ENOMEM, "rank %u: a communicator from another", parent->rank);
    child->flags = parent->flags;
    child->nccl = parent->nccl;
    child->call_timeout_ns = parent->call_timeout_ns;
    child->abort_timeout_ns = parent->abort_timeout_ns;
    child->op_timeout_ns = parent->op_timeout_ns;
    child->init_timeout_ns = parent->init_timeout_ns;
    child->nonblocking = parent->nonblocking;
    child->trace_entries = parent->trace_entries;
    child->version = parent->version;
    child->device = parent->device;
    child->n_ranks = n_members;
    memcpy(child->host, parent->host, sizeof child->host);
    while (members && members[child->rank] != parent->rank)
        child->rank++;

    struct gpusys_error own;
    int code = gpusys_cuda_open(&child->cuda, parent->device, &own);
    if (!code) {
        code = gs_watch_new(child);
        code = code ? code : child_trace(child, parent);
        code = code ? code : child_attach(child, parent, key, members);
        gpusys_error_set_errno(&own, code, "rank %u: a communicator from another", parent->rank);
    }
    if (code) {
        if (error)
            *error = own;
        gs_comm_free(child);
        return code;
    }
    *ret_child = child;
    return 0;
}

/* NCCL has answered `result` to the call that makes it: the child runs, or is gone and the error filled. */
static int child_up(struct gpusys_comm *child, struct ncclComm *handle, int result, int64_t deadline_ns,
                    const char *call, struct gpusys_error *error)
{
    if (!result && !handle)
        result = GPUSYS_NCCL_INTERNAL_ERROR;
    if (!result)
        result = gs_comm_settle(child, handle, GPUSYS_NCCL_IN_PROGRESS, deadline_ns);
    if (!result && !child->n_ranks) {
        int n_ranks = 0, rank = 0;
        result = child->nccl->comm_count(handle, &n_ranks);
        result = result ? result : child->nccl->comm_user_rank(handle, &rank);
        child->n_ranks = (uint32_t)n_ranks;
        child->rank = (uint32_t)rank;
    }
    if (!result) {
        child->handle = handle;
        result = gs_watch_start(child);
    }
    return result ? gs_comm_init_failed(child, handle, result, call, error) : 0;
}

/* ---- split ---- */

struct seat {
    int32_t color, key;
};

/* Who has my colour, by key and then by rank of the parent. */
static uint32_t choose(const struct gpusys_comm *parent, const struct seat *seats, uint32_t *members)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < parent->n_ranks; rank++) {
        if (seats[rank].color != seats[parent->rank].color)
            continue;
        uint32_t at = n++;
        for (; at > 0 && seats[members[at - 1]].key > seats[rank].key; at--)
            members[at] = members[at - 1];
        members[at] = rank;
    }
    return n;
}

static int gather_seats(struct gpusys_comm *parent, struct seat mine, struct seat *seats, uint32_t *ranks,
                        int64_t deadline_ns, struct gpusys_error *error)
{
    for (uint32_t rank = 0; rank < parent->n_ranks; rank++)
        ranks[rank] = party_rank(parent, rank);
    return gs_party_gather(parent->party, derive(parent->key, parent->n_children, part_gather), ranks,
                           parent->n_ranks, &mine, sizeof mine, seats, deadline_ns, error);
}

/* The child, not yet with NCCL; NULL for those that are to be in no part. */
static int split_plan(struct gpusys_comm *parent, int color, int key, int64_t deadline_ns,
                      struct gpusys_comm **ret_child, struct gpusys_error *error)
{
    const struct seat mine = {.color = color, .key = key};
    uint64_t child_key = derive(parent->key, parent->n_children, color);
    *ret_child = NULL;
    if (!parent->party)
        return color == GPUSYS_NCCL_NO_COLOR ? 0 : child_new(ret_child, parent, child_key, NULL, 0, error);
    struct seat *seats = calloc(parent->n_ranks, sizeof *seats);
    uint32_t *members = calloc(parent->n_ranks, sizeof *members);
    int code = -ENOMEM;
    if (seats && members)
        code = gather_seats(parent, mine, seats, members, deadline_ns, error);
    else
        gpusys_error_set_errno(error, code, "rank %u: a communicator from another", parent->rank);
    if (!code && color != GPUSYS_NCCL_NO_COLOR) {
        uint32_t n_members = choose(parent, seats, members);
        code = child_new(ret_child, parent, child_key, members, n_members, error);
    }
    free(members);
    free(seats);
    return code;
}

static int split_result(struct gpusys_comm *parent, int color, int key, struct ncclComm **ret_handle,
                        int64_t deadline_ns)
{
    int result = parent->nccl->comm_split(parent->handle, color, key, ret_handle, NULL);
    return gs_comm_settle(parent, parent->handle, result, deadline_ns);
}

/* The parent was to make it and failed, or said no. */
static int split_outside(struct gpusys_comm *parent, int result, struct gpusys_error *error)
{
    if (result == -ETIMEDOUT && !atomic_load(&parent->code)) {
        struct gpusys_error own;
        gpusys_error_set(&own, -ETIMEDOUT, "ncclCommSplit: not through by the deadline");
        gs_comm_fail(parent, -ETIMEDOUT, &own, true);
    }
    return result > 0 ? gpusys_nccl_error(result, "ncclCommSplit", parent->handle, error)
                      : gpusys_comm_failure(parent, error);
}

static int in_a_group(const struct gpusys_comm *parent, const char *what, struct gpusys_error *error)
{
    gpusys_error_set(error, -EINVAL, "rank %u: %s while a group is open on this thread", parent->rank, what);
    gpusys_error_set_hint(error, "do it before gpusys_comm_group_start or after gpusys_comm_group_end");
    return -EINVAL;
}

int gpusys_comm_split(struct gpusys_comm *parent, int color, int key, struct gpusys_comm **ret_comm,
                      struct gpusys_error *error)
{
    int64_t deadline_ns = gpusys_deadline_after(parent->init_timeout_ns);
    struct gpusys_comm *child;
    struct ncclComm *handle = NULL;
    if (color < 0 && color != GPUSYS_NCCL_NO_COLOR)
        return gpusys_error_set(error, -EINVAL,
                                "rank %u: split by colour %d: it is 0 or more, or -1 for none", parent->rank,
                                color);
    if (!parent->nccl->comm_split)
        return gpusys_nccl_missing("ncclCommSplit", error);
    if (gs_group_is_open())
        return in_a_group(parent, "split", error);
    if (atomic_load(&parent->code))
        return gpusys_comm_failure(parent, error);
    int code = split_plan(parent, color, key, deadline_ns, &child, error);
    parent->n_children++;
    if (code)
        return code;
    if (gs_comm_enter(parent)) {
        if (child)
            gs_comm_free(child);
        return gpusys_comm_failure(parent, error);
    }
    int result = split_result(parent, color, key, &handle, deadline_ns);
    if (child)
        code = child_up(child, handle, result, deadline_ns, "ncclCommSplit", error);
    gs_comm_leave(parent);
    if (!child && result)
        return split_outside(parent, result, error);
    if (code) {
        gs_comm_free(child);
        return code;
    }
    *ret_comm = child;
    return 0;
}

/* ---- shrink ---- */

/* The ranks that are left, in order; 0 when the list makes no sense. */
static uint32_t survivors(const struct gpusys_comm *parent, const uint32_t *exclude, uint32_t n_exclude,
                          uint32_t *members, struct gpusys_error *error)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < parent->n_ranks; rank++)
        members[rank] = rank;
    for (uint32_t i = 0; i < n_exclude; i++) {
        if (exclude[i] >= parent->n_ranks || exclude[i] == parent->rank ||
            members[exclude[i]] == parent->n_ranks) {
            gpusys_error_set(error, -EINVAL, "rank %u of %u: shrink without rank %u: it is %s", parent->rank,
                             parent->n_ranks, exclude[i],
                             exclude[i] >= parent->n_ranks ? "not in the communicator"
                             : exclude[i] == parent->rank  ? "this one"
                                                           : "named twice");
            return 0;
        }
        members[exclude[i]] = parent->n_ranks;
    }
    for (uint32_t rank = 0; rank < parent->n_ranks; rank++)
        if (members[rank] != parent->n_ranks)
            members[n++] = rank;
    return n;
}

/* All that are left are here, and leave out the same ones: the party tells when they do not. */
static int shrink_meet(struct gpusys_comm *parent, const uint32_t *members, uint32_t n_members,
                       int64_t deadline_ns, struct gpusys_error *error)
{
    if (!parent->party)
        return 0;
    uint8_t here = 1, *all = calloc(n_members, 1);
    uint32_t *ranks = calloc(n_members, sizeof *ranks);
    int code = -ENOMEM;
    for (uint32_t i = 0; ranks && i < n_members; i++)
        ranks[i] = party_rank(parent, members[i]);
    if (all && ranks)
        code = gs_party_gather(parent->party, derive(parent->key, parent->n_children, part_gather), ranks,
                               n_members, &here, sizeof here, all, deadline_ns, error);
    else
        gpusys_error_set_errno(error, code, "rank %u: a communicator from another", parent->rank);
    free(ranks);
    free(all);
    return code;
}

/*
 * A parent that is healthy is asked until it is through. What one that has failed says of itself is its old failure; the
 * child's handle tells whether it was made.
 */
static int shrink_result(struct gpusys_comm *parent, struct gpusys_comm *child, int *exclude,
                         uint32_t n_exclude, int flags, struct ncclComm **ret_handle, int64_t deadline_ns)
{
    bool healthy = !gs_comm_enter(parent);
    int result = parent->nccl->comm_shrink(parent->handle, exclude, (int)n_exclude, ret_handle, NULL, flags);
    bool asked = result == GPUSYS_NCCL_IN_PROGRESS;
    result = gs_comm_settle(healthy ? parent : child, parent->handle, result, deadline_ns);
    if (healthy)
        gs_comm_leave(parent);
    else if (asked && result > 0 && *ret_handle)
        result = 0;
    return result;
}

static int shrink_to(struct gpusys_comm *parent, const uint32_t *members, uint32_t n_members, int *exclude,
                     uint32_t n_exclude, int flags, struct gpusys_comm **ret_comm, struct gpusys_error *error)
{
    int64_t deadline_ns = gpusys_deadline_after(parent->init_timeout_ns);
    struct gpusys_comm *child = NULL;
    struct ncclComm *handle = NULL;
    int code = shrink_meet(parent, members, n_members, deadline_ns, error);
    if (!code)
        code = child_new(&child, parent, derive(parent->key, parent->n_children, part_shrink), members,
                         n_members, error);
    parent->n_children++;
    if (code)
        return code;
    int result = shrink_result(parent, child, exclude, n_exclude, flags, &handle, deadline_ns);
    code = child_up(child, handle, result, deadline_ns, "ncclCommShrink", error);
    if (code)
        gs_comm_free(child);
    else
        *ret_comm = child;
    return code;
}

/* May it be shrunk as it is? */
static int shrink_check(const struct gpusys_comm *parent, const uint32_t *exclude, uint32_t n_exclude,
                        int flags, struct gpusys_error *error)
{
    if (!n_exclude || !exclude)
        return gpusys_error_set(error, -EINVAL, "rank %u: shrink without leaving anybody out", parent->rank);
    if (!parent->nccl->comm_shrink)
        return gpusys_nccl_missing("ncclCommShrink", error);
    if (gs_group_is_open())
        return in_a_group(parent, "shrink", error);
    if (flags & ~GPUSYS_NCCL_SHRINK_ABORT)
        return gpusys_error_set(error, -EINVAL, "rank %u: shrink: flags 0x%x are not known", parent->rank,
                                (unsigned)(flags & ~GPUSYS_NCCL_SHRINK_ABORT));
    int code = gpusys_comm_failure(parent, error);
    if (code && (flags & GPUSYS_NCCL_SHRINK_ABORT) && (parent->flags & GPUSYS_COMM_KEEP))
        return 0;
    if (code)
        gpusys_error_set_hint(
            error, "a communicator that has failed can be shrunk only with GPUSYS_NCCL_SHRINK_ABORT, "
                   "and if it was opened with GPUSYS_COMM_KEEP: open another");
    return code;
}

int gpusys_comm_shrink(struct gpusys_comm *parent, const uint32_t *exclude, uint32_t n_exclude, int flags,
                       struct gpusys_comm **ret_comm, struct gpusys_error *error)
{
    int code = shrink_check(parent, exclude, n_exclude, flags, error);
    if (code)
        return code;
    uint32_t *members = calloc(parent->n_ranks, sizeof *members);
    int *left_out = calloc((size_t)n_exclude + 1, sizeof *left_out);
    uint32_t n_members = 0;
    if (members && left_out) {
        n_members = survivors(parent, exclude, n_exclude, members, error);
        code = n_members ? 0 : -EINVAL;
    } else {
        code = gpusys_error_set_errno(error, -ENOMEM, "rank %u: a communicator from another", parent->rank);
    }
    for (uint32_t i = 0; i < n_exclude && !code; i++)
        left_out[i] = (int)exclude[i];
    if (!code)
        code = shrink_to(parent, members, n_members, left_out, n_exclude, flags, ret_comm, error);
    free(left_out);
    free(members);
    return code;
}
