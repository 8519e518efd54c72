/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The life of a queue pair: its options, what it says of itself, draining and closing, failures at every call. */
#include "rail/verbs.h"
#include "verbs_play.h"

/* ---- options ---- */

static int open_with(struct play_end *end, const struct gpusys_qp_options *options,
                     struct gpusys_error *error)
{
    int result = gpusys_qp_open(&end->qp, end->pd, options, error);
    if (result)
        assert_null(end->qp);
    gpusys_qp_close(end->qp);
    end->qp = NULL;
    return result;
}

struct bound {
    size_t offset, size;
    uint32_t most; /* that is taken */
    const char *words;
};

#define BOUND(member, most, words)                                                                           \
    {                                                                                                        \
        offsetof(struct gpusys_qp_options, member), sizeof(((struct gpusys_qp_options *)0)->member), most,   \
            words                                                                                            \
    }

/* The device small does 100 requests, and 64 completions. */
static const struct bound bounds[] = {
    BOUND(flags, 3, "unknown flags 0x4"),
    BOUND(psn, 0xffffff, "PSN 0x1000000 of 24 bits"),
    BOUND(depth, 64, "65 requests under way, and the device does 64"),
    BOUND(hop_limit, 255, "hop limit 256 of 255"),
    BOUND(service_level, 15, "service level 16 of 15"),
    BOUND(ack_timeout, 31, "ACK timeout 32 of 31"),
    BOUND(retry_count, 6, "retries 7 of 6"),
    BOUND(rnr_retry, 7, "RNR retries 8 of 7"),
    BOUND(pad[0], 0, "reserved bytes"),
    BOUND(pad[2], 0, "reserved bytes"),
    BOUND(pkey_index, 0, NULL), /* the driver refuses it: the table has one */
    BOUND(reserved, 0, "reserved bytes"),
};

static void bounds_of_options(void **state)
{
    (void)state;
    struct play_end end = {.verbs = NULL};
    play_open_port(&end, "small");
    for (size_t i = 0; i < COUNT_OF(bounds); i++)
        for (uint32_t more = 0; more < 2; more++) {
            struct gpusys_error error = {.code = 0};
            struct gpusys_qp_options options = {.size = sizeof options};
            uint32_t value = bounds[i].most + more;
            memcpy((char *)&options + bounds[i].offset, &value, bounds[i].size);
            assert_int_equal(open_with(&end, &options, &error), more ? -EINVAL : 0);
            if (more && bounds[i].words)
                assert_says(&error, -EINVAL, bounds[i].words);
            if (more)
                assert_says(&error, -EINVAL, "small");
        }
    play_end_close(&end);
    assert_nothing_is_left();
}

static void partition_keys(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    struct gpusys_qp_options options = {.size = sizeof options, .pkey_index = 1};
    struct play_end end = {.verbs = NULL};
    play_open_port(&end, "fake0");
    assert_int_equal(open_with(&end, &options, &error), -EINVAL);
    assert_says(&error, -EINVAL, "a queue pair to INIT");
    assert_non_null(strstr(error.cause, "partition keys"));
    options.pkey_index = 65536; /* and not its lower half */
    assert_int_equal(open_with(&end, &options, &error), -EINVAL);
    assert_says(&error, -EINVAL, "partition key index 65536 of 65535");
    play_end_close(&end);
}

static void other_sizes_of_options(void **state)
{
    (void)state;
    struct {
        struct gpusys_qp_options options;
        uint64_t more;
    } newer = {.options = {.size = sizeof newer}, .more = 1};
    struct play_end end = {.verbs = NULL};
    play_open_port(&end, "fake0");
    assert_int_equal(open_with(&end, &newer.options, NULL), -E2BIG);
    newer.more = 0;
    assert_int_equal(open_with(&end, &newer.options, NULL), 0);
    newer.options.size = 0;
    assert_int_equal(open_with(&end, &newer.options, NULL), -EINVAL);
    newer.options.size = sizeof(size_t);
    assert_int_equal(open_with(&end, &newer.options, NULL), 0);
    play_end_close(&end);
}

