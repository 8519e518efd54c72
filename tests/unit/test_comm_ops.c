/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Operations: what reaches NCCL, what does not, and what becomes of its answers. */
#include "base/range.h"
#include "comm_script.h"

static void arguments_pass_unchanged(void **state)
{
    (void)state;
    static const char *const expected[] = {
        [GS_ALL_REDUCE] = "all_reduce 5e 7e 9 8 2 c0 57\n",
        [GS_BROADCAST] = "broadcast 5e 7e 9 8 3 c0 57\n",
        [GS_REDUCE] = "reduce 5e 7e 9 8 2 3 c0 57\n",
        [GS_ALL_GATHER] = "all_gather 5e 7e 9 8 c0 57\n",
        [GS_REDUCE_SCATTER] = "reduce_scatter 5e 7e 9 8 2 c0 57\n",
        [GS_ALL_TO_ALL] = "all_to_all 5e 7e 9 8 c0 57\n",
        [GS_GATHER] = "gather 5e 7e 9 8 3 c0 57\n",
        [GS_SCATTER] = "scatter 5e 7e 9 8 3 c0 57\n",
        [GS_SEND] = "send 5e 9 8 3 c0 57\n",
        [GS_RECV] = "recv 7e 9 8 3 c0 57\n",
    };
    for (enum gs_function function = GS_ALL_REDUCE; function <= GS_RECV; function++) {
        struct gs_call call = plain(function);
        assert_int_equal(call_of(&comms[0], &call), 0);
        assert_seen(expected[function]);
        assert_int_equal(gs_inside_now(comms[0].inside), 0);
    }
}

/* The call is refused, nothing is called, and gpusys_comm_check has a row of that name for it. */
static void assert_refused(const struct gs_call *call, const char *row)
{
    struct gpusys_error error = {0};
    struct gpusys_comm_call asked = {
        .size = sizeof asked,
        .function = gs_function(call->function)->name,
        .send = call->send,
        .receive = call->receive,
        .count = call->count,
        .type = call->type,
        .op = call->op,
        .root = call->root,
    };
    assert_int_equal(call_of(&comms[0], call), row ? -EINVAL : 0);
    assert_int_equal(gpusys_comm_check(&comms[0], &asked, &error), row ? -EINVAL : 0);
    assert_string_equal(error.detail, row ? row : "");
    assert_int_equal(atomic_load(&comms[0].code), 0);
    if (row)
        assert_seen("");
    seen[0] = 0;
}

