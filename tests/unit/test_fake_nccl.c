/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl behaves as the real one does, well and badly: coming up and going down, groups, hanging, aborting,
 * and everything that it can be told to do. */
#include "nccl_play.h"

#include <fcntl.h>
#include <limits.h>
#include <time.h>

static int32_t values[4096], results[4096];

static int all_reduce(struct ncclComm *comm)
{
    return NCCL(ncclAllReduce)(values, results, 1, I32, SUM, comm, NULL);
}

static int state_of(struct ncclComm *comm)
{
    int state = -1;
    REQUIRE(NCCL(ncclCommGetAsyncError)(comm, &state) == 0);
    return state;
}

static bool last_error_has(const char *text)
{
    return strstr(NCCL(ncclGetLastError)(NULL), text) != NULL;
}

/* The sum of the world's ranks by a communicator. */
static void check_works(struct ncclComm *comm, int sum)
{
    int32_t value = me, result = -1;
    REQUIRE(NCCL(ncclAllReduce)(&value, &result, 1, I32, SUM, comm, NULL) == 0);
    REQUIRE(result == sum);
}

static void check_place(struct ncclComm *comm, int rank, int count)
{
    int is_rank = -1, is_count = -1;
    REQUIRE(NCCL(ncclCommUserRank)(comm, &is_rank) == 0 && is_rank == rank);
    REQUIRE(NCCL(ncclCommCount)(comm, &is_count) == 0 && is_count == count);
}

static struct fake_nccl_config config_of(int blocking)
{
    struct fake_nccl_config config;
    memset(&config, 0, sizeof config);
    for (size_t i = 16; i + 4 <= sizeof config; i += 4)
        memcpy((char *)&config + i, &(int){INT_MIN}, 4);
    config.net_name = config.comm_name = NULL;
    config.size = sizeof config;
    config.magic = 0xcafebeef;
    config.version = 23203;
    config.blocking = blocking;
    return config;
}

/* ---- coming up ---- */

static void nonblocking(void)
{
    struct fake_nccl_config config = config_of(0);
    struct ncclComm *comm = NULL;
    if (me == 1)
        await(0);
    REQUIRE(NCCL(ncclCommInitRankConfig)(&comm, 2, common->id, me, &config) == 7);
    if (me == 0) {
        /* The other one is not there yet. */
        int count;
        REQUIRE(state_of(comm) == 7);
        REQUIRE(all_reduce(comm) == 4);
        REQUIRE(last_error_has("before the previous operation returned ncclSuccess"));
        REQUIRE(NCCL(ncclCommCount)(comm, &count) == 4);
        REQUIRE(NCCL(ncclCommDestroy)(comm) == 4);
        common->flags[0] = 1;
    }
    while (state_of(comm) == 7)
        nap();
    REQUIRE(state_of(comm) == 0);
    check_place(comm, me, 2);
    check_works(comm, 1);
    REQUIRE(NCCL(ncclCommFinalize)(comm) == 7);
    while (state_of(comm) == 7)
        nap();
    REQUIRE(all_reduce(comm) == 5);
    over(comm);
}

static void nonblocking_init(void **state)
{
    (void)state;
    run_ranks(2, NULL, nonblocking, 0);
}

static void abort_alone(void)
{
    struct fake_nccl_config config = config_of(0);
    struct ncclComm *comm = NULL;
    REQUIRE(NCCL(ncclCommInitRankConfig)(&comm, 2, common->id, 0, &config) == 7);
    REQUIRE(NCCL(ncclCommAbort)(comm) == 0);
    REQUIRE(NCCL(fake_nccl_live_comms)() == 0);
}

static void aborted_init_leaves_nothing(void **state)
{
    (void)state;
    run_ranks(1, NULL, abort_alone, 0);
    run_ranks(2, "FAKE_NCCL_STALL_INIT=0", abort_alone, 0);
    assert_false(has_name(&last_id));
}

static void die_in_init(void)
{
    struct fake_nccl_config config = config_of(0);
    struct ncclComm *comm = NULL;
    REQUIRE(NCCL(ncclCommInitRankConfig)(&comm, 2, common->id, 0, &config) == 7);
    while (!has_name(&common->id))
        nap();
    raise(SIGKILL);
}

