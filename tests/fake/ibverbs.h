/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The stand-in libibverbs, inside. What processes share lies in a table that all of them map; its one lock, which
 * survives a process that dies with it, also guards the objects of this process. There is no thread of a "device":
 * whoever posts a request executes it, with the checks of both ends, on the memory of the other process.
 */
#ifndef FAKE_IBVERBS_H
#define FAKE_IBVERBS_H

#pragma GCC visibility push(default)
#include "ibverbs_control.h"
#include <infiniband/verbs.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum {
    MR_SLOTS = 1 << 16,
    QP_SLOTS = 1 << 11,
    CQ_SLOTS = 1 << 11,
    GIDS = 16,     /* kept of a port; the table may be longer and is empty beyond */
    RECV_WR = 128, /* the deepest receive queue */
    RECV_SGE = 4,
    SEND_SGE = 16,
    PORTS = 2,
    DEVICES = 8,
    PKEYS = 4,
    RULES = 64,
};

/* ---- the table that processes share (ibverbs_table.c) ---- */

struct shared_mr {
    int32_t pid; /* 0: a free slot, here and below */
    uint32_t next_free, generation;
    uint32_t pd, access;
    uint64_t start, length; /* as the peer addresses it */
    uint64_t address;       /* where it is in its process */
};

struct shared_cq {
    int32_t pid;
    uint32_t next_free, generation;
    int32_t event_fd; /* the writing end of its channel, in its process; -1: it has none */
    uint32_t armed;   /* 1: any completion, 2: solicited ones */
    uint64_t cookie;  /* the struct ibv_cq */
};

struct shared_recv {
    uint64_t wr_id;
    uint32_t n_sge;
    struct ibv_sge sges[RECV_SGE];
    struct ibv_wc wc; /* how it ended, once it has */
};

struct shared_qp {
    int32_t pid;
    uint32_t next_free, generation;
    uint32_t qpn, state, pd, access;
    uint32_t dest_qpn, rq_psn, sq_psn, mtu; /* mtu in bytes */
    uint32_t max_rd_atomic, max_dest_rd_atomic;
    uint32_t send_cq, recv_cq; /* slots */
    int32_t async_fd;
    uint64_t cookie;       /* the struct ibv_qp */
    uint32_t send_waiting; /* requests posted and not executed */
    struct ibv_ah_attr av;
    uint32_t port_active, port_lid, port_lmc, port_mtu, link_layer;
    struct {
        union ibv_gid gid;
        uint32_t type, used;
    } gids[GIDS];
    uint32_t recv_posted, recv_done, recv_taken, recv_size; /* counters: posted >= done >= taken */
    struct shared_recv recvs[RECV_WR];
};

struct slots {
    uint32_t first_free, fresh; /* `fresh`: those from here on were never used */
};

struct table {
    uint64_t magic, bytes;
    pthread_mutex_t lock;
    uint32_t next_pd;
    struct slots mr_slots, qp_slots, cq_slots;
    struct shared_mr mrs[MR_SLOTS];
    struct shared_cq cqs[CQ_SLOTS];
    struct shared_qp qps[QP_SLOTS];
};

struct table *fake_table_open(const char *folder);
void fake_table_leave(void); /* free everything that this process has in it */

/* A slot, or UINT32_MAX where none is left. */
uint32_t fake_mr_slot(void);
uint32_t fake_cq_slot(void);
uint32_t fake_qp_slot(void);
void fake_mr_slot_free(uint32_t slot);
void fake_cq_slot_free(uint32_t slot);
void fake_qp_slot_free(uint32_t slot);

/* Write to a descriptor of another process, or of ours; what does not arrive is lost. */
void fake_write_to(int32_t pid, int fd, const void *bytes, size_t count);
bool fake_is_alive(int32_t pid);

/* ---- devices (ibverbs_config.c, ibverbs_device.c) ---- */

struct port {
    struct ibv_port_attr attr;
    struct {
        struct ibv_gid_entry entry;
        bool used;
    } gids[GIDS];
    uint16_t pkeys[PKEYS];
};

