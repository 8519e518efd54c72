/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The client's steps: the server's half read and kept, ours sent, every queue pair connected. */
#include "rail/railset.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the server's half ---- */

int gpusys_railset_read_server_ro(struct gpusys_railset *set, int64_t deadline_ns, struct gpusys_error *error)
{
    int result = gs_railset_check_side(set, false, "reading the server's table", error);
    if (result)
        return result;
    struct gpusys_verbs_server_params *tables = calloc(set->n_slots, sizeof *tables);
    if (!tables)
        return gpusys_error_set_errno(error, -ENOMEM, "the tables of %u rails", set->n_slots);
    result = gpusys_handshake_client_read_ro(&set->handshake, tables, set->n_slots, deadline_ns, error);
    if (result)
        free(tables); /* a failed read leaves no regions in them */
    else
        set->tables = tables;
    return result;
}

/* The one region of every rail becomes a table of one. */
static void fill_tables(struct gpusys_verbs_server_params *tables, struct gpusys_region_key *arenas,
                        const struct gpusys_cache_server_params *rails, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        arenas[i] = rails[i].region;
        tables[i] = (struct gpusys_verbs_server_params){
            .qp = rails[i].qp, .n_regions = 1, .capacity = 1, .regions = &arenas[i]};
    }
}

int gpusys_railset_read_server_rw(struct gpusys_railset *set, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_cache_server_params rails[GPUSYS_MAX_RAILS_READ_WRITE];
    int result = gs_railset_check_side(set, false, "reading the server's arena", error);
    if (result)
        return result;
    struct gpusys_verbs_server_params *tables = calloc(set->n_slots, sizeof *tables);
    struct gpusys_region_key *arenas = calloc(set->n_slots, sizeof *arenas);
    if (tables && arenas)
        result = gpusys_handshake_client_read_rw(&set->handshake, rails, set->n_slots, deadline_ns, error);
    else
        result = gpusys_error_set_errno(error, -ENOMEM, "the arenas of %u rails", set->n_slots);
    if (result) {
        free(tables);
        free(arenas);
        return result;
    }
    fill_tables(tables, arenas, rails, set->n_slots);
    set->tables = tables;
    set->arenas = arenas;
    return 0;
}

/* ---- ours ---- */

/* Everything is looked at before anything is sent: a peer that is wrong on one rail gets no half. */
static int collect(const struct gpusys_railset *set, struct gpusys_qp_params *own, struct gpusys_error *error)
{
    char name[GS_RAIL_TEXT];
    for (uint32_t i = 0; i < set->n_slots; i++) {
        int result = gs_railset_own_params(set, i, &own[i]);
        if (result)
            return gpusys_error_set(error, -EINVAL, "%s was taken before it was connected",
                                    gs_railset_name(set, i, name));
        result = gs_railset_check_peer(set, i, &set->tables[i].qp, error);
        if (result)
            return result;
    }
    return 0;
}

int gpusys_railset_complete(struct gpusys_railset *set, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_qp_params own[GPUSYS_MAX_RAILS_READ_WRITE];
    int result = gs_railset_check_side(set, false, "completing the handshake", error);
    if (!result && set->tables && set->handshake.next_step == 3)
        result = collect(set, own, error);
    if (!result)
        result = gpusys_handshake_client_complete(&set->handshake, own, set->n_slots, deadline_ns, error);
    for (uint32_t i = 0; i < set->n_slots && !result; i++)
        result = gs_railset_connect(set, i, &set->tables[i].qp, error);
    if (!result)
        result = gpusys_handshake_client_finish(&set->handshake, deadline_ns, error);
    set->is_connected |= !result;
    return result;
}

int gpusys_railset_finish_rw(struct gpusys_railset *set, int64_t deadline_ns, struct gpusys_error *error)
{
    int result = gpusys_railset_read_server_rw(set, deadline_ns, error);
    return result ? result : gpusys_railset_complete(set, deadline_ns, error);
}
