/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: devices, contexts, ports, protection domains. */
#include "ibverbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Programs that ask for the version of 2005 get nothing: its structures differ. */
#define EXPORT __attribute__((visibility("default")))
EXPORT struct ibv_device **fake_get_device_list(int *ret_count);
EXPORT struct ibv_device **fake_old_get_device_list(int *ret_count);
EXPORT struct ibv_context *fake_open_device(struct ibv_device *device);
EXPORT struct ibv_context *fake_old_open_device(struct ibv_device *device);

__asm__(".symver fake_get_device_list, ibv_get_device_list@@IBVERBS_1.1");
__asm__(".symver fake_old_get_device_list, ibv_get_device_list@IBVERBS_1.0");
__asm__(".symver fake_open_device, ibv_open_device@@IBVERBS_1.1");
__asm__(".symver fake_old_open_device, ibv_open_device@IBVERBS_1.0");

struct ibv_device **fake_old_get_device_list(int *ret_count)
{
    *ret_count = 0;
    errno = ENOSYS;
    return NULL;
}

struct ibv_context *fake_old_open_device(struct ibv_device *device)
{
    (void)device;
    errno = ENOSYS;
    return NULL;
}

/* ---- the list; its devices are those of the configuration and outlive it ---- */

struct ibv_device **fake_get_device_list(int *ret_count)
{
    int error = fake_enter(FN_ibv_get_device_list, NULL, NULL, NULL), count = 0;
    struct ibv_device **list = error ? NULL : calloc(DEVICES + 1, sizeof *list);
    for (unsigned i = 0; list && i < fake.config.n_devices; i++)
        if (!fake.config.devices[i].is_removed)
            list[count++] = &fake.config.devices[i].base;
    if (ret_count)
        *ret_count = count;
    return fake_leave_with(list, error ? error : ENOMEM);
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    return ((struct device *)device)->attr.node_guid;
}

int ibv_get_device_index(struct ibv_device *device)
{
    return ((struct device *)device)->index;
}

/* ---- ports ---- */

static struct port *port_of(struct ibv_context *context, uint32_t number)
{
    struct device *device = context_of(context)->device;
    return number >= 1 && number <= device->attr.phys_port_cnt ? &device->ports[number - 1] : NULL;
}

static int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *ret_attr,
                      size_t bytes)
{
    int error = fake_enter(FN_ibv_query_port, context, NULL, NULL);
    const struct port *port = port_of(context, number);
    if (!error && !port)
        error = EINVAL;
    if (!error) {
        memset(ret_attr, 0, bytes);
        memcpy(ret_attr, &port->attr, bytes < sizeof port->attr ? bytes : sizeof port->attr);
    }
    return fake_leave(error);
}

