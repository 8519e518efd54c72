/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A port that is opened: what may name it, what is wrong with it, what its events do. Over a stand-in libibverbs. */
#include "fake_verbs.h"
#include "rail/verbs.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>

#include <cmocka.h>

static const char devices[] = "device down0\n"
                              "port 1\n"
                              "state down\n"
                              "gid 0 127.0.0.7 roce2 lo\n"
                              "device roce0\n"
                              "port 1\n"
                              "gid 0 fe80::1 roce2 lo\n"
                              "gid 1 127.0.0.1 roce2 lo\n"
                              "gid 2 ::1 roce2 lo\n"
                              "gid 3 198.51.100.9 roce2 lo\n"
                              "port 2\n"
                              "gid 0 127.0.0.2 roce2\n"
                              "device ib0\n"
                              "port 1\n"
                              "link_layer infiniband\n"
                              "lid 7\n"
                              "gid 0 fe80::a ib\n"
                              "gid 1 fe80::b ib\n"
                              "device bare\n"
                              "port 1\n";

static struct gpusys_verbs *open_port(const char *device, uint32_t flags)
{
    struct gpusys_verbs_options options = {.size = sizeof options, .device = device, .flags = flags};
    struct gpusys_verbs *verbs;
    struct gpusys_error error = {0};
    if (gpusys_verbs_open(&verbs, &options, &error))
        fail_msg("%s: %s", device, error.message);
    return verbs;
}

static struct gpusys_port_info port_of(const struct gpusys_verbs *verbs)
{
    struct gpusys_port_info info = {.size = sizeof info};
    assert_int_equal(gpusys_verbs_info(verbs, &info, NULL), 0);
    return info;
}

static struct gpusys_gid_info gid_of(const struct gpusys_verbs *verbs)
{
    struct gpusys_gid_info info = {.size = sizeof info};
    assert_int_equal(gpusys_verbs_info(verbs, NULL, &info), 0);
    return info;
}

static int close_all(void **state)
{
    (void)state;
    FAKE(fake_ibverbs_reset)();
    return FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS) != 0;
}

/* What names a port, and which one it is. */
static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *device;
        uint32_t port, gid_index;
    } names[] = {
        {NULL, "roce0", 1, 1},        {"any", "roce0", 1, 1},     {"", "roce0", 1, 1},
        {"roce0", "roce0", 1, 1},     {"roce0:1", "roce0", 1, 1}, {"roce0:2", "roce0", 2, 0},
        {"ib0", "ib0", 1, 0},         {"lo", "roce0", 1, 1},      {"127.0.0.1", "roce0", 1, 1},
        {"127.0.0.2", "roce0", 2, 0}, {"::1", "roce0", 1, 2},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gpusys_verbs *verbs = open_port(names[i].name, 0);
        struct gpusys_port_info port = port_of(verbs);
        if (strcmp(port.device, names[i].device) != 0 || port.port != names[i].port ||
            gid_of(verbs).index != names[i].gid_index)
            fail_msg("%s: %s port %u, GID %u", names[i].name, port.device, port.port, gid_of(verbs).index);
        assert_int_equal(gpusys_verbs_health(verbs), 0);
        gpusys_verbs_close(verbs);
    }
    gpusys_verbs_close(NULL);
}

/* With "any": a port that has our end of the control connection is better than the first one. */
static void test_local_address(void **state)
{
    (void)state;
    struct gpusys_verbs_options options = {.size = sizeof options, .local_address = "127.0.0.2:7471"};
    struct gpusys_verbs *verbs;
    assert_int_equal(gpusys_verbs_open(&verbs, &options, NULL), 0);
    assert_int_equal(port_of(verbs).port, 2);
    assert_string_equal(gid_of(verbs).reason, "RoCE v2, the address of the control connection");
    gpusys_verbs_close(verbs);
}

