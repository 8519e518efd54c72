/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/verbs.h: RDMA over one queue pair at a time: ports and their GIDs, memory that a peer may reach, and
 * reliable connections that read and write it. libibverbs is found at run time (libibverbs.so.1, or the file
 * that GPUSYS_LIBIBVERBS names); its types come from rdma-core's headers at build time and none of them
 * appears here.
 *
 *     gpusys_verbs_open          a port of a device, and the GID we are known by there
 *       gpusys_pd_open           a protection domain: queue pairs reach the memory of their own domain only
 *         gpusys_mr_open         memory that the device may touch
 *         gpusys_qp_open         one end of a connection, in INIT
 *           gpusys_qp_connect    to RTR and RTS, with what the other end said of itself
 *           gpusys_qp_post, _poll, _wait, _drain
 *
 * What was made from an object must be closed before it. Everything is numbered as on the wire: GIDs are 16
 * raw bytes, queue pair and packet numbers 24 bits, MTUs bytes.
 *
 * Threads: a queue pair belongs to one thread at a time. Ports, domains and memory may be used by several at
 * once, but not while they are being closed; an event is given to whoever takes it first.
 *
 * fork: loading the library calls ibv_fork_init, unless the process has done so already or the kernel copies
 * registered pages at fork by itself (since 5.12). A child must not touch the parent's objects, and must not
 * close them either.
 *
 * Errors, beside those named at each call: -EOPNOTSUPP this build has no verbs (gpusys_verbs_enabled), -ENOENT
 * no libibverbs, -ELIBBAD, -ELIBACC, -ENOSYS it cannot be used (gpusys/dl.h), -ENODEV no such device or port,
 * -ENETDOWN the port is down, -ENOMEM, -EINVAL, and what the driver says.
 */
#ifndef GPUSYS_VERBS_H
#define GPUSYS_VERBS_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <gpusys/stream.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Was this library built with rdma-core's headers? */
GPUSYS_API bool gpusys_verbs_enabled(void);

/*
 * Can RDMA be used here and now: built in, the library loads, there is a device whose node opens, and a port
 * that is up. 0, or the first thing that is missing: -EOPNOTSUPP, -ENOENT and its like, -ENODEV, -EACCES,
 * -ENETDOWN.
 */
GPUSYS_API int gpusys_verbs_status(struct gpusys_error *error);

/* The file that was loaded; NULL when none was. */
GPUSYS_API const char *gpusys_verbs_library(void);

/* ---- what there is ---- */

enum gpusys_link_layer {
    GPUSYS_LINK_NONE = 0,
    GPUSYS_LINK_INFINIBAND = 1,
    GPUSYS_LINK_ETHERNET = 2, /* RoCE */
};

enum gpusys_gid_type {
    GPUSYS_GID_INFINIBAND = 0,
    GPUSYS_GID_ROCE_V1 = 1,
    GPUSYS_GID_ROCE_V2 = 2,
};

/* ibv_port_state */
enum gpusys_port_state {
    GPUSYS_PORT_DOWN = 1,
    GPUSYS_PORT_INIT = 2,
    GPUSYS_PORT_ARMED = 3,
    GPUSYS_PORT_ACTIVE = 4,
    GPUSYS_PORT_ACTIVE_DEFER = 5,
};

struct gpusys_port_info {
    size_t size;     /* in: sizeof(struct gpusys_port_info) */
    char device[64]; /* "mlx5_0" */
    char netdev[16]; /* of the GID ranked first; empty: none (InfiniBand without IPoIB) */
    uint32_t port;   /* from 1 */
    uint32_t state;  /* enum gpusys_port_state; 0: the device could not be opened, and `problem` says why */
    uint32_t link_layer; /* enum gpusys_link_layer */
    uint32_t lid, sm_lid;
    uint32_t grh_required; /* IBV_QPF_GRH_REQUIRED */
    uint32_t mtu_bytes, max_mtu_bytes;
    uint32_t rate_mbps;                       /* signalling rate: width times speed; 0: unknown */
    int32_t numa_node;                        /* -1: unknown */
    uint32_t n_gids;                          /* that are set */
    uint32_t reads_out, reads_in;             /* RDMA reads under way that it may start, and answer */
    uint64_t max_message_bytes;               /* of one read or write */
    uint64_t max_mr_bytes;                    /* of one registration */
    uint32_t max_qps, max_cqes, max_requests; /* max_requests: under way in one queue pair */
    char firmware[64];
    char problem[160]; /* why it cannot be used as it is; empty: it can */
};