/* What programs of before link_layer call: all but the structure's last members. */
int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *ret_attr)
{
    return query_port(context, number, (struct ibv_port_attr *)(void *)ret_attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *ret_attr)
{
    int error = fake_enter(FN_ibv_query_device, context, NULL, NULL);
    if (!error)
        *ret_attr = context_of(context)->device->attr;
    return fake_leave(error);
}

/* 0, EINVAL beyond the port's table, ENODATA where it is empty. */
static int find_gid(struct ibv_context *context, uint32_t number, uint32_t index,
                    struct ibv_gid_entry *ret_entry)
{
    const struct port *port = port_of(context, number);
    if (!port || index >= (uint32_t)port->attr.gid_tbl_len)
        return EINVAL;
    if (index >= GIDS || !port->gids[index].used)
        return ENODATA;
    *ret_entry = port->gids[index].entry;
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *ret_entry, uint32_t flags, size_t entry_bytes)
{
    struct ibv_gid_entry entry;
    int error = fake_enter(FN__ibv_query_gid_ex, context, NULL, NULL);
    if (!error && flags)
        error = EOPNOTSUPP;
    if (!error)
        error = find_gid(context, port, index, &entry);
    if (!error)
        memcpy(ret_entry, &entry, entry_bytes < sizeof entry ? entry_bytes : sizeof entry);
    return fake_leave(error);
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most,
                             uint32_t flags, size_t entry_bytes)
{
    size_t count = 0;
    int error = fake_enter(FN__ibv_query_gid_table, context, NULL, NULL);
    if (!error && (flags || entry_bytes < sizeof *entries))
        error = EOPNOTSUPP;
    for (uint32_t number = 1; !error && port_of(context, number); number++)
        for (uint32_t i = 0; i < GIDS && !error; i++) {
            struct ibv_gid_entry entry;
            if (find_gid(context, number, i, &entry))
                continue;
            if (count == most)
                error = EINVAL;
            else
                memcpy((char *)entries + entry_bytes * count++, &entry, sizeof entry);
        }
    return fake_leave(error) ? -error : (ssize_t)count;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *ret_gid)
{
    struct ibv_gid_entry entry = {.gid_index = 0};
    int error = fake_enter(FN_ibv_query_gid, context, NULL, NULL);
    if (!error)
        error = index < 0 ? EINVAL : find_gid(context, port, (uint32_t)index, &entry);
    if (error == ENODATA)
        error = 0; /* an empty place reads as zeros */
    if (!error)
        *ret_gid = entry.gid;
    fake_leave(error);
    errno = error ? error : errno;
    return error ? -1 : 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *ret_pkey)
{
    int error = fake_enter(FN_ibv_query_pkey, context, NULL, NULL);
    const struct port *its = port_of(context, port);
    if (!error && (!its || index < 0 || index >= its->attr.pkey_tbl_len || index >= PKEYS))
        error = ENOENT; /* there is no such file below the port's */
    if (!error)
        *ret_pkey = (__be16)(its->pkeys[index] << 8 | its->pkeys[index] >> 8);
    fake_leave(error);
    errno = error ? error : errno;
    return error ? -1 : 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    __be16 found;
    for (int i = 0; ibv_query_pkey(context, port, i, &found) == 0; i++)
        if (found == pkey)
            return i;
    return -1;
}

/* ---- contexts ---- */

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *ret_attr, size_t bytes)
{
    (void)input;
    memset(ret_attr, 0, bytes);
    return ibv_query_device(context, &ret_attr->orig_attr);
}

static void fill_operations(struct context *context, int cmd_fd, int async_fd)
{
    context->verbs = (struct verbs_context){
        .query_port = query_port, .query_device_ex = query_device_ex, .sz = sizeof context->verbs};
    context->verbs.context = (struct ibv_context){.device = &context->device->base,
                                                  .cmd_fd = cmd_fd,
                                                  .async_fd = async_fd,
                                                  .num_comp_vectors = 1,
                                                  .abi_compat = __VERBS_ABI_IS_EXTENDED};
    context->verbs.context.ops.poll_cq = fake_poll_cq;
    context->verbs.context.ops.req_notify_cq = fake_req_notify_cq;
    context->verbs.context.ops.post_send = fake_post_send;
    context->verbs.context.ops.post_recv = fake_post_recv;
    pthread_mutex_init(&context->verbs.context.mutex, NULL);
}

static struct context *new_context(struct device *device, int *ret_error)
{
    int fds[2], cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct context *context = calloc(1, sizeof *context);
    *ret_error = device->is_removed ? ENODEV : cmd_fd < 0 ? errno : context ? fake_pipe(fds) : ENOMEM;
    if (*ret_error) {
        if (cmd_fd >= 0)
            close(cmd_fd);
        free(context);
        return NULL;
    }
    context->device = device;
    context->async_write_fd = fds[1];
    fill_operations(context, cmd_fd, fds[0]);
    context->next = fake.contexts;
    fake.contexts = context;
    fake.live[FAKE_IBVERBS_CONTEXTS]++;
    return context;
}

struct ibv_context *fake_open_device(struct ibv_device *device)
{
    int error = fake_enter(FN_ibv_open_device, NULL, NULL, NULL);
    struct context *context = error ? NULL : new_context((struct device *)device, &error);
    return fake_leave_with(context ? &context->verbs.context : NULL, error);
}

