/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The RDMA devices of a field server: opened once, watched while it serves. */
#include "base/log.h"
#include "field/serve.h"
#include "rail/railset.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

/* The address we listen on, when it is one: the GID with it is what clients expect. */
static const char *local_address(const struct gpusys_field *field, struct gs_address *address)
{
    if (gs_address_parse(address, field->address, NULL) || address->is_unix)
        return NULL;
    bool any = strcmp(address->host, "0.0.0.0") == 0 || strcmp(address->host, "::") == 0;
    return any ? NULL : address->host;
}

static int open_device(struct gpusys_field *field, const char *name, struct gpusys_error *error)
{
    struct gs_address address;
    struct gs_device *device = &field->devices[field->n_devices];
    struct gpusys_verbs_options options = {
        .size = sizeof options, .device = name, .local_address = local_address(field, &address)};
    if (field->n_devices == GS_DEVICES_MAX)
        return gpusys_error_set(error, -EINVAL, "%s would be device %d, at most %d can be served", name,
                                GS_DEVICES_MAX + 1, GS_DEVICES_MAX);
    int code = gpusys_verbs_open(&device->verbs, &options, error);
    if (code)
        return code;
    device->info.size = sizeof device->info;
    field->n_devices++;
    code = gpusys_verbs_info(device->verbs, &device->info, NULL);
    return code ? gpusys_error_set_errno(error, code, "%s", name) : 0;
}

/* Every port that is up, in the order in which they are listed. */
static int open_all(struct gpusys_field *field, struct gpusys_error *error)
{
    struct gpusys_ports *ports;
    int code = gpusys_verbs_status(error);
    if (!code)
        code = gpusys_ports_new(&ports, NULL, NULL, error);
    if (code)
        return code;
    for (uint32_t i = 0; i < gpusys_ports_count(ports) && field->n_devices < GS_DEVICES_MAX && !code; i++) {
        struct gpusys_port_info info = {.size = sizeof info};
        char name[sizeof info.device + 16];
        if (gpusys_ports_port(ports, i, &info) || info.state != GPUSYS_PORT_ACTIVE || info.problem[0])
            continue;
        snprintf(name, sizeof name, "%s:%u", info.device, info.port);
        code = open_device(field, name, error);
    }
    gpusys_ports_free(ports);
    if (!code && field->n_devices == 0)
        code = gpusys_error_set(error, -ENETDOWN, "no port of an RDMA device is up");
    return code;
}

int gs_devices_open(struct gpusys_field *field, const struct gpusys_field_server_options *options,
                    struct gpusys_error *error)
{
    struct gpusys_error why = {0};
    int code = 0;
    for (uint32_t i = 0; i < options->n_devices && !code; i++)
        code = open_device(field, options->devices[i], error);
    if (options->n_devices > 0 || code)
        return code;
    code = open_all(field, &why);
    if (!code)
        return 0;
    gs_devices_close(field);
    if (field->kind == GPUSYS_FIELD_CACHE) {
        if (error)
            *error = why;
        return code;
    }
    snprintf(field->why_no_device, sizeof field->why_no_device, "%s", why.message);
    gs_log(GPUSYS_LOG_WARN, "serves over tcp alone: %s", why.message);
    return 0;
}

void gs_devices_gids(const struct gpusys_field *field, const struct gpusys_stream *stream,
                     uint32_t ret_indexes[GS_DEVICES_MAX])
{
    struct gs_control_ends ends;
    gs_control_ends(&ends, stream);
    for (uint32_t i = 0; i < field->n_devices; i++) {
        struct gpusys_gid_info gid = {.size = sizeof gid};
        const struct gpusys_verbs *verbs = field->devices[i].verbs;
        if (gpusys_verbs_gid_for(verbs, ends.local[0] ? ends.local : NULL, ends.has_peer ? ends.peer : NULL,
                                 &gid))
            gpusys_verbs_info(verbs, NULL, &gid);
        ret_indexes[i] = gid.index;
    }
}

void gs_devices_close(struct gpusys_field *field)
{
    while (field->n_devices > 0)
        gpusys_verbs_close(field->devices[--field->n_devices].verbs);
}

/* A device that is gone takes its clients' rails along; they hear of it by the end of their streams. */
static void drop_clients(struct gpusys_field *field)
{
    pthread_mutex_lock(&field->lock);
    for (struct gs_field_client *client = field->clients; client; client = client->next)
        if (client->on_verbs && client->fd >= 0)
            shutdown(client->fd, SHUT_RDWR);
    pthread_mutex_unlock(&field->lock);
}

void gs_devices_tend(struct gpusys_field *field)
{
    for (uint32_t i = 0; i < field->n_devices; i++) {
        struct gpusys_verbs_event event;
        while (gpusys_verbs_event(field->devices[i].verbs, &event) == 1) {
            gs_log(GPUSYS_LOG_WARN, "%s port %u: %s", field->devices[i].info.device,
                   field->devices[i].info.port, event.text);
            if (event.kind == GPUSYS_EVENT_DEVICE_GONE)
                drop_clients(field);
        }
    }
}