static void killed_ranks_are_swept_up(void **state)
{
    (void)state;
    struct fake_nccl_id next;
    run_ranks(1, NULL, die_in_init, 1);
    assert_int_equal(NCCL(ncclGetUniqueId)(&next), 0);
    assert_false(has_name(&last_id));
}

static void init_arguments(void)
{
    struct ncclComm *comm = NULL;
    struct fake_nccl_id garbage = {{0}};
    REQUIRE(NCCL(ncclCommInitRank)(&comm, 0, common->id, 0) == 4);
    REQUIRE(NCCL(ncclCommInitRank)(&comm, 2, common->id, 2) == 4);
    REQUIRE(NCCL(ncclCommInitRank)(&comm, 2, common->id, -1) == 4);
    REQUIRE(NCCL(ncclCommInitRank)(NULL, 1, common->id, 0) == 4);
    REQUIRE(NCCL(ncclCommInitRank)(&comm, 1, garbage, 0) == 4);
    REQUIRE(comm == NULL && NCCL(fake_nccl_live_comms)() == 0);
    REQUIRE(NCCL(ncclCommDestroy)(NULL) == 0 && NCCL(ncclCommAbort)(NULL) == 0);
    REQUIRE(all_reduce(NULL) == 4);
    comm = comm_of_all();
    REQUIRE(NCCL(ncclAllReduce)(values, results, 1, TYPES, SUM, comm, NULL) == 4);
    REQUIRE(NCCL(ncclAllReduce)(values, results, 1, I32, OPS, comm, NULL) == 4);
    REQUIRE(NCCL(ncclAllReduce)(NULL, results, 1, I32, SUM, comm, NULL) == 4);
    REQUIRE(NCCL(ncclAllReduce)(values, results, SIZE_MAX, I32, SUM, comm, NULL) == 4);
    REQUIRE(NCCL(ncclBroadcast)(values, results, 1, I32, 1, comm, NULL) == 4);
    REQUIRE(NCCL(ncclSend)(values, 1, I32, -1, comm, NULL) == 4);
    over(comm);
}

static void same_rank_twice(void)
{
    struct fake_nccl_config config = config_of(0);
    struct ncclComm *first = NULL, *second = NULL;
    REQUIRE(NCCL(ncclCommInitRankConfig)(&first, 2, common->id, 0, &config) == 7);
    REQUIRE(NCCL(ncclCommInitRankConfig)(&second, 2, common->id, 0, &config) == 7);
    /* Either one's thread may be the first to come. */
    while (state_of(second) == 7 && state_of(first) == 7)
        nap();
    REQUIRE((state_of(second) == 5) != (state_of(first) == 5));
    REQUIRE(last_error_has("Rank 0 is there already"));
    REQUIRE(NCCL(ncclCommInitRank)(&(struct ncclComm *){NULL}, 3, common->id, 1) == 5);
    REQUIRE(NCCL(ncclCommAbort)(first) == 0 && NCCL(ncclCommAbort)(second) == 0);
}

static void init_refuses(void **state)
{
    (void)state;
    run_ranks(1, NULL, init_arguments, 0);
    run_ranks(1, NULL, same_rank_twice, 0);
    assert_false(has_name(&last_id));
}

