/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One rank on what the machine has: every collective, the config as the library reads it, its memory, and abort while
 * work is queued. Usage: real_nccl
 */
#include "check.h"

#include <errno.h>
#include <unistd.h>

enum { COUNT = 1 << 16, BYTES = COUNT * 8 };

struct world {
    struct gpusys_cuda *cuda;
    struct gpusys_comm *comm;
    struct CUstream_st *stream;
    char *send, *receive;          /* of the device */
    unsigned char *host, *arrived; /* pinned */
};

/* ---- the config ----
 *
 * A value that the library must refuse is put into one field at a time: it says that the field is where we think it is.
 */
struct field {
    const char *name;
    size_t offset;
    int bad;
    int since;    /* version code */
    bool certain; /* every library since then refuses it */
};
#define FIELD(member, bad, since, certain)                                                                   \
    {                                                                                                        \
#member, offsetof(struct gpusys_nccl_config, member), bad, since, certain                            \
    }
static const struct field fields[] = {
    FIELD(blocking, 7, 21400, true),
    FIELD(cga_cluster_size, -5, 21700, true),
    FIELD(split_share, 7, 21800, true),
    FIELD(collnet_enable, 7, 22700, false),
    FIELD(shrink_share, 7, 22700, false),
    FIELD(nvls_ctas, -5, 22700, false),
    FIELD(cta_policy, 99, 22700, false),
    FIELD(n_channels_per_net_peer, -5, 22800, false),
    FIELD(nvlink_centric_sched, 7, 22800, false),
    FIELD(graph_usage_mode, 99, 22900, false),
    FIELD(num_rma_ctx, -5, 22900, false),
};

static int init_with(const struct gpusys_nccl *nccl, struct gpusys_nccl_config *config,
                     struct ncclComm **ret_comm)
{
    struct gpusys_nccl_id id;
    *ret_comm = NULL;
    int result = nccl->get_unique_id(&id);
    if (!result)
        result = nccl->comm_init_rank_config(ret_comm, 1, id, 0, config);
    for (int i = 0; result == GPUSYS_NCCL_IN_PROGRESS && i < 60000; i++) {
        usleep(1000);
        if (nccl->comm_get_async_error(*ret_comm, &result))
            break;
    }
    if (result && result != GPUSYS_NCCL_INVALID_USAGE)
        nccl->group_end(); /* a failed init can leave the thread inside a group */
    return result;
}

static void one_field(const struct gpusys_nccl *nccl, int version, const struct field *field)
{
    struct gpusys_nccl_config config;
    struct ncclComm *comm;
    gpusys_nccl_config_init(&config);
    memcpy((char *)&config + field->offset, &field->bad, sizeof field->bad);
    int result = init_with(nccl, &config, &comm);
    bool refused = result == GPUSYS_NCCL_INVALID_ARGUMENT;
    if (comm)
        nccl->comm_abort(comm);
    if (version < field->since)
        check(!refused, "config: %s is not read, it is younger", field->name);
    else if (field->certain)
        check(refused, "config: %s = %d is refused (%s)", field->name, field->bad,
              gpusys_nccl_result_name(result));
    else
        remark("config: %s = %d: %s", field->name, field->bad, gpusys_nccl_result_name(result));
}

static void config_is_read(struct gpusys_cuda *cuda)
{
    const struct gpusys_nccl *nccl;
    struct gpusys_error error = {0};
    struct gpusys_nccl_config config;
    struct ncclComm *comm;
    int version = 0;
    if (!check_call(gpusys_nccl_table(&nccl, &error), &error, "libnccl"))
        return;
    gpusys_nccl_version(&version, &error);
    remark("%s, version code %d", gpusys_nccl_library(), version);
    if (!nccl->comm_init_rank_config || !check_call(gpusys_cuda_push(cuda, &error), &error, "the context"))
        return;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        one_field(nccl, version, &fields[i]);
    gpusys_nccl_config_init(&config);
    config.min_ctas = 8, config.max_ctas = 4;
    int result = init_with(nccl, &config, &comm);
    check(version < 21700 || result == GPUSYS_NCCL_INVALID_ARGUMENT,
          "config: min_ctas above max_ctas is refused (%s)", gpusys_nccl_result_name(result));
    gpusys_nccl_config_init(&config);
    config.blocking = 0, config.min_ctas = 1, config.max_ctas = 4, config.comm_name = "gpusys";
    result = init_with(nccl, &config, &comm);
    if (check(result == 0, "config: a good one is taken (%s)", gpusys_nccl_result_name(result)))
        nccl->comm_destroy(comm);
    gpusys_cuda_pop(cuda);
}

