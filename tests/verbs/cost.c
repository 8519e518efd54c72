/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What cost.py measures, over the stand-in libibverbs:
 *     cost read|write DEPTH COUNT   COUNT requests of 64 bytes through one queue pair, DEPTH posted at once and polled until all are done
 *     cost connect TIMES            a rail set of two rails and 64 regions, both ends in this process; prints microseconds
 */
#include <gpusys/deadline.h>
#include <gpusys/railset.h>
#include <gpusys/verbs.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MOST_DEPTH = 128, RAILS = 2, REGIONS = 64, REGION_BYTES = 4096 };

static const char *const devices[RAILS] = {"fake0", "fake1"};

static void check(int code, const struct gpusys_error *error, const char *what)
{
    if (code >= 0)
        return;
    fprintf(stderr, "%s: %d: %s\n", what, code, error ? error->message : "");
    exit(1);
}

/* ---- requests ---- */

struct end {
    struct gpusys_verbs *verbs;
    struct gpusys_pd *pd;
    struct gpusys_mr *mr;
    struct gpusys_qp *qp;
    struct gpusys_mr_info key;
    unsigned char bytes[REGION_BYTES];
};

static void end_open(struct end *end, uint32_t access)
{
    struct gpusys_error error;
    const struct gpusys_verbs_options options = {.size = sizeof options, .device = devices[0]};
    check(gpusys_verbs_open(&end->verbs, &options, &error), &error, "port");
    check(gpusys_pd_open(&end->pd, end->verbs, &error), &error, "domain");
    check(gpusys_mr_open(&end->mr, end->pd, end->bytes, sizeof end->bytes, access, &error), &error, "memory");
    end->key.size = sizeof end->key;
    gpusys_mr_info(end->mr, &end->key);
    check(gpusys_qp_open(&end->qp, end->pd, NULL, &error), &error, "queue pair");
}

static void end_connect(struct end *end, const struct end *peer)
{
    struct gpusys_error error;
    struct gpusys_qp_end its = {.size = sizeof its};
    gpusys_qp_end(peer->qp, &its);
    check(gpusys_qp_connect(end->qp, &its, &error), &error, "connecting");
}

static void end_close(struct end *end)
{
    gpusys_qp_close(end->qp);
    gpusys_mr_close(end->mr);
    gpusys_pd_close(end->pd);
    gpusys_verbs_close(end->verbs);
}

static void move(struct end *end, const struct end *peer, uint32_t kind, uint32_t depth, uint32_t count)
{
    struct gpusys_qp_op ops[MOST_DEPTH];
    struct gpusys_qp_completion completions[MOST_DEPTH];
    for (uint32_t i = 0; i < depth; i++)
        ops[i] = (struct gpusys_qp_op){.id = i,
                                       .local = end->key.address,
                                       .remote = peer->key.address,
                                       .length = 64,
                                       .lkey = end->key.lkey,
                                       .rkey = peer->key.rkey,
                                       .kind = kind};
    for (uint32_t done = 0; done < count; done += depth) {
        int taken = gpusys_qp_post(end->qp, ops, depth), got = 0;
        while (taken == (int)depth && got >= 0 && got < taken) {
            int more = gpusys_qp_poll(end->qp, completions + got, depth - (uint32_t)got);
            got = more < 0 ? more : got + more;
        }
        check(taken == (int)depth && got == taken && completions[depth - 1].status == 0 ? 0 : -1, NULL,
              "moving");
    }
}

static int post(uint32_t kind, uint32_t depth, uint32_t count)
{
    struct end *ends = calloc(2, sizeof *ends);
    if (!ends || depth < 1 || depth > MOST_DEPTH)
        return 2;
    end_open(&ends[0], GPUSYS_MR_LANDING);
    end_open(&ends[1], GPUSYS_MR_PEER_READ_WRITE);
    end_connect(&ends[0], &ends[1]);
    end_connect(&ends[1], &ends[0]);
    move(&ends[0], &ends[1], kind, depth, count);
    end_close(&ends[0]);
    end_close(&ends[1]);
    free(ends);
    return 0;
}

/* ---- connecting ---- */