struct gpusys_gid_info {
    size_t size; /* in: sizeof(struct gpusys_gid_info) */
    uint8_t gid[16];
    uint32_t index;
    uint32_t type;    /* enum gpusys_gid_type */
    char netdev[16];  /* of this GID; empty: none, or it is in another network namespace */
    char text[48];    /* the address: "10.0.0.1" for a mapped IPv4 address, else IPv6 notation */
    uint32_t usable;  /* may be chosen */
    char reason[128]; /* why it stands where it stands in the ranking, one line */
};

/* A snapshot of every port of every device. */
struct gpusys_ports;

/*
 * `local_address` (may be NULL) is this host's end of a connection to the peer and `peer` (may be NULL) the
 * GID or the mapped address of the peer: both as gpusys_verbs_open uses them for ranking the GIDs. A device
 * that cannot be opened is listed with its problem. No device at all is -ENODEV.
 */
GPUSYS_API int gpusys_ports_new(struct gpusys_ports **ret_ports, const char *local_address,
                                const uint8_t peer[16], struct gpusys_error *error);
GPUSYS_API void gpusys_ports_free(struct gpusys_ports *ports);
GPUSYS_API uint32_t gpusys_ports_count(const struct gpusys_ports *ports);
GPUSYS_API int gpusys_ports_port(const struct gpusys_ports *ports, uint32_t at,
                                 struct gpusys_port_info *ret_info);
/* The GIDs of port `at`, the best first. -ENOENT behind the last one. */
GPUSYS_API int gpusys_ports_gid(const struct gpusys_ports *ports, uint32_t at, uint32_t rank,
                                struct gpusys_gid_info *ret_info);

/* ---- a port ---- */

struct gpusys_verbs;

#define GPUSYS_VERBS_GID_INDEX 1u /* use gid_index */
#define GPUSYS_VERBS_DOWN_OK   2u /* open a port that is down too */

struct gpusys_verbs_options {
    size_t size;        /* sizeof(struct gpusys_verbs_options) */
    const char *device; /* NULL or "any": the first port that is up; a device ("mlx5_0", "mlx5_0:2" with its
                           port), a network interface ("ens1f0"), or an address of this host ("10.0.0.1") */
    uint32_t flags;     /* GPUSYS_VERBS_… */
    uint32_t gid_index; /* with GPUSYS_VERBS_GID_INDEX: no other is tried, and it is checked */
    const char *local_address; /* our end of the control connection: a RoCE v2 GID with this address is taken
                                  before all others. May be NULL */
    const uint8_t *peer;       /* 16 bytes: the peer's GID, or its address mapped; GIDs of its family are
                                  preferred. May be NULL */
};

/*
 * Open a port. -ENODEV: no such device (the error lists those there are); -ENETDOWN: it is not ACTIVE; -EINVAL:
 * the GID index is empty, beyond the table, or of no use against the peer, with both sides' values;
 * -EADDRNOTAVAIL: none of an Ethernet port's GIDs can be used; -EPROTONOSUPPORT: an iWARP device.
 */
GPUSYS_API int gpusys_verbs_open(struct gpusys_verbs **ret_verbs, const struct gpusys_verbs_options *options,
                                 struct gpusys_error *error);
GPUSYS_API void gpusys_verbs_close(struct gpusys_verbs *verbs);

/* The port, and the GID that was chosen (InfiniBand: its first). Either may be NULL. */
GPUSYS_API int gpusys_verbs_info(const struct gpusys_verbs *verbs, struct gpusys_port_info *ret_port,
                                 struct gpusys_gid_info *ret_gid);

/*
 * The GID of this port that ranks first against a peer, as gpusys_verbs_options has it (either may be NULL), read
 * anew. -ENOENT: the port has none.
 */
GPUSYS_API int gpusys_verbs_gid_for(const struct gpusys_verbs *verbs, const char *local_address,
                                    const uint8_t *peer, struct gpusys_gid_info *ret_gid);

