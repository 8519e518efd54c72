/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The failure of a communicator: recorded once, told to the other ranks, or told by them. */
#include "gpu/watch.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The hub asks for a second or two; a rank that hears nothing after this goes by what it knows itself. */
static const int64_t judgement_ns = 5000000000;

const char *gs_rank_text(const struct gpusys_comm *comm, uint32_t rank, char text[GS_RANK_TEXT_BYTES])
{
    if (comm->party) {
        const struct gs_member *member =
            &gs_party_members(comm->party)[comm->ranks ? comm->ranks[rank] : rank];
        snprintf(text, GS_RANK_TEXT_BYTES, "rank %u (%.63s, process %u)", rank, member->host, member->pid);
    } else if (rank == comm->rank) {
        snprintf(text, GS_RANK_TEXT_BYTES, "rank %u (%.63s, process %d)", rank, comm->host, (int)getpid());
    } else {
        snprintf(text, GS_RANK_TEXT_BYTES, "rank %u", rank);
    }
    return text;
}

static void what_next(struct gpusys_error *error)
{
    if (error->hint[0])
        return;
    gpusys_error_set_hint(error, "%sclose this communicator and open another",
                          error->code == -ECONNRESET || error->code == -EHOSTDOWN
                              ? "see what that process last said, and dmesg of its host; "
                              : "");
}

/* The first one wins. Returns the code that holds; *ret_first: it is this one. */
static int record(struct gpusys_comm *comm, const struct gpusys_error *error, const uint32_t *suspects,
                  uint32_t n_suspects, bool *ret_first)
{
    struct gs_watch *watch = comm->watch;
    pthread_mutex_lock(&watch->lock);
    int code = atomic_load_explicit(&comm->code, memory_order_relaxed);
    *ret_first = !code;
    if (!code) {
        code = error->code;
        watch->failure = *error;
        what_next(&watch->failure);
        watch->n_suspects = n_suspects;
        if (n_suspects)
            memcpy(watch->suspects, suspects, n_suspects * sizeof suspects[0]);
        if (watch->state == GPUSYS_COMM_HEALTHY)
            watch->state = GPUSYS_COMM_UNHEALTHY;
        atomic_store(&comm->code, code);
        pthread_cond_broadcast(&watch->changed);
    }
    pthread_mutex_unlock(&watch->lock);
    return code;
}

int gs_comm_await_failure(struct gpusys_comm *comm, int64_t deadline_ns)
{
    struct gs_watch *watch = comm->watch;
    struct timespec until = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    int late = 0, code;
    pthread_mutex_lock(&watch->lock);
    while (!(code = atomic_load_explicit(&comm->code, memory_order_relaxed)) && !late)
        late = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    pthread_mutex_unlock(&watch->lock);
    return code;
}

/* Tell the others, in the name of this rank. */
static void alarm_party(struct gpusys_comm *comm, const struct gpusys_error *error, bool judge)
{
    char who[GS_RANK_TEXT_BYTES], text[GS_PARTY_TEXT_BYTES];
    if (!comm->party)
        return;
    snprintf(text, sizeof text, "%s: %s", gs_rank_text(comm, comm->rank, who), error->message);
    gs_party_alarm(comm->party, comm->key, error->code, text, judge);
}

/* What the ranks were judged by says nothing of what this one saw. */
static void note_own(struct gpusys_comm *comm, const struct gpusys_error *own)
{
    pthread_mutex_lock(&comm->watch->lock);
    if (!strstr(comm->watch->failure.message, own->message) &&
        !strstr(comm->watch->failure.detail, own->message))
        gpusys_error_add_detail(&comm->watch->failure, "seen here", "%s", own->message);
    pthread_mutex_unlock(&comm->watch->lock);
}

int gs_comm_fail(struct gpusys_comm *comm, int code, const struct gpusys_error *error, bool judge)
{
    struct gpusys_error own;
    if (error)
        own = *error;
    else
        gpusys_error_set(&own, code, "the communicator failed: %s", strerrordesc_np(-code));
    own.code = code;
    gpusys_error_add_detail(&own, "rank", "%u of %u (%s, process %d), GPU %u", comm->rank, comm->n_ranks,
                            comm->host, (int)getpid(), comm->device);

    bool first, ask = judge && comm->party;
    if (ask) {
        alarm_party(comm, &own, true);
        int verdict = gs_comm_await_failure(comm, gpusys_deadline_after(judgement_ns));
        if (verdict) {
            note_own(comm, &own);
            return verdict;
        }
    }
    /* A failure that nobody judged, and that is not a call of the user's, is this rank's own. */
    bool suspect = !judge && code != -ECANCELED;
    code = record(comm, &own, &comm->rank, suspect, &first);
    if (first && !ask)
        alarm_party(comm, &own, false);
    return code;
}

/* ---- what the party calls, on its thread ---- */

/* A rank of the party as one of the communicator; n_ranks: it is not in it. */
static uint32_t rank_here(const struct gpusys_comm *comm, uint32_t rank)
{
    if (!comm->ranks)
        return rank < comm->n_ranks ? rank : comm->n_ranks;
    for (uint32_t i = 0; i < comm->n_ranks; i++)
        if (comm->ranks[i] == rank)
            return i;
    return comm->n_ranks;
}

static void failed(void *context, const struct gs_failure *failure)
{
    struct gpusys_comm *comm = context;
    uint32_t suspects[GS_PARTY_SUSPECTS], n = 0;
    char who[GS_RANK_TEXT_BYTES];
    struct gpusys_error error;
    bool first;
    gpusys_error_set(&error, failure->code, "%s", failure->text);
    for (uint32_t i = 0; i < failure->n_suspects && i < GS_PARTY_SUSPECTS; i++) {
        uint32_t rank = rank_here(comm, failure->suspects[i]);
        if (rank == comm->n_ranks)
            continue;
        suspects[n++] = rank;
        gpusys_error_add_detail(&error, "suspect", "%s", gs_rank_text(comm, rank, who));
    }
    record(comm, &error, suspects, n, &first);
}

static void report(void *context, struct gs_report *ret_report)
{
    struct gpusys_comm *comm = context;
    memset(ret_report, 0, sizeof *ret_report);
    ret_report->submitted = GS_REPORT_NO_ACCOUNT;
    if (comm->trace)
        gs_trace_report(comm->trace, ret_report);
    /* The last one is recorded when NCCL is called, and submitted when that comes back. */
    bool calls = gs_inside_now(atomic_load(&comm->inside)) && !atomic_load(&comm->held);
    if (calls && ret_report->n_records) {
        ret_report->n_records--;
        ret_report->submitted--;
    }
}

const struct gs_party_handlers gs_comm_handlers = {.report = report, .failed = failed};
