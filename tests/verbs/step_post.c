/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The steps that post requests. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 40 };

static int opcode_of(const char *word)
{
    static const struct {
        const char *name;
        enum ibv_wr_opcode opcode;
    } opcodes[] = {{"read", IBV_WR_RDMA_READ},
                   {"write", IBV_WR_RDMA_WRITE},
                   {"send", IBV_WR_SEND},
                   {"imm", IBV_WR_RDMA_WRITE_WITH_IMM}};
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
        if (strcmp(word, opcodes[i].name) == 0)
            return (int)opcodes[i].opcode;
    return -1;
}

static unsigned flags_of(const char *flags)
{
    return (strchr(flags, 'u') ? 0 : IBV_SEND_SIGNALED) | (strchr(flags, 'i') ? IBV_SEND_INLINE : 0) |
           (strchr(flags, 's') ? IBV_SEND_SOLICITED : 0);
}

/* The bytes from the region's beginning (and `loff`), in as many pieces as asked for. */
static int fill_pieces(struct ibv_sge *sges, const struct object *region, char **words, uint64_t length)
{
    int pieces = (int)number_of(words, "pieces", 1);
    uint64_t address = (uintptr_t)region->memory + number_of(words, "loff", 0);
    uint32_t each = (uint32_t)(length / (unsigned)pieces);
    for (int i = 0; i < pieces; i++) {
        uint32_t count = i + 1 < pieces ? each : (uint32_t)(length - (uint64_t)each * (unsigned)i);
        sges[i] = (struct ibv_sge){address, count, (uint32_t)number_of(words, "lkey", region->mr->lkey)};
        address += count;
    }
    return pieces;
}

static void chain(struct ibv_send_wr *requests, unsigned count, const struct ibv_send_wr *model)
{
    for (unsigned i = 0; i < count; i++) {
        requests[i] = *model;
        requests[i].wr_id += i;
        requests[i].next = i + 1 < count ? &requests[i + 1] : NULL;
    }
}

static int post_sends(struct object *qp, struct object *local, struct object *remote, int opcode,
                      char **words, long *ret_bad)
{
    static struct ibv_send_wr requests[CHAIN];
    struct ibv_sge sges[PIECES];
    struct ibv_send_wr *bad = NULL;
    uint64_t length = number_of(words, "len", 4096);
    struct ibv_send_wr model = {.wr_id = number_of(words, "id", 1),
                                .sg_list = sges,
                                .num_sge = fill_pieces(sges, local, words, length),
                                .opcode = (enum ibv_wr_opcode)opcode,
                                .imm_data = 0x12345678,
                                .send_flags = flags_of(value_of(words, "flags", ""))};
    model.wr.rdma.remote_addr = (uintptr_t)remote->memory + number_of(words, "off", 0);
    model.wr.rdma.rkey = (uint32_t)number_of(words, "key", remote->mr->rkey);
    chain(requests, (unsigned)number_of(words, "x", 1), &model);
    int code = qp->qp->context->ops.post_send(qp->qp, requests, &bad);
    *ret_bad = code && bad ? (long)(bad - requests) : -1;
    return positive(code);
}

static int post_receive(struct object *qp, struct object *local, char **words)
{
    struct ibv_sge sges[PIECES];
    struct ibv_recv_wr *bad;
    int code = 0;
    for (uint64_t i = 0; !code && i < number_of(words, "x", 1); i++) {
        struct ibv_recv_wr request = {.wr_id = number_of(words, "id", 1) + i,
                                      .sg_list = sges,
                                      .num_sge =
                                          fill_pieces(sges, local, words, number_of(words, "len", 4096))};
        code = positive(qp->qp->context->ops.post_recv(qp->qp, &request, &bad));
    }
    return code;
}

bool steps_post(struct world *world, char **words)
{
    int opcode = opcode_of(words[0]);
    bool is_receive = strcmp(words[0], "recv") == 0;
    if (opcode < 0 && !is_receive)
        return false;
    struct object *qp = world_find(world, words[1], KIND_QP), *local = world_find(world, words[2], KIND_MR);
    struct object *remote = is_receive ? local : world_find(world, words[3], KIND_MR);
    if (!qp || !local || !remote)
        return true;
    long bad = -1;
    int code =
        is_receive ? post_receive(qp, local, words) : post_sends(qp, local, remote, opcode, words, &bad);
    expect_code(world, code, words);
    long wanted = (long)number_of(words, "bad", (uint64_t)bad);
    if (code && wanted != bad && !world->is_rxe)
        world_fault(world, "the bad request is number %ld, not %ld", bad, wanted);
    return true;
}
