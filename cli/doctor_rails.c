/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of the RDMA ports themselves: state, GIDs, MTU, and memory that they may register. */
#include "doctor.h"
#include "quantity.h"

#include <errno.h>
#include <gpusys/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* The ports, or the finding that there is nothing to look at: whether that is bad, the other checks say. */
static struct gpusys_ports *get_ports(struct doctor_finding *finding)
{
    struct gpusys_ports *ports;
    struct gpusys_error error = {0};
    if (gpusys_ports_new(&ports, NULL, NULL, &error) == 0)
        return ports;
    doctor_found(finding, DOCTOR_NOT_NEEDED, "%.200s", error.message);
    return NULL;
}

static bool get_port(const struct gpusys_ports *ports, uint32_t at, struct gpusys_port_info *ret_port)
{
    *ret_port = (struct gpusys_port_info){.size = sizeof *ret_port};
    return gpusys_ports_port(ports, at, ret_port) == 0;
}

static bool is_up(const struct gpusys_port_info *port)
{
    return port->state == GPUSYS_PORT_ACTIVE || port->state == GPUSYS_PORT_ACTIVE_DEFER;
}

/* A line that grows, "; " between its parts; what does not fit is left out. */
struct parts {
    char text[220];
    unsigned count;
};

static void add_part(struct parts *parts, const char *format, ...) GPUSYS_PRINTF(2, 3);

static void add_part(struct parts *parts, const char *format, ...)
{
    char part[220];
    size_t used = strlen(parts->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part, sizeof part, format, arguments);
    va_end(arguments);
    if (used + strlen(part) + 3 < sizeof parts->text || !used)
        snprintf(parts->text + used, sizeof parts->text - used, "%s%s", used ? "; " : "", part);
    parts->count++;
}

/* ---- state ---- */

static void port_states(struct doctor_finding *finding)
{
    struct gpusys_port_info port;
    struct parts ups = {.count = 0}, downs = {.count = 0};
    unsigned unopened = 0;
    struct gpusys_ports *ports = get_ports(finding);
    if (!ports)
        return;
    for (uint32_t at = 0; get_port(ports, at, &port); at++) {
        unopened += !port.state;
        if (is_up(&port))
            add_part(&ups, "%s:%u %g Gb/s", port.device, port.port, port.rate_mbps / 1000.0);
        else
            add_part(&downs, "%s: %.100s", port.device, port.problem);
    }
    gpusys_ports_free(ports);
    if (ups.count && downs.count)
        doctor_found(finding, DOCTOR_OK, "%u of %u are up: %.120s; %.100s", ups.count,
                     ups.count + downs.count, ups.text, downs.text);
    else
        doctor_found(finding, ups.count ? DOCTOR_OK : DOCTOR_BROKEN, "%u of %u are up: %s", ups.count,
                     ups.count + downs.count, ups.count ? ups.text : downs.text);
    if (!ups.count)
        doctor_so(
            finding, "no rail over RDMA: transfers use tcp",
            unopened == downs.count
                ? "what rdma-devices says"
                : "ip link set INTERFACE up; look at cable and switch; InfiniBand needs a subnet manager");
}

/* ---- GIDs ---- */

/* Is the best GID of the port one that other hosts can be reached from? */
static bool is_routable(const struct gpusys_gid_info *gid)
{
    bool ipv4 = strchr(gid->text, ':') == NULL;
    bool link_local = ipv4 ? strncmp(gid->text, "169.254.", 8) == 0 : strncmp(gid->text, "fe80:", 5) == 0;
    return gid->usable && gid->type == GPUSYS_GID_ROCE_V2 && !link_local;
}

static void sort_port(const struct gpusys_ports *ports, uint32_t at, const struct gpusys_port_info *port,
                      struct parts *good, struct parts *bad)
{
    struct gpusys_gid_info gid = {.size = sizeof gid};
    if (port->link_layer == GPUSYS_LINK_INFINIBAND)
        add_part(good, "%s:%u by LID %u", port->device, port->port, port->lid);
    else if (gpusys_ports_gid(ports, at, 0, &gid))
        add_part(bad, "%s:%u has none", port->device, port->port);
    else if (is_routable(&gid))
        add_part(good, "%s:%u GID %u %s", port->device, port->port, gid.index, gid.text);
    else
        add_part(bad, "%s:%u GID %u %s: %s", port->device, port->port, gid.index, gid.text, gid.reason);
}

static void usable_gids(struct doctor_finding *finding)
{
    struct gpusys_port_info port;
    struct parts good = {.count = 0}, bad = {.count = 0};
    struct gpusys_ports *ports = get_ports(finding);
    if (!ports)
        return;
    for (uint32_t at = 0; get_port(ports, at, &port); at++)
        if (is_up(&port))
            sort_port(ports, at, &port, &good, &bad);
    gpusys_ports_free(ports);
    if (!good.count && !bad.count)
        doctor_found(finding, DOCTOR_NOT_NEEDED, "no port is up");
    else
        doctor_found(finding, bad.count ? DOCTOR_MISSING : DOCTOR_OK, "%s", bad.count ? bad.text : good.text);
    if (finding->verdict == DOCTOR_MISSING)
        doctor_so(
            finding, "the port reaches its own segment only, or nothing",
            "ip address add ADDRESS/PREFIX dev INTERFACE, in the network namespace that gpusys runs in");
}

