/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks below the RDMA ports: the kernel's modules, the devices and their nodes, libibverbs and its providers. */
#include "doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <gpusys/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char container_fix[] =
    "in a container: docker run --device=/dev/infiniband --ulimit memlock=-1; else modprobe ib_uverbs";

/* Names in a row, parted by blanks; what does not fit is left out. */
struct names {
    char text[160];
    unsigned count;
};

static void add_name(struct names *names, const char *name)
{
    size_t used = strlen(names->text);
    if (used + strlen(name) + 2 < sizeof names->text)
        snprintf(names->text + used, sizeof names->text - used, "%s%s", used ? " " : "", name);
    names->count++;
}

static bool read_line(char *line, size_t size, const char *format, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, format, name);
    FILE *file = fopen(path, "re");
    bool good = file && fgets(line, (int)size, file);
    if (file)
        fclose(file);
    line[good ? strcspn(line, "\n") : 0] = 0;
    return good;
}

static void list_folder(struct names *names, const char *path)
{
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            add_name(names, entry->d_name);
    if (folder)
        closedir(folder);
}

static struct names kernel_devices(void)
{
    struct names devices = {.count = 0};
    list_folder(&devices, "/sys/class/infiniband");
    return devices;
}

/* ---- modules ---- */

/* An adapter that can do nothing but RDMA, or of a maker all of whose adapters can. */
static bool has_adapter(char name[64])
{
    bool found = false;
    char class[16], vendor[16];
    DIR *folder = opendir("/sys/bus/pci/devices");
    for (const struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        read_line(class, sizeof class, "/sys/bus/pci/devices/%s/class", entry->d_name);
        read_line(vendor, sizeof vendor, "/sys/bus/pci/devices/%s/vendor", entry->d_name);
        bool infiniband = strncmp(class, "0x0207", 6) == 0, network = strncmp(class, "0x02", 4) == 0;
        found = infiniband || (network && strcmp(vendor, "0x15b3") == 0);
        if (found)
            snprintf(name, 64, "%.63s", entry->d_name);
    }
    if (folder)
        closedir(folder);
    return found;
}

static void modules(struct doctor_finding *finding)
{
    static const char *const known[] = {"ib_uverbs", "mlx5_ib", "mlx4_ib", "bnxt_re", "irdma", "qedr",
                                        "hns_roce",  "efa",     "mana_ib", "erdma",   "siw",   "rdma_rxe"};
    struct names loaded = {.count = 0};
    char adapter[64], path[96];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(path, sizeof path, "/sys/module/%s", known[i]);
        if (access(path, F_OK) == 0)
            add_name(&loaded, known[i]);
    }
    unsigned devices = kernel_devices().count;
    bool has_verbs = access("/sys/class/infiniband_verbs", F_OK) == 0;
    if (devices && has_verbs)
        doctor_found(finding, DOCTOR_OK, "%s", loaded.count ? loaded.text : "built into the kernel");
    else if (devices)
        doctor_found(finding, DOCTOR_MISSING, "%u devices, and ib_uverbs is not loaded", devices);
    else if (has_adapter(adapter))
        doctor_found(finding, DOCTOR_MISSING, "the adapter at %s has no RDMA driver", adapter);
    else
        doctor_found(finding, DOCTOR_NOT_NEEDED, "no RDMA adapter%s%s", loaded.count ? "; loaded: " : "",
                     loaded.text);
    if (finding->verdict == DOCTOR_MISSING)
        doctor_so(finding, "no rail over RDMA: transfers use tcp",
                  devices ? "modprobe ib_uverbs"
                          : "modprobe mlx5_ib ib_uverbs, or the driver of the adapter");
}

/* ---- devices and nodes ---- */

/* The kernel's devices that have no node here, or one that may not be opened; the others are counted. */
struct nodes {
    struct names without, closed;
    unsigned good;
    int error; /* of the last that may not be opened */
};

static void look_at_node(struct nodes *nodes, const char *uverbs)
{
    char device[64], path[320];
    if (!read_line(device, sizeof device, "/sys/class/infiniband_verbs/%s/ibdev", uverbs))
        return;
    snprintf(path, sizeof path, "/dev/infiniband/%s", uverbs);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        nodes->good++;
        close(fd);
    } else if (errno == ENOENT) {
        add_name(&nodes->without, device);
    } else {
        nodes->error = errno;
        add_name(&nodes->closed, device);
    }
}

