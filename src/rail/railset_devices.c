/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which ports the rails of a set use, and what the control connection tells the choice of GIDs. */
#include "rail/railset.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- the control connection ---- */

/* An IPv4 address mapped, an IPv6 address as it is. False for sockets of other kinds. */
static bool address_of(int (*get)(int, struct sockaddr *, socklen_t *), int fd, uint8_t ret_address[16])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage storage;
    } name;
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    socklen_t size = sizeof name;
    if (fd < 0 || get(fd, &name.any, &size) < 0)
        return false;
    if (name.any.sa_family == AF_INET6) {
        memcpy(ret_address, &name.v6.sin6_addr, 16);
        return true;
    }
    memcpy(ret_address, mapped, sizeof mapped);
    memcpy(ret_address + 12, &name.v4.sin_addr, 4);
    return name.any.sa_family == AF_INET;
}

static int get_own_name(int fd, struct sockaddr *name, socklen_t *size)
{
    return getsockname(fd, name, size);
}

static int get_peer_name(int fd, struct sockaddr *name, socklen_t *size)
{
    return getpeername(fd, name, size);
}

void gs_control_ends(struct gs_control_ends *ret_ends, const struct gpusys_stream *stream)
{
    struct gs_control_ends ends = {.has_peer = false};
    int fd = gpusys_stream_fd(stream);
    struct in6_addr local;
    if (address_of(get_own_name, fd, local.s6_addr)) {
        if (IN6_IS_ADDR_V4MAPPED(&local))
            inet_ntop(AF_INET, local.s6_addr + 12, ends.local, sizeof ends.local);
        else
            inet_ntop(AF_INET6, &local, ends.local, sizeof ends.local);
    }
    ends.has_peer = address_of(get_peer_name, fd, ends.peer);
    *ret_ends = ends;
}

/* ---- the ports ---- */

void gs_devices_free(struct gs_devices *devices)
{
    free(devices->names);
    *devices = (struct gs_devices){.n = 0};
}

void gs_devices_list(const struct gs_devices *devices, char *text, size_t size)
{
    size_t length = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < devices->n && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "", devices->names[i]);
    if (length >= size && size > 4)
        memcpy(text + size - 4, "...", 4);
}

static int make_room(struct gs_devices *devices, uint32_t n, struct gpusys_error *error)
{
    devices->names = calloc(n, sizeof *devices->names);
    return devices->names ? 0 : gpusys_error_set_errno(error, -ENOMEM, "the names of %u devices", n);
}

static int take_given(struct gs_devices *devices, const struct gpusys_railset_options *options,
                      struct gpusys_error *error)
{
    int result = make_room(devices, options->n_devices, error);
    for (; devices->n < options->n_devices && !result; devices->n++) {
        const char *name = options->devices[devices->n];
        if (!name || strlen(name) >= GS_DEVICE_TEXT)
            return gpusys_error_set(error, -EINVAL, "device %u of the rails: %s", devices->n,
                                    name ? "no device has a name this long" : "no name");
        strcpy(devices->names[devices->n], name);
    }
    return result;
}

static bool is_up(const struct gpusys_port_info *info)
{
    return (info->state == GPUSYS_PORT_ACTIVE || info->state == GPUSYS_PORT_ACTIVE_DEFER) &&
           !info->problem[0];
}

static int none_is_up(const struct gpusys_ports *ports, struct gpusys_error *error)
{
    struct gpusys_port_info info = {.size = sizeof info};
    gpusys_error_set(error, -ENETDOWN, "no port of any RDMA device can be used");
    for (uint32_t at = 0; gpusys_ports_port(ports, at, &info) == 0; at++)
        gpusys_error_add_detail(error, info.device, "port %u: %s", info.port,
                                info.problem[0] ? info.problem : "not active");
    gpusys_error_set_hint(error, "gpusys rails shows every port, and why it cannot be used");
    return -ENETDOWN;
}

static int take_all(struct gs_devices *devices, const struct gpusys_ports *ports, uint32_t most,
                    struct gpusys_error *error)
{
    struct gpusys_port_info info = {.size = sizeof info};
    int result = make_room(devices, most, error);
    for (uint32_t at = 0; !result && devices->n < most && gpusys_ports_port(ports, at, &info) == 0; at++)
        if (is_up(&info))
            snprintf(devices->names[devices->n++], GS_DEVICE_TEXT, "%s:%u", info.device, info.port);
    return !result && devices->n == 0 ? none_is_up(ports, error) : result;
}

static int choose_all(struct gs_devices *devices, const struct gs_control_ends *ends, uint32_t most,
                      struct gpusys_error *error)
{
    struct gpusys_ports *ports = NULL;
    int result = gpusys_ports_new(&ports, ends->local[0] ? ends->local : NULL,
                                  ends->has_peer ? ends->peer : NULL, error);
    if (!result)
        result = take_all(devices, ports, most, error);
    gpusys_ports_free(ports);
    return result;
}

int gs_devices_choose(struct gs_devices *ret_devices, const struct gpusys_railset_options *options,
                      const struct gs_control_ends *ends, uint32_t most, struct gpusys_error *error)
{
    struct gs_devices devices = {.n = 0};
    if (!options->devices != !options->n_devices)
        return gpusys_error_set(error, -EINVAL, "the rails' devices: %u of them, and %s list",
                                options->n_devices, options->devices ? "a" : "no");
    if (options->gid_index && !options->devices)
        return gpusys_error_set(error, -EINVAL,
                                "the rails' devices: GID indices, and no list of devices they are for");
    int result =
        options->devices ? take_given(&devices, options, error) : choose_all(&devices, ends, most, error);
    if (result)
        gs_devices_free(&devices);
    else
        *ret_devices = devices;
    return result;
}
