/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/peer.h: the serving side. A peer owns regions (memory it allocated, files it was shown) and lets
 * clients (gpusys/remote.h) read or write them over gpusys/1 (docs/protocol.md), without the application
 * taking part.
 *
 *     gpusys_peer_open → gpusys_peer_add_… → gpusys_peer_start → … → gpusys_peer_close
 *
 * A process that forks must leave the peer alone in the child: its threads are not there.
 *
 * Threads: open, add, start and close from one thread; the peer runs its own threads (one per core at most,
 * and a small pool for reads that miss the page cache). Regions may be added while it serves.
 *
 * Trust: without GPUSYS_PEER_INSECURE a peer listens on loopback or a Unix socket only, and a client must
 * show a random cookie from a 0600 file in the runtime directory: other local users stay out. With it,
 * anybody who reaches the port reads what is served and writes what is writable.
 */
#ifndef GPUSYS_PEER_H
#define GPUSYS_PEER_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpusys_peer;

/* May a client only read, or write too? */
enum gpusys_access {
    GPUSYS_ACCESS_READ = 1,
    GPUSYS_ACCESS_WRITE = 2, /* with READ: 3 */
};

#define GPUSYS_PEER_INSECURE 1u /* no cookie, any address */
#define GPUSYS_PEER_NO_VERBS 2u /* offer no RDMA */

#define GPUSYS_NAME_BYTES 4096 /* a region's name with its NUL */
#define GPUSYS_NOTE_BYTES 256  /* a batch's note */

struct gpusys_peer_options {
    size_t size;        /* sizeof(struct gpusys_peer_options) */
    const char *listen; /* "HOST:PORT" or "unix:PATH"; NULL: loopback at GPUSYS_DEFAULT_PORT; port 0: any */
    const char *cookie_file; /* NULL: in the runtime directory, named after the port */
    uint32_t flags;          /* GPUSYS_PEER_INSECURE */
    uint32_t threads;        /* 0: one per core, at most 8 */
    uint32_t max_clients;    /* 0: 1024; sessions at once */
    uint32_t reserved;       /* 0 */
    uint64_t arena_bytes;    /* what all clients' arenas together may take; 0: none are given */
    int64_t step_timeout_ns; /* how long a client may take for each step of its opening; 0: 10 s */
    /* A client's note, after the last byte of its batch is in place. From a thread of the peer; may be NULL.
     */
    void (*on_note)(void *context, uint64_t client, const void *note, uint32_t note_bytes);
    void *context;
    /* The RDMA ports to offer, as in gpusys_verbs_options, at most 8; one that cannot be opened is an error.
     * NULL: all that are up, and none is fine. */
    const char *const *devices;
    uint32_t n_devices;
    uint32_t reserved2; /* 0 */
};

/* Bind, and write the cookie file. -EADDRINUSE, -EACCES (beyond loopback without INSECURE), -EINVAL, -ENOMEM,
 * ... */
GPUSYS_API int gpusys_peer_open(struct gpusys_peer **ret_peer, const struct gpusys_peer_options *options,
                                struct gpusys_error *error);

/* Stop, disconnect every client, remove the cookie and the socket, free. NULL is fine. */
GPUSYS_API void gpusys_peer_close(struct gpusys_peer *peer);

/* Begin to serve. */
GPUSYS_API int gpusys_peer_start(struct gpusys_peer *peer, struct gpusys_error *error);

/* Where it listens, with the real port: what a client passes to gpusys_remote_open. Lives as long as the
 * peer. */
GPUSYS_API const char *gpusys_peer_address(const struct gpusys_peer *peer);

/*
 * A region of zeroed memory. Its address in this process comes back and lives until the peer is closed: fill
 * it, read it. `access`: READ, or READ and WRITE; `ret_address` may be NULL. Read-only memory is in huge
 * pages where the system allows.
 * -EEXIST: the name is taken. -EINVAL: a name no client would accept (see below), 0 bytes.
 */
GPUSYS_API int gpusys_peer_add_memory(struct gpusys_peer *peer, const char *name, uint64_t bytes,
                                      uint32_t access, void **ret_address, struct gpusys_error *error);

/*
 * A range of a file as a read-only region. `length` 0: to the end. The whole of a file is served from the
 * page cache and never copied; a part is copied into memory now. A file that changes afterwards (size, mtime,
 * inode) is refused to clients as "changed while served".
 */
GPUSYS_API int gpusys_peer_add_file(struct gpusys_peer *peer, const char *name, const char *path,
                                    uint64_t offset, uint64_t length, struct gpusys_error *error);

/* Resolve symbolic links, once, now. Without it a link is an error that names it. */
#define GPUSYS_PATH_FOLLOW 1u

/*
 * A file, or a directory with all that is below it, each as a region of its own; a region's name is the
 * path's last component and what lies below it ("model/shard-0.safetensors"). Directories are entries too
 * (length 0). Sockets, pipes and devices are left out with a log line. Nothing is added when it fails.
 * *ret_count (may be NULL): regions added.
 */
GPUSYS_API int gpusys_peer_add_path(struct gpusys_peer *peer, const char *path, uint32_t flags,
                                    uint64_t *ret_count, struct gpusys_error *error);

struct gpusys_peer_stats {
    size_t size;            /* in: sizeof(struct gpusys_peer_stats) */
    uint64_t regions;       /* in the table */
    uint64_t region_bytes;  /* their lengths added up */
    uint64_t clients;       /* connected now */
    uint64_t clients_total; /* that were let in since start */
    uint64_t refused_total; /* that were turned away or broke the rules */
    uint64_t read_bytes;    /* sent to clients by the tcp transport */
    uint64_t write_bytes;   /* received from clients by the tcp transport */
    uint64_t maps_total;    /* descriptors handed to clients by the shm transport */
    uint64_t arenas;        /* held now */
    uint64_t arena_bytes;   /* held now */
    uint64_t ports;         /* RDMA ports that are offered */
    uint64_t rails_total;   /* verbs rails that clients connected */
    uint64_t keyed_bytes;   /* registered for verbs now, once for each port */
    uint64_t copied_bytes;  /* of them copied from files that cannot be registered where they lie */
};

/* Any thread, while the peer exists. */
GPUSYS_API int gpusys_peer_stats(const struct gpusys_peer *peer, struct gpusys_peer_stats *ret_stats);

/*
 * Is this a name that a peer may serve and a client may make a file of: not empty, UTF-8 without control
 * bytes, no leading or trailing '/', no empty, "." or ".." component, no component above 255 bytes, below
 * GPUSYS_NAME_BYTES? 0 or -EINVAL with the reason.
 */
GPUSYS_API int gpusys_name_check(const char *name, struct gpusys_error *error);

#ifdef __cplusplus
}
#endif

#endif
