/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Communicators come together over the stand-ins, or say why they do not. */
#include "comm_play.h"
#include "fake/nccl_control.h"

#include <dlfcn.h>

/* A file beside the stand-in libnccl that the environment names. */
static void use_library(const struct seat *seat, const char *name)
{
    char path[512];
    const char *now = getenv("GPUSYS_LIBNCCL");
    CHECK(seat, now && strrchr(now, '/'));
    snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(now, '/') - now), now, name);
    CHECK(seat, access(path, R_OK) == 0);
    setenv("GPUSYS_LIBNCCL", path, 1);
}

static void *fake_function(const struct seat *seat, const char *name)
{
    void *library = dlopen(gpusys_nccl_library(), RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;
    CHECK(seat, function);
    return function;
}

/* The open fails, with words. */
static void expect_failure(const struct seat *seat, const struct gpusys_comm_options *options, int code,
                           const char *text)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_comm *comm = NULL;
    char words[2048];
    CHECK_CODE(seat, gpusys_comm_open(&comm, options, &error), code, &error);
    CHECK(seat, comm == NULL && error.code == code);
    gpusys_error_format(&error, words, sizeof words);
    say(seat, "%s", words);
    if (!strstr(words, text))
        say(seat, "expected in it: %s", text);
    CHECK(seat, strstr(words, text));
}

/* ---- together ---- */

static void use(const struct seat *seat, const struct gpusys_comm_options *options)
{
    struct gpusys_comm *comm = play_open(seat, options);
    struct gpusys_comm_status status = {.size = sizeof status};
    struct bench bench = bench_open(seat);
    CHECK(seat, gpusys_comm_status(comm, &status) == 0);
    CHECK(seat, status.state == GPUSYS_COMM_HEALTHY && status.code == 0 && status.n_suspects == 0);
    CHECK(seat, status.rank == seat->rank && status.n_ranks == seat->n_ranks && status.device == 0);
    CHECK(seat, gpusys_comm_nccl(comm) != NULL && gpusys_comm_failure(comm, NULL) == 0);
    int32_t n = (int32_t)seat->n_ranks;
    play_sum(seat, &bench, comm, (int32_t)seat->rank + 1, n * (n + 1) / 2);
    CHECK(seat, gpusys_comm_status(comm, &status) == 0 && status.submitted == 1 && status.completed == 1);
    gpusys_comm_close(comm);
    bench_close(&bench);
    int (*live)(void) = (int (*)(void))fake_function(seat, "fake_nccl_live_comms");
    CHECK(seat, live() == 0);
}

static void run_plain(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    use(seat, &options);
}

static void one_rank(void **state)
{
    (void)state;
    play_all(1, run_plain);
}

static void two_ranks(void **state)
{
    (void)state;
    play_all(2, run_plain);
}

static void four_ranks(void **state)
{
    (void)state;
    play_all(4, run_plain);
}

static void eight_ranks(void **state)
{
    (void)state;
    play_all(8, run_plain);
}

static void run_again(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    for (int i = 0; i < 3; i++)
        use(seat, &options);
}

/* One address, one after the other. */
static void again_and_again(void **state)
{
    (void)state;
    play_all(3, run_again);
}

static void run_from_environment(const struct seat *seat)
{
    char number[16];
    setenv("GPUSYS_MASTER", seat->address, 1);
    snprintf(number, sizeof number, "%u", seat->rank);
    setenv("GPUSYS_RANK", number, 1);
    setenv("GPUSYS_LOCAL_RANK", number, 1);
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    setenv("GPUSYS_RANKS", "2", 1);
    setenv("GPUSYS_LOCAL_RANKS", "2", 1);
    struct gpusys_comm *comm = play_open(seat, NULL);
    struct gpusys_comm_status status = {.size = sizeof status};
    CHECK(seat, gpusys_comm_status(comm, &status) == 0);
    CHECK(seat, status.rank == seat->rank && status.n_ranks == 2);
    CHECK(seat, status.device == seat->rank); /* the local rank, for there are as many devices */
    gpusys_comm_close(comm);
}

static void from_the_environment(void **state)
{
    (void)state;
    play_all(2, run_from_environment);
}

static void run_own_id(const struct seat *seat)
{
    const struct gpusys_nccl_id id = play_id(seat);
    struct gpusys_comm_options options = play_options(seat);
    options.address = NULL;
    options.id = &id;
    use(seat, &options);
}

static void own_id_and_no_address(void **state)
{
    (void)state;
    play_all(2, run_own_id);
}

static void run_old(const struct seat *seat)
{
    use_library(seat, "libnccl_210.so");
    struct gpusys_comm_options options = play_options(seat);
    use(seat, &options);
}

static void library_without_a_config(void **state)
{
    (void)state;
    play_all(3, run_old);
}

