/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/remote.h: the reading and writing side. A remote is one session with a peer (gpusys/peer.h): its
 * table of regions, and an engine that moves bytes between them and the caller's memory over the best
 * transport there is.
 *
 * Threads: a remote belongs to one thread at a time. It runs no thread of its own: bytes move inside submit,
 * poll, wait, read and write.
 *
 * Buffers given to submit stay the caller's, and must stay put, until the batch's completion has been
 * returned.
 */
#ifndef GPUSYS_REMOTE_H
#define GPUSYS_REMOTE_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <gpusys/hash.h>
#include <gpusys/peer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpusys_remote;

enum gpusys_transport {
    GPUSYS_TRANSPORT_ANY = 0,
    GPUSYS_TRANSPORT_SHM = 1,   /* the peer's memory, through a descriptor it passed: same host only */
    GPUSYS_TRANSPORT_TCP = 2,   /* requests and payload over a connection of its own */
    GPUSYS_TRANSPORT_VERBS = 3, /* RDMA */
};

/* "shm", "tcp", "verbs", "any"; and back: the enum, or -EINVAL. */
GPUSYS_API const char *gpusys_transport_name(enum gpusys_transport transport);
GPUSYS_API int gpusys_transport_parse(const char *name);

struct gpusys_remote_options {
    size_t size;              /* sizeof(struct gpusys_remote_options) */
    int64_t timeout_ns;       /* for the whole of open; 0: 10 s; -1: no limit */
    const char *cookie_file;  /* NULL: the one in the runtime directory that is named after the port */
    uint32_t require;         /* enum gpusys_transport: refuse any other */
    uint32_t tcp_connections; /* rails of the tcp transport, 1 … 8; 0: 1 */
    uint64_t slice_bytes; /* a transfer's piece on one rail; 0: as the transport likes it. At most 16 MiB */
    const char *const
        *devices; /* verbs: the ports to use, as in gpusys_verbs_options; NULL: all that are up */
    uint32_t n_devices;
    uint32_t n_rails; /* verbs: at most so many, 1 … 8; 0: as many as pair */
};

/*
 * Connect to "HOST:PORT", "[V6]:PORT", "HOST" or "unix:PATH" and choose a transport. -ECONNREFUSED, -ENOENT
 * and the like: nobody there; -EACCES: the cookie; -EBUSY: too many clients; -EOPNOTSUPP: not the transport
 * that was required; -ETIMEDOUT; -EBADMSG, -EPROTO: no gpusys peer; -EINVAL, -E2BIG: the options.
 */
GPUSYS_API int gpusys_remote_open(struct gpusys_remote **ret_remote, const char *address,
                                  const struct gpusys_remote_options *options, struct gpusys_error *error);

/* End the session; batches under way are dropped. NULL is fine. */
GPUSYS_API void gpusys_remote_close(struct gpusys_remote *remote);

struct gpusys_remote_info {
    size_t size;          /* in: sizeof(struct gpusys_remote_info) */
    uint32_t transport;   /* enum gpusys_transport: the one chosen */
    uint32_t n_rails;     /* rails of it that are up */
    uint64_t n_regions;   /* regions that the peer said it has, arenas not counted */
    uint64_t arena_bytes; /* what the peer would give in arenas, all clients together; 0: none */
    uint64_t slice_bytes; /* in use */
    char address[160];    /* the peer, as connected */
    char reason[256];     /* why this transport and not a better one, one line */
    char fault[256];      /* what the rails that are down died of, one line; empty: none is */
};

GPUSYS_API int gpusys_remote_info(const struct gpusys_remote *remote, struct gpusys_remote_info *ret_info);

/* One rail of a remote: which two ports it joins, and what was agreed. */
struct gpusys_rail_info {
    size_t size;        /* in: sizeof(struct gpusys_rail_info) */
    uint32_t transport; /* enum gpusys_transport */
    uint32_t is_up;
    uint64_t bytes; /* moved so far, both ways */
    /* verbs only, from here on: */
    char local_device[64], remote_device[32]; /* remote: empty in the field's dialects */
    char local_gid[48], remote_gid[48];
    uint32_t local_port, link_layer; /* enum gpusys_link_layer */
    uint32_t local_gid_index, remote_gid_index;
    uint32_t local_mtu_bytes, remote_mtu_bytes, mtu_bytes; /* mtu_bytes: in use, the smaller */
    uint32_t reads_out;                                    /* RDMA reads that may be under way */
    uint32_t same_subnet; /* else the two were paired in order, and a read went through */
    int32_t local_numa_node, remote_numa_node; /* -1: unknown */
};

/* Rail 0 … 7. -ENOENT: there is none of that number. */
GPUSYS_API int gpusys_remote_rail(const struct gpusys_remote *remote, uint32_t rail,
                                  struct gpusys_rail_info *ret_info);