static void types_are_those_of_the_version(void **state)
{
    (void)state;
    static const struct {
        int version, type;
        const char *row;
    } rows[] = {
        {22809, 11, NULL},
        {22400, 11, NULL},
        {22304, 10, "type\t10: NCCL 2.23.4 knows 0 (int8) to 9 (bfloat16); float8 since 2.24"},
        {21003, 9, NULL},
        {2804, 9, "type\t9: NCCL 2.8.4 knows 0 (int8) to 8 (float64); bfloat16 since 2.10"},
        {2804, 8, NULL},
        {22809, 12, "type\t12: NCCL 2.28.9 knows 0 (int8) to 11 (float8e5m2)"},
        {22809, -1, "type\t-1: NCCL 2.28.9 knows 0 (int8) to 11 (float8e5m2)"},
        {22809, INT_MIN, "type\t-2147483648: NCCL 2.28.9 knows 0 (int8) to 11 (float8e5m2)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        comms[0].version = rows[i].version;
        for (enum gs_function function = GS_ALL_REDUCE; function <= GS_RECV; function++) {
            struct gs_call call = plain(function);
            call.type = rows[i].type;
            assert_refused(&call, rows[i].row);
        }
    }
}

static void operators_are_those_of_the_version(void **state)
{
    (void)state;
    static const struct {
        int version, op;
        const char *row;
    } rows[] = {
        {22809, 4, NULL},       {22809, 5, NULL},
        {22809, INT_MAX, NULL}, {22809, -1, "op\t-1: 0 (sum) to 4 (avg), or what gpusys_comm_op_open gave"},
        {2804, 3, NULL},        {2804, 4, "op\t4: avg since NCCL 2.10, this is 2804"},
        {21003, 4, NULL},       {21003, 5, "op\t5: made operators since NCCL 2.11, this is 21003"},
        {21104, 5, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const enum gs_function functions[] = {GS_ALL_REDUCE, GS_REDUCE, GS_REDUCE_SCATTER};
        comms[0].version = rows[i].version;
        for (int j = 0; j < 3; j++) {
            struct gs_call call = plain(functions[j]);
            call.op = rows[i].op;
            assert_refused(&call, rows[i].row);
        }
    }
}

static void roots_and_peers_are_ranks(void **state)
{
    (void)state;
    for (enum gs_function function = GS_ALL_REDUCE; function <= GS_RECV; function++) {
        const struct gs_function_row *row = gs_function(function);
        struct gs_call call = plain(function);
        const char *detail = row->collective ? "root\t4: ranks are 0 to 3" : "peer\t4: ranks are 0 to 3";
        call.root = 4;
        assert_refused(&call, row->has_root ? detail : NULL);
        call.root = UINT32_MAX;
        detail =
            row->collective ? "root\t4294967295: ranks are 0 to 3" : "peer\t4294967295: ranks are 0 to 3";
        assert_refused(&call, row->has_root ? detail : NULL);
    }
}

/* Which buffers a rank needs: at the root of a rooted function (rank 1 is it), and elsewhere. */
static void buffers_are_needed_where_they_are_used(void **state)
{
    (void)state;
    static const struct {
        enum gs_function function;
        bool send_at_root, send_elsewhere, receive_at_root, receive_elsewhere;
    } rows[] = {
        {GS_ALL_REDUCE, true, true, true, true},     {GS_BROADCAST, true, false, true, true},
        {GS_REDUCE, true, true, true, false},        {GS_ALL_GATHER, true, true, true, true},
        {GS_REDUCE_SCATTER, true, true, true, true}, {GS_ALL_TO_ALL, true, true, true, true},
        {GS_GATHER, true, true, true, false},        {GS_SCATTER, true, false, true, true},
        {GS_SEND, true, true, false, false},         {GS_RECV, false, false, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (uint32_t root = 0; root < 2; root++) {
            bool at_root = root == 1, send = at_root ? rows[i].send_at_root : rows[i].send_elsewhere;
            bool receive = at_root ? rows[i].receive_at_root : rows[i].receive_elsewhere;
            struct gs_call call = plain(rows[i].function);
            call.root = root;
            call.send = NULL;
            assert_refused(&call, send ? "send\tNULL, with a count of 9 that this rank gives" : NULL);
            call = plain(rows[i].function);
            call.root = root;
            call.receive = NULL;
            assert_refused(&call, receive ? "receive\tNULL, with a count of 9 that this rank gets" : NULL);
            call.send = NULL;
            call.count = 0;
            assert_refused(&call, NULL);
        }
}

static void counts_fit_into_memory(void **state)
{
    (void)state;
    for (enum gs_function function = GS_ALL_REDUCE; function <= GS_RECV; function++) {
        bool parts = function >= GS_ALL_GATHER && function <= GS_SCATTER;
        struct gs_call call = plain(function);
        char row[128];
        size_t most = SIZE_MAX / 8 / (parts ? 4 : 1);
        call.count = most;
        assert_refused(&call, NULL);
        call.count = most + 1;
        snprintf(row, sizeof row, "count\t%zu elements of 8 bytes for %d ranks: at most %zu", most + 1,
                 parts ? 4 : 1, most);
        assert_refused(&call, row);
        call.count = SIZE_MAX;
        snprintf(row, sizeof row, "count\t%zu elements of 8 bytes for %d ranks: at most %zu", SIZE_MAX,
                 parts ? 4 : 1, most);
        assert_refused(&call, row);
        call.type = GPUSYS_NCCL_FLOAT8E4M3;
        call.count = SIZE_MAX / (parts ? 4 : 1);
        assert_refused(&call, NULL);
    }
}

static void a_check_names_every_fault(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    struct gpusys_comm_call call = {
        .size = sizeof call, .function = "reduce", .count = 9, .type = 99, .op = -7, .root = 9};
    assert_int_equal(gpusys_comm_check(&comms[0], &call, &error), -EINVAL);
    assert_string_equal(error.message, "reduce on rank 1 of 4: 4 arguments are wrong");
    assert_string_equal(error.detail, "send\tNULL, with a count of 9 that this rank gives\n"
                                      "type\t99: NCCL 2.28.9 knows 0 (int8) to 11 (float8e5m2)\n"
                                      "op\t-7: 0 (sum) to 4 (avg), or what gpusys_comm_op_open gave\n"
                                      "root\t9: ranks are 0 to 3");
    assert_int_equal(gpusys_comm_check(&comms[0], &call, NULL), -EINVAL);
    call.function = "allreduce";
    assert_int_equal(gpusys_comm_check(&comms[0], &call, &error), -EINVAL);
    assert_string_equal(error.message, "there is no operation \"allreduce\"");
    assert_string_equal(error.hint,
                        "it is one of all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, "
                        "gather, scatter, send, recv");
    call.function = NULL;
    assert_int_equal(gpusys_comm_check(&comms[0], &call, &error), -EINVAL);
    call.size = 8;
    assert_int_equal(gpusys_comm_check(&comms[0], &call, &error), -EINVAL);
    call = (struct gpusys_comm_call){.size = sizeof call, .function = "send"};
    table.recv = NULL;
    assert_int_equal(gpusys_comm_check(&comms[0], &call, &error), -ENOSYS);
    assert_string_equal(error.message, "ncclRecv is not there");
    atomic_store(&comms[0].code, -EHOSTDOWN);
    assert_int_equal(gpusys_comm_check(&comms[0], &call, &error), -EHOSTDOWN);
    assert_string_equal(error.message, "the failure");
}

static void a_failed_communicator_calls_nothing(void **state)
{
    (void)state;
    atomic_store(&comms[0].code, -ECONNRESET);
    for (enum gs_function function = GS_ALL_REDUCE; function <= GS_RECV; function++) {
        struct gs_call call = plain(function);
        assert_int_equal(call_of(&comms[0], &call), -ECONNRESET);
        call.type = -1; /* the failure is told before arguments */
        assert_int_equal(call_of(&comms[0], &call), -ECONNRESET);
    }
    assert_seen("");
}

static void old_libraries_send_nothing(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        table.send = missing ? NULL : send_to;
        table.recv = missing ? recv_from : NULL;
        table.all_to_all = NULL;
        table.gather = table.scatter = NULL;
        for (enum gs_function function = GS_ALL_TO_ALL; function <= GS_RECV; function++) {
            struct gs_call call = plain(function);
            assert_int_equal(call_of(&comms[0], &call), -ENOSYS);
        }
    }
    assert_seen("");
}

static void results_become_failures(void **state)
{
    (void)state;
    static const struct {
        int result, code;
        const char *failed;
    } rows[] = {
        {GPUSYS_NCCL_UNHANDLED_CUDA_ERROR, -EIO, "fail c0 -5\n"},
        {GPUSYS_NCCL_SYSTEM_ERROR, -EIO, "fail c0 -5 judge\n"},
        {GPUSYS_NCCL_INTERNAL_ERROR, -EPROTO, "fail c0 -71\n"},
        {GPUSYS_NCCL_INVALID_ARGUMENT, -EINVAL, "fail c0 -22\n"},
        {GPUSYS_NCCL_INVALID_USAGE, -EINVAL, "fail c0 -22\n"},
        {GPUSYS_NCCL_REMOTE_ERROR, -EIO, "fail c0 -5 judge\n"},
        {GPUSYS_NCCL_TIMEOUT, -ETIMEDOUT, "fail c0 -110 judge\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gs_call call = plain(GS_BROADCAST);
        begin(NULL);
        answers("broadcast", 0, rows[i].result);
        assert_int_equal(call_of(&comms[0], &call), rows[i].code);
        assert_non_null(strstr(seen, rows[i].failed));
        assert_int_equal(strncmp(last_failure, "ncclBroadcast: ", 15), 0);
        seen[0] = 0;
        assert_int_equal(call_of(&comms[0], &call), rows[i].code);
        assert_seen("");
    }
}

static void in_progress_is_polled(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_ALL_REDUCE);
    answers("all_reduce", 0, GPUSYS_NCCL_IN_PROGRESS);
    polls[0] = polls[1] = GPUSYS_NCCL_IN_PROGRESS;
    n_polls = 2;
    comms[0].op_timeout_ns = 5;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("all_reduce 5e 7e 9 8 2 c0 57\npoll c0\npoll c0\npoll c0\nwatch c0 57 0\n");
    polls[0] = GPUSYS_NCCL_UNHANDLED_CUDA_ERROR;
    n_polls = 1;
    polled = 0;
    assert_int_equal(call_of(&comms[0], &call), -EIO);
    assert_seen("all_reduce 5e 7e 9 8 2 c0 57\npoll c0\nfail c0 -5\n");
}

static void calls_run_out_of_time(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_ALL_REDUCE);
    answers("all_reduce", 0, GPUSYS_NCCL_IN_PROGRESS);
    table.comm_get_async_error = forever;
    comms[0].call_timeout_ns = 2000000;
    int64_t before = gpusys_now_ns();
    assert_int_equal(call_of(&comms[0], &call), -ETIMEDOUT);
    assert_true(gpusys_now_ns() - before >= 2000000);
    assert_seen("all_reduce 5e 7e 9 8 2 c0 57\nfail c0 -110 judge\n");
    assert_string_equal(last_failure, "ncclAllReduce did not come back within 0.002 s");
}

/* Another thread records a failure while a call is being polled: its code, and no second failure. */
static void failures_end_the_polling(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_ALL_REDUCE);
    answers("all_reduce", 0, GPUSYS_NCCL_IN_PROGRESS);
    polls[0] = polls[1] = polls[2] = GPUSYS_NCCL_IN_PROGRESS;
    n_polls = 3;
    fails_while_polled = &comms[0];
    assert_int_equal(call_of(&comms[0], &call), -ECONNRESET);
    assert_seen("all_reduce 5e 7e 9 8 2 c0 57\npoll c0\n");
}

/* ---- of sends and receives ---- */

static void all_to_all_is_composed(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_ALL_TO_ALL);
    compose_only();
    call.send = pointer(0x1000);
    call.receive = pointer(0x2000);
    call.count = 4;
    call.type = GPUSYS_NCCL_FLOAT16; /* parts of 8 bytes */
    assert_int_equal(gs_trace_new(&comms[0].trace, 8), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("start\n"
                "send 1000 4 6 0 c0 57\nrecv 2000 4 6 0 c0 57\n"
                "send 1008 4 6 1 c0 57\nrecv 2008 4 6 1 c0 57\n"
                "send 1010 4 6 2 c0 57\nrecv 2010 4 6 2 c0 57\n"
                "send 1018 4 6 3 c0 57\nrecv 2018 4 6 3 c0 57\n"
                "end\n");
    assert_int_equal(gs_trace_last(comms[0].trace), 1);
    call.count = 0;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("");
}

static void gather_and_scatter_are_composed(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_GATHER);
    compose_only();
    call.send = pointer(0x1000);
    call.receive = NULL;
    call.count = 2;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("start\nsend 1000 2 8 3 c0 57\nend\n");
    call.receive = pointer(0x2000);
    call.root = 1;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("start\nrecv 2000 2 8 0 c0 57\nsend 1000 2 8 1 c0 57\nrecv 2010 2 8 1 c0 57\n"
                "recv 2020 2 8 2 c0 57\nrecv 2030 2 8 3 c0 57\nend\n");
    call.function = GS_SCATTER;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("start\nsend 1000 2 8 0 c0 57\nsend 1010 2 8 1 c0 57\nrecv 2000 2 8 1 c0 57\n"
                "send 1020 2 8 2 c0 57\nsend 1030 2 8 3 c0 57\nend\n");
    call.root = 0;
    call.send = NULL;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("start\nrecv 2000 2 8 0 c0 57\nend\n");
}

