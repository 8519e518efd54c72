/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Connections: what both ends agree on, the way to the peer, what cannot be connected and why. */
#include "rail/verbs.h"
#include "verbs_play.h"

/* ---- what is agreed on ---- */

static void mtu_is_the_smaller_of_both(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "fake0", "small", NULL);
    assert_int_equal(play_own(&ends[0]).mtu_bytes, 4096);
    assert_int_equal(play_own(&ends[1]).mtu_bytes, 1024);
    for (int i = 0; i < 2; i++)
        assert_int_equal(play_info(&ends[i]).mtu_bytes, 1024);
    assert_moves(ends);
    play_ends_close(ends);
}

static void mtu_of_the_options_counts(void **state)
{
    (void)state;
    const struct {
        uint32_t asked, got;
    } mtus[] = {{0, 4096}, {256, 256}, {1500, 1024}, {4096, 4096}, {9000, 4096}};
    for (size_t i = 0; i < COUNT_OF(mtus); i++) {
        const struct gpusys_qp_options options = {.size = sizeof options, .mtu_bytes = mtus[i].asked};
        struct play_end ends[2] = {{.verbs = NULL}};
        play_end_open(&ends[0], "fake0", &options);
        play_end_open(&ends[1], "fake1", NULL);
        play_connect(ends);
        assert_int_equal(play_info(&ends[0]).mtu_bytes, mtus[i].got);
        assert_int_equal(play_info(&ends[1]).mtu_bytes, mtus[i].got);
        assert_moves(ends);
        play_ends_close(ends);
    }
}

static void mtu_that_is_not_said_is_ours(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "fake0", NULL);
    play_end_open(&ends[1], "fake1", NULL);
    struct gpusys_qp_end peer = play_own(&ends[1]);
    peer.mtu_bytes = peer.reads_in = peer.reads_out = peer.link_layer = 0;
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, NULL), 0);
    struct gpusys_qp_info info = play_info(&ends[0]);
    assert_int_equal(info.mtu_bytes, 4096);
    assert_int_equal(info.reads_out, 16);
    assert_int_equal(info.reads_in, 16);
    play_ends_close(ends);
}

/* small: answers 2 reads at once, and starts 3. */
static void reads_are_the_smaller_of_both_each_way(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "fake0", "small", NULL);
    struct gpusys_qp_info info = play_info(&ends[0]), other = play_info(&ends[1]);
    assert_int_equal(info.reads_out, 2);
    assert_int_equal(info.reads_in, 3);
    assert_int_equal(other.reads_out, 3);
    assert_int_equal(other.reads_in, 2);
    play_ends_close(ends);
}

static void reads_fit_the_attribute(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "fake0", NULL);
    play_end_open(&ends[1], "fake1", NULL);
    struct gpusys_qp_end peer = play_own(&ends[1]);
    peer.reads_in = peer.reads_out = 300;
    ends[0].qp->local.reads_out = ends[0].qp->local.reads_in = 300;
    gpusys_qp_connect(ends[0].qp, &peer, NULL);
    assert_int_equal(play_info(&ends[0]).reads_out, 255); /* and not 300 - 256 */
    assert_int_equal(play_info(&ends[0]).reads_in, 255);
    play_ends_close(ends);
}

/* ---- what the driver is given ---- */

static struct ibv_qp_attr driver_has(const struct play_end *end)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    __typeof__(ibv_query_qp) *query = (__typeof__(ibv_query_qp) *)fake_symbol("ibv_query_qp");
    assert_int_equal(query(end->qp->qp, &attributes, 0, &init), 0);
    return attributes;
}

static void options_reach_the_driver(void **state)
{
    (void)state;
    const struct gpusys_qp_options options = {.size = sizeof options,
                                              .flags = GPUSYS_QP_PSN,
                                              .psn = 0xfffffe,
                                              .hop_limit = 3,
                                              .service_level = 5,
                                              .traffic_class = 0x68,
                                              .ack_timeout = 10,
                                              .retry_count = 3,
                                              .rnr_retry = 2};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "fake0", &options);
    play_end_open(&ends[1], "fake1", NULL);
    play_connect(ends);
    struct ibv_qp_attr has = driver_has(&ends[0]), other = driver_has(&ends[1]);
    assert_int_equal(has.qp_state, IBV_QPS_RTS);
    assert_int_equal(has.sq_psn, 0xfffffe);
    assert_int_equal(other.rq_psn, 0xfffffe);
    assert_int_equal(has.ah_attr.grh.hop_limit, 3);
    assert_int_equal(has.ah_attr.sl, 5);
    assert_int_equal(has.ah_attr.grh.traffic_class, 0x68);
    assert_int_equal(has.timeout, 10);
    assert_int_equal(has.retry_cnt, 3);
    assert_int_equal(has.rnr_retry, 2);
    assert_moves(ends); /* packet numbers go round */
    play_ends_close(ends);
}