/*
 * Tell the remote of memory that transfers will use again and again: over verbs it is registered with every port
 * (pinned, counted against RLIMIT_MEMLOCK), and what lies wholly in it moves without a copy. Elsewhere it does
 * nothing. Other memory may be used too: short pieces are copied, long ones registered for the time of the transfer.
 * Unregister it, by the same address, before it is freed and while no batch uses it.
 */
GPUSYS_API int gpusys_remote_register(struct gpusys_remote *remote, void *address, uint64_t length,
                                      struct gpusys_error *error);
GPUSYS_API void gpusys_remote_unregister(struct gpusys_remote *remote, void *address);

/* ---- regions ---- */

enum gpusys_region_kind {
    GPUSYS_REGION_MEMORY = 0,
    GPUSYS_REGION_FILE = 1,
    GPUSYS_REGION_DIRECTORY = 2, /* length 0; an entry of a served tree */
    GPUSYS_REGION_ARENA = 3,     /* this client's own */
};

/* Where a region's bytes lie at the peer. */
enum gpusys_region_place {
    GPUSYS_PLACE_MEMORY = 0, /* memory of the peer */
    GPUSYS_PLACE_FILE = 1,   /* the page cache, or the disk behind it */
    GPUSYS_PLACE_COPY = 2,   /* memory that a part of a file was copied to */
};

struct gpusys_region_info {
    size_t size;     /* in: sizeof(struct gpusys_region_info) */
    uint32_t region; /* its number: what the calls below take */
    uint32_t kind;   /* enum gpusys_region_kind */
    uint32_t access; /* GPUSYS_ACCESS_… */
    uint32_t place;  /* enum gpusys_region_place */
    uint32_t mode;   /* permission bits of a file or directory, 07777 */
    uint32_t reserved;
    uint64_t length;  /* bytes */
    int64_t mtime_ns; /* of a file or directory, since 1970 */
    const char *name; /* checked with gpusys_name_check; lives until the next list, or close */
};

/* Fetch the table. The numbers of regions already known do not change. *ret_count (may be NULL): regions in
 * it. */
GPUSYS_API int gpusys_remote_list(struct gpusys_remote *remote, int64_t timeout_ns, uint64_t *ret_count,
                                  struct gpusys_error *error);

/* A region of the table (0 … count-1) or an arena. -ENOENT. */
GPUSYS_API int gpusys_remote_region(const struct gpusys_remote *remote, uint32_t region,
                                    struct gpusys_region_info *ret_info);

/* By name, among those listed. -ENOENT. */
GPUSYS_API int gpusys_remote_find(const struct gpusys_remote *remote, const char *name, uint32_t *ret_region);

/* Memory at the peer for this client alone, readable and writable, zeroed; gone when the session ends. */
GPUSYS_API int gpusys_remote_arena_new(struct gpusys_remote *remote, uint64_t bytes, int64_t timeout_ns,
                                       uint32_t *ret_region, struct gpusys_error *error);
GPUSYS_API int gpusys_remote_arena_free(struct gpusys_remote *remote, uint32_t region, int64_t timeout_ns,
                                        struct gpusys_error *error);

/*
 * The checksums of chunks first … first+count-1 of a region (GPUSYS_CHUNK_BYTES each, the last one shorter).
 * The peer computes them once per file and remembers. -ESTALE: the file changed while served.
 */
GPUSYS_API int gpusys_remote_checksums(struct gpusys_remote *remote, uint32_t region, uint64_t first,
                                       uint32_t count, uint8_t (*ret_hashes)[GPUSYS_HASH_BYTES],
                                       int64_t timeout_ns, struct gpusys_error *error);

/* Ask for them without waiting, so that a later gpusys_remote_checksums finds them here. */
GPUSYS_API int gpusys_remote_checksums_ask(struct gpusys_remote *remote, uint32_t region, uint64_t first,
                                           uint32_t count);

/*
 * Same host only (-EOPNOTSUPP otherwise): a descriptor of the region's bytes from offset 0, borrowed until
 * release or close; and its bytes mapped into this process, faulted in. Never load from the mapping of a
 * *file* region that may shrink; map refuses those (-EOPNOTSUPP), pread the descriptor instead.
 */
GPUSYS_API int gpusys_remote_fd_of(struct gpusys_remote *remote, uint32_t region, int64_t timeout_ns,
                                   int *ret_fd, struct gpusys_error *error);
GPUSYS_API int gpusys_remote_map(struct gpusys_remote *remote, uint32_t region, int64_t timeout_ns,
                                 void **ret_address, struct gpusys_error *error);

