/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Files over verbs: the rails of one client, which stay until it leaves. */
#include "field/serve.h"

#include <errno.h>
#include <stdio.h>

static int open_rails(struct gs_field_client *client, struct gs_store *store, struct gpusys_railset *set,
                      struct gpusys_error *error)
{
    struct gpusys_field *field = client->field;
    const struct gpusys_region_key *keys[GS_DEVICES_MAX];
    char over[32];
    uint32_t n_rails = gpusys_railset_count(set);
    if (n_rails > field->n_devices) /* accept refuses that */
        return gpusys_error_set(error, -ENODEV, "%u rails, %u devices", n_rails, field->n_devices);
    int code = gs_store_register(store, field, n_rails, error);
    for (uint32_t i = 0; i < n_rails && !code; i++)
        keys[i] = store->keys[i]; /* stay as they are while we hold the store */
    if (!code)
        code = gpusys_railset_serve_ro(set, keys, store->n_files, gs_client_deadline(client), error);
    if (code)
        return code;
    snprintf(over, sizeof over, "%u rail%s", n_rails, n_rails == 1 ? "" : "s");
    gs_client_opened(client, true, over);
    return gs_client_idle(client, error);
}

int gs_serve_store(struct gs_field_client *client, struct gs_store *store, struct gpusys_error *error)
{
    struct gpusys_field *field = client->field;
    uint32_t gids[GS_DEVICES_MAX];
    struct gpusys_railset_options options = {
        .size = sizeof options, .n_devices = field->n_devices, .gid_index = gids};
    struct gpusys_railset *set = NULL;
    if (field->n_devices == 0)
        return gpusys_error_set(error, -ENODEV, "it wants verbs, and there are none here: %s",
                                field->why_no_device);
    int code = gs_store_hold(store, field, error);
    if (code)
        return code;
    gs_devices_gids(field, client->stream, gids);
    code = gpusys_railset_accept(&set, client->stream, GPUSYS_DIALECT_READ_ONLY, &options, store->pds,
                                 gs_client_deadline(client), error);
    if (!code)
        code = open_rails(client, store, set, error);
    gpusys_railset_close(set);
    gs_store_drop(store);
    return code;
}
