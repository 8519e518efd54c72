/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is said of the ports that there are, over a stand-in libibverbs. */
#include "fake_verbs.h"
#include "rail/verbs.h"

#include <errno.h>
#include <setjmp.h>

#include <cmocka.h>

static const char devices[] = "device roce0\n"
                              "ibdev_path FOLDER/roce0\n"
                              "fw_ver 20.31.1014\n"
                              "max_mr_size 1073741824\n"
                              "max_qp_rd_atom 8\n"
                              "max_qp_init_rd_atom 4\n"
                              "port 1\n"
                              "active_mtu 1024\n"
                              "active_width 2\n"
                              "active_speed 128\n"
                              "gid 0 fe80::1 roce1 lo\n"
                              "gid 1 fe80::1 roce2 lo\n"
                              "gid 2 127.0.0.1 roce1 lo\n"
                              "gid 3 127.0.0.1 roce2 lo\n"
                              "gid 4 ::1 roce2 lo\n"
                              "gid 5 198.51.100.9 roce2 lo\n"
                              "gid 6 127.0.0.6 roce2 4000000\n"
                              "gid 7 127.0.0.7 roce2\n"
                              "port 2\n"
                              "state down\n"
                              "device ib0\n"
                              "ibdev_path FOLDER/ib0\n"
                              "port 1\n"
                              "link_layer infiniband\n"
                              "lid 7\n"
                              "sm_lid 1\n"
                              "grh_required yes\n"
                              "active_speed 0\n"
                              "gid 0 fe80::a ib\n"
                              "gid 1 fe80::b ib\n"
                              "device ib1\n"
                              "port 1\n"
                              "link_layer infiniband\n"
                              "state init\n"
                              "device bare\n"
                              "port 1\n"
                              "device faulty\n"
                              "port 1\n"
                              "gid 0 127.0.0.1 roce2 4000000\n";

enum { ROCE0_1, ROCE0_2, IB0, IB1, BARE, FAULTY, PORTS };

static struct gpusys_ports *take(const char *local, const uint8_t *peer)
{
    struct gpusys_ports *ports;
    struct gpusys_error error = {0};
    if (gpusys_ports_new(&ports, local, peer, &error))
        fail_msg("%s", error.message);
    return ports;
}

static struct gpusys_port_info port_at(const struct gpusys_ports *ports, uint32_t at)
{
    struct gpusys_port_info info = {.size = sizeof info};
    assert_int_equal(gpusys_ports_port(ports, at, &info), 0);
    return info;
}

static struct gpusys_gid_info gid_at(const struct gpusys_ports *ports, uint32_t at, uint32_t rank)
{
    struct gpusys_gid_info info = {.size = sizeof info};
    assert_int_equal(gpusys_ports_gid(ports, at, rank, &info), 0);
    return info;
}

static void test_all_ports(void **state)
{
    (void)state;
    struct gpusys_ports *ports = take(NULL, NULL);
    struct gpusys_port_info info = {.size = sizeof info};
    assert_int_equal(gpusys_ports_count(ports), PORTS);
    assert_int_equal(gpusys_ports_port(ports, PORTS, &info), -ENOENT);
    assert_string_equal(port_at(ports, ROCE0_2).device, "roce0");
    assert_int_equal(port_at(ports, ROCE0_2).port, 2);
    assert_string_equal(port_at(ports, IB0).device, "ib0");
    gpusys_ports_free(ports);
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS), 0);
}

static void test_roce_port(void **state)
{
    (void)state;
    struct gpusys_ports *ports = take(NULL, NULL);
    struct gpusys_port_info info = port_at(ports, ROCE0_1);
    gpusys_ports_free(ports);
    assert_int_equal(info.state, GPUSYS_PORT_ACTIVE);
    assert_int_equal(info.link_layer, GPUSYS_LINK_ETHERNET);
    assert_int_equal(info.mtu_bytes, 1024);
    assert_int_equal(info.max_mtu_bytes, 4096);
    assert_int_equal(info.rate_mbps, 400000);
    assert_int_equal(info.numa_node, 1);
    assert_int_equal(info.n_gids, 8);
    assert_int_equal(info.reads_out, 4);
    assert_int_equal(info.reads_in, 8);
    assert_int_equal(info.max_mr_bytes, 1073741824);
    assert_int_equal(info.max_message_bytes, 0x800000);
    assert_int_equal(info.max_cqes, 32767);
    assert_int_equal(info.max_requests, 8192);
    assert_string_equal(info.firmware, "20.31.1014");
    assert_string_equal(info.netdev, "lo");
    assert_string_equal(info.problem, "");
}

