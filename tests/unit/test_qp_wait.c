/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waiting for completions: what wakes it, what ends it. */
#include "rail/verbs.h"
#include "verbs_play.h"

#include <poll.h>
#include <sched.h>

/* ---- another thread, that acts once the waiting one is about to sleep ---- */

enum act {
    RELEASE,
    CLOSE_CONTROL,
    CLOSE_AFTER_BYTES,
    PORT_DOWN,
    PORT_DOWN_TAKEN, /* and takes the event itself */
    REMOVE,
};

struct other {
    enum act act;
    struct play_end *ends;
    struct gpusys_stream *stream;
    int64_t armed; /* calls of req_notify before the wait */
    pthread_t thread;
};

static void *act(void *context)
{
    const struct other *other = context;
    struct gpusys_verbs_event event;
    int64_t until_ns = play_soon();
    while (fake.calls("ibv_req_notify_cq") <= other->armed && gpusys_now_ns() < until_ns)
        sched_yield();
    switch (other->act) {
    case RELEASE: fake.release(0); break;
    case CLOSE_AFTER_BYTES: gpusys_stream_write(other->stream, "more", 4, until_ns, NULL); /* fall through */
    case CLOSE_CONTROL: gpusys_stream_close(other->stream); break;
    case PORT_DOWN: FAKE(fake_ibverbs_event)("fake0", IBV_EVENT_PORT_ERR, 1); break;
    case PORT_DOWN_TAKEN:
        FAKE(fake_ibverbs_event)("fake0", IBV_EVENT_PORT_ERR, 1);
        while (gpusys_verbs_event(other->ends[0].verbs, &event) > 0)
            continue;
        break;
    case REMOVE: FAKE(fake_ibverbs_remove)("fake0"); break;
    }
    return NULL;
}

static void start(struct other *other)
{
    other->armed = fake.calls("ibv_req_notify_cq");
    assert_int_equal(pthread_create(&other->thread, NULL, act, other), 0);
}

static void post_one(struct play_end ends[2], uint64_t id)
{
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, id, 0, 0, 64);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
}

/* ---- completions ---- */

static void a_sleeper_is_woken(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "fake0", "fake1", NULL);
    fake.hold(1);
    for (uint64_t i = 0; i < 200; i++) { /* more often than events are acknowledged in one go */
        struct other other = {.act = RELEASE, .ends = ends};
        struct gpusys_qp_completion completion = {.status = 1};
        post_one(ends, i);
        start(&other);
        int64_t polls = fake.calls("ibv_poll_cq");
        assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()), 1);
        assert_int_equal(completion.id, i);
        assert_int_equal(completion.status, 0);
        pthread_join(other.thread, NULL);
        assert_true(fake.calls("ibv_poll_cq") - polls < 100); /* it did not spin all the while */
    }
    play_ends_close(ends);
}

static void completions_that_are_there_do_not_sleep(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completion;
    play_ends_open(ends, "fake0", "fake1", NULL);
    post_one(ends, 1);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, 0), 1); /* whatever the deadline */
    assert_int_equal(fake.calls("ibv_req_notify_cq"), 0);
    play_ends_close(ends);
}

static void nothing_under_way(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completion;
    play_ends_open(ends, "fake0", "fake1", NULL);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()), -ENOENT);
    play_ends_close(ends);
}

/* small sends 1000 bytes in a message: the rest of a split operation brings no completion, and ends the wait. */
static void nothing_but_a_failed_operations_rest(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completion;
    play_ends_open(ends, "small", "fake1", NULL);
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 1, 0, PLAY_BYTES - 10, 5000);
    FAKE(fake_ibverbs_polls)(200); /* behind the spinning */
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()), 1);
    assert_int_equal(completion.status, -EREMOTEIO);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()), -ENOENT);
    play_ends_close(ends);
}

static void a_loop_of_ones_own(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completion;
    play_ends_open(ends, "fake0", "fake1", NULL);
    struct pollfd fd = {.fd = gpusys_qp_fd(ends[0].qp), .events = POLLIN};
    fake.hold(1);
    for (uint64_t i = 0; i < 70; i++) {
        post_one(ends, i);
        assert_int_equal(gpusys_qp_arm(ends[0].qp), 0);
        assert_int_equal(gpusys_qp_poll(ends[0].qp, &completion, 1), 0);
        assert_int_equal(poll(&fd, 1, 0), 0);
        fake.release(0);
        assert_int_equal(poll(&fd, 1, 0), 1);
        assert_int_equal(gpusys_qp_poll(ends[0].qp, &completion, 1), 1);
        assert_int_equal(completion.id, i);
    }
    assert_true(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_UNACKED) < 64);
    play_ends_close(ends);
}

