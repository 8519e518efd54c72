/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which ports a remote and a peer use, why, and what is said when there are none. Over the stand-in libibverbs. */
#include "remote_verbs_play.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdatomic.h>

/* ---- what the linker puts in between ---- */

static bool pretend_remote; /* connections leave this host */
bool __real_gs_socket_is_local(int fd);
bool __wrap_gs_socket_is_local(int fd);
bool __wrap_gs_socket_is_local(int fd)
{
    return !pretend_remote && __real_gs_socket_is_local(fd);
}

/* Interfaces of this host, as the pairing sees them: address and mask, NULL-terminated; NULL: the real ones. */
static const char *const (*pretend_interfaces)[2];
int __real_getifaddrs(struct ifaddrs **ret_list);
int __wrap_getifaddrs(struct ifaddrs **ret_list);
void __real_freeifaddrs(struct ifaddrs *list);
void __wrap_freeifaddrs(struct ifaddrs *list);

struct pretended {
    struct ifaddrs entry;
    struct sockaddr_in address, mask;
};

int __wrap_getifaddrs(struct ifaddrs **ret_list)
{
    struct ifaddrs **link = ret_list;
    static char name[] = "pretended";
    if (!pretend_interfaces)
        return __real_getifaddrs(ret_list);
    for (size_t i = 0; pretend_interfaces[i][0]; i++) {
        struct pretended *at = calloc(1, sizeof *at);
        at->address.sin_family = at->mask.sin_family = AF_INET;
        inet_pton(AF_INET, pretend_interfaces[i][0], &at->address.sin_addr);
        inet_pton(AF_INET, pretend_interfaces[i][1], &at->mask.sin_addr);
        at->entry.ifa_name = name;
        at->entry.ifa_addr = (struct sockaddr *)&at->address;
        at->entry.ifa_netmask = (struct sockaddr *)&at->mask;
        *link = &at->entry;
        link = &at->entry.ifa_next;
    }
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
    if (!pretend_interfaces) {
        __real_freeifaddrs(list);
        return;
    }
    while (list) {
        struct ifaddrs *next = list->ifa_next;
        free(list);
        list = next;
    }
}

/* Queue pairs that were connected, and those of them that put a GRH on every packet. */
static atomic_uint connected, with_grh;
int __real_gpusys_qp_connect(struct gpusys_qp *qp, const struct gpusys_qp_end *peer,
                             struct gpusys_error *error);
int __wrap_gpusys_qp_connect(struct gpusys_qp *qp, const struct gpusys_qp_end *peer,
                             struct gpusys_error *error);
int __wrap_gpusys_qp_connect(struct gpusys_qp *qp, const struct gpusys_qp_end *peer,
                             struct gpusys_error *error)
{
    struct gpusys_qp_info info = {.size = sizeof info};
    int result = __real_gpusys_qp_connect(qp, peer, error);
    gpusys_qp_info(qp, &info);
    atomic_fetch_add(&connected, 1);
    atomic_fetch_add(&with_grh, info.uses_grh);
    return result;
}

/* ---- helpers ---- */

/* Opening fails with that code; the error's text, all of it, for looking into. */
static const char *open_fails(const struct verbs_world *world, const struct gpusys_remote_options *options,
                              int code)
{
    static char text[4096];
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error = {0};
    int result = gpusys_remote_open(&remote, gpusys_peer_address(world->peer), options, &error);
    gpusys_error_format(&error, text, sizeof text);
    if (result != code)
        fail_msg("%d, not %d: %s", result, code, text);
    assert_null(remote);
    assert_int_equal(error.code, code);
    return text;
}

static void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("\"%s\" is not in: %s", words, text ? text : "");
}

static void check_reads(const struct verbs_world *world, struct gpusys_remote *remote)
{
    memset(world->buffer, 0, VERBS_MEMORY_BYTES);
    assert_int_equal(
        gpusys_remote_read(remote, VERBS_READ_ONLY, 0, world->buffer, VERBS_MEMORY_BYTES, verbs_patience), 0);
    assert_memory_equal(world->buffer, world->read_only, VERBS_MEMORY_BYTES);
}

