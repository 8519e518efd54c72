/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The serving side of the field's dialects, inside: a thread accepts, and every client has one. */
#ifndef GPUSYS_FIELD_SERVE_H
#define GPUSYS_FIELD_SERVE_H

#include "base/address.h"
#include "remote/region.h"

#include <gpusys/field.h>
#include <gpusys/railset.h>
#include <pthread.h>
#include <stdatomic.h>

enum { GS_DEVICES_MAX = GPUSYS_MAX_RAILS_READ_ONLY };

struct gs_device {
    struct gpusys_verbs *verbs;
    struct gpusys_port_info info;
};

/* ---- stores (store.c): the files of a model, or all layers, registered once for all clients that have them ---- */

/* One file where a device can read it. */
struct gs_pinned {
    void *map; /* NULL: not yet */
    bool is_copied;
    bool is_told; /* the log has it that it was copied */
};

struct gs_store {
    pthread_mutex_t lock; /* over all that follows the files */
    struct gs_region **files;
    uint32_t n_files;
    uint32_t holders;
    struct gs_pinned *pinned;                       /* one per file */
    struct gpusys_pd *pds[GS_DEVICES_MAX];          /* while there is a holder */
    struct gpusys_mr **mrs[GS_DEVICES_MAX];         /* n_files each, once a client has used that device */
    struct gpusys_region_key *keys[GS_DEVICES_MAX]; /* the same, ready for the handshake */
};

/* Opens the files, for reading only, beneath their folders and through no link. */
int gs_store_init(struct gs_store *store, struct gs_files *files, const char *const *paths, uint32_t n_paths,
                  struct gpusys_error *error);
/* Nobody holds it any more. One that is all zero is fine. */
void gs_store_free(struct gs_store *store);

/* One more client: from here on `pds` are there. -ESTALE: a file changed since it was added. */
int gs_store_hold(struct gs_store *store, struct gpusys_field *field, struct gpusys_error *error);
void gs_store_drop(struct gs_store *store);

/* Register on the first `n_devices` devices what is not yet; `keys` of these are there from here on. */
int gs_store_register(struct gs_store *store, struct gpusys_field *field, uint32_t n_devices,
                      struct gpusys_error *error);

/* What the kernel says it could give, in bytes; UINT64_MAX where it does not say. */
uint64_t gs_memory_available(void);

/* ---- the server ---- */

struct gs_model {
    struct gs_model *next;
    char *path;
    void *manifest;
    size_t manifest_bytes;
    struct gs_store store;
};

struct gs_field_client {
    struct gs_field_client *next;
    struct gpusys_field *field;
    struct gpusys_stream *stream; /* the thread's */
    pthread_t thread;
    int fd;        /* -1: closed. Under the server's lock, for others to shut it down */
    bool is_over;  /* under the lock: wants to be joined */
    bool on_verbs; /* under the lock */
    bool is_open;  /* at the end of its opening */
};

struct gpusys_field {
    enum gpusys_field_kind kind;
    uint32_t max_clients;
    uint64_t max_arena_bytes;
    int64_t step_timeout_ns;
    bool insecure, is_started;
    char address[GS_ADDRESS_BYTES];
    int listener, wake;
    pthread_t acceptor;
    atomic_bool is_closing;

    struct gs_device devices[GS_DEVICES_MAX];
    uint32_t n_devices;
    char why_no_device[200];

    struct gs_files files;
    pthread_mutex_t lock; /* over the lists and `arena_bytes` */
    struct gs_model *models;
    struct gs_field_client *clients;
    uint32_t n_clients;
    uint64_t arena_bytes;

    void *header; /* experts */
    size_t header_bytes;
    uint64_t record_bytes;
    struct gs_store layers;

    atomic_ullong clients_total, refused_total, verbs_total, tcp_bytes, copied_bytes;
};

/* ---- devices (devices.c) ---- */

int gs_devices_open(struct gpusys_field *field, const struct gpusys_field_server_options *options,
                    struct gpusys_error *error);
void gs_devices_close(struct gpusys_field *field);
/* For each device the GID to be known by to this client. */
void gs_devices_gids(const struct gpusys_field *field, const struct gpusys_stream *stream,
                     uint32_t ret_indexes[GS_DEVICES_MAX]);
/* Look at what happened to a device; the acceptor's thread. */
void gs_devices_tend(struct gpusys_field *field);

/* ---- a client (serve_client.c) ---- */

/* The connection becomes a client with a thread of its own, or is closed. */
void gs_client_accept(struct gpusys_field *field, int fd);

/* Until when the client may take for its next step. */
int64_t gs_client_deadline(const struct gs_field_client *client);

/* Steps of the opening, each under that deadline. `what` names it. */
int gs_client_read(struct gs_field_client *client, const char *what, void *buffer, size_t size,
                   struct gpusys_error *error);
int gs_client_write(struct gs_field_client *client, const char *what, const void *bytes, size_t size,
                    struct gpusys_error *error);
/* [u32 bytes] and the bytes. */
int gs_client_write_text(struct gs_field_client *client, const char *what, const void *text, size_t size,
                         struct gpusys_error *error);

/* The opening is over; `over` says over what, for the log. */
void gs_client_opened(struct gs_field_client *client, bool on_verbs, const char *over);

/* Nothing more is to come: wait for the end. -EPROTO: something came. */
int gs_client_idle(struct gs_field_client *client, struct gpusys_error *error);

/* ---- what it asks for ---- */

/* 0: the client left in its own time. Otherwise the reason for the log. (serve_weights.c and so on) */
int gs_serve_weights(struct gs_field_client *client, struct gpusys_error *error);
int gs_serve_cache(struct gs_field_client *client, struct gpusys_error *error);
int gs_serve_experts(struct gs_field_client *client, struct gpusys_error *error);

/* MODE_VERBS of the read-only dialects, until the client leaves. (serve_store.c) */
int gs_serve_store(struct gs_field_client *client, struct gs_store *store, struct gpusys_error *error);

/* MODE_TCP: one reply. A file that is no longer what it was, and a range that it does not have (`in_range` false),
 * are answered with STATUS_ERR. (serve_bytes.c) */
int gs_serve_bytes(struct gs_field_client *client, struct gs_region *file, bool in_range, uint64_t offset,
                   uint64_t length, struct gpusys_error *error);

/* The next request, `size` bytes; 0 with *ret_more false: the client left. */
int gs_serve_request(struct gs_field_client *client, unsigned char *buffer, size_t size, bool *ret_more,
                     struct gpusys_error *error);

#endif
