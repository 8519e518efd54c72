/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sets of rails where there is no RDMA: a build without it, or a host without libibverbs. */
#include "railset_play.h"

#include "support/script_stream.h"

static void check(const struct gpusys_railset_options *options)
{
    const int code = gpusys_verbs_enabled() ? -ENOENT : -EOPNOTSUPP;
    const char *words = gpusys_verbs_enabled() ? "libibverbs" : "this build of gpusys has no RDMA";
    const struct script_step steps[] = {SCRIPT_GIVE("\x01", 1)};
    struct script *script = script_new(steps, 1);
    struct gpusys_stream *stream = script_open(script);
    struct gpusys_railset *set = NULL;
    struct gpusys_error error;
    assert_int_equal(
        gpusys_railset_begin(&set, stream, GPUSYS_DIALECT_READ_ONLY, options, play_soon(), &error), code);
    assert_says(&error, code, words);
    assert_int_equal(gpusys_railset_begin(&set, stream, GPUSYS_DIALECT_READ_ONLY, options, play_soon(), NULL),
                     code);
    assert_string_equal(script_trace(script), "");
    assert_int_equal(
        gpusys_railset_accept(&set, stream, GPUSYS_DIALECT_READ_WRITE, options, NULL, play_soon(), &error),
        code);
    assert_says(&error, code, words);
    assert_string_equal(script_trace(script), "r1");
    assert_null(set);
    gpusys_stream_close(stream);
    script_free(script);
}

static void test_no_rdma(void **state)
{
    (void)state;
    setenv("GPUSYS_LIBIBVERBS", "/there/is/no/such/libibverbs.so.1", 1);
    check(NULL);
    check(&(struct gpusys_railset_options){
        .size = sizeof(struct gpusys_railset_options), .devices = play_devices, .n_devices = 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_rdma)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
