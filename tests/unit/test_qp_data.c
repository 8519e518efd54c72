/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The data path: bytes of all lengths, lists, rooms, order, signalling; a random mix against a model. */
#include "rail/verbs.h"
#include "verbs_play.h"

/* ---- a look at what the driver is given ---- */

static struct {
    int (*real)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
    unsigned calls, requests, signalled, inlined, longest_gap, gap, empty; /* empty: pieces of no bytes */
} driver;

static int counting_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    driver.calls++;
    for (const struct ibv_send_wr *at = wr; at; at = at->next) {
        bool is_signalled = at->send_flags & IBV_SEND_SIGNALED;
        driver.requests++;
        driver.signalled += is_signalled;
        for (int i = 0; i < at->num_sge; i++)
            driver.empty += at->sg_list[i].length == 0;
        driver.inlined += (at->send_flags & IBV_SEND_INLINE) != 0;
        driver.gap = is_signalled ? 0 : driver.gap + 1;
        driver.longest_gap = driver.gap > driver.longest_gap ? driver.gap : driver.longest_gap;
    }
    return driver.real(qp, wr, bad);
}

static void count_posts(const struct play_end *end)
{
    int (**post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **) =
        &end->qp->qp->context->ops.post_send;
    memset(&driver, 0, sizeof driver);
    driver.real = *post_send;
    *post_send = counting_post;
}

static void open_pair(struct play_end ends[2], uint32_t depth)
{
    const struct gpusys_qp_options options = {.size = sizeof options, .depth = depth};
    play_ends_open(ends, "fake0", "fake1", &options);
    count_posts(&ends[0]);
}

/* ---- lengths ---- */

static void assert_length_moves(struct play_end ends[2], uint64_t length)
{
    enum { FROM = 4096 };
    for (uint32_t kind = GPUSYS_QP_READ; kind <= GPUSYS_QP_WRITE; kind++) {
        struct gpusys_qp_op op = play_op(ends, kind, length, FROM, FROM, length);
        unsigned char *from = ends[kind == GPUSYS_QP_READ].bytes, *to = ends[kind == GPUSYS_QP_WRITE].bytes;
        memset(to, 0xEE, PLAY_BYTES);
        for (size_t i = 0; i < PLAY_BYTES; i++)
            from[i] = (unsigned char)(i * 13 + i / 255 + kind);
        assert_int_equal(play_one(ends[0].qp, &op), 0);
        assert_memory_equal(to + FROM, from + FROM, length);
        assert_int_equal(to[FROM - 1], 0xEE);
        assert_int_equal(to[FROM + length], 0xEE);
    }
}

static void bytes_of_all_lengths(void **state)
{
    (void)state;
    const uint64_t lengths[] = {0,    1,    2,    3,     63,    64,    65,    127,    128,
                                4095, 4096, 4097, 65535, 65536, 65537, 99999, 131072, 200000};
    struct play_end ends[2] = {{.verbs = NULL}};
    open_pair(ends, 0);
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        assert_length_moves(ends, lengths[i]);
    assert_int_equal(driver.empty, 0); /* devices take an empty piece for one of 2 GiB */
    play_ends_close(ends);
}

/* small sends 1000 bytes in a message. */
static void long_operations_are_split_and_complete_once(void **state)
{
    (void)state;
    const struct {
        uint64_t length;
        unsigned pieces;
    } cases[] = {{999, 1}, {1000, 1}, {1001, 2}, {2000, 2}, {2001, 3}, {50000, 50}};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "small", "fake1", NULL);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        count_posts(&ends[0]);
        assert_length_moves(ends, cases[i].length);
        ends[0].qp->qp->context->ops.post_send = driver.real;
        assert_int_equal(driver.requests, 2 * cases[i].pieces);
        assert_int_equal(driver.calls, 2);
        assert_int_equal(play_info(&ends[0]).outstanding, 0);
    }
    play_ends_close(ends);
}

static void operations_that_never_fit(void **state)
{
    (void)state;
    const struct gpusys_qp_options options = {.size = sizeof options, .depth = 4};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "small", "fake1", &options);
    struct gpusys_qp_op ops[3] = {play_op(ends, GPUSYS_QP_READ, 1, 0, 0, 4001),
                                  play_op(ends, GPUSYS_QP_READ, 2, 0, 0, 4000)};
    struct gpusys_qp_completion completions[3];
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 2), -EMSGSIZE);
    ops[0].length = UINT64_MAX;
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 2), -EMSGSIZE);
    ops[0].length = 10;
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 2), 1); /* the second has to wait for the first */
    assert_int_equal(play_collect(ends[0].qp, completions, 1), 1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops + 1, 1), 1);
    assert_int_equal(gpusys_qp_room(ends[0].qp), 0);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 1), 0);
    assert_int_equal(play_collect(ends[0].qp, completions, 1), 1);
    assert_int_equal(completions[0].id, 2);
    ops[1].length = 4001;
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 2), 1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops + 1, 1), -EMSGSIZE);
    assert_int_equal(play_collect(ends[0].qp, completions, 1), 1);
    play_ends_close(ends);
}