static void bring_up(void)
{
    struct ncclComm *comm = comm_of_all();
    check_works(comm, n_ranks * (n_ranks - 1) / 2);
    over(comm);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void many_ranks(void **state)
{
    (void)state;
    double start = seconds();
    run_ranks(64, NULL, bring_up, 0);
    double took = seconds() - start;
    print_message("64 ranks, from fork to end: %.0f ms\n", took * 1000);
    assert_true(took < 20);
    assert_false(has_name(&last_id));
}

/* ---- groups ---- */

static void groups(void)
{
    struct ncclComm *comm = comm_of_all();
    values[0] = 1;
    REQUIRE(NCCL(ncclGroupEnd)() == 5);
    REQUIRE(last_error_has("ncclGroupEnd: not in a group call."));
    REQUIRE(NCCL(ncclGroupStart)() == 0 && NCCL(ncclGroupStart)() == 0);
    REQUIRE(all_reduce(comm) == 0);
    REQUIRE(NCCL(ncclGroupEnd)() == 0);
    REQUIRE(results[0] == 0 && NCCL(fake_nccl_group_depth)() == 1);
    REQUIRE(NCCL(ncclGroupEnd)() == 0);
    REQUIRE(results[0] == 1 && NCCL(fake_nccl_group_depth)() == 0);
    /* One that is refused spoils the group. */
    results[0] = 0;
    REQUIRE(NCCL(ncclGroupStart)() == 0);
    REQUIRE(all_reduce(comm) == 0);
    REQUIRE(NCCL(ncclSend)(values, 1, I32, 7, comm, NULL) == 4);
    REQUIRE(NCCL(ncclGroupEnd)() == 4);
    REQUIRE(results[0] == 0);
    struct fake_nccl_sim_info info = {sizeof info, 0x74685283, 23203, -1};
    REQUIRE(NCCL(ncclGroupStart)() == 0);
    REQUIRE(all_reduce(comm) == 0);
    REQUIRE(NCCL(ncclGroupSimulateEnd)(&info) == 0);
    REQUIRE(info.estimated_time > 0 && results[0] == 0);
    REQUIRE(all_reduce(comm) == 0 && results[0] == 1);
    over(comm);
}

static void init_in_a_group(void)
{
    struct ncclComm *comms[3];
    REQUIRE(NCCL(ncclGroupStart)() == 0);
    for (int rank = 0; rank < 3; rank++)
        REQUIRE(NCCL(ncclCommInitRank)(&comms[rank], 3, common->id, rank) == 0);
    REQUIRE(NCCL(ncclGroupEnd)() == 0);
    for (int rank = 0; rank < 3; rank++) {
        check_place(comms[rank], rank, 3);
        REQUIRE(NCCL(ncclCommDestroy)(comms[rank]) == 0);
    }
}

static void leaked(void)
{
    struct ncclComm *comm = NULL;
    struct fake_nccl_config config = config_of(1);
    REQUIRE(NCCL(ncclCommInitRank)(&comm, 1, common->id, 0) == 1);
    REQUIRE(NCCL(fake_nccl_group_depth)() == 0);
    REQUIRE(NCCL(ncclCommInitRankConfig)(&comm, 1, common->id, 0, &config) == 1);
    REQUIRE(last_error_has("CUDA driver version is insufficient"));
    REQUIRE(NCCL(fake_nccl_group_depth)() == 1 && comm == NULL);
    REQUIRE(NCCL(ncclGroupEnd)() == 0);
    REQUIRE(NCCL(ncclGroupEnd)() == 5);
    void *memory;
    REQUIRE(NCCL(ncclMemAlloc)(&memory, 1) == 1);
}

static void leaked_when_told(void)
{
    struct ncclComm *comm = NULL;
    REQUIRE(NCCL(ncclCommInitRankConfig)(&comm, 1, common->id, 0, NULL) == 1);
    REQUIRE(NCCL(fake_nccl_group_depth)() == 1 && comm == NULL);
}

static void grouping(void **state)
{
    (void)state;
    run_ranks(1, NULL, groups, 0);
    run_ranks(1, NULL, init_in_a_group, 0);
    run_ranks(1, "FAKE_NCCL_NO_CUDA=1", leaked, 0);
    run_ranks(1, "FAKE_NCCL_FAIL=ncclCommInitRankConfig=1", leaked_when_told, 0);
}

/* ---- children ---- */

static void splits(void)
{
    struct ncclComm *comm = comm_of_all(), *child = NULL, *none = comm;
    /* Even and odd ranks, in the reverse order. */
    REQUIRE(NCCL(ncclCommSplit)(comm, me % 2, -me, &child, NULL) == 0);
    check_place(child, me < 2, 2);
    check_works(child, me % 2 ? 4 : 2);
    /* Again, without rank 3. */
    REQUIRE(NCCL(ncclCommSplit)(comm, me == 3 ? -1 : 5, 0, &none, NULL) == 0);
    if (me == 3) {
        REQUIRE(none == NULL);
    } else {
        check_place(none, me, 3);
        check_works(none, 3);
        REQUIRE(NCCL(ncclCommDestroy)(none) == 0);
    }
    check_works(comm, 6);
    REQUIRE(NCCL(ncclCommSplit)(comm, -2, 0, &none, NULL) == 4);
    REQUIRE(NCCL(ncclCommDestroy)(child) == 0);
    over(comm);
}

static void splits_nonblocking(void)
{
    struct ncclComm *comm = comm_of_all(), *first = NULL, *child = NULL;
    struct fake_nccl_config config = config_of(0);
    REQUIRE(NCCL(ncclCommSplit)(comm, 0, me, &first, &config) == 0);
    REQUIRE(NCCL(ncclCommSplit)(first, me % 2 ? -1 : 0, me, &child, NULL) == 7);
    while (state_of(first) == 7 || (child && state_of(child) == 7))
        nap();
    REQUIRE(state_of(first) == 0);
    if (child) {
        check_works(child, 2);
        REQUIRE(NCCL(ncclCommDestroy)(child) == 0);
    }
    REQUIRE(NCCL(ncclCommDestroy)(first) == 0);
    over(comm);
}

/* Rank 1 is dead, in the middle of an operation. */
static void shrinks(void)
{
    struct ncclComm *comm = comm_of_all(), *child = NULL;
    struct stuck stuck;
    if (me == 1)
        raise(SIGKILL);
    begin_stuck(&stuck, all_reduce, comm);
    int dead = 1, myself = me;
    REQUIRE(NCCL(ncclCommShrink)(comm, &myself, 1, &child, NULL, 1) == 4);
    REQUIRE(NCCL(ncclCommShrink)(comm, &dead, 1, &child, NULL, 1) == 0);
    pthread_join(stuck.thread, NULL);
    check_place(child, me == 0 ? 0 : me - 1, 3);
    check_works(child, 5);
    REQUIRE(all_reduce(comm) == 5);
    REQUIRE(NCCL(ncclCommDestroy)(child) == 0);
    over(comm);
}

static void grows(void)
{
    struct ncclComm *comm = NULL, *child = NULL;
    if (me < 2)
        REQUIRE(NCCL(ncclCommInitRank)(&comm, 2, common->id, me) == 0);
    if (me == 0) {
        struct fake_nccl_id id;
        REQUIRE(NCCL(ncclCommGetUniqueId)(comm, &id) == 0);
        common->id = id;
        common->flags[0] = 1;
    }
    await(0);
    const struct fake_nccl_id *id = me == 1 ? NULL : &common->id;
    REQUIRE(NCCL(ncclCommGrow)(comm, 3, id, me == 2 ? 2 : -1, &child, NULL) == 0);
    check_place(child, me, 3);
    check_works(child, 3);
    REQUIRE(NCCL(ncclCommDestroy)(comm) == 0);
    over(child);
}

static void children(void **state)
{
    (void)state;
    run_ranks(4, NULL, splits, 0);
    run_ranks(4, NULL, splits_nonblocking, 0);
    run_ranks(4, NULL, shrinks, 1 << 1);
    run_ranks(3, NULL, grows, 0);
    assert_false(has_name(&last_id));
}

/* ---- ranks that disagree ---- */

static int wrong_count(struct ncclComm *comm)
{
    return NCCL(ncclAllReduce)(values, results, me == 1 ? 2 : 1, I32, SUM, comm, NULL);
}

static int wrong_type(struct ncclComm *comm)
{
    return NCCL(ncclAllReduce)(values, results, 1, me == 1 ? F32 : I32, SUM, comm, NULL);
}

static int wrong_op(struct ncclComm *comm)
{
    return NCCL(ncclAllReduce)(values, results, 1, I32, me == 1 ? MAX : SUM, comm, NULL);
}

static int wrong_root(struct ncclComm *comm)
{
    return NCCL(ncclBroadcast)(values, results, 1, I32, me == 1, comm, NULL);
}

static int wrong_order(struct ncclComm *comm)
{
    return me == 1 ? NCCL(ncclAllGather)(values, results, 1, I32, comm, NULL) : all_reduce(comm);
}

static int wrong_message(struct ncclComm *comm)
{
    return me == 1 ? NCCL(ncclSend)(values, 4096, I32, 0, comm, NULL)
                   : NCCL(ncclRecv)(results, 1, I32, 1, comm, NULL);
}

static int (*disagreement)(struct ncclComm *comm);

static void disagree(void)
{
    struct ncclComm *comm = comm_of_all();
    struct stuck stuck;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = 1;
    begin_stuck(&stuck, disagreement, comm);
    meet();
    abort_stuck(&stuck);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        REQUIRE(results[i] == 0);
}

static void disagreeing_ranks_hang(void **state)
{
    (void)state;
    int (*const all[])(struct ncclComm * comm) = {wrong_count, wrong_type,  wrong_op,
                                                  wrong_root,  wrong_order, wrong_message};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        disagreement = all[i];
        run_ranks(2, NULL, disagree, 0);
    }
}

