/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pull.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { ASK_AHEAD = 4 };

uint64_t chunk_count(const struct plan_entry *entry)
{
    return entry->length / GPUSYS_CHUNK_BYTES + (entry->length % GPUSYS_CHUNK_BYTES != 0);
}

uint64_t chunk_length(const struct plan_entry *entry, uint64_t chunk)
{
    uint64_t left = entry->length - chunk * GPUSYS_CHUNK_BYTES;
    return left < GPUSYS_CHUNK_BYTES ? left : GPUSYS_CHUNK_BYTES;
}

int chunk_fail(const struct plan_entry *entry, int status, struct gpusys_error *error)
{
    switch (status) {
    case -ESTALE:
        gpusys_error_set(error, status, "%.300s changed while it was served", entry->name);
        gpusys_error_set_hint(error, "start the server anew, then pull again");
        break;
    case -ENOTCONN:
    case -ECONNRESET:
    case -EPIPE: gpusys_error_set_errno(error, status, "%.300s: the peer is gone", entry->name); break;
    case -ETIMEDOUT:
        gpusys_error_set(error, status, "%.300s: the peer has stopped answering", entry->name);
        break;
    case -EDQUOT:
        gpusys_error_set(error, status, "%.300s: the peer cannot register it for RDMA", entry->name);
        gpusys_error_set_cause(
            error, "the limit on locked memory at the peer, or its memory: its log has the numbers");
        gpusys_error_set_hint(error, "raise memlock for the server, or pull with --require tcp");
        break;
    default: gpusys_error_set_errno(error, status, "%.300s: cannot be read", entry->name);
    }
    return status;
}

int chunk_ask(struct pull *pull, const struct plan_entry *entry, uint64_t first, uint64_t count,
              struct gpusys_error *error)
{
    uint64_t n_chunks = chunk_count(entry);
    if (!pull->verify || first >= n_chunks)
        return 0;
    if (count > n_chunks - first)
        count = n_chunks - first;
    int code = gpusys_remote_checksums_ask(pull->remote, entry->region, first, (uint32_t)count);
    return code ? chunk_fail(entry, code, error) : 0;
}

int chunk_ask_ahead(struct pull *pull, struct arrival *arrival, uint64_t chunk, struct gpusys_error *error)
{
    if (chunk + ASK_AHEAD / 2 <= arrival->asked)
        return 0;
    uint64_t first = chunk > arrival->asked ? chunk : arrival->asked;
    arrival->asked = first + ASK_AHEAD;
    return chunk_ask(pull, arrival->entry, first, ASK_AHEAD, error);
}

/* Wait in short steps, so that a signal is noticed; the peer may have to read the chunk from a slow disk
 * first. */
static int wait_for_hash(struct pull *pull, const struct plan_entry *entry, uint64_t chunk,
                         uint8_t (*ret_hash)[GPUSYS_HASH_BYTES], struct gpusys_error *error)
{
    struct ring_watch watch = ring_watch_start(&pull->ring);
    int code;
    while ((code = gpusys_remote_checksums(pull->remote, entry->region, chunk, 1, ret_hash, RING_TICK_NS,
                                           NULL)) == -ETIMEDOUT) {
        code = ring_tend(&pull->ring, error);
        if (!code)
            code = ring_watch_check(&pull->ring, &watch, error);
        if (code)
            return code;
    }
    return code ? chunk_fail(entry, code, error) : 0;
}