static void test_infiniband_port(void **state)
{
    (void)state;
    struct gpusys_ports *ports = take("127.0.0.1", NULL);
    struct gpusys_port_info info = port_at(ports, IB0);
    struct gpusys_gid_info gid = gid_at(ports, IB0, 0);
    gpusys_ports_free(ports);
    assert_int_equal(info.link_layer, GPUSYS_LINK_INFINIBAND);
    assert_int_equal(info.lid, 7);
    assert_int_equal(info.sm_lid, 1);
    assert_int_equal(info.grh_required, 1);
    assert_int_equal(info.numa_node, -1);
    assert_string_equal(info.netdev, "");
    assert_int_equal(info.rate_mbps, 800000); /* no speed of the attribute's: the kernel's file has it */
    assert_int_equal(gid.index, 0);
    assert_int_equal(gid.type, GPUSYS_GID_INFINIBAND);
    assert_string_equal(gid.text, "fe80::a");
    assert_string_equal(gid.reason,
                        "the port GID; InfiniBand is addressed by LID, with the GID only where it must be");
}

/* The ranking is tested by itself; here, that the table was read as it is. */
static void test_gid_table(void **state)
{
    (void)state;
    static const struct {
        uint32_t index, type, usable;
        const char *text, *netdev, *reason;
    } expected[] = {
        {3, GPUSYS_GID_ROCE_V2, 1, "127.0.0.1", "lo", "RoCE v2, global"},
        {4, GPUSYS_GID_ROCE_V2, 1, "::1", "lo", "RoCE v2, global"},
        {1, GPUSYS_GID_ROCE_V2, 1, "fe80::1", "lo", "RoCE v2, link-local, of use on its own segment only"},
        {2, GPUSYS_GID_ROCE_V1, 1, "127.0.0.1", "lo", "RoCE v1, which is not routed, global"},
        {0, GPUSYS_GID_ROCE_V1, 1, "fe80::1", "lo",
         "RoCE v1, which is not routed, link-local, of use on its own segment only"},
        {5, GPUSYS_GID_ROCE_V2, 0, "198.51.100.9", "", "not usable: lo belongs to another network namespace"},
        {6, GPUSYS_GID_ROCE_V2, 0, "127.0.0.6", "",
         "not usable: its interface belongs to another network namespace"},
        {7, GPUSYS_GID_ROCE_V2, 0, "127.0.0.7", "",
         "not usable: nosuch0 belongs to another network namespace"},
    };
    struct gpusys_ports *ports = take(NULL, NULL);
    struct gpusys_gid_info gid = {.size = sizeof gid};
    for (uint32_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        gid = gid_at(ports, ROCE0_1, i);
        assert_int_equal(gid.index, expected[i].index);
        assert_int_equal(gid.type, expected[i].type);
        assert_int_equal(gid.usable, expected[i].usable);
        assert_string_equal(gid.text, expected[i].text);
        assert_string_equal(gid.netdev, expected[i].netdev);
        assert_string_equal(gid.reason, expected[i].reason);
    }
    assert_int_equal(gpusys_ports_gid(ports, ROCE0_1, 8, &gid), -ENOENT);
    gpusys_ports_free(ports);
}

static void test_ranked_for_a_peer(void **state)
{
    (void)state;
    static const uint8_t peer[16] = {0xfd, [15] = 9};
    struct gpusys_ports *ports = take(NULL, peer);
    assert_int_equal(gid_at(ports, ROCE0_1, 0).index, 4);
    gpusys_ports_free(ports);
    ports = take("127.0.0.1:7471", peer);
    assert_int_equal(gid_at(ports, ROCE0_1, 0).index, 3);
    assert_string_equal(gid_at(ports, ROCE0_1, 0).reason, "RoCE v2, the address of the control connection");
    gpusys_ports_free(ports);
}

/* A libibverbs that does not know the call, or a kernel that does not: bytes and files say the same. */
static void test_old_library(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 16; nth++)
        assert_int_equal(FAKE(fake_ibverbs_on)("_ibv_query_gid_ex", nth, FAKE_IBVERBS_FAIL, EOPNOTSUPP), 0);
    struct gpusys_ports *ports = take(NULL, NULL);
    struct gpusys_gid_info gid = gid_at(ports, ROCE0_1, 0);
    assert_int_equal(port_at(ports, ROCE0_1).n_gids, 8);
    assert_int_equal(gid.index, 3);
    assert_int_equal(gid.type, GPUSYS_GID_ROCE_V2);
    assert_int_equal(gid_at(ports, ROCE0_1, 5).index, 2);
    assert_int_equal(gid_at(ports, ROCE0_1, 5).type, GPUSYS_GID_ROCE_V1);
    gpusys_ports_free(ports);
    FAKE(fake_ibverbs_reset)();
}

static void test_problems(void **state)
{
    (void)state;
    static const struct {
        uint32_t at;
        const char *problem;
    } expected[] = {
        {ROCE0_2, "the port is DOWN"},
        {IB0, ""},
        {IB1, "the port is INIT: no subnet manager has brought it up"},
        {BARE, "no GID can be used: the table is empty"},
        {FAULTY, "no GID can be used: not usable: its interface belongs to another network namespace"},
    };
    struct gpusys_ports *ports = take(NULL, NULL);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(port_at(ports, expected[i].at).problem, expected[i].problem);
    gpusys_ports_free(ports);
}