static void short_writes_are_copied_when_posted(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    open_pair(ends, 0);
    for (uint64_t length = 64; length <= 65; length++) {
        struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_WRITE, 1, 0, 0, length);
        struct gpusys_qp_completion completion;
        memset(ends[0].bytes, 0x11, length);
        memset(ends[1].bytes, 0, length);
        fake.hold(1);
        assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
        memset(ends[0].bytes, 0x22, length);
        fake.hold(0);
        fake.release(0);
        assert_int_equal(play_collect(ends[0].qp, &completion, 1), 1);
        assert_int_equal(ends[1].bytes[length - 1], length == 64 ? 0x11 : 0x22);
    }
    assert_int_equal(driver.inlined, 1);
    play_ends_close(ends);
}

/* ---- lists ---- */

static void fill_list(struct play_end ends[2], struct gpusys_qp_op *ops, uint32_t n, uint64_t length)
{
    for (uint32_t i = 0; i < n; i++)
        ops[i] = play_op(ends, GPUSYS_QP_READ, 7000 + i, i * length, 2 * i * length, length);
}

static void assert_list_completes(struct play_end *end, uint32_t n)
{
    struct gpusys_qp_completion completions[256];
    assert_int_equal(play_collect(end->qp, completions, n), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(completions[i].id, 7000 + i);
        assert_int_equal(completions[i].status, 0);
        assert_int_equal(completions[i].foreign, 0);
        assert_int_equal(completions[i].vendor, 0);
    }
}

static void lists_are_one_call_and_sparsely_signalled(void **state)
{
    (void)state;
    const struct {
        uint32_t n;
        uint64_t length;
        unsigned calls, signalled;
    } lists[] = {{1, 64, 1, 1},  {16, 64, 1, 1},  {32, 64, 1, 1},   {33, 64, 1, 2},  {64, 64, 1, 2},
                 {65, 64, 2, 3}, {128, 64, 2, 4}, {2, 65536, 1, 2}, {2, 65535, 1, 1}};
    struct gpusys_qp_op ops[128];
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        open_pair(ends, 128);
        fill_list(ends, ops, lists[i].n, lists[i].length);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, lists[i].n), lists[i].n);
        assert_list_completes(&ends[0], lists[i].n);
        assert_int_equal(driver.calls, lists[i].calls);
        assert_int_equal(driver.requests, lists[i].n);
        assert_int_equal(driver.signalled, lists[i].signalled);
        assert_in_range(driver.longest_gap, 0, 31);
        for (uint32_t k = 0; k < lists[i].n && lists[i].length == 64; k++)
            assert_memory_equal(ends[0].bytes + k * 64, ends[1].bytes + 2 * k * 64, 64);
        play_ends_close(ends);
    }
}

static void lists_longer_than_the_room(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_op ops[200];
    open_pair(ends, 100);
    fill_list(ends, ops, 200, 64);
    fake.hold(1);
    assert_int_equal(gpusys_qp_room(ends[0].qp), 100);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 200), 100);
    assert_int_equal(gpusys_qp_room(ends[0].qp), 0);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops + 100, 100), 0);
    fake.hold(0);
    fake.release(0);
    assert_list_completes(&ends[0], 100);
    assert_int_equal(gpusys_qp_room(ends[0].qp), 100);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 0), 0);
    play_ends_close(ends);
}

static void depths(void **state)
{
    (void)state;
    const uint32_t all[] = {1, 2, 3, 63, 64, 65, 1000};
    struct gpusys_qp_op ops[70];
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        open_pair(ends, all[i]);
        fill_list(ends, ops, 70, 64);
        for (unsigned round = 0; round < 5; round++) {
            uint32_t n = all[i] < 70 ? all[i] : 70;
            assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 70), n);
            assert_list_completes(&ends[0], n);
        }
        play_ends_close(ends);
    }
}

/* Polled few at a time, without a gap or a repetition. */
static void polling_a_few_at_a_time(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_op ops[50];
    struct gpusys_qp_completion completions[8];
    open_pair(ends, 64);
    fill_list(ends, ops, 50, 64);
    assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 8), 0);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 50), 50);
    assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 0), 0);
    uint64_t next = 7000;
    while (next < 7050) {
        uint32_t most = 1 + (uint32_t)(next % 8);
        int count = gpusys_qp_poll(ends[0].qp, completions, most);
        assert_in_range(count, 1, most);
        for (int i = 0; i < count; i++)
            assert_int_equal(completions[i].id, next++);
        assert_int_equal(play_info(&ends[0]).outstanding, 7050 - next);
    }
    assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 8), 0);
    play_ends_close(ends);
}

/* ---- a random mix against a model ---- */

enum { WINDOWS = 6, WINDOW = 10000, MESSAGE = 1000, STEPS = 3000 };

struct model {
    uint64_t random, posted, given;
    struct {
        uint64_t length;
        uint32_t pieces, window, kind;
    } queue[64];
    uint32_t depth, used;
    uint32_t busy[WINDOWS];
};

static uint32_t dice(struct model *model, uint32_t sides)
{
    model->random = model->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(model->random >> 33) % sides;
}