/* ---- two RoCE ports ---- */

static void test_loopback_prefers_shm(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_serve(&world, NULL, NULL);
    assert_int_equal(play_stats(world.peer).ports, 2);
    struct gpusys_remote_options options = {.size = sizeof options};
    world.remote = verbs_remote(&world, &options);
    assert_int_equal(verbs_info(world.remote).transport, GPUSYS_TRANSPORT_SHM);
    expect_words(verbs_info(world.remote).reason, "same host");
    assert_int_equal(play_stats(world.peer).rails_total, 0);
    verbs_world_close(&world);
}

static void test_required(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_open(&world);
    struct gpusys_remote_info info = verbs_info(world.remote);
    assert_int_equal(info.transport, GPUSYS_TRANSPORT_VERBS);
    assert_int_equal(info.n_rails, 2);
    assert_string_equal(info.reason, "required; 2 of 2 pairs of RDMA ports");
    assert_int_equal(play_stats(world.peer).rails_total, 2);
    check_reads(&world, world.remote);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct gpusys_rail_info rail = verbs_rail(world.remote, i);
        assert_true(rail.transport == GPUSYS_TRANSPORT_VERBS && rail.is_up);
        assert_string_equal(rail.local_device, i ? "fake1" : "fake0");
        assert_string_equal(rail.remote_device, rail.local_device);
        assert_string_equal(rail.local_gid, i ? "127.0.0.2" : "127.0.0.1");
        assert_string_equal(rail.remote_gid, rail.local_gid);
        assert_true(rail.local_gid_index == 3 && rail.remote_gid_index == 3 && rail.local_port == 1);
        assert_int_equal(rail.link_layer, GPUSYS_LINK_ETHERNET);
        assert_true(rail.mtu_bytes == 4096 && rail.reads_out == 16);
        bytes += rail.bytes;
    }
    assert_int_equal(bytes, VERBS_MEMORY_BYTES);
    struct gpusys_rail_info none = {.size = sizeof none};
    assert_int_equal(gpusys_remote_rail(world.remote, 2, &none), -ENOENT);
    verbs_world_close(&world);
}

static void test_over_a_unix_socket(void **state)
{
    (void)state;
    struct verbs_world world;
    char listen_at[256];
    snprintf(listen_at, sizeof listen_at, "unix:%s", play_path("verbs.sock"));
    verbs_world_serve(
        &world,
        &(struct gpusys_peer_options){.size = sizeof(struct gpusys_peer_options), .listen = listen_at}, NULL);
    world.remote = verbs_remote(&world, NULL);
    assert_int_equal(verbs_info(world.remote).transport, GPUSYS_TRANSPORT_VERBS);
    check_reads(&world, world.remote);
    verbs_world_close(&world);
}

static void test_number_of_rails(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = verbs_options();
    verbs_world_serve(&world, NULL, NULL);
    for (uint32_t n = 1; n <= 2; n++) {
        options.n_rails = n;
        struct gpusys_remote *remote = verbs_remote(&world, &options);
        assert_int_equal(verbs_info(remote).n_rails, n);
        check_reads(&world, remote);
        gpusys_remote_close(remote);
    }
    options.n_rails = 3;
    const char *text = open_fails(&world, &options, -ENODEV);
    expect_words(text, "verbs was required");
    expect_words(text, "3 rails were asked for, and 2 are to be had");
    expect_words(text, "2 here, 2 at the peer, 2 pairs");
    options.n_rails = 9;
    expect_words(open_fails(&world, &options, -EINVAL), "9 rails, of at most 8");
    verbs_world_close(&world);
}

