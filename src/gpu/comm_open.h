/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Bringing a communicator up: what the steps of gpusys_comm_open share. */
#ifndef GPUSYS_GPU_COMM_OPEN_H
#define GPUSYS_GPU_COMM_OPEN_H

#include "gpu/watch.h"

struct gs_opening {
    struct gpusys_comm_options options; /* every default filled in */
    char address[256];                  /* where `options.address` points when the launcher named it */
    uint32_t n_local, local_rank;       /* n_local 0: not known */
    int64_t deadline_ns;
    struct gpusys_nccl_config config; /* non-blocking */
    struct gpusys_nccl_id id;
    uint8_t gpu[16];
};

/* comm_options.c: the caller's options, the environment and the defaults. */
int gs_opening_take(struct gs_opening *opening, const struct gpusys_comm_options *options,
                    struct gpusys_error *error);

/* comm_join.c: meet the other ranks (where there is an address), and agree on the unique id. */
int gs_comm_join(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error);
/* May these begin together? */
int gs_comm_admit(const struct gs_member *members, uint32_t n_ranks, struct gpusys_error *error);
/* Be told of failures under `comm->key`. */
int gs_comm_attach(struct gpusys_comm *comm);

/* comm_init.c: NCCL itself. On failure the half-made handle is gone, or left behind. */
int gs_comm_init(struct gpusys_comm *comm, struct gs_opening *opening, struct gpusys_error *error);
/* It came to nothing: `result` of `call` as gs_comm_settle has it. Tells the other ranks; the code. */
int gs_comm_init_failed(struct gpusys_comm *comm, struct ncclComm *handle, int result, const char *call,
                        struct gpusys_error *error);

/* comm_close.c: what is left of it, at any stage of being built; NCCL's handle is gone or left behind by now. */
void gs_comm_free(struct gpusys_comm *comm);

#endif
