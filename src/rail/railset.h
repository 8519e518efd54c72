/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A set of rails, inside. railset.c makes and ends one, railset_devices.c chooses the ports, railset_client.c
 * and railset_serve.c take the handshake's steps, railset_probe.c tries the path's MTU.
 */
#ifndef GPUSYS_RAIL_RAILSET_H
#define GPUSYS_RAIL_RAILSET_H

#include <gpusys/railset.h>
#include <stdbool.h>

/* ---- the ports to use (railset_devices.c) ---- */

enum { GS_DEVICE_TEXT = 80 }; /* "mlx5_0:2" */

struct gs_devices {
    char (*names)[GS_DEVICE_TEXT];
    uint32_t n;
};

/* The two ends of the control connection, as the choice of GIDs wants them. */
struct gs_control_ends {
    char local[64]; /* empty: no address of a network */
    uint8_t peer[16];
    bool has_peer;
};

void gs_control_ends(struct gs_control_ends *ret_ends, const struct gpusys_stream *stream);

/* Those of the options, or every port that is up. `most`: of ports found, the dialect has no use for more. */
int gs_devices_choose(struct gs_devices *ret_devices, const struct gpusys_railset_options *options,
                      const struct gs_control_ends *ends, uint32_t most, struct gpusys_error *error);
void gs_devices_free(struct gs_devices *devices);

/* "mlx5_0, mlx5_1"; cut with dots where it does not fit. */
void gs_devices_list(const struct gs_devices *devices, char *text, size_t size);

/* ---- the set (railset.c) ---- */

struct gs_slot {
    struct gpusys_rail rail; /* all NULL once it was taken */
    bool is_borrowed;        /* port and domain are the caller's */
};

struct gpusys_railset {
    struct gpusys_handshake handshake;
    bool is_server;
    bool is_connected;
    uint32_t n_slots;
    struct gs_slot *slots;
    struct gpusys_verbs_server_params
        *tables;                      /* client: the server's half, one per rail; NULL before it was read */
    struct gpusys_region_key *arenas; /* where those of the read-write dialect have their one region */
};

/* -EINVAL when a call of one side is made on the other's set. */
int gs_railset_check_side(const struct gpusys_railset *set, bool is_server, const char *call,
                          struct gpusys_error *error);

/* How messages call rail `at`: "rail 1 (mlx5_1 port 1) with PEER". */
enum { GS_RAIL_TEXT = 256 };
const char *gs_railset_name(const struct gpusys_railset *set, uint32_t at, char text[GS_RAIL_TEXT]);

/* Put the rail's name in front of an error that was set. Returns its code. */
int gs_railset_prefix(const struct gpusys_railset *set, uint32_t at, int code, struct gpusys_error *error);

/* Our end of a rail as the wire carries it. */
int gs_railset_own_params(const struct gpusys_railset *set, uint32_t at, struct gpusys_qp_params *ret_params);

/* -EBADMSG for what the peer sent that no queue pair can have: more than 24 bits, or no GID. */
int gs_railset_check_peer(const struct gpusys_railset *set, uint32_t at,
                          const struct gpusys_qp_params *params, struct gpusys_error *error);

int gs_railset_connect(struct gpusys_railset *set, uint32_t at, const struct gpusys_qp_params *params,
                       struct gpusys_error *error);

#endif
