/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/cuda.h: memory, copies, what an address is, dmabuf. */
#include "cuda_play.h"

#include <fcntl.h>
#include <sys/mman.h>

static struct gpusys_cuda *cuda, *other;

static int begin(void **state)
{
    (void)state;
    return gpusys_cuda_open(&cuda, 0, NULL) || gpusys_cuda_open(&other, 1, NULL);
}

static int end(void **state)
{
    gpusys_cuda_close(cuda);
    gpusys_cuda_close(other);
    return play_clean(state);
}

static void *alloc(uint64_t bytes)
{
    void *device = NULL;
    struct gpusys_error error = {.code = 0};
    if (gpusys_cuda_alloc(cuda, &device, bytes, &error))
        fail_msg("%s", error.message);
    return device;
}

/* ---- having memory ---- */

static void test_alloc(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    void *device = alloc(1), *more = &error;
    assert_non_null(device);
    assert_int_equal((uintptr_t)device % 256, 0);
    assert_int_equal(gpusys_cuda_alloc(cuda, &more, 1ull << 40, &error), -ENOMEM);
    assert_error(
        &error, -ENOMEM, 2,
        "GPU 0: 1099511627776 bytes of its memory: CUDA_ERROR_OUT_OF_MEMORY (2): fake: memory is full");
    assert_in(error.hint, "nvidia-smi");
    assert_int_equal(gpusys_cuda_alloc(cuda, &more, 0, &error), -EINVAL);
    assert_error(&error, -EINVAL, 1, "GPU 0: 0 bytes of its memory: CUDA_ERROR_INVALID_VALUE (1)");
    assert_ptr_equal(more, &error);
    gpusys_cuda_free(cuda, device);
    gpusys_cuda_free(cuda, NULL);
}

static void test_host_alloc(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    void *host = NULL, *more = &error;
    assert_int_equal(gpusys_cuda_host_alloc(cuda, &host, 10000, NULL), 0);
    memset(host, 1, 10000);
    assert_int_equal(gpusys_cuda_host_alloc(cuda, &more, 1ull << 50, &error), -ENOMEM);
    assert_error(&error, -ENOMEM, 2, "GPU 0: 1125899906842624 bytes of page-locked memory: ");
    assert_ptr_equal(more, &error);
    gpusys_cuda_host_free(cuda, host);
    gpusys_cuda_host_free(cuda, NULL);
}

static void test_register(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    char *host = malloc(8192);
    assert_non_null(host);
    assert_int_equal(gpusys_cuda_host_register(cuda, host, 8192, &error), 0);
    assert_int_equal(FAKE(fake_cuda_live)(FAKE_CUDA_REGISTRATIONS), 1);
    assert_int_equal(gpusys_cuda_host_register(cuda, host + 4096, 4096, &error), -EINVAL);
    assert_error(&error, -EINVAL, 712,
                 "GPU 0: page-locking 4096 bytes: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED (712)");
    assert_int_equal(gpusys_cuda_host_unregister(cuda, host, NULL), 0);
    assert_int_equal(gpusys_cuda_host_unregister(cuda, host, &error), -EINVAL);
    assert_error(&error, -EINVAL, 713,
                 "GPU 0: unlocking memory: CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED (713)");
    free(host);
}

/* ---- copying and filling ---- */

static void test_copy(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    unsigned char *in = malloc(BYTES), *out = malloc(BYTES), *first = alloc(BYTES), *second = alloc(BYTES);
    assert_true(in && out);
    for (unsigned i = 0; i < BYTES; i++)
        in[i] = (unsigned char)(i * 7 + i / 251);
    memset(out, 0, BYTES);
    assert_int_equal(gpusys_cuda_copy(cuda, first, in, BYTES, NULL), 0);
    assert_int_equal(gpusys_cuda_copy(cuda, second, first, BYTES, NULL), 0);
    assert_int_equal(gpusys_cuda_copy(cuda, out, second + 1, BYTES - 1, NULL), 0);
    assert_memory_equal(out, in + 1, BYTES - 1);
    assert_int_equal(out[BYTES - 1], 0);
    gpusys_cuda_free(cuda, first);
    gpusys_cuda_free(cuda, second);
    free(in);
    free(out);
}

/* The driver may return from a copy within the device before it is done. */
static void test_copy_waits(void **state)
{
    (void)state;
    char *device = alloc(64);
    uint64_t before = FAKE(fake_cuda_calls)("cuStreamSynchronize");
    assert_int_equal(gpusys_cuda_copy(cuda, device, device + 32, 32, NULL), 0);
    assert_int_equal(FAKE(fake_cuda_calls)("cuStreamSynchronize"), before + 1);
    gpusys_cuda_free(cuda, device);
}