static void device_nodes(struct doctor_finding *finding)
{
    struct names devices = kernel_devices();
    struct nodes nodes = {.good = 0};
    DIR *folder = opendir("/sys/class/infiniband_verbs");
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, "uverbs", 6) == 0)
            look_at_node(&nodes, entry->d_name);
    if (folder)
        closedir(folder);
    if (!devices.count)
        doctor_found(finding, DOCTOR_NOT_NEEDED, "the kernel has no RDMA device");
    else if (nodes.closed.count)
        doctor_found(finding, DOCTOR_BROKEN, "the nodes of %s may not be opened: %s", nodes.closed.text,
                     strerrordesc_np(nodes.error));
    else if (nodes.good < devices.count)
        doctor_found(finding, DOCTOR_MISSING,
                     "the kernel has %u (%s), nodes are there for %u; none in /dev/infiniband for %s",
                     devices.count, devices.text, nodes.good,
                     nodes.without.count ? nodes.without.text : "any");
    else
        doctor_found(finding, DOCTOR_OK, "%s, with a node for each", devices.text);
    if (finding->verdict == DOCTOR_MISSING)
        doctor_so(finding, "devices without a node cannot be used", container_fix);
    else if (finding->verdict == DOCTOR_BROKEN)
        doctor_so(finding, "these devices cannot be used by this user",
                  "chmod 0666 /dev/infiniband/uverbs*, as the udev rules of rdma-core do; in a container "
                  "--device=/dev/infiniband");
}

/* ---- libibverbs ---- */

static void verbs_library(struct doctor_finding *finding)
{
    struct gpusys_error error = {0};
    char real[512];
    int code = gpusys_verbs_status(&error);
    const char *path = gpusys_verbs_library();
    bool needed = kernel_devices().count > 0;
    if (path) {
        doctor_found(finding, DOCTOR_OK, "%.200s", realpath(path, real) ? real : path);
        return;
    }
    enum doctor_verdict without = needed ? DOCTOR_MISSING : DOCTOR_NOT_NEEDED;
    if (code == -EOPNOTSUPP)
        doctor_found(finding, without, "this build of gpusys has no RDMA");
    else
        doctor_found(finding, code == -ENOENT ? without : DOCTOR_BROKEN, "%.200s", error.message);
    if (finding->verdict != DOCTOR_NOT_NEEDED)
        doctor_so(finding, "no rail over RDMA: transfers use tcp",
                  code == -EOPNOTSUPP ? "build gpusys with libibverbs-dev installed"
                                      : "install libibverbs1 and ibverbs-providers, both in one version");
}

/* ---- providers ---- */

struct providers {
    unsigned good, bad;
    char first_bad[200]; /* what the loader said of the first that does not load */
};

static void try_provider(struct providers *providers, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    if (dlopen(path,
               RTLD_NOW | RTLD_LOCAL)) { /* never closed: providers do not like it, and this process ends */
        providers->good++;
        return;
    }
    const char *why = dlerror(), *behind = why ? strstr(why, "version `") : NULL;
    if (!providers->bad++)
        snprintf(providers->first_bad, sizeof providers->first_bad, "%s: %.120s", name,
                 behind ? behind
                 : why  ? why
                        : "cannot be loaded");
}

/*
 * Every provider needs the private version of the libibverbs that it was built with: one of another package is
 * there and loads nothing. They lie in a folder beside the library.
 */
static void provider_versions(struct doctor_finding *finding)
{
    struct providers providers = {.good = 0};
    char pattern[600];
    glob_t list = {.gl_pathc = 0};
    bool needed = kernel_devices().count > 0;
    gpusys_verbs_status(NULL);
    const char *path = gpusys_verbs_library(), *slash = path ? strrchr(path, '/') : NULL;
    if (!slash) {
        doctor_found(finding, DOCTOR_NOT_NEEDED, "libibverbs is not there");
        return;
    }
    snprintf(pattern, sizeof pattern, "%.*s/libibverbs/lib*-rdmav*.so", (int)(slash - path), path);
    if (glob(pattern, 0, NULL, &list) == 0)
        for (size_t i = 0; i < list.gl_pathc; i++)
            try_provider(&providers, list.gl_pathv[i]);
    globfree(&list);
    if (providers.bad)
        doctor_found(finding, DOCTOR_BROKEN, "%u load, %u do not: %s", providers.good, providers.bad,
                     providers.first_bad);
    else if (providers.good)
        doctor_found(finding, DOCTOR_OK, "%u load", providers.good);
    else
        doctor_found(finding, needed ? DOCTOR_MISSING : DOCTOR_NOT_NEEDED, "none in %.180s", pattern);
    if (finding->verdict == DOCTOR_BROKEN)
        doctor_so(
            finding, "devices of these drivers are not seen by libibverbs",
            "install libibverbs1 and ibverbs-providers in one version, and no second rdma-core beside them");
    else if (finding->verdict == DOCTOR_MISSING)
        doctor_so(finding, "libibverbs sees no device", "install ibverbs-providers");
}

static const struct doctor_check checks[] = {
    {"rdma-modules", "the kernel's modules for RDMA", modules, 0},
    {"rdma-devices", "RDMA devices, each with its node", device_nodes, 0},
    {"rdma-library", "libibverbs", verbs_library, DOCTOR_IN_CHILD},
    {"rdma-providers", "the drivers of libibverbs, and whether they fit it", provider_versions,
     DOCTOR_IN_CHILD},
};

const struct doctor_module doctor_rdma = DOCTOR_MODULE(checks);
