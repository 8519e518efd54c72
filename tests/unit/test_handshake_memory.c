/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The handshake when memory runs out, at each of its allocations. Linked with --wrap=malloc and
 * --wrap=calloc. */
#include "handshake_play.h"

#include <limits.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

/* How many allocations still succeed before all fail. */
static int allowed = INT_MAX;

static bool may_allocate(void)
{
    return allowed == INT_MAX || (allowed > 0 && allowed-- > 0);
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

/* A table that does not fit into memory: those before it are given back. */
static void check_client(int successes, const char *words)
{
    const struct script_step steps[] = {SCRIPT_EXPECT("\x02", 1), SCRIPT_GIVE(golden_server_rails_ro[2], 81)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 2, steps, COUNT_OF(steps));
    memset(play.tables, 0, sizeof play.tables);
    assert_int_equal(gpusys_handshake_client_begin(&play.handshake, play.stream, play.dialect, 2,
                                                   play.deadline_ns, &play.error),
                     0);
    allowed = successes;
    int code = play_read_server(&play);
    allowed = INT_MAX;
    assert_failed(&play, code, -ENOMEM, words);
    assert_null(play.tables[0].regions);
    assert_null(play.tables[1].regions);
    play_close(&play);
}

static void test_client(void **state)
{
    (void)state;
    check_client(0, "the table of rail 0, 1 regions: Cannot allocate memory");
    check_client(1, "the table of rail 1, 1 regions: Cannot allocate memory");
}

/* A server without memory has not written half a step. */
static void test_server(void **state)
{
    (void)state;
    const struct script_step steps[] = {SCRIPT_GIVE("\x02", 1)};
    struct play play;
    play_open(&play, GPUSYS_DIALECT_READ_ONLY, 2, steps, COUNT_OF(steps));
    assert_int_equal(gpusys_handshake_server_begin(&play.handshake, play.stream, play.dialect,
                                                   play.deadline_ns, &play.error),
                     0);
    allowed = 0;
    int code = play_write_server(&play);
    allowed = INT_MAX;
    assert_failed(&play, code, -ENOMEM, "the server's rails, 81 bytes: Cannot allocate memory");
    assert_string_equal(script_trace(play.script), "r1");
    play_close(&play);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client),
        cmocka_unit_test(test_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
