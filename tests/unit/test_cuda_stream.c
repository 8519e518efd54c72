/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/cuda.h: streams, events, and waits that end in time. */
#include "cuda_play.h"

#include <pthread.h>

static const int64_t long_ns = 60000000000, short_ns = 20000000;

static struct gpusys_cuda *cuda;
static struct CUstream_st *one, *two;

static int begin(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    if (gpusys_cuda_open(&cuda, 0, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return -1;
    }
    return gpusys_cuda_stream_open(cuda, &one, NULL) || gpusys_cuda_stream_open(cuda, &two, NULL);
}

static int end(void **state)
{
    gpusys_cuda_stream_close(cuda, one);
    gpusys_cuda_stream_close(cuda, two);
    gpusys_cuda_close(cuda);
    cuda = NULL;
    return play_clean(state);
}

static struct CUevent_st *new_event(void)
{
    struct CUevent_st *event = NULL;
    assert_int_equal(gpusys_cuda_event_open(cuda, &event, NULL), 0);
    return event;
}

/* ---- queries ---- */

static void test_query(void **state)
{
    (void)state;
    struct gate gate;
    struct gpusys_error error = {.code = 0};
    gate_init(&gate);
    assert_int_equal(gpusys_cuda_stream_query(cuda, one, &error), 0);
    gate_close(&gate, cuda, one);
    assert_int_equal(gpusys_cuda_stream_query(cuda, one, &error), -EAGAIN);
    assert_error(&error, -EAGAIN, 600, "GPU 0: the stream: CUDA_ERROR_NOT_READY (600): fake: busy");
    assert_int_equal(gpusys_cuda_stream_query(cuda, two, NULL), 0);
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, -1, NULL), 0);
    assert_int_equal(gpusys_cuda_stream_query(cuda, one, NULL), 0);
}

/* ---- waits ---- */

static void assert_times_out(struct CUstream_st *stream, const char *message)
{
    struct gpusys_error error = {.code = 0};
    int64_t start_ns = gpusys_now_ns();
    assert_int_equal(gpusys_cuda_stream_wait(cuda, stream, short_ns, &error), -ETIMEDOUT);
    int64_t took_ns = gpusys_now_ns() - start_ns;
    assert_true(took_ns >= short_ns && took_ns < 500 * short_ns);
    assert_error(&error, -ETIMEDOUT, 600, message);
    assert_in(error.hint, "more time");
}

static void test_timeout(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate_close(&gate, cuda, one);
    gate_close(&gate, cuda, NULL);
    assert_times_out(one, "GPU 0: the stream is not done after 0.020 s");
    assert_times_out(NULL, "GPU 0: the default stream is not done after 0.020 s");
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, 0, NULL), -EAGAIN);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, two, 0, NULL), 0); /* done already */
    gate_open(&gate);
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, long_ns, NULL), 0);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, NULL, long_ns, NULL), 0);
}

static void test_event_timeout(void **state)
{
    (void)state;
    struct gate gate;
    struct gpusys_error error = {.code = 0};
    struct CUevent_st *event = new_event();
    gate_init(&gate);
    gate_close(&gate, cuda, one);
    assert_int_equal(gpusys_cuda_event_record(cuda, event, one, NULL), 0);
    assert_int_equal(gpusys_cuda_event_wait(cuda, event, short_ns, &error), -ETIMEDOUT);
    assert_error(&error, -ETIMEDOUT, 600, "GPU 0: the event is not done after 0.020 s");
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_event_wait(cuda, event, long_ns, NULL), 0);
    gpusys_cuda_event_close(cuda, event);
}

struct waiter {
    struct CUstream_st *stream;
    struct CUevent_st *event;
    int64_t timeout_ns;
    int code;
};

static void *wait_there(void *argument)
{
    struct waiter *waiter = argument;
    waiter->code = waiter->event ? gpusys_cuda_event_wait(cuda, waiter->event, waiter->timeout_ns, NULL)
                                 : gpusys_cuda_stream_wait(cuda, waiter->stream, waiter->timeout_ns, NULL);
    return NULL;
}

/* The one that waits is another thread than the one that ends the work. */
static void test_waiters(void **state)
{
    (void)state;
    struct gate gate;
    struct CUevent_st *event = new_event();
    gate_init(&gate);
    gate_close(&gate, cuda, one);
    assert_int_equal(gpusys_cuda_event_record(cuda, event, one, NULL), 0);
    struct waiter waiters[] = {
        {one, NULL, -1, 1}, {one, NULL, long_ns, 1}, {NULL, event, -1, 1}, {NULL, event, long_ns, 1}};
    pthread_t threads[COUNT_OF(waiters)];
    for (size_t i = 0; i < COUNT_OF(waiters); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_there, &waiters[i]), 0);
    gate_open(&gate);
    for (size_t i = 0; i < COUNT_OF(waiters); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].code, 0);
    }
    gpusys_cuda_event_close(cuda, event);
}

