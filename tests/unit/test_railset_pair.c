/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sets of rails against each other, on two threads: bytes through every rail, domains of the caller's, and
 * MTUs that differ. */
#include "railset_play.h"

/* Both ends of a set that is being tested. */
struct meeting {
    struct play_server server;
    struct play_client client;
    struct gpusys_qp_options server_qp, client_qp; /* for the MTUs */
};

static void meet(struct meeting *meeting, enum gpusys_dialect dialect, uint32_t n_rails)
{
    struct play_pair pair;
    play_pair_open(&pair);
    meeting->server.stream = pair.server;
    meeting->client.stream = pair.client;
    meeting->server.dialect = meeting->client.dialect = dialect;
    meeting->server.options.qp = &meeting->server_qp;
    meeting->client.options.qp = &meeting->client_qp;
    meeting->server_qp.size = meeting->client_qp.size = sizeof meeting->client_qp;
    meeting->client.options.n_rails = n_rails;
    play_server_start(&meeting->server);
}

/* Both sides' codes must be 0. */
static void part(struct meeting *meeting)
{
    play_client_end(&meeting->client);
    assert_int_equal(play_server_end(&meeting->server), 0);
    assert_nothing_is_left();
}

/* ---- bytes ---- */

static void check_reads(struct meeting *meeting, uint32_t rail, uint32_t n_regions)
{
    static unsigned char landed[PLAY_REGION_BYTES];
    const struct gpusys_rail *at = gpusys_railset_rail(meeting->client.set, rail);
    uint32_t count = 0;
    const struct gpusys_region_key *regions = gpusys_railset_regions(meeting->client.set, rail, &count);
    assert_int_equal(count, n_regions);
    for (uint32_t i = 0; i < count; i++) {
        memset(landed, 0, sizeof landed);
        assert_int_equal(
            play_move(at, GPUSYS_QP_READ, landed, regions[i].base, regions[i].rkey, sizeof landed), 0);
        assert_memory_equal(landed, meeting->server.memory + i * PLAY_REGION_BYTES, sizeof landed);
    }
}

static void check_writes(struct meeting *meeting, uint32_t rail)
{
    unsigned char bytes[1000];
    uint32_t count = 0, offset = 5000 * (rail + 1);
    const struct gpusys_region_key *arena = gpusys_railset_regions(meeting->client.set, rail, &count);
    memset(bytes, 0xC0 + (int)rail, sizeof bytes);
    assert_int_equal(count, 1);
    assert_int_equal(play_move(gpusys_railset_rail(meeting->client.set, rail), GPUSYS_QP_WRITE, bytes,
                               arena->base + offset, arena->rkey, sizeof bytes),
                     0);
    assert_memory_equal(meeting->server.memory + offset, bytes, sizeof bytes);
}

static void test_bytes(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(both_dialects); d++)
        for (uint32_t n = 1; n <= PLAY_RAILS; n++) {
            struct meeting meeting = {.server.code = 1};
            bool is_ro = both_dialects[d] == GPUSYS_DIALECT_READ_ONLY;
            meet(&meeting, both_dialects[d], n);
            assert_int_equal(play_client_connect(&meeting.client), 0);
            assert_int_equal(gpusys_railset_count(meeting.client.set), n);
            for (uint32_t rail = 0; rail < n; rail++) {
                check_reads(&meeting, rail, is_ro ? PLAY_REGIONS : 1);
                if (!is_ro)
                    check_writes(&meeting, rail);
            }
            part(&meeting);
        }
}

/* What is served read-only stays as it is. */
static void test_read_only(void **state)
{
    (void)state;
    struct meeting meeting = {.server.code = 1};
    unsigned char bytes[64] = {1};
    uint32_t count;
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 1);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    const struct gpusys_region_key *regions = gpusys_railset_regions(meeting.client.set, 0, &count);
    unsigned char before = meeting.server.memory[0];
    assert_int_equal(play_move(gpusys_railset_rail(meeting.client.set, 0), GPUSYS_QP_WRITE, bytes,
                               regions[0].base, regions[0].rkey, sizeof bytes),
                     -EREMOTEIO);
    assert_int_equal(meeting.server.memory[0], before);
    part(&meeting);
}

/* The GID that is told is the one with the address of the control connection, 127.0.0.1, on either side;
 * other rails take one of the peer's family. */
