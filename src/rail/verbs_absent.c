/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * RDMA devices that are there and cannot be had. The kernel names them in /sys/class/infiniband, libibverbs lists those
 * that it has a provider and a node for, and opening one needs the right to: the first of these that fails is the
 * reason.
 */
#include "rail/verbs_ports.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char in_container[] = "in a container: run it with --device=/dev/infiniband";

bool gs_sysfs_read(char *line, size_t size, const char *format, ...)
{
    char path[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    line[0] = 0;
    FILE *file = fopen(path, "re");
    bool good = file && fgets(line, (int)size, file);
    if (file)
        fclose(file);
    line[good ? strcspn(line, "\n") : 0] = 0;
    return good && line[0];
}

unsigned gs_kernel_devices(void (*each)(void *context, const char *device), void *context)
{
    unsigned count = 0;
    DIR *folder = opendir("/sys/class/infiniband");
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        each(context, entry->d_name);
        count++;
    }
    if (folder)
        closedir(folder);
    return count;
}

/* "uverbs0" for a device, as the kernel calls its node. */
static bool find_node(const char *device, char *node, size_t size)
{
    bool found = false;
    DIR *folder = opendir("/sys/class/infiniband_verbs");
    for (const struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        char line[64];
        found = gs_sysfs_read(line, sizeof line, "/sys/class/infiniband_verbs/%s/ibdev", entry->d_name) &&
                strcmp(line, device) == 0;
        if (found)
            snprintf(node, size, "%s", entry->d_name);
    }
    if (folder)
        closedir(folder);
    return found;
}

static void set(struct gs_port *port, int code, const char *remedy, const char *format, ...)
    GPUSYS_PRINTF(4, 5);

static void set(struct gs_port *port, int code, const char *remedy, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(port->info.problem, sizeof port->info.problem, format, arguments);
    va_end(arguments);
    port->code = code;
    snprintf(port->remedy, sizeof port->remedy, "%s", remedy);
}

/* -ENOENT says that there is no libibverbs, and -EPERM is what a container's rules give: neither is a port's. */
static int as_code(int foreign)
{
    return foreign == -ENOENT ? -ENODEV : foreign == -EPERM ? -EACCES : foreign;
}

/* The node is there: can it be opened, and if so, what did the library object to? */
static void blame_node(struct gs_port *port, const char *path, int foreign)
{
    int fd = open(path, O_RDWR | O_CLOEXEC), error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (error == EPERM)
        set(port, -EACCES, in_container, "%s may not be opened: %s", path, strerrordesc_np(error));
    else if (error == EACCES)
        set(port, -EACCES, "chmod 0666 it, as the udev rules of rdma-core do", "%s may not be opened: %s",
            path, strerrordesc_np(error));
    else if (error)
        set(port, -error, "look at dmesg", "%s cannot be opened: %s", path, strerrordesc_np(error));
    else if (foreign)
        set(port, as_code(foreign), "look at dmesg; ibv_devinfo -v", "opening the device: %s",
            strerrordesc_np(-foreign));
    else
        set(port, -ENODEV, "install ibverbs-providers, in the version of libibverbs1",
            "libibverbs has no provider for it");
}

void gs_port_absent(struct gs_port *port, const char *device, int foreign)
{
    char node[64], path[96];
    port->info = (struct gpusys_port_info){.size = sizeof port->info, .numa_node = -1};
    snprintf(port->info.device, sizeof port->info.device, "%s", device);
    bool known = find_node(device, node, sizeof node);
    snprintf(path, sizeof path, "/dev/infiniband/%s", known ? node : "");
    if (!known && foreign)
        set(port, as_code(foreign), "look at dmesg", "opening the device: %s", strerrordesc_np(-foreign));
    else if (!known)
        set(port, -ENODEV, "modprobe ib_uverbs", "the kernel has it but offers no verbs for it");
    else if (access("/dev/infiniband", F_OK))
        set(port, -ENODEV, in_container, "there is no /dev/infiniband");
    else if (access(path, F_OK))
        set(port, -ENODEV, in_container, "the kernel has it, but there is no %s", path);
    else
        blame_node(port, path, foreign);
}

int gs_ports_none(struct gpusys_error *error)
{
    gpusys_error_set(error, -ENODEV, "there is no RDMA device");
    if (access("/sys/class/infiniband", F_OK))
        gpusys_error_set_cause(error, "the kernel's RDMA modules are not loaded");
    else
        gpusys_error_set_cause(error, "the kernel's RDMA modules are loaded, but no driver found a device");
    gpusys_error_set_hint(error,
                          "load the device's driver (modprobe mlx5_ib, ...); without hardware: modprobe "
                          "rdma_rxe, then rdma link add rxe0 type rxe netdev NETDEV");
    return -ENODEV;
}