/* ---- order ---- */

static char noted[64];
static pthread_mutex_t note_lock = PTHREAD_MUTEX_INITIALIZER;

static void note(void *letter)
{
    pthread_mutex_lock(&note_lock);
    strncat(noted, letter, sizeof noted - strlen(noted) - 1);
    pthread_mutex_unlock(&note_lock);
}

static void put(struct CUstream_st *stream, char *letter)
{
    assert_int_equal(gpusys_cuda_push(cuda, NULL), 0);
    assert_int_equal(FAKE(cuLaunchHostFunc)(stream, note, letter), 0);
    gpusys_cuda_pop(cuda);
}

static void test_order_in_a_stream(void **state)
{
    (void)state;
    noted[0] = 0;
    char *const letters[] = {"a", "b", "c", "d", "e", "f"};
    for (size_t i = 0; i < COUNT_OF(letters); i++)
        put(one, letters[i]);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, -1, NULL), 0);
    assert_string_equal(noted, "abcdef");
}

static void test_after(void **state)
{
    (void)state;
    struct gate gate;
    struct CUevent_st *event = new_event();
    noted[0] = 0;
    gate_init(&gate);
    gate_close(&gate, cuda, one);
    put(one, "1");
    assert_int_equal(gpusys_cuda_event_record(cuda, event, one, NULL), 0);
    assert_int_equal(gpusys_cuda_stream_after(cuda, two, event, NULL), 0);
    put(two, "2");
    assert_int_equal(gpusys_cuda_event_query(cuda, event, NULL), -EAGAIN);
    assert_int_equal(gpusys_cuda_stream_query(cuda, two, NULL), -EAGAIN); /* it waits for the other */
    gpusys_cuda_event_close(cuda, event);                                 /* the order stays */
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, two, -1, NULL), 0);
    assert_string_equal(noted, "12");
}

static void test_event(void **state)
{
    (void)state;
    struct gate gate;
    struct CUevent_st *event = new_event();
    gate_init(&gate);
    assert_int_equal(gpusys_cuda_event_query(cuda, event, NULL), 0); /* never recorded: nothing to wait for */
    assert_int_equal(gpusys_cuda_event_wait(cuda, event, -1, NULL), 0);
    gate_close(&gate, cuda, one);
    assert_int_equal(gpusys_cuda_event_record(cuda, event, one, NULL), 0);
    gate_close(&gate, cuda, one); /* what comes after it does not matter */
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_event_wait(cuda, event, -1, NULL), 0);
    assert_int_equal(gpusys_cuda_event_query(cuda, event, NULL), 0);
    assert_int_equal(gpusys_cuda_stream_query(cuda, one, NULL), -EAGAIN);
    assert_int_equal(gpusys_cuda_event_record(cuda, event, one, NULL), 0); /* anew */
    assert_int_equal(gpusys_cuda_event_query(cuda, event, NULL), -EAGAIN);
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_event_wait(cuda, event, -1, NULL), 0);
    gpusys_cuda_event_close(cuda, event);
    gpusys_cuda_event_close(cuda, NULL);
}

/* ---- the default stream ---- */

static void test_default_stream(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate_close(&gate, cuda, NULL);
    assert_int_equal(gpusys_cuda_stream_query(cuda, NULL, NULL), -EAGAIN);
    put(one, "x"); /* ours do not wait for it */
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, -1, NULL), 0);
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, NULL, -1, NULL), 0);
    assert_int_equal(gpusys_cuda_stream_query(cuda, NULL, NULL), 0);
}

/* Streams of others may be blocking: the default one waits for them, and they for it. */
static void test_blocking_streams(void **state)
{
    (void)state;
    struct gate gate;
    struct CUstream_st *blocking = NULL;
    noted[0] = 0;
    gate_init(&gate);
    assert_int_equal(gpusys_cuda_push(cuda, NULL), 0);
    assert_int_equal(FAKE(cuStreamCreate)(&blocking, 0), 0);
    gpusys_cuda_pop(cuda);
    gate_close(&gate, cuda, blocking);
    put(blocking, "a");
    put(NULL, "b");
    put(blocking, "c");
    assert_int_equal(gpusys_cuda_stream_query(cuda, NULL, NULL), -EAGAIN);
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, NULL, -1, NULL), 0);
    assert_string_equal(noted, "abc");
    gpusys_cuda_stream_close(cuda, blocking);
}

/* ---- the ends of things ---- */