/* Hash part of a local file. *ret_whole is false when it ends early. */
static int hash_local(struct pull *pull, int fd, uint64_t offset, uint64_t length, bool *ret_whole)
{
    gpusys_hasher_reset(pull->hasher);
    while (length > 0) {
        size_t step = length < SCRATCH_BYTES ? length : SCRATCH_BYTES;
        ssize_t got = pread(fd, pull->scratch, step, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        gpusys_hasher_add(pull->hasher, pull->scratch, (size_t)got);
        offset += (uint64_t)got;
        length -= (uint64_t)got;
    }
    *ret_whole = length == 0;
    return 0;
}

int chunk_compare(struct pull *pull, const struct plan_entry *entry, uint64_t chunk, int fd, bool *ret_same,
                  struct gpusys_error *error)
{
    uint8_t here[GPUSYS_HASH_BYTES], there[GPUSYS_HASH_BYTES];
    bool whole = false;
    int code = hash_local(pull, fd, chunk * GPUSYS_CHUNK_BYTES, chunk_length(entry, chunk), &whole);
    if (code)
        return tree_fail(&pull->tree, entry->name, "cannot read what is there", code, error);
    if (whole) {
        gpusys_hasher_get(pull->hasher, here);
        code = wait_for_hash(pull, entry, chunk, &there, error);
        whole = !code && memcmp(here, there, sizeof here) == 0;
    }
    if (!code)
        *ret_same = whole;
    return code;
}

/* Once more, one read after the other: this is the exception. Leaves the hash in pull->hasher. */
static int fetch_again(struct pull *pull, struct arrival *arrival, uint64_t chunk, struct gpusys_error *error)
{
    const struct plan_entry *entry = arrival->entry;
    uint64_t offset = chunk * GPUSYS_CHUNK_BYTES, left = chunk_length(entry, chunk);
    gpusys_hasher_reset(pull->hasher);
    while (left > 0) {
        uint64_t step = left < SCRATCH_BYTES ? left : SCRATCH_BYTES;
        int code =
            gpusys_remote_read(pull->remote, entry->region, offset, pull->scratch, step, pull->patience_ns);
        if (code)
            return chunk_fail(entry, code, error);
        gpusys_hasher_add(pull->hasher, pull->scratch, step);
        code = arrival_write(arrival, pull, pull->scratch, step, offset, error);
        if (code)
            return code;
        offset += step;
        left -= step;
    }
    return 0;
}

static void print_hash(char text[2 * GPUSYS_HASH_BYTES + 1], const uint8_t hash[GPUSYS_HASH_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < GPUSYS_HASH_BYTES; i++) {
        text[2 * i] = digits[hash[i] >> 4];
        text[2 * i + 1] = digits[hash[i] & 15];
    }
    text[2 * GPUSYS_HASH_BYTES] = 0;
}

static int fail_mismatch(const struct plan_entry *entry, uint64_t chunk,
                         const uint8_t here[GPUSYS_HASH_BYTES], const uint8_t there[GPUSYS_HASH_BYTES],
                         struct gpusys_error *error)
{
    char text[2 * GPUSYS_HASH_BYTES + 1];
    gpusys_error_set(error, -EBADMSG, "%.300s: chunk %" PRIu64 " differs from the peer's checksum, twice",
                     entry->name, chunk);
    print_hash(text, here);
    gpusys_error_add_detail(error, "here", "XXH3-128 %s", text);
    print_hash(text, there);
    gpusys_error_add_detail(error, "peer", "XXH3-128 %s", text);
    gpusys_error_set_cause(error, "the bytes changed at the peer, or memory or the network spoils them");
    return -EBADMSG;
}

static int check(struct pull *pull, struct arrival *arrival, uint64_t chunk, uint8_t here[GPUSYS_HASH_BYTES],
                 struct gpusys_error *error)
{
    uint8_t there[GPUSYS_HASH_BYTES];
    int code = wait_for_hash(pull, arrival->entry, chunk, &there, error);
    if (code || memcmp(here, there, GPUSYS_HASH_BYTES) == 0)
        return code;
    code = fetch_again(pull, arrival, chunk, error);
    if (code)
        return code;
    gpusys_hasher_get(pull->hasher, here);
    return memcmp(here, there, GPUSYS_HASH_BYTES) == 0
               ? 0
               : fail_mismatch(arrival->entry, chunk, here, there, error);
}

int chunk_finish(struct pull *pull, struct arrival *arrival, uint64_t chunk, uint8_t here[GPUSYS_HASH_BYTES],
                 struct gpusys_error *error)
{
    int code = pull->verify ? check(pull, arrival, chunk, here, error) : 0;
    return code ? code : arrival_settle(arrival, pull, chunk, error);
}