/* ---- operations ---- */

static bool put(struct world *w)
{
    struct gpusys_error error = {0};
    memset(w->arrived, 0, BYTES);
    return gpusys_cuda_copy(w->cuda, w->send, w->host, BYTES, &error) == 0 &&
           gpusys_cuda_copy(w->cuda, w->receive, w->arrived, BYTES, &error) == 0;
}

/* With one rank, what comes out of any of them is what went in. */
static void came(struct world *w, int code, int type, const char *what)
{
    struct gpusys_error error = {0};
    size_t bytes = (size_t)COUNT * gpusys_nccl_type_bytes(type);
    if (code)
        gpusys_comm_failure(w->comm, &error);
    else
        code = gpusys_comm_wait(w->comm, w->stream, 30 * SECOND, &error);
    if (!code)
        code = gpusys_cuda_copy(w->cuda, w->arrived, w->receive, bytes, &error);
    check(code == 0 && memcmp(w->host, w->arrived, bytes) == 0, "%s of %s%s%s", what,
          gpusys_nccl_type_name(type), code ? ": " : "", code ? error.message : "");
}

/* Small whole numbers in every type, so that sums and averages of one rank are exact. */
static void numbers(struct world *w, int type)
{
    uint32_t bytes = gpusys_nccl_type_bytes(type);
    memset(w->host, 0, BYTES);
    for (size_t i = 0; i < COUNT; i++) {
        float f = (float)(i % 100);
        double d = f;
        if (type == GPUSYS_NCCL_FLOAT32)
            memcpy(w->host + i * bytes, &f, bytes);
        else if (type == GPUSYS_NCCL_FLOAT64)
            memcpy(w->host + i * bytes, &d, bytes);
        else if (type >= GPUSYS_NCCL_FLOAT16)
            w->host[i * bytes + bytes - 1] =
                0x30 + (unsigned char)(i % 8); /* exponents of small normal numbers */
        else
            w->host[i * bytes] = (unsigned char)(i % 100);
    }
}

static void reductions(struct world *w, int type, int version)
{
    char what[64];
    for (int op = 0; op < GPUSYS_NCCL_OPS; op++) {
        if (op == GPUSYS_NCCL_AVG && version < 21000)
            continue;
        snprintf(what, sizeof what, "all_reduce, %s", gpusys_nccl_op_name(op));
        put(w);
        came(w, gpusys_comm_all_reduce(w->comm, w->send, w->receive, COUNT, type, op, w->stream), type, what);
    }
    put(w);
    came(w, gpusys_comm_reduce(w->comm, w->send, w->receive, COUNT, type, GPUSYS_NCCL_SUM, 0, w->stream),
         type, "reduce");
    put(w);
    came(w, gpusys_comm_reduce_scatter(w->comm, w->send, w->receive, COUNT, type, GPUSYS_NCCL_SUM, w->stream),
         type, "reduce_scatter");
}

