/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl as older versions: their functions, types and configs. And in the streams of a driver. */
#include "nccl_play.h"

#include <limits.h>

enum { NEWEST = 23203 };

static char folder[PATH_MAX], cuda_file[PATH_MAX];

/* ---- versions ---- */

struct variant {
    const char *file;
    int version;
    size_t config_size;
    const char *has, *lacks;
};

static const struct variant variants[] = {
    {"libnccl_210.so", 21003, 24, "ncclSend", "ncclRedOpCreatePreMulSum"},
    {"libnccl_213.so", 21304, 24, "ncclGetLastError", "ncclCommInitRankConfig"},
    {"libnccl_214.so", 21403, 24, "ncclCommFinalize", "ncclCommSplit"},
    {"libnccl_218.so", 21803, 48, "ncclCommSplit", "ncclMemAlloc"},
    {"libnccl_219.so", 21903, 48, "ncclCommRegister", "ncclGroupSimulateEnd"},
    {"libnccl_227.so", 22703, 72, "ncclCommWindowRegister", "ncclAlltoAll"},
    {"libnccl_2283.so", 22803, 80, "ncclScatter", "ncclCommRevoke"},
    {"libnccl_230.so", 23007, 96, "ncclCommMemStats", NULL},
    {"libnccl.so.2", NEWEST, 120, "ncclCommMemStats", NULL},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static const struct variant *variant;

/* Every integer has its own value, but those where not all are allowed. */
static struct fake_nccl_config full_config(void)
{
    struct fake_nccl_config config = {.size = sizeof config,
                                      .magic = 0xcafebeef,
                                      .version = NEWEST,
                                      .blocking = 1,
                                      .cga_cluster_size = 2,
                                      .min_ctas = 3,
                                      .max_ctas = 4,
                                      .net_name = "net",
                                      .split_share = 1,
                                      .traffic_class = 5,
                                      .comm_name = "name",
                                      .collnet_enable = 1,
                                      .cta_policy = 2,
                                      .shrink_share = 1,
                                      .nvls_ctas = 6,
                                      .n_channels_per_net_peer = 7,
                                      .nvlink_centric_sched = 1,
                                      .graph_usage_mode = 2,
                                      .num_rma_ctx = 8,
                                      .max_p2p_peers = 9,
                                      .graph_stream_ordering = 1,
                                      .launch_order_implicit = 1,
                                      .num_rma_sig = 10,
                                      .rma_eager_init = 1,
                                      .host_cft_mode = 2,
                                      .nvls_host_mode = 1};
    return config;
}

static int init_with(struct ncclComm **ret_comm, struct fake_nccl_config *config)
{
    struct fake_nccl_id id;
    REQUIRE(NCCL(ncclGetUniqueId)(&id) == 0);
    return NCCL(ncclCommInitRankConfig)(ret_comm, 1, id, 0, config);
}

/* What the library made of it. */
static struct fake_nccl_config read_back(struct fake_nccl_config config)
{
    struct ncclComm *comm = NULL;
    struct fake_nccl_config parsed;
    REQUIRE(init_with(&comm, &config) == 0);
    NCCL(fake_nccl_parsed_config)(comm, &parsed);
    REQUIRE(NCCL(ncclCommDestroy)(comm) == 0);
    return parsed;
}

static int refusal(struct fake_nccl_config config)
{
    struct ncclComm *comm = NULL;
    int result = init_with(&comm, &config);
    REQUIRE(comm == NULL);
    return result;
}

static bool knows(int since)
{
    return variant->version >= since;
}

/* The whole struct of the newest: the front of it arrives, and no more. */
static void front_arrives(void)
{
    struct fake_nccl_config sent = full_config(), got = read_back(sent);
    REQUIRE(got.size == variant->config_size && got.blocking == 1);
    REQUIRE(got.cga_cluster_size == (knows(21700) ? 2 : INT_MIN));
    REQUIRE(got.min_ctas == (knows(21700) ? 3 : INT_MIN) && got.max_ctas == (knows(21700) ? 4 : INT_MIN));
    REQUIRE(got.net_name == (knows(21700) ? sent.net_name : NULL));
    REQUIRE(got.split_share == (knows(21800) ? 1 : INT_MIN));
    REQUIRE(got.traffic_class == (knows(22600) ? 5 : INT_MIN));
    REQUIRE(got.comm_name == (knows(22700) ? sent.comm_name : NULL));
    REQUIRE(got.nvls_ctas == (knows(22700) ? 6 : INT_MIN) && got.cta_policy == (knows(22700) ? 2 : INT_MIN));
    REQUIRE(got.n_channels_per_net_peer == (knows(22800) ? 7 : INT_MIN));
    REQUIRE(got.num_rma_ctx == (knows(22900) ? 8 : INT_MIN));
    REQUIRE(got.max_p2p_peers == (knows(23003) ? 9 : INT_MIN));
    REQUIRE(got.graph_stream_ordering == (knows(23005) ? 1 : INT_MIN));
    REQUIRE(got.num_rma_sig == (knows(23100) ? 10 : INT_MIN));
    REQUIRE(got.nvls_host_mode == (knows(23200) ? 1 : INT_MIN));
}

/* A caller with an older header: what that does not have is not read, be it in padding. */
static void old_callers(void)
{
    struct fake_nccl_config config = full_config(), got;
    config.size = 24;
    config.version = 21403;
    got = read_back(config);
    REQUIRE(got.blocking == 1 && got.min_ctas == INT_MIN && got.split_share == INT_MIN && !got.net_name);
    config = full_config();
    config.size = 48;
    config.version = 21805;
    got = read_back(config);
    REQUIRE(got.split_share == (knows(21800) ? 1 : INT_MIN) && got.traffic_class == INT_MIN);
    config = full_config();
    config.version = 23004;
    got = read_back(config);
    REQUIRE(got.max_p2p_peers == (knows(23003) ? 9 : INT_MIN) && got.graph_stream_ordering == INT_MIN);
    REQUIRE(got.nvls_host_mode == INT_MIN);
}

static void refusals(void)
{
    struct fake_nccl_config config = full_config();
    config.magic++;
    REQUIRE(refusal(config) == 4);
    config = full_config();
    config.blocking = 2;
    REQUIRE(refusal(config) == 4);
    config = full_config();
    config.blocking = INT_MIN;
    if (knows(21700))
        REQUIRE(read_back(config).blocking == 1);
    else
        REQUIRE(refusal(config) == 4);
    config = full_config();
    config.max_ctas = INT_MIN;
    if (knows(21700))
        REQUIRE(refusal(config) == 4);
    config.min_ctas = INT_MIN;
    REQUIRE(read_back(config).blocking == 1);
}

static void check_variant(void)
{
    char file[PATH_MAX + 32];
    snprintf(file, sizeof file, "%s/%s", folder, variant->file);
    nccl_library = dlopen(file, RTLD_NOW);
    if (!nccl_library)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(nccl_library);
    int version = 0;
    REQUIRE(NCCL(ncclGetVersion)(&version) == 0 && version == variant->version);
    REQUIRE(dlsym(nccl_library, variant->has) && (!variant->lacks || !dlsym(nccl_library, variant->lacks)));
    if (!dlsym(nccl_library, "ncclCommInitRankConfig"))
        _exit(0);
    front_arrives();
    old_callers();
    refusals();
    /* The number of the 8-bit floats was no type before 2.24. */
    struct ncclComm *comm = NULL;
    unsigned char byte = 0;
    REQUIRE(init_with(&comm, NULL) == 0);
    REQUIRE(NCCL(ncclAllReduce)(&byte, &byte, 1, E4M3, SUM, comm, NULL) == (knows(22400) ? 0 : 4));
    over(comm);
}

static void older_versions(void **state)
{
    (void)state;
    for (variant = variants; variant < variants + N_VARIANTS; variant++)
        run_ranks(1, NULL, check_variant, 0);
}

static void told_version(void)
{
    int version = 0;
    REQUIRE(NCCL(ncclGetVersion)(&version) == 0 && version == 22809);
    struct fake_nccl_config got = read_back(full_config());
    REQUIRE(got.size == 80 && got.num_rma_ctx == INT_MIN);
    REQUIRE(strcmp(NCCL(ncclGetErrorString)(8), "unknown result code") == 0);
}

static void a_version_from_outside(void **state)
{
    (void)state;
    run_ranks(1, "FAKE_NCCL_VERSION=22809", told_version, 0);
}

/* ---- in the streams of a driver ---- */

struct CUctx_st;

/* The functions of the driver that a program needs here. */
static struct {
    int (*init)(unsigned flags);
    int (*retain)(struct CUctx_st **context, int device);
    int (*set_current)(struct CUctx_st *context);
    int (*create)(struct CUstream_st **stream, unsigned flags);
    int (*query)(struct CUstream_st *stream);
    int (*synchronize)(struct CUstream_st *stream);
    int (*destroy)(struct CUstream_st *stream);
} cuda;

static struct CUstream_st *new_stream(void)
{
    struct CUctx_st *context = NULL;
    struct CUstream_st *stream = NULL;
    void *library = dlopen(cuda_file, RTLD_NOW);
    REQUIRE(library);
    *(void **)&cuda.init = dlsym(library, "cuInit");
    *(void **)&cuda.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&cuda.set_current = dlsym(library, "cuCtxSetCurrent");
    *(void **)&cuda.create = dlsym(library, "cuStreamCreate");
    *(void **)&cuda.query = dlsym(library, "cuStreamQuery");
    *(void **)&cuda.synchronize = dlsym(library, "cuStreamSynchronize");
    *(void **)&cuda.destroy = dlsym(library, "cuStreamDestroy_v2");
    REQUIRE(cuda.init(0) == 0 && cuda.retain(&context, 0) == 0 && cuda.set_current(context) == 0);
    REQUIRE(cuda.create(&stream, 1) == 0);
    return stream;
}

static void in_streams(void)
{
    enum { NOT_READY = 600 };
    struct CUstream_st *stream = new_stream();
    struct ncclComm *comm = comm_of_all();
    float *values = NULL;
    REQUIRE(NCCL(ncclMemAlloc)((void **)&values, 2 * sizeof *values) == 0);
    values[0] = (float)me + 1;
    if (me == 1)
        await(0);
    REQUIRE(NCCL(ncclAllReduce)(values, values, 1, F32, SUM, comm, stream) == 0);
    REQUIRE(NCCL(ncclBroadcast)(values, values + 1, 1, F32, 0, comm, stream) == 0);
    if (me == 0)
        REQUIRE(cuda.query(stream) == NOT_READY);
    common->flags[0] = 1;
    REQUIRE(cuda.synchronize(stream) == 0);
    REQUIRE(values[0] == 3 && values[1] == 3);
    /* Nobody comes to this one; the abort ends what is in the stream, too. */
    if (me == 0) {
        REQUIRE(NCCL(ncclAllReduce)(values, values, 1, F32, SUM, comm, stream) == 0);
        REQUIRE(NCCL(ncclAllReduce)(values, values, 1, F32, SUM, comm, stream) == 0);
        REQUIRE(cuda.query(stream) == NOT_READY);
    }
    REQUIRE(NCCL(ncclCommAbort)(comm) == 0);
    REQUIRE(cuda.synchronize(stream) == 0);
    REQUIRE(values[0] == 3 && NCCL(fake_nccl_live_comms)() == 0);
    REQUIRE(NCCL(ncclMemFree)(values) == 0);
    REQUIRE(cuda.destroy(stream) == 0);
}

static void streams(void **state)
{
    (void)state;
    run_ranks(2, NULL, in_streams, 0);
}

static void no_device(void)
{
    struct ncclComm *comm = NULL;
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    setenv("GPUSYS_LIBCUDA", cuda_file, 1);
    REQUIRE(NCCL(ncclCommInitRank)(&comm, 1, common->id, 0) == 1);
    REQUIRE(strstr(NCCL(ncclGetLastError)(NULL), "Cuda failure") != NULL);
}

static void without_a_device(void **state)
{
    (void)state;
    run_ranks(1, NULL, no_device, 0);
}

static int load(void **state)
{
    const char *file = getenv("GPUSYS_LIBNCCL"), *cuda_name = getenv("GPUSYS_LIBCUDA");
    if (!file || !cuda_name || !strrchr(file, '/'))
        return -1;
    snprintf(cuda_file, sizeof cuda_file, "%s", cuda_name);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(file, '/') - file), file);
    return load_nccl(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_versions),
        cmocka_unit_test(a_version_from_outside),
        cmocka_unit_test(streams),
        cmocka_unit_test(without_a_device),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