enum gpusys_verbs_event_kind {
    GPUSYS_EVENT_PORT_DOWN = 1, /* this port; queue pairs fail at once with -ENETDOWN */
    GPUSYS_EVENT_PORT_UP = 2,
    GPUSYS_EVENT_DEVICE_GONE = 3, /* removed or broken: close everything */
    GPUSYS_EVENT_GID_CHANGE = 4,  /* the GID was looked up again; `gid_changed` says whether it is another */
    GPUSYS_EVENT_QP_FATAL = 5,    /* a queue pair is broken; its next poll says so */
    GPUSYS_EVENT_CQ_ERROR = 6,
    GPUSYS_EVENT_OTHER = 7,
};

struct gpusys_verbs_event {
    uint32_t kind;   /* enum gpusys_verbs_event_kind */
    int32_t foreign; /* enum ibv_event_type */
    uint32_t gid_changed;
    uint32_t reserved;
    char text[64]; /* the driver's words */
};

/* Readable when gpusys_verbs_event has something. Owned by the port. */
GPUSYS_API int gpusys_verbs_fd(const struct gpusys_verbs *verbs);
/* The next asynchronous event, never waiting: 1 with an event, 0 without. Events of other ports are dropped. */
GPUSYS_API int gpusys_verbs_event(struct gpusys_verbs *verbs, struct gpusys_verbs_event *ret_event);
/* 0, -ENETDOWN or -ENODEV, as the events said so far. Any thread. */
GPUSYS_API int gpusys_verbs_health(const struct gpusys_verbs *verbs);

/* ---- memory ---- */

struct gpusys_pd; /* a protection domain */

GPUSYS_API int gpusys_pd_open(struct gpusys_pd **ret_pd, struct gpusys_verbs *verbs,
                              struct gpusys_error *error);
GPUSYS_API void gpusys_pd_close(struct gpusys_pd *pd);

enum gpusys_mr_access {
    GPUSYS_MR_LANDING = 1,         /* local write: where our own reads land, and what our writes send */
    GPUSYS_MR_PEER_READ = 2,       /* the peer may read, and nobody writes */
    GPUSYS_MR_PEER_READ_WRITE = 3, /* the peer may read and write */
    GPUSYS_MR_SOURCE = 4,          /* our writes send it, and nobody writes to it */
};

/*
 * With relaxed ordering the device may let writes of one message overtake each other: only a completion says
 * that bytes have arrived, never a look at the last one. It is a wish: drivers that do not know it ignore it.
 */
#define GPUSYS_MR_RELAXED 0x100u

struct gpusys_mr;

struct gpusys_mr_info {
    size_t size; /* in: sizeof(struct gpusys_mr_info) */
    uint64_t address, length;
    uint32_t lkey, rkey;
};

/*
 * Register memory (1 … max_mr_bytes bytes). -EMSGSIZE: more than the device allows, with both numbers; -EFAULT:
 * the kernel cannot pin it (read-only mappings of files, before some kernel); -ENOMEM: out of memory, or above
 * RLIMIT_MEMLOCK: the error then has the limit, what is needed and how to raise it.
 */
GPUSYS_API int gpusys_mr_open(struct gpusys_mr **ret_mr, struct gpusys_pd *pd, void *address, uint64_t length,
                              uint32_t access, struct gpusys_error *error);
GPUSYS_API void gpusys_mr_close(struct gpusys_mr *mr);
GPUSYS_API int gpusys_mr_info(const struct gpusys_mr *mr, struct gpusys_mr_info *ret_info);

/* How GPU memory came to be registered. */
enum gpusys_gpu_path {
    GPUSYS_GPU_DMABUF = 1,      /* through a dmabuf descriptor */
    GPUSYS_GPU_PEER_MEMORY = 2, /* by its address, through the driver's peer memory module */
};

/*
 * GPU memory in `n` domains at once (one per rail), with one descriptor for all of them, so that the GPU maps
 * it once: `dmabuf_fd` at `dmabuf_offset` stands for `address` … `address + length`. Where the library, the
 * kernel or a device does not do dmabuf (asked once), or `dmabuf_fd` is -1, all of them are registered by the
 * address. All or nothing; *ret_path says which. The error names why neither worked.
 */
GPUSYS_API int gpusys_mr_open_gpu(struct gpusys_mr **ret_mrs, struct gpusys_pd *const *pds, uint32_t n,
                                  void *address, uint64_t length, int dmabuf_fd, uint64_t dmabuf_offset,
                                  uint32_t access, uint32_t *ret_path, struct gpusys_error *error);