static void test_gid_of_the_control_connection(void **state)
{
    (void)state;
    struct meeting meeting = {.server.code = 1};
    struct gpusys_qp_info info = {.size = sizeof info};
    play_log_begin();
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 2);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    assert_int_equal(gpusys_qp_info(gpusys_railset_rail(meeting.client.set, 0)->qp, &info), 0);
    assert_memory_equal(info.local.gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01", 16);
    assert_memory_equal(info.remote.gid, info.local.gid, 16);
    assert_int_equal(info.local.gid_index, 3);
    assert_logged("GID 3 127.0.0.1: RoCE v2, the address of the control connection");
    assert_logged("GID 3 127.0.0.2: RoCE v2, global, IPv4 like the peer");
    part(&meeting);
}

/* GIDs by index, one per device. */
static void test_gid_by_index(void **state)
{
    (void)state;
    const uint32_t indices[2] = {2, 2}; /* RoCE v1, which nobody would choose */
    struct meeting meeting = {.server.code = 1};
    struct gpusys_qp_info info = {.size = sizeof info};
    meeting.server.options = (struct gpusys_railset_options){
        .size = sizeof meeting.server.options, .devices = play_devices, .n_devices = 2, .gid_index = indices};
    meeting.client.options = meeting.server.options;
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 2);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(gpusys_qp_info(gpusys_railset_rail(meeting.client.set, i)->qp, &info), 0);
        assert_int_equal(info.local.gid_index, indices[i]);
        check_reads(&meeting, i, PLAY_REGIONS);
    }
    part(&meeting);
}

/* A rail that was taken works on when the set is gone. */
static void test_taken_rail(void **state)
{
    (void)state;
    struct meeting meeting = {.server.code = 1};
    struct gpusys_rail rail;
    unsigned char bytes[512];
    uint32_t count;
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 2);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    struct gpusys_region_key key = *gpusys_railset_regions(meeting.client.set, 1, &count);
    assert_int_equal(gpusys_railset_take(meeting.client.set, 1, &rail), 0);
    assert_int_equal(gpusys_railset_probe(meeting.client.set, 0, PLAY_REGION_BYTES, play_soon(), NULL), 0);
    gpusys_railset_close(meeting.client.set);
    meeting.client.set = NULL;
    assert_int_equal(play_move(&rail, GPUSYS_QP_READ, bytes, key.base, key.rkey, sizeof bytes), 0);
    assert_memory_equal(bytes, meeting.server.memory, sizeof bytes);
    gpusys_rail_close(&rail);
    part(&meeting);
}

/* ---- domains of the caller's ---- */

struct domains {
    struct gpusys_verbs *verbs[2];
    struct gpusys_pd *pds[2];
};

static void domains_open(struct domains *domains)
{
    for (int i = 0; i < 2; i++) {
        const struct gpusys_verbs_options options = {.size = sizeof options, .device = play_devices[i]};
        assert_int_equal(gpusys_verbs_open(&domains->verbs[i], &options, NULL), 0);
        assert_int_equal(gpusys_pd_open(&domains->pds[i], domains->verbs[i], NULL), 0);
    }
}

static void domains_close(struct domains *domains)
{
    for (int i = 0; i < 2; i++) {
        gpusys_pd_close(domains->pds[i]);
        gpusys_verbs_close(domains->verbs[i]);
    }
}

/* Two clients, one after the other, of one server's domains, which it keeps. */
static void test_domains(void **state)
{
    (void)state;
    struct domains domains;
    domains_open(&domains);
    for (int i = 0; i < 2; i++) {
        struct meeting meeting = {.server = {.code = 1, .pds = domains.pds, .options.n_devices = 2}};
        meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 2);
        assert_int_equal(play_client_connect(&meeting.client), 0);
        check_reads(&meeting, 0, PLAY_REGIONS);
        check_reads(&meeting, 1, PLAY_REGIONS);
        play_client_end(&meeting.client);
        assert_int_equal(play_server_end(&meeting.server), 0);
        assert_int_equal(fake.live(FAKE_IBVERBS_PDS), 2);
        assert_int_equal(fake.live(FAKE_IBVERBS_QPS), 0);
    }
    domains_close(&domains);
    assert_nothing_is_left();
}

