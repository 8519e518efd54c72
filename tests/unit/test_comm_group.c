/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Groups of operations, of one communicator and of two. */
#include "comm_script.h"

static void groups_nest_and_end_once(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    answers("send", 0, GPUSYS_NCCL_IN_PROGRESS);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[1], &call), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(gs_inside_now(comms[0].inside), 1); /* once for the whole group */
    assert_int_equal(gpusys_comm_group_end(), 0);
    assert_int_equal(gs_inside_now(comms[0].inside), 1);
    assert_int_equal(gs_inside_now(comms[1].inside), 1);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nstart\nsend 5e 9 8 3 c1 57\nsend 5e 9 8 3 c0 57\nend\n");
    polls[0] = GPUSYS_NCCL_IN_PROGRESS;
    n_polls = 1;
    answers("end", 0, GPUSYS_NCCL_IN_PROGRESS);
    assert_int_equal(gpusys_comm_group_end(), 0);
    assert_seen("end\npoll c0\npoll c0\npoll c1\n");
    assert_int_equal(gpusys_comm_group_end(), -EINVAL); /* none is open */
    assert_seen("");
}

static void blocking_ones_are_not_polled(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    comms[0].nonblocking = false;
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(gpusys_comm_group_end(), 0);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nend\n");
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(gpusys_comm_group_end(), 0);
    assert_seen("start\nend\n");
}

static void refused_arguments_do_not_break_a_group(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND), wrong = call;
    wrong.root = 4;
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[1], &wrong), -EINVAL); /* and is not in it */
    assert_int_equal(gs_inside_now(comms[1].inside), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(gpusys_comm_group_end(), -EINVAL); /* the first failure of what was in it */
    assert_seen("start\nsend 5e 9 8 3 c0 57\nend\npoll c0\n");
    assert_int_equal(atomic_load(&comms[0].code), 0);
    assert_int_equal(call_of(&comms[0], &call), 0); /* on its own again */
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(gpusys_comm_group_end(), 0); /* nothing is left over */
}

static void a_failing_end_fails_all(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[1], &call), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    answers("end", 0, GPUSYS_NCCL_UNHANDLED_CUDA_ERROR);
    assert_int_equal(gpusys_comm_group_end(), -EIO);
    assert_seen("start\nsend 5e 9 8 3 c1 57\nsend 5e 9 8 3 c0 57\nend\nfail c1 -5\nfail c0 -5\n");
    assert_int_equal(strncmp(last_failure, "ncclGroupEnd: ", 14), 0);
}

static void one_communicator_fails_of_two(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND), reduce_call = plain(GS_REDUCE);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    answers("reduce", 0, GPUSYS_NCCL_INVALID_USAGE); /* NCCL refuses it */
    assert_int_equal(call_of(&comms[1], &reduce_call), -EINVAL);
    assert_int_equal(atomic_load(&comms[1].code), 0); /* while the group is open nothing is aborted */
    assert_int_equal(gpusys_comm_group_end(), -EINVAL);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nreduce 5e 7e 9 8 2 3 c1 57\nend\npoll c0\nfail c1 -22\n");
    assert_int_equal(strncmp(last_failure, "ncclReduce: ", 12), 0);
    /* The first of two fails by its state, the second is well. */
    begin(NULL);
    polls[0] = GPUSYS_NCCL_REMOTE_ERROR;
    n_polls = 1;
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(call_of(&comms[1], &call), 0);
    assert_int_equal(gpusys_comm_group_end(), -EIO);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nsend 5e 9 8 3 c1 57\nend\npoll c0\nfail c0 -5 judge\npoll c1\n");
    assert_int_equal(atomic_load(&comms[1].code), 0);
}

/* One that fails while the group is open: no more of it is submitted, and the end still ends the group. */
static void failures_inside_a_group(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    answers("end", 0, GPUSYS_NCCL_IN_PROGRESS);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    atomic_store(&comms[0].code, -EHOSTDOWN);
    assert_int_equal(call_of(&comms[0], &call), -EHOSTDOWN);
    assert_int_equal(gpusys_comm_group_end(), -EHOSTDOWN);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nend\n");
}