static void test_named_devices(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = verbs_options();
    struct gpusys_peer_options peer_options = {
        .size = sizeof peer_options, .devices = (const char *[]){"fake1"}, .n_devices = 1};
    verbs_world_serve(&world, &peer_options, NULL);
    assert_int_equal(play_stats(world.peer).ports, 1);
    options.devices = (const char *[]){"fake0:1"};
    options.n_devices = 1;
    world.remote = verbs_remote(&world, &options);
    assert_int_equal(verbs_info(world.remote).n_rails, 1);
    assert_string_equal(verbs_rail(world.remote, 0).local_device, "fake0");
    assert_string_equal(verbs_rail(world.remote, 0).remote_device, "fake1");
    check_reads(&world, world.remote);
    options.devices = (const char *[]){"fake0", "nonesuch"};
    options.n_devices = 2;
    expect_words(open_fails(&world, &options, -ENODEV), "nonesuch");
    options.require = GPUSYS_TRANSPORT_ANY; /* on one host no port is opened for that */
    gpusys_remote_close(verbs_remote(&world, &options));
    verbs_world_close(&world);
}

static void test_peers_named_devices(void **state)
{
    (void)state;
    struct gpusys_peer *peer = NULL;
    struct gpusys_error error = {0};
    struct gpusys_peer_options options = {.size = sizeof options,
                                          .listen = "127.0.0.1:0",
                                          .devices = (const char *[]){"fake0", "nonesuch"},
                                          .n_devices = 2};
    assert_int_equal(gpusys_peer_open(&peer, &options, &error), -ENODEV);
    expect_words(error.message, "nonesuch");
    options.flags = GPUSYS_PEER_NO_VERBS;
    assert_int_equal(gpusys_peer_open(&peer, &options, &error), -EINVAL);
    assert_null(peer);
}

static void test_no_verbs(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = verbs_options();
    struct gpusys_peer_options peer_options = {.size = sizeof peer_options, .flags = GPUSYS_PEER_NO_VERBS};
    verbs_world_serve(&world, &peer_options, NULL);
    assert_int_equal(play_stats(world.peer).ports, 0);
    const char *text = open_fails(&world, &options, -EOPNOTSUPP);
    expect_words(text, "the peer offers no RDMA port");
    expect_words(text, "2 here, 0 at the peer, 0 pairs");
    verbs_world_close(&world);
}

/* A pair whose first read comes back with an error is left out, for a reason that is told. */
static void test_one_probe_fails(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 2; nth++) {
        struct verbs_world world;
        verbs_world_serve(&world, NULL, NULL);
        FAKE(fake_ibverbs_on)("ibv_post_send", nth, FAKE_IBVERBS_COMPLETE, IBV_WC_RETRY_EXC_ERR);
        world.remote = verbs_remote(&world, NULL);
        struct gpusys_remote_info info = verbs_info(world.remote);
        assert_int_equal(info.n_rails, 1);
        expect_words(info.reason, "1 of 2 pairs of RDMA ports; the last to fail: ");
        assert_string_equal(verbs_rail(world.remote, 0).local_device, nth == 1 ? "fake1" : "fake0");
        check_reads(&world, world.remote);
        verbs_world_close(&world);
        FAKE(fake_ibverbs_reset)();
    }
}

static void test_all_probes_fail(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = verbs_options();
    verbs_world_serve(&world, NULL, NULL);
    FAKE(fake_ibverbs_on)("ibv_post_send", 1, FAKE_IBVERBS_COMPLETE, IBV_WC_RETRY_EXC_ERR);
    FAKE(fake_ibverbs_on)("ibv_post_send", 2, FAKE_IBVERBS_COMPLETE, IBV_WC_RETRY_EXC_ERR);
    const char *text = open_fails(&world, &options, -ETIMEDOUT);
    expect_words(text, "verbs was required");
    expect_words(text, "fake1");
    verbs_world_close(&world);
}

/* A probe that hangs is left out after its time, and the other one serves. */
static void test_a_probe_hangs(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = verbs_options();
    verbs_world_serve(&world, NULL, NULL);
    options.n_devices = 1;
    options.devices = (const char *[]){"fake0"};
    FAKE(fake_ibverbs_hold)(1);
    int64_t start = gpusys_now_ns();
    expect_words(open_fails(&world, &options, -ETIMEDOUT), "did not arrive");
    assert_true(gpusys_now_ns() - start < 10 * play_second);
    FAKE(fake_ibverbs_hold)(0);
    verbs_world_close(&world);
}

