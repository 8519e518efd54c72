/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: what making communicators needs of them. */
#ifndef FAKE_NCCL_COMM_H
#define FAKE_NCCL_COMM_H

#include "fake/nccl.h"

/* In progress, with no memory yet. NULL: out of memory. */
struct ncclComm *fake_comm_new(int n_ranks, int rank, int world_rank, int device);
void fake_comm_free(struct ncclComm *comm);
/* One more, or one less, thread at work on it; the last one out may free it. */
void fake_comm_helped(struct ncclComm *comm, int by);
/* Those under way return; they are out when this returns. */
void fake_comm_end_operations(struct ncclComm *comm);
/* A detached thread. SUCCESS or SYSTEM_ERROR. */
int fake_thread(void *(*run)(void *context), void *context);

#endif
