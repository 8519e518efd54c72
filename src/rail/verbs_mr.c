/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Protection domains and registered memory. */
#include "base/log.h"
#include "base/options.h"
#include "rail/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int gpusys_pd_open(struct gpusys_pd **ret_pd, struct gpusys_verbs *verbs, struct gpusys_error *error)
{
    struct gpusys_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return gpusys_error_set_errno(error, -ENOMEM, "%s: a protection domain", gs_device_name(verbs));
    pd->verbs = verbs;
    errno = 0;
    pd->pd = verbs->ibv->alloc_pd(verbs->context);
    if (!pd->pd) {
        int code = gs_ibv_errno(0);
        free(pd);
        return gpusys_error_set_errno(error, code, "%s: a protection domain", gs_device_name(verbs));
    }
    *ret_pd = pd;
    return 0;
}

void gpusys_pd_close(struct gpusys_pd *pd)
{
    if (!pd)
        return;
    int result = pd->verbs->ibv->dealloc_pd(pd->pd);
    if (result)
        gs_log(GPUSYS_LOG_WARN, "%s: a protection domain is still in use: %s", gs_device_name(pd->verbs),
               strerrordesc_np(-gs_ibv_errno(result)));
    free(pd);
}

/* ---- access ---- */

/* Remote writing wants local writing too, by the standard. */
static int access_flags(uint32_t access, const struct gs_ibv *ibv)
{
    int flags = 0;
    switch (access & ~GPUSYS_MR_RELAXED) {
    case GPUSYS_MR_SOURCE: break;
    case GPUSYS_MR_LANDING: flags = IBV_ACCESS_LOCAL_WRITE; break;
    case GPUSYS_MR_PEER_READ: flags = IBV_ACCESS_REMOTE_READ; break;
    case GPUSYS_MR_PEER_READ_WRITE:
        flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        break;
    default: return -EINVAL;
    }
    /* An optional flag passes through reg_mr_iova2 only, which drops it for drivers that do not know it. */
    return flags | (access & GPUSYS_MR_RELAXED && ibv->reg_mr_iova2 ? IBV_ACCESS_RELAXED_ORDERING : 0);
}

static struct ibv_mr *register_plain(struct gpusys_pd *pd, void *address, uint64_t length, int flags)
{
    const struct gs_ibv *ibv = pd->verbs->ibv;
    errno = 0;
    if (flags & IBV_ACCESS_OPTIONAL_RANGE)
        return ibv->reg_mr_iova2(pd->pd, address, (size_t)length, (uintptr_t)address, (unsigned)flags);
    return ibv->reg_mr(pd->pd, address, (size_t)length, flags);
}

/* ---- why not ---- */

static void explain_memory(uint64_t length, struct gpusys_error *error)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY || geteuid() == 0) {
        gpusys_error_add_detail(error, "memlock", "no limit here");
        gpusys_error_set_hint(error, "free memory, or keys of the device (rdma resource show)");
        return;
    }
    gpusys_error_add_detail(error, "memlock", "limit %llu bytes, this registration needs %llu",
                            (unsigned long long)limit.rlim_cur, (unsigned long long)length);
    if (length > limit.rlim_cur)
        gpusys_error_set_cause(error, "the limit on locked memory is smaller than the region");
    else
        gpusys_error_set_cause(error, "the limit on locked memory, together with what is registered already");
    gpusys_error_set_hint(error,
                          "raise it: ulimit -l unlimited, memlock in limits.conf, LimitMEMLOCK= of the "
                          "service, --ulimit memlock=-1 of the container");
}

static int refuse(const struct gpusys_pd *pd, int code, const void *address, uint64_t length,
                  struct gpusys_error *error)
{
    gpusys_error_set_errno(error, code, "%s: registering %llu bytes", gs_device_name(pd->verbs),
                           (unsigned long long)length);
    gpusys_error_add_detail(error, "memory", "at %p", address);
    if (code == -ENOMEM)
        explain_memory(length, error);
    else if (code == -EFAULT)
        gpusys_error_set_cause(error,
                               "this memory cannot be pinned here: not mapped, or a mapping of a file that "
                               "this kernel pins only when it is private or writable");
    return code;
}

static int check(const struct gpusys_pd *pd, const void *address, uint64_t length, int flags,
                 struct gpusys_error *error)
{
    const char *device = gs_device_name(pd->verbs);
    uint64_t most = pd->verbs->device_attributes.max_mr_size;
    if (flags < 0)
        return gpusys_error_set(error, -EINVAL, "%s: no such access to memory", device);
    if (!address || length == 0 || (uintptr_t)address + length < (uintptr_t)address)
        return gpusys_error_set(error, -EINVAL, "%s: %llu bytes at %p are no memory to register", device,
                                (unsigned long long)length, address);
    if (length <= most)
        return 0;
    gpusys_error_set(error, -EMSGSIZE, "%s: %llu bytes are above the %llu that the device registers at once",
                     device, (unsigned long long)length, (unsigned long long)most);
    gpusys_error_set_hint(error, "register it in pieces of at most that");
    return -EMSGSIZE;
}

/* ---- registrations ---- */

static int keep(struct gpusys_mr **ret_mr, struct gpusys_pd *pd, struct ibv_mr *registered, void *address)
{
    struct gpusys_mr *mr = calloc(1, sizeof *mr);
    if (!mr) {
        pd->verbs->ibv->dereg_mr(registered);
        return -ENOMEM;
    }
    *mr = (struct gpusys_mr){.ibv = pd->verbs->ibv, .mr = registered, .address = (uintptr_t)address};
    *ret_mr = mr;
    return 0;
}