static void run_config(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct gpusys_nccl_config config;
    gpusys_nccl_config_init(&config);
    config.min_ctas = 2;
    config.max_ctas = 8;
    config.traffic_class = 5;
    options.config = &config;
    struct gpusys_comm *comm = play_open(seat, &options);
    struct fake_nccl_config parsed;
    void (*parse)(const struct ncclComm *, struct fake_nccl_config *) = (void (*)(
        const struct ncclComm *, struct fake_nccl_config *))fake_function(seat, "fake_nccl_parsed_config");
    parse(gpusys_comm_nccl(comm), &parsed);
    CHECK(seat, config.blocking == 1); /* the caller's is his */
    struct gpusys_nccl_config got;
    memcpy(&got, &parsed, sizeof got < sizeof parsed ? sizeof got : sizeof parsed);
    CHECK(seat, got.blocking == 0 && got.min_ctas == 2 && got.max_ctas == 8 && got.traffic_class == 5);
    gpusys_comm_close(comm);
}

static void config_is_passed_on(void **state)
{
    (void)state;
    play_all(2, run_config);
}

/* ---- not together ---- */

static void run_duplicate(const struct seat *seat)
{
    const char *mine = seat->rank == 0 || seat->rank == 3 ? "abcdef" : NULL;
    if (mine)
        setenv("FAKE_CUDA_UUIDS", mine, 1);
    struct gpusys_comm_options options = play_options(seat);
    expect_failure(seat, &options, -EEXIST, "ranks 0 and 3 on ");
}

static void one_gpu_for_two(void **state)
{
    static struct play play;
    (void)state;
    play_begin(&play, 4);
    play_start_all(&play, run_duplicate);
    play_expect_all(&play);
    for (uint32_t rank = 0; rank < 4; rank++)
        play_expect_text(&play, rank, "both use GPU-");
    play_finish(&play);
}

static void run_versions(const struct seat *seat)
{
    if (seat->rank == 2)
        setenv("FAKE_NCCL_VERSION", "22703", 1);
    struct gpusys_comm_options options = play_options(seat);
    expect_failure(seat, &options, -EBADMSG, "2.27.3 on rank 2 (");
}

static void versions_that_differ(void **state)
{
    (void)state;
    play_all(3, run_versions);
}

static void run_missing(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    options.init_timeout_ns = 2 * SECOND;
    expect_failure(seat, &options, -ETIMEDOUT, "");
}

static void rank_that_does_not_come(void **state)
{
    static struct play play;
    (void)state;
    play_begin(&play, 4);
    play_start(&play, 0, run_missing);
    play_start(&play, 1, run_missing);
    play_start(&play, 3, run_missing);
    play_expect_all(&play);
    play_expect_text(&play, 0, "rank 2");
    play_finish(&play);
}

static void run_no_driver(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    expect_failure(seat, &options, -ENODEV, "");
    int64_t (*calls)(const char *) = (int64_t(*)(const char *))fake_function(seat, "fake_nccl_calls");
    CHECK(seat, calls("ncclGetUniqueId") == 0 && calls("ncclCommInitRankConfig") == 0);
}

static void no_device(void **state)
{
    (void)state;
    play_all(1, run_no_driver);
}

static void run_no_library(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    setenv(seat->rank ? "GPUSYS_LIBCUDA" : "GPUSYS_LIBNCCL", "/nonexistent/library.so", 1);
    expect_failure(seat, &options, -ENOENT, "/nonexistent/library.so");
}

static void no_libraries(void **state)
{
    (void)state;
    play_all(2, run_no_library);
}

/* Ranks 0 and 1 are one job, rank 2 of the play is rank 1 of another that goes to the same address. */
static void run_two_jobs(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    struct seat mine = *seat;
    mine.n_ranks = options.n_ranks = 2;
    memset(options.job, seat->rank == 2 ? 'B' : 'A', sizeof options.job);
    if (seat->rank == 2) {
        options.rank = 1;
        expect_failure(seat, &options, -EXDEV, "");
        return;
    }
    if (seat->rank == 1)
        play_await_file(seat, "turned-away");
    use(&mine, &options);
}

static void two_jobs_at_one_address(void **state)
{
    static struct play play;
    (void)state;
    play_begin(&play, 3);
    play_start_all(&play, run_two_jobs);
    play_expect(&play, 2, 0);
    play_make_file(&play, "turned-away");
    play_finish(&play);
}

static void run_leak(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    setenv("FAKE_NCCL_NO_CUDA", "1", 1);
    expect_failure(seat, &options, -EIO, "ncclCommInitRankConfig");
    int (*depth)(void) = (int (*)(void))fake_function(seat, "fake_nccl_group_depth");
    CHECK(seat, depth() == 0);
}