/* What cannot be opened: the code, and what the error must say. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int code;
        const char *message, *detail, *hint;
    } rows[] = {
        {"mlx5_9", -ENODEV, "no RDMA device or interface is called \"mlx5_9\"",
         "down0:1\tthe port is DOWN\nroce0:1\tACTIVE, lo, 127.0.0.1\nroce0:2\tACTIVE, 127.0.0.2\n",
         "name one of these"},
        {"roce0:3", -ENODEV, "there is no RDMA device roce0 with a port 3", "roce0:2\tACTIVE",
         "name one of these"},
        {"198.51.100.9", -ENODEV, "198.51.100.9 is not an address of this host", "", "ip -br address"},
        {"down0", -ENETDOWN, "down0 port 1: the port is DOWN", "GID\t0 127.0.0.7", "cable"},
        {"bare:1", -EADDRNOTAVAIL, "bare port 1: no GID can be used: the table is empty", "", "IP address"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gpusys_verbs_options options = {.size = sizeof options, .device = rows[i].device};
        struct gpusys_verbs *verbs = NULL;
        struct gpusys_error error = {0};
        assert_int_equal(gpusys_verbs_open(&verbs, &options, &error), rows[i].code);
        assert_null(verbs);
        assert_int_equal(error.code, rows[i].code);
        assert_string_equal(error.message, rows[i].message);
        if (!strstr(error.detail, rows[i].detail) || !strstr(error.hint, rows[i].hint))
            fail_msg("%s: %s | %s", rows[i].device, error.detail, error.hint);
    }
}

static void test_down_may_be_opened(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("down0", GPUSYS_VERBS_DOWN_OK);
    assert_int_equal(gpusys_verbs_health(verbs), -ENETDOWN);
    assert_int_equal(port_of(verbs).state, GPUSYS_PORT_DOWN);
    assert_int_equal(gid_of(verbs).index, 0);
    gpusys_verbs_close(verbs);
}

static const uint8_t peer4[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2};
static const uint8_t peer6[16] = {0xfd, [15] = 2};

/* A fixed GID index is checked, and both sides' values are said. */
static void test_fixed_gids(void **state)
{
    (void)state;
    static const struct {
        uint32_t index;
        const uint8_t *peer;
        const char *message; /* NULL: it is taken */
        const char *detail;
    } rows[] = {
        {1, NULL, NULL, ""},
        {1, peer4, NULL, ""},
        {0, NULL, NULL, ""},
        {2, peer6, NULL, ""},
        {256, NULL, "roce0 port 1: GID index 256 is above 255, the largest that drivers take", ""},
        {UINT32_MAX, NULL, "roce0 port 1: GID index 4294967295 is above 255, the largest that drivers take",
         ""},
        {16, NULL, "roce0 port 1: GID index 16 is beyond the table, which has 16 entries", ""},
        {7, NULL, "roce0 port 1: GID index 7 is empty", ""},
        {3, NULL, "roce0 port 1: GID index 3 is not usable: lo belongs to another network namespace",
         "local\tGID 3 198.51.100.9 (RoCE v2)"},
        {0, peer6,
         "roce0 port 1: GID index 0 does not reach the peer: it is link-local and the peer's is not",
         "local\tGID 0 fe80::1 (RoCE v2)\npeer\tfd00::2"},
        {1, peer6,
         "roce0 port 1: GID index 1 does not reach the peer: it is an IPv4 address and the peer's is IPv6",
         "local\tGID 1 127.0.0.1 (RoCE v2)\npeer\tfd00::2"},
        {2, peer4,
         "roce0 port 1: GID index 2 does not reach the peer: it is an IPv6 address and the peer's is IPv4",
         "local\tGID 2 ::1 (RoCE v2)\npeer\t10.0.0.2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gpusys_verbs_options options = {.size = sizeof options,
                                               .device = "roce0:1",
                                               .flags = GPUSYS_VERBS_GID_INDEX,
                                               .gid_index = rows[i].index,
                                               .peer = rows[i].peer};
        struct gpusys_verbs *verbs = NULL;
        struct gpusys_error error = {0};
        int code = gpusys_verbs_open(&verbs, &options, &error);
        assert_int_equal(code, rows[i].message ? -EINVAL : 0);
        if (code) {
            assert_string_equal(error.message, rows[i].message);
            assert_string_equal(error.detail, rows[i].detail);
            assert_non_null(strstr(error.hint, "use GID index"));
        } else {
            assert_int_equal(gid_of(verbs).index, rows[i].index);
        }
        gpusys_verbs_close(verbs);
    }
}