struct device {
    struct ibv_device base; /* first */
    struct ibv_device_attr attr;
    uint32_t max_inline;
    bool has_dmabuf, is_removed;
    struct port ports[PORTS];
    int index;
};

struct rule {
    unsigned function; /* FUNCTIONS: any */
    uint64_t at;       /* which call, counted from the start */
    enum fake_ibverbs_action action;
    uint64_t value;
};

struct config {
    struct device devices[DEVICES];
    unsigned n_devices;
    uint64_t delay_us, retry_us, memlock_bytes;
    unsigned polls;
    bool hold, resolve, pin_forced, numbers_part;
    struct rule rules[RULES];
    unsigned n_rules;
};

void fake_config_read(struct config *config, const char *path);
bool fake_gid_parse(union ibv_gid *ret_gid, const char *address);
const char *fake_errno_value(const char *text, uint64_t *ret_value); /* what is wrong with it, or NULL */

/* ---- the functions that can be counted and made to fail ---- */

#define FAKE_FUNCTIONS(ROW)                                                                                  \
    ROW(ibv_get_device_list)                                                                                 \
    ROW(ibv_open_device)                                                                                     \
    ROW(ibv_close_device)                                                                                    \
    ROW(ibv_get_async_event)                                                                                 \
    ROW(ibv_query_device)                                                                                    \
    ROW(ibv_query_port)                                                                                      \
    ROW(ibv_query_gid)                                                                                       \
    ROW(_ibv_query_gid_ex)                                                                                   \
    ROW(_ibv_query_gid_table)                                                                                \
    ROW(ibv_query_pkey)                                                                                      \
    ROW(ibv_alloc_pd)                                                                                        \
    ROW(ibv_dealloc_pd)                                                                                      \
    ROW(ibv_reg_mr)                                                                                          \
    ROW(ibv_reg_mr_iova)                                                                                     \
    ROW(ibv_reg_mr_iova2)                                                                                    \
    ROW(ibv_reg_dmabuf_mr)                                                                                   \
    ROW(ibv_dereg_mr)                                                                                        \
    ROW(ibv_create_comp_channel)                                                                             \
    ROW(ibv_destroy_comp_channel)                                                                            \
    ROW(ibv_create_cq)                                                                                       \
    ROW(ibv_resize_cq)                                                                                       \
    ROW(ibv_destroy_cq)                                                                                      \
    ROW(ibv_get_cq_event)                                                                                    \
    ROW(ibv_poll_cq)                                                                                         \
    ROW(ibv_req_notify_cq)                                                                                   \
    ROW(ibv_create_qp)                                                                                       \
    ROW(ibv_modify_qp)                                                                                       \
    ROW(ibv_query_qp)                                                                                        \
    ROW(ibv_destroy_qp)                                                                                      \
    ROW(ibv_post_send)                                                                                       \
    ROW(ibv_post_recv)                                                                                       \
    ROW(ibv_fork_init)

#define FAKE_FUNCTION_ENUM(name) FN_##name,
enum function { FAKE_FUNCTIONS(FAKE_FUNCTION_ENUM) FUNCTIONS };

/* ---- objects of this process ---- */

struct context {
    struct device *device;
    struct context *next;
    struct qp *qps;
    int async_write_fd;
    unsigned n_objects; /* PDs, channels, queues, regions */
    bool is_closed;
    struct verbs_context verbs; /* its last member is the struct ibv_context */
};

struct pd {
    struct ibv_pd base;
    uint32_t id;
    unsigned users;
};

struct mr {
    struct ibv_mr base;
    uint32_t slot;
    void *mapping; /* of a dmabuf */
    size_t mapping_bytes;
};

struct channel {
    struct ibv_comp_channel base;
    int write_fd;
};

struct cqe {
    struct ibv_wc wc;
    struct qp *qp; /* NULL: of none */
    uint64_t
        retires; /* the send queue's places before this number are free once it is polled; 0: a receive */
};

