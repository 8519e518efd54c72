/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The ring as JSON lines, and where they go. */
#include "base/text.h"
#include "gpu/trace.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OUT_BYTES = 16384, PIECE_BYTES = 512 };

/* Text on its way to a descriptor. The first error stays, and nothing is written after it. */
struct out {
    int fd, error;
    size_t used;
    char buffer[OUT_BYTES];
};

static void flush(struct out *out)
{
    for (size_t at = 0; at < out->used && !out->error;) {
        ssize_t wrote = write(out->fd, out->buffer + at, out->used - at);
        if (wrote > 0)
            at += (size_t)wrote;
        else if (wrote == 0 || errno != EINTR)
            out->error = wrote ? -errno : -EIO;
    }
    out->used = 0;
}

/* At most PIECE_BYTES at once. */
GPUSYS_PRINTF(2, 3)
static void put(struct out *out, const char *format, ...)
{
    va_list arguments;
    if (sizeof out->buffer - out->used < PIECE_BYTES)
        flush(out);
    va_start(arguments, format);
    out->used += (size_t)vsnprintf(out->buffer + out->used, PIECE_BYTES, format, arguments);
    va_end(arguments);
}

/* A string of JSON: what is no UTF-8 becomes the replacement character. NULL: null. */
static void put_string(struct out *out, const char *text)
{
    if (!text) {
        put(out, "null");
        return;
    }
    put(out, "\"");
    for (size_t left = strlen(text), bytes; left; text += bytes, left -= bytes) {
        bytes = gs_text_character(text, left);
        if (!bytes && (bytes = 1))
            put(out, "\\ufffd");
        else if (*text == '"' || *text == '\\')
            put(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ' || *text == 127)
            put(out, "\\u%04x", (unsigned)*text);
        else
            put(out, "%.*s", (int)bytes, text);
    }
    put(out, "\"");
}

static void put_member(struct out *out, const char *name, const char *text)
{
    put(out, ",\"%s\":", name);
    put_string(out, text);
}

/* One moment on both clocks, so that the lines' times can be turned into those of other hosts. */
static void put_time(struct out *out)
{
    struct timespec now;
    struct tm parts;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t monotonic = gpusys_now_ns();
    gmtime_r(&now.tv_sec, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    put(out, ",\"time\":\"%s.%09ldZ\",\"monotonic_ns\":%" PRId64, text, now.tv_nsec, monotonic);
}

static void put_head(struct out *out, const struct gs_trace_head *head, uint64_t kept, uint64_t submitted)
{
    int major, minor, patch;
    gpusys_nccl_version_parts(head->version, &major, &minor, &patch);
    put(out, "{\"schema\":1,\"kind\":\"gpusys-nccl-trace\"");
    put_member(out, "reason", head->reason ? head->reason : "request");
    put(out, ",\"rank\":%" PRIu32 ",\"ranks\":%" PRIu32, head->rank, head->n_ranks);
    put_member(out, "host", head->host);
    put(out, ",\"process\":%d,\"nccl\":\"%d.%d.%d\"", (int)getpid(), major, minor, patch);
    put(out, ",\"communicator\":\"%016" PRIx64 "\"", head->key);
    put_time(out);
    put_member(out, "error", head->error);
    put(out, ",\"kept\":%" PRIu64 ",\"submitted\":%" PRIu64 "}\n", kept, submitted);
}

static void put_entry(struct out *out, const struct gs_submission *entry)
{
    const struct gs_function_row *row = gs_function(entry->function);
    put(out, "{\"sequence\":%" PRIu64 ",\"collective\":", entry->sequence);
    if (entry->collective)
        put(out, "%" PRIu64, entry->collective);
    else
        put(out, "null");
    put(out, ",\"function\":\"%s\",\"type\":\"%s\"", row->name ? row->name : "unknown",
        gpusys_nccl_type_name(entry->type));
    put_member(out, "op", row->has_op ? gpusys_nccl_op_name(entry->op) : NULL);
    put(out, ",\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"stream\":%" PRIu32, entry->count,
        entry->count * gpusys_nccl_type_bytes(entry->type), entry->stream);
    if (row->has_root)
        put(out, ",\"%s\":%" PRIu32, row->collective ? "root" : "peer", entry->root);
    put(out, ",\"submitted_ns\":%" PRId64 ",\"completed_ns\":", entry->submitted_ns);
    if (entry->completed_ns)
        put(out, "%" PRId64 "}\n", entry->completed_ns);
    else
        put(out, "null}\n");
}

int gs_trace_write(struct gs_trace *trace, const struct gs_trace_head *head, int fd)
{
    struct out out = {.fd = fd};
    struct gs_submission *entries;
    uint64_t kept, submitted;
    int code = gs_trace_copy(trace, &entries, &kept, &submitted);
    if (code)
        return code;
    put_head(&out, head, kept, submitted);
    for (uint64_t i = 0; i < kept && !out.error; i++)
        put_entry(&out, &entries[i]);
    flush(&out);
    free(entries);
    return out.error;
}

/* Append to a path of `size` bytes; false: it does not fit. */
GPUSYS_PRINTF(4, 5)
static bool append(char *path, size_t size, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path + *used, size - *used, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= size - *used)
        return false;
    *used += (size_t)length;
    return true;
}

int gs_trace_path(const char *pattern, uint32_t rank, const char *host, char *path, size_t size)
{
    bool fits = size > 0, ranked = false;
    size_t used = 0;
    for (const char *at = pattern; *at && fits; at++) {
        char kind = at[0] == '%' ? at[1] : 0;
        if (kind == 'r')
            fits = append(path, size, &used, "%" PRIu32, rank);
        else if (kind == 'p')
            fits = append(path, size, &used, "%d", (int)getpid());
        else if (kind == 'h')
            fits = append(path, size, &used, "%s", host);
        else
            fits = append(path, size, &used, "%c", *at);
        ranked = ranked || kind == 'r';
        at += kind == 'r' || kind == 'p' || kind == 'h';
    }
    if (fits && !ranked)
        fits = append(path, size, &used, ".%" PRIu32, rank);
    return fits ? 0 : -ENAMETOOLONG;
}
