/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From what the ranks answered to who is at fault. */
#include "gpu/party_inner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is being written. */
struct verdict {
    const struct gs_answer *answers;
    uint32_t n;
    const struct gs_member *members;
    struct gs_failure *failure;
};

/* A record and whose it is. */
struct entry {
    const struct gs_record *record;
    uint32_t rank;
};

static void suspect(struct gs_failure *failure, uint32_t rank)
{
    if (failure->n_suspects < GS_PARTY_SUSPECTS)
        failure->suspects[failure->n_suspects] = rank;
    failure->n_suspects++; /* beyond the most while counting; cut at the end */
}

/* "rank 3 (node7, process 4711)", "ranks 3 and 5". */
static void say_suspects(const struct verdict *verdict, char text[GS_PARTY_NAME_BYTES])
{
    const struct gs_failure *failure = verdict->failure;
    if (failure->n_suspects == 1)
        gs_party_say_rank(text, verdict->members, failure->suspects[0]);
    else
        gs_party_say_ranks(text, GS_PARTY_NAME_BYTES, failure->suspects, failure->n_suspects);
}

/* ---- lost, silent, away ---- */

static bool find_state(const struct verdict *verdict, int state, int code, const char *one, const char *many)
{
    char who[GS_PARTY_NAME_BYTES];
    struct gs_failure *failure = verdict->failure;
    for (uint32_t i = 0; i < verdict->n; i++)
        if ((int)verdict->answers[i].state == state)
            suspect(failure, verdict->answers[i].rank);
    if (!failure->n_suspects)
        return false;
    say_suspects(verdict, who);
    failure->code = code;
    snprintf(failure->text, sizeof failure->text, "%s %s", who, failure->n_suspects == 1 ? one : many);
    return true;
}

/* ---- who differs ---- */

static int compare_records(const struct gs_record *a, const struct gs_record *b)
{
    if (a->function != b->function)
        return a->function < b->function ? -1 : 1;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    return a->root < b->root ? -1 : a->root > b->root;
}

/* By sequence, then by what it is, then by rank: records that are alike become neighbours. */
static int compare_entries(const void *one, const void *other)
{
    const struct entry *a = one, *b = other;
    if (a->record->sequence != b->record->sequence)
        return a->record->sequence < b->record->sequence ? -1 : 1;
    int order = compare_records(a->record, b->record);
    return order ? order : a->rank < b->rank ? -1 : a->rank > b->rank;
}

static struct entry *sorted_entries(const struct verdict *verdict, size_t *ret_n)
{
    size_t n = 0;
    struct entry *entries = calloc((size_t)verdict->n * GS_PARTY_RECORDS + 1, sizeof *entries);
    for (uint32_t i = 0; entries && i < verdict->n; i++) {
        const struct gs_answer *answer = &verdict->answers[i];
        if (answer->state != GS_ANSWER_GOOD)
            continue;
        for (uint32_t k = 0; k < answer->report.n_records && k < GS_PARTY_RECORDS; k++)
            entries[n++] = (struct entry){.record = &answer->report.records[k], .rank = answer->rank};
    }
    if (entries)
        qsort(entries, n, sizeof *entries, compare_entries);
    *ret_n = n;
    return entries;
}

/* How many from `at` on are like the first. */
static size_t run_of(const struct entry *at, size_t n, bool by_sequence_only)
{
    size_t length = 1;
    while (length < n && at[length].record->sequence == at->record->sequence &&
           (by_sequence_only || compare_records(at[length].record, at->record) == 0))
        length++;
    return length;
}

/* What it says without the words in brackets, which are the same on both sides. */
static void say_record(const struct gs_record *record, char text[GS_RECORD_TEXT_BYTES])
{
    gs_record_text(record, text);
    char *bracket = strrchr(text, '(');
    if (bracket && bracket > text)
        bracket[-1] = 0;
}

