/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The serving side, inside: peer, workers, connections, sessions.
 *
 * A worker is one loop's thread. A connection belongs to one worker, and a session with all its connections
 * to the same one: a rail that attaches moves to the session's worker. So nothing of a session needs a lock,
 * except that its entry in the peer's list is found by other workers under the peer's lock.
 */
#ifndef GPUSYS_REMOTE_SERVE_H
#define GPUSYS_REMOTE_SERVE_H

#include "remote/grant.h"
#include "remote/loop.h"
#include "remote/region.h"
#include "remote/runtime.h"
#include "wire/channel.h"

#include <gpusys/peer.h>

enum {
    GS_WORKERS_MAX = 8,
    GS_ARENAS_MAX = 64,          /* of one session */
    GS_JOBS_MAX = 8,             /* of one connection, at once */
    GS_OPENINGS_MAX = 1024,      /* connections that have not said what they want yet */
    GS_OUTPUT_MAX = 1024 * 1024, /* queued for a slow reader before we stop reading from it */
    GS_COMPLAINTS_MAX = 16,      /* log lines about one connection's requests */
    GS_REQUESTS_MAX = 1024,      /* under way on one tcp rail */
};

#define GS_ARENA_BIT UINT32_C(0x80000000) /* region numbers with it are arenas: the slot in the session */

struct gs_worker {
    struct gpusys_peer *peer;
    struct gs_loop *loop;
    struct gs_conn *conns;
};

/* What a connection is for. */
enum gs_role {
    GS_ROLE_OPENING,  /* it has not said */
    GS_ROLE_CONTROL,  /* a session's control stream */
    GS_ROLE_TCP,      /* a tcp rail */
    GS_ROLE_SHM,      /* an shm rail */
    GS_ROLE_VERBS,    /* a verbs rail: its queue pair and its keys */
    GS_ROLE_FAREWELL, /* the last words are going out, then it is closed */
};

struct gs_conn {
    struct gs_source source;
    struct gs_task task;  /* to arrive at a worker, and to be freed */
    struct gs_task again; /* to go on after the others had their turn */
    bool again_posted;
    struct gs_worker *worker;
    struct gs_conn *next, **link; /* in the worker's list */
    struct gs_session *session;
    struct gs_channel channel;
    enum gs_role role;
    bool opening_counted, closed;
    unsigned jobs;       /* in the pool on its behalf */
    unsigned complaints; /* logged */
    int64_t deadline_ns; /* for the step it is in; GPUSYS_NO_DEADLINE: none */
    uint8_t rail;        /* of a rail: its index and generation */
    uint32_t generation;
    uint64_t attach_serial;
    struct gs_attach attach; /* on its way to the session's worker */
    struct gs_tcp_serve *tcp;
    struct gpusys_qp *qp; /* of a verbs rail */
    uint32_t port;        /* which of the peer's it is on */
    char name[GS_ADDRESS_BYTES];
};

struct gs_session {
    struct gs_session *next, **link; /* in the peer's list, under its lock */
    struct gs_worker *worker;
    struct gs_conn *control, *rails[GS_RAILS_MAX];
    uint64_t number; /* for people */
    uint8_t id[GS_NONCE_BYTES], proof[GS_NONCE_BYTES];
    struct gs_region *arenas[GS_ARENAS_MAX];
    bool arena_pending[GS_ARENAS_MAX]; /* the pool is making it */
    struct gs_verbs_grant *grant;      /* what its verbs rails reach; NULL: it has had none */
};

struct gpusys_peer {
    /* What was asked for. */
    bool insecure;
    uint32_t max_clients;
    int64_t step_timeout_ns;
    uint64_t arena_limit;
    void (*on_note)(void *context, uint64_t client, const void *note, uint32_t note_bytes);
    void *context;

    /* Where it listens. */
    struct gs_address bound;
    struct gs_source listeners[2]; /* the address; the Unix socket for shm rails beside a TCP one */
    bool listeners_paused;
    char address[GS_ADDRESS_BYTES];
    char unix_path[GS_PATH_BYTES], cookie_path[GS_PATH_BYTES];
    uint8_t cookie[GS_COOKIE_BYTES];

