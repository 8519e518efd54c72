/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every port of every device: what it is, what state it is in, why it cannot be used. */
#include "rail/verbs_ports.h"
#include "base/options.h"
#include "rail/verbs_gid.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header's ibv_query_port is a macro that would link against the library; the table has the function. */
#undef ibv_query_port

uint32_t gs_mtu_bytes(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? UINT32_C(128) << mtu : 0;
}

enum ibv_mtu gs_mtu_enum(uint32_t bytes)
{
    unsigned mtu = IBV_MTU_4096;
    while (mtu && gs_mtu_bytes((enum ibv_mtu)mtu) > bytes)
        mtu--;
    return (enum ibv_mtu)mtu;
}

const char *gs_port_state_text(uint32_t state)
{
    static const char *const names[] = {"unknown", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
    return names[state < sizeof names / sizeof *names ? state : 0];
}

bool gs_port_is_up(uint32_t state)
{
    return state == GPUSYS_PORT_ACTIVE || state == GPUSYS_PORT_ACTIVE_DEFER;
}

uint32_t gs_link_layer(const struct ibv_context *context, const struct ibv_port_attr *attributes)
{
    if (context->device->transport_type != IBV_TRANSPORT_IB)
        return GPUSYS_LINK_NONE;
    return attributes->link_layer == IBV_LINK_LAYER_ETHERNET ? GPUSYS_LINK_ETHERNET : GPUSYS_LINK_INFINIBAND;
}

/* ---- one port ---- */

static uint32_t lane_count(unsigned width)
{
    return width == 1 ? 1 : width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : width == 16 ? 2 : 0;
}

/* Of one lane, in Mb/s, for the bits of active_speed. */
static uint32_t lane_mbps(unsigned speed)
{
    static const uint32_t speeds[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
    for (unsigned bit = 0; bit < sizeof speeds / sizeof *speeds; bit++)
        if (speed == 1u << bit)
            return speeds[bit];
    return 0;
}

/* Speeds that do not fit into the attribute's byte are told by the kernel's file alone: "800 Gb/sec (4X XDR)". */
static uint32_t rate_mbps(const struct ibv_context *context, uint32_t port,
                          const struct ibv_port_attr *attributes)
{
    char line[64];
    double gigabits;
    uint32_t mbps = lane_count(attributes->active_width) * lane_mbps(attributes->active_speed);
    if (!mbps && gs_sysfs_read(line, sizeof line, "%s/ports/%u/rate", context->device->ibdev_path, port) &&
        sscanf(line, "%lf Gb/sec", &gigabits) == 1 && gigabits > 0 && gigabits < 1e6)
        mbps = (uint32_t)(gigabits * 1000);
    return mbps;
}

static int32_t number_in(const char *line)
{
    char *end;
    long number = strtol(line, &end, 10);
    return end != line && number >= 0 && number < 4096 ? (int32_t)number : -1;
}

/* Soft-RoCE has no bus of its own: its network interface stands for it. */
static int32_t numa_node(const char *device_path, const char *netdev)
{
    char line[32];
    if (gs_sysfs_read(line, sizeof line, "%s/device/numa_node", device_path) ||
        (netdev[0] && gs_sysfs_read(line, sizeof line, "/sys/class/net/%s/device/numa_node", netdev)))
        return number_in(line);
    return -1;
}

static int query_port(const struct gs_ibv *ibv, struct ibv_context *context, uint32_t port,
                      struct ibv_port_attr *ret_attributes)
{
    struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
    memset(ret_attributes, 0, sizeof *ret_attributes);
    int result =
        extended ? extended->query_port(context, (uint8_t)port, ret_attributes, sizeof *ret_attributes)
                 : ibv->query_port(context, (uint8_t)port, (struct _compat_ibv_port_attr *)ret_attributes);
    return result ? gs_ibv_errno(result) : 0;
}

static void describe_device(struct gpusys_port_info *info, const struct ibv_device_attr *device)
{
    snprintf(info->firmware, sizeof info->firmware, "%.63s", device->fw_ver);
    info->reads_out = (uint32_t)device->max_qp_init_rd_atom;
    info->reads_in = (uint32_t)device->max_qp_rd_atom;
    info->max_mr_bytes = device->max_mr_size;
    info->max_qps = (uint32_t)device->max_qp;
    info->max_cqes = (uint32_t)device->max_cqe;
    info->max_requests = (uint32_t)device->max_qp_wr;
}

static void describe_link(struct gpusys_port_info *info, const struct ibv_port_attr *attributes)
{
    static const uint64_t longest_message = UINT64_C(1) << 31; /* of the InfiniBand specification */
    info->state = (uint32_t)attributes->state;
    info->lid = attributes->lid;
    info->sm_lid = attributes->sm_lid;
    info->grh_required = (attributes->flags & IBV_QPF_GRH_REQUIRED) != 0;
    info->mtu_bytes = gs_mtu_bytes(attributes->active_mtu);
    info->max_mtu_bytes = gs_mtu_bytes(attributes->max_mtu);
    info->max_message_bytes = attributes->max_msg_sz ? attributes->max_msg_sz : longest_message;
}

int gs_port_describe(const struct gs_ibv *ibv, struct ibv_context *context, uint32_t port,
                     struct gpusys_port_info *ret_info, struct ibv_port_attr *ret_attributes)
{
    struct ibv_device_attr device = {0};
    struct ibv_port_attr attributes;
    int result = ibv->query_device(context, &device);
    if (result)
        return gs_ibv_errno(result);
    result = query_port(ibv, context, port, &attributes);
    if (result)
        return result;
    *ret_info = (struct gpusys_port_info){.size = sizeof *ret_info, .port = port};
    snprintf(ret_info->device, sizeof ret_info->device, "%s", ibv->get_device_name(context->device));
    ret_info->link_layer = gs_link_layer(context, &attributes);
    ret_info->rate_mbps = rate_mbps(context, port, &attributes);
    ret_info->numa_node = numa_node(context->device->ibdev_path, "");
    describe_device(ret_info, &device);
    describe_link(ret_info, &attributes);
    *ret_attributes = attributes;
    return 0;
}

/* The interface below a port whose GIDs name none: the device's own, or the one that Soft-RoCE sits on. */
static void find_netdev(const char *device_path, uint32_t port, char *netdev, size_t size)
{
    char path[320], line[32];
    if (gs_sysfs_read(netdev, size, "%s/parent", device_path))
        return;
    snprintf(path, sizeof path, "%s/device/net", device_path);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && !netdev[0] && (entry = readdir(folder));)
        if (entry->d_name[0] != '.' &&
            gs_sysfs_read(line, sizeof line, "%s/%s/dev_port", path, entry->d_name) &&
            number_in(line) == (int32_t)port - 1)
            snprintf(netdev, size, "%.15s", entry->d_name);
    if (folder)
        closedir(folder);
}

static void name_netdev(struct gs_port *port)
{
    const char *device_path = port->context->device->ibdev_path;
    struct gpusys_port_info *info = &port->info;
    for (uint32_t i = 0; i < info->n_gids && !info->netdev[0]; i++)
        memcpy(info->netdev, port->gids[i].info.netdev, sizeof info->netdev);
    if (!info->netdev[0])
        find_netdev(device_path, info->port, info->netdev, sizeof info->netdev);
    if (info->numa_node < 0)
        info->numa_node = numa_node(device_path, info->netdev);
}

static void diagnose_down(struct gs_port *port)
{
    struct gpusys_port_info *info = &port->info;
    char flags[32] = "", carrier[8] = "";
    const char *state = gs_port_state_text(info->state), *netdev = info->netdev;
    port->code = -ENETDOWN;
    if (netdev[0] && gs_sysfs_read(flags, sizeof flags, "/sys/class/net/%s/flags", netdev))
        gs_sysfs_read(carrier, sizeof carrier, "/sys/class/net/%s/carrier", netdev);
    if (flags[0] && !(strtoul(flags, NULL, 16) & 1)) {
        snprintf(info->problem, sizeof info->problem, "the port is %s: its interface %s is down", state,
                 netdev);
        snprintf(port->remedy, sizeof port->remedy, "ip link set %s up", netdev);
    } else if (strcmp(carrier, "0") == 0) {
        snprintf(info->problem, sizeof info->problem, "the port is %s: its interface %s has no carrier",
                 state, netdev);
        snprintf(port->remedy, sizeof port->remedy, "look at the cable and the switch port of %s", netdev);
    } else if (info->state == GPUSYS_PORT_INIT || info->state == GPUSYS_PORT_ARMED) {
        snprintf(info->problem, sizeof info->problem, "the port is %s: no subnet manager has brought it up",
                 state);
        snprintf(port->remedy, sizeof port->remedy, "start a subnet manager (opensm) on the fabric");
    } else {
        snprintf(info->problem, sizeof info->problem, "the port is %s", state);
        snprintf(port->remedy, sizeof port->remedy, "look at the cable, the switch port and dmesg");
    }
}

void gs_port_diagnose(struct gs_port *port)
{
    struct gpusys_port_info *info = &port->info;
    port->code = 0;
    port->remedy[0] = info->problem[0] = 0;
    if (info->link_layer == GPUSYS_LINK_NONE) {
        port->code = -EPROTONOSUPPORT;
        snprintf(info->problem, sizeof info->problem, "the device is neither InfiniBand nor RoCE");
        snprintf(port->remedy, sizeof port->remedy, "name another device");
    } else if (!gs_port_is_up(info->state)) {
        diagnose_down(port);
    } else if (info->link_layer == GPUSYS_LINK_ETHERNET && (!info->n_gids || !port->gids[0].info.usable)) {
        port->code = -EADDRNOTAVAIL;
        snprintf(info->problem, sizeof info->problem, "no GID can be used: %s",
                 info->n_gids ? port->gids[0].info.reason : "the table is empty");
        snprintf(port->remedy, sizeof port->remedy, "give the port's interface%s%s an IP address",
                 info->netdev[0] ? " " : "", info->netdev);
    }
}

/* Read a port of an open device; what it had before is replaced. */
int gs_port_read(struct gs_port *port, const struct gs_ibv *ibv, uint32_t number, const char *local_address,
                 const uint8_t *peer)
{
    struct gpusys_port_info info;
    struct ibv_port_attr attributes;
    struct gs_gid *gids = calloc(GS_GIDS_MAX, sizeof *gids);
    if (!gids)
        return -ENOMEM;
    int code = gs_port_describe(ibv, port->context, number, &info, &attributes);
    if (code) {
        free(gids);
        return code;
    }
    free(port->gids);
    port->info = info;
    port->attributes = attributes;
    port->info.n_gids = gs_gids_read(ibv, port->context, number, &attributes, local_address, peer, gids);
    port->gids = reallocarray(gids, port->info.n_gids ? port->info.n_gids : 1, sizeof *gids);
    if (!port->gids)
        port->gids = gids; /* it is longer than it need be */
    name_netdev(port);
    gs_port_diagnose(port);
    return 0;
}

/* ---- all of them ---- */

static struct gs_port *add_port(struct gpusys_ports *ports)
{
    struct gs_port *all = reallocarray(ports->ports, ports->n_ports + 1, sizeof *all);
    if (!all)
        return NULL;
    ports->ports = all;
    all[ports->n_ports] = (struct gs_port){.info = {.size = sizeof all->info}};
    return &all[ports->n_ports++];
}

static int add_absent(struct gpusys_ports *ports, const char *device, int foreign)
{
    struct gs_port *port = add_port(ports);
    if (!port)
        return -ENOMEM;
    gs_port_absent(port, device, foreign);
    return 0;
}

static void set_unreadable(struct gs_port *port, const char *device, uint32_t number, int code)
{
    struct gpusys_port_info *info = &port->info;
    *info = (struct gpusys_port_info){.size = sizeof *info, .port = number, .numa_node = -1};
    snprintf(info->device, sizeof info->device, "%s", device);
    snprintf(info->problem, sizeof info->problem, "asking about the port: %s", strerrordesc_np(-code));
    snprintf(port->remedy, sizeof port->remedy, "look at dmesg");
    port->code = code;
}

/* An open device. The first of its ports owns it; without a port it is closed again. */
static int add_ports_of(struct gpusys_ports *ports, struct ibv_context *context, const char *local_address,
                        const uint8_t *peer)
{
    const char *device = ports->ibv->get_device_name(context->device);
    struct ibv_device_attr attributes = {0};
    int result = ports->ibv->query_device(context, &attributes);
    if (result || !attributes.phys_port_cnt) {
        result = result ? gs_ibv_errno(result) : -ENODEV;
        ports->ibv->close_device(context);
        return add_absent(ports, device, result);
    }
    for (uint32_t number = 1; number <= attributes.phys_port_cnt; number++) {
        struct gs_port *port = add_port(ports);
        if (!port && number == 1)
            ports->ibv->close_device(context);
        if (!port)
            return -ENOMEM;
        port->context = context;
        port->owns_context = number == 1;
        result = gs_port_read(port, ports->ibv, number, local_address, peer);
        if (result)
            set_unreadable(port, device, number, result);
    }
    return 0;
}

static int add_device(struct gpusys_ports *ports, struct ibv_device *device, const char *local_address,
                      const uint8_t *peer)
{
    errno = 0;
    struct ibv_context *context = ports->ibv->open_device(device);
    if (!context)
        return add_absent(ports, ports->ibv->get_device_name(device), gs_ibv_errno(-1));
    return add_ports_of(ports, context, local_address, peer);
}

/* What the kernel has, beside what libibverbs lists. */
struct rest {
    struct gpusys_ports *ports;
    const char *only;
    int code;
};

static void add_unlisted(void *context, const char *device)
{
    struct rest *rest = context;
    for (uint32_t i = 0; i < rest->ports->n_ports; i++)
        if (strcmp(rest->ports->ports[i].info.device, device) == 0)
            return;
    if (!rest->code && (!rest->only || strcmp(rest->only, device) == 0))
        rest->code = add_absent(rest->ports, device, 0);
}

static int add_devices(struct gpusys_ports *ports, const char *only, const char *local_address,
                       const uint8_t *peer)
{
    errno = 0;
    struct ibv_device **list = ports->ibv->get_device_list(NULL);
    if (!list && errno != ENOSYS) /* a kernel without verbs */
        return gs_ibv_errno(-1);
    int code = 0;
    for (struct ibv_device **device = list; !code && device && *device; ++device)
        if (!only || strcmp(only, ports->ibv->get_device_name(*device)) == 0)
            code = add_device(ports, *device, local_address, peer);
    if (list)
        ports->ibv->free_device_list(list);
    struct rest rest = {.ports = ports, .only = only, .code = code};
    gs_kernel_devices(add_unlisted, &rest);
    return rest.code;
}

int gs_ports_read(struct gpusys_ports **ret_ports, const char *only, const char *local_address,
                  const uint8_t *peer, struct gpusys_error *error)
{
    int code;
    const struct gs_ibv *ibv = gs_ibv(&code, error);
    if (!ibv)
        return code;
    struct gpusys_ports *ports = calloc(1, sizeof *ports);
    if (!ports)
        return gpusys_error_set_errno(error, -ENOMEM, "RDMA devices");
    ports->ibv = ibv;
    code = add_devices(ports, only, local_address, peer);
    if (code) {
        gpusys_ports_free(ports);
        return gpusys_error_set_errno(error, code, "listing the RDMA devices");
    }
    *ret_ports = ports;
    return 0;
}

static void close_contexts(struct gpusys_ports *ports)
{
    for (uint32_t i = 0; i < ports->n_ports; i++) {
        struct gs_port *port = &ports->ports[i];
        if (port->owns_context)
            ports->ibv->close_device(port->context);
        port->owns_context = false;
        port->context = NULL;
    }
}

struct ibv_context *gs_ports_take_context(struct gpusys_ports *ports, struct gs_port *port)
{
    for (uint32_t i = 0; i < ports->n_ports; i++)
        if (ports->ports[i].context == port->context)
            ports->ports[i].owns_context = false;
    return port->context;
}

int gpusys_ports_new(struct gpusys_ports **ret_ports, const char *local_address, const uint8_t peer[16],
                     struct gpusys_error *error)
{
    struct gpusys_ports *ports;
    int code = gs_ports_read(&ports, NULL, local_address, peer, error);
    if (code)
        return code;
    close_contexts(ports);
    if (!ports->n_ports) {
        gpusys_ports_free(ports);
        return gs_ports_none(error);
    }
    *ret_ports = ports;
    return 0;
}

void gpusys_ports_free(struct gpusys_ports *ports)
{
    if (!ports)
        return;
    close_contexts(ports);
    for (uint32_t i = 0; i < ports->n_ports; i++)
        free(ports->ports[i].gids);
    free(ports->ports);
    free(ports);
}

uint32_t gpusys_ports_count(const struct gpusys_ports *ports)
{
    return ports->n_ports;
}

int gpusys_ports_port(const struct gpusys_ports *ports, uint32_t at, struct gpusys_port_info *ret_info)
{
    if (at >= ports->n_ports)
        return -ENOENT;
    return gs_info_give(ret_info, &ports->ports[at].info, sizeof *ret_info);
}

int gpusys_ports_gid(const struct gpusys_ports *ports, uint32_t at, uint32_t rank,
                     struct gpusys_gid_info *ret_info)
{
    if (at >= ports->n_ports || rank >= ports->ports[at].info.n_gids)
        return -ENOENT;
    return gs_info_give(ret_info, &ports->ports[at].gids[rank].info, sizeof *ret_info);
}

/* A device that opens says more than one that does not: its port's trouble is the one to report. */
static const struct gs_port *worst_port(const struct gpusys_ports *ports)
{
    const struct gs_port *worst = &ports->ports[0];
    for (uint32_t i = 0; i < ports->n_ports; i++) {
        const struct gs_port *port = &ports->ports[i];
        if (!port->code)
            return NULL;
        if (!worst->info.state && port->info.state)
            worst = port;
    }
    return worst;
}

int gpusys_verbs_status(struct gpusys_error *error)
{
    struct gpusys_ports *ports;
    int code = gpusys_ports_new(&ports, NULL, NULL, error);
    if (code)
        return code;
    const struct gs_port *port = worst_port(ports);
    if (port) {
        code = gpusys_error_set(error, port->code, "%s: %s", port->info.device, port->info.problem);
        gpusys_error_set_hint(error, "%s", port->remedy);
    }
    gpusys_ports_free(ports);
    return code;
}
