/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "rail/shm.h"

#include "base/deadline.h"
#include "base/filetime.h"
#include "base/shared.h"

#include <gpusys/stream.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 /* linux/mman.h, 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

enum {
    ARENA_SLOTS = 64,
    ROUND_BYTES = 8 * 1024 * 1024, /* copied in one poll */
    SLOTS = 64,
    BULK_BYTES = 64 * 1024, /* from here on a cold range of base pages is read through the descriptor */
};

#define ARENA_BIT UINT32_C(0x80000000)

struct gs_shm_rail {
    struct gs_rail rail;
    struct gpusys_stream *stream;
    int socket;
    uint64_t serial;
    bool proven;                 /* the peer is this user's own */
    struct gs_mapping *mappings; /* of the table's regions, by number */
    uint32_t n_mappings;
    struct gs_mapping arenas[ARENA_SLOTS];
    struct gs_slices waiting;
    unsigned n_waiting;
};

struct gs_shm_rail *gs_shm_of(struct gs_rail *rail)
{
    return rail && rail->ops == &gs_rail_shm ? (struct gs_shm_rail *)rail : NULL;
}

static struct gs_shm_rail *self_of(const struct gs_rail *rail)
{
    return (struct gs_shm_rail *)(uintptr_t)rail; /* the first member */
}

static const struct gs_mapping nothing = {.fd = -1};

static struct gs_mapping *slot_of(const struct gs_shm_rail *shm, uint32_t region)
{
    struct gs_shm_rail *self = (struct gs_shm_rail *)(uintptr_t)shm;
    if (region & ARENA_BIT)
        return (region & ~ARENA_BIT) < ARENA_SLOTS ? &self->arenas[region & ~ARENA_BIT] : NULL;
    return region < self->n_mappings ? &self->mappings[region] : NULL;
}

struct gs_mapping *gs_shm_mapping(const struct gs_shm_rail *shm, uint32_t region)
{
    struct gs_mapping *mapping = slot_of(shm, region);
    return mapping && mapping->fd >= 0 ? mapping : NULL;
}

static void unmap(struct gs_mapping *mapping)
{
    if (mapping->base)
        munmap(mapping->base, gs_map_bytes(mapping->length, mapping->huge));
    if (mapping->fd >= 0)
        close(mapping->fd);
    free(mapping->faulted_in);
    *mapping = nothing;
}

void gs_shm_release(struct gs_shm_rail *shm, uint32_t region)
{
    struct gs_mapping *mapping = slot_of(shm, region);
    if (mapping)
        unmap(mapping);
}

static void shm_close(struct gs_rail *rail)
{
    struct gs_shm_rail *self = self_of(rail);
    for (uint32_t i = 0; i < self->n_mappings; i++)
        unmap(&self->mappings[i]);
    for (uint32_t i = 0; i < ARENA_SLOTS; i++)
        unmap(&self->arenas[i]);
    free(self->mappings);
    gpusys_stream_close(self->stream);
    free(self);
}

static int shm_connect(struct gs_rail **ret_rail, const struct gs_rail_target *target, int64_t deadline_ns,
                       struct gpusys_error *error)
{
    struct gs_shm_rail *self = calloc(1, sizeof *self);
    char address[8 + 512];
    if (!self)
        return gpusys_error_set_errno(error, -ENOMEM, "an shm rail");
    for (unsigned i = 0; i < ARENA_SLOTS; i++)
        self->arenas[i] = nothing;
    self->rail.ops = &gs_rail_shm;
    self->proven = target->proven;
    snprintf(address, sizeof address, "unix:%s", target->unix_path);
    int result = gpusys_stream_connect(&self->stream, address, deadline_ns, error);
    if (!result)
        result = gs_rail_attach(self->stream, target, GPUSYS_TRANSPORT_SHM, deadline_ns, error);
    if (result) {
        shm_close(&self->rail);
        return result;
    }
    self->socket = gpusys_stream_fd(self->stream);
    *ret_rail = &self->rail;
    return 0;
}

/* ---- a region's descriptor ---- */