static void test_more_rails_than_domains(void **state)
{
    (void)state;
    struct domains domains;
    domains_open(&domains);
    struct meeting meeting = {.server = {.pds = domains.pds, .options.n_devices = 1}};
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 2);
    assert_int_equal(play_client_connect(&meeting.client), -ECONNREFUSED);
    assert_says(&meeting.client.error, -ECONNREFUSED, "the server refused this client");
    play_client_end(&meeting.client);
    assert_int_equal(play_server_end(&meeting.server), -ENODEV);
    assert_says(&meeting.server.error, -ENODEV, "asked for 2 rails, here are 1 RDMA ports");
    domains_close(&domains);
    assert_nothing_is_left();
}

/* What is taken from such a set is the queue pair alone. */
static void test_take_with_domains(void **state)
{
    (void)state;
    const uint8_t one = 1;
    struct domains domains;
    const struct gpusys_railset_options options = {.size = sizeof options, .n_devices = 2};
    struct gpusys_railset *set = NULL;
    struct gpusys_rail rail;
    struct play_pair pair;
    domains_open(&domains);
    play_pair_open(&pair);
    assert_int_equal(gpusys_stream_write(pair.client, &one, 1, play_soon(), NULL), 0);
    assert_int_equal(gpusys_railset_accept(&set, pair.server, GPUSYS_DIALECT_READ_ONLY, &options, domains.pds,
                                           play_soon(), NULL),
                     0);
    assert_ptr_equal(gpusys_railset_rail(set, 0)->pd, domains.pds[0]);
    assert_int_equal(gpusys_railset_take(set, 0, &rail), 0);
    assert_non_null(rail.qp);
    assert_null(rail.pd);
    assert_null(rail.verbs);
    gpusys_railset_close(set);
    gpusys_rail_close(&rail);
    domains_close(&domains);
    assert_nothing_is_left();
    gpusys_stream_close(pair.client);
    gpusys_stream_close(pair.server);
}

/* ---- MTUs that differ ---- */

/* Answers that never come take a sixth of it each, where there are two rails. */
static int64_t probe_time(void)
{
    return gpusys_deadline_after(2000000000);
}

static void check_probe(enum gpusys_dialect dialect, uint32_t client_mtu, uint32_t server_mtu, uint32_t psn)
{
    struct meeting meeting = {.server.code = 1};
    struct gpusys_qp_info info = {.size = sizeof info};
    meeting.client_qp =
        (struct gpusys_qp_options){.mtu_bytes = client_mtu, .flags = GPUSYS_QP_PSN, .psn = psn};
    meeting.server_qp.mtu_bytes = server_mtu;
    meet(&meeting, dialect, 2);
    play_log_begin();
    assert_int_equal(play_client_connect(&meeting.client), 0);
    int code =
        gpusys_railset_probe(meeting.client.set, 0, PLAY_REGION_BYTES, probe_time(), &meeting.client.error);
    if (code)
        fail_msg("%u against %u: %s", client_mtu, server_mtu, meeting.client.error.message);
    if (client_mtu != server_mtu)
        assert_logged("rail 1 (fake1 port 1) with the server: MTU ");
    else
        assert_null(strstr(play_log, "as the peer has it"));
    for (uint32_t rail = 0; rail < 2; rail++) {
        assert_int_equal(gpusys_qp_info(gpusys_railset_rail(meeting.client.set, rail)->qp, &info), 0);
        assert_int_equal(info.mtu_bytes, server_mtu);
        check_reads(&meeting, rail, dialect == GPUSYS_DIALECT_READ_ONLY ? PLAY_REGIONS : 1);
        if (dialect == GPUSYS_DIALECT_READ_WRITE)
            check_writes(&meeting, rail);
    }
    assert_int_equal(fake.live(FAKE_IBVERBS_MRS),
                     2 * (dialect == GPUSYS_DIALECT_READ_ONLY ? PLAY_REGIONS : 1));
    part(&meeting);
}

/* The first guess is right, the second is, and packet numbers go round. */
static void test_smaller_mtu(void **state)
{
    (void)state;
    const enum gpusys_dialect ro = GPUSYS_DIALECT_READ_ONLY, rw = GPUSYS_DIALECT_READ_WRITE;
    check_probe(ro, 4096, 4096, 5);
    check_probe(rw, 1024, 1024, 5);
    check_probe(ro, 4096, 1024, 5);
    check_probe(rw, 4096, 1024, 0xFFFFFE);
    check_probe(rw, 4096, 2048, 5);
    check_probe(ro, 4096, 2048, 0xFFFFFC);
    check_probe(ro, 2048, 1024, 5);
    check_probe(ro, 1024, 256, 5);
    check_probe(rw, 512, 256, 5);
}

