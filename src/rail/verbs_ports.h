/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ports as they were found, and what is wrong with them. */
#ifndef GPUSYS_RAIL_VERBS_PORTS_H
#define GPUSYS_RAIL_VERBS_PORTS_H

#include "rail/verbs.h"

struct gs_port {
    struct gpusys_port_info info;
    struct ibv_port_attr attributes;
    struct ibv_context *context; /* of the device, shared by its ports; NULL: it could not be opened */
    bool owns_context;
    struct gs_gid *gids; /* info.n_gids of them, the best first */
    int code;            /* 0, or why it cannot be used: info.problem in words, and what to do: */
    char remedy[160];
};

struct gpusys_ports {
    const struct gs_ibv *ibv;
    struct gs_port *ports;
    uint32_t n_ports;
};

/*
 * The ports of the device `only`, or of all (NULL), also of those that libibverbs leaves out; none is no error.
 * Their contexts stay open until gpusys_ports_free.
 */
int gs_ports_read(struct gpusys_ports **ret_ports, const char *only, const char *local_address,
                  const uint8_t *peer, struct gpusys_error *error);

/* Take the open device of a port out of the snapshot: the caller closes it. */
struct ibv_context *gs_ports_take_context(struct gpusys_ports *ports, struct gs_port *port);

/* -ENODEV: there is no device at all, and why. */
int gs_ports_none(struct gpusys_error *error);

/* Read a port of an open device; what was known of it before is replaced. On failure it is as it was. */
int gs_port_read(struct gs_port *port, const struct gs_ibv *ibv, uint32_t number, const char *local_address,
                 const uint8_t *peer);

/* Why the port cannot be used as it is: fills in info.problem, code and remedy (empty, 0: it can be). */
void gs_port_diagnose(struct gs_port *port);

/* ---- verbs_absent.c ---- */

/* A device that cannot be opened: its problem, code and remedy. `foreign` is the negative errno that opening it gave, 0
 * when libibverbs does not list it. */
void gs_port_absent(struct gs_port *port, const char *device, int foreign);

/* The devices that the kernel has: call `each` with their names. Their number. */
unsigned gs_kernel_devices(void (*each)(void *context, const char *device), void *context);

/* A file's first line, without its newline. False, and an empty line, when there is none. */
bool gs_sysfs_read(char *line, size_t size, const char *format, ...) GPUSYS_PRINTF(3, 4);

uint32_t gs_link_layer(const struct ibv_context *context, const struct ibv_port_attr *attributes);
const char *gs_port_state_text(uint32_t state);
bool gs_port_is_up(uint32_t state);

#endif