int gpusys_mr_open(struct gpusys_mr **ret_mr, struct gpusys_pd *pd, void *address, uint64_t length,
                   uint32_t access, struct gpusys_error *error)
{
    int flags = access_flags(access, pd->verbs->ibv), result = check(pd, address, length, flags, error);
    if (result)
        return result;
    struct ibv_mr *registered = register_plain(pd, address, length, flags);
    result = registered ? keep(ret_mr, pd, registered, address) : gs_ibv_errno(0);
    return result ? refuse(pd, result, address, length, error) : 0;
}

void gpusys_mr_close(struct gpusys_mr *mr)
{
    if (!mr)
        return;
    int result = mr->ibv->dereg_mr(mr->mr);
    if (result)
        gs_log(GPUSYS_LOG_WARN, "a registration stays: %s", strerrordesc_np(-gs_ibv_errno(result)));
    free(mr);
}

int gpusys_mr_info(const struct gpusys_mr *mr, struct gpusys_mr_info *ret_info)
{
    struct gpusys_mr_info info = {
        .address = mr->address, .length = mr->mr->length, .lkey = mr->mr->lkey, .rkey = mr->mr->rkey};
    return gs_info_give(ret_info, &info, sizeof info);
}

/* ---- GPU memory ---- */

/*
 * Does the driver do dmabuf at all? Registering a descriptor that is none fails in every case; only its errno
 * tells drivers that know the call from those that do not.
 */
static bool ask_dmabuf(const struct gpusys_pd *pd)
{
    const struct gs_ibv *ibv = pd->verbs->ibv;
    if (!ibv->reg_dmabuf_mr)
        return false;
    errno = 0;
    struct ibv_mr *mr = ibv->reg_dmabuf_mr(pd->pd, 0, 4096, 0, -1, 0);
    if (mr)
        ibv->dereg_mr(mr);
    return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

static bool knows_dmabuf(const struct gpusys_pd *pd)
{
    int known = atomic_load(&pd->verbs->dmabuf);
    if (known == GS_DMABUF_UNASKED) {
        known = ask_dmabuf(pd) ? GS_DMABUF_YES : GS_DMABUF_NO;
        atomic_store(&pd->verbs->dmabuf, known);
    }
    return known == GS_DMABUF_YES;
}

struct gpu_range {
    void *address;
    uint64_t length, offset;
    int fd, flags;
};

static struct ibv_mr *register_gpu(struct gpusys_pd *pd, const struct gpu_range *range, bool by_dmabuf)
{
    if (!by_dmabuf)
        return register_plain(pd, range->address, range->length, range->flags);
    errno = 0;
    return pd->verbs->ibv->reg_dmabuf_mr(pd->pd, range->offset, (size_t)range->length,
                                         (uintptr_t)range->address, range->fd, range->flags);
}

/* In every domain, or in none: *ret_at is the one that refused. */
static int register_all(struct gpusys_mr **mrs, struct gpusys_pd *const *pds, uint32_t n,
                        const struct gpu_range *range, bool by_dmabuf, uint32_t *ret_at)
{
    int result = 0;
    uint32_t done = 0;
    for (; done < n && !result; done += !result) {
        struct ibv_mr *registered = register_gpu(pds[done], range, by_dmabuf);
        result = registered ? keep(&mrs[done], pds[done], registered, range->address) : gs_ibv_errno(0);
    }
    *ret_at = done;
    while (result && done > 0) {
        gpusys_mr_close(mrs[--done]);
        mrs[done] = NULL;
    }
    return result;
}

static void add_reason(struct gpusys_error *error, const char *way, const struct gpusys_pd *pd, int code)
{
    gpusys_error_add_detail(error, way, "%s: %s", gs_device_name(pd->verbs), strerrordesc_np(-code));
}

int gpusys_mr_open_gpu(struct gpusys_mr **ret_mrs, struct gpusys_pd *const *pds, uint32_t n, void *address,
                       uint64_t length, int dmabuf_fd, uint64_t dmabuf_offset, uint32_t access,
                       uint32_t *ret_path, struct gpusys_error *error)
{
    struct gpu_range range = {.address = address, .length = length, .offset = dmabuf_offset, .fd = dmabuf_fd};
    bool by_dmabuf = dmabuf_fd >= 0;
    uint32_t at = 0, refused = 0; /* by peer memory, by dmabuf */
    for (uint32_t i = 0; i < n; i++) {
        range.flags = access_flags(access, pds[i]->verbs->ibv);
        int result = check(pds[i], address, length, range.flags, error);
        if (result)
            return result;
        by_dmabuf = by_dmabuf && knows_dmabuf(pds[i]);
    }
    int first = by_dmabuf ? register_all(ret_mrs, pds, n, &range, true, &refused) : -EOPNOTSUPP;
    int result = first ? register_all(ret_mrs, pds, n, &range, false, &at) : 0;
    if (!result) {
        *ret_path = first ? GPUSYS_GPU_PEER_MEMORY : GPUSYS_GPU_DMABUF;
        return 0;
    }
    gpusys_error_set_errno(error, result, "registering %llu bytes of GPU memory", (unsigned long long)length);
    if (by_dmabuf)
        add_reason(error, "dmabuf", pds[refused], first);
    else
        gpusys_error_add_detail(error, "dmabuf", "%s",
                                dmabuf_fd < 0 ? "no descriptor given"
                                              : "the library, the kernel or a device does not do it");
    add_reason(error, "peer memory", pds[at], result);
    gpusys_error_set_hint(error,
                          "load nvidia-peermem (modprobe nvidia-peermem), or use a driver with dmabuf; "
                          "until then stage through host memory");
    return result;
}
