/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The words of a step, and the steps that make, unmake and ask. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 24 };

/* ---- words ---- */

static const struct {
    const char *name;
    int value;
} errnos[] = {{"0", 0},
              {"EINVAL", EINVAL},
              {"EBUSY", EBUSY},
              {"ENOMEM", ENOMEM},
              {"EFAULT", EFAULT},
              {"EAGAIN", EAGAIN},
              {"ENODATA", ENODATA},
              {"EOPNOTSUPP", EOPNOTSUPP},
              {"EPERM", EPERM},
              {"EIO", EIO},
              {"ENOENT", ENOENT},
              {"ETIMEDOUT", ETIMEDOUT},
              {"ENOSYS", ENOSYS},
              {"ENETUNREACH", ENETUNREACH},
              {"any", -2}};

int errno_of(const char *word)
{
    for (size_t i = 0; i < sizeof errnos / sizeof *errnos; i++)
        if (strcmp(errnos[i].name, word) == 0)
            return errnos[i].value;
    return -1;
}

int positive(int code)
{
    return code == -1 ? errno : abs(code);
}

const char *value_of(char **words, const char *key, const char *otherwise)
{
    size_t length = strlen(key);
    for (; *words; words++)
        if (strncmp(*words, key, length) == 0 && (*words)[length] == '=' && (*words)[length + 1])
            return *words + length + 1;
    return otherwise;
}

uint64_t number_of(char **words, const char *key, uint64_t otherwise)
{
    const char *value = value_of(words, key, NULL);
    return value ? strtoull(value, NULL, 0) : otherwise;
}

void expect_code(struct world *world, int code, char **words)
{
    const char *expected = "0";
    for (char **word = words; *word; word++)
        if (strcmp(*word, "=") == 0 && word[1])
            expected = word[1];
    if (world->is_rxe)
        expected = value_of(words, "rxe", expected);
    int wanted = errno_of(expected);
    if (wanted == -1)
        world_fault(world, "what is %s?", expected);
    else if (wanted == -2 ? !code : code != wanted)
        world_fault(world, "expected %s, got %d (%s)", expected, code, strerror(code));
}

/* ---- making and unmaking ---- */

static bool step_make(struct world *world, char **words)
{
    if (strcmp(words[0], "pd") == 0) {
        expect_code(world, world_add_pd(world, words[1]), words);
    } else if (strcmp(words[0], "mr") == 0) {
        expect_code(world, world_add_mr(world, words[1], words[2], words[3], words[4]), words);
    } else if (strcmp(words[0], "cq") == 0) {
        int vector = (int)number_of(words, "vector", 0);
        expect_code(world, world_add_cq(world, words[1], atoi(words[2]), vector), words);
    } else if (strcmp(words[0], "qp") == 0) {
        struct ibv_qp_cap cap = {.max_send_wr = (uint32_t)number_of(words, "sends", 16),
                                 .max_recv_wr = (uint32_t)number_of(words, "receives", 16),
                                 .max_send_sge = (uint32_t)number_of(words, "pieces", 1),
                                 .max_recv_sge = 1,
                                 .max_inline_data = (uint32_t)number_of(words, "inline", 0)};
        expect_code(world, world_add_qp(world, words[1], words[2], &cap), words);
    } else {
        return false;
    }
    return true;
}

static struct object *find_any(struct world *world, const char *name)
{
    for (unsigned i = 0; i < world->n_objects; i++)
        if (world->objects[i].kind && strcmp(world->objects[i].name, name) == 0)
            return &world->objects[i];
    world_fault(world, "there is no %s", name);
    return NULL;
}

static bool step_unmake(struct world *world, char **words)
{
    bool is_it = strcmp(words[0], "destroy") == 0 || strcmp(words[0], "dereg") == 0 ||
                 strcmp(words[0], "dealloc") == 0;
    if (!is_it)
        return false;
    struct object *object = find_any(world, words[1]);
    if (object)
        expect_code(world, world_remove(world, object), words);
    return true;
}

/* ---- asking ---- */

static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

static void step_state(struct world *world, char **words)
{
    struct object *qp = world_find(world, words[1], KIND_QP);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    if (!qp)
        return;
    int code = positive(world->verbs->query_qp(qp->qp, &attr, IBV_QP_STATE, &init));
    const char *wanted = world->is_rxe ? value_of(words, "rxe", words[2]) : words[2];
    const char *found = (unsigned)attr.qp_state < 7 ? states[attr.qp_state] : "none";
    if (code || strcmp(found, wanted))
        world_fault(world, "expected state %s, got %s (code %d)", wanted, found, code);
}

static void step_same(struct world *world, char **words)
{
    struct object *one = world_find(world, words[1], KIND_MR), *other = world_find(world, words[2], KIND_MR);
    size_t count = strtoul(words[3] ? words[3] : "0", NULL, 0);
    if (one && other && !!memcmp(one->memory, other->memory, count) != (strcmp(words[0], "differ") == 0))
        world_fault(world, "the first %zu bytes of %s and %s are not as they should be", count, words[1],
                    words[2]);
}

static bool step_ask(struct world *world, char **words)
{
    union ibv_gid gid = {.raw = {1}};
    __be16 pkey;
    if (strcmp(words[0], "state") == 0) {
        step_state(world, words);
    } else if (strcmp(words[0], "same") == 0 || strcmp(words[0], "differ") == 0) {
        step_same(world, words);
    } else if (strcmp(words[0], "gid") == 0) {
        struct ibv_gid_entry entry;
        uint32_t index = (uint32_t)strtoul(words[1], NULL, 0);
        int code = world->verbs->query_gid_ex(world->context, 1, index, &entry, 0, sizeof entry);
        expect_code(world, positive(code), words);
    } else if (strcmp(words[0], "zerogid") == 0) {
        int code = positive(world->verbs->query_gid(world->context, 1, atoi(words[1]), &gid));
        expect_code(world, code, words);
        if (!code && memcmp(&gid, &(union ibv_gid){.raw = {0}}, sizeof gid))
            world_fault(world, "the GID is not of zeros");
    } else if (strcmp(words[0], "pkey") == 0) {
        expect_code(world, positive(world->verbs->query_pkey(world->context, 1, atoi(words[1]), &pkey)),
                    words);
    } else if (strcmp(words[0], "port") == 0) {
        struct verbs_context *verbs = verbs_get_ctx(world->context);
        struct ibv_port_attr attr;
        int code = verbs->query_port(world->context, (uint8_t)atoi(words[1]), &attr, sizeof attr);
        expect_code(world, positive(code), words);
    } else {
        return false;
    }
    return true;
}

void world_step(struct world *world, char *text)
{
    char *words[WORDS + 4] = {NULL}, *at = NULL;
    unsigned n = 0;
    for (char *word = strtok_r(text, " \n", &at); word && n < WORDS; word = strtok_r(NULL, " \n", &at))
        words[n++] = word;
    if (!n)
        return;
    bool is_known = step_make(world, words) || step_unmake(world, words) || step_ask(world, words) ||
                    steps_modify(world, words) || steps_post(world, words) || steps_complete(world, words);
    if (!is_known)
        world_fault(world, "what is %s?", words[0]);
}