static void defaults_reach_the_driver(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "fake0", "fake1", NULL);
    struct ibv_qp_attr has = driver_has(&ends[0]);
    assert_int_equal(has.timeout, 14);
    assert_int_equal(has.retry_cnt, 6);
    assert_int_equal(has.rnr_retry, 7);
    assert_int_equal(has.ah_attr.grh.hop_limit, 64);
    assert_int_equal(has.path_mtu, IBV_MTU_4096);
    play_ends_close(ends);
}

/* ---- the way ---- */

static void assert_way(const char *one, const char *other, bool by_gid)
{
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, one, other, NULL);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr has = driver_has(&ends[i]);
        assert_int_equal(play_info(&ends[i]).uses_grh, by_gid);
        assert_int_equal(has.ah_attr.is_global, by_gid);
        assert_int_equal(has.ah_attr.dlid, play_own(&ends[1 - i]).lid);
        if (by_gid)
            assert_memory_equal(has.ah_attr.grh.dgid.raw, play_own(&ends[1 - i]).gid, 16);
    }
    play_ends_close(ends);
}

static void roce_always_goes_by_gid(void **state)
{
    (void)state;
    assert_way("fake0", "fake1", true);
}

static void infiniband_goes_by_lid(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    assert_way("ib0", "ib1", false);
    play_ends_open(ends, "ib0", "ib1", NULL);
    assert_moves(ends);
    play_ends_close(ends);
}

static void infiniband_goes_by_gid_where_it_must(void **state)
{
    (void)state;
    assert_way("ib0", "ibfar", true);
    assert_way("ib0", "ibgrh", true);
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "ib0", NULL);
    play_end_open(&ends[1], "ib1", NULL);
    struct gpusys_qp_end peer = play_own(&ends[1]);
    peer.lid = 0;
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, NULL), 0);
    assert_int_equal(play_info(&ends[0]).uses_grh, 1);
    play_ends_close(ends);
}

static void another_gid_of_the_port_can_be_asked_for(void **state)
{
    (void)state;
    struct gpusys_qp_options options = {.size = sizeof options, .flags = GPUSYS_QP_GID_INDEX, .gid_index = 0};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "fake0", "fake1", &options);
    assert_int_equal(play_own(&ends[0]).gid_index, 0);
    assert_int_equal(play_own(&ends[0]).gid[0], 0xfe);
    assert_moves(ends);
    play_ends_close(ends);
}

/* ---- what cannot be connected ---- */

struct wrong {
    const char *what;
    size_t offset, size;
    uint32_t value;
    const char *words;
};

static const struct wrong wrongs[] = {
    {"no QPN", offsetof(struct gpusys_qp_end, qpn), 4, 0, "queue pair number is none"},
    {"a long QPN", offsetof(struct gpusys_qp_end, qpn), 4, 0x1000001, "queue pair number is none"},
    {"a long PSN", offsetof(struct gpusys_qp_end, psn), 4, 0x1000000, "more than 24 bits"},
    {"a small MTU", offsetof(struct gpusys_qp_end, mtu_bytes), 4, 128, "MTU is none"},
    {"an odd MTU", offsetof(struct gpusys_qp_end, mtu_bytes), 4, 1500, "MTU is none"},
    {"a large MTU", offsetof(struct gpusys_qp_end, mtu_bytes), 4, 8192, "MTU is none"},
    {"another link", offsetof(struct gpusys_qp_end, link_layer), 4, GPUSYS_LINK_INFINIBAND,
     "InfiniBand on one side and Ethernet on the other"},
    {"no GID", offsetof(struct gpusys_qp_end, gid), 16, 0, "GID is empty"},
    {"another family", offsetof(struct gpusys_qp_end, gid), 10, 0x20, "an IPv4 GID on one side and an IPv6"},
};

static void wrong_ends_are_refused_with_both_sides_values(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "fake0", NULL);
    play_end_open(&ends[1], "fake1", NULL);
    for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
        struct gpusys_error error = {.code = 0};
        struct gpusys_qp_end peer = play_own(&ends[1]);
        memset((char *)&peer + wrongs[i].offset, 0, wrongs[i].size);
        memcpy((char *)&peer + wrongs[i].offset, &wrongs[i].value, 4);
        assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, &error), -EINVAL);
        assert_says(&error, -EINVAL, wrongs[i].words);
        assert_says(&error, -EINVAL, "fake0 port 1");
        assert_non_null(strstr(error.detail, "local\tQPN"));
        assert_non_null(strstr(error.detail, "127.0.0.1, MTU 4096"));
        assert_non_null(strstr(error.detail, "remote\tQPN"));
        assert_true(error.hint[0]);
        assert_int_equal(play_info(&ends[0]).connected, 0);
        assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 0, &error), -ENOTCONN);
    }
    play_connect(ends); /* nothing of that has done it harm */
    assert_moves(ends);
    play_ends_close(ends);
}

