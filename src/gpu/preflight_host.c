/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What files of the system say about the machine. */
#include "gpu/preflight.h"

#include <ctype.h>
#include <dirent.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *gs_preflight_root = "";

static const char *write_path(char path[GS_PATH_BYTES], const char *format, va_list arguments)
{
    int used = snprintf(path, GS_PATH_BYTES, "%s", gs_preflight_root);
    if (used < GS_PATH_BYTES)
        vsnprintf(path + used, (size_t)(GS_PATH_BYTES - used), format, arguments);
    return path;
}

const char *gs_path(char path[GS_PATH_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_path(path, format, arguments);
    va_end(arguments);
    return path;
}

bool gs_exists(const char *format, ...)
{
    char path[GS_PATH_BYTES];
    va_list arguments;
    va_start(arguments, format);
    write_path(path, format, arguments);
    va_end(arguments);
    return access(path, F_OK) == 0;
}

bool gs_read_line(char *line, size_t size, const char *format, ...)
{
    char path[GS_PATH_BYTES];
    va_list arguments;
    va_start(arguments, format);
    FILE *file = fopen(write_path(path, format, arguments), "re");
    va_end(arguments);
    bool good = file && fgets(line, (int)size, file);
    if (file)
        fclose(file);
    line[good ? strcspn(line, "\n") : 0] = 0;
    return good;
}

unsigned gs_count_files(const char *pattern)
{
    char path[GS_PATH_BYTES];
    glob_t list = {.gl_pathc = 0};
    unsigned count = glob(gs_path(path, "%s", pattern), 0, NULL, &list) == 0 ? (unsigned)list.gl_pathc : 0;
    globfree(&list);
    return count;
}

static bool is_gpu(const char *address)
{
    char vendor[16], class[16];
    return gs_read_line(vendor, sizeof vendor, "/sys/bus/pci/devices/%s/vendor", address) &&
           gs_read_line(class, sizeof class, "/sys/bus/pci/devices/%s/class", address) &&
           strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
}

unsigned gs_gpus_on_pci(struct gs_names *addresses)
{
    char path[GS_PATH_BYTES];
    struct dirent **entries;
    unsigned count = 0;
    int n = scandir(gs_path(path, "/sys/bus/pci/devices"), &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (is_gpu(entries[i]->d_name)) {
            count++;
            if (addresses)
                gs_name_add(addresses, " ", "%s", entries[i]->d_name);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return count;
}

unsigned gs_gpu_nodes(void)
{
    return gs_count_files("/dev/nvidia[0-9]*");
}

/* The last two: an integrated GPU (Tegra), and Windows' GPUs seen from a Linux beside it. */
bool gs_has_gpu(void)
{
    return gs_count_files("/proc/driver/nvidia/gpus/*") || gs_gpu_nodes() || gs_gpus_on_pci(NULL) ||
           gs_exists("/dev/nvhost-gpu") || gs_exists("/dev/dxg");
}

/* By the path of the first process' control group, on hosts where containers see it. */
static const char *container_by_group(void)
{
    static const struct {
        const char *word, *name;
    } words[] = {{"docker", "docker"}, {"kubepods", "kubernetes"},
                 {"libpod", "podman"}, {"containerd", "containerd"},
                 {"lxc", "lxc"},       {"slurm", NULL}};
    char line[512], path[GS_PATH_BYTES];
    FILE *file = fopen(gs_path(path, "/proc/1/cgroup"), "re");
    const char *name = NULL;
    while (file && !name && fgets(line, sizeof line, file))
        for (size_t i = 0; i < sizeof words / sizeof *words && !name; i++)
            name = strstr(line, words[i].word) ? words[i].name : NULL;
    if (file)
        fclose(file);
    return name;
}

const char *gs_container(void)
{
    if (gs_exists("/var/run/secrets/kubernetes.io"))
        return "kubernetes";
    if (gs_exists("/run/.containerenv"))
        return "podman";
    if (gs_exists("/.dockerenv"))
        return "docker";
    if (gs_exists("/.singularity.d"))
        return "apptainer";
    return container_by_group();
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ...": the first word that is made
 * of digits and has a dot in it. */
bool gs_kernel_driver(char version[32])
{
    char line[256], *rest = line;
    version[0] = 0;
    if (!gs_read_line(line, sizeof line, "/proc/driver/nvidia/version"))
        return false;
    for (char *word; (word = strtok_r(rest, " \t", &rest));)
        if (isdigit((unsigned char)word[0]) && strchr(word, '.') &&
            strspn(word, "0123456789.") == strlen(word)) {
            snprintf(version, 32, "%s", word);
            return true;
        }
    snprintf(version, 32, "of an unknown version");
    return true;
}

unsigned gs_rdma_devices(void)
{
    return gs_count_files("/sys/class/infiniband/*");
}
