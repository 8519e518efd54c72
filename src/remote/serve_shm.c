/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An shm rail at the peer: it hands out descriptors, and the client does the rest. */
#include "remote/serve.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* One message with a descriptor beside it. A client that lets its socket fill up is disconnected, not waited
 * for. */
static int send_with_fd(int socket, const void *bytes, size_t size, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : (size_t)sent == size ? 0 : -EAGAIN;
}

static int send_mapped(struct gs_conn *conn, uint64_t serial, const struct gs_region *region, int fd)
{
    struct gs_bytes bytes = {0};
    struct gs_mapped mapped = {
        .region = region->number, .length = region->length, .huge = region->memory.huge};
    int error = gs_mapped_encode(&bytes, serial, &mapped);
    if (!error)
        error = gs_channel_flush(&conn->channel, 0); /* what was answered before goes before */
    if (!error)
        error = send_with_fd(conn->source.fd, bytes.data, gs_bytes_queued(&bytes), fd);
    gs_bytes_free(&bytes);
    return error;
}

static int map(struct gs_conn *conn, uint64_t serial, uint32_t number)
{
    struct gs_region *region = gs_session_region(conn->session, number);
    bool is_file = region && gs_region_is_file(region);
    if (!region || region->kind == GPUSYS_REGION_DIRECTORY) {
        gs_conn_decline(conn, serial, GS_REFUSED_REGION, "there are no bytes in region %u", number);
        return 0;
    }
    int fd = is_file ? gs_file_open(&region->file) : region->memory.fd;
    if (fd < 0) {
        gs_conn_decline(conn, serial, fd == -ESTALE ? GS_REFUSED_CHANGED : GS_REFUSED_IO, "\"%s\" %s",
                        region->name, fd == -ESTALE ? "changed while it was served" : strerrordesc_np(-fd));
        return 0;
    }
    int error = send_mapped(conn, serial, region, fd);
    if (is_file)
        close(fd);
    if (!error)
        atomic_fetch_add(&conn->worker->peer->maps_total, 1);
    return error;
}

void gs_shm_serve(struct gs_conn *conn, const struct gs_frame *frame, const unsigned char *body)
{
    uint32_t region;
    int error = frame->type == GS_MAP ? gs_region_message_decode(body, frame->body_bytes, &region) : -EBADMSG;
    if (!error)
        error = map(conn, frame->serial, region);
    if (error == -EBADMSG) {
        gs_conn_refuse(conn, frame->serial, GS_REFUSED_MESSAGE, "message %u makes no sense on an shm rail",
                       frame->type);
    } else if (error) {
        gs_conn_complain(conn, "disconnected: a descriptor could not be passed: %s", strerrordesc_np(-error));
        gs_conn_close(conn);
    }
}
