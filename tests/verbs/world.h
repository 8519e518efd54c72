/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a row of the table acts on: a library that was loaded, and named objects on one of its devices. */
#ifndef WORLD_H
#define WORLD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* The names without their prefix: some of the full ones are macros. */
#define VERBS(ROW)                                                                                           \
    ROW(get_device_list, ibv_get_device_list, "IBVERBS_1.1")                                                 \
    ROW(free_device_list, ibv_free_device_list, "IBVERBS_1.1")                                               \
    ROW(get_device_name, ibv_get_device_name, "IBVERBS_1.1")                                                 \
    ROW(open_device, ibv_open_device, "IBVERBS_1.1")                                                         \
    ROW(close_device, ibv_close_device, "IBVERBS_1.1")                                                       \
    ROW(query_device, ibv_query_device, "IBVERBS_1.1")                                                       \
    ROW(query_gid, ibv_query_gid, "IBVERBS_1.1")                                                             \
    ROW(query_gid_ex, _ibv_query_gid_ex, "IBVERBS_1.11")                                                     \
    ROW(query_pkey, ibv_query_pkey, "IBVERBS_1.1")                                                           \
    ROW(alloc_pd, ibv_alloc_pd, "IBVERBS_1.1")                                                               \
    ROW(dealloc_pd, ibv_dealloc_pd, "IBVERBS_1.1")                                                           \
    ROW(reg_mr, ibv_reg_mr, "IBVERBS_1.1")                                                                   \
    ROW(dereg_mr, ibv_dereg_mr, "IBVERBS_1.1")                                                               \
    ROW(create_comp_channel, ibv_create_comp_channel, "IBVERBS_1.0")                                         \
    ROW(destroy_comp_channel, ibv_destroy_comp_channel, "IBVERBS_1.0")                                       \
    ROW(create_cq, ibv_create_cq, "IBVERBS_1.1")                                                             \
    ROW(destroy_cq, ibv_destroy_cq, "IBVERBS_1.1")                                                           \
    ROW(get_cq_event, ibv_get_cq_event, "IBVERBS_1.1")                                                       \
    ROW(ack_cq_events, ibv_ack_cq_events, "IBVERBS_1.1")                                                     \
    ROW(create_qp, ibv_create_qp, "IBVERBS_1.1")                                                             \
    ROW(modify_qp, ibv_modify_qp, "IBVERBS_1.1")                                                             \
    ROW(query_qp, ibv_query_qp, "IBVERBS_1.1")                                                               \
    ROW(destroy_qp, ibv_destroy_qp, "IBVERBS_1.1")                                                           \
    ROW(get_async_event, ibv_get_async_event, "IBVERBS_1.1")                                                 \
    ROW(ack_async_event, ibv_ack_async_event, "IBVERBS_1.1")                                                 \
    ROW(event_type_str, ibv_event_type_str, "IBVERBS_1.1")                                                   \
    ROW(wc_status_str, ibv_wc_status_str, "IBVERBS_1.1")

struct verbs {
#define VERBS_MEMBER(member, name, version) __typeof__(name) *member;
    VERBS(VERBS_MEMBER)
#undef VERBS_MEMBER
};

enum { OBJECTS = 16, REGION_BYTES = 65536, CHAIN = 512 };

enum kind { KIND_NONE, KIND_PD, KIND_MR, KIND_CQ, KIND_QP, KIND_CHANNEL };

struct object {
    char name[16];
    enum kind kind;
    union {
        void *any;
        struct ibv_pd *pd;
        struct ibv_mr *mr;
        struct ibv_cq *cq;
        struct ibv_qp *qp;
        struct ibv_comp_channel *channel;
    };
    struct ibv_mr dead_mr; /* what a region was, once it is deregistered */
    void *memory;
    size_t bytes;
    uint32_t psn; /* a queue pair's first, either way */
    struct ibv_qp_cap cap;
};

struct world {
    const struct verbs *verbs;
    struct ibv_device *device;
    struct ibv_context *context;
    struct object objects[OBJECTS];
    unsigned n_objects;
    union ibv_gid gid;
    int gid_index;
    bool is_rxe;
    char fault[300]; /* why the row failed; empty: it did not */
};

/* Load a library; NULL path: the system's. False with a line on stderr. */
bool verbs_load(struct verbs *ret_verbs, const char *path);

void world_open(struct world *world);
void world_close(struct world *world);
void world_fault(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* NULL, and a fault, where there is none. */
struct object *world_find(struct world *world, const char *name, enum kind kind);
struct object *world_add(struct world *world, const char *name, enum kind kind);

int world_add_pd(struct world *world, const char *name);
int world_add_mr(struct world *world, const char *name, const char *pd, const char *bytes,
                 const char *rights);
int world_add_cq(struct world *world, const char *name, int entries, int vector);
int world_add_qp(struct world *world, const char *name, const char *cq, const struct ibv_qp_cap *cap);
int world_remove(struct world *world, struct object *object);

/* One step; `text` is cut up. */
void world_step(struct world *world, char *text);

/* steps_*.c */
int errno_of(const char *word); /* 0 for "0"; -1: not one */
bool steps_modify(struct world *world, char **words);
bool steps_post(struct world *world, char **words);
bool steps_complete(struct world *world, char **words);
void expect_code(struct world *world, int code, char **words);
int positive(int code); /* what calls give, as a positive errno */
const char *value_of(char **words, const char *key, const char *otherwise);
uint64_t number_of(char **words, const char *key, uint64_t otherwise);

#endif
