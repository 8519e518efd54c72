/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One kernel inside the range "wanted", two inside "other": a profiler that filters by range must see exactly one.
 * Usage: real_nvtx
 */
#include "check.h"

enum { COUNT = 4096 };

/* An operator that multiplies makes one rank's reduction a kernel of NCCL's, not a copy. */
static int kernel(struct gpusys_comm *comm, void *buffer, int op, struct CUstream_st *stream)
{
    struct gpusys_error error = {0};
    int code = gpusys_comm_all_reduce(comm, buffer, buffer, COUNT, GPUSYS_NCCL_FLOAT32, op, stream);
    if (!code)
        code = gpusys_comm_wait(comm, stream, 60 * SECOND, &error);
    return code;
}

static void ranges(struct gpusys_comm *comm, void *buffer, int op, struct CUstream_st *stream)
{
    gpusys_nvtx_push("other");
    int code = kernel(comm, buffer, op, stream);
    gpusys_nvtx_pop();
    gpusys_nvtx_pushf("wanted");
    code = code ? code : kernel(comm, buffer, op, stream);
    gpusys_nvtx_pop();
    gpusys_nvtx_push("other");
    code = code ? code : kernel(comm, buffer, op, stream);
    gpusys_nvtx_pop();
    check(code == 0, "three kernels ran (%d)", code);
}

int main(void)
{
    struct gpusys_error error = {0};
    struct gpusys_comm_options options = {
        .size = sizeof options, .n_ranks = 1, .flags = GPUSYS_COMM_DEVICE, .address = "127.0.0.1:0"};
    struct gpusys_comm *comm;
    struct gpusys_cuda *cuda;
    struct CUstream_st *stream = NULL;
    void *buffer = NULL;
    float two = 2;
    int op = 0;
    if (!check_call(gpusys_cuda_open(&cuda, 0, &error), &error, "device 0"))
        return check_end();
    if (check_call(gpusys_comm_open(&comm, &options, &error), &error, "a communicator of one rank")) {
        if (check_call(gpusys_cuda_stream_open(cuda, &stream, &error), &error, "a stream") &&
            check_call(gpusys_cuda_alloc(cuda, &buffer, COUNT * sizeof(float), &error), &error,
                       "device memory") &&
            check_call(
                gpusys_comm_op_open(comm, &two, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SCALAR_HOST, &op, &error),
                &error, "an operator"))
            ranges(comm, buffer, op, stream);
        remark("a tool listens: %s", gpusys_nvtx_enabled() ? "yes" : "no");
        gpusys_comm_close(comm);
        gpusys_cuda_free(cuda, buffer);
        gpusys_cuda_stream_close(cuda, stream);
    }
    gpusys_cuda_close(cuda);
    return check_end();
}