/* ---- what it is told to do ---- */

static void stalls(void)
{
    struct ncclComm *comm = comm_of_all();
    struct stuck stuck;
    check_works(comm, 1);
    check_works(comm, 1);
    begin_stuck(&stuck, all_reduce, comm);
    meet();
    abort_stuck(&stuck);
}

static void stalled_operations(void **state)
{
    (void)state;
    run_ranks(2, "FAKE_NCCL_STALL=rank=1,op=ncclAllReduce@3", stalls, 0);
    run_ranks(2, "FAKE_NCCL_STALL=0:*@3", stalls, 0);
}

static void revokes(void)
{
    struct ncclComm *comm = comm_of_all(), *child = NULL;
    struct stuck stuck;
    begin_stuck(&stuck, all_reduce, comm);
    REQUIRE(NCCL(ncclCommRevoke)(comm, 0) == 0);
    pthread_join(stuck.thread, NULL);
    REQUIRE(all_reduce(comm) == 5);
    REQUIRE(NCCL(ncclCommSplit)(comm, 0, me, &child, NULL) == 0);
    check_works(child, 1);
    REQUIRE(NCCL(ncclCommDestroy)(child) == 0);
    REQUIRE(state_of(comm) == 0);
    over(comm);
}

static void revoked(void **state)
{
    (void)state;
    run_ranks(2, "FAKE_NCCL_STALL=0:ncclAllReduce@1", revokes, 0);
}

