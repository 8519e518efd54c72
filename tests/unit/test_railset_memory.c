/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sets of rails when memory runs out, at each of the client's allocations and of the server's. Linked with
 * --wrap=malloc and --wrap=calloc. */
#include "railset_play.h"

#include <limits.h>

#include "support/script_stream.h"

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

#define GID "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01"
#define QP                                                                                                   \
    "\x03\x02\x01\0"                                                                                         \
    "\x07\x06\x05\0" GID
#define KEY                                                                                                  \
    "\x88\x77\x66\x55\x44\x33\x22\x11"                                                                       \
    "\xcc\xbb\xaa\x99"
#define TABLES "\x02" QP "\x01\0\0\0" KEY QP "\x01\0\0\0" KEY
#define ARENAS "\x02" QP KEY QP KEY

/* One side over a script, with only so many allocations; what it came to. */
static int play_with(bool is_server, enum gpusys_dialect dialect, int successes, struct gpusys_error *error)
{
    bool is_ro = dialect == GPUSYS_DIALECT_READ_ONLY;
    size_t size = is_ro ? 81 : 73;
    const struct script_step client_steps[] = {SCRIPT_ANY(1), SCRIPT_GIVE(is_ro ? TABLES : ARENAS, size),
                                               SCRIPT_ANY(49), SCRIPT_GIVE("", 1)};
    const struct script_step server_steps[] = {SCRIPT_GIVE("\x02", 1), SCRIPT_ANY(size),
                                               SCRIPT_GIVE("\x02" QP QP, 49), SCRIPT_ANY(1)};
    const struct gpusys_region_key keys[2] = {{.base = 1}, {.base = 1}}, *const tables[2] = {keys, keys};
    struct script *script = script_new(is_server ? server_steps : client_steps, 4);
    struct play_client client = {.dialect = dialect, .stream = script_open(script)};
    int code;
    /* What the script is written grows by realloc, which does not fail here. */
    allowed = successes;
    if (!is_server) {
        code = play_client_connect(&client);
    } else {
        code = gpusys_railset_accept(&client.set, client.stream, dialect, NULL, NULL, play_soon(),
                                     &client.error);
        if (!code)
            code = is_ro ? gpusys_railset_serve_ro(client.set, tables, 1, play_soon(), &client.error)
                         : gpusys_railset_serve_rw(client.set, keys, play_soon(), &client.error);
    }
    allowed = INT_MAX;
    *error = client.error;
    play_client_end(&client);
    script_free(script);
    assert_nothing_is_left();
    return code;
}

static void check_each(bool is_server, enum gpusys_dialect dialect, int least)
{
    struct gpusys_error error;
    int successes = 0;
    for (;; successes++) {
        int code = play_with(is_server, dialect, successes, &error);
        if (code == 0)
            break;
        assert_int_equal(error.code, code);
        assert_true(error.message[0]);
        assert_true(successes < 1000);
    }
    assert_true(successes >= least);
}

static void test_client(void **state)
{
    (void)state;
    check_each(false, GPUSYS_DIALECT_READ_ONLY, 10);
    check_each(false, GPUSYS_DIALECT_READ_WRITE, 10);
}

static void test_server(void **state)
{
    (void)state;
    check_each(true, GPUSYS_DIALECT_READ_ONLY, 10);
    check_each(true, GPUSYS_DIALECT_READ_WRITE, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client),
        cmocka_unit_test(test_server),
    };
    if (!gpusys_verbs_enabled())
        return PLAY_SKIPPED;
    return cmocka_run_group_tests(tests, play_begin, NULL);
}