static void mtu_below_the_smallest(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    const struct gpusys_qp_options options = {.size = sizeof options, .mtu_bytes = 255};
    struct play_end end = {.verbs = NULL};
    play_open_port(&end, "fake0");
    assert_int_equal(open_with(&end, &options, &error), -EINVAL);
    assert_says(&error, -EINVAL, "an MTU of 255");
    play_end_close(&end);
    assert_nothing_is_left();
}

static void gids_that_are_not_there(void **state)
{
    (void)state;
    const uint32_t indices[] = {3, 15, 16, 255, 256, 65536, 0xffffffff};
    struct play_end end = {.verbs = NULL};
    play_open_port(&end, "fake0");
    for (size_t i = 0; i < COUNT_OF(indices); i++) {
        struct gpusys_error error = {.code = 0};
        char words[64];
        const struct gpusys_qp_options options = {
            .size = sizeof options, .flags = GPUSYS_QP_GID_INDEX, .gid_index = indices[i]};
        snprintf(words, sizeof words, "there is no GID %u", indices[i]);
        assert_int_equal(open_with(&end, &options, &error), -EINVAL);
        assert_says(&error, -EINVAL, words);
    }
    play_end_close(&end);
    assert_nothing_is_left();
}

static void defaults(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "fake0", NULL);
    play_end_open(&ends[1], "small", NULL);
    assert_int_equal(play_info(&ends[0]).depth, 128);
    assert_int_equal(play_info(&ends[0]).inline_bytes, 64);
    assert_int_equal(play_info(&ends[0]).connected, 0);
    assert_int_equal(play_info(&ends[0]).dead, 0);
    assert_int_equal(play_info(&ends[1]).depth, 64);
    play_ends_close(ends);
}

static void packet_numbers(void **state)
{
    (void)state;
    struct gpusys_qp_options options = {.size = sizeof options, .flags = GPUSYS_QP_PSN, .psn = 0};
    struct play_end end = {.verbs = NULL};
    uint32_t seen[16];
    play_open_port(&end, "fake0");
    assert_int_equal(gpusys_qp_open(&end.qp, end.pd, &options, NULL), 0);
    assert_int_equal(play_own(&end).psn, 0);
    gpusys_qp_close(end.qp);
    unsigned equal = 0, high = 0;
    for (size_t i = 0; i < COUNT_OF(seen); i++) {
        assert_int_equal(gpusys_qp_open(&end.qp, end.pd, NULL, NULL), 0);
        seen[i] = play_own(&end).psn;
        assert_int_equal(seen[i] >> 24, 0);
        high += seen[i] >> 16 != 0;
        for (size_t k = 0; k < i; k++)
            equal += seen[i] == seen[k];
        gpusys_qp_close(end.qp);
    }
    assert_in_range(equal, 0, 1); /* of 120 pairs, two equal ones have a chance of 7 in a million */
    assert_in_range(high, 8, COUNT_OF(seen));
    end.qp = NULL;
    play_end_close(&end);
}

/* small copies at most 40 bytes, and refuses more. */
static void inline_bytes_fall_back(void **state)
{
    (void)state;
    const struct {
        uint32_t asked, got, calls;
    } cases[] = {{0, 32, 2}, {40, 40, 1}, {20, 20, 1}, {1000, 31, 6}, {81, 40, 2}};
    struct play_end end = {.verbs = NULL};
    play_open_port(&end, "small");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct gpusys_qp_options options = {.size = sizeof options, .inline_bytes = cases[i].asked};
        int64_t before = fake.calls("ibv_create_qp");
        assert_int_equal(gpusys_qp_open(&end.qp, end.pd, &options, NULL), 0);
        assert_int_equal(play_info(&end).inline_bytes, cases[i].got);
        assert_int_equal(fake.calls("ibv_create_qp") - before, cases[i].calls);
        gpusys_qp_close(end.qp);
    }
    for (unsigned nth = 1; nth <= 3; nth++) /* 64, 32, 16: nothing is copied */
        fake.on("ibv_create_qp", nth, FAKE_IBVERBS_FAIL, ENOMEM);
    assert_int_equal(gpusys_qp_open(&end.qp, end.pd, NULL, NULL), 0);
    assert_int_equal(play_info(&end).inline_bytes, 0);
    play_end_close(&end);
    assert_nothing_is_left();
}

