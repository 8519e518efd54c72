/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* MODE_TCP: ranges of files as replies, from the page cache to the socket. */
#include "base/deadline.h"
#include "base/log.h"
#include "field/serve.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

enum {
    SHORT_BYTES = 64 * 1024, /* up to here a reply is one write */
    SEND_STEP_BYTES = 1 << 30,
};

/* A client that asks and does not read takes a place from others: how long not one byte may move. */
static int64_t stall_deadline(const struct gs_field_client *client)
{
    enum { STEPS = 6 }; /* a minute, usually */
    int64_t step = client->field->step_timeout_ns;
    return step < 0 ? GPUSYS_NO_DEADLINE : gpusys_deadline_after(STEPS * step);
}

static int lost(int code, struct gpusys_error *error)
{
    if (code == -ETIMEDOUT || code == -EAGAIN)
        return gpusys_error_set(error, -ETIMEDOUT, "it did not read its reply");
    if (code == -EPIPE || code == -ECONNRESET)
        return gpusys_error_set(error, code, "it left within a reply");
    return gpusys_error_set_errno(error, code, "a reply");
}

static int write_all(struct gs_field_client *client, const void *bytes, size_t size,
                     struct gpusys_error *error)
{
    int code = gpusys_stream_write(client->stream, bytes, size, stall_deadline(client), NULL);
    return code ? lost(code, error) : 0;
}

static int answer_error(struct gs_field_client *client, const struct gs_region *file, int why,
                        struct gpusys_error *error)
{
    static const uint8_t status = GPUSYS_STATUS_ERR;
    if (why == -ESTALE)
        gs_log(GPUSYS_LOG_WARN, "%s: %s changed while served", gpusys_stream_name(client->stream),
               file->name);
    else if (why != -ERANGE)
        gs_log(GPUSYS_LOG_WARN, "%s: %s: %s", gpusys_stream_name(client->stream), file->name,
               strerrordesc_np(-why));
    return write_all(client, &status, 1, error);
}

/* Read first, then say that it is there. */
static int send_short(struct gs_field_client *client, struct gs_region *file, int fd, uint64_t offset,
                      size_t length, struct gpusys_error *error)
{
    unsigned char reply[1 + SHORT_BYTES];
    int code = gs_region_pread(file, fd, reply + 1, length, offset);
    if (code)
        return answer_error(client, file, code, error);
    reply[0] = GPUSYS_STATUS_OK;
    code = write_all(client, reply, 1 + length, error);
    if (!code)
        atomic_fetch_add(&client->field->tcp_bytes, length);
    return code;
}

/* Send, or wait until that is possible; a negative errno, or how much went. */
static ssize_t send_some(const struct gs_field_client *client, int fd, uint64_t offset, uint64_t length)
{
    int socket = gpusys_stream_fd(client->stream);
    for (;;) {
        off_t at = (off_t)offset;
        ssize_t count =
            sendfile(socket, fd, &at, length < SEND_STEP_BYTES ? (size_t)length : SEND_STEP_BYTES);
        if (count >= 0)
            return count;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        int code = gs_wait_fd(socket, POLLOUT, stall_deadline(client));
        if (code)
            return code;
    }
}

static int send_ok(const struct gs_field_client *client)
{
    int socket = gpusys_stream_fd(client->stream);
    static const uint8_t status = GPUSYS_STATUS_OK;
    while (send(socket, &status, 1, MSG_MORE | MSG_NOSIGNAL) < 0) {
        int code = errno == EINTR    ? 0
                   : errno == EAGAIN ? gs_wait_fd(socket, POLLOUT, stall_deadline(client))
                                     : -errno;
        if (code)
            return code;
    }
    return 0;
}

/* Once OK is out only the end of the connection can say that something went wrong. */
static int send_long(struct gs_field_client *client, struct gs_region *file, int fd, uint64_t offset,
                     uint64_t length, struct gpusys_error *error)
{
    int code = send_ok(client);
    for (uint64_t done = 0; done < length && !code;) {
        ssize_t count = send_some(client, fd, offset + done, length - done);
        code = count < 0 ? (int)count : count == 0 ? -ESTALE : 0;
        done += count > 0 ? (uint64_t)count : 0;
    }
    if (!code)
        code = gs_file_check(&file->file, fd);
    if (code == -ESTALE)
        return gpusys_error_set(error, code, "%s changed while it was sent", file->name);
    if (code)
        return lost(code, error);
    atomic_fetch_add(&client->field->tcp_bytes, length);
    return 0;
}

int gs_serve_bytes(struct gs_field_client *client, struct gs_region *file, bool in_range, uint64_t offset,
                   uint64_t length, struct gpusys_error *error)
{
    int fd, code = in_range ? gs_file_pin(file->files, &file->file, &fd) : -ERANGE;
    if (code)
        return answer_error(client, file, code, error);
    code = gs_file_check(&file->file, fd);
    if (code)
        code = answer_error(client, file, code, error);
    else if (length <= SHORT_BYTES)
        code = send_short(client, file, fd, offset, (size_t)length, error);
    else
        code = send_long(client, file, fd, offset, length, error);
    gs_file_unpin(file->files, &file->file);
    return code;
}

int gs_serve_request(struct gs_field_client *client, unsigned char *buffer, size_t size, bool *ret_more,
                     struct gpusys_error *error)
{
    int code = gpusys_stream_read(client->stream, buffer, size, GPUSYS_NO_DEADLINE, NULL);
    *ret_more = code == 0;
    return code == 0 || code == -ECONNRESET ? 0 : lost(code, error);
}
