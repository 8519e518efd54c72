/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Landing buffers, and memory that can be handed to another process. */
#include "base/shared.h"
#include "remote_play.h"

#include <fcntl.h>
#include <gpusys/memory.h>
#include <sys/mman.h>

static bool all_zero(const unsigned char *bytes, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

/* Is every base page there already? */
static bool is_resident(void *map, uint64_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = (size_t)(size + page - 1) / page;
    unsigned char *pages = malloc(count);
    bool resident = mincore(map, size, pages) == 0;
    for (size_t i = 0; i < count && resident; i++)
        resident = pages[i] & 1;
    free(pages);
    return resident;
}

static void test_buffers(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 9 * MIB + 5};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *memory = NULL;
        enum gpusys_pages pages = (enum gpusys_pages)99;
        assert_int_equal(gpusys_memory_alloc(&memory, sizes[i], &pages), 0);
        assert_non_null(memory);
        assert_true(is_resident(memory, sizes[i]));
        assert_true(all_zero(memory, sizes[i]));
        memset(memory, 0xff, sizes[i]);
        assert_int_equal((uintptr_t)memory % (sizes[i] >= 2 * MIB ? 2 * MIB : 4096), 0);
        if (sizes[i] < 2 * MIB)
            assert_int_equal(pages, GPUSYS_PAGES_NORMAL);
        assert_in_range(pages, GPUSYS_PAGES_NORMAL, GPUSYS_PAGES_HUGE);
        gpusys_memory_free(memory, sizes[i]);
    }
    gpusys_memory_free(NULL, 5);
}

static void test_buffers_refused(void **state)
{
    (void)state;
    void *memory = (void *)(uintptr_t)1;
    assert_int_equal(gpusys_memory_alloc(&memory, 0, NULL), -EINVAL);
    assert_int_equal(gpusys_memory_alloc(&memory, UINT64_MAX, NULL), -ENOMEM);
    assert_int_equal(gpusys_memory_alloc(&memory, UINT64_MAX - 3 * MIB, NULL), -ENOMEM);
    assert_int_equal(gpusys_memory_alloc(&memory, INT64_MAX, NULL), -ENOMEM);
    assert_int_equal(gpusys_memory_alloc(&memory, UINT64_C(1) << 46, NULL), -ENOMEM);
    assert_ptr_equal(memory, (void *)(uintptr_t)1); /* outputs are written last */
}

static void test_shared(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 4096, 100000, 2 * MIB, 5 * MIB + 1};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (int writable = 0; writable < 2; writable++) {
            struct gs_shared shared;
            assert_int_equal(gs_shared_open(&shared, "test", sizes[i], writable, GS_HUGE_IF_FREE), 0);
            assert_int_equal(shared.bytes, sizes[i]);
            assert_true(all_zero(shared.map, sizes[i]));
            assert_true(shared.huge || is_resident(shared.map, sizes[i]));
            memset(shared.map, 1, sizes[i]); /* we write, whatever the others may */
            int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (writable ? 0 : F_SEAL_FUTURE_WRITE);
            assert_int_equal(fcntl(shared.fd, F_GET_SEALS), seals);
            assert_int_equal(lseek(shared.fd, 0, SEEK_END), gs_map_bytes(sizes[i], shared.huge));
            if (sizes[i] < GS_HUGE_BYTES)
                assert_false(shared.huge);
            gs_shared_close(&shared);
            assert_int_equal(shared.fd, -1);
            gs_shared_close(&shared);
        }
    struct gs_shared shared;
    assert_int_equal(gs_shared_open(&shared, "test", 0, true, GS_HUGE_IF_FREE), -EINVAL);
    assert_int_equal(gs_shared_open(&shared, "test", UINT64_MAX, true, GS_HUGE_IF_FREE), -ENOMEM);
    assert_int_equal(gs_shared_open(&shared, "test", INT64_MAX, true, GS_HUGE_IF_FREE) < 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_buffers_refused),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
