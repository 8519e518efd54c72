/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "gpu/party_link.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_BYTES = 16384, QUEUE_MOST = 65536, QUEUE_BYTES_MOST = 4 << 20, IOV_MOST = 16 };

struct gs_party_blob *gs_party_blob_new(struct gs_bytes *bytes)
{
    struct gs_party_blob *blob = malloc(sizeof *blob);
    if (!blob) {
        gs_bytes_free(bytes);
        return NULL;
    }
    *blob = (struct gs_party_blob){.holds = 1, .bytes = *bytes};
    *bytes = (struct gs_bytes){0};
    return blob;
}

void gs_party_blob_drop(struct gs_party_blob *blob)
{
    if (!blob || --blob->holds)
        return;
    gs_bytes_free(&blob->bytes);
    free(blob);
}

void gs_party_link_init(struct gs_party_link *link, int fd, uint32_t rank, size_t body_most, int64_t now_ns)
{
    *link = (struct gs_party_link){
        .fd = fd, .rank = rank, .body_most = body_most, .since_ns = now_ns, .heard_ns = now_ns};
}

void gs_party_link_drop(struct gs_party_link *link)
{
    link->out_bytes -= gs_bytes_queued(&link->out[link->out_head]->bytes);
    gs_party_blob_drop(link->out[link->out_head]);
    link->out_head++;
    link->out_n--;
    link->out_done = 0;
    if (!link->out_n)
        link->out_head = 0;
}

void gs_party_link_end(struct gs_party_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    while (link->out_n)
        gs_party_link_drop(link);
    free(link->out);
    gs_bytes_free(&link->in);
    link->out = NULL;
    link->out_size = 0;
}

static int make_room(struct gs_party_link *link)
{
    if (link->out_head + link->out_n < link->out_size)
        return 0;
    if (link->out_head) {
        for (uint32_t i = 0; i < link->out_n; i++)
            link->out[i] = link->out[link->out_head + i];
        link->out_head = 0;
        return 0;
    }
    uint32_t size = link->out_size ? 2 * link->out_size : 4;
    struct gs_party_blob **out =
        size > QUEUE_MOST ? NULL : reallocarray(link->out, size, sizeof(struct gs_party_blob *));
    if (!out)
        return size > QUEUE_MOST ? -ENOBUFS : -ENOMEM;
    link->out = out;
    link->out_size = size;
    return 0;
}

/* The first may be as long as it is, and be on its way. */
static bool is_full(const struct gs_party_link *link)
{
    return link->out_n &&
           link->out_bytes - gs_bytes_queued(&link->out[link->out_head]->bytes) > QUEUE_BYTES_MOST;
}

int gs_party_link_send(struct gs_party_link *link, struct gs_party_blob *blob)
{
    int code = is_full(link) ? -ENOBUFS : make_room(link);
    if (code)
        return code;
    link->out_bytes += gs_bytes_queued(&blob->bytes);
    link->out[link->out_head + link->out_n++] = blob;
    blob->holds++;
    return 0;
}

static int fill(const struct gs_party_link *link, struct iovec iov[IOV_MOST])
{
    int n = 0;
    for (; n < IOV_MOST && (uint32_t)n < link->out_n; n++) {
        const struct gs_bytes *bytes = &link->out[link->out_head + (uint32_t)n]->bytes;
        size_t skip = n == 0 ? link->out_done : 0;
        iov[n] = (struct iovec){.iov_base = bytes->data + bytes->head + skip,
                                .iov_len = gs_bytes_queued(bytes) - skip};
    }
    return n;
}

static void went(struct gs_party_link *link, size_t count)
{
    while (link->out_n) {
        size_t left = gs_bytes_queued(&link->out[link->out_head]->bytes) - link->out_done;
        if (count < left) {
            link->out_done += count;
            return;
        }
        count -= left;
        gs_party_link_drop(link);
    }
}

int gs_party_link_flush(struct gs_party_link *link)
{
    link->blocked = false;
    while (link->out_n) {
        struct iovec iov[IOV_MOST];
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)fill(link, iov)};
        ssize_t count = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN) {
            link->blocked = true;
            return 0;
        }
        if (count < 0)
            return -errno;
        went(link, (size_t)count);
    }
    return 0;
}

int gs_party_link_read(struct gs_party_link *link, int64_t now_ns)
{
    unsigned char some[READ_BYTES];
    ssize_t count;
    do
        count = recv(link->fd, some, sizeof some, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN)
        return 0;
    if (count <= 0)
        return -ECONNRESET;
    link->heard_ns = now_ns;
    unsigned char *room = gs_bytes_grow(&link->in, (size_t)count);
    if (!room)
        return -ENOMEM;
    memcpy(room, some, (size_t)count);
    return 1;
}

/* The first byte that is not the magic's is one too many. */
static int greet(struct gs_party_link *link)
{
    size_t have = gs_bytes_queued(&link->in);
    size_t compare = have < GS_PARTY_MAGIC_BYTES ? have : GS_PARTY_MAGIC_BYTES;
    if (compare && memcmp(link->in.data + link->in.head, GS_PARTY_MAGIC, compare) != 0)
        return -EBADMSG;
    if (have < GS_PARTY_MAGIC_BYTES)
        return 0;
    gs_bytes_drop(&link->in, GS_PARTY_MAGIC_BYTES);
    link->greeted = true;
    return 1;
}

int gs_party_link_frame(struct gs_party_link *link, struct gs_party_frame *ret_frame,
                        const unsigned char **ret_body)
{
    struct gs_party_frame frame;
    int code = link->greeted ? 1 : greet(link);
    if (code <= 0)
        return code;
    size_t have = gs_bytes_queued(&link->in);
    if (have < GS_PARTY_FRAME_BYTES)
        return 0;
    const unsigned char *at = link->in.data + link->in.head;
    if (gs_party_frame_decode(at, &frame) || frame.body_bytes > link->body_most)
        return -EBADMSG;
    if (have < GS_PARTY_FRAME_BYTES + (size_t)frame.body_bytes)
        return 0;
    *ret_frame = frame;
    *ret_body = at + GS_PARTY_FRAME_BYTES;
    return 1;
}

void gs_party_link_taken(struct gs_party_link *link, const struct gs_party_frame *frame)
{
    gs_bytes_drop(&link->in, GS_PARTY_FRAME_BYTES + (size_t)frame->body_bytes);
}