struct cq {
    struct ibv_cq base;
    uint32_t slot;
    unsigned users;
    struct cqe *ring;
    unsigned first, count;
    bool is_overrun;
    uint64_t polls;
    uint64_t comp_events, async_events; /* taken; acknowledged ones are counted in base */
};

struct request {
    uint64_t wr_id, remote_address, due_ns, due_polls;
    uint64_t length;
    uint32_t rkey, imm, n_sge, flags;
    enum ibv_wr_opcode opcode;
    bool is_held, is_hung, has_verdict;
    enum ibv_wc_status verdict;
    struct ibv_sge *sges;
    unsigned char *inlined;
};

struct qp {
    struct ibv_qp base;
    struct qp *next;
    uint32_t slot;
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    bool signal_all, is_fatal;
    struct request *requests;
    struct ibv_sge *sges;
    unsigned char *inlined;
    uint64_t posted, executed, retired; /* counters: posted >= executed >= retired */
    unsigned reads;                     /* posted and not retired */
    uint64_t async_events;
};

struct waiting {
    bool hold;
    uint64_t delay_ns, polls;
};

struct state {
    struct table *table;
    struct config config, original;
    struct context *contexts;
    int32_t pid;
    struct waiting waiting;
    uint64_t calls[FUNCTIONS + 1];
    struct rule rules[RULES];
    unsigned n_rules;
    int64_t live[FAKE_IBVERBS_KINDS];
    uint64_t registered_bytes;
    bool is_fork_initialized;
    bool next_verdict_set;
    enum ibv_wc_status next_verdict;
    struct device *list_devices; /* what ibv_get_device_list gives */
};

extern struct state fake;

/* ---- around every call (ibverbs_call.c) ---- */

/* Take the lock, count the call and look for a rule. 0, or the errno to leave with at once (the lock is held still). */
int fake_enter(enum function function, struct ibv_context *context, struct qp *qp, struct cq *cq);
unsigned fake_function_of(const char *name);     /* FUNCTIONS for "*", more where there is none */
int fake_leave(int error);                       /* drop the lock; gives the error */
void *fake_leave_with(void *pointer, int error); /* the same, errno set where there is no pointer */
void fake_lock(void);
void fake_unlock(void);
uint64_t fake_now_ns(void);
void fake_start_timer(void); /* something waits for a time */
void fake_stop_timer(void);  /* without the lock */

/* ---- events (ibverbs_event.c) ---- */

struct async_record {
    uint64_t element;
    int32_t type, port;
};

void fake_device_event(struct device *device, enum ibv_event_type type, int port);
void fake_qp_event(const struct shared_qp *qp, enum ibv_event_type type);
void fake_cq_event(struct cq *cq, enum ibv_event_type type);
void fake_remove_device(struct device *device);
void fake_forget_records(int read_fd, int write_fd, size_t record_bytes, uint64_t element);
int fake_pipe(int fds[2]);
struct device *fake_device(const char *name);

/* ---- queues (ibverbs_cq.c, ibverbs_qp.c, ibverbs_data.c, ibverbs_post.c) ---- */

static inline struct context *context_of(struct ibv_context *context)
{
    return (struct context *)((char *)context - offsetof(struct context, verbs.context));
}

void fake_cq_push(struct cq *cq, const struct ibv_wc *wc, struct qp *qp, uint64_t retires, bool solicited);
void fake_cq_purge(struct cq *cq, const struct qp *qp);
void fake_cq_notify(uint32_t slot, bool solicited); /* someone else's completion waits in a receive queue */
void fake_qp_enter_error(struct shared_qp *shared);
void fake_qp_set_port(struct qp *qp);
void fake_qp_progress(struct qp *qp); /* execute what is due, take what arrived, flush */
struct shared_qp *fake_qp_shared(const struct qp *qp);

enum outcome { OUTCOME_DONE, OUTCOME_HANGS, OUTCOME_NO_ANSWER };
enum outcome fake_execute(struct qp *qp, struct request *request, enum ibv_wc_status *ret_status);

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);

const struct shared_mr *fake_mr_find(uint32_t key, bool is_remote, int32_t pid);

#endif