static void composed_failures_close_the_group(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_GATHER);
    compose_only();
    answers("send", 0, GPUSYS_NCCL_INVALID_ARGUMENT);
    assert_int_equal(call_of(&comms[0], &call), -EINVAL);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nend\nfail c0 -22\n");
    begin(NULL);
    compose_only();
    answers("end", 0, GPUSYS_NCCL_IN_PROGRESS); /* as of any call */
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("start\nsend 5e 9 8 3 c0 57\nend\npoll c0\n");
    begin(NULL);
    compose_only();
    answers("send", 0, GPUSYS_NCCL_IN_PROGRESS); /* said inside a group, it is the group's */
    assert_int_equal(call_of(&comms[0], &call), 0);
    begin(NULL);
    compose_only();
    answers("start", 0, GPUSYS_NCCL_INTERNAL_ERROR);
    assert_int_equal(call_of(&comms[0], &call), -EPROTO);
    assert_seen("start\nfail c0 -71\n");
}

/* ---- the trace, ranges, watching ---- */

static void submissions_are_traced(void **state)
{
    (void)state;
    struct gs_submission *entries;
    uint64_t kept, submitted;
    assert_int_equal(gs_trace_new(&comms[0].trace, 16), 0);
    for (enum gs_function function = GS_ALL_REDUCE; function <= GS_RECV; function++) {
        struct gs_call call = plain(function);
        call.op = 77;
        assert_int_equal(call_of(&comms[0], &call), 0);
        call.type = -1;
        assert_int_equal(call_of(&comms[0], &call), -EINVAL); /* nothing was submitted */
    }
    assert_int_equal(gs_trace_copy(comms[0].trace, &entries, &kept, &submitted), 0);
    assert_int_equal(kept, 10);
    for (unsigned i = 0; i < 10; i++) {
        const struct gs_function_row *row = gs_function(i + 1);
        assert_int_equal(entries[i].function, i + 1);
        assert_int_equal(entries[i].count, 9);
        assert_int_equal(entries[i].type, GPUSYS_NCCL_FLOAT64);
        assert_int_equal(entries[i].op, row->has_op ? 255 : 0);
        assert_int_equal(entries[i].root, row->has_root ? 3 : 0);
        assert_int_equal(entries[i].collective, row->collective ? i + 1 : 0);
    }
    free(entries);
}

