/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One end of RDMA by hand, for clients and peers that do what an honest one would not. */
#ifndef TESTS_VERBS_HAND_H
#define TESTS_VERBS_HAND_H

#include "remote_verbs_play.h"

struct hand {
    struct gpusys_verbs *verbs;
    struct gpusys_pd *pd;
    struct gpusys_qp *qp;
    struct gpusys_mr *mr;
    struct gpusys_mr_info key;
    unsigned char *memory; /* HAND_BYTES of it, registered for all there is */
};

enum { HAND_BYTES = 64 * KIB };

static inline void hand_open(struct hand *hand, const char *device)
{
    struct gpusys_verbs_options options = {.size = sizeof options, .device = device};
    *hand = (struct hand){.key.size = sizeof hand->key};
    PLAY_CHECK(gpusys_verbs_open(&hand->verbs, &options, NULL) == 0);
    PLAY_CHECK(gpusys_pd_open(&hand->pd, hand->verbs, NULL) == 0);
    PLAY_CHECK(gpusys_qp_open(&hand->qp, hand->pd, NULL, NULL) == 0);
    hand->memory = aligned_alloc(4096, HAND_BYTES);
    memset(hand->memory, 0xDD, HAND_BYTES);
    PLAY_CHECK(
        gpusys_mr_open(&hand->mr, hand->pd, hand->memory, HAND_BYTES, GPUSYS_MR_PEER_READ_WRITE, NULL) == 0);
    PLAY_CHECK(gpusys_mr_info(hand->mr, &hand->key) == 0);
}

static inline void hand_close(struct hand *hand)
{
    gpusys_qp_close(hand->qp);
    gpusys_mr_close(hand->mr);
    gpusys_pd_close(hand->pd);
    gpusys_verbs_close(hand->verbs);
    free(hand->memory);
}

/* One request, by whatever key; its status. */
static inline int hand_move(struct hand *hand, uint32_t kind, uint64_t address, uint32_t rkey,
                            uint64_t length)
{
    struct gpusys_qp_op op = {.local = (uintptr_t)hand->memory,
                              .remote = address,
                              .length = length,
                              .lkey = hand->key.lkey,
                              .rkey = rkey,
                              .kind = kind};
    struct gpusys_qp_completion completion = {0};
    PLAY_CHECK(gpusys_qp_post(hand->qp, &op, 1) == 1);
    PLAY_CHECK(gpusys_qp_wait(hand->qp, &completion, 1, NULL, gpusys_deadline_after(verbs_patience)) == 1);
    return completion.status;
}

#endif
