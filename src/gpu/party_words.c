/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ranks and records in words. */
#include "gpu/party_inner.h"

#include "gpu/function.h"

#include <gpusys/nccl.h>
#include <inttypes.h>
#include <stdio.h>

void gs_party_say_rank(char text[GS_PARTY_NAME_BYTES], const struct gs_member *members, uint32_t rank)
{
    if (!members)
        snprintf(text, GS_PARTY_NAME_BYTES, "rank %u", rank);
    else
        snprintf(text, GS_PARTY_NAME_BYTES, "rank %u (%.*s, process %u)", rank,
                 (int)sizeof members[rank].host - 1, members[rank].host, members[rank].pid);
}

void gs_party_say_ranks(char *text, size_t size, const uint32_t *ranks, uint32_t total)
{
    uint32_t n = total < GS_PARTY_SUSPECTS ? total : GS_PARTY_SUSPECTS;
    size_t used = (size_t)snprintf(text, size, total == 1 ? "rank" : "ranks");
    for (uint32_t i = 0; i < n && used < size; i++) {
        const char *between = i == 0 ? " " : i + 1 == total ? " and " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%u", between, ranks[i]);
    }
    if (total > n && used < size)
        snprintf(text + used, size - used, " and %u more", total - n);
}

void gs_record_text(const struct gs_record *record, char text[GS_RECORD_TEXT_BYTES])
{
    const struct gs_function_row *row = gs_function(record->function);
    size_t used = (size_t)snprintf(text, GS_RECORD_TEXT_BYTES, "%s of %" PRIu64 " %s",
                                   row->name ? row->name : "an unknown function", record->count,
                                   gpusys_nccl_type_name(record->type));
    if (row->has_op)
        used += (size_t)snprintf(text + used, GS_RECORD_TEXT_BYTES - used, ", %s",
                                 gpusys_nccl_op_name(record->op));
    if (row->has_root)
        used += (size_t)snprintf(text + used, GS_RECORD_TEXT_BYTES - used, ", %s %u",
                                 row->collective ? "root" : "peer", record->root);
    snprintf(text + used, GS_RECORD_TEXT_BYTES - used, " (collective %" PRIu64 ")", record->sequence);
}
