/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Looks at the network as NCCL will see it: the interface on which ranks meet, by the rules of NCCL_SOCKET_IFNAME, and
 * RDMA devices by those of NCCL_IB_HCA. Both are lists of beginnings of names; a leading ^ excludes, then = compares
 * whole names, and what follows a colon is a port.
 */
#include "gpu/preflight.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of names ---- */

struct filter {
    bool excludes, exact;
    const char *items; /* "mlx5_0,mlx5_1:1" */
};

static struct filter filter_of(const char *text)
{
    struct filter filter = {.items = text};
    filter.excludes = *filter.items == '^';
    filter.items += filter.excludes;
    filter.exact = *filter.items == '=';
    filter.items += filter.exact;
    return filter;
}

/* The next item of the list, without its port. False behind the last. */
static bool next_item(const char **at, char item[64])
{
    *at += strspn(*at, ",");
    size_t length = strcspn(*at, ","), shown = strcspn(*at, ":,");
    if (!length)
        return false;
    snprintf(item, 64, "%.*s", (int)shown, *at);
    *at += length;
    return true;
}

static bool item_matches(const struct filter *filter, const char *item, const char *name)
{
    return filter->exact ? strcmp(item, name) == 0 : strncmp(item, name, strlen(item)) == 0;
}

static bool in_list(const struct filter *filter, const char *name)
{
    char item[64];
    const char *at = filter->items;
    while (next_item(&at, item))
        if (item_matches(filter, item, name))
            return true;
    return false;
}

static bool passes(const struct filter *filter, const char *name)
{
    return in_list(filter, name) != filter->excludes;
}

/* ---- interfaces ---- */

struct interface {
    char name[IF_NAMESIZE];
    char address[INET6_ADDRSTRLEN]; /* "" when it has none that NCCL takes */
    bool up;
};

struct interfaces {
    struct interface list[64];
    unsigned count;
};

static struct interface *interface_of(struct interfaces *all, const char *name)
{
    for (unsigned i = 0; i < all->count; i++)
        if (strcmp(all->list[i].name, name) == 0)
            return &all->list[i];
    if (all->count == sizeof all->list / sizeof *all->list)
        return NULL;
    struct interface *interface = &all->list[all->count++];
    *interface = (struct interface){.up = false};
    snprintf(interface->name, sizeof interface->name, "%s", name);
    return interface;
}

/* NCCL takes the first address of either family; of IPv6 not ::1. */
static void note_address(struct interface *interface, const struct sockaddr *address, int family)
{
    if (!address || interface->address[0] || (family && address->sa_family != family))
        return;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        inet_ntop(AF_INET, &v4.sin_addr, interface->address, sizeof interface->address);
    } else if (address->sa_family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        if (!IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr))
            inet_ntop(AF_INET6, &v6.sin6_addr, interface->address, sizeof interface->address);
    }
}

static int family_wanted(void)
{
    char value[GS_SETTING_BYTES];
    if (!gs_nccl_setting("NCCL_SOCKET_FAMILY", value, NULL))
        return 0;
    return strcmp(value, "AF_INET") == 0 ? AF_INET : strcmp(value, "AF_INET6") == 0 ? AF_INET6 : 0;
}

static void read_interfaces(struct interfaces *all)
{
    struct ifaddrs *list;
    int family = family_wanted();
    if (getifaddrs(&list))
        return;
    for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
        struct interface *interface = interface_of(all, entry->ifa_name);
        if (!interface)
            continue;
        interface->up |= (entry->ifa_flags & IFF_UP) && (entry->ifa_flags & IFF_RUNNING);
        note_address(interface, entry->ifa_addr, family);
    }
    freeifaddrs(list);
}