static void fails(void)
{
    struct ncclComm *comm = comm_of_all();
    check_works(comm, 1);
    REQUIRE(all_reduce(comm) == (me == 1 ? 3 : 0));
    REQUIRE(NCCL(fake_nccl_calls)("ncclAllReduce") == 2);
    REQUIRE(NCCL(fake_nccl_calls)("ncclNothing") == -1);
    if (me == 1) {
        REQUIRE(last_error_has("ncclAllReduce was told to return 3"));
        REQUIRE(all_reduce(comm) == 0); /* meets the other's second */
    }
    int version = 0;
    REQUIRE(NCCL(ncclGetVersion)(&version) == 6 && version == 0);
    REQUIRE(NCCL(ncclGetVersion)(&version) == 6);
    over(comm);
}

static void async_errors(void)
{
    struct ncclComm *comm = comm_of_all();
    check_works(comm, 0);
    REQUIRE(state_of(comm) == 0);
    check_works(comm, 0);
    REQUIRE(state_of(comm) == 6);
    REQUIRE(all_reduce(comm) == 6);
    REQUIRE(NCCL(ncclCommAbort)(comm) == 0);
}

static void answers_in_progress(void)
{
    struct ncclComm *comm = NULL;
    struct fake_nccl_config config = config_of(0);
    REQUIRE(NCCL(ncclCommInitRankConfig)(&comm, 1, common->id, 0, &config) == 7);
    while (state_of(comm) == 7)
        nap();
    REQUIRE(all_reduce(comm) == 7);
    REQUIRE(all_reduce(comm) == 4);
    REQUIRE(state_of(comm) == 7 && state_of(comm) == 7 && state_of(comm) == 0);
    REQUIRE(all_reduce(comm) == 0);
    over(comm);
}

