/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Verbs, inside: the table of libibverbs' functions and the objects over it. Only files that are built with
 * rdma-core's headers include this; verbs_none.c stands in for all of them elsewhere.
 */
#ifndef GPUSYS_RAIL_VERBS_H
#define GPUSYS_RAIL_VERBS_H

#include <gpusys/dl.h>
#include <gpusys/verbs.h>

#include <infiniband/verbs.h>
#include <stdatomic.h>

/*
 * The functions we use, with the symbol version that has the ABI of the headers: an unversioned lookup of
 * ibv_open_device may give that of 2005. Members drop the prefix, because some of the full names are macros.
 * Posting, polling and arming are no symbols but operations of a context.
 */
#define GS_IBV_SYMBOLS(ROW)                                                                                  \
    ROW(REQUIRED, get_device_list, ibv_get_device_list, "IBVERBS_1.1", NULL)                                 \
    ROW(REQUIRED, free_device_list, ibv_free_device_list, "IBVERBS_1.1", NULL)                               \
    ROW(REQUIRED, get_device_name, ibv_get_device_name, "IBVERBS_1.1", NULL)                                 \
    ROW(REQUIRED, open_device, ibv_open_device, "IBVERBS_1.1", NULL)                                         \
    ROW(REQUIRED, close_device, ibv_close_device, "IBVERBS_1.1", NULL)                                       \
    ROW(REQUIRED, get_async_event, ibv_get_async_event, "IBVERBS_1.1", NULL)                                 \
    ROW(REQUIRED, ack_async_event, ibv_ack_async_event, "IBVERBS_1.1", NULL)                                 \
    ROW(REQUIRED, query_device, ibv_query_device, "IBVERBS_1.1", NULL)                                       \
    ROW(REQUIRED, query_port, ibv_query_port, "IBVERBS_1.1", NULL)                                           \
    ROW(REQUIRED, query_gid, ibv_query_gid, "IBVERBS_1.1", NULL)                                             \
    ROW(REQUIRED, alloc_pd, ibv_alloc_pd, "IBVERBS_1.1", NULL)                                               \
    ROW(REQUIRED, dealloc_pd, ibv_dealloc_pd, "IBVERBS_1.1", NULL)                                           \
    ROW(REQUIRED, reg_mr, ibv_reg_mr, "IBVERBS_1.1", NULL)                                                   \
    ROW(REQUIRED, dereg_mr, ibv_dereg_mr, "IBVERBS_1.1", NULL)                                               \
    ROW(REQUIRED, create_comp_channel, ibv_create_comp_channel, "IBVERBS_1.0", NULL)                         \
    ROW(REQUIRED, destroy_comp_channel, ibv_destroy_comp_channel, "IBVERBS_1.0", NULL)                       \
    ROW(REQUIRED, create_cq, ibv_create_cq, "IBVERBS_1.1", NULL)                                             \
    ROW(REQUIRED, destroy_cq, ibv_destroy_cq, "IBVERBS_1.1", NULL)                                           \
    ROW(REQUIRED, get_cq_event, ibv_get_cq_event, "IBVERBS_1.1", NULL)                                       \
    ROW(REQUIRED, ack_cq_events, ibv_ack_cq_events, "IBVERBS_1.1", NULL)                                     \
    ROW(REQUIRED, create_qp, ibv_create_qp, "IBVERBS_1.1", NULL)                                             \
    ROW(REQUIRED, modify_qp, ibv_modify_qp, "IBVERBS_1.1", NULL)                                             \
    ROW(REQUIRED, destroy_qp, ibv_destroy_qp, "IBVERBS_1.1", NULL)                                           \
    ROW(REQUIRED, fork_init, ibv_fork_init, "IBVERBS_1.1", NULL)                                             \
    ROW(OPTIONAL, is_fork_initialized, ibv_is_fork_initialized, "IBVERBS_1.13", "35")                        \
    ROW(OPTIONAL, event_type_str, ibv_event_type_str, "IBVERBS_1.1", NULL)                                   \
    ROW(OPTIONAL, reg_mr_iova2, ibv_reg_mr_iova2, "IBVERBS_1.8", "24")                                       \
    ROW(OPTIONAL, query_gid_ex, _ibv_query_gid_ex, "IBVERBS_1.11", "32")                                     \
    ROW(OPTIONAL, reg_dmabuf_mr, ibv_reg_dmabuf_mr, "IBVERBS_1.12", "34")

#define GS_IBV_MEMBER(rank, member, symbol, version, since) __typeof__(symbol) *member;

struct gs_ibv {
    GS_IBV_SYMBOLS(GS_IBV_MEMBER)
    struct gpusys_dl *dl;
    bool is_ready;
};

/* The library, loaded once and never closed: drivers leave threads and fork handlers behind. NULL with the
 * error and *ret_code when it cannot be had; a later call tries again. */
const struct gs_ibv *gs_ibv(int *ret_code, struct gpusys_error *error);

/* What foreign calls give: NULL or -1 with errno, or a positive errno. Always a negative errno, never 0. */
int gs_ibv_errno(int result);

/* ---- ports (verbs_ports.c, verbs_gid.c) ---- */

enum { GS_GIDS_MAX = 256 }; /* above that an index wraps in the kernel's interface */

/* One GID as read, with what the ranking needs. */
struct gs_gid {
    struct gpusys_gid_info info;
    unsigned score; /* the higher the better; 0: not usable */
};