static void inner_ends_may_fail(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    answers("end", 0, GPUSYS_NCCL_INTERNAL_ERROR);
    assert_int_equal(gpusys_comm_group_end(), -EPROTO);
    answer.name = NULL;
    assert_int_equal(gpusys_comm_group_end(), -EPROTO);
    assert_seen("start\nstart\nsend 5e 9 8 3 c0 57\nend\nend\nfail c0 -71\n");
    begin(NULL);
    answers("start", 0, GPUSYS_NCCL_INTERNAL_ERROR);
    assert_int_equal(gpusys_comm_group_start(), -EPROTO);
    assert_int_equal(gpusys_comm_group_end(), -EINVAL); /* it never began */
}

static void groups_run_out_of_time(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    table.comm_get_async_error = forever;
    comms[0].call_timeout_ns = 2000000;
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(gpusys_comm_group_end(), -ETIMEDOUT);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nend\nfail c0 -110 judge\n");
    assert_string_equal(last_failure, "ncclGroupEnd did not come back within 0.002 s");
}

/* At its end one event for each communicator and stream, behind the last of what was submitted there. */
static void groups_are_watched_at_the_end(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gs_trace_new(&comms[i].trace, 64), 0);
        comms[i].op_timeout_ns = 1000;
    }
    assert_int_equal(gpusys_comm_group_start(), 0);
    for (unsigned i = 0; i < 20; i++) { /* ten streams, twice each */
        call.stream = pointer(0x100 + i % 10);
        assert_int_equal(call_of(&comms[0], &call), 0);
    }
    assert_int_equal(call_of(&comms[1], &call), 0);
    seen[0] = 0;
    assert_int_equal(gpusys_comm_group_end(), 0);
    assert_seen(
        "end\npoll c0\nwatch c0 100 11\nwatch c0 101 12\nwatch c0 102 13\nwatch c0 103 14\nwatch c0 104 15\n"
        "watch c0 105 16\nwatch c0 106 17\nwatch c0 107 18\nwatch c0 108 19\nwatch c0 109 20\n"
        "poll c1\nwatch c1 109 1\n");
}

static void composed_ones_in_a_group(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_GATHER);
    compose_only();
    answers("end", 0, GPUSYS_NCCL_IN_PROGRESS);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("start\nstart\nsend 5e 9 8 3 c0 57\nend\n");
    assert_int_equal(gpusys_comm_group_end(), 0);
    assert_seen("end\npoll c0\n");
}

static void *ungrouped(void *context)
{
    struct gs_call call = plain(GS_SEND);
    (void)context;
    return pointer((unsigned)-call_of(&comms[1], &call) + (unsigned)gs_inside_now(comms[1].inside));
}

/* Another thread's group is none of ours. */
static void groups_are_of_one_thread(void **state)
{
    (void)state;
    pthread_t thread;
    void *result;
    struct gs_call call = plain(GS_SEND);
    assert_int_equal(gpusys_comm_group_start(), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(pthread_create(&thread, NULL, ungrouped, NULL), 0);
    pthread_join(thread, &result);
    assert_null(result);
    assert_int_equal(gpusys_comm_group_end(), 0);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nsend 5e 9 8 3 c1 57\nend\npoll c0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(groups_nest_and_end_once),
        TEST(blocking_ones_are_not_polled),
        TEST(refused_arguments_do_not_break_a_group),
        TEST(a_failing_end_fails_all),
        TEST(one_communicator_fails_of_two),
        TEST(failures_inside_a_group),
        TEST(inner_ends_may_fail),
        TEST(groups_run_out_of_time),
        TEST(groups_are_watched_at_the_end),
        TEST(composed_ones_in_a_group),
        TEST(groups_are_of_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
