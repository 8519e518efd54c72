/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The progress line fits every terminal and says the truth. */
#include "progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct progress half = {.total_bytes = UINT64_C(2) << 30,
                                     .done_bytes = UINT64_C(1) << 30,
                                     .rate = (double)(1 << 30) / 65,
                                     .name = "model/shard-00001-of-00002.safetensors"};

static unsigned columns(const char *text)
{
    unsigned count = 0;
    for (; *text; ++text)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static void it_never_wraps(void **state)
{
    (void)state;
    struct progress long_name = half;
    char line[PROGRESS_BYTES], name[400];
    memset(name, 0, sizeof name);
    for (size_t i = 0; i + 3 < sizeof name; i += 2)
        memcpy(name + i, "ä", 2);
    long_name.name = name;
    for (unsigned width = 1; width <= 300; width++) {
        assert_true(columns(progress_line(&half, width, line)) < width || width == 1);
        assert_true(columns(progress_line(&long_name, width, line)) < width || width == 1);
    }
}

static void it_says_what_there_is_to_say(void **state)
{
    (void)state;
    char line[PROGRESS_BYTES];
    progress_line(&half, 160, line);
    assert_non_null(strstr(line, "model/shard-00001-of-00002.safetensors"));
    assert_non_null(strstr(line, " 50%"));
    assert_non_null(strstr(line, "1.00 GiB of 2.00 GiB"));
    assert_non_null(strstr(line, "16.5 MB/s"));
    assert_non_null(strstr(line, "1:05 left"));
    assert_non_null(strstr(line, "##.."));
    progress_line(&half, 60, line);
    assert_non_null(strstr(line, "1:05 left"));
}

static void a_long_name_loses_its_beginning(void **state)
{
    (void)state;
    char line[PROGRESS_BYTES];
    progress_line(&half, 100, line);
    assert_memory_equal(line, "..", 2);
    assert_non_null(strstr(line, ".safetensors ["));
}

static void nothing_done_and_nothing_to_do(void **state)
{
    (void)state;
    char line[PROGRESS_BYTES];
    struct progress none = {.name = "x"}, start = {.total_bytes = 100, .name = "\033[31mx"};
    assert_non_null(strstr(progress_line(&none, 120, line), "100%"));
    assert_non_null(strstr(progress_line(&start, 120, line), "  0%"));
    assert_non_null(strstr(line, "--:-- left"));
    assert_null(strchr(line, '\033'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_never_wraps),
        cmocka_unit_test(it_says_what_there_is_to_say),
        cmocka_unit_test(a_long_name_loses_its_beginning),
        cmocka_unit_test(nothing_done_and_nothing_to_do),
    };
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