static void structs_of_other_versions(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct {
        struct gpusys_qp_end end;
        uint64_t more;
    } newer = {.more = 0};
    play_end_open(&ends[0], "fake0", NULL);
    play_end_open(&ends[1], "fake1", NULL);
    assert_int_equal(gpusys_qp_connect(ends[0].qp, NULL, NULL), -EINVAL);
    newer.end = play_own(&ends[1]);
    newer.end.size = 0;
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &newer.end, NULL), -EINVAL);
    newer.end.size = sizeof newer;
    newer.more = 1;
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &newer.end, NULL), -E2BIG);
    newer.more = 0;
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &newer.end, NULL), 0);
    play_ends_close(ends);
}

struct refusal {
    unsigned nth; /* call of ibv_modify_qp */
    int foreign;
    const char *state, *cause;
};

static const struct refusal refusals[] = {
    {1, EINVAL, "to RTR", "it is the GID"},
    {1, ETIMEDOUT, "to RTR", "did not resolve to a hardware address"},
    {1, ENETUNREACH, "to RTR", "no route"},
    {1, EHOSTUNREACH, "to RTR", "no route"},
    {1, ENODEV, "to RTR", "interface is gone"},
    {1, ENODATA, "to RTR", "taken off the port"},
    {2, EINVAL, "to RTS", NULL},
    {2, ENOMEM, "to RTS", NULL},
};

static void drivers_refusals_are_explained(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        struct gpusys_error error = {.code = 0};
        struct play_end ends[2] = {{.verbs = NULL}};
        play_end_open(&ends[0], "fake0", NULL);
        play_end_open(&ends[1], "fake1", NULL);
        struct gpusys_qp_end peer = play_own(&ends[1]);
        fake.on("ibv_modify_qp", refusals[i].nth, FAKE_IBVERBS_FAIL, (uint64_t)refusals[i].foreign);
        assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, &error), -refusals[i].foreign);
        assert_says(&error, -refusals[i].foreign, refusals[i].state);
        assert_int_equal(error.foreign, refusals[i].foreign);
        assert_non_null(strstr(error.detail, "127.0.0.2"));
        assert_non_null(strstr(error.detail, "MTU 4096, 16 reads out, 16 in, by GID"));
        if (refusals[i].cause)
            assert_non_null(strstr(error.cause, refusals[i].cause));
        else
            assert_string_equal(error.cause, "");
        assert_int_equal(play_info(&ends[0]).connected, 0);
        assert_int_equal(gpusys_qp_post(ends[0].qp, NULL, 0), -ENOTCONN);
        play_ends_close(ends);
    }
}

/* The stand-in resolves as Soft-RoCE does: an address that no live port has takes its time and fails. */
static void an_address_that_nobody_has(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "fake0", NULL);
    play_end_open(&ends[1], "fake1", NULL);
    struct gpusys_qp_end peer = play_own(&ends[1]);
    peer.gid[15] = 99;
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, &error), -ETIMEDOUT);
    assert_says(&error, -ETIMEDOUT, "127.0.0.99");
    assert_non_null(strstr(error.cause, "did not resolve"));
    play_ends_close(ends);
}

static void by_lid_the_cause_is_the_lid(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "ib0", NULL);
    play_end_open(&ends[1], "ib1", NULL);
    struct gpusys_qp_end peer = play_own(&ends[1]);
    fake.on("ibv_modify_qp", 1, FAKE_IBVERBS_FAIL, EINVAL);
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, &error), -EINVAL);
    assert_non_null(strstr(error.cause, "by LID"));
    assert_non_null(strstr(error.detail, "LID 5"));
    assert_non_null(strstr(error.detail, "LID 6"));
    play_ends_close(ends);
}

static void connecting_twice_is_refused(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_error error = {.code = 0};
    play_ends_open(ends, "fake0", "fake1", NULL);
    struct gpusys_qp_end peer = play_own(&ends[1]);
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, &error), -EISCONN);
    assert_says(&error, -EISCONN, "connected already");
    assert_moves(ends);
    play_ends_close(ends);
}

/* ---- once more at a smaller MTU ---- */