/* Of this host alone, or of its containers and virtual machines: no other host is reached there. */
static bool is_inner(const char *name)
{
    static const char *const starts[] = {"lo",   "docker",  "veth",  "virbr", "br-", "cni",
                                         "cali", "flannel", "lxc",   "lxdbr", "tap", "podman",
                                         "kube", "nerdctl", "dummy", "ifb"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

static bool is_usable(const struct interface *interface)
{
    return interface->up && interface->address[0];
}

/* The one to suggest: up, with an address, and leading out of this host. NULL: there is none. */
static const struct interface *best_interface(const struct interfaces *all)
{
    for (unsigned i = 0; i < all->count; i++)
        if (is_usable(&all->list[i]) && !is_inner(all->list[i].name))
            return &all->list[i];
    return NULL;
}

/* What NCCL takes: the interfaces with an address that the filter lets through, up or not. */
static const struct interface *first_of(const struct interfaces *all, const char *text)
{
    struct filter filter = filter_of(text);
    for (unsigned i = 0; i < all->count; i++)
        if (all->list[i].address[0] && passes(&filter, all->list[i].name))
            return &all->list[i];
    return NULL;
}

static struct gs_names describe(const struct interfaces *all)
{
    struct gs_names names = {.count = 0};
    for (unsigned i = 0; i < all->count; i++)
        gs_name_add(&names, ", ", "%s%s%s%s", all->list[i].name, all->list[i].up ? " " : " down ",
                    all->list[i].address[0] ? "" : "without address", all->list[i].address);
    return names;
}

static void suggest(struct gpusys_finding *finding, const struct interfaces *all, const char *consequence)
{
    const struct interface *best = best_interface(all);
    if (best)
        gs_so(finding, consequence, "export NCCL_SOCKET_IFNAME=%s", best->name);
    else
        gs_so(finding, consequence,
              "give a network interface an address; in a container: docker run --network host");
}

/* NCCL_SOCKET_IFNAME matches nothing that NCCL could take. */
static void none_matches(struct gpusys_finding *finding, const struct interfaces *all, const char *value)
{
    struct filter filter = filter_of(value);
    struct gs_names there = describe(all);
    const struct interface *named = NULL;
    for (unsigned i = 0; i < all->count && !named; i++)
        if (passes(&filter, all->list[i].name))
            named = &all->list[i];
    if (named)
        gs_found(finding, GPUSYS_VERDICT_BROKEN,
                 "NCCL_SOCKET_IFNAME=%.40s: %s has no address; there are %.130s", value, named->name,
                 there.text);
    else
        gs_found(finding, GPUSYS_VERDICT_BROKEN,
                 "NCCL_SOCKET_IFNAME=%.40s: no interface %s; there are %.140s", value,
                 filter.excludes ? "is left"
                 : filter.exact  ? "is called that"
                                 : "has a name that begins so",
                 there.text);
    suggest(finding, all, "NCCL does not start: \"Bootstrap : no socket interface found\"");
}

static void judge_named(struct gpusys_finding *finding, const struct interfaces *all, const char *value,
                        const char *source)
{
    const struct interface *chosen = first_of(all, value);
    if (!chosen) {
        none_matches(finding, all, value);
        return;
    }
    bool inner = is_inner(chosen->name) && gs_has_gpu();
    gs_found(finding,
             !chosen->up ? GPUSYS_VERDICT_BROKEN
             : inner     ? GPUSYS_VERDICT_MISSING
                         : GPUSYS_VERDICT_OK,
             "NCCL_SOCKET_IFNAME=%.60s%s%.60s: %s, %s%s", value, source[0] ? " in " : "", source,
             chosen->name, chosen->address, chosen->up ? "" : ", which is down");
    suggest(finding, all,
            chosen->up ? "ranks on other hosts cannot be reached there: they wait, then time out"
                       : "ranks cannot reach one another: they wait, then time out");
}

/* The order in which NCCL tries when nothing is named. */
static const struct interface *default_interface(const struct interfaces *all)
{
    static const char *const steps[] = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};
    const struct interface *chosen = NULL;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !chosen; i++)
        chosen = first_of(all, steps[i]);
    return chosen;
}

static void judge_default(struct gpusys_finding *finding, const struct interfaces *all)
{
    struct gs_names there = describe(all);
    const struct interface *chosen = default_interface(all);
    if (!chosen) {
        gs_found(finding, gs_amiss(GPUSYS_VERDICT_BROKEN), "no interface has an address; there are %.180s",
                 there.count ? there.text : "none");
        suggest(finding, all, "NCCL does not start: \"Bootstrap : no socket interface found\"");
    } else if (!is_inner(chosen->name) && chosen->up) {
        gs_found(finding, GPUSYS_VERDICT_OK, "%s, %s; NCCL_SOCKET_IFNAME is not set", chosen->name,
                 chosen->address);
    } else {
        gs_found(finding, gs_amiss(GPUSYS_VERDICT_MISSING), "NCCL would take %s, %s%s; there are %.150s",
                 chosen->name, chosen->address, chosen->up ? "" : ", which is down", there.text);
        suggest(finding, all,
                strncmp(chosen->name, "lo", 2) == 0
                    ? "ranks on this host meet; those on other hosts cannot"
                    : "ranks on other hosts cannot be reached there: they wait, then time out");
    }
}