static void test_async(void **state)
{
    (void)state;
    struct gate gate;
    struct CUstream_st *stream = NULL;
    unsigned char *device = alloc(256), *host = NULL;
    gate_init(&gate);
    assert_int_equal(gpusys_cuda_host_alloc(cuda, (void **)&host, 256, NULL), 0);
    memset(host, 0x11, 256);
    assert_int_equal(gpusys_cuda_stream_open(cuda, &stream, NULL), 0);
    gate_close(&gate, cuda, stream);
    assert_int_equal(gpusys_cuda_fill_async(cuda, device, 0xab, 256, stream, NULL), 0);
    assert_int_equal(gpusys_cuda_fill_async(cuda, device + 8, 0xcd, 8, stream, NULL), 0);
    assert_int_equal(gpusys_cuda_copy_async(cuda, host, device, 200, stream, NULL), 0);
    assert_int_equal(host[0], 0x11); /* only queued */
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, stream, -1, NULL), 0);
    for (unsigned i = 0; i < 256; i++)
        assert_int_equal(host[i], i >= 200 ? 0x11 : i >= 8 && i < 16 ? 0xcd : 0xab);
    gpusys_cuda_stream_close(cuda, stream);
    gpusys_cuda_host_free(cuda, host);
    gpusys_cuda_free(cuda, device);
}

static void test_copy_errors(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    char *device = alloc(100), host[200] = "";
    assert_int_equal(gpusys_cuda_copy(cuda, device, host, 101, &error), -EINVAL);
    assert_error(&error, -EINVAL, 1,
                 "GPU 0: copying 101 bytes: CUDA_ERROR_INVALID_VALUE (1): fake: bad argument");
    assert_int_equal(gpusys_cuda_copy_async(cuda, host, device + 1, 100, NULL, &error), -EINVAL);
    assert_error(&error, -EINVAL, 1, "GPU 0: copying 100 bytes: ");
    assert_int_equal(gpusys_cuda_fill_async(cuda, host, 0, 10, NULL, &error), -EINVAL);
    assert_error(&error, -EINVAL, 1, "GPU 0: filling 10 bytes: ");
    assert_int_equal(gpusys_cuda_copy(cuda, NULL, NULL, 0, &error), 0); /* nothing to do */
    assert_int_equal(gpusys_cuda_copy_async(cuda, NULL, NULL, 0, NULL, &error), 0);
    assert_int_equal(gpusys_cuda_fill_async(cuda, NULL, 0, 0, NULL, &error), 0);
    gpusys_cuda_free(cuda, device);
}

/* ---- what an address is ---- */

static void assert_pointer(const void *address, uint32_t kind, int32_t device, void *start, uint64_t bytes)
{
    struct gpusys_cuda_pointer pointer = {.size = sizeof pointer};
    assert_int_equal(gpusys_cuda_pointer(address, &pointer, NULL), 0);
    assert_int_equal(pointer.size, sizeof pointer);
    assert_int_equal(pointer.kind, kind);
    assert_int_equal(pointer.device, device);
    assert_ptr_equal(pointer.start, start);
    assert_int_equal(pointer.bytes, bytes);
}

static void test_pointer(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda_pointer sizeless = {.size = 0};
    char *first = alloc(1000), *second = NULL, *host = NULL, own[4096];
    unsigned long long managed = 0;
    assert_int_equal(gpusys_cuda_alloc(other, (void **)&second, 500, NULL), 0);
    assert_int_equal(gpusys_cuda_host_alloc(cuda, (void **)&host, 300, NULL), 0);
    assert_int_equal(gpusys_cuda_push(other, NULL), 0);
    assert_int_equal(FAKE(cuMemAllocManaged)(&managed, 200, 1), 0);
    gpusys_cuda_pop(other);
    assert_pointer(first, GPUSYS_CUDA_DEVICE, 0, first, 1000);
    assert_pointer(first + 999, GPUSYS_CUDA_DEVICE, 0, first, 1000);
    assert_pointer(second + 7, GPUSYS_CUDA_DEVICE, 1, second, 500);
    assert_pointer(host + 5, GPUSYS_CUDA_HOST, 0, host, 300);
    assert_pointer((char *)(uintptr_t)managed + 3, GPUSYS_CUDA_MANAGED, 1, (void *)(uintptr_t)managed, 200);
    assert_pointer(own, GPUSYS_CUDA_UNKNOWN, -1, NULL, 0);
    assert_pointer(NULL, GPUSYS_CUDA_UNKNOWN, -1, NULL, 0);
    assert_int_equal(gpusys_cuda_host_register(other, own, sizeof own, NULL), 0);
    assert_pointer(own + 1, GPUSYS_CUDA_HOST, 1, own, sizeof own);
    assert_int_equal(gpusys_cuda_host_unregister(other, own, NULL), 0);
    FAKE(fake_cuda_fail)("cuPointerGetAttributes=1@1,cuPointerGetAttributes=201@2"); /* older drivers */
    assert_pointer(own, GPUSYS_CUDA_UNKNOWN, -1, NULL, 0);
    assert_pointer(own, GPUSYS_CUDA_UNKNOWN, -1, NULL, 0);
    assert_int_equal(gpusys_cuda_pointer(own, &sizeless, &error), -EINVAL);
    assert_in(error.message, "the size of the pointer's information is not set");
    gpusys_cuda_free(other, (void *)(uintptr_t)managed);
    gpusys_cuda_host_free(cuda, host);
    gpusys_cuda_free(other, second);
    gpusys_cuda_free(cuda, first);
}