/* One whole message of at most `size` bytes, and the descriptor beside its first byte (-1: none). */
static int receive_with_fd(struct gs_shm_rail *self, unsigned char *bytes, size_t size, int64_t deadline_ns,
                           int *ret_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t count;
    while ((count = recvmsg(self->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        int error = gs_wait_fd(self->socket, POLLIN, deadline_ns);
        if (error)
            return error;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        if (*ret_fd >= 0)
            close(*ret_fd); /* a second one in the same answer */
        memcpy(ret_fd, CMSG_DATA(header), sizeof *ret_fd);
    }
    return count == 0 ? -ECONNRESET : (int)count;
}

static int refused_map(const struct gs_frame *frame, const unsigned char *body, struct gpusys_error *error)
{
    struct gs_refused refused;
    if (frame->type != GS_REFUSED || gs_refused_decode(body, frame->body_bytes, &refused))
        return gpusys_error_set(error, -EPROTO, "the peer answered MAP with message %u", frame->type);
    int result = gs_refusal_errno(refused.refusal);
    gpusys_error_set(error, result, "the peer refused: %.*s", refused.reason.length, refused.reason.at);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_PEER, (int)refused.refusal);
    return result;
}

enum { ANSWER_MAX = GS_FRAME_BYTES + 4 + 2 + GS_TEXT_MAX };

/* One frame. It comes in one piece from an honest peer; anything else is gathered under the deadline. */
static int receive_answer(struct gs_shm_rail *self, int64_t deadline_ns, unsigned char bytes[ANSWER_MAX],
                          struct gs_frame *ret_frame, int *ret_fd)
{
    size_t have = 0, want = GS_FRAME_BYTES;
    while (have < want) {
        int count = receive_with_fd(self, bytes + have, want - have, deadline_ns, ret_fd);
        if (count < 0) {
            if (have > 0)
                shutdown(self->socket, SHUT_RDWR); /* what follows would be taken for another frame's */
            return count;
        }
        have += (size_t)count;
        if (have != want || want > GS_FRAME_BYTES)
            continue;
        if (gs_frame_decode(bytes, ret_frame) || ret_frame->body_bytes > ANSWER_MAX - GS_FRAME_BYTES ||
            ret_frame->serial > self->serial)
            return -EPROTO;
        want += ret_frame->body_bytes;
    }
    return 0;
}

/* The answer to MAP, behind those to requests that were given up. */
static int receive_mapped(struct gs_shm_rail *self, int64_t deadline_ns, struct gs_mapped *ret_mapped,
                          int *ret_fd, struct gpusys_error *error)
{
    unsigned char bytes[ANSWER_MAX];
    struct gs_frame frame;
    do {
        if (*ret_fd >= 0)
            close(*ret_fd);
        *ret_fd = -1;
        int result = receive_answer(self, deadline_ns, bytes, &frame, ret_fd);
        if (result)
            return gpusys_error_set_errno(error, result, "the answer to MAP");
    } while (frame.serial < self->serial);
    if (frame.type == GS_MAPPED &&
        gs_mapped_decode(bytes + GS_FRAME_BYTES, frame.body_bytes, ret_mapped) == 0)
        return 0;
    return refused_map(&frame, bytes + GS_FRAME_BYTES, error);
}

static int ask_for_fd(struct gs_shm_rail *self, uint32_t region, int64_t deadline_ns,
                      struct gs_mapped *ret_mapped, int *ret_fd, struct gpusys_error *error)
{
    struct gs_bytes out = {0};
    int result = gs_region_message_encode(&out, GS_MAP, ++self->serial, region);
    if (!result)
        result = gpusys_stream_write(self->stream, out.data, gs_bytes_queued(&out), deadline_ns, NULL);
    gs_bytes_free(&out);
    if (result)
        return gpusys_error_set_errno(error, result, "sending MAP");
    result = receive_mapped(self, deadline_ns, ret_mapped, ret_fd, error);
    if (!result && (*ret_fd < 0 || ret_mapped->region != region))
        result = gpusys_error_set(error, -EPROTO, "the peer answered MAP of region %u without its descriptor",
                                  region);
    return result;
}

/* ---- its mapping ---- */

static int check_file(const struct gs_mapping *mapping)
{
    struct stat status;
    if (fstat(mapping->fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -ESTALE;
    return (uint64_t)status.st_size == mapping->length && gs_mtime_ns(&status) == mapping->mtime_ns ? 0
                                                                                                    : -ESTALE;
}

/* Memory is only mapped when the peer has sealed its size: a load must not become a SIGBUS. */
static int map_memory(struct gs_mapping *mapping, struct gpusys_error *error)
{
    struct stat status;
    int seals = fcntl(mapping->fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return gpusys_error_set(error, -EPROTO, "the peer passed memory that it could shrink: not mapped");
    uint64_t bytes = gs_map_bytes(mapping->length, mapping->huge);
    if (fstat(mapping->fd, &status) < 0 || (uint64_t)status.st_size < bytes)
        return gpusys_error_set(error, -EPROTO,
                                "the peer passed less memory than it promised (%llu of %llu bytes)",
                                (unsigned long long)status.st_size, (unsigned long long)mapping->length);
    int protection = PROT_READ | (mapping->writable ? PROT_WRITE : 0);
    void *base = mmap(NULL, bytes, protection, MAP_SHARED, mapping->fd, 0);
    if (base == MAP_FAILED)
        return gpusys_error_set_errno(error, -errno, "mapping %llu bytes", (unsigned long long)bytes);
    mapping->base = base;
    mapping->faulted_in = calloc((size_t)(bytes >> GS_WINDOW_SHIFT) + 1, 1);
    return mapping->faulted_in ? 0 : gpusys_error_set_errno(error, -ENOMEM, "mapping");
}

static int grow(struct gs_shm_rail *self, uint32_t region)
{
    if (region & ARENA_BIT || region < self->n_mappings)
        return 0;
    uint32_t count = self->n_mappings ? self->n_mappings : 16;
    while (count <= region)
        count *= 2;
    struct gs_mapping *mappings = realloc(self->mappings, count * sizeof *mappings);
    if (!mappings)
        return -ENOMEM;
    for (uint32_t i = self->n_mappings; i < count; i++)
        mappings[i] = nothing;
    self->mappings = mappings;
    self->n_mappings = count;
    return 0;
}

static int shm_prepare(struct gs_rail *rail, const struct gs_rail_region *region, int64_t deadline_ns,
                       struct gpusys_error *error)
{
    struct gs_shm_rail *self = self_of(rail);
    struct gs_mapped mapped;
    struct gs_mapping mapping = nothing;
    if (gs_shm_mapping(self, region->number))
        return 0;
    if (grow(self, region->number) || !slot_of(self, region->number))
        return gpusys_error_set_errno(error, -ENOMEM, "region %u", region->number);
    int result = ask_for_fd(self, region->number, deadline_ns, &mapped, &mapping.fd, error);
    if (!result && mapped.length != region->length)
        result = gpusys_error_set(error, -EPROTO, "region %u has %llu bytes now, not %llu", region->number,
                                  (unsigned long long)mapped.length, (unsigned long long)region->length);
    mapping.length = region->length;
    mapping.mtime_ns = region->mtime_ns;
    mapping.writable = region->access & GPUSYS_ACCESS_WRITE;
    mapping.is_file = region->place == GPUSYS_PLACE_FILE;
    if (!result) {
        mapping.huge = mapped.huge;
        mapping.guarded = mapped.huge && !self->proven; /* huge pages can be punched out, and run out */
        if (!mapping.is_file)
            result = map_memory(&mapping, error);
        else if ((result = check_file(&mapping)) != 0)
            gpusys_error_set_errno(error, result, "region %u changed while it was served", region->number);
    }
    if (result)
        unmap(&mapping);
    else
        *slot_of(self, region->number) = mapping;
    return result;
}

/* ---- bytes ---- */

/*
 * Fault one window in. Kernels without the advice (EINVAL) fault page by page as the bytes are touched; any
 * other failure would be a SIGBUS there.
 */
static int populate_window(struct gs_mapping *mapping, uint64_t window)
{
    uint64_t offset = window << GS_WINDOW_SHIFT, end = gs_map_bytes(mapping->length, mapping->huge);
    uint64_t length = end - offset < GS_WINDOW_BYTES ? end - offset : GS_WINDOW_BYTES;
    int advice = mapping->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    int result;
    do
        result = madvise(mapping->base + offset, length, advice);
    while (result < 0 && (errno == EINTR || errno == EAGAIN));
    if (result < 0 && errno != EINVAL)
        return -EIO;
    mapping->faulted_in[window] = 1;
    return 0;
}

static int populate(struct gs_mapping *mapping, uint64_t offset, uint64_t length)
{
    int error = 0;
    uint64_t last = (offset + length - 1) >> GS_WINDOW_SHIFT;
    for (uint64_t window = offset >> GS_WINDOW_SHIFT; window <= last && !error; window++)
        if (!mapping->faulted_in[window])
            error = populate_window(mapping, window);
    return error;
}

int gs_shm_populate(struct gs_mapping *mapping)
{
    if (!mapping->base || mapping->guarded)
        return -EOPNOTSUPP;
    return populate(mapping, 0, mapping->length);
}

static int read_fd(const struct gs_mapping *mapping, uint64_t offset, char *buffer, size_t length)
{
    while (length) {
        ssize_t count = pread(mapping->fd, buffer, length, (off_t)offset);
        if (count == 0)
            return -ESTALE;
        if (count < 0 && errno != EINTR)
            return -errno;
        size_t step = count > 0 ? (size_t)count : 0;
        buffer += step;
        offset += step;
        length -= step;
    }
    return mapping->is_file ? check_file(mapping) : 0;
}

/*
 * hugetlbfs has no write(2), but the kernel can copy within this process, and fails where we would be killed.
 */
static int write_guarded(const struct gs_mapping *mapping, uint64_t offset, void *buffer, size_t length)
{
    struct iovec from = {.iov_base = buffer, .iov_len = length};
    struct iovec to = {.iov_base = mapping->base + offset, .iov_len = length};
    return process_vm_writev(getpid(), &from, 1, &to, 1, 0) == (ssize_t)length ? 0 : -EIO;
}

int gs_shm_copy(struct gs_mapping *mapping, uint8_t op, uint64_t offset, void *buffer, size_t length)
{
    if (offset > mapping->length || length > mapping->length - offset)
        return -ERANGE; /* it was mapped when the peer said that the region is shorter */
    bool ready = gs_shm_is_ready(mapping, offset, length);
    bool bulk = length >= BULK_BYTES && !mapping->huge;
    if (op == GPUSYS_OP_READ && (!mapping->base || mapping->guarded || (!ready && bulk)))
        return read_fd(mapping, offset, buffer, length);
    if (!mapping->base || (op == GPUSYS_OP_WRITE && !mapping->writable))
        return -EACCES;
    if (mapping->guarded)
        return write_guarded(mapping, offset, buffer, length);
    if (!ready && populate(mapping, offset, length))
        return -EIO;
    if (op == GPUSYS_OP_READ)
        memcpy(buffer, mapping->base + offset, length);
    else
        memcpy(mapping->base + offset, buffer, length);
    return 0;
}

/* ---- the rail's table ---- */

static unsigned shm_room(const struct gs_rail *rail)
{
    return SLOTS - self_of(rail)->n_waiting;
}

static void shm_post(struct gs_rail *rail, struct gs_slices *chain)
{
    struct gs_shm_rail *self = self_of(rail);
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(chain))) {
        self->n_waiting++;
        gs_slices_push(&self->waiting, slice);
    }
}

static int shm_poll(struct gs_rail *rail, struct gs_slices *done)
{
    struct gs_shm_rail *self = self_of(rail);
    struct gs_slice *slice;
    uint64_t total = 0;
    while (total < ROUND_BYTES && (slice = gs_slices_pop(&self->waiting))) {
        struct gs_mapping *mapping = gs_shm_mapping(self, slice->region);
        self->n_waiting--;
        slice->status =
            mapping ? gs_shm_copy(mapping, slice->op, slice->offset, slice->buffer, slice->length) : -ENOENT;
        total += slice->length;
        gs_slices_push(done, slice);
    }
    return 0;
}

static int shm_fd(const struct gs_rail *rail)
{
    (void)rail;
    return -1;
}

static uint32_t shm_events(const struct gs_rail *rail)
{
    (void)rail;
    return 0;
}

static bool shm_busy(const struct gs_rail *rail)
{
    return self_of(rail)->n_waiting > 0;
}

static int shm_abandon(struct gs_rail *rail, const void *owner, struct gs_slices *dropped)
{
    struct gs_shm_rail *self = self_of(rail);
    struct gs_slices all = self->waiting;
    struct gs_slice *slice;
    self->waiting = (struct gs_slices){0};
    while ((slice = gs_slices_pop(&all))) {
        self->n_waiting -= slice->owner == owner;
        gs_slices_push(slice->owner == owner ? dropped : &self->waiting, slice);
    }
    return 0;
}

static void shm_quiesce(struct gs_rail *rail, struct gs_slices *outstanding)
{
    struct gs_shm_rail *self = self_of(rail);
    struct gs_slice *slice;
    while ((slice = gs_slices_pop(&self->waiting)))
        gs_slices_push(outstanding, slice);
    self->n_waiting = 0;
}

const struct gs_rail_ops gs_rail_shm = {
    .transport = GPUSYS_TRANSPORT_SHM,
    .slice_bytes = 1024 * 1024,
    .connect = shm_connect,
    .prepare = shm_prepare,
    .room = shm_room,
    .post = shm_post,
    .poll = shm_poll,
    .fd = shm_fd,
    .events = shm_events,
    .busy = shm_busy,
    .abandon = shm_abandon,
    .quiesce = shm_quiesce,
    .close = shm_close,
};