/*
 * Let go of what this process holds of a region (descriptor, mapping); not while a batch that touches it is
 * under way. It comes back by itself when used again.
 */
GPUSYS_API void gpusys_remote_release(struct gpusys_remote *remote, uint32_t region);

/* ---- moving bytes ---- */

enum gpusys_op {
    GPUSYS_OP_READ = 0,  /* region → buffer */
    GPUSYS_OP_WRITE = 1, /* buffer → region */
};

enum gpusys_memory_kind {
    GPUSYS_MEMORY_HOST = 0, /* the only one so far; others are -EOPNOTSUPP */
};

struct gpusys_io {
    uint32_t op;     /* enum gpusys_op */
    uint32_t region; /* from gpusys_remote_region, _find or _arena_new */
    uint64_t offset; /* in the region, bytes */
    void *buffer;
    uint64_t length; /* bytes; any length */
    uint32_t memory; /* enum gpusys_memory_kind */
    int32_t device;  /* of that kind; 0 for host */
};

struct gpusys_batch_options {
    size_t size;         /* sizeof(struct gpusys_batch_options) */
    int64_t timeout_ns;  /* 0 or -1: none. When it passes the batch completes with -ETIMEDOUT */
    const void *note;    /* given to the peer's on_note after the last byte; NULL: none */
    uint32_t note_bytes; /* at most GPUSYS_NOTE_BYTES */
    uint32_t reserved;   /* 0 */
    uint64_t user;       /* comes back in the completion */
};

/*
 * Start moving. Ranges are checked against the table first: -ERANGE, -EACCES, -ENOENT and -EOPNOTSUPP start
 * nothing. The pieces of one batch move in no particular order. *ret_batch (may be NULL) is never 0. A batch
 * of none completes at once. -ENOTCONN: the session is over.
 */
GPUSYS_API int gpusys_remote_submit(struct gpusys_remote *remote, const struct gpusys_io *ios, size_t n_ios,
                                    const struct gpusys_batch_options *options, uint64_t *ret_batch);

/* The batch ended with an error while a write was under way that the peer has not confirmed. */
#define GPUSYS_COMPLETION_REMOTE_UNDEFINED 1u

struct gpusys_completion {
    uint64_t batch;
    uint64_t user;
    uint64_t bytes; /* acknowledged */
    int32_t status; /* 0, or the first error: -ERANGE, -EACCES, -ESTALE (changed while served), -EIO,
                       -ETIMEDOUT, -ECONNRESET; over verbs also -ENOENT, -EDQUOT (the peer has no region of that
                       number any more, or cannot register it), -EFAULT (the buffer is no memory), -EREMOTEIO
                       (its device refused the access) */
    uint32_t flags; /* GPUSYS_COMPLETION_… */
};

/* Move what can be moved without waiting; up to `max` completions, oldest first. Their number, or -ENOTCONN
 * when the session is over and none is left. */
GPUSYS_API int gpusys_remote_poll(struct gpusys_remote *remote, struct gpusys_completion *ret_completions,
                                  unsigned max);

/* The same, but waits for at least one. -ETIMEDOUT; -ENOENT when no batch is under way. A batch is not
 * cancelled by it. */
GPUSYS_API int gpusys_remote_wait(struct gpusys_remote *remote, struct gpusys_completion *ret_completions,
                                  unsigned max, int64_t timeout_ns);

/* Wait for this one; the others' completions stay for poll. */
GPUSYS_API int gpusys_remote_wait_batch(struct gpusys_remote *remote, uint64_t batch,
                                        struct gpusys_completion *ret_completion, int64_t timeout_ns);

/*
 * Readable (level-triggered) whenever poll may have something to do or to return. Owned by the remote.
 *
 *     struct pollfd entry = {.fd = gpusys_remote_fd(remote), .events = POLLIN};
 *     while (poll(&entry, 1, -1) > 0 && (count = gpusys_remote_poll(remote, completions, 16)) >= 0)
 *         ... use `count` completions ...
 *
 * Over shm the bytes are copied inside poll, a few MiB at a time.
 */
GPUSYS_API int gpusys_remote_fd(struct gpusys_remote *remote);

/* One read, one write; they return when done. The completion's status is the result. */
GPUSYS_API int gpusys_remote_read(struct gpusys_remote *remote, uint32_t region, uint64_t offset,
                                  void *buffer, uint64_t length, int64_t timeout_ns);
GPUSYS_API int gpusys_remote_write(struct gpusys_remote *remote, uint32_t region, uint64_t offset,
                                   const void *buffer, uint64_t length, int64_t timeout_ns);

/* Is the peer alive and answering? A round trip on the control stream. */
GPUSYS_API int gpusys_remote_ping(struct gpusys_remote *remote, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
