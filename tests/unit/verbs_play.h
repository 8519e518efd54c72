/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tests of memory and queue pairs share: devices of all kinds, and two ends that read and write each other. */
#ifndef TESTS_VERBS_PLAY_H
#define TESTS_VERBS_PLAY_H

#include "fake_verbs.h"
#include "railset_play.h"

/*
 * Two RoCE devices, one that can do little, one that sends long messages in pieces only, and InfiniBand: two in one
 * subnet, one behind a router, one that wants the GRH.
 */
static const char play_all_devices[] =
    "device fake0\nport 1\n"
    "gid 0 fe80::5054:ff:fe00:1 roce2 lo\n"
    "gid 1 127.0.0.1 roce2 lo\n"
    "gid 2 ::1 roce2 lo\n"
    "device fake1\nport 1\n"
    "gid 0 fe80::5054:ff:fe00:101 roce2 lo\n"
    "gid 1 127.0.0.2 roce2 lo\n"
    "device small\nmax_qp_wr 100\nmax_cqe 64\nmax_mr_size 65536\nmax_inline 40\n"
    "max_qp_rd_atom 2\nmax_qp_init_rd_atom 3\ndmabuf no\nport 1\n"
    "active_mtu 1024\nmax_msg_sz 1000\n"
    "gid 0 127.0.0.3 roce2 lo\n"
    "device ib0\nport 1\nlink_layer infiniband\nlid 5\n"
    "gid 0 fe80::5054:ff:fe00:1 ib\n"
    "device ib1\nport 1\nlink_layer infiniband\nlid 6\n"
    "gid 0 fe80::5054:ff:fe00:2 ib\n"
    "device ibfar\nport 1\nlink_layer infiniband\nlid 7\n"
    "gid 0 fec0:0:0:1::3 ib\n"
    "device ibgrh\nport 1\nlink_layer infiniband\nlid 8\ngrh_required yes\n"
    "gid 0 fe80::5054:ff:fe00:4 ib\n";

enum { PLAY_BYTES = 256 * 1024 };

struct play_end {
    struct gpusys_verbs *verbs;
    struct gpusys_pd *pd;
    struct gpusys_mr *mr;
    struct gpusys_mr_info key;
    struct gpusys_qp *qp;
    unsigned char *bytes; /* PLAY_BYTES of them, the registered ones first */
};

/* Before the library is loaded: group set-up. */
static inline int play_begin_all(void **state)
{
    fake_start(play_all_devices);
    return play_begin(state);
}

static inline int play_end_all(void **state)
{
    (void)state;
    fake_end();
    return 0;
}

static inline void play_open_port(struct play_end *end, const char *device)
{
    const struct gpusys_verbs_options options = {.size = sizeof options, .device = device};
    struct gpusys_error error = {.code = 0};
    if (gpusys_verbs_open(&end->verbs, &options, &error))
        fail_msg("%s: %s", device, error.message);
    assert_int_equal(gpusys_pd_open(&end->pd, end->verbs, NULL), 0);
}

/* A port, a domain, memory that the peer may reach as far as the device registers it, and a queue pair. */
static inline void play_end_open(struct play_end *end, const char *device,
                                 const struct gpusys_qp_options *options)
{
    struct gpusys_port_info info = {.size = sizeof info};
    struct gpusys_error error = {.code = 0};
    play_open_port(end, device);
    end->bytes = malloc(PLAY_BYTES);
    assert_non_null(end->bytes);
    for (size_t i = 0; i < PLAY_BYTES; i++)
        end->bytes[i] = (unsigned char)(i * 7 + i / 253 + (uintptr_t)device[strlen(device) - 1]);
    gpusys_verbs_info(end->verbs, &info, NULL);
    uint64_t length = info.max_mr_bytes < PLAY_BYTES ? info.max_mr_bytes : PLAY_BYTES;
    assert_int_equal(gpusys_mr_open(&end->mr, end->pd, end->bytes, length, GPUSYS_MR_PEER_READ_WRITE, NULL),
                     0);
    end->key.size = sizeof end->key;
    assert_int_equal(gpusys_mr_info(end->mr, &end->key), 0);
    if (gpusys_qp_open(&end->qp, end->pd, options, &error))
        fail_msg("%s: %s", device, error.message);
}

