/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/handshake.h: the rail handshake, client and server side, in both dialects, over any stream.
 *
 *     step   who       bytes                                                    client          server
 *     1      client    [u8 n_rails]                                             begin           begin
 *     2      server    [u8 n_rails] and that many records of the dialect        read_ro/_rw     write_ro/_rw
 *     3      client    [u8 n_rails] again and that many VerbsClientParams       complete        read_client
 *     4      server    [u8 ack], 0 when all is well                             finish          finish
 *
 * Each step is one call and each step that writes is one write. Between steps the caller does its own part: a
 * client may compare step 2 with what it expected before it answers, and it connects its queue pairs after
 * `complete` and before `finish`; a server makes its queue pairs ready after `read_client`. Nothing is read
 * out of turn, and what comes behind the handshake stays in the stream for whoever reads it next.
 *
 * A failed step ends the handshake: close the stream, which is also how a server refuses. Each kind of
 * failure has its own code and message: -ECONNREFUSED   client: the connection ended before the count byte of
 * step 2 -ECONNRESET     server: the client left before a first byte -EPIPE          the connection ended
 * inside a record, or between two of them -EPROTO         a count is not the one asked for -EBADMSG        a
 * count on the wire that is out of range -EACCES         client: the server's ack is not 0
 * (GPUSYS_DOMAIN_PEER, the ack is the foreign code) -ETIMEDOUT      the deadline passed; also when it was
 * past from the start -ENOSPC         client: a rail's table has more regions than the caller's storage
 *     -EINVAL         a count of the caller's that is out of range or not this handshake's, or a step out of
 *                     turn; nothing was read or written, and the handshake stands where it stood
 *     -ENOMEM, and what the stream gave otherwise.
 * One handshake belongs to one thread at a time.
 */
#ifndef GPUSYS_HANDSHAKE_H
#define GPUSYS_HANDSHAKE_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <gpusys/stream.h>
#include <gpusys/wire.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpusys_dialect {
    GPUSYS_DIALECT_READ_ONLY = 1,  /* tables of regions, 1 … 8 rails */
    GPUSYS_DIALECT_READ_WRITE = 2, /* one arena, 1 … 255 rails */
};

/* A handshake under way. `begin` fills it; there is nothing to free. The fields are for reading. */
struct gpusys_handshake {
    struct gpusys_stream *stream; /* the caller's, who closes it */
    enum gpusys_dialect dialect;
    uint32_t n_rails;   /* as the client asked */
    uint32_t next_step; /* 2 … 4; 0 when the handshake has ended or failed */
};

/* Step 1: ask for `n_rails` rails. Writes exactly one byte. */
GPUSYS_API int gpusys_handshake_client_begin(struct gpusys_handshake *ret_handshake,
                                             struct gpusys_stream *stream, enum gpusys_dialect dialect,
                                             uint32_t n_rails, int64_t deadline_ns,
                                             struct gpusys_error *error);

/*
 * Step 2, read-only dialect, into `n_rails` records (as many as were asked for). A record whose `regions` the
 * caller set is read into that storage, `capacity` entries; its contents are undefined when the call fails.
 * With `regions` NULL the library allocates, which a `capacity` of 0 then shows, and
 * gpusys_verbs_server_params_clear frees. -ENOSPC sets `n_regions` of the record that had too little room to
 * what it needs.
 */
GPUSYS_API int gpusys_handshake_client_read_ro(struct gpusys_handshake *handshake,
                                               struct gpusys_verbs_server_params *rails, uint32_t n_rails,
                                               int64_t deadline_ns, struct gpusys_error *error);

/* Free the regions that gpusys_handshake_client_read_ro allocated; the caller's own storage is left alone. */
GPUSYS_API void gpusys_verbs_server_params_clear(struct gpusys_verbs_server_params *rails, uint32_t n_rails);

/* Step 2, read-write dialect. */
GPUSYS_API int gpusys_handshake_client_read_rw(struct gpusys_handshake *handshake,
                                               struct gpusys_cache_server_params *rails, uint32_t n_rails,
                                               int64_t deadline_ns, struct gpusys_error *error);

/* Step 3: send the identity of every rail's queue pair. */
GPUSYS_API int gpusys_handshake_client_complete(struct gpusys_handshake *handshake,
                                                const struct gpusys_qp_params *rails, uint32_t n_rails,
                                                int64_t deadline_ns, struct gpusys_error *error);

/* Step 4: read the ack. */
GPUSYS_API int gpusys_handshake_client_finish(struct gpusys_handshake *handshake, int64_t deadline_ns,
                                              struct gpusys_error *error);

/* Step 1: read how many rails the client asks for: `n_rails` of the handshake. Refusals are logged. */
GPUSYS_API int gpusys_handshake_server_begin(struct gpusys_handshake *ret_handshake,
                                             struct gpusys_stream *stream, enum gpusys_dialect dialect,
                                             int64_t deadline_ns, struct gpusys_error *error);

/* Step 2: send `n_rails` records, as many as the client asked for. */
GPUSYS_API int gpusys_handshake_server_write_ro(struct gpusys_handshake *handshake,
                                                const struct gpusys_verbs_server_params *rails,
                                                uint32_t n_rails, int64_t deadline_ns,
                                                struct gpusys_error *error);
GPUSYS_API int gpusys_handshake_server_write_rw(struct gpusys_handshake *handshake,
                                                const struct gpusys_cache_server_params *rails,
                                                uint32_t n_rails, int64_t deadline_ns,
                                                struct gpusys_error *error);

/* Step 3: read the client's queue pairs. A second count that differs from the first is refused and logged. */
GPUSYS_API int gpusys_handshake_server_read_client(struct gpusys_handshake *handshake,
                                                   struct gpusys_qp_params *rails, uint32_t n_rails,
                                                   int64_t deadline_ns, struct gpusys_error *error);

/* Step 4: send the ack: GPUSYS_STATUS_OK, or any other byte for a failure that the client is to see. */
GPUSYS_API int gpusys_handshake_server_finish(struct gpusys_handshake *handshake, uint8_t ack,
                                              int64_t deadline_ns, struct gpusys_error *error);

#ifdef __cplusplus
}
#endif

#endif