/* One rank's NCCL fails at once: that rank has its error, and the other does not wait for it. */
static void run_init_fails(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    setenv("FAKE_NCCL_FAIL", "1:ncclCommInitRankConfig=3", 1);
    expect_failure(seat, &options, -EPROTO, seat->rank == 1 ? "1 of 3 (" : "rank 1 (");
    int (*live)(void) = (int (*)(void))fake_function(seat, "fake_nccl_live_comms");
    CHECK(seat, live() == 0);
}

static void group_depth_that_leaks(void **state)
{
    (void)state;
    play_all(1, run_leak);
}

static void init_that_fails_on_one(void **state)
{
    (void)state;
    play_all(3, run_init_fails);
}

static void run_id_fails(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    setenv("FAKE_NCCL_FAIL", "0:ncclGetUniqueId=5", 1);
    setenv("FAKE_NCCL_RANK", seat->rank ? "1" : "0", 1);
    expect_failure(seat, &options, -EINVAL, seat->rank ? "rank 0 has no unique id" : "ncclGetUniqueId");
}

static void unique_id_that_fails(void **state)
{
    (void)state;
    play_all(2, run_id_fails);
}

static void run_stalled(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    options.init_timeout_ns = 2 * SECOND;
    setenv("FAKE_NCCL_STALL_INIT", "1", 1);
    int64_t start_ns = gpusys_now_ns();
    expect_failure(seat, &options, -ETIMEDOUT, "");
    CHECK(seat, gpusys_now_ns() - start_ns < 60 * SECOND);
}

static void run_stalled_old(const struct seat *seat)
{
    use_library(seat, "libnccl_210.so");
    run_stalled(seat);
    _exit(0); /* the helper that was left behind is still in NCCL */
}

/* A call that should return at once does not. */
static void run_id_hangs(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    options.init_timeout_ns = 2 * SECOND;
    setenv("FAKE_NCCL_HANG", "ncclGetUniqueId", 1);
    expect_failure(seat, &options, -ETIMEDOUT, seat->rank ? "rank 0" : "ncclGetUniqueId");
    _exit(0); /* the helper that was left behind is still in NCCL */
}

static void run_init_call_hangs(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    options.init_timeout_ns = 2 * SECOND;
    setenv("FAKE_NCCL_HANG", "ncclCommInitRankConfig", 1);
    expect_failure(seat, &options, -ETIMEDOUT, "");
    _exit(0);
}

static void calls_that_hang(void **state)
{
    (void)state;
    play_all(2, run_id_hangs);
    play_all(2, run_init_call_hangs);
}

static void init_that_hangs(void **state)
{
    (void)state;
    play_all(2, run_stalled);
}

static void blocking_init_that_hangs(void **state)
{
    (void)state;
    play_all(2, run_stalled_old);
}

/* ---- arguments; no rank comes so far as to meet others ---- */

static void run_arguments(const struct seat *seat)
{
    struct gpusys_comm_options options = play_options(seat);
    options.rank = 1;
    expect_failure(seat, &options, -EINVAL, "rank 1 of 1 ranks");
    options = play_options(seat);
    options.flags = 0x40000000;
    expect_failure(seat, &options, -EINVAL, "0x40000000");
    options = play_options(seat);
    options.n_ranks = 2;
    options.address = NULL;
    expect_failure(seat, &options, -EINVAL, "neither rank 0's address nor a unique id");
    struct gpusys_nccl_config config;
    gpusys_nccl_config_init(&config);
    config.max_ctas = 4;
    options = play_options(seat);
    options.config = &config;
    expect_failure(seat, &options, -EINVAL, "only max_ctas is set");
    config.magic = 1;
    expect_failure(seat, &options, -EINVAL, "magic 0x1");
    options = play_options(seat);
    options.size = 4;
    expect_failure(seat, &options, -EINVAL, "no size");
    options = play_options(seat);
    options.flags = GPUSYS_COMM_DEVICE;
    options.device = 7;
    expect_failure(seat, &options, -ENODEV, "7");
    expect_failure(seat, NULL, -ENOENT, "");
    gpusys_comm_close(NULL);
}

static void arguments(void **state)
{
    (void)state;
    play_all(1, run_arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(four_ranks),
        cmocka_unit_test(eight_ranks),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(from_the_environment),
        cmocka_unit_test(own_id_and_no_address),
        cmocka_unit_test(library_without_a_config),
        cmocka_unit_test(config_is_passed_on),
        cmocka_unit_test(one_gpu_for_two),
        cmocka_unit_test(versions_that_differ),
        cmocka_unit_test(rank_that_does_not_come),
        cmocka_unit_test(no_device),
        cmocka_unit_test(no_libraries),
        cmocka_unit_test(two_jobs_at_one_address),
        cmocka_unit_test(group_depth_that_leaks),
        cmocka_unit_test(init_that_fails_on_one),
        cmocka_unit_test(unique_id_that_fails),
        cmocka_unit_test(calls_that_hang),
        cmocka_unit_test(init_that_hangs),
        cmocka_unit_test(blocking_init_that_hangs),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