static inline void play_end_close(struct play_end *end)
{
    gpusys_qp_close(end->qp);
    gpusys_mr_close(end->mr);
    gpusys_pd_close(end->pd);
    gpusys_verbs_close(end->verbs);
    free(end->bytes);
    *end = (struct play_end){.verbs = NULL};
}

static inline struct gpusys_qp_end play_own(const struct play_end *end)
{
    struct gpusys_qp_end own = {.size = sizeof own};
    assert_int_equal(gpusys_qp_end(end->qp, &own), 0);
    return own;
}

static inline struct gpusys_qp_info play_info(const struct play_end *end)
{
    struct gpusys_qp_info info = {.size = sizeof info};
    assert_int_equal(gpusys_qp_info(end->qp, &info), 0);
    return info;
}

static inline void play_connect(struct play_end ends[2])
{
    for (int i = 0; i < 2; i++) {
        struct gpusys_qp_end peer = play_own(&ends[1 - i]);
        struct gpusys_error error = {.code = 0};
        if (gpusys_qp_connect(ends[i].qp, &peer, &error))
            fail_msg("connecting end %d: %s", i, error.message);
    }
}

static inline void play_ends_open(struct play_end ends[2], const char *one, const char *other,
                                  const struct gpusys_qp_options *options)
{
    play_end_open(&ends[0], one, options);
    play_end_open(&ends[1], other, options);
    play_connect(ends);
}

static inline void play_ends_close(struct play_end ends[2])
{
    play_end_close(&ends[0]);
    play_end_close(&ends[1]);
    assert_nothing_is_left();
}

static inline struct gpusys_qp_op play_op(const struct play_end ends[2], uint32_t kind, uint64_t id,
                                          uint64_t local, uint64_t remote, uint64_t length)
{
    return (struct gpusys_qp_op){.id = id,
                                 .local = ends[0].key.address + local,
                                 .remote = ends[1].key.address + remote,
                                 .length = length,
                                 .lkey = ends[0].key.lkey,
                                 .rkey = ends[1].key.rkey,
                                 .kind = kind};
}

/* Wait for `n` completions. How many came. */
static inline uint32_t play_collect(struct gpusys_qp *qp, struct gpusys_qp_completion *completions,
                                    uint32_t n)
{
    uint32_t got = 0;
    while (got < n) {
        int count = gpusys_qp_wait(qp, completions + got, n - got, NULL, play_soon());
        if (count <= 0)
            break;
        got += (uint32_t)count;
    }
    return got;
}

/* One request to its end: its status, or what posting gave. */
static inline int play_one(struct gpusys_qp *qp, const struct gpusys_qp_op *op)
{
    struct gpusys_qp_completion completion = {.status = 1};
    int posted = gpusys_qp_post(qp, op, 1);
    if (posted != 1)
        return posted ? posted : -ENOBUFS;
    assert_int_equal(play_collect(qp, &completion, 1), 1);
    assert_int_equal(completion.id, op->id);
    return completion.status;
}

/* Move bytes both ways and compare them. */
static inline void assert_moves(struct play_end ends[2])
{
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 11, 100, 5000, 3000);
    memset(ends[0].bytes, 0, 4096);
    assert_int_equal(play_one(ends[0].qp, &op), 0);
    assert_memory_equal(ends[0].bytes + 100, ends[1].bytes + 5000, 3000);
    op = play_op(ends, GPUSYS_QP_WRITE, 12, 101, 9001, 2500);
    assert_int_equal(play_one(ends[0].qp, &op), 0);
    assert_memory_equal(ends[1].bytes + 9001, ends[0].bytes + 101, 2500);
}

#endif
