/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What it costs to begin. One measurement a process, for a library is loaded once:
 *
 *     nccl_start bare LIBNCCL    dlopen, and nothing else
 *     nccl_start table LIBNCCL   gpusys_nccl_table: the same, and every function found
 *     nccl_start ranks N         from the start of N processes until the last of them has a communicator, over what
 *                                GPUSYS_LIBCUDA and GPUSYS_LIBNCCL name, and a Unix socket
 *
 * Output: milliseconds.
 */
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double since_ms(int64_t start_ns)
{
    return (double)(gpusys_now_ns() - start_ns) / 1e6;
}

static double load_bare(const char *path)
{
    int64_t start_ns = gpusys_now_ns();
    if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
        die(NULL, dlerror());
    return since_ms(start_ns);
}

static double load_table(const char *path)
{
    const struct gpusys_nccl *nccl;
    struct gpusys_error error;
    setenv("GPUSYS_LIBNCCL", path, 1);
    int64_t start_ns = gpusys_now_ns();
    if (gpusys_nccl_table(&nccl, &error))
        die(&error, "no libnccl");
    return since_ms(start_ns);
}

/* One rank: says when it is up, and goes when all are. */
static _Noreturn void rank_main(uint32_t rank, uint32_t n_ranks, const char *address, int up, int go)
{
    struct gpusys_comm_options options = {.size = sizeof options,
                                          .n_ranks = n_ranks,
                                          .rank = rank,
                                          .address = address,
                                          .flags = GPUSYS_COMM_DEVICE};
    struct gpusys_comm *comm;
    struct gpusys_error error;
    char byte = 'u';
    if (gpusys_comm_open(&comm, &options, &error))
        die(&error, "a rank did not come up");
    if (write(up, &byte, 1) != 1 || read(go, &byte, 1) < 0)
        die(NULL, "the parent is gone");
    gpusys_comm_close(comm);
    _exit(0);
}

static double come_together(uint32_t n_ranks)
{
    char folder[] = "/tmp/gpusys-bench-XXXXXX", address[64], byte;
    int up[2], go[2], bad = 0, status;
    if (!mkdtemp(folder) || pipe(up) || pipe(go))
        die(NULL, "no folder or pipe");
    snprintf(address, sizeof address, "unix:%s/ranks", folder);
    int64_t start_ns = gpusys_now_ns();
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        if (fork() == 0) {
            close(up[0]);
            close(go[1]);
            rank_main(rank, n_ranks, address, up[1], go[0]);
        }
    close(up[1]);
    for (uint32_t i = 0; i < n_ranks && !bad; i++)
        bad = read(up[0], &byte, 1) != 1;
    double took_ms = since_ms(start_ns);
    close(go[0]);
    close(go[1]);
    while (wait(&status) > 0)
        bad |= status;
    rmdir(folder);
    if (bad)
        die(NULL, "not every rank came up and went");
    return took_ms;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "bare") == 0)
        printf("%.3f\n", load_bare(argv[2]));
    else if (argc == 3 && strcmp(argv[1], "table") == 0)
        printf("%.3f\n", load_table(argv[2]));
    else if (argc == 3 && strcmp(argv[1], "ranks") == 0)
        printf("%.3f\n", come_together((uint32_t)atoi(argv[2])));
    else
        return fprintf(stderr, "usage: %s bare|table LIBNCCL | ranks N\n", argv[0]), 2;
    return 0;
}