/* A port that goes down at the peer keeps its place in the offers and is not paired. */
static void test_a_port_is_down_at_the_peer(void **state)
{
    (void)state;
    struct verbs_world world;
    verbs_world_serve(&world, NULL, NULL);
    play_log_begin();
    FAKE(fake_ibverbs_event)("fake0", IBV_EVENT_PORT_ERR, 1);
    assert_true(play_log_comes("fake0 port 1: "));
    play_log_end();
    world.remote = verbs_remote(&world, NULL);
    assert_int_equal(verbs_info(world.remote).n_rails, 1);
    assert_string_equal(verbs_info(world.remote).reason, "required; 1 of 1 pairs of RDMA ports");
    assert_string_equal(verbs_rail(world.remote, 0).remote_device, "fake1");
    check_reads(&world, world.remote);
    verbs_world_close(&world);
}

/* ---- between hosts ---- */

/* No cookie and no Unix socket in common, as between two hosts. */
static void serve_afar(struct verbs_world *world, uint32_t flags)
{
    char path[300];
    struct gpusys_peer_options options = {.size = sizeof options, .flags = GPUSYS_PEER_INSECURE | flags};
    verbs_world_serve(world, &options, NULL);
    snprintf(path, sizeof path, "%s", play_cookie_path(gpusys_peer_address(world->peer)));
    strcpy(strrchr(path, '.'), ".sock");
    assert_int_equal(unlink(path), 0);
    pretend_remote = true;
}

static void test_any_between_hosts(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = {.size = sizeof options};
    serve_afar(&world, 0);
    world.remote = verbs_remote(&world, &options);
    assert_int_equal(verbs_info(world.remote).transport, GPUSYS_TRANSPORT_VERBS);
    assert_string_equal(verbs_info(world.remote).reason, "2 of 2 pairs of RDMA ports");
    check_reads(&world, world.remote);
    pretend_remote = false;
    verbs_world_close(&world);
}

static void test_tcp_when_there_is_none(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = {.size = sizeof options};
    serve_afar(&world, GPUSYS_PEER_NO_VERBS);
    world.remote = verbs_remote(&world, &options);
    assert_int_equal(verbs_info(world.remote).transport, GPUSYS_TRANSPORT_TCP);
    assert_string_equal(verbs_info(world.remote).reason, "no verbs: the peer offers no RDMA port");
    pretend_remote = false;
    verbs_world_close(&world);
}

/* Rails that were attached and turned out to be of no use are not in the way of the tcp rail of the same number. */
static void test_tcp_when_no_probe_comes_back(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_remote_options options = {.size = sizeof options};
    serve_afar(&world, 0);
    for (unsigned i = 0; i < 50; i++) {
        FAKE(fake_ibverbs_on)("ibv_post_send", 1, FAKE_IBVERBS_COMPLETE, IBV_WC_RETRY_EXC_ERR);
        FAKE(fake_ibverbs_on)("ibv_post_send", 2, FAKE_IBVERBS_COMPLETE, IBV_WC_RETRY_EXC_ERR);
        struct gpusys_remote *remote = verbs_remote(&world, &options);
        assert_int_equal(verbs_info(remote).transport, GPUSYS_TRANSPORT_TCP);
        expect_words(verbs_info(remote).reason, "no verbs: ");
        gpusys_remote_close(remote);
        FAKE(fake_ibverbs_reset)();
    }
    pretend_remote = false;
    verbs_world_close(&world);
}

/* ---- no library here ---- */

static void fill_nothing(struct gpusys_peer *peer)
{
    (void)peer;
}