/* ---- queue pairs ---- */

struct gpusys_qp;

#define GPUSYS_QP_PSN       1u /* use psn */
#define GPUSYS_QP_GID_INDEX 2u /* use gid_index: another GID than the port's */

/* All zero: the defaults. */
struct gpusys_qp_options {
    size_t size;           /* sizeof(struct gpusys_qp_options) */
    uint32_t flags;        /* GPUSYS_QP_… */
    uint32_t psn;          /* with GPUSYS_QP_PSN: 24 bits; else random */
    uint32_t depth;        /* requests under way, 1 … the device's limit; 0: 128 */
    uint32_t inline_bytes; /* writes up to this long are copied into the request; 0: 64; cut to what is had */
    uint32_t mtu_bytes;    /* at most this; 0: the port's active MTU */
    uint32_t hop_limit;    /* 0: 64 */
    uint8_t service_level, traffic_class;
    uint8_t ack_timeout; /* 4.096 µs · 2^n, 1 … 31; 0: 14, 67 ms */
    uint8_t retry_count; /* 1 … 6; 0: 6. (With 7 some devices never give up.) */
    uint8_t rnr_retry;   /* 1 … 7; 0: 7 */
    uint8_t pad[3];      /* 0 */
    uint32_t pkey_index;
    uint32_t gid_index; /* with GPUSYS_QP_GID_INDEX */
    uint32_t reserved;  /* 0 */
};
/* A queue pair in INIT that lets its peer read and write what the domain's registrations allow. */
GPUSYS_API int gpusys_qp_open(struct gpusys_qp **ret_qp, struct gpusys_pd *pd,
                              const struct gpusys_qp_options *options, struct gpusys_error *error);

/* Put it into ERR, reap what comes back within a moment, destroy it. NULL and half-built ones are fine. */
GPUSYS_API void gpusys_qp_close(struct gpusys_qp *qp);

/* One end of a connection, ours or the peer's. */
struct gpusys_qp_end {
    size_t size; /* in: sizeof(struct gpusys_qp_end) */
    uint32_t qpn, psn;
    uint8_t gid[16];
    uint32_t lid;        /* InfiniBand; 0: none */
    uint32_t link_layer; /* enum gpusys_link_layer; NONE: not said (the field's handshake), as ours */
    uint32_t mtu_bytes;  /* 0: not said */
    uint32_t reads_out, reads_in; /* 0: not said, 16 */
    uint32_t gid_index;           /* for messages */
    uint32_t grh_required;
};

/* Our end, as the peer has to be told. */
GPUSYS_API int gpusys_qp_end(const struct gpusys_qp *qp, struct gpusys_qp_end *ret_end);

struct gpusys_qp_info {
    size_t size; /* in: sizeof(struct gpusys_qp_info) */
    struct gpusys_qp_end local, remote;
    uint32_t connected;
    uint32_t mtu_bytes;           /* of the path: the smaller of both sides' */
    uint32_t reads_out, reads_in; /* in use */
    uint32_t depth, inline_bytes; /* as the device gave them */
    uint32_t uses_grh;
    uint32_t outstanding;                     /* requests under way */
    int32_t dead;                             /* 0, or the negative errno that ended it */
    uint64_t max_read_bytes, max_write_bytes; /* of one message: longer operations are split */
};
GPUSYS_API int gpusys_qp_info(const struct gpusys_qp *qp, struct gpusys_qp_info *ret_info);

/*
 * INIT → RTR → RTS. The path's MTU is the smaller of both sides', reads under way the smaller of what one side
 * may start and the other answer. -EINVAL: values that cannot be (a number above 24 bits, an MTU that is none,
 * GIDs of different families, link layers that differ); otherwise what the driver said, with the attribute that
 * it can have been, and both sides' values.
 */
GPUSYS_API int gpusys_qp_connect(struct gpusys_qp *qp, const struct gpusys_qp_end *peer,
                                 struct gpusys_error *error);

/*
 * For peers that do not say their MTU: the same connection once more at a smaller one. The queue pair goes
 * through RESET and keeps its number; `packets` is how many packets of the peer's our requests have used up, so
 * that both sides go on counting together; it is taken modulo 2^24, so a second try can take the first one's
 * back. Nothing may be under way.
 */
GPUSYS_API int gpusys_qp_reconnect(struct gpusys_qp *qp, uint32_t mtu_bytes, uint32_t packets,
                                   struct gpusys_error *error);