/* One device that does not open must not hide the others. */
static void test_device_that_does_not_open(void **state)
{
    (void)state;
    FAKE(fake_ibverbs_on)("ibv_open_device", 1, FAKE_IBVERBS_FAIL, EPERM);
    struct gpusys_ports *ports = take(NULL, NULL);
    struct gpusys_port_info info = port_at(ports, 0);
    struct gpusys_gid_info gid = {.size = sizeof gid};
    assert_int_equal(gpusys_ports_count(ports), PORTS - 1); /* one line for its two ports */
    assert_string_equal(info.device, "roce0");
    assert_int_equal(info.state, 0);
    assert_int_equal(info.port, 0);
    assert_string_equal(info.problem, "opening the device: Operation not permitted");
    assert_int_equal(gpusys_ports_gid(ports, 0, 0, &gid), -ENOENT);
    assert_string_equal(port_at(ports, 1).device, "ib0");
    gpusys_ports_free(ports);
    FAKE(fake_ibverbs_reset)();
}

static void test_calls_that_fail(void **state)
{
    (void)state;
    static const struct {
        const char *call, *problem;
    } rows[] = {{"ibv_query_device", "opening the device: Input/output error"},
                {"ibv_query_port", "asking about the port: Input/output error"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(FAKE(fake_ibverbs_on)(rows[i].call, 1, FAKE_IBVERBS_FAIL, EIO), 0);
        struct gpusys_ports *ports = take(NULL, NULL);
        assert_string_equal(port_at(ports, 0).problem, rows[i].problem);
        assert_int_equal(port_at(ports, 0).state, 0);
        gpusys_ports_free(ports);
        FAKE(fake_ibverbs_reset)();
        assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS), 0);
    }
}

static void test_status(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    assert_int_equal(gpusys_verbs_status(&error), 0);
    assert_string_equal(error.message, "");
    assert_true(gpusys_verbs_enabled());
    assert_non_null(strstr(gpusys_verbs_library(), "libibverbs.so.1"));
}

static void test_status_when_nothing_opens(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    for (unsigned nth = 1; nth <= 5; nth++)
        FAKE(fake_ibverbs_on)("ibv_open_device", nth, FAKE_IBVERBS_FAIL, EACCES);
    assert_int_equal(gpusys_verbs_status(&error), -EACCES);
    assert_string_equal(error.message, "roce0: opening the device: Permission denied");
    assert_true(error.hint[0]);
    FAKE(fake_ibverbs_reset)();
}

static void test_mtus(void **state)
{
    (void)state;
    assert_int_equal(gs_mtu_bytes(IBV_MTU_256), 256);
    assert_int_equal(gs_mtu_bytes(IBV_MTU_4096), 4096);
    assert_int_equal(gs_mtu_bytes((enum ibv_mtu)0), 0);
    assert_int_equal(gs_mtu_bytes((enum ibv_mtu)6), 0);
    assert_int_equal(gs_mtu_enum(255), 0);
    assert_int_equal(gs_mtu_enum(256), IBV_MTU_256);
    assert_int_equal(gs_mtu_enum(1023), IBV_MTU_512);
    assert_int_equal(gs_mtu_enum(1024), IBV_MTU_1024);
    assert_int_equal(gs_mtu_enum(UINT32_MAX), IBV_MTU_4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ports),
        cmocka_unit_test(test_roce_port),
        cmocka_unit_test(test_infiniband_port),
        cmocka_unit_test(test_gid_table),
        cmocka_unit_test(test_ranked_for_a_peer),
        cmocka_unit_test(test_old_library),
        cmocka_unit_test(test_problems),
        cmocka_unit_test(test_device_that_does_not_open),
        cmocka_unit_test(test_calls_that_fail),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_status_when_nothing_opens),
        cmocka_unit_test(test_mtus),
    };
    fake_start(devices);
    fake_file("roce0/device/numa_node", "1\n");
    fake_file("roce0/ports/1/gid_attrs/ndevs/7", "nosuch0\n");
    for (int index = 0; index < 8; index++) {
        char path[64];
        snprintf(path, sizeof path, "roce0/ports/1/gid_attrs/types/%d", index);
        fake_file(path, index == 0 || index == 2 ? "IB/RoCE v1\n" : "RoCE v2\n");
        snprintf(path, sizeof path, "roce0/ports/1/gid_attrs/ndevs/%d", index);
        if (index < 5)
            fake_file(path, "lo\n");
    }
    fake_file("ib0/ports/1/rate", "800 Gb/sec (4X XDR)\n");
    int failed = cmocka_run_group_tests_name("ports", tests, NULL, NULL);
    fake_end();
    return failed;
}