/* What the prober does: a read of 16000 bytes at 4096 against 1024 fails, and the peer has counted 16 packets. */
static void reconnecting_counts_packets_on(void **state)
{
    (void)state;
    const struct gpusys_qp_options options = {
        .size = sizeof options, .flags = GPUSYS_QP_PSN, .psn = 0xfffffd};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_end_open(&ends[0], "fake0", &options);
    play_end_open(&ends[1], "small", NULL);
    struct gpusys_qp_end own = play_own(&ends[0]), peer = play_own(&ends[1]);
    peer.mtu_bytes = 0;
    assert_int_equal(gpusys_qp_connect(ends[0].qp, &peer, NULL), 0);
    assert_int_equal(gpusys_qp_connect(ends[1].qp, &own, NULL), 0);
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 5, 0, 0, 16000);
    assert_int_equal(play_one(ends[0].qp, &op), -ETIMEDOUT);
    assert_int_equal(play_info(&ends[0]).dead, -ETIMEDOUT);
    assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 16, NULL), 0);
    struct gpusys_qp_info info = play_info(&ends[0]);
    assert_int_equal(info.mtu_bytes, 1024);
    assert_int_equal(info.connected, 1);
    assert_int_equal(info.dead, 0);
    assert_int_equal(info.local.qpn, own.qpn);
    assert_int_equal(driver_has(&ends[0]).sq_psn, (0xfffffd + 16) & 0xffffff);
    assert_moves(ends);
    play_ends_close(ends);
}

static void reconnecting_wants_a_connection_at_rest(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_error error = {.code = 0};
    play_end_open(&ends[0], "fake0", NULL);
    play_end_open(&ends[1], "fake1", NULL);
    assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 0, &error), -ENOTCONN);
    assert_says(&error, -ENOTCONN, "never connected");
    play_connect(ends);
    const uint32_t mtus[] = {0, 128, 1500, 8192};
    for (size_t i = 0; i < COUNT_OF(mtus); i++)
        assert_int_equal(gpusys_qp_reconnect(ends[0].qp, mtus[i], 0, &error), -EINVAL);
    assert_says(&error, -EINVAL, "8192");
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 5, 0, 0, 50);
    struct gpusys_qp_completion completion;
    fake.hold(1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
    assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 0, &error), -EBUSY);
    assert_says(&error, -EBUSY, "1 requests are under way");
    fake.hold(0);
    fake.release(0);
    assert_int_equal(play_collect(ends[0].qp, &completion, 1), 1);
    fake.on("ibv_modify_qp", 1, FAKE_IBVERBS_FAIL, EIO);
    assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 0, &error), -EIO);
    assert_says(&error, -EIO, "to RESET");
    assert_moves(ends);
    for (unsigned nth = 2; nth <= 4; nth++) { /* INIT, RTR, RTS: it can be tried again */
        fake.on("ibv_modify_qp", nth, FAKE_IBVERBS_FAIL, ENOMEM);
        assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 0, &error), -ENOMEM);
        assert_int_equal(play_info(&ends[0]).connected, 0);
        assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), -ENOTCONN);
    }
    play_ends_close(ends);
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
        cmocka_unit_test_setup(mtu_is_the_smaller_of_both, clear),
        cmocka_unit_test_setup(mtu_of_the_options_counts, clear),
        cmocka_unit_test_setup(mtu_that_is_not_said_is_ours, clear),
        cmocka_unit_test_setup(reads_are_the_smaller_of_both_each_way, clear),
        cmocka_unit_test_setup(reads_fit_the_attribute, clear),
        cmocka_unit_test_setup(options_reach_the_driver, clear),
        cmocka_unit_test_setup(defaults_reach_the_driver, clear),
        cmocka_unit_test_setup(roce_always_goes_by_gid, clear),
        cmocka_unit_test_setup(infiniband_goes_by_lid, clear),
        cmocka_unit_test_setup(infiniband_goes_by_gid_where_it_must, clear),
        cmocka_unit_test_setup(another_gid_of_the_port_can_be_asked_for, clear),
        cmocka_unit_test_setup(wrong_ends_are_refused_with_both_sides_values, clear),
        cmocka_unit_test_setup(structs_of_other_versions, clear),
        cmocka_unit_test_setup(drivers_refusals_are_explained, clear),
        cmocka_unit_test_setup(an_address_that_nobody_has, clear),
        cmocka_unit_test_setup(by_lid_the_cause_is_the_lid, clear),
        cmocka_unit_test_setup(connecting_twice_is_refused, clear),
        cmocka_unit_test_setup(reconnecting_counts_packets_on, clear),
        cmocka_unit_test_setup(reconnecting_wants_a_connection_at_rest, clear),
    };
    return cmocka_run_group_tests_name("queue pairs: connecting", tests, play_begin_all, play_end_all);
}
