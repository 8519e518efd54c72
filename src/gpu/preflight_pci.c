/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Looks at what stands between GPUs on PCI: an IOMMU that translates, and access control (ACS) of the bridges above
 * them. Both send what one GPU writes to another through the root complex; there it is slow, or lost, and collectives
 * hang.
 */
#include "gpu/preflight.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Call `see` for every GPU on PCI, by its address. */
static void each_gpu(void (*see)(void *context, const char *address), void *context)
{
    struct gs_names gpus = {.count = 0};
    char *rest = gpus.text;
    gs_gpus_on_pci(&gpus);
    for (char *address; (address = strtok_r(rest, " ", &rest));)
        if (strcmp(address, "...") != 0)
            see(context, address);
}

/* ---- iommu ---- */

struct translation {
    unsigned translated, direct;
    char type[32]; /* of the first that is translated */
};

/* The type of a device's group: "identity" passes addresses through, "DMA" and "DMA-FQ" translate them. */
static void see_group(void *context, const char *address)
{
    struct translation *translation = context;
    char type[32];
    if (!gs_read_line(type, sizeof type, "/sys/bus/pci/devices/%s/iommu_group/type", address))
        return;
    if (strcmp(type, "identity") == 0) {
        translation->direct++;
    } else if (!translation->translated++) {
        snprintf(translation->type, sizeof translation->type, "%s", type);
    }
}

/* An SMMU of Arm's belongs to the machines that have one, and their GPUs are made for it. */
static bool is_smmu(void)
{
    return gs_count_files("/sys/class/iommu/smmu*") || gs_count_files("/sys/class/iommu/arm-smmu*");
}

/* What the kernel was told, without the rest of its command line. */
static struct gs_names kernel_words(void)
{
    char line[4096], *rest = line;
    struct gs_names words = {.count = 0};
    gs_read_line(line, sizeof line, "/proc/cmdline");
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        if (strstr(word, "iommu") || strncmp(word, "pci=", 4) == 0)
            gs_name_add(&words, " ", "%s", word);
    return words;
}

void gs_look_iommu(struct gpusys_finding *finding)
{
    struct translation gpus = {0};
    struct gs_names words = kernel_words();
    unsigned units = gs_count_files("/sys/class/iommu/*");
    const char *told = words.count ? "; kernel command line: " : "";
    if (!gs_has_gpu()) {
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "no NVIDIA GPU; %u IOMMU%s", units,
                 units == 1 ? "" : "s");
        return;
    }
    each_gpu(see_group, &gpus);
    bool amiss = gpus.translated && gs_gpus_on_pci(NULL) > 1 && !is_smmu();
    if (!units)
        gs_found(finding, GPUSYS_VERDICT_OK, "off%s%s", told, words.text);
    else
        gs_found(finding, amiss ? GPUSYS_VERDICT_MISSING : GPUSYS_VERDICT_OK,
                 "on (%u): %u GPUs passed through, %u translated%s%s%s%s", units, gpus.direct,
                 gpus.translated, gpus.translated ? ", type " : "", gpus.type, told, words.text);
    gs_so(finding, "copies between GPUs go through the IOMMU: slow at best; all_reduce may hang",
          "iommu=pt on the kernel's command line, or off in the firmware; NCCL_P2P_DISABLE=1 shows whether "
          "it is that");
}

/* ---- acs ---- */

enum {
    CONFIG_BYTES = 4096,
    HEADER_BYTES = 256, /* where the extended capabilities begin */
    ACS_CAPABILITY = 0x000d,
    ACS_CONTROL = 6,
    ACS_REDIRECTS = 0x2c, /* request redirect, completion redirect, egress control */
};

enum acs { ACS_UNKNOWN, ACS_OFF, ACS_ON };

static unsigned word_at(const uint8_t *bytes)
{
    return (unsigned)(bytes[0] | bytes[1] << 8);
}