static void test_infiniband_has_no_such_rules(void **state)
{
    (void)state;
    struct gpusys_verbs_options options = {.size = sizeof options,
                                           .device = "ib0",
                                           .flags = GPUSYS_VERBS_GID_INDEX,
                                           .gid_index = 1,
                                           .peer = peer4};
    struct gpusys_verbs *verbs;
    assert_int_equal(gpusys_verbs_open(&verbs, &options, NULL), 0);
    assert_int_equal(gid_of(verbs).index, 1);
    assert_int_equal(port_of(verbs).lid, 7);
    gpusys_verbs_close(verbs);
}

static void test_bad_options(void **state)
{
    (void)state;
    struct {
        struct gpusys_verbs_options options;
        uint64_t more;
    } newer = {.options = {.size = sizeof newer}, .more = 1};
    struct gpusys_verbs_options odd = {.size = sizeof odd, .flags = 4};
    struct gpusys_verbs *verbs = NULL;
    struct gpusys_error error = {0};
    assert_int_equal(gpusys_verbs_open(&verbs, &newer.options, &error), -E2BIG);
    assert_int_equal(gpusys_verbs_open(&verbs, &odd, &error), -EINVAL);
    assert_string_equal(error.message, "RDMA port: unknown flags 0x4");
    newer.more = 0;
    assert_int_equal(gpusys_verbs_open(&verbs, &newer.options, &error), 0);
    gpusys_verbs_close(verbs);
}

/* ---- events ---- */

static bool is_readable(const struct gpusys_verbs *verbs)
{
    struct pollfd entry = {.fd = gpusys_verbs_fd(verbs), .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

static struct gpusys_verbs_event next_event(struct gpusys_verbs *verbs)
{
    struct gpusys_verbs_event event = {0};
    assert_true(is_readable(verbs));
    assert_int_equal(gpusys_verbs_event(verbs, &event), 1);
    return event;
}

static void test_no_event(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("roce0", 0);
    struct gpusys_verbs_event event = {.kind = 99};
    assert_false(is_readable(verbs));
    assert_int_equal(gpusys_verbs_event(verbs, &event), 0);
    assert_int_equal(event.kind, 99);
    gpusys_verbs_close(verbs);
}

static void test_port_goes_and_comes(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("roce0", 0);
    FAKE(fake_ibverbs_event)("roce0", IBV_EVENT_PORT_ERR, 1);
    struct gpusys_verbs_event event = next_event(verbs);
    assert_int_equal(event.kind, GPUSYS_EVENT_PORT_DOWN);
    assert_int_equal(event.foreign, IBV_EVENT_PORT_ERR);
    assert_true(event.text[0]);
    assert_int_equal(gpusys_verbs_health(verbs), -ENETDOWN);
    assert_int_equal(port_of(verbs).state, GPUSYS_PORT_DOWN);
    assert_string_equal(port_of(verbs).problem, "the port is DOWN");
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_UNACKED), 0);
    FAKE(fake_ibverbs_event)("roce0", IBV_EVENT_PORT_ACTIVE, 1);
    assert_int_equal(next_event(verbs).kind, GPUSYS_EVENT_PORT_UP);
    assert_int_equal(gpusys_verbs_health(verbs), 0);
    assert_int_equal(port_of(verbs).state, GPUSYS_PORT_ACTIVE);
    assert_false(is_readable(verbs));
    gpusys_verbs_close(verbs);
}