/* Read the port's table and rank it for a peer; `ret_gids` has room for GS_GIDS_MAX. Their number. */
unsigned gs_gids_read(const struct gs_ibv *ibv, struct ibv_context *context, uint32_t port,
                      const struct ibv_port_attr *attributes, const char *local_address, const uint8_t *peer,
                      struct gs_gid *ret_gids);

/* Fill in everything but the GIDs. */
int gs_port_describe(const struct gs_ibv *ibv, struct ibv_context *context, uint32_t port,
                     struct gpusys_port_info *ret_info, struct ibv_port_attr *ret_attributes);

/* ibv_mtu and bytes. 0: none such. */
uint32_t gs_mtu_bytes(enum ibv_mtu mtu);
enum ibv_mtu gs_mtu_enum(uint32_t bytes); /* the largest that is at most so many bytes; 0 below 256 */

/* Does the driver register dmabuf descriptors? Asked once. */
enum gs_dmabuf { GS_DMABUF_UNASKED = 0, GS_DMABUF_YES = 1, GS_DMABUF_NO = 2 };

struct gpusys_verbs {
    const struct gs_ibv *ibv;
    struct ibv_context *context;
    uint32_t port;
    struct ibv_device_attr device_attributes;
    struct ibv_port_attr port_attributes;
    struct gpusys_port_info info;
    struct gpusys_gid_info gid;
    char local_address[64]; /* as opened with; empty: none */
    uint8_t peer[16];
    bool has_peer;
    bool fixed_gid;
    atomic_int health; /* 0, -ENETDOWN, -ENODEV */
    atomic_int dmabuf; /* enum gs_dmabuf */
};

/* Events replace `info` from time to time; the name in there never changes, but this one may be read by anybody. */
static inline const char *gs_device_name(const struct gpusys_verbs *verbs)
{
    return verbs->context->device->name;
}

/* ---- memory (verbs_mr.c) ---- */

struct gpusys_pd {
    struct gpusys_verbs *verbs;
    struct ibv_pd *pd;
};

struct gpusys_mr {
    const struct gs_ibv *ibv;
    struct ibv_mr *mr;
    uint64_t address; /* as given: what the peer calls the first byte */
};

/* ---- queue pairs (verbs_qp.c: life; verbs_connect.c: states; verbs_post.c: the data path) ---- */

/*
 * What a request under way is beside a whole operation, or the last piece of one, whose good completion is the
 * operation's: an earlier piece; or one that brings nothing, because the failure of its operation was given already.
 */
enum gs_qp_part { GS_QP_WHOLE = 0, GS_QP_PIECE = 1, GS_QP_GIVEN = 2 /* beside either */ };

enum {
    GS_QP_CHAIN = 64,
    GS_QP_WCS = 32,
    GS_QP_SIGNAL_BYTES = 64 * 1024, /* what is this long is worth a completion of its own */
};

struct gs_qp_request {
    struct ibv_send_wr wr; /* first */
    struct ibv_sge sge;
};

struct gpusys_qp {
    /*
     * Requests are numbered in the order posted: head … tail-1 are under way, each in slot (number & mask).
     * The number is the request's wr_id, and a good completion stands for all before it: those before
     * `done_until` are done and wait to be given.
     */
    uint64_t head, tail, done_until;
    uint8_t *parts; /* enum gs_qp_part by slot; GS_QP_WHOLE where nothing is under way */
    uint32_t mask, depth;
    uint32_t limit; /* depth, or 0 while nothing can be posted */
    uint32_t
        n_odd; /* slots whose part is not GS_QP_WHOLE, one for has_failed, one for broken: 0 is the short way */
    uint32_t inline_bytes;
    int32_t dead;   /* why nothing more can be posted; 0: it can, once connected */
    int32_t broken; /* why nothing more will come out; 0: it will */
    bool is_connected;
    bool has_failed;                          /* `failed` is a completion to be given after those before it */
    uint64_t max_read_bytes, max_write_bytes; /* of one message */
    uint64_t ordinary_bytes;                  /* nothing special about 1 to so many bytes */
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    struct gpusys_verbs *verbs;
    struct ibv_wc failed;

    uint32_t wc_at, wc_count; /* polled, not looked at yet */
    struct ibv_wc wcs[GS_QP_WCS];
    struct gs_qp_request chain[GS_QP_CHAIN]; /* being posted */

    struct ibv_comp_channel *channel;
    uint32_t events_unacked;

    struct gpusys_port_info info;     /* the port, as it was when this was opened */
    struct gpusys_qp_options options; /* the defaults filled in */
    struct gpusys_qp_end local, remote;
    uint32_t mtu_bytes, reads_out, reads_in;
    bool uses_grh;

    uint64_t ids[]; /* the caller's, by slot; `parts` lies behind them */
};

/* Nothing more can be posted; the first reason stays. */
static inline void gs_qp_end_posting(struct gpusys_qp *qp, int why)
{
    qp->dead = qp->dead ? qp->dead : why;
    qp->limit = 0;
}

/* Both sides' values, as rows of an error. */
void gs_qp_add_ends(const struct gpusys_qp *qp, struct gpusys_error *error);

/* To INIT, to ERR. */
int gs_qp_to_init(struct gpusys_qp *qp, struct gpusys_error *error);
int gs_qp_to_error(struct gpusys_qp *qp);

#endif
