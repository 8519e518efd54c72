/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Groups: what is submitted between start and end on one thread, to how many communicators ever. */
#include "gpu/comm_ops.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <stdlib.h>

_Atomic uint32_t gs_groups_open;

/* What is to be watched, by communicator and stream, up to a sequence. */
struct mark {
    struct gpusys_comm *comm;
    struct CUstream_st *stream;
    uint64_t sequence;
};

/* This thread's group. */
static _Thread_local struct {
    uint32_t depth;
    struct gpusys_comm *first, *last; /* a list by next_grouped */
    int code;                         /* of the first operation that was refused or failed */
    struct gpusys_comm *culprit; /* whose call NCCL refused with `result`; NULL with a result: all of them */
    int result;
    const char *name; /* of that call */
    struct mark *marks;
    size_t n_marks, room;
} group;

bool gs_group_is_open(void)
{
    return group.depth > 0;
}

int gs_group_enter(struct gpusys_comm *comm, bool *ret_grouped)
{
    *ret_grouped = group.depth > 0;
    if (!group.depth)
        return gs_comm_enter(comm);
    if (comm->next_grouped)
        return atomic_load(&comm->code);
    atomic_store(&comm->held, true); /* first, or the abort could take the entry for a short one */
    int code = gs_comm_enter(comm);
    if (code) {
        atomic_store(&comm->held, false);
        return code;
    }
    if (group.last)
        group.last->next_grouped = comm;
    else
        group.first = comm;
    group.last = comm;
    comm->next_grouped = comm;
    return 0;
}

void gs_group_note(int code)
{
    if (group.depth && !group.code)
        group.code = code;
}

static void note_result(struct gpusys_comm *comm, int result, const char *name)
{
    if (group.result)
        return;
    group.culprit = comm;
    group.result = result;
    group.name = name;
}

void gs_group_note_result(struct gpusys_comm *comm, int result, enum gs_function function)
{
    note_result(comm, result, gs_function_symbol(function));
}

static struct mark *find_mark(const struct gpusys_comm *comm, const struct CUstream_st *stream)
{
    for (size_t i = 0; i < group.n_marks; i++)
        if (group.marks[i].comm == comm && group.marks[i].stream == stream)
            return &group.marks[i];
    return NULL;
}

void gs_group_watch(struct gpusys_comm *comm, struct CUstream_st *stream, uint64_t sequence)
{
    struct mark *mark = find_mark(comm, stream);
    if (!mark && group.n_marks == group.room) {
        size_t room = group.room ? 2 * group.room : 8;
        mark = realloc(group.marks, room * sizeof *mark);
        if (!mark)
            return; /* not watched: the wait for the stream has a deadline too */
        group.marks = mark;
        group.room = room;
        mark = NULL;
    }
    if (!mark)
        mark = &group.marks[group.n_marks++];
    *mark = (struct mark){comm, stream, sequence};
}

int gs_comm_leave_failed(struct gpusys_comm *comm, int result, const char *name)
{
    struct gpusys_error error;
    int code = result, failure = atomic_load(&comm->code);
    if (!failure && result > 0) /* the text may come from the handle, which goes with a failure */
        code = gpusys_nccl_error(result, name, comm->handle, &error);
    else if (!failure)
        gpusys_error_set(&error, code, "%s did not come back within %.3f s", name,
                         (double)comm->call_timeout_ns / 1e9);
    gs_comm_leave(comm);
    return failure ? failure : gs_comm_fail(comm, code, &error, result < 0 || gs_comm_is_remote(result));
}

static int bare_code(int result)
{
    return result && result != GPUSYS_NCCL_IN_PROGRESS ? gpusys_nccl_error(result, "ncclGroup", NULL, NULL)
                                                       : 0;
}

int gpusys_comm_group_start(void)
{
    const struct gpusys_nccl *nccl;
    int code = gpusys_nccl_table(&nccl, NULL);
    if (!code)
        code = bare_code(nccl->group_start());
    if (code)
        return code;
    if (group.depth++ == 0)
        atomic_fetch_add_explicit(&gs_groups_open, 1, memory_order_relaxed);
    return 0;
}

/* The operations of one communicator are all submitted, or it fails. */
static int end_one(struct gpusys_comm *comm, int result)
{
    const char *name = "ncclGroupEnd";
    if (group.result && (!group.culprit || group.culprit == comm)) {
        result = group.result;
        name = group.name;
    } else if (result == GPUSYS_NCCL_SUCCESS && comm->nonblocking) {
        result = GPUSYS_NCCL_IN_PROGRESS; /* as long as the communicator itself does not say otherwise */
    }
    result = gs_comm_settle(comm, comm->handle, result, gpusys_deadline_after(comm->call_timeout_ns));
    if (result)
        return gs_comm_leave_failed(comm, result, name);
    for (size_t i = 0; i < group.n_marks; i++)
        if (group.marks[i].comm == comm)
            gs_comm_watch_op(comm, group.marks[i].stream, group.marks[i].sequence);
    gs_comm_leave(comm);
    return 0;
}

/* From here on they wait for NCCL, not for the caller. */
static void let_go(void)
{
    for (struct gpusys_comm *comm = group.first, *before = NULL; comm && comm != before;
         comm = comm->next_grouped) {
        atomic_store(&comm->held, false);
        before = comm;
    }
}

static int end_all(int result)
{
    struct gpusys_comm *comm = group.first;
    while (comm) {
        struct gpusys_comm *next = comm->next_grouped == comm ? NULL : comm->next_grouped;
        comm->next_grouped = NULL;
        int code = end_one(comm, result);
        gs_group_note(code);
        if (comm->close_at_end)
            gpusys_comm_close(comm);
        comm = next;
    }
    gs_group_note(
        bare_code(group.result ? group.result : result)); /* also when there was no communicator in it */
    return group.code;
}

int gpusys_comm_group_end(void)
{
    const struct gpusys_nccl *nccl;
    if (!group.depth)
        return -EINVAL;
    int code = gpusys_nccl_table(&nccl, NULL); /* it was there at the start */
    if (code)
        return code;
    if (group.depth == 1)
        let_go();
    int result = nccl->group_end();
    if (group.depth > 1) {
        group.depth--;
        if (bare_code(result))
            note_result(NULL, result, "ncclGroupEnd");
        return bare_code(result);
    }
    code = end_all(result);
    free(group.marks);
    group = (typeof(group)){0};
    atomic_fetch_sub_explicit(&gs_groups_open, 1, memory_order_relaxed);
    return code;
}