/* After two tries it is given up, with what was tried; the rail that failed is gone, and nothing of the
 * probe stays. */
static void test_mtu_never_found(void **state)
{
    (void)state;
    struct meeting meeting = {.server.code = 1};
    struct gpusys_rail rail;
    meeting.client_qp.mtu_bytes = 4096;
    meeting.server_qp.mtu_bytes = 512;
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 2);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    assert_int_equal(
        gpusys_railset_probe(meeting.client.set, 0, PLAY_REGION_BYTES, probe_time(), &meeting.client.error),
        -EPROTO);
    assert_says(&meeting.client.error, -EPROTO,
                "rail 0 (fake0 port 1) with the server: reads of 8193 bytes do not "
                "arrive: our MTU is 4096, the peer's is not said, not 1024 nor 2048");
    assert_says(&meeting.client.error, -EPROTO, "give both ports the same MTU");
    assert_int_equal(fake.live(FAKE_IBVERBS_MRS), 2 * PLAY_REGIONS);
    assert_int_equal(gpusys_railset_take(meeting.client.set, 0, &rail), -ENOENT);
    assert_int_equal(gpusys_railset_probe(meeting.client.set, 0, 4096, play_soon(), NULL), -EINVAL);
    part(&meeting);
}

/* A region shorter than our packets: the MTUs that could matter are below it. */
static void test_short_region(void **state)
{
    (void)state;
    struct meeting meeting = {.server.code = 1};
    struct gpusys_qp_info info = {.size = sizeof info};
    meeting.client_qp.mtu_bytes = 4096;
    meeting.server_qp.mtu_bytes = 256;
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 1);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    int64_t posted = fake.calls("ibv_post_send");
    assert_int_equal(gpusys_railset_probe(meeting.client.set, 0, 256, play_soon(), NULL), 0);
    assert_int_equal(fake.calls("ibv_post_send"), posted);
    assert_int_equal(gpusys_railset_probe(meeting.client.set, 0, 600, probe_time(), NULL), 0);
    assert_int_equal(fake.calls("ibv_post_send"), posted + 3); /* 512 and 256 */
    assert_int_equal(gpusys_qp_info(gpusys_railset_rail(meeting.client.set, 0)->qp, &info), 0);
    assert_int_equal(info.mtu_bytes, 256);
    part(&meeting);
}

/* A peer with a larger MTU answers in fewer packets than we count: both start over, and messages are one packet. */
static void check_larger_mtu(enum gpusys_dialect dialect, uint32_t server_mtu)
{
    struct meeting meeting = {.server.code = 1};
    struct gpusys_qp_info info = {.size = sizeof info};
    meeting.client_qp.mtu_bytes = 1024;
    meeting.server_qp.mtu_bytes = server_mtu;
    play_log_begin();
    meet(&meeting, dialect, 1);
    fake.numbers_part(1);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    int code =
        gpusys_railset_probe(meeting.client.set, 0, PLAY_REGION_BYTES, probe_time(), &meeting.client.error);
    if (code)
        fail_msg("1024 against %u: %s", server_mtu, meeting.client.error.message);
    assert_logged("messages of at most 1024 bytes");
    assert_int_equal(gpusys_qp_info(gpusys_railset_rail(meeting.client.set, 0)->qp, &info), 0);
    assert_int_equal(info.max_read_bytes, 1024);
    assert_int_equal(info.max_write_bytes, 1024);
    check_reads(&meeting, 0, dialect == GPUSYS_DIALECT_READ_ONLY ? PLAY_REGIONS : 1);
    if (dialect == GPUSYS_DIALECT_READ_WRITE)
        check_writes(&meeting, 0);
    fake.numbers_part(0);
    part(&meeting);
}

static void test_larger_mtu(void **state)
{
    (void)state;
    check_larger_mtu(GPUSYS_DIALECT_READ_ONLY, 4096);
    check_larger_mtu(GPUSYS_DIALECT_READ_WRITE, 4096);
    check_larger_mtu(GPUSYS_DIALECT_READ_WRITE, 2048);
}