static void test_no_library(void **state)
{
    (void)state;
    struct play_child child = {0};
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error = {0};
    play_child_start(&child, NULL, fill_nothing);
    setenv("GPUSYS_LIBIBVERBS", "/nonexistent/libibverbs.so.1", 1);
    struct gpusys_remote_options options = verbs_options();
    assert_int_equal(gpusys_remote_open(&remote, child.address, &options, &error), -EOPNOTSUPP);
    expect_words(error.message, "verbs was required and is not to be had");
    expect_words(error.message, "libibverbs");
    expect_words(error.hint, "GPUSYS_LIBIBVERBS");
    options.require = GPUSYS_TRANSPORT_ANY;
    assert_int_equal(gpusys_remote_open(&remote, child.address, &options, &error), 0);
    gpusys_remote_close(remote);
    struct gpusys_peer *peer = play_peer(NULL); /* and a peer without it offers none */
    assert_int_equal(play_stats(peer).ports, 0);
    gpusys_peer_close(peer);
    play_child_stop(&child);
}

/* ---- InfiniBand and RoCE ---- */

static const char mixed[] =
    "device roce0\nport 1\ngid 0 127.0.0.1 roce2 lo\n"
    "device ib0\nport 1\nlink_layer infiniband\nlid 7\ngid 0 fe80::a ib\n"
    "device ib1\nport 1\nlink_layer infiniband\nlid 9\ngrh_required yes\ngid 0 fe80::b ib\n"
    "device ib2\nport 1\nlink_layer infiniband\nlid 11\ngid 0 fec0::c ib\n";

static struct gpusys_remote_options with_device(const char *const *device)
{
    struct gpusys_remote_options options = verbs_options();
    options.devices = device;
    options.n_devices = 1;
    return options;
}

static void check_mixed(const char *at_the_peer, const char *here, bool same_subnet, bool grh)
{
    struct verbs_world world;
    struct gpusys_peer_options peer_options = {
        .size = sizeof peer_options, .devices = &at_the_peer, .n_devices = 1};
    struct gpusys_remote_options options = with_device(&here);
    verbs_world_serve(&world, &peer_options, NULL);
    atomic_store(&connected, 0);
    atomic_store(&with_grh, 0);
    world.remote = verbs_remote(&world, &options);
    assert_int_equal(atomic_load(&connected), 2);
    assert_int_equal(atomic_load(&with_grh), grh ? 2 : 0);
    struct gpusys_rail_info rail = verbs_rail(world.remote, 0);
    assert_int_equal(rail.link_layer, GPUSYS_LINK_INFINIBAND);
    assert_int_equal(rail.same_subnet, same_subnet);
    check_reads(&world, world.remote);
    verbs_world_close(&world);
}

static void test_infiniband(void **state)
{
    (void)state;
    check_mixed("ib0", "ib0", true, false);
    check_mixed("ib1", "ib0", true, true); /* the peer must have a GRH on every packet, and we are told so */
    check_mixed("ib0", "ib1", true, true);
    check_mixed("ib2", "ib0", false, true);
}

static void test_link_layers_differ(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_peer_options peer_options = {
        .size = sizeof peer_options, .devices = (const char *[]){"ib0"}, .n_devices = 1};
    verbs_world_serve(&world, &peer_options, NULL);
    const char *device = "roce0";
    struct gpusys_remote_options options = with_device(&device);
    expect_words(open_fails(&world, &options, -EOPNOTSUPP),
                 "none of 1 RDMA ports here goes with one of 1 at the peer");
    verbs_world_close(&world);
}

/* ---- subnets ---- */

/* a and c are in one subnet, b and d in another. */
static const char subnets[] = "device a\nport 1\ngid 0 10.1.0.1 roce2\n"
                              "device b\nport 1\ngid 0 10.2.0.1 roce2\n"
                              "device c\nport 1\ngid 0 10.1.0.2 roce2\n"
                              "device d\nport 1\ngid 0 10.2.0.2 roce2\n"
                              "device e\nport 1\ngid 0 10.3.0.2 roce2\n";
static const char *const interfaces[][2] = {
    {"10.1.0.1", "255.255.0.0"}, {"10.2.0.1", "255.255.0.0"}, {"127.0.0.1", "255.0.0.0"}, {NULL, NULL}};