/* ---- failures ---- */

struct fault {
    const char *function;
    int foreign;
    const char *words;
};

static const struct fault faults[] = {
    {"ibv_create_comp_channel", EMFILE, "a completion channel for 128 requests"},
    {"ibv_create_cq", ENOMEM, "a completion queue for 128 requests"},
    {"ibv_create_qp", EACCES, "a queue pair for 128 requests"},
    {"ibv_modify_qp", EINVAL, "a queue pair to INIT"},
    {"ibv_query_gid", EIO, "there is no GID 1"},
};

static void each_call_of_opening_fails(void **state)
{
    (void)state;
    const struct gpusys_qp_options options = {
        .size = sizeof options, .flags = GPUSYS_QP_GID_INDEX, .gid_index = 1};
    struct play_end end = {.verbs = NULL};
    play_open_port(&end, "fake0");
    int64_t before = FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS);
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        struct gpusys_error error = {.code = 0};
        fake.on(faults[i].function, 1, FAKE_IBVERBS_FAIL, (uint64_t)faults[i].foreign);
        int wanted = faults[i].foreign == EIO ? -EINVAL
                                              : -faults[i].foreign; /* an index that cannot be read is none */
        assert_int_equal(open_with(&end, &options, &error), wanted);
        assert_says(&error, wanted, faults[i].words);
        assert_says(&error, wanted, "fake0 port 1");
        assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS), before);
    }
    play_end_close(&end);
    assert_nothing_is_left();
}

/* Whatever call it is: none of them all leaves anything behind, and each gives its own errno. */
static void any_call_of_setting_up_fails(void **state)
{
    (void)state;
    const struct gpusys_verbs_options options = {.size = sizeof options, .device = "fake1"};
    unsigned failures = 0;
    int64_t calls = INT64_MAX;
    for (unsigned nth = 1; nth <= calls; nth++) {
        struct play_end end = {.verbs = NULL};
        struct gpusys_error error = {.code = 0};
        unsigned char bytes[100];
        fake.reset();
        fake.on("*", nth, FAKE_IBVERBS_FAIL, EACCES);
        int failed = gpusys_verbs_open(&end.verbs, &options, &error);
        if (!failed)
            failed = gpusys_pd_open(&end.pd, end.verbs, &error);
        if (!failed)
            failed = gpusys_mr_open(&end.mr, end.pd, bytes, sizeof bytes, GPUSYS_MR_LANDING, &error);
        if (!failed)
            failed = gpusys_qp_open(&end.qp, end.pd, NULL, &error);
        if (failed && !end.verbs)
            assert_true(failed == -EACCES || failed == -ENODEV || failed == -EADDRNOTAVAIL);
        else if (failed)
            assert_int_equal(failed, -EACCES);
        if (failed)
            assert_true(error.code == failed && error.message[0]);
        failures += failed != 0;
        calls = fake.calls("*") < nth ? 0 : INT64_MAX; /* all of them have had their turn */
        play_end_close(&end);
        assert_nothing_is_left();
    }
    assert_in_range(failures, 9, 100);
}

/* The nth allocation of ours fails. */
static unsigned fail_at;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return fail_at && --fail_at == 0 ? NULL : __real_calloc(n, size);
}

static void memory_runs_out(void **state)
{
    (void)state;
    struct play_end end = {.verbs = NULL};
    struct gpusys_error error = {.code = 0};
    unsigned char bytes[64];
    play_open_port(&end, "fake0");
    struct gpusys_pd *pd = NULL;
    fail_at = 1;
    assert_int_equal(gpusys_pd_open(&pd, end.verbs, &error), -ENOMEM);
    assert_says(&error, -ENOMEM, "fake0");
    fail_at = 1;
    assert_int_equal(gpusys_mr_open(&end.mr, end.pd, bytes, sizeof bytes, GPUSYS_MR_LANDING, &error),
                     -ENOMEM);
    assert_null(end.mr);
    fail_at = 1;
    assert_int_equal(gpusys_qp_open(&end.qp, end.pd, NULL, &error), -ENOMEM);
    assert_says(&error, -ENOMEM, "fake0: a queue pair for 128 requests");
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_MRS), 0);
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_QPS), 0);
    fail_at = 0;
    play_end_close(&end);
    assert_nothing_is_left();
}

