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

enum { COUNT = 1 << 20 };
#define SECOND 1000000000ll

static int failed(const struct gpusys_error *error)
{
    char text[2048];
    gpusys_error_format(error, text, sizeof text);
    fprintf(stderr, "all_reduce: %s\n", text);
    return 1;
}

/* Rank r gives r + 1 everywhere: the sum is n (n + 1) / 2. */
static int reduce(struct gpusys_comm *comm, struct gpusys_cuda *cuda, const struct gpusys_comm_status *me,
                  struct gpusys_error *error)
{
    float *host = malloc(COUNT * sizeof *host);
    void *device = NULL;
    struct CUstream_st *stream = NULL;
    int code = host ? 0 : gpusys_error_set_errno(error, -ENOMEM, "a vector");
    for (size_t i = 0; host && i < COUNT; i++)
        host[i] = (float)me->rank + 1;
    if (!code)
        code = gpusys_cuda_alloc(cuda, &device, COUNT * sizeof *host, error);
    if (!code)
        code = gpusys_cuda_stream_open(cuda, &stream, error);
    if (!code)
        code = gpusys_cuda_copy(cuda, device, host, COUNT * sizeof *host, error);
    if (!code &&
        gpusys_comm_all_reduce(comm, device, device, COUNT, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SUM, stream))
        code = gpusys_comm_failure(comm, error);
    if (!code)
        code = gpusys_comm_wait(comm, stream, 30 * SECOND, error);
    if (!code)
        code = gpusys_cuda_copy(cuda, host, device, COUNT * sizeof *host, error);
    float wanted = (float)me->n_ranks * ((float)me->n_ranks + 1) / 2;
    for (size_t i = 0; !code && i < COUNT; i++)
        if (host[i] != wanted)
            code = gpusys_error_set(error, -EIO, "element %zu is %g, not %g", i, (double)host[i],
                                    (double)wanted);
    gpusys_cuda_stream_close(cuda, stream);
    gpusys_cuda_free(cuda, device);
    free(host);
    if (!code && me->rank == 0)
        printf("%u ranks: the sum of %d floats is right (%g)\n", me->n_ranks, (int)COUNT, (double)wanted);
    return code;
}

int main(void)
{
    struct gpusys_error error;
    struct gpusys_comm *comm;
    struct gpusys_cuda *cuda;
    struct gpusys_comm_status me = {.size = sizeof me};
    if (gpusys_comm_open(&comm, NULL, &error))
        return failed(&error);
    gpusys_comm_status(comm, &me);
    int code = gpusys_cuda_open(&cuda, me.device, &error);
    if (!code) {
        code = reduce(comm, cuda, &me, &error);
        gpusys_cuda_close(cuda);
    }
    gpusys_comm_close(comm);
    return code ? failed(&error) : 0;
}