/* The kernel ends what a closed context still has; its memory is the program's leak. */
static void end_context(struct context *context)
{
    struct context **place = &fake.contexts;
    while (*place != context)
        place = &(*place)->next;
    *place = context->next;
    for (struct qp *qp = context->qps; qp; qp = qp->next) {
        fake_qp_shared(qp)->state = IBV_QPS_RESET;
        fake_qp_shared(qp)->async_fd = -1;
    }
    close(context->verbs.context.cmd_fd);
    close(context->verbs.context.async_fd);
    close(context->async_write_fd);
    pthread_mutex_destroy(&context->verbs.context.mutex);
    fake.live[FAKE_IBVERBS_CONTEXTS]--;
    context->is_closed = true;
    if (!context->n_objects)
        free(context);
}

int ibv_close_device(struct ibv_context *context)
{
    int error = fake_enter(FN_ibv_close_device, context, NULL, NULL);
    if (!error)
        end_context(context_of(context));
    bool is_last = !fake.contexts;
    fake_leave(error);
    if (is_last)
        fake_stop_timer();
    return error;
}

/* ---- protection domains ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    int error = fake_enter(FN_ibv_alloc_pd, context, NULL, NULL);
    if (!error && fake.live[FAKE_IBVERBS_PDS] >= context_of(context)->device->attr.max_pd)
        error = ENOMEM;
    struct pd *pd = error ? NULL : calloc(1, sizeof *pd);
    if (pd) {
        pd->base.context = context;
        pd->id = fake.table->next_pd++;
        pd->base.handle = pd->id;
        context_of(context)->n_objects++;
        fake.live[FAKE_IBVERBS_PDS]++;
    }
    return fake_leave_with(pd ? &pd->base : NULL, error ? error : ENOMEM);
}

int ibv_dealloc_pd(struct ibv_pd *base)
{
    struct pd *pd = (struct pd *)base;
    int error = fake_enter(FN_ibv_dealloc_pd, base->context, NULL, NULL);
    if (!error && pd->users)
        error = EBUSY;
    if (!error) {
        context_of(base->context)->n_objects--;
        fake.live[FAKE_IBVERBS_PDS]--;
        free(pd);
    }
    return fake_leave(error);
}

/* ---- words, and forks ---- */

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const words[] = {"success",
                                        "local length error",
                                        "local QP operation error",
                                        "local EE context operation error",
                                        "local protection error",
                                        "Work Request Flushed Error",
                                        "memory management operation error",
                                        "bad response error",
                                        "local access error",
                                        "remote invalid request error",
                                        "remote access error",
                                        "remote operation error",
                                        "transport retry counter exceeded",
                                        "RNR retry counter exceeded",
                                        "local RDD violation error",
                                        "remote invalid RD request",
                                        "aborted error",
                                        "invalid EE context number",
                                        "invalid EE context state",
                                        "fatal error",
                                        "response timeout error",
                                        "general error",
                                        "TM error",
                                        "TM software rendezvous"};
    return (unsigned)status < sizeof words / sizeof *words ? words[status] : "unknown";
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    static const char *const words[] = {"no state change (NOP)", "down", "init", "armed", "active",
                                        "active defer"};
    return (unsigned)state < sizeof words / sizeof *words ? words[state] : "unknown";
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
    return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
    static const char *const words[] = {"CQ error",
                                        "local work queue catastrophic error",
                                        "invalid request local work queue error",
                                        "local access violation work queue error",
                                        "communication established",
                                        "send queue drained",
                                        "path migrated",
                                        "path migration request error",
                                        "local catastrophic error",
                                        "port active",
                                        "port error",
                                        "LID change",
                                        "P_Key change",
                                        "SM change",
                                        "SRQ catastrophic error",
                                        "SRQ limit reached",
                                        "last WQE reached",
                                        "client reregistration",
                                        "GID table change",
                                        "WQ catastrophic error"};
    return (unsigned)type < sizeof words / sizeof *words ? words[type] : "unknown";
}

int ibv_fork_init(void)
{
    int error = fake_enter(FN_ibv_fork_init, NULL, NULL, NULL);
    if (!error && fake.live[FAKE_IBVERBS_MRS])
        error = EINVAL; /* too late */
    fake.is_fork_initialized |= !error;
    return fake_leave(error);
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
    fake_lock();
    bool is_so = fake.is_fork_initialized;
    fake_unlock();
    return is_so ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}
