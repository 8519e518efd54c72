/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Steering the stand-in libibverbs.so.1 from a test. Look the functions up with dlsym in the library that was loaded;
 * all may be called from any thread. They act on this process alone.
 *
 * Two environment variables are read when the library is first used:
 *   FAKE_IBVERBS_DIR     a folder shared by the processes that are to reach each other; without it a process reaches
 *                        itself and the children it forks after first use
 *   FAKE_IBVERBS_CONFIG  a text file of `key value` lines, # begins a comment; without it two RoCE devices
 *
 * Lines of the configuration, in any order but for their nesting:
 *   hold | delay_us N | polls N   completions wait: for fake_ibverbs_release; so long; for so many polls
 *   retry_us N             "retry exceeded" comes so long after posting (0: at once)
 *   resolve no             a GID that no known port has is accepted at RTR, rather than refused with ETIMEDOUT
 *   numbers_part yes       after a read with smaller packets than the peer's the two sides' numbers differ for good: so
 *                          Soft-RoCE between hosts. Without it they find together again, as it does within one
 *   pin_forced yes         a read-only registration of a shared read-only mapping is refused with EFAULT (Linux < 6.2)
 *   memlock_bytes N        registering more than so much gives ENOMEM
 *   on NAME N ACTION [VALUE]  at the Nth call from the start of a function: see fake_ibverbs_on; VALUE a number or E...
 *   device NAME            begins a device; its keys follow
 *     ibdev_path PATH, node_guid HEX, fw_ver TEXT, dmabuf yes|no, max_mr_size, max_qp_rd_atom, max_qp_init_rd_atom,
 *     max_cqe, max_qp_wr, max_sge, max_inline, max_mr, max_qp, max_cq, max_pd N
 *   port N                 begins a port of that device; its keys follow
 *     state down|init|armed|active, link_layer ethernet|infiniband, lid N, sm_lid N, lmc N, grh_required yes|no,
 *     active_mtu BYTES, max_mtu BYTES, max_msg_sz N, active_width N, active_speed N, gid_tbl_len N, pkey HEX,
 *     gid INDEX ADDRESS ib|roce1|roce2 [NETDEV]
 */
#ifndef FAKE_IBVERBS_CONTROL_H
#define FAKE_IBVERBS_CONTROL_H

#include <stdint.h>

enum fake_ibverbs_action {
    FAKE_IBVERBS_FAIL, /* the call fails with errno VALUE and does nothing */
    FAKE_IBVERBS_EVENT, /* the asynchronous event VALUE (enum ibv_event_type) for the call's device, port 1 or queue */
    FAKE_IBVERBS_COMPLETE, /* the request posted by it completes with status VALUE (enum ibv_wc_status) */
    FAKE_IBVERBS_HOLD,     /* the requests posted from then on wait for fake_ibverbs_release */
    FAKE_IBVERBS_STRAY,    /* before the call, its queue gets a good completion with the wr_id VALUE */
    FAKE_IBVERBS_REMOVE,   /* the call's device goes away */
    FAKE_IBVERBS_EXIT,     /* the process ends at once with exit status VALUE */
};

enum fake_ibverbs_kind {
    FAKE_IBVERBS_CONTEXTS,
    FAKE_IBVERBS_PDS,
    FAKE_IBVERBS_MRS,
    FAKE_IBVERBS_CHANNELS,
    FAKE_IBVERBS_CQS,
    FAKE_IBVERBS_QPS,
    FAKE_IBVERBS_UNACKED, /* events taken and not acknowledged */
    FAKE_IBVERBS_KINDS
};

/* Forget rules, waiting and counts; put devices back as configured. Objects stay. */
void fake_ibverbs_reset(void);

/*
 * At the nth call from now (1: the next) of the function `name` ("ibv_reg_mr", "ibv_post_send", "ibv_poll_cq",
 * "_ibv_query_gid_ex", …; "*": any that can fail, but for polling and freeing), once. 0, or -1 where there is no such function.
 */
int fake_ibverbs_on(const char *name, unsigned nth, enum fake_ibverbs_action action, uint64_t value);

/* Calls of a function since the start or the reset, "*" included. -1: no such function. */
int64_t fake_ibverbs_calls(const char *name);

/* Live objects; the sum of all for FAKE_IBVERBS_KINDS. */
int64_t fake_ibverbs_live(enum fake_ibverbs_kind kind);

/* Requests posted from now on wait; for release, for a time, for a number of polls of their queue. 0: they do not. */
void fake_ibverbs_hold(int on);
void fake_ibverbs_delay_us(uint64_t us);
void fake_ibverbs_polls(unsigned polls);

/* As the key numbers_part. */
void fake_ibverbs_numbers_part(int yes);

/* Let the first `count` held requests run (0: all). How many did. */
unsigned fake_ibverbs_release(unsigned count);

/* Requests posted and not executed. */
unsigned fake_ibverbs_outstanding(void);

/* A device's event, a type of enum ibv_event_type, to every open context of it; -1: no such device. Port events change the port's state as well,
 * DEVICE_FATAL ends its queues. Events of queues go to all queues of the device. */
int fake_ibverbs_event(const char *device, int type, int port);

/* Take a device away, as unplugging does. */
int fake_ibverbs_remove(const char *device);

/* Replace a GID (NULL address: empty it) or the LID of a port; the event follows. */
int fake_ibverbs_set_gid(const char *device, int port, int index, const char *address);
int fake_ibverbs_set_lid(const char *device, int port, uint16_t lid);

/* Put a completion into every completion queue of the device that has queue pairs. */
int fake_ibverbs_stray(const char *device, uint64_t wr_id);

#endif