void gs_look_interface(struct gpusys_finding *finding)
{
    char value[GS_SETTING_BYTES], source[GS_PATH_BYTES];
    struct interfaces *all = calloc(1, sizeof *all);
    if (!all) {
        gs_found(finding, GPUSYS_VERDICT_BROKEN, "out of memory");
        gs_so(finding, "the look was not made", "free some memory");
        return;
    }
    read_interfaces(all);
    /* NCCL does as if one letter alone were not there. */
    if (gs_nccl_setting("NCCL_SOCKET_IFNAME", value, source) && strlen(value) > 1)
        judge_named(finding, all, value, source);
    else
        judge_default(finding, all);
    free(all);
}

/* ---- RDMA devices ---- */

struct devices {
    struct gs_names all, taken; /* taken: those that NCCL_IB_HCA lets through */
};

static struct devices list_devices(const struct filter *filter)
{
    struct devices devices = {.all = {.count = 0}};
    char path[GS_PATH_BYTES];
    struct dirent **entries;
    int n = scandir(gs_path(path, "/sys/class/infiniband"), &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            gs_name_add(&devices.all, " ", "%s", entries[i]->d_name);
            if (passes(filter, entries[i]->d_name))
                gs_name_add(&devices.taken, " ", "%s", entries[i]->d_name);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return devices;
}

/* Items of NCCL_IB_HCA that no device answers to. */
static struct gs_names missing_devices(const struct filter *filter)
{
    struct gs_names missing = {.count = 0};
    char item[64];
    const char *at = filter->items;
    while (next_item(&at, item)) {
        char only[80];
        snprintf(only, sizeof only, "%s%s", filter->exact ? "=" : "", item);
        struct filter one = filter_of(only);
        if (!list_devices(&one).taken.count)
            gs_name_add(&missing, " ", "%s", item);
    }
    return missing;
}

static bool is_disabled(void)
{
    char value[GS_SETTING_BYTES];
    return gs_nccl_setting("NCCL_IB_DISABLE", value, NULL) && strtoll(value, NULL, 0) != 0;
}

static void judge_devices(struct gpusys_finding *finding, const struct devices *devices, const char *value,
                          const struct gs_names *missing)
{
    static const char slow[] = "traffic between hosts goes over sockets: a fraction of the speed";
    unsigned nodes = gs_count_files("/dev/infiniband/uverbs*");
    if (is_disabled()) {
        gs_found(finding, gs_amiss(GPUSYS_VERDICT_MISSING), "NCCL_IB_DISABLE is set, and there are %s",
                 devices->all.text);
        gs_so(finding, slow, "unset NCCL_IB_DISABLE, unless that is what is wanted");
    } else if (!devices->taken.count) {
        gs_found(finding, GPUSYS_VERDICT_BROKEN, "NCCL_IB_HCA=%.60s leaves none of %.150s", value,
                 devices->all.text);
        gs_so(finding, slow, "unset NCCL_IB_HCA, or name some of these");
    } else if (!nodes) {
        gs_found(finding, gs_amiss(GPUSYS_VERDICT_MISSING),
                 "the kernel has %.150s, /dev/infiniband has no node of it", devices->all.text);
        gs_so(finding, slow, "in a container: docker run --device=/dev/infiniband; else modprobe ib_uverbs");
    } else if (missing->count) {
        gs_found(finding, GPUSYS_VERDICT_MISSING, "NCCL_IB_HCA=%.60s: there is no %.60s; taken: %.100s",
                 value, missing->text, devices->taken.text);
        gs_so(finding, "fewer rails than were named", "correct NCCL_IB_HCA: there are %s", devices->all.text);
    } else {
        gs_found(finding, GPUSYS_VERDICT_OK, "%s%s%.40s", devices->taken.text,
                 value[0] ? "; NCCL_IB_HCA=" : "", value);
    }
}

void gs_look_rdma(struct gpusys_finding *finding)
{
    char value[GS_SETTING_BYTES] = "";
    bool named = gs_nccl_setting("NCCL_IB_HCA", value, NULL) && value[0];
    struct filter filter = filter_of(named ? value : "^");
    struct devices devices = list_devices(&filter);
    struct gs_names missing = {.count = 0};
    if (named && !filter.excludes)
        missing = missing_devices(&filter);
    if (devices.all.count) {
        judge_devices(finding, &devices, named ? value : "", &missing);
    } else if (named && !filter.excludes && !is_disabled()) {
        gs_found(finding, GPUSYS_VERDICT_BROKEN, "NCCL_IB_HCA=%.80s, and the kernel has no RDMA device",
                 value);
        gs_so(finding, "traffic between hosts goes over sockets: a fraction of the speed",
              "unset NCCL_IB_HCA; or see gpusys doctor for RDMA: driver, container");
    } else {
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "the kernel has no RDMA device: NCCL uses sockets");
    }
}