/* Nobody is in the majority: the two largest parts are shown, and all are suspect. */
static void say_split(const struct verdict *verdict, const struct entry *at, const struct entry *other)
{
    char a[GS_PARTY_NAME_BYTES], b[GS_PARTY_NAME_BYTES], x[GS_RECORD_TEXT_BYTES], y[GS_RECORD_TEXT_BYTES];
    if (at->rank > other->rank) {
        const struct entry *swap = at;
        at = other;
        other = swap;
    }
    gs_party_say_rank(a, verdict->members, at->rank);
    gs_party_say_rank(b, verdict->members, other->rank);
    say_record(at->record, x);
    say_record(other->record, y);
    snprintf(verdict->failure->text, sizeof verdict->failure->text,
             "the ranks differ at collective %" PRIu64 ": %s submitted %s, %s %s", at->record->sequence, a, x,
             b, y);
}

static void say_minority(const struct verdict *verdict, const struct entry *minority,
                         const struct entry *majority)
{
    char who[GS_PARTY_NAME_BYTES], x[GS_RECORD_TEXT_BYTES], y[GS_RECORD_TEXT_BYTES], rank[48] = "";
    struct gs_failure *failure = verdict->failure;
    say_suspects(verdict, who);
    say_record(minority->record, x);
    say_record(majority->record, y);
    if (failure->n_suspects > 1)
        snprintf(rank, sizeof rank, "rank %u ", minority->rank);
    snprintf(failure->text, sizeof failure->text,
             "%s %s at collective %" PRIu64 ": %ssubmitted %s, the others %s", who,
             failure->n_suspects == 1 ? "differs" : "differ", minority->record->sequence,
             failure->n_suspects == 1 ? "it " : rank, x, y);
}

/* All entries of one collective, of which not all are alike. */
static void tell_apart(const struct verdict *verdict, const struct entry *at, size_t n)
{
    const struct entry *largest = at, *second = NULL;
    size_t most = 0, next = 0;
    for (size_t i = 0, length; i < n; i += length) {
        length = run_of(at + i, n - i, false);
        if (length > most) {
            second = most ? largest : NULL;
            next = most;
            largest = at + i;
            most = length;
        } else if (length > next) {
            second = at + i;
            next = length;
        }
    }
    bool has_majority = 2 * most > n;
    for (size_t i = 0; i < n; i++)
        if (!has_majority || at + i < largest || at + i >= largest + most)
            suspect(verdict->failure, at[i].rank);
    verdict->failure->code = -EBADMSG;
    if (!has_majority)
        say_split(verdict, largest, second);
    else
        say_minority(verdict, largest == at ? at + most : at, largest);
}

static bool find_difference(const struct verdict *verdict)
{
    size_t n;
    struct entry *entries = sorted_entries(verdict, &n);
    bool found = false;
    for (size_t i = 0, all; entries && !found && i < n; i += all) {
        all = run_of(entries + i, n - i, true);
        found = run_of(entries + i, n - i, false) < all;
        if (found)
            tell_apart(verdict, entries + i, all);
    }
    free(entries);
    return found;
}

/* ---- who lags ---- */

static const struct gs_record *record_at(const struct verdict *verdict, uint64_t sequence)
{
    for (uint32_t i = 0; i < verdict->n; i++)
        for (uint32_t k = 0;
             verdict->answers[i].state == GS_ANSWER_GOOD && k < verdict->answers[i].report.n_records; k++)
            if (verdict->answers[i].report.records[k].sequence == sequence)
                return &verdict->answers[i].report.records[k];
    return NULL;
}

/* It answered, and keeps account of what it does. */
static bool counts(const struct gs_answer *answer)
{
    return answer->state == GS_ANSWER_GOOD && answer->report.submitted != GS_REPORT_NO_ACCOUNT;
}

static uint64_t most_submitted(const struct verdict *verdict)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < verdict->n; i++)
        if (counts(&verdict->answers[i]) && verdict->answers[i].report.submitted > most)
            most = verdict->answers[i].report.submitted;
    return most;
}