static void test_close_while_busy(void **state)
{
    (void)state;
    struct gate gate;
    struct CUstream_st *stream = NULL;
    struct CUevent_st *event = new_event();
    gate_init(&gate);
    assert_int_equal(gpusys_cuda_stream_open(cuda, &stream, NULL), 0);
    gate_close(&gate, cuda, stream);
    assert_int_equal(gpusys_cuda_event_record(cuda, event, stream, NULL), 0);
    gpusys_cuda_stream_close(cuda, stream); /* does not wait */
    assert_int_equal(gpusys_cuda_event_query(cuda, event, NULL), -EAGAIN);
    gate_open(&gate);
    assert_int_equal(gpusys_cuda_event_wait(cuda, event, -1, NULL), 0); /* the work went on */
    gpusys_cuda_event_close(cuda, event);
    gpusys_cuda_stream_close(cuda, NULL);
}

static void test_bad_handles(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    long nothing[64] = {0};
    assert_int_equal(gpusys_cuda_stream_query(cuda, (struct CUstream_st *)nothing, &error), -EINVAL);
    assert_error(&error, -EINVAL, 400, "GPU 0: the stream: CUDA_ERROR_INVALID_HANDLE (400): fake: not mine");
    assert_int_equal(gpusys_cuda_event_query(cuda, NULL, &error), -EINVAL);
    assert_error(&error, -EINVAL, 400, "GPU 0: the event: CUDA_ERROR_INVALID_HANDLE (400): fake: not mine");
    assert_int_equal(gpusys_cuda_event_wait(cuda, NULL, long_ns, &error), -EINVAL);
}

static void test_capture(void **state)
{
    (void)state;
    struct gpusys_error error = {.code = 0};
    struct CUgraph_st *graph;
    assert_int_equal(gs_cuda_is_capturing(cuda, one, NULL), 0);
    assert_int_equal(FAKE(cuStreamBeginCapture_v2)(one, 0), 0);
    assert_int_equal(gs_cuda_is_capturing(cuda, one, NULL), 1);
    assert_int_equal(gpusys_cuda_stream_query(cuda, one, &error), -EBUSY);
    assert_error(&error, -EBUSY, 900,
                 "GPU 0: the stream: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900): fake: being captured");
    assert_in(error.hint, "until the capture has ended");
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, long_ns, &error), -EBUSY);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, -1, &error), -EBUSY);
    assert_int_equal(FAKE(cuStreamEndCapture)(one, &graph), 0);
    assert_int_equal(gpusys_cuda_stream_wait(cuda, one, long_ns, NULL), 0);
}

/* ---- threads ---- */

static void *use(void *argument)
{
    (void)argument;
    struct CUstream_st *streams[2] = {NULL};
    struct CUevent_st *event = NULL;
    bool good = true;
    for (int round = 0; round < 20 && good; round++) {
        unsigned char *device = NULL, out[512] = "";
        good = gpusys_cuda_stream_open(cuda, &streams[0], NULL) == 0 &&
               gpusys_cuda_stream_open(cuda, &streams[1], NULL) == 0 &&
               gpusys_cuda_event_open(cuda, &event, NULL) == 0 &&
               gpusys_cuda_alloc(cuda, (void **)&device, sizeof out, NULL) == 0 &&
               gpusys_cuda_fill_async(cuda, device, (uint8_t)round, sizeof out, streams[0], NULL) == 0 &&
               gpusys_cuda_event_record(cuda, event, streams[0], NULL) == 0 &&
               gpusys_cuda_stream_after(cuda, streams[1], event, NULL) == 0 &&
               gpusys_cuda_copy_async(cuda, out, device, sizeof out, streams[1], NULL) == 0 &&
               gpusys_cuda_stream_wait(cuda, streams[1], round % 2 ? -1 : long_ns, NULL) == 0 &&
               out[0] == round && out[511] == round;
        gpusys_cuda_event_close(cuda, event);
        gpusys_cuda_stream_close(cuda, streams[0]);
        gpusys_cuda_stream_close(cuda, streams[1]);
        gpusys_cuda_free(cuda, device);
    }
    return good ? NULL : "it went wrong";
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[6];
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        void *fault = NULL;
        pthread_join(threads[i], &fault);
        assert_null(fault);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_query),
        TEST(test_timeout),
        TEST(test_event_timeout),
        TEST(test_waiters),
        TEST(test_order_in_a_stream),
        TEST(test_after),
        TEST(test_event),
        TEST(test_default_stream),
        TEST(test_blocking_streams),
        TEST(test_close_while_busy),
        TEST(test_bad_handles),
        TEST(test_capture),
        TEST(test_threads),
    };
    return cmocka_run_group_tests_name("CUDA streams", tests, NULL, NULL);
}