/* ---- deadlines ---- */

static void a_deadline_passes(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completion;
    play_ends_open(ends, "fake0", "fake1", NULL);
    fake.hold(1);
    post_one(ends, 1);
    const int64_t waits_ns[] = {0, 1000000, 30000000};
    for (size_t i = 0; i < COUNT_OF(waits_ns); i++) {
        int64_t begin_ns = gpusys_now_ns();
        assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, begin_ns + waits_ns[i]),
                         -ETIMEDOUT);
        assert_true(gpusys_now_ns() >= begin_ns + waits_ns[i]);
        assert_int_equal(play_info(&ends[0]).outstanding, 1);
        assert_int_equal(play_info(&ends[0]).dead, 0);
    }
    fake.release(0);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()), 1);
    play_ends_close(ends);
}

static void arming_fails(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completion;
    play_ends_open(ends, "fake0", "fake1", NULL);
    fake.hold(1);
    post_one(ends, 1);
    fake.on("ibv_req_notify_cq", 1, FAKE_IBVERBS_FAIL, EIO);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()), -EIO);
    play_ends_close(ends);
}

/* ---- what else ends a wait ---- */

static void assert_wait_ends(enum act what, int wanted)
{
    struct play_end ends[2] = {{.verbs = NULL}};
    struct play_pair pair;
    struct gpusys_qp_completion completion;
    play_pair_open(&pair);
    play_ends_open(ends, "fake0", "fake1", NULL);
    fake.hold(1);
    post_one(ends, 1);
    struct other other = {.act = what, .ends = ends, .stream = pair.server};
    start(&other);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, pair.client, play_soon()), wanted);
    pthread_join(other.thread, NULL);
    if (wanted < 0)
        assert_int_equal(play_info(&ends[0]).outstanding, 1);
    if (what != CLOSE_CONTROL && what != CLOSE_AFTER_BYTES)
        gpusys_stream_close(pair.server);
    gpusys_stream_close(pair.client);
    play_ends_close(ends);
}

static void the_peer_closes_the_control_connection(void **state)
{
    (void)state;
    assert_wait_ends(CLOSE_CONTROL, -ECONNRESET);
}

static void the_peer_closes_behind_bytes_that_nobody_has_read(void **state)
{
    (void)state;
    assert_wait_ends(CLOSE_AFTER_BYTES, -ECONNRESET);
}

static void the_port_goes_down(void **state)
{
    (void)state;
    assert_wait_ends(PORT_DOWN, -ENETDOWN);
}

static void the_port_goes_down_and_another_thread_takes_the_event(void **state)
{
    (void)state;
    assert_wait_ends(PORT_DOWN_TAKEN, -ENETDOWN);
}

static void the_device_is_removed(void **state)
{
    (void)state;
    assert_wait_ends(REMOVE, 1); /* flushed */
}

/* Bytes of the next protocol are not the end, and stay where they are. */
static void bytes_on_the_control_connection_are_left_alone(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct play_pair pair;
    struct gpusys_qp_completion completion;
    char bytes[5] = "";
    play_pair_open(&pair);
    play_ends_open(ends, "fake0", "fake1", NULL);
    assert_int_equal(gpusys_stream_write(pair.server, "next", 4, play_soon(), NULL), 0);
    fake.hold(1);
    post_one(ends, 1);
    struct other other = {.act = RELEASE, .ends = ends};
    start(&other);
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, pair.client, play_soon()), 1);
    pthread_join(other.thread, NULL);
    assert_int_equal(gpusys_stream_read(pair.client, bytes, 4, play_soon(), NULL), 0);
    assert_string_equal(bytes, "next");
    gpusys_stream_close(pair.client);
    gpusys_stream_close(pair.server);
    play_ends_close(ends);
}

/* A device that is gone and flushes nothing. */
static int poll_nothing(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
    (void)cq, (void)n, (void)wcs;
    return 0;
}

static void a_removed_device_that_stays_silent(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completion;
    play_ends_open(ends, "fake0", "fake1", NULL);
    fake.hold(1);
    post_one(ends, 1);
    __typeof__(&poll_nothing) *poll_cq = &ends[0].qp->cq->context->ops.poll_cq, real = *poll_cq;
    *poll_cq = poll_nothing;
    FAKE(fake_ibverbs_remove)("fake0");
    assert_int_equal(gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()), -ENODEV);
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 2, 0, 0, 64);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), -ENODEV);
    *poll_cq = real;
    play_ends_close(ends);
}

/* ---- queue pairs of one port, each in a thread of its own ---- */