    struct gs_served_ports ports;
    struct gs_verbs_grant *shared_grant; /* under the lock; NULL: nobody has it */
    struct gs_files files;
    struct gs_table table;
    struct gs_pool *pool;
    struct gs_worker workers[GS_WORKERS_MAX];
    unsigned n_workers, next_worker;
    bool started;
    atomic_bool closing;

    pthread_mutex_t lock; /* the sessions' list */
    struct gs_session *sessions;
    uint64_t next_session;

    atomic_uint openings, clients;
    atomic_ullong clients_total, refused_total, read_bytes, write_bytes, maps_total, arenas, arena_bytes,
        rails_total;
};

/* ---- connections (serve_conn.c) ---- */

/* Takes over the descriptor; the connection arrives at a worker by itself. */
void gs_conn_accept(struct gpusys_peer *peer, int fd);

/*
 * End it now, and what hangs on it: a control stream ends its session. Freed when the pool is done with it.
 */
void gs_conn_close(struct gs_conn *conn);

/* Send REFUSED, count and log it, and close once it is sent. */
void gs_conn_refuse(struct gs_conn *conn, uint64_t serial, enum gs_refusal refusal, const char *format, ...)
    GPUSYS_PRINTF(4, 5);

/* Answer one request with REFUSED and go on. */
void gs_conn_decline(struct gs_conn *conn, uint64_t serial, enum gs_refusal refusal, const char *format, ...)
    GPUSYS_PRINTF(4, 5);

/* Log a line about what this connection did, with its address; only the first few. */
void gs_conn_complain(struct gs_conn *conn, const char *format, ...) GPUSYS_PRINTF(2, 3);

/* Send what is queued and watch for what is needed next. Closes the connection when the stream is dead. */
void gs_conn_settle(struct gs_conn *conn);

/* After a job has ended: answer what waited for that, and read on. */
void gs_conn_resume(struct gs_conn *conn);

void gs_conn_hold_job(struct gs_conn *conn);
bool gs_conn_drop_job(
    struct gs_conn *conn); /* false: the connection is gone, and freed if this was its last job */

/* Once a second, on the worker's thread: deadlines. */
void gs_worker_tick(void *worker);

/* On the worker's thread, at the end. */
void gs_worker_close_all(struct gs_worker *worker);

/* ---- sessions (serve_session.c) ---- */

void gs_session_open(struct gs_conn *conn, uint64_t serial, const struct gs_hello *hello);
void gs_session_close(struct gs_session *session);

/* The worker of a session with that id, or NULL; and on that worker the session itself. */
struct gs_worker *gs_session_worker(struct gpusys_peer *peer, const uint8_t id[GS_NONCE_BYTES]);
struct gs_session *gs_session_find(struct gpusys_peer *peer, const uint8_t id[GS_NONCE_BYTES]);

/* A message on the control stream. */
void gs_session_message(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body);

/* A region as this session numbers them; NULL: none. Lives at least as long as this round of the loop. */
struct gs_region *gs_session_region(struct gs_session *session, uint32_t number);

/* Tell the client that a file changed. */
void gs_session_changed(struct gs_session *session, const struct gs_region *region);

/* ---- rails ---- */

void gs_shm_serve(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body);

/* The RDMA ports of a peer: opened before it serves. `devices` as in the options. */
int gs_verbs_serve_open(struct gpusys_peer *peer, const char *const *devices, uint32_t n_devices,
                        struct gpusys_error *error);
void gs_verbs_serve_watch(struct gpusys_peer *peer); /* events, on the first worker */
void gs_verbs_serve_close(struct gpusys_peer *peer);

/* What the peer offers to this client, into WELCOME. */
void gs_verbs_serve_offer(struct gs_conn *conn, const struct gs_hello *hello, struct gs_welcome *welcome);
/* A message on a verbs rail's connection; and its end: after it nothing more is read or written. */
void gs_verbs_serve(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body);
void gs_verbs_serve_stop(struct gs_conn *conn);
void gs_verbs_serve_leave(struct gs_session *session);

int gs_tcp_serve_new(struct gs_conn *conn);
void gs_tcp_serve_free(struct gs_conn *conn);
void gs_tcp_serve_ready(struct gs_conn *conn);

#endif
