/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The steps that take queue pairs from state to state. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum {
    INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    RTS_MASK = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_TIMEOUT,
};

static const struct {
    const char *name;
    enum ibv_qp_state state;
    int mask;
} targets[] = {{"init", IBV_QPS_INIT, INIT_MASK},  {"rtr", IBV_QPS_RTR, RTR_MASK},
               {"rts", IBV_QPS_RTS, RTS_MASK},     {"reset", IBV_QPS_RESET, IBV_QP_STATE},
               {"err", IBV_QPS_ERR, IBV_QP_STATE}, {"sqd", IBV_QPS_SQD, IBV_QP_STATE}};

static const struct {
    const char *name;
    int bit;
} attributes[] = {{"STATE", IBV_QP_STATE},
                  {"CUR_STATE", IBV_QP_CUR_STATE},
                  {"ACCESS_FLAGS", IBV_QP_ACCESS_FLAGS},
                  {"PKEY_INDEX", IBV_QP_PKEY_INDEX},
                  {"PORT", IBV_QP_PORT},
                  {"AV", IBV_QP_AV},
                  {"PATH_MTU", IBV_QP_PATH_MTU},
                  {"DEST_QPN", IBV_QP_DEST_QPN},
                  {"RQ_PSN", IBV_QP_RQ_PSN},
                  {"SQ_PSN", IBV_QP_SQ_PSN},
                  {"MAX_DEST_RD_ATOMIC", IBV_QP_MAX_DEST_RD_ATOMIC},
                  {"MAX_QP_RD_ATOMIC", IBV_QP_MAX_QP_RD_ATOMIC},
                  {"MIN_RNR_TIMER", IBV_QP_MIN_RNR_TIMER},
                  {"RETRY_CNT", IBV_QP_RETRY_CNT},
                  {"RNR_RETRY", IBV_QP_RNR_RETRY},
                  {"TIMEOUT", IBV_QP_TIMEOUT},
                  {"QKEY", IBV_QP_QKEY}};

/* The mask with the bits of every "without=" and "with=" taken or added, and "only=" in its place. */
static int mask_of(struct world *world, char **words, int mask)
{
    for (; *words; words++)
        for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
            const char *name = strchr(*words, '=');
            if (!name || strcmp(name + 1, attributes[i].name))
                continue;
            if (strncmp(*words, "without=", 8) == 0)
                mask &= ~attributes[i].bit;
            else if (strncmp(*words, "with=", 5) == 0)
                mask |= attributes[i].bit;
            else if (strncmp(*words, "only=", 5) == 0)
                mask = IBV_QP_STATE | attributes[i].bit;
            else
                world_fault(world, "what is %s?", *words);
        }
    return mask;
}

/* A key for one of the two alone ("a:mtu=1024") goes before that for both. */
static uint64_t setting(char **words, const char *qp, const char *key, uint64_t otherwise)
{
    char own[40];
    strcpy(own, qp);
    strcat(own, ":");
    strcat(own, key);
    return number_of(words, own, number_of(words, key, otherwise));
}

static enum ibv_mtu mtu_of(uint64_t bytes)
{
    for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
        if (bytes == 128u << mtu)
            return (enum ibv_mtu)mtu;
    return (enum ibv_mtu)bytes; /* a wrong one, meant so */
}

static struct ibv_ah_attr address_of(struct world *world, const struct object *qp, char **words)
{
    struct ibv_ah_attr address = {.is_global = (uint8_t)setting(words, qp->name, "global", 1),
                                  .port_num = (uint8_t)setting(words, qp->name, "avport", 1)};
    address.dlid = (uint16_t)setting(words, qp->name, "lid", 0);
    address.grh.dgid = world->gid;
    if (setting(words, qp->name, "zerogid", 0))
        memset(&address.grh.dgid, 0, sizeof address.grh.dgid);
    address.grh.dgid.raw[15] = (uint8_t)setting(words, qp->name, "host", address.grh.dgid.raw[15]);
    address.grh.sgid_index = (uint8_t)setting(words, qp->name, "sgid", (uint64_t)world->gid_index);
    address.grh.hop_limit = 64;
    return address;
}

static struct ibv_qp_attr attributes_of(struct world *world, const struct object *qp,
                                        const struct object *other, char **words)
{
    const char *name = qp->name;
    struct ibv_qp_attr attr = {
        .port_num = (uint8_t)setting(words, name, "port", 1),
        .pkey_index = (uint16_t)setting(words, name, "pkey", 0),
        .qp_access_flags = (unsigned)setting(
            words, name, "access", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ),
        .path_mtu = mtu_of(setting(words, name, "mtu", 1024)),
        .dest_qp_num = (uint32_t)setting(words, name, "qpn", other->qp->qp_num),
        .rq_psn = (uint32_t)setting(words, name, "rq_psn", other->psn),
        .sq_psn = (uint32_t)setting(words, name, "sq_psn", qp->psn),
        .max_dest_rd_atomic = (uint8_t)setting(words, name, "dest_rd", 4),
        .max_rd_atomic = (uint8_t)setting(words, name, "rd", 4),
        .min_rnr_timer = (uint8_t)setting(words, name, "min_rnr", 1),
        .timeout = (uint8_t)setting(words, name, "timeout", 12),
        .retry_cnt = (uint8_t)setting(words, name, "retry", 3),
        .rnr_retry = (uint8_t)setting(words, name, "rnr", 3),
        .cur_qp_state = (enum ibv_qp_state)setting(words, name, "cur", 0),
    };
    attr.ah_attr = address_of(world, qp, words);
    return attr;
}

static int modify(struct world *world, const struct object *qp, const struct object *other, size_t target,
                  char **words)
{
    struct ibv_qp_attr attr = attributes_of(world, qp, other, words);
    attr.qp_state = targets[target].state;
    return positive(world->verbs->modify_qp(qp->qp, &attr, mask_of(world, words, targets[target].mask)));
}

static void bring_up(struct world *world, char **words)
{
    struct object *a = world_find(world, "a", KIND_QP), *b = world_find(world, "b", KIND_QP);
    for (size_t target = 0; a && b && target < 3; target++) {
        int code = modify(world, a, b, target, words);
        code = code ? code : modify(world, b, a, target, words);
        if (code)
            world_fault(world, "step %s of up: %s", targets[target].name, strerror(code));
    }
}

/* a's other is b and everyone else's is a. */
static struct object *other_of(struct world *world, const struct object *qp)
{
    return world_find(world, strcmp(qp->name, "a") == 0 ? "b" : "a", KIND_QP);
}

bool steps_modify(struct world *world, char **words)
{
    if (strcmp(words[0], "up") == 0) {
        bring_up(world, words);
        return true;
    }
    for (size_t target = 0; target < sizeof targets / sizeof *targets; target++)
        if (strcmp(words[0], targets[target].name) == 0) {
            struct object *qp = world_find(world, words[1], KIND_QP),
                          *other = qp ? other_of(world, qp) : NULL;
            if (other)
                expect_code(world, modify(world, qp, other, target, words), words);
            return true;
        }
    return false;
}