/* The peer lists them the other way round. */
static void test_pairing_by_subnet(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_peer_options peer_options = {
        .size = sizeof peer_options, .devices = (const char *[]){"e", "d", "c"}, .n_devices = 3};
    struct gpusys_remote_options options = verbs_options();
    options.devices = (const char *[]){"a", "b"};
    options.n_devices = 2;
    verbs_world_serve(&world, &peer_options, NULL);
    pretend_interfaces = interfaces;
    world.remote = verbs_remote(&world, &options);
    pretend_interfaces = NULL;
    assert_int_equal(verbs_info(world.remote).n_rails, 2);
    struct gpusys_rail_info first = verbs_rail(world.remote, 0), second = verbs_rail(world.remote, 1);
    assert_string_equal(first.local_device, "b");
    assert_string_equal(first.remote_device, "d");
    assert_string_equal(second.local_device, "a");
    assert_string_equal(second.remote_device, "c");
    assert_true(first.same_subnet && second.same_subnet);
    assert_string_equal(second.remote_gid, "10.1.0.2");
    check_reads(&world, world.remote);
    verbs_world_close(&world);
}

/* What is in no subnet of ours is paired in order, behind those that are. */
static void test_the_rest_is_paired_in_order(void **state)
{
    (void)state;
    struct verbs_world world;
    struct gpusys_peer_options peer_options = {
        .size = sizeof peer_options, .devices = (const char *[]){"e", "c"}, .n_devices = 2};
    struct gpusys_remote_options options = verbs_options();
    options.devices = (const char *[]){"a", "b"};
    options.n_devices = 2;
    verbs_world_serve(&world, &peer_options, NULL);
    pretend_interfaces = interfaces;
    world.remote = verbs_remote(&world, &options);
    pretend_interfaces = NULL;
    assert_int_equal(verbs_info(world.remote).n_rails, 2);
    struct gpusys_rail_info first = verbs_rail(world.remote, 0), second = verbs_rail(world.remote, 1);
    assert_string_equal(first.remote_device, "c");
    assert_string_equal(first.local_device, "a");
    assert_string_equal(second.remote_device, "e");
    assert_string_equal(second.local_device, "b");
    assert_true(first.same_subnet && !second.same_subnet);
    verbs_world_close(&world);
}

int main(int argc, char **argv)
{
    static const char plain[] = "device fake0\nport 1\ngid 0 fe80::1 roce1 lo\ngid 3 127.0.0.1 roce2 lo\n"
                                "device fake1\nport 1\ngid 3 127.0.0.2 roce2 lo\n";
    const struct CMUnitTest on_plain[] = {
        VERBS_TEST(test_loopback_prefers_shm),
        VERBS_TEST(test_required),
        VERBS_TEST(test_over_a_unix_socket),
        VERBS_TEST(test_number_of_rails),
        VERBS_TEST(test_named_devices),
        VERBS_TEST(test_peers_named_devices),
        VERBS_TEST(test_no_verbs),
        VERBS_TEST(test_one_probe_fails),
        VERBS_TEST(test_all_probes_fail),
        VERBS_TEST(test_a_probe_hangs),
        VERBS_TEST(test_a_port_is_down_at_the_peer),
        VERBS_TEST(test_any_between_hosts),
        VERBS_TEST(test_tcp_when_there_is_none),
        VERBS_TEST(test_tcp_when_no_probe_comes_back),
    };
    const struct CMUnitTest without[] = {cmocka_unit_test(test_no_library)};
    const struct CMUnitTest on_mixed[] = {VERBS_TEST(test_infiniband), VERBS_TEST(test_link_layers_differ)};
    const struct CMUnitTest on_subnets[] = {VERBS_TEST(test_pairing_by_subnet),
                                            VERBS_TEST(test_the_rest_is_paired_in_order)};
    const struct verbs_group groups[] = {
        {"two ports", plain, on_plain, COUNT_OF(on_plain)},
        {"no library", plain, without, COUNT_OF(without)},
        {"link layers", mixed, on_mixed, COUNT_OF(on_mixed)},
        {"subnets", subnets, on_subnets, COUNT_OF(on_subnets)},
    };
    return verbs_groups_run(groups, COUNT_OF(groups), argc > 1 ? argv[1] : NULL);
}
