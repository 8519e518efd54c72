/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The sum of a vector over all ranks of a job, with an end to every wait.
 *
 *     cc all_reduce.c -lgpusys -o all_reduce
 *     mpirun -n 8 ./all_reduce              # or srun, or torchrun --no-python
 *
 * Every process takes its rank, and where to meet the others, from the launcher's environment, and the GPU of its local
 * rank. Rank 0 prints. When a rank dies, all others end within seconds and say which one it was.
 */
#include <errno.h>
#include <gpusys/gpusys.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 1 << 20 };
#define SECOND 1000000000ll

static int failed(const struct gpusys_error *error)
{
    char text[2048];
    gpusys_error_format(error, text, sizeof text);
    fprintf(stderr, "all_reduce: %s\n", text);
    return 1;
}

/* What one rank works with. */
struct work {
    struct gpusys_comm *comm;
    struct gpusys_cuda *cuda;
    struct gpusys_comm_status me;
    struct CUstream_st *stream;
    void *device;
    float *host;
};

static int prepare(struct work *work, struct gpusys_error *error)
{
    work->me.size = sizeof work->me;
    gpusys_comm_status(work->comm, &work->me);
    work->host = malloc(COUNT * sizeof *work->host);
    int code = work->host ? 0 : gpusys_error_set_errno(error, -ENOMEM, "a vector");
    if (!code)
        code = gpusys_cuda_open(&work->cuda, work->me.device, error);
    if (!code)
        code = gpusys_cuda_alloc(work->cuda, &work->device, COUNT * sizeof *work->host, error);
    if (!code)
        code = gpusys_cuda_stream_open(work->cuda, &work->stream, error);
    return code;
}

/* Rank r gives r + 1 everywhere: the sum is n (n + 1) / 2. */
static int reduce(struct work *work, struct gpusys_error *error)
{
    for (size_t i = 0; i < COUNT; i++)
        work->host[i] = (float)work->me.rank + 1;
    int code = gpusys_cuda_copy(work->cuda, work->device, work->host, COUNT * sizeof *work->host, error);
    if (code)
        return code;
    code = gpusys_comm_all_reduce(work->comm, work->device, work->device, COUNT, GPUSYS_NCCL_FLOAT32,
                                  GPUSYS_NCCL_SUM, work->stream);
    if (code)
        return gpusys_comm_failure(work->comm, error) ? code
                                                      : gpusys_error_set_errno(error, code, "all_reduce");
    code = gpusys_comm_wait(work->comm, work->stream, 30 * SECOND, error);
    if (!code)
        code = gpusys_cuda_copy(work->cuda, work->host, work->device, COUNT * sizeof *work->host, error);
    float wanted = (float)work->me.n_ranks * ((float)work->me.n_ranks + 1) / 2;
    for (size_t i = 0; !code && i < COUNT; i++)
        if (work->host[i] != wanted)
            code = gpusys_error_set(error, -EIO, "element %zu is %g, not %g", i, (double)work->host[i],
                                    (double)wanted);
    if (!code && work->me.rank == 0)
        printf("%u ranks: the sum of %d floats is right (%g)\n", work->me.n_ranks, (int)COUNT,
               (double)wanted);
    return code;
}

/* The communicator goes first: it ends what still uses the buffers. If NCCL does not let go of them, nobody should wait for
 * that. */
static void clean_up(struct work *work)
{
    gpusys_comm_close(work->comm);
    if (gpusys_comm_left_behind()) {
        fflush(NULL);
        _exit(1);
    }
    if (work->cuda) {
        gpusys_cuda_stream_close(work->cuda, work->stream);
        gpusys_cuda_free(work->cuda, work->device);
        gpusys_cuda_close(work->cuda);
    }
    free(work->host);
}

int main(void)
{
    struct gpusys_error error;
    struct work work = {0};
    if (gpusys_comm_open(&work.comm, NULL, &error))
        return failed(&error);
    int code = prepare(&work, &error);
    if (!code)
        code = reduce(&work, &error);
    if (code)
        failed(&error);
    clean_up(&work);
    return code ? 1 : 0;
}
