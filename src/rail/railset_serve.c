/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The server's steps behind `accept`: its half sent, the client's read, every queue pair connected, the
 * ack. */
#include "rail/railset.h"

#include "base/log.h"

#include <errno.h>

/* Our end of rail `at`, which must still be here. */
static int own_params(const struct gpusys_railset *set, uint32_t at, struct gpusys_qp_params *ret_params,
                      struct gpusys_error *error)
{
    char name[GS_RAIL_TEXT];
    int result = gs_railset_own_params(set, at, ret_params);
    if (!result)
        return 0;
    return gpusys_error_set(error, -EINVAL, "%s was taken before it was connected",
                            gs_railset_name(set, at, name));
}

static int connect_all(struct gpusys_railset *set, const struct gpusys_qp_params *clients,
                       struct gpusys_error *error)
{
    int result = 0;
    for (uint32_t i = 0; i < set->n_slots && !result; i++)
        result = gs_railset_check_peer(set, i, &clients[i], error);
    for (uint32_t i = 0; i < set->n_slots && !result; i++)
        result = gs_railset_connect(set, i, &clients[i], error);
    return result;
}

/* The client learns no more than the ack, so the reason goes into the log. */
static int refuse(struct gpusys_railset *set, int code, const struct gpusys_error *why, int64_t deadline_ns,
                  struct gpusys_error *error)
{
    gs_log(GPUSYS_LOG_INFO, "refused: %s", why->message);
    gpusys_handshake_server_finish(&set->handshake, GPUSYS_STATUS_ERR, deadline_ns, NULL);
    if (error)
        *error = *why;
    return code;
}

/* Steps 3 and 4, the same in both dialects. */
static int finish(struct gpusys_railset *set, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_qp_params clients[GPUSYS_MAX_RAILS_READ_WRITE];
    struct gpusys_error why;
    int result =
        gpusys_handshake_server_read_client(&set->handshake, clients, set->n_slots, deadline_ns, error);
    if (result)
        return result;
    result = connect_all(set, clients, &why);
    if (result)
        return refuse(set, result, &why, deadline_ns, error);
    result = gpusys_handshake_server_finish(&set->handshake, GPUSYS_STATUS_OK, deadline_ns, error);
    set->is_connected = !result;
    return result;
}

int gpusys_railset_serve_ro(struct gpusys_railset *set, const struct gpusys_region_key *const *keys,
                            uint32_t n_regions, int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_verbs_server_params rails[GPUSYS_MAX_RAILS_READ_WRITE];
    int result = gs_railset_check_side(set, true, "serving a table", error);
    for (uint32_t i = 0; i < set->n_slots && !result; i++) {
        rails[i] = (struct gpusys_verbs_server_params){
            .n_regions = n_regions,
            .regions = (struct gpusys_region_key *)(uintptr_t)keys[i], /* only read from */
        };
        result = own_params(set, i, &rails[i].qp, error);
    }
    if (!result)
        result = gpusys_handshake_server_write_ro(&set->handshake, rails, set->n_slots, deadline_ns, error);
    return result ? result : finish(set, deadline_ns, error);
}

int gpusys_railset_serve_rw(struct gpusys_railset *set, const struct gpusys_region_key *keys,
                            int64_t deadline_ns, struct gpusys_error *error)
{
    struct gpusys_cache_server_params rails[GPUSYS_MAX_RAILS_READ_WRITE];
    int result = gs_railset_check_side(set, true, "serving an arena", error);
    for (uint32_t i = 0; i < set->n_slots && !result; i++) {
        if (keys[i].base != keys[0].base)
            return gpusys_error_set(
                error, -EINVAL,
                "the arena begins at %#llx on rail 0 and at %#llx on rail %u: it is one region",
                (unsigned long long)keys[0].base, (unsigned long long)keys[i].base, i);
        rails[i].region = keys[i];
        result = own_params(set, i, &rails[i].qp, error);
    }
    if (!result)
        result = gpusys_handshake_server_write_rw(&set->handshake, rails, set->n_slots, deadline_ns, error);
    return result ? result : finish(set, deadline_ns, error);
}