static void test_events_of_the_other_port(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("roce0:2", 0);
    struct gpusys_verbs_event event;
    FAKE(fake_ibverbs_event)("roce0", IBV_EVENT_PORT_ERR, 1);
    assert_int_equal(gpusys_verbs_event(verbs, &event), 0);
    assert_int_equal(gpusys_verbs_health(verbs), 0);
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_UNACKED), 0);
    FAKE(fake_ibverbs_event)("roce0", IBV_EVENT_PORT_ERR, 1);
    FAKE(fake_ibverbs_event)("roce0", IBV_EVENT_LID_CHANGE, 2);
    assert_int_equal(next_event(verbs).kind, GPUSYS_EVENT_OTHER); /* ours, behind the other's */
    gpusys_verbs_close(verbs);
}

static void test_device_goes_for_good(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("roce0", 0);
    FAKE(fake_ibverbs_event)("roce0", IBV_EVENT_DEVICE_FATAL, 0);
    assert_int_equal(next_event(verbs).kind, GPUSYS_EVENT_DEVICE_GONE);
    assert_int_equal(gpusys_verbs_health(verbs), -ENODEV);
    FAKE(fake_ibverbs_event)("roce0", IBV_EVENT_PORT_ACTIVE, 1);
    assert_int_equal(next_event(verbs).kind, GPUSYS_EVENT_PORT_UP);
    assert_int_equal(gpusys_verbs_health(verbs), -ENODEV);
    gpusys_verbs_close(verbs);
}

/* Reading events fails for ever once the device was taken away: said once. */
static void test_reading_events_fails(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("roce0", 0);
    struct gpusys_verbs_event event = {0};
    FAKE(fake_ibverbs_on)("ibv_get_async_event", 1, FAKE_IBVERBS_FAIL, EIO);
    FAKE(fake_ibverbs_on)("ibv_get_async_event", 2, FAKE_IBVERBS_FAIL, EIO);
    assert_int_equal(gpusys_verbs_event(verbs, &event), 1);
    assert_int_equal(event.kind, GPUSYS_EVENT_DEVICE_GONE);
    assert_string_equal(event.text, "reading events: Input/output error");
    assert_int_equal(gpusys_verbs_health(verbs), -ENODEV);
    assert_int_equal(gpusys_verbs_event(verbs, &event), -ENODEV);
    gpusys_verbs_close(verbs);
}

static void test_removed(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("ib0", 0);
    struct gpusys_verbs_event event;
    assert_int_equal(FAKE(fake_ibverbs_remove)("ib0"), 0);
    assert_int_equal(gpusys_verbs_event(verbs, &event), 1);
    assert_int_equal(event.kind, GPUSYS_EVENT_DEVICE_GONE);
    assert_int_equal(gpusys_verbs_health(verbs), -ENODEV);
    gpusys_verbs_close(verbs);
}

static void test_gid_changes(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("roce0", 0);
    assert_int_equal(gid_of(verbs).index, 1);
    FAKE(fake_ibverbs_set_gid)("roce0", 1, 1, "127.0.0.9");
    struct gpusys_verbs_event event = next_event(verbs);
    assert_int_equal(event.kind, GPUSYS_EVENT_GID_CHANGE);
    assert_int_equal(event.gid_changed, 1);
    assert_string_equal(gid_of(verbs).text, "127.0.0.9");
    FAKE(fake_ibverbs_set_gid)("roce0", 1, 1, NULL); /* the next best */
    assert_int_equal(next_event(verbs).gid_changed, 1);
    assert_int_equal(gid_of(verbs).index, 2);
    FAKE(fake_ibverbs_set_gid)("roce0", 1, 0, NULL); /* one that was not ours */
    event = next_event(verbs);
    assert_int_equal(event.kind, GPUSYS_EVENT_GID_CHANGE);
    assert_int_equal(event.gid_changed, 0);
    assert_int_equal(gid_of(verbs).index, 2);
    gpusys_verbs_close(verbs);
}

