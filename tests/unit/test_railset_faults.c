/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Setting up two rails when libibverbs fails, at each of its calls on either side: both come to an end,
 * whoever fails says why, and nothing is left. */
#include "railset_play.h"

/* Devices by name, or every port that is found: there a device that fails is one device less. */
static bool by_name;

/* A set-up from end to end, with a probe. True when both sides are content. */
static bool set_up(enum gpusys_dialect dialect, uint32_t client_mtu)
{
    const struct gpusys_qp_options qp = {.size = sizeof qp, .mtu_bytes = client_mtu},
                                   server_qp = {.size = sizeof server_qp, .mtu_bytes = 1024};
    struct play_pair pair;
    play_pair_open(&pair);
    struct play_server server = {.stream = pair.server, .dialect = dialect, .options.qp = &server_qp};
    struct play_client client = {.stream = pair.client, .dialect = dialect, .options.qp = &qp};
    if (by_name) {
        server.options.devices = client.options.devices = play_devices;
        server.options.n_devices = client.options.n_devices = 2;
    }
    play_server_start(&server);
    int code = play_client_connect(&client);
    if (!code)
        code = gpusys_railset_probe(client.set, 0, PLAY_REGION_BYTES, gpusys_deadline_after(300000000),
                                    &client.error); /* the answers that never come take a sixth of it each */
    play_client_end(&client);
    int server_code = play_server_end(&server);
    if (code) {
        assert_int_equal(client.error.code, code);
        assert_true(client.error.message[0]);
    }
    if (server_code) {
        assert_int_equal(server.error.code, server_code);
        assert_true(server.error.message[0]);
    }
    return !code && !server_code;
}

/* Let one call after the other fail, until all have. How many of them were missed. */
static unsigned fail_each(const char *function, int code, enum gpusys_dialect dialect, uint32_t mtu)
{
    unsigned failures = 0;
    for (unsigned at = 1;; at++) {
        fake.reset();
        assert_int_equal(fake.on(function, at, FAKE_IBVERBS_FAIL, (uint64_t)code), 0);
        failures += !set_up(dialect, mtu);
        bool was_reached = fake.calls(function) >= at;
        assert_nothing_is_left();
        if (!was_reached)
            break;
        assert_true(at < 1000);
    }
    fake.reset();
    assert_true(set_up(dialect, mtu));
    assert_nothing_is_left();
    return failures;
}

static void test_any_call(void **state)
{
    (void)state;
    for (size_t d = 0; d < COUNT_OF(both_dialects); d++) {
        by_name = true;
        assert_true(fail_each("*", EIO, both_dialects[d], 1024) > 20);
        by_name = false;
        assert_true(fail_each("*", ENOMEM, both_dialects[d], 1024) > 20);
    }
}

/* Those that nothing can be done without: each failure is one of the set-up, on the side that had it. */
static void test_every_needed_call(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned calls; /* both sides, two rails, three regions or a probe's */
    } cases[] = {{"ibv_open_device", 4}, {"ibv_alloc_pd", 4},  {"ibv_create_comp_channel", 4},
                 {"ibv_create_cq", 4},   {"ibv_create_qp", 4}, {"ibv_modify_qp", 12}};
    by_name = true;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(fail_each(cases[i].name, EIO, GPUSYS_DIALECT_READ_ONLY, 1024), cases[i].calls);
    assert_int_equal(fail_each("ibv_reg_mr", EFAULT, GPUSYS_DIALECT_READ_ONLY, 1024), 2 * PLAY_REGIONS + 2);
    assert_int_equal(fail_each("ibv_reg_mr", EFAULT, GPUSYS_DIALECT_READ_WRITE, 1024), 2 + 2);
    assert_int_equal(fail_each("ibv_post_send", EIO, GPUSYS_DIALECT_READ_WRITE, 1024), 6);
}

/* Lowering the MTU is a way of its own: RESET, INIT, RTR, RTS for each rail, at the client. */
static void test_lowering_the_mtu(void **state)
{
    (void)state;
    by_name = true;
    assert_int_equal(fail_each("ibv_modify_qp", EIO, GPUSYS_DIALECT_READ_ONLY, 1024), 12);
    assert_in_range(fail_each("ibv_modify_qp", EIO, GPUSYS_DIALECT_READ_ONLY, 4096), 12 + 8, 12 + 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_call),
        cmocka_unit_test(test_every_needed_call),
        cmocka_unit_test(test_lowering_the_mtu),
    };
    if (!gpusys_verbs_enabled())
        return PLAY_SKIPPED;
    return cmocka_run_group_tests(tests, play_begin, NULL);
}