/* The others may be apart among themselves: then it is "up to". */
static const char *others_word(const struct verdict *verdict, uint64_t least, uint64_t most)
{
    for (uint32_t i = 0; i < verdict->n; i++) {
        uint64_t submitted = verdict->answers[i].report.submitted;
        if (counts(&verdict->answers[i]) && submitted != least && submitted != most)
            return "up to ";
    }
    return "";
}

static void say_lag(const struct verdict *verdict, uint64_t least, uint64_t most)
{
    char who[GS_PARTY_NAME_BYTES], record[GS_RECORD_TEXT_BYTES];
    struct gs_failure *failure = verdict->failure;
    bool is_one = failure->n_suspects == 1;
    const struct gs_record *next = record_at(verdict, least + 1);
    say_suspects(verdict, who);
    int used = snprintf(
        failure->text, sizeof failure->text, "%s %s submitted %" PRIu64 " collectives, the others %s%" PRIu64,
        who, is_one ? "lags: it has" : "lag: they have", least, others_word(verdict, least, most), most);
    if (next && used > 0 && (size_t)used < sizeof failure->text) {
        gs_record_text(next, record);
        snprintf(failure->text + used, sizeof failure->text - (size_t)used, "; %s never came to %s",
                 is_one ? "it" : "they", record);
    }
}

/* Those that are furthest behind. */
static bool find_laggards(const struct verdict *verdict)
{
    uint64_t most = most_submitted(verdict), least = most;
    for (uint32_t i = 0; i < verdict->n; i++)
        if (counts(&verdict->answers[i]) && verdict->answers[i].report.submitted < least)
            least = verdict->answers[i].report.submitted;
    if (least == most)
        return false;
    for (uint32_t i = 0; i < verdict->n; i++)
        if (counts(&verdict->answers[i]) && verdict->answers[i].report.submitted == least)
            suspect(verdict->failure, verdict->answers[i].rank);
    verdict->failure->code = -ETIMEDOUT;
    say_lag(verdict, least, most);
    return true;
}

static void find_nobody(const struct verdict *verdict)
{
    char before[GS_PARTY_TEXT_BYTES];
    struct gs_failure *failure = verdict->failure;
    uint32_t silent = 0; /* about what they do */
    for (uint32_t i = 0; i < verdict->n; i++)
        silent += !counts(&verdict->answers[i]);
    memcpy(before, failure->text, sizeof before);
    if (silent)
        snprintf(failure->text, sizeof failure->text,
                 "%.120s; %u of %u ranks keep no trace, so that nobody can say who lags", before, silent,
                 verdict->n);
    else
        snprintf(failure->text, sizeof failure->text,
                 "%.120s; all %u ranks submitted the same %" PRIu64
                 " collectives, so that it is the network or a GPU",
                 before, verdict->n, most_submitted(verdict));
}

void gs_verdict(const struct gs_answer *answers, uint32_t n, const struct gs_member *members,
                struct gs_failure *failure)
{
    struct verdict verdict = {.answers = answers, .n = n, .members = members, .failure = failure};
    failure->n_suspects = 0;
    if (!find_state(&verdict, GS_ANSWER_LOST, -ECONNRESET, "is lost", "are lost") &&
        !find_difference(&verdict) &&
        !find_state(&verdict, GS_ANSWER_SILENT, -EHOSTDOWN,
                    "does not answer: its process hangs or is stopped",
                    "do not answer: their processes hang or are stopped") &&
        !find_state(&verdict, GS_ANSWER_AWAY, -ETIMEDOUT,
                    "takes no part in it: it has closed the communicator, or not opened it yet",
                    "take no part in it: they have closed the communicator, or not opened it yet") &&
        !find_laggards(&verdict))
        find_nobody(&verdict);
    if (failure->n_suspects > GS_PARTY_SUSPECTS)
        failure->n_suspects = GS_PARTY_SUSPECTS;
}