/* ---- MTU ---- */

static unsigned netdev_mtu(const char *netdev)
{
    char path[64];
    unsigned mtu = 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/mtu", netdev);
    FILE *file = netdev[0] ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%u", &mtu) != 1)
        mtu = 0;
    if (file)
        fclose(file);
    return mtu;
}

/* The largest RDMA MTU that frames of this length hold; the headers are as the kernel counts them. */
static unsigned mtu_within(unsigned frame_bytes)
{
    enum { HEADER_BYTES = 40 + 8 + 12 + 4 + 28 + 4 };
    unsigned mtu = 4096;
    while (mtu >= 256 && mtu + HEADER_BYTES > frame_bytes)
        mtu /= 2;
    return mtu >= 256 ? mtu : 0;
}

static void judge_mtu(const struct gpusys_port_info *port, struct parts *good, struct parts *bad)
{
    unsigned frame = port->link_layer == GPUSYS_LINK_ETHERNET ? netdev_mtu(port->netdev) : 0;
    unsigned could = mtu_within(frame);
    if (port->mtu_bytes >= port->max_mtu_bytes)
        add_part(good, "%s:%u %u", port->device, port->port, port->mtu_bytes);
    else if (frame && could > port->mtu_bytes)
        add_part(bad, "%s:%u is at %u, though %s carries %u (its MTU is %u)", port->device, port->port,
                 port->mtu_bytes, port->netdev, could, frame);
    else if (frame)
        add_part(bad, "%s:%u is at %u of %u: %s has MTU %u", port->device, port->port, port->mtu_bytes,
                 port->max_mtu_bytes, port->netdev, frame);
    else
        add_part(bad, "%s:%u is at %u of %u", port->device, port->port, port->mtu_bytes, port->max_mtu_bytes);
}

static void port_mtus(struct doctor_finding *finding)
{
    struct gpusys_port_info port;
    struct parts good = {.count = 0}, bad = {.count = 0};
    struct gpusys_ports *ports = get_ports(finding);
    if (!ports)
        return;
    for (uint32_t at = 0; get_port(ports, at, &port); at++)
        if (is_up(&port))
            judge_mtu(&port, &good, &bad);
    gpusys_ports_free(ports);
    if (!good.count && !bad.count)
        doctor_found(finding, DOCTOR_NOT_NEEDED, "no port is up");
    else
        doctor_found(finding, bad.count ? DOCTOR_MISSING : DOCTOR_OK, "%s", bad.count ? bad.text : good.text);
    if (finding->verdict == DOCTOR_MISSING)
        doctor_so(
            finding, "more packets for the same bytes; both ends use the smaller MTU of the two",
            "ip link set INTERFACE mtu 9000 on all hosts and the switch, then add Soft-RoCE devices anew");
}

/* ---- memory ---- */

static int try_registering(size_t size, struct gpusys_error *error)
{
    struct gpusys_verbs *verbs = NULL;
    struct gpusys_pd *pd = NULL;
    struct gpusys_mr *mr = NULL;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int code = memory == MAP_FAILED ? -errno : gpusys_verbs_open(&verbs, NULL, error);
    if (!code)
        code = gpusys_pd_open(&pd, verbs, error);
    if (!code)
        code = gpusys_mr_open(&mr, pd, memory, size, GPUSYS_MR_LANDING, error);
    gpusys_mr_close(mr);
    gpusys_pd_close(pd);
    gpusys_verbs_close(verbs);
    if (memory != MAP_FAILED)
        munmap(memory, size);
    return code;
}

static void registered_memory(struct doctor_finding *finding)
{
    static const size_t probe = (size_t)64 << 20;
    char text[QUANTITY_BYTES] = "unlimited";
    struct rlimit limit = {0};
    struct gpusys_error error = {0};
    if (gpusys_verbs_status(NULL)) {
        doctor_found(finding, DOCTOR_NOT_NEEDED, "no RDMA port to register with");
        return;
    }
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        quantity_of_bytes(text, limit.rlim_cur);
    int code = try_registering(probe, &error);
    if (!code) {
        doctor_found(finding, DOCTOR_OK, "64 MiB were registered (the memlock limit is %s%s)", text,
                     limit.rlim_cur < probe ? ", which does not bind this process" : "");
        return;
    }
    doctor_found(finding, code == -ENOMEM ? DOCTOR_MISSING : DOCTOR_BROKEN,
                 "%.180s (the memlock limit is %s)",
                 error.message[0] ? error.message : strerrordesc_np(-code), text);
    doctor_so(finding, "regions cannot be served or read over RDMA",
              "ulimit -l unlimited; LimitMEMLOCK=infinity in the unit; docker run --ulimit memlock=-1");
}

static const struct doctor_check checks[] = {
    {"rdma-ports", "RDMA ports that are up, and how fast", port_states, DOCTOR_IN_CHILD},
    {"rdma-gids", "a RoCE v2 GID that other hosts can be reached from", usable_gids, DOCTOR_IN_CHILD},
    {"rdma-mtu", "the MTU of the RDMA ports", port_mtus, DOCTOR_IN_CHILD},
    {"rdma-memory", "memory that may be registered", registered_memory, DOCTOR_IN_CHILD},
};

const struct doctor_module doctor_rails = DOCTOR_MODULE(checks);