struct server {
    struct gpusys_stream *stream;
    unsigned char *memory;
};

static void server_register(struct gpusys_railset *set, unsigned char *memory,
                            struct gpusys_mr *mrs[RAILS][REGIONS],
                            struct gpusys_region_key keys[RAILS][REGIONS])
{
    struct gpusys_error error;
    struct gpusys_mr_info info = {.size = sizeof info};
    for (uint32_t rail = 0; rail < RAILS; rail++)
        for (uint32_t i = 0; i < REGIONS; i++) {
            check(gpusys_mr_open(&mrs[rail][i], gpusys_railset_rail(set, rail)->pd, memory + i * REGION_BYTES,
                                 REGION_BYTES, GPUSYS_MR_PEER_READ, &error),
                  &error, "a region");
            gpusys_mr_info(mrs[rail][i], &info);
            keys[rail][i] = (struct gpusys_region_key){.base = info.address, .rkey = info.rkey};
        }
}

static void *serve(void *context)
{
    const struct server *server = context;
    struct gpusys_railset_options options = {.size = sizeof options, .devices = devices, .n_devices = RAILS};
    struct gpusys_railset *set = NULL;
    struct gpusys_error error;
    static struct gpusys_mr *mrs[RAILS][REGIONS];
    static struct gpusys_region_key keys[RAILS][REGIONS];
    const struct gpusys_region_key *tables[RAILS] = {keys[0], keys[1]};
    int64_t deadline_ns = gpusys_deadline_after(20000000000);
    check(gpusys_railset_accept(&set, server->stream, GPUSYS_DIALECT_READ_ONLY, &options, NULL, deadline_ns,
                                &error),
          &error, "accepting");
    server_register(set, server->memory, mrs, keys);
    check(gpusys_railset_serve_ro(set, tables, REGIONS, deadline_ns, &error), &error, "serving");
    char byte;
    gpusys_stream_read(server->stream, &byte, 1, deadline_ns, NULL);
    for (uint32_t i = 0; i < RAILS * REGIONS; i++)
        gpusys_mr_close(mrs[i / REGIONS][i % REGIONS]);
    gpusys_railset_close(set);
    return NULL;
}

static int64_t connect_once(struct server *server, struct gpusys_stream *stream)
{
    struct gpusys_railset_options options = {.size = sizeof options, .devices = devices, .n_devices = RAILS};
    struct gpusys_railset *set = NULL;
    struct gpusys_error error;
    int64_t deadline_ns = gpusys_deadline_after(20000000000);
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, server))
        exit(1);
    int64_t begin_ns = gpusys_now_ns();
    check(gpusys_railset_begin(&set, stream, GPUSYS_DIALECT_READ_ONLY, &options, deadline_ns, &error), &error,
          "beginning");
    check(gpusys_railset_read_server_ro(set, deadline_ns, &error), &error, "the server's table");
    check(gpusys_railset_complete(set, deadline_ns, &error), &error, "completing");
    int64_t took_ns = gpusys_now_ns() - begin_ns;
    gpusys_railset_close(set);
    gpusys_stream_close(stream);
    pthread_join(thread, NULL);
    return took_ns;
}

static int connect_times(uint32_t times)
{
    static unsigned char memory[REGIONS * REGION_BYTES];
    for (uint32_t i = 0; i < times; i++) {
        int fds[2];
        struct server server = {.memory = memory};
        struct gpusys_stream *stream = NULL;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
            return 1;
        check(gpusys_stream_open_fd(&server.stream, fds[0], "the client"), NULL, "stream");
        check(gpusys_stream_open_fd(&stream, fds[1], "the server"), NULL, "stream");
        printf("%lld\n", (long long)connect_once(&server, stream) / 1000);
        gpusys_stream_close(server.stream);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "read") == 0)
        return post(GPUSYS_QP_READ, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        return post(GPUSYS_QP_WRITE, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    if (argc == 3 && strcmp(argv[1], "connect") == 0)
        return connect_times((uint32_t)atoi(argv[2]));
    fprintf(stderr, "usage: cost read|write DEPTH COUNT | cost connect TIMES\n");
    return 2;
}