/* ---- dmabuf ---- */

static void assert_shows(int fd, uint64_t offset, const void *content, size_t bytes)
{
    size_t all = (size_t)lseek(fd, 0, SEEK_END);
    char *mapped = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    assert_true(offset + bytes <= all);
    assert_memory_equal(mapped + offset, content, bytes);
    mapped[offset] = 'W'; /* as a network card would */
    munmap(mapped, all);
}

static void test_dmabuf(void **state)
{
    (void)state;
    char *device = alloc(200000), out[2];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), offset = 0;
    int fd = -1, again = -1;
    assert_int_equal(gpusys_cuda_copy(cuda, device + page + 100, "hello", 5, NULL), 0);
    assert_int_equal(gpusys_cuda_dmabuf(cuda, device + page + 100, page, &fd, &offset, NULL), 0);
    assert_int_equal(offset, 100);
    assert_int_equal(lseek(fd, 0, SEEK_END), 2 * page); /* both pages that it touches, and no more */
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_shows(fd, offset, "hello", 5);
    assert_int_equal(gpusys_cuda_copy(cuda, out, device + page + 100, 2, NULL), 0);
    assert_memory_equal(out, "We", 2);
    assert_int_equal(gpusys_cuda_copy(cuda, device + page + 100, "later", 5, NULL), 0);
    assert_shows(fd, offset, "later", 5);
    assert_int_equal(gpusys_cuda_dmabuf(cuda, device + page, 2 * page, &again, &offset, NULL), 0);
    assert_int_equal(offset, 0);
    assert_shows(again, 100, "Water", 5);
    close(fd);
    close(again);
    gpusys_cuda_free(cuda, device);
}

static void test_dmabuf_errors(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    void *device = alloc(1000), *second = NULL;
    char own[16];
    int fd = -7;
    uint64_t offset = 7;
    assert_int_equal(gpusys_cuda_dmabuf(cuda, device, 0, &fd, &offset, &error), -EINVAL);
    assert_error(&error, -EINVAL, 1, "GPU 0: a dmabuf of 0 bytes: ");
    assert_int_equal(gpusys_cuda_dmabuf(cuda, device, UINT64_MAX - 10, &fd, &offset, &error), -EINVAL);
    assert_int_equal(gpusys_cuda_dmabuf(cuda, own, 10, &fd, &offset, &error), -EINVAL);
    assert_error(&error, -EINVAL, 1, "GPU 0: a dmabuf of 10 bytes: CUDA_ERROR_INVALID_VALUE (1)");
    FAKE(fake_cuda_fail)("cuMemGetHandleForAddressRange=801");
    assert_int_equal(gpusys_cuda_dmabuf(cuda, device, 10, &fd, &offset, &error), -EOPNOTSUPP);
    assert_error(&error, -EOPNOTSUPP, 801,
                 "GPU 0: its memory as a dmabuf: CUDA_ERROR_NOT_SUPPORTED (801): fake: not supported");
    assert_in(error.hint, "open kernel modules");
    assert_int_equal(gpusys_cuda_alloc(other, &second, 1000, NULL), 0);
    assert_int_equal(fd, -7);
    assert_int_equal(offset, 7);
    gpusys_cuda_free(cuda, device);
    gpusys_cuda_free(other, second);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    const struct CMUnitTest tests[] = {
        TEST(test_alloc),      TEST(test_host_alloc),    TEST(test_register),    TEST(test_copy),
        TEST(test_copy_waits), TEST(test_async),         TEST(test_copy_errors), TEST(test_pointer),
        TEST(test_dmabuf),     TEST(test_dmabuf_errors),
    };
    return cmocka_run_group_tests_name("CUDA memory", tests, NULL, NULL);
}