static void what_is_submitted_is_watched(void **state)
{
    (void)state;
    struct gs_call call = plain(GS_SEND);
    assert_int_equal(gs_trace_new(&comms[0].trace, 16), 0);
    comms[0].op_timeout_ns = 1000;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("send 5e 9 8 3 c0 57\nwatch c0 57 1\nsend 5e 9 8 3 c0 57\nwatch c0 57 2\n");
    answers("send", 0, GPUSYS_NCCL_INTERNAL_ERROR);
    assert_int_equal(call_of(&comms[0], &call), -EPROTO);
    assert_seen("send 5e 9 8 3 c0 57\nfail c0 -71\n");
}

static void *range_start(const char *name, uint64_t bytes)
{
    note("range %s %" PRIu64 "\n", name, bytes);
    return pointer(0x4a);
}

static void range_end(void *range)
{
    note("ends %x\n", number(range));
}

static void ranges_stand_around_submissions(void **state)
{
    (void)state;
    static const struct gs_range_ops ops = {range_start, range_end};
    struct gs_call call = plain(GS_ALL_REDUCE);
    gs_range_ops = &ops;
    assert_int_equal(call_of(&comms[0], &call), 0);
    assert_seen("range all_reduce 72\nall_reduce 5e 7e 9 8 2 c0 57\nends 4a\n");
    answers("all_reduce", 0, GPUSYS_NCCL_INTERNAL_ERROR);
    assert_int_equal(call_of(&comms[0], &call), -EPROTO);
    assert_seen("range all_reduce 72\nall_reduce 5e 7e 9 8 2 c0 57\nends 4a\nfail c0 -71\n");
    gs_range_ops = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(arguments_pass_unchanged),
        TEST(types_are_those_of_the_version),
        TEST(operators_are_those_of_the_version),
        TEST(roots_and_peers_are_ranks),
        TEST(buffers_are_needed_where_they_are_used),
        TEST(counts_fit_into_memory),
        TEST(a_check_names_every_fault),
        TEST(a_failed_communicator_calls_nothing),
        TEST(old_libraries_send_nothing),
        TEST(results_become_failures),
        TEST(in_progress_is_polled),
        TEST(calls_run_out_of_time),
        TEST(failures_end_the_polling),
        TEST(all_to_all_is_composed),
        TEST(gather_and_scatter_are_composed),
        TEST(composed_failures_close_the_group),
        TEST(submissions_are_traced),
        TEST(what_is_submitted_is_watched),
        TEST(ranges_stand_around_submissions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