/* The port and the domain of the first pair; memory and queue pairs of its own. */
static void open_second(struct play_end second[2], const struct play_end first[2])
{
    for (int i = 0; i < 2; i++) {
        struct play_end *end = &second[i];
        *end = first[i];
        end->bytes = malloc(PLAY_BYTES);
        assert_non_null(end->bytes);
        assert_int_equal(
            gpusys_mr_open(&end->mr, end->pd, end->bytes, PLAY_BYTES, GPUSYS_MR_PEER_READ_WRITE, NULL), 0);
        assert_int_equal(gpusys_mr_info(end->mr, &end->key), 0);
        assert_int_equal(gpusys_qp_open(&end->qp, end->pd, NULL, NULL), 0);
    }
    play_connect(second);
}

static void close_second(struct play_end second[2])
{
    for (int i = 0; i < 2; i++) {
        gpusys_qp_close(second[i].qp);
        gpusys_mr_close(second[i].mr);
        free(second[i].bytes);
    }
}

static void *read_many(void *context)
{
    struct play_end *ends = context;
    for (uint64_t i = 0; i < 1000; i++) {
        struct gpusys_qp_op op = play_op(ends, i % 3 ? GPUSYS_QP_READ : GPUSYS_QP_WRITE, i, 0, 0, 64);
        struct gpusys_qp_completion completion = {.status = 1};
        if (gpusys_qp_post(ends[0].qp, &op, 1) != 1 ||
            gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon()) != 1 || completion.status ||
            completion.id != i)
            return ends;
    }
    return NULL;
}

static void in_both(struct play_end pairs[2][2], void *(*run)(void *), void *results[2])
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, pairs[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], &results[i]);
}

static void both_move_bytes(void **state)
{
    (void)state;
    struct play_end pairs[2][2] = {{{.verbs = NULL}}};
    void *failed[2];
    play_ends_open(pairs[0], "fake0", "fake1", NULL);
    open_second(pairs[1], pairs[0]);
    FAKE(fake_ibverbs_polls)(70); /* so that they sleep */
    in_both(pairs, read_many, failed);
    assert_null(failed[0]);
    assert_null(failed[1]);
    close_second(pairs[1]);
    play_ends_close(pairs[0]);
}

/* A wait that a GID change does not end, but the port's going down. */
static void *wait_for_the_end(void *context)
{
    struct play_end *ends = context;
    struct gpusys_qp_completion completion;
    return (void *)(intptr_t)gpusys_qp_wait(ends[0].qp, &completion, 1, NULL, play_soon());
}

static void both_see_an_event(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        struct play_end pairs[2][2] = {{{.verbs = NULL}}};
        void *results[2];
        fake.reset();
        play_ends_open(pairs[0], "fake0", "fake1", NULL);
        open_second(pairs[1], pairs[0]);
        fake.hold(1);
        post_one(pairs[0], 1);
        post_one(pairs[1], 1);
        struct other other = {.act = PORT_DOWN, .ends = pairs[0]};
        start(&other);
        FAKE(fake_ibverbs_set_gid)("fake0", 1, 5, "127.0.0.77");
        in_both(pairs, wait_for_the_end, results);
        pthread_join(other.thread, NULL);
        assert_int_equal((intptr_t)results[0], -ENETDOWN);
        assert_int_equal((intptr_t)results[1], -ENETDOWN);
        close_second(pairs[1]);
        play_ends_close(pairs[0]);
    }
}

static int clear(void **state)
{
    (void)state;
    fake.reset();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_sleeper_is_woken, clear),
        cmocka_unit_test_setup(completions_that_are_there_do_not_sleep, clear),
        cmocka_unit_test_setup(nothing_under_way, clear),
        cmocka_unit_test_setup(nothing_but_a_failed_operations_rest, clear),
        cmocka_unit_test_setup(a_loop_of_ones_own, clear),
        cmocka_unit_test_setup(a_deadline_passes, clear),
        cmocka_unit_test_setup(arming_fails, clear),
        cmocka_unit_test_setup(the_peer_closes_the_control_connection, clear),
        cmocka_unit_test_setup(the_peer_closes_behind_bytes_that_nobody_has_read, clear),
        cmocka_unit_test_setup(the_port_goes_down, clear),
        cmocka_unit_test_setup(the_port_goes_down_and_another_thread_takes_the_event, clear),
        cmocka_unit_test_setup(the_device_is_removed, clear),
        cmocka_unit_test_setup(bytes_on_the_control_connection_are_left_alone, clear),
        cmocka_unit_test_setup(a_removed_device_that_stays_silent, clear),
        cmocka_unit_test_setup(both_move_bytes, clear),
        cmocka_unit_test_setup(both_see_an_event, clear),
    };
    return cmocka_run_group_tests_name("queue pairs: waiting", tests, play_begin_all, play_end_all);
}