static void test_fixed_gid_changes(void **state)
{
    (void)state;
    struct gpusys_verbs_options options = {
        .size = sizeof options, .device = "roce0:1", .flags = GPUSYS_VERBS_GID_INDEX, .gid_index = 2};
    struct gpusys_verbs *verbs;
    assert_int_equal(gpusys_verbs_open(&verbs, &options, NULL), 0);
    FAKE(fake_ibverbs_set_gid)("roce0", 1, 1, "127.0.0.9"); /* a better one: but ours is fixed */
    assert_int_equal(next_event(verbs).gid_changed, 0);
    assert_int_equal(gid_of(verbs).index, 2);
    FAKE(fake_ibverbs_set_gid)("roce0", 1, 2, NULL);
    assert_int_equal(next_event(verbs).gid_changed, 1);
    assert_int_equal(gid_of(verbs).index, 2);
    assert_int_equal(gid_of(verbs).usable, 0);
    assert_string_equal(gid_of(verbs).reason, "not usable: the table has it no more");
    gpusys_verbs_close(verbs);
}

static void test_lid_changes(void **state)
{
    (void)state;
    struct gpusys_verbs *verbs = open_port("ib0", 0);
    FAKE(fake_ibverbs_set_lid)("ib0", 1, 99);
    assert_int_equal(next_event(verbs).foreign, IBV_EVENT_LID_CHANGE);
    assert_int_equal(port_of(verbs).lid, 99);
    gpusys_verbs_close(verbs);
}

/* Every call of opening fails once: the code comes back, and nothing is left open. */
static void test_every_call_fails(void **state)
{
    (void)state;
    struct gpusys_verbs_options options = {.size = sizeof options, .device = "roce0:2"};
    FAKE(fake_ibverbs_reset)();
    gpusys_verbs_close(open_port("roce0:2", 0));
    int64_t calls = FAKE(fake_ibverbs_calls)("*");
    int64_t failures = 0;
    assert_true(calls > 3);
    for (unsigned nth = 1; nth <= calls; nth++) {
        struct gpusys_verbs *verbs = NULL;
        FAKE(fake_ibverbs_reset)();
        FAKE(fake_ibverbs_on)("*", nth, FAKE_IBVERBS_FAIL, ENOMEM);
        failures += gpusys_verbs_open(&verbs, &options, NULL) != 0;
        gpusys_verbs_close(verbs);
        assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_KINDS), 0);
    }
    assert_true(failures > 3); /* an entry of the GID table that cannot be read is no failure */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_names, close_all),
        cmocka_unit_test_teardown(test_local_address, close_all),
        cmocka_unit_test_teardown(test_refusals, close_all),
        cmocka_unit_test_teardown(test_down_may_be_opened, close_all),
        cmocka_unit_test_teardown(test_fixed_gids, close_all),
        cmocka_unit_test_teardown(test_infiniband_has_no_such_rules, close_all),
        cmocka_unit_test_teardown(test_bad_options, close_all),
        cmocka_unit_test_teardown(test_no_event, close_all),
        cmocka_unit_test_teardown(test_port_goes_and_comes, close_all),
        cmocka_unit_test_teardown(test_events_of_the_other_port, close_all),
        cmocka_unit_test_teardown(test_device_goes_for_good, close_all),
        cmocka_unit_test_teardown(test_reading_events_fails, close_all),
        cmocka_unit_test_teardown(test_removed, close_all),
        cmocka_unit_test_teardown(test_gid_changes, close_all),
        cmocka_unit_test_teardown(test_fixed_gid_changes, close_all),
        cmocka_unit_test_teardown(test_lid_changes, close_all),
        cmocka_unit_test_teardown(test_every_call_fails, close_all),
    };
    fake_start(devices);
    int failed = cmocka_run_group_tests_name("verbs device", tests, NULL, NULL);
    fake_end();
    return failed;
}