static uint32_t pieces_of(uint64_t length)
{
    return length ? (uint32_t)((length + MESSAGE - 1) / MESSAGE) : 1;
}

/* Both sides have the same bytes at the same place, so whatever moves when, they end up equal. */
static void draw_op(struct model *model, struct play_end ends[2], struct gpusys_qp_op *op, uint64_t id)
{
    static const uint32_t lengths[] = {0, 1, 40, 41, 64, 999, 1000, 1001, 2500, 6000, 9999};
    uint64_t place = (uint64_t)(id % WINDOWS) * WINDOW;
    uint32_t kind = id % WINDOWS < WINDOWS / 2 ? GPUSYS_QP_READ : GPUSYS_QP_WRITE;
    *op = play_op(ends, kind, id, place, place, lengths[dice(model, COUNT_OF(lengths))]);
}

static void model_post(struct model *model, struct play_end ends[2])
{
    struct gpusys_qp_op ops[70];
    uint32_t n = dice(model, 4) ? dice(model, 6) : dice(model, 70), wanted = 0;
    uint64_t first = model->posted;
    for (uint32_t i = 0; i < n; i++)
        draw_op(model, ends, &ops[i], first + i);
    while (wanted < n && model->used + pieces_of(ops[wanted].length) <= model->depth) {
        uint32_t window = (uint32_t)(model->posted % WINDOWS), pieces = pieces_of(ops[wanted].length);
        unsigned char *to = ends[ops[wanted].kind == GPUSYS_QP_WRITE].bytes + window * WINDOW;
        if (!model->busy[window]++)
            memset(to, 0xEE, ops[wanted].length);
        model->queue[model->posted % 64].length = ops[wanted].length;
        model->queue[model->posted % 64].pieces = pieces;
        model->used += pieces;
        model->posted++;
        wanted++;
    }
    int taken = gpusys_qp_post(ends[0].qp, ops, n);
    if (taken < 0) /* the first is longer than all of the queue */
        assert_true(wanted == 0 && taken == -EMSGSIZE && pieces_of(ops[0].length) > model->depth);
    else
        assert_int_equal(taken, wanted);
}

static void model_poll(struct model *model, struct play_end ends[2])
{
    struct gpusys_qp_completion completions[70];
    int count = gpusys_qp_poll(ends[0].qp, completions, 1 + dice(model, 69));
    assert_true(count >= 0);
    for (int i = 0; i < count; i++, model->given++) {
        uint64_t place = model->given % WINDOWS * WINDOW, length = model->queue[model->given % 64].length;
        assert_int_equal(completions[i].id, model->given);
        assert_int_equal(completions[i].status, 0);
        assert_memory_equal(ends[0].bytes + place, ends[1].bytes + place, length);
        model->used -= model->queue[model->given % 64].pieces;
        model->busy[model->given % WINDOWS]--;
    }
    assert_true(model->given <= model->posted);
}

static void run_model(uint64_t seed, uint32_t depth)
{
    const struct gpusys_qp_options options = {.size = sizeof options, .depth = depth};
    struct model model = {.random = seed, .depth = depth};
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "small", "fake1", &options);
    for (size_t i = 0; i < WINDOWS * WINDOW; i++)
        ends[0].bytes[i] = ends[1].bytes[i] = (unsigned char)(i * 5 + i / 241);
    for (uint32_t step = 0; step < STEPS; step++) {
        if (dice(&model, 8) == 0)
            FAKE(fake_ibverbs_polls)(dice(&model, 4));
        if (dice(&model, 2))
            model_post(&model, ends);
        else
            model_poll(&model, ends);
        assert_int_equal(play_info(&ends[0]).outstanding <= depth, 1);
    }
    for (uint32_t step = 0; model.given < model.posted; step++) {
        assert_true(step < 1000);
        model_poll(&model, ends);
    }
    assert_int_equal(play_info(&ends[0]).outstanding, 0);
    assert_int_equal(gpusys_qp_room(ends[0].qp), depth);
    assert_true(model.given > STEPS / 20);
    play_ends_close(ends);
}

static void random_mix(void **state)
{
    (void)state;
    const uint32_t all[] = {1, 7, 12, 32, 33, 64};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        run_model(0x9e3779b97f4a7c15u * (i + 1), all[i]);
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
        cmocka_unit_test_setup(bytes_of_all_lengths, clear),
        cmocka_unit_test_setup(long_operations_are_split_and_complete_once, clear),
        cmocka_unit_test_setup(operations_that_never_fit, clear),
        cmocka_unit_test_setup(short_writes_are_copied_when_posted, clear),
        cmocka_unit_test_setup(lists_are_one_call_and_sparsely_signalled, clear),
        cmocka_unit_test_setup(lists_longer_than_the_room, clear),
        cmocka_unit_test_setup(depths, clear),
        cmocka_unit_test_setup(polling_a_few_at_a_time, clear),
        cmocka_unit_test_setup(random_mix, clear),
    };
    return cmocka_run_group_tests_name("queue pairs: bytes", tests, play_begin_all, play_end_all);
}