static void does_nothing(void)
{
    struct ncclComm *comm = comm_of_all();
    values[0] = 1;
    REQUIRE(all_reduce(comm) == 0 && results[0] == 0);
    REQUIRE(NCCL(fake_nccl_calls)("ncclAllReduce") == 0);
    over(comm);
}

static void *hang(void *context)
{
    NCCL(ncclCommAbort)(context);
    common->flags[1] = 1;
    return NULL;
}

static void hangs(void)
{
    pthread_t thread;
    struct ncclComm *comm = comm_of_all();
    REQUIRE(pthread_create(&thread, NULL, hang, comm) == 0);
    while (NCCL(fake_nccl_calls)("ncclCommAbort") == 0)
        nap();
    check_works(comm, 0);
    REQUIRE(common->flags[1] == 0 && NCCL(fake_nccl_live_comms)() == 1);
}

static void obeys(void **state)
{
    (void)state;
    run_ranks(2, "FAKE_NCCL_FAIL=1:ncclAllReduce=3@2,ncclGetVersion=6@1+", fails, 0);
    run_ranks(1, "FAKE_NCCL_ASYNC_ERROR=6@2", async_errors, 0);
    run_ranks(1, "FAKE_NCCL_IN_PROGRESS=ncclAllReduce=2@1", answers_in_progress, 0);
    run_ranks(2, "FAKE_NCCL_ZERO=1", does_nothing, 0);
    run_ranks(1, "FAKE_NCCL_HANG=0:ncclCommAbort", hangs, 0);
}

/* ---- small things ---- */

static void memory_and_texts(void)
{
    struct ncclComm *comm = comm_of_all();
    void *memory = NULL, *handle = NULL, *address = NULL;
    struct ncclWindow_vidmem *window = NULL;
    uint64_t bytes = 1;
    REQUIRE(NCCL(ncclMemAlloc)(&memory, 5000) == 0);
    memset(memory, 1, 5000);
    REQUIRE(NCCL(ncclCommRegister)(comm, memory, 5000, &handle) == 0);
    REQUIRE(NCCL(ncclCommDeregister)(comm, handle) == 0);
    REQUIRE(NCCL(ncclCommWindowRegister)(comm, (char *)memory + 1, 4096, &window, 1) == 4);
    REQUIRE(NCCL(ncclCommWindowRegister)(comm, memory, 4096, &window, 1) == 0);
    REQUIRE(NCCL(ncclWinGetUserPtr)(comm, window, &address) == 0 && address == memory);
    REQUIRE(NCCL(ncclCommWindowDeregister)(comm, window) == 0);
    REQUIRE(NCCL(ncclMemFree)(memory) == 0);
    REQUIRE(NCCL(ncclCommSuspend)(comm, 1) == 0);
    REQUIRE(all_reduce(comm) == 5);
    REQUIRE(NCCL(ncclCommMemStats)(comm, 1, &bytes) == 0 && bytes == 1);
    REQUIRE(NCCL(ncclCommResume)(comm) == 0);
    check_works(comm, 0);
    REQUIRE(strcmp(NCCL(ncclGetErrorString)(0), "no error") == 0);
    REQUIRE(strcmp(NCCL(ncclGetErrorString)(8), "timeout") == 0);
    REQUIRE(strcmp(NCCL(ncclGetErrorString)(9), "unknown result code") == 0);
    REQUIRE(NCCL(ncclCommFinalize)(comm) == 0);
    REQUIRE(NCCL(ncclCommFinalize)(comm) == 4);
    over(comm);
}

static void small_things(void **state)
{
    (void)state;
    run_ranks(1, NULL, memory_and_texts, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonblocking_init),
        cmocka_unit_test(aborted_init_leaves_nothing),
        cmocka_unit_test(killed_ranks_are_swept_up),
        cmocka_unit_test(init_refuses),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(grouping),
        cmocka_unit_test(children),
        cmocka_unit_test(disagreeing_ranks_hang),
        cmocka_unit_test(stalled_operations),
        cmocka_unit_test(revoked),
        cmocka_unit_test(obeys),
        cmocka_unit_test(small_things),
    };
    return cmocka_run_group_tests(tests, load_nccl, NULL);
}
