/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Is this machine fit for NCCL? The table of looks, and what they share for saying what was found. */
#include "gpu/preflight.h"
#include "base/options.h"

#include <gpusys/nccl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct gs_look looks[] = {
    {"driver", "the CUDA driver, and whether it starts", gs_look_driver},
    {"gpus", "the GPUs that CUDA shows, each once", gs_look_gpus},
    {"library", "libnccl, and what it can do", gs_look_library},
    {"versions", "the driver's CUDA against NCCL's", gs_look_versions},
    {"copies", "one NCCL, and no other that gets in its way", gs_look_copies},
    {"environment", "settings of NCCL, and whether it knows them", gs_look_environment},
    {"interface", "the network interface that the ranks meet on", gs_look_interface},
    {"rdma", "the RDMA devices that NCCL may use", gs_look_rdma},
    {"gpudirect", "RDMA straight into the GPUs' memory", gs_look_gpudirect},
    {"shm", "room in /dev/shm", gs_look_shm},
    {"memlock", "memory that may be locked, for RDMA", gs_look_memlock},
    {"open-files", "how many descriptors a process may hold", gs_look_files},
    {"iommu", "whether an IOMMU is between the GPUs", gs_look_iommu},
    {"acs", "PCI access control between the GPUs", gs_look_acs},
    {"fabric", "NVSwitch and its fabric manager", gs_look_fabric},
    {"container", "what a container takes away", gs_look_container},
};
static const uint32_t n_looks = sizeof looks / sizeof *looks;

int gpusys_nccl_look_name(uint32_t at, const char **ret_name, const char **ret_title)
{
    if (at >= n_looks)
        return -ENOENT;
    *ret_name = looks[at].name;
    *ret_title = looks[at].title;
    return 0;
}

int gpusys_nccl_preflight(uint32_t at, struct gpusys_finding *ret_finding)
{
    if (at >= n_looks)
        return -ENOENT;
    struct gpusys_finding finding = {.size = sizeof finding, .verdict = GPUSYS_VERDICT_BROKEN};
    snprintf(finding.name, sizeof finding.name, "%s", looks[at].name);
    snprintf(finding.title, sizeof finding.title, "%s", looks[at].title);
    looks[at].run(&finding);
    return gs_info_give(ret_finding, &finding, sizeof finding);
}

int gpusys_nccl_look(const char *name, struct gpusys_finding *ret_finding)
{
    for (uint32_t at = 0; at < n_looks; at++)
        if (strcmp(looks[at].name, name) == 0)
            return gpusys_nccl_preflight(at, ret_finding);
    return -ENOENT;
}

/* One line, whatever a file or a variable had in it. */
static void write_line(char *line, size_t size, const char *format, va_list arguments)
{
    vsnprintf(line, size, format, arguments);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

void gs_found(struct gpusys_finding *finding, enum gpusys_verdict verdict, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    finding->verdict = verdict;
    finding->consequence[0] = finding->fix[0] = 0;
    write_line(finding->evidence, sizeof finding->evidence, format, arguments);
    va_end(arguments);
}

/* Where nothing is amiss there is nothing to do: a look may say it all the same. */
void gs_so(struct gpusys_finding *finding, const char *consequence, const char *fix, ...)
{
    if (finding->verdict != GPUSYS_VERDICT_MISSING && finding->verdict != GPUSYS_VERDICT_BROKEN)
        return;
    va_list arguments;
    va_start(arguments, fix);
    snprintf(finding->consequence, sizeof finding->consequence, "%s", consequence);
    write_line(finding->fix, sizeof finding->fix, fix, arguments);
    va_end(arguments);
}

enum gpusys_verdict gs_amiss(enum gpusys_verdict verdict)
{
    return gs_has_gpu() ? verdict : GPUSYS_VERDICT_NOT_NEEDED;
}

void gs_name_add(struct gs_names *names, const char *separator, const char *format, ...)
{
    enum { DOTS = sizeof "..." };
    char name[sizeof names->text];
    size_t used = strlen(names->text), room = sizeof names->text - used;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    names->count++;
    const char *between = used ? separator : "";
    if (strlen(between) + strlen(name) + strlen(separator) + DOTS <= room)
        snprintf(names->text + used, room, "%s%s", between, name);
    else if (used < 3 || strcmp(names->text + used - 3, "...") != 0)
        snprintf(names->text + used, room, "%s...", between);
}