/* ---- ending ---- */

static void null_closes(void **state)
{
    (void)state;
    gpusys_qp_close(NULL);
    gpusys_mr_close(NULL);
    gpusys_pd_close(NULL);
    gpusys_verbs_close(NULL);
}

static void post_held(struct play_end ends[2], uint32_t n)
{
    fake.hold(1);
    for (uint32_t i = 0; i < n; i++) {
        struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 1000 + i, 0, 0, 64);
        assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
    }
}

static void draining_gives_every_request(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completions[128];
    uint32_t count = 0;
    play_ends_open(ends, "fake0", "fake1", NULL);
    post_held(ends, 100);
    assert_int_equal(play_info(&ends[0]).outstanding, 100);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, completions, 128, &count, play_soon()), 0);
    assert_int_equal(count, 100);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(completions[i].id, 1000 + i);
        assert_int_equal(completions[i].status, -ECANCELED);
    }
    assert_int_equal(play_info(&ends[0]).outstanding, 0);
    assert_int_equal(play_info(&ends[0]).dead, -ECANCELED);
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 1, 0, 0, 64);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), -ECANCELED);
    assert_int_equal(gpusys_qp_room(ends[0].qp), 0);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, completions, 128, &count, play_soon()), 0);
    assert_int_equal(count, 0);
    play_ends_close(ends);
}

static void draining_counts_what_nobody_wants_to_see(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completions[2] = {{.id = 0}};
    uint32_t count = 0;
    play_ends_open(ends, "fake0", "fake1", NULL);
    post_held(ends, 40);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, &count, play_soon()), 0);
    assert_int_equal(count, 40);
    assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 4096, 0, NULL), 0);
    post_held(ends, 40);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, completions, 2, &count, play_soon()), 0);
    assert_int_equal(count, 2); /* no more than were written */
    assert_int_equal(completions[1].id, 1001);
    play_ends_close(ends);
}

/* A device that flushes nothing. */
static int poll_nothing(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
    (void)cq, (void)n, (void)wcs;
    return 0;
}

static void draining_in_vain(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    uint32_t count = 7;
    play_ends_open(ends, "fake0", "fake1", NULL);
    post_held(ends, 3);
    __typeof__(&poll_nothing) *poll_cq = &ends[0].qp->cq->context->ops.poll_cq, real = *poll_cq;
    *poll_cq = poll_nothing;
    int64_t begin_ns = gpusys_now_ns();
    assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, &count, gpusys_deadline_after(20000000)),
                     -ETIMEDOUT);
    assert_true(gpusys_now_ns() - begin_ns >= 20000000);
    assert_int_equal(count, 0);
    assert_int_equal(play_info(&ends[0]).outstanding, 3);
    *poll_cq = real;
    play_ends_close(ends);
}

static void closing_in_vain_ends_all_the_same(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "fake0", "fake1", NULL);
    post_held(ends, 3);
    ends[0].qp->cq->context->ops.poll_cq = poll_nothing;
    int64_t begin_ns = gpusys_now_ns();
    play_ends_close(ends);
    assert_true(gpusys_now_ns() - begin_ns < 10000000000);
}

static void a_device_that_is_gone_has_flushed(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completions[8];
    uint32_t count = 0;
    play_ends_open(ends, "fake0", "fake1", NULL);
    post_held(ends, 5);
    FAKE(fake_ibverbs_remove)("fake0");
    assert_int_equal(gpusys_qp_drain(ends[0].qp, completions, 8, &count, play_soon()), 0);
    assert_int_equal(count, 5);
    assert_int_equal(completions[4].status, -ECANCELED);
    play_ends_close(ends);
}

