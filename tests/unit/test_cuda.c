/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/cuda.h: the driver, devices, contexts, errors. */
#include "cuda_play.h"

#include <pthread.h>

static struct gpusys_cuda *open_device(uint32_t device)
{
    struct gpusys_cuda *cuda = NULL;
    struct gpusys_error error = {.code = 0};
    if (gpusys_cuda_open(&cuda, device, &error))
        fail_msg("%s", error.message);
    return cuda;
}

/* ---- the driver ---- */

static void test_driver(void **state)
{
    (void)state;
    int version = 0;
    struct gpusys_error error = {.code = 77};
    assert_int_equal(gpusys_cuda_status(&error), 0);
    assert_int_equal(error.code, 77);
    char *path = realpath(getenv("GPUSYS_LIBCUDA"), NULL);
    assert_string_equal(gpusys_cuda_library(), path);
    free(path);
    assert_int_equal(gpusys_cuda_version(&version, &error), 0);
    assert_int_equal(version, 12040);
    version = 1;
    FAKE(fake_cuda_fail)("cuDriverGetVersion=34");
    assert_int_equal(gpusys_cuda_version(&version, &error), -ENODEV);
    assert_error(&error, -ENODEV, 34, "CUDA: cuDriverGetVersion: CUDA_ERROR_STUB_LIBRARY (34): fake: a stub");
    assert_int_equal(version, 1);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(gpusys_cuda_error_name(2), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_string_equal(gpusys_cuda_error_text(2), "fake: memory is full");        /* the driver's */
    assert_string_equal(gpusys_cuda_error_name(702), "CUDA_ERROR_LAUNCH_TIMEOUT"); /* ours */
    assert_string_equal(gpusys_cuda_error_text(702), "a kernel took too long");
    assert_string_equal(gpusys_cuda_error_name(12345), "unknown");
    assert_string_equal(gpusys_cuda_error_text(-1), "unknown");
}

static void test_codes(void **state)
{
    (void)state;
    static const struct {
        unsigned result;
        int code;
    } rows[] = {
        {0, 0},         {1, -EINVAL},   {2, -ENOMEM},   {3, -ENODEV},       {34, -ENODEV},
        {36, -ENOSYS},  {46, -EBUSY},   {100, -ENODEV}, {101, -ENODEV},     {201, -EINVAL},
        {304, -EIO},    {400, -EINVAL}, {600, -EAGAIN}, {700, -EIO},        {712, -EINVAL},
        {713, -EINVAL}, {719, -EIO},    {800, -EPERM},  {801, -EOPNOTSUPP}, {802, -ENODEV},
        {803, -ENODEV}, {900, -EBUSY},  {906, -EBUSY},  {909, -ETIMEDOUT},  {999, -EIO},
        {54321, -EIO},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (gs_cuda_errno(rows[i].result) != rows[i].code)
            fail_msg("%u: %d", rows[i].result, gs_cuda_errno(rows[i].result));
}

/* ---- devices ---- */

static void test_count(void **state)
{
    (void)state;
    uint32_t count = 0;
    struct gpusys_error error = {.code = 0};
    assert_int_equal(gpusys_cuda_count(&count, NULL), 0);
    assert_int_equal(count, 3);
    count = 9;
    FAKE(fake_cuda_fail)("cuDeviceGetCount=999");
    assert_int_equal(gpusys_cuda_count(&count, &error), -EIO);
    assert_error(&error, -EIO, 999, "CUDA: the number of GPUs: CUDA_ERROR_UNKNOWN (999): fake: who knows");
    assert_in(error.hint, "nvidia-smi");
    assert_int_equal(count, 9);
}

static void test_info(void **state)
{
    (void)state;
    struct gpusys_cuda_info info = {.size = sizeof info};
    assert_int_equal(gpusys_cuda_info(1, &info, NULL), 0);
    assert_int_equal(info.size, sizeof info);
    assert_int_equal(info.device, 1);
    assert_string_equal(info.name, "NVIDIA Fake 9000");
    assert_string_equal(info.uuid_text, "GPU-00112233-4455-6677-8899-aabbccddeeff");
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(info.uuid[i], i * 0x11);
    assert_string_equal(info.pci, "0000:1c:00.0");
    assert_int_equal(info.memory_bytes, 64 << 20);
    assert_int_equal(info.compute_major, 9);
    assert_int_equal(info.compute_minor, 0);
    assert_int_equal(info.multiprocessors, 132);
    assert_int_equal(info.compute_mode, 3);
    assert_int_equal(info.integrated, 0);
    assert_int_equal(info.dmabuf, 1);
    assert_int_equal(info.gpudirect_rdma, 0);
    assert_int_equal(info.gpudirect_flush, 1);
    assert_int_equal(info.gpudirect_ordering, 100);
    assert_int_equal(info.host_numa_node, -1); /* not known */
}

static void test_info_sizes(void **state)
{
    (void)state;
    struct {
        struct gpusys_cuda_info info;
        char more[16];
    } newer = {.info.size = sizeof newer, .more = "0123456789"};
    struct gpusys_cuda_info older = {.size = offsetof(struct gpusys_cuda_info, uuid)}, none = {.size = 0};
    struct gpusys_error error = {.code = 0};
    older.uuid[0] = 0x77;
    assert_int_equal(gpusys_cuda_info(0, &newer.info, NULL), 0);
    assert_int_equal(newer.info.size, sizeof newer);
    assert_int_equal(newer.more[0], 0);
    assert_int_equal(gpusys_cuda_info(0, &older, NULL), 0);
    assert_string_equal(older.name, "NVIDIA Fake 9000");
    assert_int_equal(older.uuid[0], 0x77);
    assert_int_equal(gpusys_cuda_info(0, &none, &error), -EINVAL);
    assert_in(error.message, "GPU 0: the size of the information is not set");
}

static void test_no_such_device(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda_info info = {.size = sizeof info};
    struct gpusys_cuda *cuda = NULL;
    int value = 5;
    assert_int_equal(gpusys_cuda_info(3, &info, &error), -ENODEV);
    assert_error(&error, -ENODEV, 101, "GPU 3: CUDA_ERROR_INVALID_DEVICE (101): fake: none of that number");
    assert_in(error.detail, "GPUs\t3");
    assert_in(error.detail, "CUDA_VISIBLE_DEVICES\tnot set");
    assert_string_equal(error.cause, "there are 3, numbered from 0");
    assert_in(error.hint, "CUDA_VISIBLE_DEVICES");
    assert_int_equal(gpusys_cuda_open(&cuda, UINT32_MAX, &error), -ENODEV);
    assert_error(&error, -ENODEV, 101, "GPU 4294967295: ");
    assert_null(cuda);
    assert_int_equal(gpusys_cuda_attribute(7, 16, &value, &error), -ENODEV);
    assert_int_equal(value, 5);
}

static void test_attribute(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    int value = 0;
    assert_int_equal(gpusys_cuda_attribute(0, 16, &value, &error), 0);
    assert_int_equal(value, 132);
    assert_int_equal(gpusys_cuda_attribute(0, 4711, &value, &error), -EINVAL);
    assert_error(&error, -EINVAL, 1,
                 "GPU 0: attribute 4711: CUDA_ERROR_INVALID_VALUE (1): fake: bad argument");
    assert_int_equal(gpusys_cuda_attribute(0, -1, &value, &error), -EINVAL);
    assert_int_equal(value, 132);
}

static void test_info_fails(void **state)
{
    (void)state;
    static const char *const functions[] = {"cuDeviceGetName", "cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2",
                                            "cuDeviceGetAttribute"};
    struct gpusys_error error = {.code = 0};
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        char rule[64];
        struct gpusys_cuda_info info = {.size = sizeof info, .device = 42};
        snprintf(rule, sizeof rule, "%s=719@1", functions[i]);
        FAKE(fake_cuda_fail)(rule);
        assert_int_equal(gpusys_cuda_info(2, &info, &error), -EIO);
        assert_error(&error, -EIO, 719, "GPU 2: what it is: CUDA_ERROR_LAUNCH_FAILED (719)");
        assert_int_equal(info.device, 42);
    }
}

/* ---- contexts ---- */

static void test_context(void **state)
{
    (void)state;
    struct gpusys_cuda *one = open_device(1), *again = open_device(1), *two = open_device(2);
    assert_int_equal(FAKE(fake_cuda_live)(FAKE_CUDA_CONTEXTS), 3);
    assert_int_equal(FAKE(fake_cuda_depth)(), 0); /* not current */
    assert_int_equal(gpusys_cuda_device(one), 1);
    assert_int_equal(gpusys_cuda_device(two), 2);
    assert_ptr_equal(gpusys_cuda_context(one), gpusys_cuda_context(again)); /* the device's one */
    assert_ptr_not_equal(gpusys_cuda_context(one), gpusys_cuda_context(two));
    gpusys_cuda_close(again);
    gpusys_cuda_close(one);
    gpusys_cuda_close(two);
    gpusys_cuda_close(NULL);
}

static void assert_current(const struct gpusys_cuda *cuda)
{
    struct CUctx_st *current = NULL;
    assert_int_equal(FAKE(cuCtxGetCurrent)(&current), 0);
    assert_ptr_equal(current, cuda ? gpusys_cuda_context(cuda) : NULL);
}

static void test_push(void **state)
{
    (void)state;
    struct gpusys_cuda *one = open_device(0), *two = open_device(1);
    uint32_t device = 9;
    struct gpusys_error error = {.code = 0};
    assert_int_equal(gs_cuda_current_device(&device, &error), -ENODEV);
    assert_error(&error, -ENODEV, 201, "CUDA: the device of this thread: CUDA_ERROR_INVALID_CONTEXT (201)");
    assert_int_equal(device, 9);
    assert_int_equal(gpusys_cuda_push(one, NULL), 0);
    assert_int_equal(gpusys_cuda_push(two, NULL), 0);
    assert_current(two);
    assert_int_equal(gs_cuda_current_device(&device, NULL), 0);
    assert_int_equal(device, 1);
    gpusys_cuda_pop(two);
    assert_current(one);
    gpusys_cuda_pop(one);
    assert_current(NULL);
    FAKE(fake_cuda_fail)("cuCtxPushCurrent_v2=201");
    assert_int_equal(gpusys_cuda_push(one, &error), -EINVAL);
    assert_error(&error, -EINVAL, 201, "GPU 0: making its context current: CUDA_ERROR_INVALID_CONTEXT (201)");
    gpusys_cuda_close(one);
    gpusys_cuda_close(two);
}

static void test_memory_info(void **state)
{
    (void)state;
    struct gpusys_cuda *cuda = open_device(0);
    uint64_t before = 0, after = 0, total = 0;
    void *device = NULL;
    assert_int_equal(gpusys_cuda_memory(cuda, &before, &total, NULL), 0);
    assert_int_equal(total, 64 << 20);
    assert_int_equal(gpusys_cuda_alloc(cuda, &device, 1 << 20, NULL), 0);
    assert_int_equal(gpusys_cuda_memory(cuda, &after, &total, NULL), 0);
    assert_int_equal(before - after, 1 << 20);
    gpusys_cuda_free(cuda, device);
    gpusys_cuda_close(cuda);
}

static void test_open_fails(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda *cuda = NULL;
    FAKE(fake_cuda_fail)("cuDevicePrimaryCtxRetain=46");
    assert_int_equal(gpusys_cuda_open(&cuda, 0, &error), -EBUSY);
    assert_error(&error, -EBUSY, 46,
                 "GPU 0: its primary context: CUDA_ERROR_DEVICE_UNAVAILABLE (46): fake: taken");
    assert_in(error.hint, "compute mode");
    assert_null(cuda);
}

/* ---- whatever happens, what was current before is current after it ---- */

struct things {
    struct gpusys_cuda *cuda;
    struct CUstream_st *stream;
    struct CUevent_st *event;
    void *device, *host;
};

static int do_stream_open(struct things *things, struct gpusys_error *error)
{
    struct CUstream_st *made = NULL;
    int code = gpusys_cuda_stream_open(things->cuda, &made, error);
    gpusys_cuda_stream_close(things->cuda, made);
    return code;
}

static int do_event_open(struct things *things, struct gpusys_error *error)
{
    struct CUevent_st *made = NULL;
    int code = gpusys_cuda_event_open(things->cuda, &made, error);
    gpusys_cuda_event_close(things->cuda, made);
    return code;
}

static int do_stream_query(struct things *things, struct gpusys_error *error)
{
    FAKE(cuStreamSynchronize)(things->stream);
    return gpusys_cuda_stream_query(things->cuda, things->stream, error);
}

static int do_stream_wait(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_stream_wait(things->cuda, things->stream, -1, error);
}

static int do_stream_poll(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_stream_wait(things->cuda, things->stream, 60000000000, error);
}

static int do_stream_after(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_stream_after(things->cuda, things->stream, things->event, error);
}

static int do_capturing(struct things *things, struct gpusys_error *error)
{
    return gs_cuda_is_capturing(things->cuda, things->stream, error);
}

static int do_event_record(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_event_record(things->cuda, things->event, things->stream, error);
}

static int do_event_query(struct things *things, struct gpusys_error *error)
{
    FAKE(cuStreamSynchronize)(things->stream);
    return gpusys_cuda_event_query(things->cuda, things->event, error);
}

static int do_event_wait(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_event_wait(things->cuda, things->event, -1, error);
}

static int do_alloc(struct things *things, struct gpusys_error *error)
{
    void *made = NULL;
    int code = gpusys_cuda_alloc(things->cuda, &made, 4096, error);
    gpusys_cuda_free(things->cuda, made);
    return code;
}

static int do_host_alloc(struct things *things, struct gpusys_error *error)
{
    void *made = NULL;
    int code = gpusys_cuda_host_alloc(things->cuda, &made, 4096, error);
    gpusys_cuda_host_free(things->cuda, made);
    return code;
}

static int do_register(struct things *things, struct gpusys_error *error)
{
    static char memory[4096];
    int code = gpusys_cuda_host_register(things->cuda, memory, sizeof memory, error);
    if (!code)
        code = gpusys_cuda_host_unregister(things->cuda, memory, error);
    return code;
}

static int do_unregister(struct things *things, struct gpusys_error *error)
{
    static char memory[4096];
    int code = gpusys_cuda_host_register(things->cuda, memory, sizeof memory, NULL);
    if (!code)
        code = gpusys_cuda_host_unregister(things->cuda, memory, error);
    if (code)
        FAKE(cuMemHostUnregister)(memory);
    return code;
}

static int do_copy(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_copy(things->cuda, things->device, things->host, 64, error);
}

static int do_copy_async(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_copy_async(things->cuda, things->device, things->host, 64, things->stream, error);
}

static int do_fill(struct things *things, struct gpusys_error *error)
{
    return gpusys_cuda_fill_async(things->cuda, things->device, 1, 64, things->stream, error);
}

static int do_memory(struct things *things, struct gpusys_error *error)
{
    uint64_t free_bytes, total;
    return gpusys_cuda_memory(things->cuda, &free_bytes, &total, error);
}

static int do_dmabuf(struct things *things, struct gpusys_error *error)
{
    int fd = -1;
    uint64_t offset;
    int code = gpusys_cuda_dmabuf(things->cuda, things->device, 64, &fd, &offset, error);
    if (fd >= 0)
        close(fd);
    return code;
}

static int do_pointer(struct things *things, struct gpusys_error *error)
{
    struct gpusys_cuda_pointer pointer = {.size = sizeof pointer};
    return gpusys_cuda_pointer(things->device, &pointer, error);
}

static const struct {
    const char *function, *message;
    int (*call)(struct things *things, struct gpusys_error *error);
} calls[] = {
    {"cuStreamCreate", "GPU 0: a new stream: ", do_stream_open},
    {"cuEventCreate", "GPU 0: a new event: ", do_event_open},
    {"cuStreamQuery", "GPU 0: the stream: ", do_stream_query},
    {"cuStreamSynchronize", "GPU 0: waiting for the stream: ", do_stream_wait},
    {"cuStreamQuery", "GPU 0: waiting for the stream: ", do_stream_poll},
    {"cuStreamWaitEvent", "GPU 0: ordering a stream after an event: ", do_stream_after},
    {"cuStreamIsCapturing", "GPU 0: is a stream captured: ", do_capturing},
    {"cuEventRecord", "GPU 0: recording an event: ", do_event_record},
    {"cuEventQuery", "GPU 0: the event: ", do_event_query},
    {"cuEventSynchronize", "GPU 0: waiting for the event: ", do_event_wait},
    {"cuMemAlloc_v2", "GPU 0: 4096 bytes of its memory: ", do_alloc},
    {"cuMemHostAlloc", "GPU 0: 4096 bytes of page-locked memory: ", do_host_alloc},
    {"cuMemHostRegister_v2", "GPU 0: page-locking 4096 bytes: ", do_register},
    {"cuMemHostUnregister", "GPU 0: unlocking memory: ", do_unregister},
    {"cuMemcpy", "GPU 0: copying 64 bytes: ", do_copy},
    {"cuStreamSynchronize", "GPU 0: copying 64 bytes: ", do_copy},
    {"cuMemcpyAsync", "GPU 0: copying 64 bytes: ", do_copy_async},
    {"cuMemsetD8Async", "GPU 0: filling 64 bytes: ", do_fill},
    {"cuMemGetInfo_v2", "GPU 0: its free memory: ", do_memory},
    {"cuMemGetHandleForAddressRange", "GPU 0: a dmabuf of 64 bytes: ", do_dmabuf},
    {"cuPointerGetAttributes", "CUDA: what an address is: ", do_pointer},
};

static void things_open(struct things *things)
{
    *things = (struct things){.cuda = open_device(0)};
    assert_int_equal(gpusys_cuda_stream_open(things->cuda, &things->stream, NULL), 0);
    assert_int_equal(gpusys_cuda_event_open(things->cuda, &things->event, NULL), 0);
    assert_int_equal(gpusys_cuda_alloc(things->cuda, &things->device, 8192, NULL), 0);
    assert_int_equal(gpusys_cuda_host_alloc(things->cuda, &things->host, 8192, NULL), 0);
    memset(things->host, 0, 8192);
}

static void things_close(struct things *things)
{
    gpusys_cuda_host_free(things->cuda, things->host);
    gpusys_cuda_free(things->cuda, things->device);
    gpusys_cuda_event_close(things->cuda, things->event);
    gpusys_cuda_stream_close(things->cuda, things->stream);
    gpusys_cuda_close(things->cuda);
}

static void test_calls(void **state)
{
    (void)state;
    struct things things;
    struct gpusys_cuda *other = open_device(1);
    things_open(&things);
    assert_int_equal(gpusys_cuda_push(other, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        struct gpusys_error error = {.code = 0};
        int code = calls[i].call(&things, &error);
        if (code)
            fail_msg("%s: %s", calls[i].function, error.message);
        assert_int_equal(error.code, 0);
        assert_current(other);
        assert_int_equal(FAKE(fake_cuda_depth)(), 1);
    }
    gpusys_cuda_pop(other);
    gpusys_cuda_close(other);
    things_close(&things);
}

static void assert_fails(struct things *things, size_t i, const char *function)
{
    char rule[64];
    struct gpusys_error error = {.code = 0};
    snprintf(rule, sizeof rule, "%s=700@1", function);
    FAKE(fake_cuda_fail)(rule);
    assert_int_equal(calls[i].call(things, &error), -EIO);
    assert_error(&error, -EIO, 700, calls[i].message);
    assert_in(error.message, "CUDA_ERROR_ILLEGAL_ADDRESS (700): fake: illegal address");
    assert_in(error.hint, "compute-sanitizer");
    FAKE(fake_cuda_fail)(rule);
    assert_int_equal(calls[i].call(things, NULL), -EIO);
    assert_int_equal(FAKE(fake_cuda_depth)(), 0);
}

static void test_calls_fail(void **state)
{
    (void)state;
    struct things things;
    things_open(&things);
    int64_t live = FAKE(fake_cuda_live)(FAKE_CUDA_KINDS);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        assert_fails(&things, i, calls[i].function);
        if (calls[i].call != do_pointer && calls[i].call != do_unregister)
            assert_fails(&things, i, "cuCtxPushCurrent_v2");
        FAKE(fake_cuda_fail)(NULL);
        int code = calls[i].call(&things, NULL);
        assert_int_equal(code, 0);
    }
    assert_int_equal(gpusys_cuda_stream_wait(things.cuda, things.stream, -1, NULL), 0);
    assert_int_equal(FAKE(fake_cuda_live)(FAKE_CUDA_KINDS), live);
    things_close(&things);
}

/* What cannot return an error tells the log. */
static char told[512];

static void listen(void *context, enum gpusys_log_level level, const char *message)
{
    (void)context;
    if (level == GPUSYS_LOG_WARN)
        snprintf(told, sizeof told, "%s", message);
}

static void test_warnings(void **state)
{
    (void)state;
    struct gpusys_cuda *cuda = open_device(0);
    void *device = NULL;
    assert_int_equal(gpusys_cuda_alloc(cuda, &device, 100, NULL), 0);
    gpusys_log_set(listen, NULL, GPUSYS_LOG_WARN);
    FAKE(fake_cuda_fail)("cuMemFree_v2=700@1,cuMemFree_v2=4@2");
    gpusys_cuda_free(cuda, device);
    assert_string_equal(
        told, "CUDA: freeing memory of a GPU: CUDA_ERROR_ILLEGAL_ADDRESS (700): fake: illegal address");
    told[0] = 0;
    gpusys_cuda_free(cuda, device); /* the process is ending: nothing to say */
    assert_string_equal(told, "");
    gpusys_log_set(NULL, NULL, GPUSYS_LOG_WARN);
    gpusys_cuda_free(cuda, device);
    gpusys_cuda_close(cuda);
}

/* ---- threads ---- */

static void *use(void *argument)
{
    uint32_t device = *(uint32_t *)argument % 3;
    for (int round = 0; round < 20; round++) {
        struct gpusys_cuda_info info = {.size = sizeof info};
        struct gpusys_cuda *cuda = NULL;
        void *memory = NULL;
        char in[256], out[256] = "";
        memset(in, round + (int)device, sizeof in);
        bool good = gpusys_cuda_info(device, &info, NULL) == 0 && info.device == device &&
                    gpusys_cuda_open(&cuda, device, NULL) == 0 &&
                    gpusys_cuda_alloc(cuda, &memory, sizeof in, NULL) == 0 &&
                    gpusys_cuda_copy(cuda, memory, in, sizeof in, NULL) == 0 &&
                    gpusys_cuda_copy(cuda, out, memory, sizeof in, NULL) == 0 &&
                    memcmp(in, out, sizeof in) == 0;
        if (!good)
            return "it went wrong";
        gpusys_cuda_free(cuda, memory);
        gpusys_cuda_close(cuda);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[8];
    uint32_t numbers[8];
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        numbers[i] = (uint32_t)i;
        assert_int_equal(pthread_create(&threads[i], NULL, use, &numbers[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        void *fault = NULL;
        pthread_join(threads[i], &fault);
        assert_null(fault);
    }
}

int main(void)
{
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    setenv("FAKE_CUDA_UUIDS", "1,GPU-00112233-4455-6677-8899-aabbccddeeff", 1);
    setenv("FAKE_CUDA_NAME", "NVIDIA Fake 9000", 1);
    setenv("FAKE_CUDA_MEMORY", "67108864", 1);
    setenv("FAKE_CUDA_VERSION", "12040", 1);
    setenv("FAKE_CUDA_ATTRIBUTES", "20=3,116=0,134=-", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_driver, play_clean),
        cmocka_unit_test_teardown(test_names, play_clean),
        cmocka_unit_test_teardown(test_codes, play_clean),
        cmocka_unit_test_teardown(test_count, play_clean),
        cmocka_unit_test_teardown(test_info, play_clean),
        cmocka_unit_test_teardown(test_info_sizes, play_clean),
        cmocka_unit_test_teardown(test_no_such_device, play_clean),
        cmocka_unit_test_teardown(test_attribute, play_clean),
        cmocka_unit_test_teardown(test_info_fails, play_clean),
        cmocka_unit_test_teardown(test_context, play_clean),
        cmocka_unit_test_teardown(test_push, play_clean),
        cmocka_unit_test_teardown(test_memory_info, play_clean),
        cmocka_unit_test_teardown(test_open_fails, play_clean),
        cmocka_unit_test_teardown(test_calls, play_clean),
        cmocka_unit_test_teardown(test_calls_fail, play_clean),
        cmocka_unit_test_teardown(test_warnings, play_clean),
        cmocka_unit_test_teardown(test_threads, play_clean),
    };
    return cmocka_run_group_tests_name("CUDA", tests, NULL, NULL);
}