/*
 * Send nothing longer than this in one message, 1 byte … the device's own limit (-EINVAL): against a peer whose MTU
 * is, or may be, larger than ours, where only what fits into one packet is counted alike by both sides.
 */
GPUSYS_API int gpusys_qp_limit(struct gpusys_qp *qp, uint64_t read_bytes, uint64_t write_bytes);

enum gpusys_qp_op_kind {
    GPUSYS_QP_READ = 0,  /* peer → us */
    GPUSYS_QP_WRITE = 1, /* us → peer */
};

/* One request. Longer than the device's longest message is fine: it is split, and completes once. */
struct gpusys_qp_op {
    uint64_t id;            /* comes back in the completion */
    uint64_t local, remote; /* addresses */
    uint64_t length;        /* bytes; 0 is fine */
    uint32_t lkey, rkey;
    uint32_t kind; /* enum gpusys_qp_op_kind */
    uint32_t reserved;
};

/* How many requests would be taken now. */
GPUSYS_API uint32_t gpusys_qp_room(const struct gpusys_qp *qp);

/*
 * Post a list: one call of the driver where it takes them all. Returns how many were taken, in order: fewer
 * than `n` when there is no more room. -ENOTCONN: not connected; -ENETDOWN, -ENODEV: the port; once a request
 * has failed: what it failed with. A length above what fits into `depth` messages of the device is -EMSGSIZE.
 */
GPUSYS_API int gpusys_qp_post(struct gpusys_qp *qp, const struct gpusys_qp_op *ops, uint32_t n);

struct gpusys_qp_completion {
    uint64_t id;
    int32_t
        status; /* 0, or: -EREMOTEIO the peer refused the access (wrong key, outside the region, no right),
                        -EFAULT our own memory is not registered for it, -EMSGSIZE a length that does not fit,
                        -ETIMEDOUT no answer (retries exceeded), -EAGAIN the receiver was not ready,
                        -ECANCELED never started or cut off because the queue pair had failed before,
                        -EIO anything else */
    uint32_t foreign; /* enum ibv_wc_status */
    uint32_t vendor;  /* the device's own code */
    uint32_t reserved;
};

/*
 * What is done, in the order it was posted, without waiting. The count; 0: nothing. Once a request has failed the
 * queue pair is of no use: everything else comes back as -ECANCELED. A negative errno when the queue itself is
 * broken (-EPROTO a completion with an unknown id, -ENODEV, -EIO): nothing more will come from it.
 */
GPUSYS_API int gpusys_qp_poll(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions,
                              uint32_t max);

/*
 * The same, but waits for one: spins a little, then sleeps on the completion channel. `control` (may be NULL) is
 * watched too: -ECONNRESET as soon as the peer has closed it. -ETIMEDOUT; -ENOENT when nothing is under way;
 * -ENETDOWN, -ENODEV by an event of the port.
 */
GPUSYS_API int gpusys_qp_wait(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions,
                              uint32_t max, struct gpusys_stream *control, int64_t deadline_ns);

/* For loops of one's own: readable after `arm` once there is something to poll. */
GPUSYS_API int gpusys_qp_fd(const struct gpusys_qp *qp);
/* Poll once more after it and before sleeping: what came in between raises nothing. */
GPUSYS_API int gpusys_qp_arm(struct gpusys_qp *qp);

/*
 * Stop for good: into ERR, and reap everything under way, into `ret_completions` if not NULL (room for
 * gpusys_qp_info.outstanding). *ret_count (may be NULL): how many. After 0 the device touches none of the
 * buffers any more; -ETIMEDOUT: it may.
 */
GPUSYS_API int gpusys_qp_drain(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions,
                               uint32_t max, uint32_t *ret_count, int64_t deadline_ns);

/* Put a failed completion into words: what happened, both sides' values, the cause, what to do. Its status. */
GPUSYS_API int gpusys_qp_explain(const struct gpusys_qp *qp, const struct gpusys_qp_completion *completion,
                                 struct gpusys_error *error);

/* The negative errno for an enum ibv_wc_status, and the enum's name in words. */
GPUSYS_API int gpusys_wc_status_errno(uint32_t status);
GPUSYS_API const char *gpusys_wc_status_text(uint32_t status);

#ifdef __cplusplus
}
#endif

#endif
