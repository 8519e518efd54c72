/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Our side of the comparison with perftest: N reads or writes of SIZE bytes over one RDMA port, DEPTH of them under
 * way, between one registered buffer and an arena of the peer, as ib_read_bw and ib_write_bw do it.
 *
 *     bench_verbs ADDRESS DEVICE read|write SIZE DEPTH N     prints MB/s, of 10^6 bytes
 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct gpusys_remote *remote;
    struct gpusys_io io;
    unsigned depth;
};

static void submit(const struct bench *bench)
{
    struct gpusys_batch_options options = {.size = sizeof options};
    if (gpusys_remote_submit(bench->remote, &bench->io, 1, &options, NULL))
        die(NULL, "submit failed");
}

/* Each that ends makes room for the next. Seconds. */
static double move(const struct bench *bench, unsigned long count)
{
    struct gpusys_completion done[64];
    int64_t start = gpusys_now_ns();
    unsigned long begun = 0, ended = 0;
    for (; begun < count && begun < bench->depth; begun++)
        submit(bench);
    while (ended < count) {
        int n = gpusys_remote_wait(bench->remote, done, 64, NO_LIMIT);
        if (n < 0)
            die(NULL, "wait failed");
        for (int i = 0; i < n; i++) {
            if (done[i].status)
                die(NULL, "a transfer failed");
            ended++;
            if (begun < count) {
                submit(bench);
                begun++;
            }
        }
    }
    return (double)(gpusys_now_ns() - start) / 1e9;
}

int main(int argc, char **argv)
{
    enum { WARM = 8 };
    if (argc != 7)
        return 2;
    const char *devices[] = {argv[2]};
    uint64_t size = strtoull(argv[4], NULL, 10);
    unsigned long count = strtoul(argv[6], NULL, 10);
    struct gpusys_remote_options options = {.size = sizeof options,
                                            .require = GPUSYS_TRANSPORT_VERBS,
                                            .devices = devices,
                                            .n_devices = 1,
                                            .n_rails = 1};
    struct gpusys_error error = {0};
    struct bench bench = {.depth = (unsigned)strtoul(argv[5], NULL, 10)};
    if (gpusys_remote_open(&bench.remote, argv[1], &options, &error))
        die(&error, "no session");
    unsigned char *buffer = landing_new(size, NULL);
    if (gpusys_remote_register(bench.remote, buffer, size, &error))
        die(&error, "no registration");
    bench.io = (struct gpusys_io){.op = strcmp(argv[3], "write") == 0 ? GPUSYS_OP_WRITE : GPUSYS_OP_READ,
                                  .region = region_of_arena(bench.remote, size).region,
                                  .buffer = buffer,
                                  .length = size};
    move(&bench, WARM);
    printf("%.3f\n", (double)size * (double)count / move(&bench, count) / 1e6);
    gpusys_remote_unregister(bench.remote, buffer);
    gpusys_remote_close(bench.remote);
    return 0;
}