/* Only root gets more than the first 64 bytes of a device's configuration. */
static enum acs acs_of(const char *folder)
{
    uint8_t config[CONFIG_BYTES];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/config", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, config, sizeof config) : -1;
    if (fd >= 0)
        close(fd);
    if (got < HEADER_BYTES)
        return ACS_UNKNOWN;
    unsigned at = HEADER_BYTES;
    for (unsigned steps = 0; at >= HEADER_BYTES && at + 8 <= (size_t)got && steps < CONFIG_BYTES / 8;
         steps++) {
        if (word_at(config + at) == ACS_CAPABILITY)
            return word_at(config + at + ACS_CONTROL) & ACS_REDIRECTS ? ACS_ON : ACS_OFF;
        at = word_at(config + at + 2) >> 4;
    }
    return ACS_OFF; /* a bridge without it */
}

struct bridges {
    char seen[128][16];
    unsigned count, on, unknown;
    struct gs_names redirecting;
};

static bool is_new(struct bridges *bridges, const char *address)
{
    for (unsigned i = 0; i < bridges->count; i++)
        if (strcmp(bridges->seen[i], address) == 0)
            return false;
    if (bridges->count == sizeof bridges->seen / sizeof *bridges->seen)
        return false;
    snprintf(bridges->seen[bridges->count++], sizeof *bridges->seen, "%s", address);
    return true;
}

/* "0000:16:01.0"; what is above the bridges is called "pci0000:00". */
static bool is_address(const char *name)
{
    return strlen(name) >= 12 && strlen(name) < 16 && strchr(name, ':') && name[strlen(name) - 2] == '.';
}

/* A device's folder lies in that of the bridge above it. */
static void see_bridges(void *context, const char *address)
{
    struct bridges *bridges = context;
    char path[GS_PATH_BYTES];
    char *folder = realpath(gs_path(path, "/sys/bus/pci/devices/%s", address), NULL);
    for (char *slash; folder && (slash = strrchr(folder, '/'));) {
        *slash = 0;
        const char *name = strrchr(folder, '/');
        if (!name || !is_address(name + 1))
            break;
        if (!is_new(bridges, name + 1))
            continue;
        enum acs acs = acs_of(folder);
        bridges->unknown += acs == ACS_UNKNOWN;
        if (acs == ACS_ON)
            gs_name_add(&bridges->redirecting, " ", "%s", name + 1);
    }
    free(folder);
}

static void judge_bridges(struct gpusys_finding *finding, const struct bridges *bridges)
{
    static const char follows[] =
        "copies between GPUs go up to the processor and back: slow, and all_reduce may hang";
    if (bridges->redirecting.count) {
        gs_found(finding, GPUSYS_VERDICT_MISSING, "%u of %u bridges above the GPUs redirect: %.150s",
                 bridges->redirecting.count, bridges->count, bridges->redirecting.text);
        gs_so(finding, follows,
              "turn ACS off in the firmware, or as root at boot: setpci -s %.12s ECAP_ACS+6.w=0, and so on "
              "for each",
              bridges->redirecting.text);
    } else if (bridges->unknown) {
        gs_found(finding, GPUSYS_VERDICT_MISSING,
                 "not known: only root can read it (%u of %u bridges above the GPUs)", bridges->unknown,
                 bridges->count);
        gs_so(finding,
              "where access control redirects, copies between GPUs are slow, and all_reduce may hang",
              "run this as root");
    } else {
        gs_found(finding, GPUSYS_VERDICT_OK, "none of %u bridges above the GPUs redirects", bridges->count);
    }
}

void gs_look_acs(struct gpusys_finding *finding)
{
    struct bridges bridges = {.count = 0};
    each_gpu(see_bridges, &bridges);
    unsigned gpus = gs_gpus_on_pci(NULL);
    if (gpus < 2)
        gs_found(finding, GPUSYS_VERDICT_NOT_NEEDED, "%s", gpus ? "one GPU on PCI" : "no NVIDIA GPU on PCI");
    else
        judge_bridges(finding, &bridges);
}
