/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What gpusys/verbs.h answers in a build without rdma-core's headers. */
#include <gpusys/verbs.h>

#include <errno.h>

static int no(struct gpusys_error *error)
{
    gpusys_error_set(error, -EOPNOTSUPP, "this build of gpusys has no RDMA");
    gpusys_error_set_hint(error,
                          "build it where rdma-core's headers are (libibverbs-dev), without -Drdma=disabled");
    return -EOPNOTSUPP;
}

bool gpusys_verbs_enabled(void)
{
    return false;
}

int gpusys_verbs_status(struct gpusys_error *error)
{
    return no(error);
}

const char *gpusys_verbs_library(void)
{
    return NULL;
}

int gpusys_ports_new(struct gpusys_ports **ret_ports, const char *local_address, const uint8_t peer[16],
                     struct gpusys_error *error)
{
    (void)ret_ports, (void)local_address, (void)peer;
    return no(error);
}

void gpusys_ports_free(struct gpusys_ports *ports)
{
    (void)ports;
}

uint32_t gpusys_ports_count(const struct gpusys_ports *ports)
{
    (void)ports;
    return 0;
}

int gpusys_ports_port(const struct gpusys_ports *ports, uint32_t at, struct gpusys_port_info *ret_info)
{
    (void)ports, (void)at, (void)ret_info;
    return -EOPNOTSUPP;
}

int gpusys_ports_gid(const struct gpusys_ports *ports, uint32_t at, uint32_t rank,
                     struct gpusys_gid_info *ret_info)
{
    (void)ports, (void)at, (void)rank, (void)ret_info;
    return -EOPNOTSUPP;
}

int gpusys_verbs_open(struct gpusys_verbs **ret_verbs, const struct gpusys_verbs_options *options,
                      struct gpusys_error *error)
{
    (void)ret_verbs, (void)options;
    return no(error);
}

void gpusys_verbs_close(struct gpusys_verbs *verbs)
{
    (void)verbs;
}

int gpusys_verbs_info(const struct gpusys_verbs *verbs, struct gpusys_port_info *ret_port,
                      struct gpusys_gid_info *ret_gid)
{
    (void)verbs, (void)ret_port, (void)ret_gid;
    return -EOPNOTSUPP;
}

int gpusys_verbs_gid_for(const struct gpusys_verbs *verbs, const char *local_address, const uint8_t *peer,
                         struct gpusys_gid_info *ret_gid)
{
    (void)verbs, (void)local_address, (void)peer, (void)ret_gid;
    return -EOPNOTSUPP;
}

int gpusys_verbs_fd(const struct gpusys_verbs *verbs)
{
    (void)verbs;
    return -EOPNOTSUPP;
}

int gpusys_verbs_event(struct gpusys_verbs *verbs, struct gpusys_verbs_event *ret_event)
{
    (void)verbs, (void)ret_event;
    return 0;
}

int gpusys_verbs_health(const struct gpusys_verbs *verbs)
{
    (void)verbs;
    return -EOPNOTSUPP;
}

int gpusys_pd_open(struct gpusys_pd **ret_pd, struct gpusys_verbs *verbs, struct gpusys_error *error)
{
    (void)ret_pd, (void)verbs;
    return no(error);
}

void gpusys_pd_close(struct gpusys_pd *pd)
{
    (void)pd;
}

int gpusys_mr_open(struct gpusys_mr **ret_mr, struct gpusys_pd *pd, void *address, uint64_t length,
                   uint32_t access, struct gpusys_error *error)
{
    (void)ret_mr, (void)pd, (void)address, (void)length, (void)access;
    return no(error);
}

void gpusys_mr_close(struct gpusys_mr *mr)
{
    (void)mr;
}

int gpusys_mr_info(const struct gpusys_mr *mr, struct gpusys_mr_info *ret_info)
{
    (void)mr, (void)ret_info;
    return -EOPNOTSUPP;
}

int gpusys_mr_open_gpu(struct gpusys_mr **ret_mrs, struct gpusys_pd *const *pds, uint32_t n, void *address,
                       uint64_t length, int dmabuf_fd, uint64_t dmabuf_offset, uint32_t access,
                       uint32_t *ret_path, struct gpusys_error *error)
{
    (void)ret_mrs, (void)pds, (void)n, (void)address, (void)length, (void)dmabuf_fd, (void)dmabuf_offset;
    (void)access, (void)ret_path;
    return no(error);
}

int gpusys_qp_open(struct gpusys_qp **ret_qp, struct gpusys_pd *pd, const struct gpusys_qp_options *options,
                   struct gpusys_error *error)
{
    (void)ret_qp, (void)pd, (void)options;
    return no(error);
}

void gpusys_qp_close(struct gpusys_qp *qp)
{
    (void)qp;
}

int gpusys_qp_end(const struct gpusys_qp *qp, struct gpusys_qp_end *ret_end)
{
    (void)qp, (void)ret_end;
    return -EOPNOTSUPP;
}

int gpusys_qp_info(const struct gpusys_qp *qp, struct gpusys_qp_info *ret_info)
{
    (void)qp, (void)ret_info;
    return -EOPNOTSUPP;
}

int gpusys_qp_connect(struct gpusys_qp *qp, const struct gpusys_qp_end *peer, struct gpusys_error *error)
{
    (void)qp, (void)peer;
    return no(error);
}

int gpusys_qp_reconnect(struct gpusys_qp *qp, uint32_t mtu_bytes, uint32_t packets,
                        struct gpusys_error *error)
{
    (void)qp, (void)mtu_bytes, (void)packets;
    return no(error);
}

int gpusys_qp_limit(struct gpusys_qp *qp, uint64_t read_bytes, uint64_t write_bytes)
{
    (void)qp, (void)read_bytes, (void)write_bytes;
    return -EOPNOTSUPP;
}

uint32_t gpusys_qp_room(const struct gpusys_qp *qp)
{
    (void)qp;
    return 0;
}

int gpusys_qp_post(struct gpusys_qp *qp, const struct gpusys_qp_op *ops, uint32_t n)
{
    (void)qp, (void)ops, (void)n;
    return -EOPNOTSUPP;
}

int gpusys_qp_poll(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max)
{
    (void)qp, (void)ret_completions, (void)max;
    return -EOPNOTSUPP;
}

int gpusys_qp_wait(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max,
                   struct gpusys_stream *control, int64_t deadline_ns)
{
    (void)qp, (void)ret_completions, (void)max, (void)control, (void)deadline_ns;
    return -EOPNOTSUPP;
}

int gpusys_qp_fd(const struct gpusys_qp *qp)
{
    (void)qp;
    return -EOPNOTSUPP;
}

int gpusys_qp_arm(struct gpusys_qp *qp)
{
    (void)qp;
    return -EOPNOTSUPP;
}

int gpusys_qp_drain(struct gpusys_qp *qp, struct gpusys_qp_completion *ret_completions, uint32_t max,
                    uint32_t *ret_count, int64_t deadline_ns)
{
    (void)qp, (void)ret_completions, (void)max, (void)ret_count, (void)deadline_ns;
    return -EOPNOTSUPP;
}

int gpusys_qp_explain(const struct gpusys_qp *qp, const struct gpusys_qp_completion *completion,
                      struct gpusys_error *error)
{
    (void)qp, (void)completion;
    return no(error);
}

int gpusys_wc_status_errno(uint32_t status)
{
    return status ? -EIO : 0;
}

const char *gpusys_wc_status_text(uint32_t status)
{
    return status ? "failed" : "success";
}