static void moves(struct world *w, int type)
{
    put(w);
    came(w, gpusys_comm_broadcast(w->comm, w->send, w->receive, COUNT, type, 0, w->stream), type,
         "broadcast");
    put(w);
    came(w, gpusys_comm_all_gather(w->comm, w->send, w->receive, COUNT, type, w->stream), type, "all_gather");
    put(w);
    came(w, gpusys_comm_all_to_all(w->comm, w->send, w->receive, COUNT, type, w->stream), type, "all_to_all");
    put(w);
    came(w, gpusys_comm_gather(w->comm, w->send, w->receive, COUNT, type, 0, w->stream), type, "gather");
    put(w);
    came(w, gpusys_comm_scatter(w->comm, w->send, w->receive, COUNT, type, 0, w->stream), type, "scatter");
    put(w);
    int code = gpusys_comm_group_start();
    if (!code) {
        code = gpusys_comm_send(w->comm, w->send, COUNT, type, 0, w->stream);
        int other = gpusys_comm_recv(w->comm, w->receive, COUNT, type, 0, w->stream);
        int end = gpusys_comm_group_end();
        code = code ? code : other ? other : end;
    }
    came(w, code, type, "send and recv to oneself");
}

static void made_operator(struct world *w)
{
    struct gpusys_error error = {0};
    float three = 3;
    int op = 0;
    numbers(w, GPUSYS_NCCL_FLOAT32);
    put(w);
    int code =
        gpusys_comm_op_open(w->comm, &three, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SCALAR_HOST, &op, &error);
    if (code == -ENOSYS) {
        remark("no made operators: %s", error.message);
        return;
    }
    if (!check_call(code, &error, "an operator that multiplies by 3"))
        return;
    code = gpusys_comm_all_reduce(w->comm, w->send, w->receive, COUNT, GPUSYS_NCCL_FLOAT32, op, w->stream);
    for (size_t i = 0; i < COUNT; i++) {
        float f = 3 * (float)(i % 100);
        memcpy(w->host + i * sizeof f, &f, sizeof f);
    }
    came(w, code, GPUSYS_NCCL_FLOAT32, "all_reduce by it");
    check_call(gpusys_comm_op_close(w->comm, op, &error), &error, "the operator goes");
}

static void buffers(struct world *w)
{
    struct gpusys_error error = {0};
    void *memory = NULL, *handle = NULL;
    int code = gpusys_comm_mem_alloc(w->comm, &memory, BYTES, &error);
    if (code == -ENOSYS) {
        remark("no memory of NCCL's own: %s", error.message);
        return;
    }
    if (!check_call(code, &error, "ncclMemAlloc"))
        return;
    code = gpusys_comm_register(w->comm, memory, BYTES, &handle, &error);
    if (check_call(code, &error, "ncclCommRegister")) {
        numbers(w, GPUSYS_NCCL_FLOAT32);
        put(w);
        code = gpusys_cuda_copy(w->cuda, memory, w->host, BYTES, &error);
        if (!code)
            code = gpusys_comm_all_reduce(w->comm, memory, w->receive, COUNT, GPUSYS_NCCL_FLOAT32,
                                          GPUSYS_NCCL_SUM, w->stream);
        came(w, code, GPUSYS_NCCL_FLOAT32, "all_reduce from registered memory");
        check_call(gpusys_comm_deregister(w->comm, handle, &error), &error, "ncclCommDeregister");
    }
    check_call(gpusys_comm_mem_free(w->comm, memory, &error), &error, "ncclMemFree");
}

/* ---- the end ---- */

/* Much is queued, a collective behind it; all must be over in bounded time. */
static void abort_under_way(struct world *w)
{
    struct gpusys_error error = {0};
    struct gpusys_comm_status status = {.size = sizeof status};
    int code = 0;
    for (int i = 0; i < 20000 && !code; i++)
        code = gpusys_cuda_copy_async(w->cuda, w->receive, w->send, BYTES, w->stream, &error);
    if (!code)
        code = gpusys_comm_all_reduce(w->comm, w->send, w->receive, COUNT, GPUSYS_NCCL_FLOAT32,
                                      GPUSYS_NCCL_SUM, w->stream);
    check(code == 0, "a collective is queued behind other work");
    gpusys_comm_abort(w->comm);
    code = gpusys_comm_all_reduce(w->comm, w->send, w->receive, COUNT, GPUSYS_NCCL_FLOAT32, GPUSYS_NCCL_SUM,
                                  w->stream);
    check(code == -ECANCELED, "after an abort operations are refused (%d)", code);
    gpusys_comm_status(w->comm, &status);
    check(status.state != GPUSYS_COMM_HEALTHY, "and the communicator says so");
    int64_t start_ns = gpusys_now_ns();
    gpusys_comm_close(w->comm);
    w->comm = NULL;
    int64_t took_ns = gpusys_now_ns() - start_ns;
    check(took_ns < 30 * SECOND, "closing it took %.1f ms", (double)took_ns / 1e6);
}