static void a_drain_that_the_driver_refuses(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    uint32_t count = 7;
    play_ends_open(ends, "fake0", "fake1", NULL);
    post_held(ends, 5);
    int64_t begin_ns = gpusys_now_ns();
    fake.on("ibv_modify_qp", 1, FAKE_IBVERBS_FAIL, EIO);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, &count, play_soon()), -EIO);
    assert_true(gpusys_now_ns() - begin_ns < 10000000000); /* there is nothing to wait for */
    assert_int_equal(count, 0);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, &count, play_soon()), 0);
    assert_int_equal(count, 5);
    play_ends_close(ends);
}

static void draining_before_connecting(void **state)
{
    (void)state;
    struct play_end end = {.verbs = NULL};
    play_end_open(&end, "fake0", NULL);
    assert_int_equal(gpusys_qp_drain(end.qp, NULL, 0, NULL, play_soon()), 0);
    play_end_close(&end);
    assert_nothing_is_left();
}

/* What cannot be destroyed is said, and does not stop the rest. The test does by hand what the driver refused. */
static void objects_in_use_complain(void **state)
{
    (void)state;
    const struct gs_ibv *ibv = gs_ibv(&(int){0}, NULL);
    struct play_end end = {.verbs = NULL};
    play_end_open(&end, "fake0", NULL);
    struct ibv_qp *qp = end.qp->qp;
    struct ibv_cq *cq = end.qp->cq;
    struct ibv_comp_channel *channel = end.qp->channel;
    struct ibv_mr *mr = end.mr->mr;
    struct ibv_pd *pd = end.pd->pd;
    play_log_begin();
    fake.on("ibv_destroy_qp", 1, FAKE_IBVERBS_FAIL, EBUSY);
    fake.on("ibv_dereg_mr", 1, FAKE_IBVERBS_FAIL, EBUSY);
    gpusys_qp_close(end.qp);
    gpusys_mr_close(end.mr);
    gpusys_pd_close(end.pd);
    assert_logged("fake0: a queue pair could not be destroyed: Device or resource busy");
    assert_logged("fake0: a completion queue could not be destroyed: Device or resource busy");
    assert_logged("fake0: a completion channel could not be destroyed: Device or resource busy");
    assert_logged("a registration stays: Device or resource busy");
    assert_logged("fake0: a protection domain is still in use: Device or resource busy");
    assert_int_equal(ibv->destroy_qp(qp) | ibv->destroy_cq(cq) | ibv->destroy_comp_channel(channel), 0);
    assert_int_equal(ibv->dereg_mr(mr) | ibv->dealloc_pd(pd), 0);
    gpusys_verbs_close(end.verbs);
    free(end.bytes);
    assert_nothing_is_left();
}

static int clear(void **state)
{
    (void)state;
    fake.reset();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(bounds_of_options, clear),
        cmocka_unit_test_setup(partition_keys, clear),
        cmocka_unit_test_setup(other_sizes_of_options, clear),
        cmocka_unit_test_setup(mtu_below_the_smallest, clear),
        cmocka_unit_test_setup(gids_that_are_not_there, clear),
        cmocka_unit_test_setup(defaults, clear),
        cmocka_unit_test_setup(packet_numbers, clear),
        cmocka_unit_test_setup(inline_bytes_fall_back, clear),
        cmocka_unit_test_setup(each_call_of_opening_fails, clear),
        cmocka_unit_test_setup(any_call_of_setting_up_fails, clear),
        cmocka_unit_test_setup(memory_runs_out, clear),
        cmocka_unit_test_setup(null_closes, clear),
        cmocka_unit_test_setup(draining_gives_every_request, clear),
        cmocka_unit_test_setup(draining_counts_what_nobody_wants_to_see, clear),
        cmocka_unit_test_setup(draining_in_vain, clear),
        cmocka_unit_test_setup(closing_in_vain_ends_all_the_same, clear),
        cmocka_unit_test_setup(a_device_that_is_gone_has_flushed, clear),
        cmocka_unit_test_setup(a_drain_that_the_driver_refuses, clear),
        cmocka_unit_test_setup(draining_before_connecting, clear),
        cmocka_unit_test_setup(objects_in_use_complain, clear),
    };
    return cmocka_run_group_tests_name("queue pairs: life", tests, play_begin_all, play_end_all);
}