/* A key that is not the region's has nothing to do with MTUs: the probe says so at once. */
static void test_probe_of_a_wrong_key(void **state)
{
    (void)state;
    struct meeting meeting = {.server.code = 1};
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 1);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    int64_t posted = fake.calls("ibv_post_send");
    /* Longer than the region: the same refusal as a wrong key's. */
    uint32_t count;
    struct gpusys_region_key *key =
        (struct gpusys_region_key *)(uintptr_t)gpusys_railset_regions(meeting.client.set, 0, &count);
    key->rkey ^= 0x5500;
    int code =
        gpusys_railset_probe(meeting.client.set, 0, PLAY_REGION_BYTES, probe_time(), &meeting.client.error);
    assert_int_equal(code, -EREMOTEIO);
    assert_says(&meeting.client.error, code, "rail 0 (fake0 port 1) with the server: ");
    assert_int_equal(fake.calls("ibv_post_send"), posted + 1);
    part(&meeting);
}

/* ---- the end of time, and of the peer ---- */

static int probe_in_vain(int64_t deadline_ns, const char *words)
{
    struct meeting meeting = {.server.code = 1};
    meet(&meeting, GPUSYS_DIALECT_READ_ONLY, 2);
    assert_int_equal(play_client_connect(&meeting.client), 0);
    fake.hold(1);
    int64_t before = gpusys_now_ns();
    int code =
        gpusys_railset_probe(meeting.client.set, 0, PLAY_REGION_BYTES, deadline_ns, &meeting.client.error);
    assert_true(gpusys_now_ns() - before < 10000000000);
    assert_says(&meeting.client.error, code, words);
    fake.reset();
    part(&meeting);
    return code;
}

/* A peer that never answers: every try ends by a deadline of its own, and all of them by the caller's. */
static void test_probe_deadline(void **state)
{
    (void)state;
    assert_int_equal(probe_in_vain(0, "rail 0 (fake0 port 1) with the server: reading 8193 bytes as a probe"),
                     -ETIMEDOUT);
    assert_int_equal(probe_in_vain(gpusys_deadline_after(1000000000), "no answer in time"), -EPROTO);
}

struct leaver {
    struct gpusys_railset *set;
    struct gpusys_stream *stream;
    struct gpusys_region_key keys[2];
    int code;
};

static void *serve_and_leave(void *context)
{
    struct leaver *leaver = context;
    leaver->code = gpusys_railset_accept(&leaver->set, leaver->stream, GPUSYS_DIALECT_READ_WRITE, NULL, NULL,
                                         play_soon(), NULL);
    if (!leaver->code)
        leaver->code = gpusys_railset_serve_rw(leaver->set, leaver->keys, play_soon(), NULL);
    gpusys_stream_close(leaver->stream);
    return NULL;
}

/* A peer whose control connection ends is not waited for. */
static void test_peer_leaves_before_the_probe(void **state)
{
    (void)state;
    struct play_pair pair;
    struct play_client client = {.dialect = GPUSYS_DIALECT_READ_WRITE};
    pthread_t thread;
    play_pair_open(&pair);
    struct leaver leaver = {.stream = pair.server};
    client.stream = pair.client;
    assert_int_equal(pthread_create(&thread, NULL, serve_and_leave, &leaver), 0);
    assert_int_equal(play_client_connect(&client), 0);
    pthread_join(thread, NULL);
    assert_int_equal(leaver.code, 0);
    fake.hold(1);
    int64_t before = gpusys_now_ns();
    int code = gpusys_railset_probe(client.set, 0, 4096, gpusys_deadline_after(60000000000), &client.error);
    assert_int_equal(code, -ECONNRESET);
    assert_says(&client.error, code, "rail 0 (fake0 port 1) with the server: the peer closed the connection");
    assert_true(gpusys_now_ns() - before < 10000000000);
    gpusys_railset_close(leaver.set);
    play_client_end(&client);
    fake.reset();
    assert_nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_gid_of_the_control_connection),
        cmocka_unit_test(test_gid_by_index),
        cmocka_unit_test(test_taken_rail),
        cmocka_unit_test(test_domains),
        cmocka_unit_test(test_more_rails_than_domains),
        cmocka_unit_test(test_take_with_domains),
        cmocka_unit_test(test_smaller_mtu),
        cmocka_unit_test(test_mtu_never_found),
        cmocka_unit_test(test_short_region),
        cmocka_unit_test(test_larger_mtu),
        cmocka_unit_test(test_probe_of_a_wrong_key),
        cmocka_unit_test(test_probe_deadline),
        cmocka_unit_test(test_peer_leaves_before_the_probe),
    };
    if (!gpusys_verbs_enabled())
        return PLAY_SKIPPED;
    return cmocka_run_group_tests(tests, play_begin, NULL);
}