/* The second rank never comes: an error in the time that was given, and nothing left behind. */
static void alone(void)
{
    struct gpusys_error error = {0};
    struct gpusys_comm *comm;
    char address[64];
    snprintf(address, sizeof address, "unix:/tmp/gpusys-real-nccl-%d", (int)getpid());
    struct gpusys_comm_options options = {
        .size = sizeof options, .n_ranks = 2, .address = address, .init_timeout_ns = 2 * SECOND};
    int64_t start_ns = gpusys_now_ns();
    int code = gpusys_comm_open(&comm, &options, &error);
    double took_s = (double)(gpusys_now_ns() - start_ns) / 1e9;
    check(code == -ETIMEDOUT && took_s < 20, "a rank that does not come: %d after %.1f s: %s", code, took_s,
          error.message);
    check(strstr(error.message, "rank 1") != NULL, "and the message names it");
}

static bool world_open(struct world *w)
{
    struct gpusys_error error = {0};
    struct gpusys_comm_options options = {
        .size = sizeof options, .n_ranks = 1, .flags = GPUSYS_COMM_DEVICE, .address = "127.0.0.1:0"};
    void *host = NULL, *arrived = NULL, *send = NULL, *receive = NULL;
    bool good =
        check_call(gpusys_comm_open(&w->comm, &options, &error), &error, "a communicator of one rank") &&
        check_call(gpusys_cuda_stream_open(w->cuda, &w->stream, &error), &error, "a stream") &&
        check_call(gpusys_cuda_host_alloc(w->cuda, &host, BYTES, &error), &error, "pinned memory") &&
        check_call(gpusys_cuda_host_alloc(w->cuda, &arrived, BYTES, &error), &error, "pinned memory") &&
        check_call(gpusys_cuda_alloc(w->cuda, &send, BYTES, &error), &error, "device memory") &&
        check_call(gpusys_cuda_alloc(w->cuda, &receive, BYTES, &error), &error, "device memory");
    w->host = host, w->arrived = arrived, w->send = send, w->receive = receive;
    return good;
}

static void world_close(struct world *w)
{
    gpusys_comm_close(w->comm);
    gpusys_cuda_stream_close(w->cuda, w->stream);
    gpusys_cuda_free(w->cuda, w->send);
    gpusys_cuda_free(w->cuda, w->receive);
    gpusys_cuda_host_free(w->cuda, w->host);
    gpusys_cuda_host_free(w->cuda, w->arrived);
}

int main(void)
{
    struct gpusys_error error = {0};
    struct world w = {0};
    int version = 0;
    if (!check_call(gpusys_cuda_open(&w.cuda, 0, &error), &error, "device 0"))
        return check_end();
    config_is_read(w.cuda);
    gpusys_nccl_version(&version, &error);
    if (world_open(&w)) {
        for (int type = 0; type < GPUSYS_NCCL_TYPES; type++) {
            if (type >= GPUSYS_NCCL_FLOAT8E4M3 && version < 22400)
                continue;
            numbers(&w, type);
            reductions(&w, type, version);
            moves(&w, type);
        }
        made_operator(&w);
        buffers(&w);
        abort_under_way(&w);
    }
    world_close(&w);
    alone();
    gpusys_cuda_close(w.cuda);
    return check_end();
}
