/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The objects a row of the table acts on. */
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#undef ibv_reg_mr

bool verbs_load(struct verbs *ret_verbs, const char *path)
{
    void *library = dlopen(path ? path : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    void *address;
#define LOAD(member, name, version)                                                                          \
    address = dlvsym(library, #name, version);                                                               \
    if (!address) {                                                                                          \
        fprintf(stderr, "no %s of version %s\n", #name, version);                                            \
        return false;                                                                                        \
    }                                                                                                        \
    memcpy(&ret_verbs->member, &address, sizeof address);
    VERBS(LOAD)
#undef LOAD
    return true;
}

void world_fault(struct world *world, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!world->fault[0])
        vsnprintf(world->fault, sizeof world->fault, format, arguments);
    va_end(arguments);
}

struct object *world_find(struct world *world, const char *name, enum kind kind)
{
    for (unsigned i = 0; i < world->n_objects; i++)
        if (name && strcmp(world->objects[i].name, name) == 0 && world->objects[i].kind == kind)
            return &world->objects[i];
    world_fault(world, "there is no %s", name ? name : "name");
    return NULL;
}

struct object *world_add(struct world *world, const char *name, enum kind kind)
{
    if (world->n_objects == OBJECTS)
        abort();
    struct object *object = &world->objects[world->n_objects++];
    *object = (struct object){.kind = kind};
    snprintf(object->name, sizeof object->name, "%s", name);
    return object;
}

/* ---- making ---- */

int world_add_pd(struct world *world, const char *name)
{
    struct ibv_pd *pd = world->verbs->alloc_pd(world->context);
    if (!pd)
        return errno;
    world_add(world, name, KIND_PD)->pd = pd;
    return 0;
}

static int access_of(const char *rights)
{
    return (strchr(rights, 'l') ? IBV_ACCESS_LOCAL_WRITE : 0) |
           (strchr(rights, 'w') ? IBV_ACCESS_REMOTE_WRITE : 0) |
           (strchr(rights, 'r') ? IBV_ACCESS_REMOTE_READ : 0);
}

int world_add_mr(struct world *world, const char *name, const char *pd_name, const char *bytes,
                 const char *rights)
{
    struct object *pd = world_find(world, pd_name, KIND_PD);
    bool is_unmapped = strcmp(bytes, "unmapped") == 0, is_readonly = strcmp(bytes, "readonly") == 0;
    size_t length = is_unmapped || is_readonly ? REGION_BYTES : strtoul(bytes, NULL, 0);
    size_t mapped = length ? length : 1;
    void *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!pd || memory == MAP_FAILED)
        return ENOMEM;
    memset(memory, name[0], mapped);
    if (is_readonly)
        mprotect(memory, mapped, PROT_READ);
    if (is_unmapped)
        munmap(memory, mapped);
    struct ibv_mr *mr = world->verbs->reg_mr(pd->pd, memory, length, access_of(rights));
    int error = errno;
    if (!mr) {
        if (!is_unmapped)
            munmap(memory, mapped);
        return error;
    }
    struct object *object = world_add(world, name, KIND_MR);
    object->mr = mr;
    object->memory = memory;
    object->bytes = mapped;
    return 0;
}

int world_add_cq(struct world *world, const char *name, int entries, int vector)
{
    struct object *channel = world_find(world, "channel", KIND_CHANNEL);
    struct ibv_cq *cq = world->verbs->create_cq(world->context, entries, NULL, channel->channel, vector);
    if (!cq)
        return errno;
    world_add(world, name, KIND_CQ)->cq = cq;
    return 0;
}

int world_add_qp(struct world *world, const char *name, const char *cq_name, const struct ibv_qp_cap *cap)
{
    struct object *pd = world_find(world, "pd", KIND_PD), *cq = world_find(world, cq_name, KIND_CQ);
    if (!pd || !cq)
        return ENOENT;
    struct ibv_qp_init_attr init = {.send_cq = cq->cq, .recv_cq = cq->cq, .cap = *cap, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = world->verbs->create_qp(pd->pd, &init);
    if (!qp)
        return errno;
    struct object *object = world_add(world, name, KIND_QP);
    object->qp = qp;
    object->cap = init.cap;
    object->psn = 0x1234;
    return 0;
}

/* ---- unmaking ---- */

static int destroy(const struct verbs *verbs, struct object *object)
{
    switch (object->kind) {
    case KIND_PD: return verbs->dealloc_pd(object->pd);
    case KIND_MR: object->dead_mr = *object->mr; return verbs->dereg_mr(object->mr);
    case KIND_CQ: return verbs->destroy_cq(object->cq);
    case KIND_QP: return verbs->destroy_qp(object->qp);
    case KIND_CHANNEL: return verbs->destroy_comp_channel(object->channel);
    case KIND_NONE: return 0;
    }
    return 0;
}

int world_remove(struct world *world, struct object *object)
{
    int code = positive(destroy(world->verbs, object));
    if (code)
        return code;
    if (object->kind == KIND_MR)
        object->mr = &object->dead_mr; /* its keys may still be tried */
    else
        object->kind = KIND_NONE;
    return 0;
}

static void drain_events(struct world *world)
{
    struct ibv_async_event event;
    while (world->verbs->get_async_event(world->context, &event) == 0)
        world->verbs->ack_async_event(&event);
}

/* Queue pairs first, then what they stood on. */
static void remove_all(struct world *world)
{
    static const enum kind order[] = {KIND_QP, KIND_MR, KIND_CQ, KIND_CHANNEL, KIND_PD};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (unsigned i = 0; i < world->n_objects; i++) {
            struct object *object = &world->objects[i];
            if (object->kind != order[k] || object->mr == &object->dead_mr)
                continue;
            int code = world_remove(world, object);
            if (code)
                world_fault(world, "at the end, destroying %s: %s", object->name, strerror(code));
        }
    for (unsigned i = 0; i < world->n_objects; i++)
        if (world->objects[i].memory)
            munmap(world->objects[i].memory, world->objects[i].bytes);
}

void world_close(struct world *world)
{
    if (world->context) {
        drain_events(world);
        remove_all(world);
        if (world->verbs->close_device(world->context))
            world_fault(world, "closing the device failed");
    }
    world->context = NULL;
    world->n_objects = 0;
}

/* ---- the beginning of a row ---- */

static bool is_usable(const struct ibv_gid_entry *entry)
{
    static const unsigned char v4[12] = {[10] = 0xff, [11] = 0xff};
    return entry->gid_type == IBV_GID_TYPE_IB ||
           (entry->gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(entry->gid.raw, v4, sizeof v4));
}

static void choose_gid(struct world *world)
{
    struct ibv_gid_entry entry;
    for (uint32_t i = 0; i < 16; i++) {
        int code = world->verbs->query_gid_ex(world->context, 1, i, &entry, 0, sizeof entry);
        if (code && code != ENODATA)
            break;
        if (!code && is_usable(&entry)) {
            world->gid = entry.gid;
            world->gid_index = (int)i;
            return;
        }
    }
    world_fault(world, "no GID of InfiniBand or of RoCE v2 with an IPv4 address");
}

static void add_all(struct world *world)
{
    const struct ibv_qp_cap cap = {
        .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
    struct ibv_comp_channel *channel = world->verbs->create_comp_channel(world->context);
    if (!channel) {
        world_fault(world, "no completion channel");
        return;
    }
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    world_add(world, "channel", KIND_CHANNEL)->channel = channel;
    if (world_add_pd(world, "pd") || world_add_pd(world, "pd2") || world_add_cq(world, "ca", 64, 0) ||
        world_add_cq(world, "cb", 64, 0) || world_add_qp(world, "a", "ca", &cap) ||
        world_add_qp(world, "b", "cb", &cap) || world_add_mr(world, "here", "pd", "65536", "l") ||
        world_add_mr(world, "there", "pd", "65536", "lwr") || world_add_mr(world, "ro", "pd", "65536", "r"))
        world_fault(world, "the row's objects could not be made: %m");
}

void world_open(struct world *world)
{
    world->context = world->verbs->open_device(world->device);
    if (!world->context) {
        world_fault(world, "opening the device: %m");
        return;
    }
    fcntl(world->context->async_fd, F_SETFL, O_NONBLOCK);
    choose_gid(world);
    add_all(world);
}
