/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Requests that fail: which, with what, what becomes of the others, and what is said of it. */
#include "rail/verbs.h"
#include "verbs_play.h"

enum { MANY = 24 };

static void fill_list(struct play_end ends[2], struct gpusys_qp_op *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ops[i] = play_op(ends, GPUSYS_QP_READ, 500 + i, 64 * i, 64 * i, 64);
}

/* `n` completions, of which the first `good` went well, the next has `status`, and the others were cut off. */
static void assert_ends(struct play_end *end, uint32_t n, uint32_t good, int status)
{
    struct gpusys_qp_completion completions[MANY + 1];
    assert_int_equal(play_collect(end->qp, completions, n), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(completions[i].id, 500 + i);
        assert_int_equal(completions[i].status, i < good ? 0 : i == good ? status : -ECANCELED);
    }
    assert_int_equal(gpusys_qp_poll(end->qp, completions, MANY), 0);
    assert_int_equal(play_info(end).outstanding, 0);
    assert_int_equal(gpusys_qp_wait(end->qp, completions, MANY, NULL, play_soon()), -ENOENT);
}

/* ---- refused accesses ---- */

static void those_before_a_failure_are_good(void **state)
{
    (void)state;
    const uint32_t bad[] = {0, 1, 7, MANY - 1};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        struct gpusys_qp_op ops[MANY];
        play_ends_open(ends, "fake0", "fake1", NULL);
        fill_list(ends, ops, MANY);
        ops[bad[i]].rkey ^= 0x55;
        memset(ends[0].bytes, 0, 64 * MANY);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, MANY), MANY);
        assert_ends(&ends[0], MANY, bad[i], -EREMOTEIO);
        assert_memory_equal(ends[0].bytes, ends[1].bytes, 64 * bad[i]);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 1), -EREMOTEIO);
        assert_int_equal(gpusys_qp_room(ends[0].qp), 0);
        assert_int_equal(play_info(&ends[0]).dead, -EREMOTEIO);
        play_ends_close(ends);
    }
}

struct access {
    const char *what;
    uint32_t kind;
    int64_t local, remote; /* moved by so much */
    uint32_t lkey, rkey;   /* changed by so much */
    uint32_t status, foreign;
};

static const struct access accesses[] = {
    {"wrong remote key", GPUSYS_QP_READ, 0, 0, 0, 1, EREMOTEIO, IBV_WC_REM_ACCESS_ERR},
    {"before the region", GPUSYS_QP_READ, 0, -1, 0, 0, EREMOTEIO, IBV_WC_REM_ACCESS_ERR},
    {"behind the region", GPUSYS_QP_WRITE, 0, PLAY_BYTES - 99, 0, 0, EREMOTEIO, IBV_WC_REM_ACCESS_ERR},
    {"wrong local key", GPUSYS_QP_READ, 0, 0, 1, 0, EFAULT, IBV_WC_LOC_PROT_ERR},
    {"before our memory", GPUSYS_QP_WRITE, -1, 0, 0, 0, EFAULT, IBV_WC_LOC_PROT_ERR},
    {"behind our memory", GPUSYS_QP_READ, PLAY_BYTES - 99, 0, 0, 0, EFAULT, IBV_WC_LOC_PROT_ERR},
};

static void wrong_accesses(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(accesses); i++) {
        const struct access *access = &accesses[i];
        struct play_end ends[2] = {{.verbs = NULL}};
        struct gpusys_qp_completion completion;
        play_ends_open(ends, "fake0", "fake1", NULL);
        struct gpusys_qp_op op =
            play_op(ends, access->kind, 1, (uint64_t)access->local, (uint64_t)access->remote, 100);
        op.lkey ^= access->lkey;
        op.rkey ^= access->rkey;
        assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
        assert_int_equal(play_collect(ends[0].qp, &completion, 1), 1);
        if (completion.status != -(int)access->status || completion.foreign != access->foreign)
            fail_msg("%s: %d, %u", access->what, completion.status, completion.foreign);
        play_ends_close(ends);
    }
}

/* What a peer may do with memory of each access; and we ourselves. */
static void rights_of_memory(void **state)
{
    (void)state;
    const struct {
        uint32_t access;
        int peer_reads, peer_writes, we_read, we_write; /* the last two: into it, from it */
    } rights[] = {{GPUSYS_MR_SOURCE, -EREMOTEIO, -EREMOTEIO, -EFAULT, 0},
                  {GPUSYS_MR_LANDING, -EREMOTEIO, -EREMOTEIO, 0, 0},
                  {GPUSYS_MR_PEER_READ, 0, -EREMOTEIO, -EFAULT, 0},
                  {GPUSYS_MR_PEER_READ_WRITE, 0, 0, 0, 0},
                  {GPUSYS_MR_PEER_READ | GPUSYS_MR_RELAXED, 0, -EREMOTEIO, -EFAULT, 0}};
    for (size_t i = 0; i < COUNT_OF(rights); i++)
        for (unsigned way = 0; way < 4; way++) {
            struct play_end ends[2] = {{.verbs = NULL}};
            struct gpusys_mr *mr;
            struct gpusys_mr_info key = {.size = sizeof key};
            bool is_peer = way < 2;
            play_ends_open(ends, "fake0", "fake1", NULL);
            assert_int_equal(
                gpusys_mr_open(&mr, ends[is_peer].pd, ends[is_peer].bytes, 200, rights[i].access, NULL), 0);
            assert_int_equal(gpusys_mr_info(mr, &key), 0);
            struct gpusys_qp_op op = play_op(ends, way % 2 ? GPUSYS_QP_WRITE : GPUSYS_QP_READ, 1, 0, 0, 200);
            if (is_peer)
                op.rkey = key.rkey;
            else
                op.lkey = key.lkey;
            const int wanted[] = {rights[i].peer_reads, rights[i].peer_writes, rights[i].we_read,
                                  rights[i].we_write};
            assert_int_equal(play_one(ends[0].qp, &op), wanted[way]);
            gpusys_mr_close(mr);
            play_ends_close(ends);
        }
}

/* small sends 1000 bytes in a message: the third piece of five lies outside. */
static void a_split_operation_fails_once(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_op ops[3];
    struct gpusys_qp_completion completions[4];
    play_ends_open(ends, "small", "fake1", NULL);
    ops[0] = play_op(ends, GPUSYS_QP_READ, 500, 0, 0, 2500);
    ops[1] = play_op(ends, GPUSYS_QP_READ, 501, 0, PLAY_BYTES - 2500, 5000);
    ops[2] = play_op(ends, GPUSYS_QP_READ, 502, 0, 0, 3000);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 3), 3);
    assert_int_equal(play_info(&ends[0]).outstanding, 11);
    assert_ends(&ends[0], 3, 1, -EREMOTEIO);
    /* And when all of it comes back flushed. */
    assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 0, NULL), 0);
    fake.hold(1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 3), 3);
    uint32_t count = 0;
    assert_int_equal(gpusys_qp_drain(ends[0].qp, completions, 4, &count, play_soon()), 0);
    assert_int_equal(count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(completions[i].id, 500 + i);
        assert_int_equal(completions[i].status, -ECANCELED);
    }
    play_ends_close(ends);
}

/* After failures of split operations the queue pair can be used again, and forgets none of its slots. */
static void split_operations_leave_nothing_behind(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    play_ends_open(ends, "small", "fake1", NULL);
    uint32_t packets = 0;
    for (unsigned round = 0; round < 30; round++, packets = 64) {
        struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 1, 0, 0, 10000);
        fake.hold(1);
        assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
        assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, NULL, play_soon()), 0);
        assert_int_equal(ends[0].qp->n_odd, 0);
        fake.hold(0);
        assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, packets, NULL), 0);
        assert_int_equal(gpusys_qp_room(ends[0].qp), 64);
        op.length = 64000;
        assert_int_equal(play_one(ends[0].qp, &op), 0);
    }
    play_ends_close(ends);
}

/* ---- the queue ---- */

static void a_completion_with_an_unknown_id(void **state)
{
    (void)state;
    const uint64_t ids[] = {12345, 3, UINT64_MAX};
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        struct gpusys_qp_op ops[3];
        struct gpusys_qp_completion completions[8];
        struct gpusys_error error = {.code = 0};
        play_ends_open(ends, "fake0", "fake1", NULL);
        fill_list(ends, ops, 3);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 3), 3);
        FAKE(fake_ibverbs_stray)("fake0", ids[i]);
        play_log_begin();
        assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 8), 3); /* those that came before it */
        assert_int_equal(completions[2].status, 0);
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 8), -EPROTO);
        assert_logged("fake0: queue pair ");
        assert_int_equal(gpusys_qp_wait(ends[0].qp, completions, 8, NULL, play_soon()), -EPROTO);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 3), -EPROTO);
        assert_int_equal(gpusys_qp_room(ends[0].qp), 0);
        assert_int_equal(play_info(&ends[0]).dead, -EPROTO);
        assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 1024, 0, &error), -EPROTO);
        play_ends_close(ends);
    }
}

static void a_completion_that_comes_twice(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_op op;
    struct gpusys_qp_completion completions[8];
    play_ends_open(ends, "fake0", "fake1", NULL);
    fill_list(ends, &op, 1);
    assert_int_equal(play_one(ends[0].qp, &op), 0);
    assert_int_equal(play_one(ends[0].qp, &op), 0);
    fake.hold(1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
    FAKE(fake_ibverbs_stray)("fake0", 1);
    assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 8), -EPROTO);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, NULL, play_soon()), -EPROTO);
    play_ends_close(ends);
}

static void a_queue_that_breaks(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_op op;
    struct gpusys_qp_completion completions[8];
    play_ends_open(ends, "fake0", "fake1", NULL);
    fill_list(ends, &op, 1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
    fake.on("ibv_poll_cq", 1, FAKE_IBVERBS_FAIL, EOVERFLOW);
    assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 8), -EIO);
    assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 8), -EIO);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), -EIO);
    play_ends_close(ends);
}

/* ---- drivers that refuse to post ---- */

static void refused_posts_leave_things_as_they_were(void **state)
{
    (void)state;
    const int foreigns[] = {ENOMEM, EINVAL};
    for (size_t i = 0; i < COUNT_OF(foreigns); i++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        struct gpusys_qp_op ops[MANY];
        play_ends_open(ends, "fake0", "fake1", NULL);
        fill_list(ends, ops, MANY);
        fake.hold(1);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 5), 5);
        fake.on("ibv_post_send", 1, FAKE_IBVERBS_FAIL, (uint64_t)foreigns[i]);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops + 5, 7), -foreigns[i]);
        assert_int_equal(play_info(&ends[0]).outstanding, 5);
        assert_int_equal(play_info(&ends[0]).dead, -foreigns[i]);
        assert_int_equal(gpusys_qp_room(ends[0].qp), 0);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops + 5, 7), -foreigns[i]);
        fake.hold(0);
        fake.release(0);
        assert_ends(&ends[0], 5, 5, 0);
        assert_int_equal(gpusys_qp_reconnect(ends[0].qp, 4096, 5, NULL), 0);
        play_ends_close(ends);
    }
}

/* A driver that takes so many requests from now on, and then none. */
static struct {
    int (*real)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
    uint32_t takes, refuses; /* requests; after as many refused calls it takes all again */
} miser;

static int miserly_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct ibv_send_wr *last = NULL, *at = wr;
    for (; at && miser.takes; at = at->next, miser.takes--)
        last = at;
    if (at && !miser.refuses)
        return miser.real(qp, wr, bad);
    if (last) {
        last->next = NULL;
        assert_int_equal(miser.real(qp, wr, bad), 0);
        last->next = at;
    }
    miser.refuses -= at != NULL;
    *bad = at;
    return at ? ENOMEM : 0;
}

static void make_miserly(struct play_end *end, uint32_t takes, uint32_t refuses)
{
    int (**post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **) =
        &end->qp->qp->context->ops.post_send;
    miser.real = *post_send;
    miser.takes = takes;
    miser.refuses = refuses;
    *post_send = miserly_post;
}

/* Some of a list are under way, the last of them unsignalled: they end, whether they ran or not. */
static void half_a_list_is_taken(void **state)
{
    (void)state;
    for (int hold = 0; hold < 2; hold++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        struct gpusys_qp_op ops[MANY];
        struct gpusys_qp_completion completions[MANY];
        play_ends_open(ends, "fake0", "fake1", NULL);
        fill_list(ends, ops, MANY);
        make_miserly(&ends[0], 10, 1);
        fake.hold(hold);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, MANY), 10);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, MANY), -ENOMEM);
        assert_int_equal(play_collect(ends[0].qp, completions, 10), 10);
        for (uint32_t i = 0; i < 10; i++) {
            assert_int_equal(completions[i].id, 500 + i);
            assert_int_equal(completions[i].status, hold ? -ECANCELED : 0);
        }
        assert_int_equal(gpusys_qp_wait(ends[0].qp, completions, MANY, NULL, play_soon()), -ENOENT);
        assert_int_equal(play_info(&ends[0]).outstanding, 0);
        assert_int_equal(play_info(&ends[0]).dead, -ENOMEM);
        assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, NULL, play_soon()), 0);
        assert_int_equal(ends[0].qp->n_odd, 0);
        play_ends_close(ends);
    }
}

/* Where nothing at all can be posted any more, nobody can know when those end; draining says so. */
static void half_a_list_is_taken_and_nothing_more(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_op ops[MANY];
    struct gpusys_qp_completion completions[MANY];
    play_ends_open(ends, "fake0", "fake1", NULL);
    fill_list(ends, ops, MANY);
    make_miserly(&ends[0], 10, UINT32_MAX);
    assert_int_equal(gpusys_qp_post(ends[0].qp, ops, MANY), 10);
    assert_int_equal(play_info(&ends[0]).outstanding, 10);
    assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, MANY), 0);
    assert_int_equal(gpusys_qp_drain(ends[0].qp, NULL, 0, NULL, gpusys_deadline_after(1000000)), -ETIMEDOUT);
    play_ends_close(ends);
}

/* small sends 1000 bytes in a message: an operation of ten messages, of which four are taken. */
static void half_an_operation_is_taken(void **state)
{
    (void)state;
    for (int hold = 0; hold < 2; hold++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        struct gpusys_qp_completion completions[4];
        play_ends_open(ends, "small", "fake1", NULL);
        struct gpusys_qp_op ops[3] = {play_op(ends, GPUSYS_QP_READ, 500, 0, 0, 10),
                                      play_op(ends, GPUSYS_QP_READ, 501, 0, 0, 10000),
                                      play_op(ends, GPUSYS_QP_READ, 502, 0, 0, 10)};
        make_miserly(&ends[0], 5, 1);
        fake.hold(hold);
        assert_int_equal(gpusys_qp_post(ends[0].qp, ops, 3), 2);
        assert_ends(&ends[0], 2, hold ? 0 : 1, -ECANCELED);
        assert_int_equal(ends[0].qp->n_odd, 0);
        assert_int_equal(gpusys_qp_poll(ends[0].qp, completions, 4), 0);
        play_ends_close(ends);
    }
}

/* Its stop cannot be posted either: then it was not taken, and no completion of it ever comes. */
static void half_an_operation_that_cannot_be_stopped(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_qp_completion completions[4];
    play_ends_open(ends, "small", "fake1", NULL);
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 501, 0, 0, 10000);
    make_miserly(&ends[0], 4, UINT32_MAX);
    fake.hold(1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), -ENOMEM);
    uint32_t count = 0;
    assert_int_equal(gpusys_qp_drain(ends[0].qp, completions, 4, &count, play_soon()), 0);
    assert_int_equal(count, 0);
    assert_int_equal(play_info(&ends[0]).outstanding, 0);
    assert_int_equal(ends[0].qp->n_odd, 0);
    play_ends_close(ends);
}

/* ---- words ---- */

/* What completions with each status become, from the driver to the words. */
static const struct {
    uint32_t foreign;
    int status;
} statuses[] = {
    {IBV_WC_LOC_LEN_ERR, -EMSGSIZE},
    {IBV_WC_LOC_QP_OP_ERR, -EIO},
    {IBV_WC_LOC_EEC_OP_ERR, -EIO},
    {IBV_WC_LOC_PROT_ERR, -EFAULT},
    {IBV_WC_WR_FLUSH_ERR, -ECANCELED},
    {IBV_WC_MW_BIND_ERR, -EFAULT},
    {IBV_WC_BAD_RESP_ERR, -EIO},
    {IBV_WC_LOC_ACCESS_ERR, -EFAULT},
    {IBV_WC_REM_INV_REQ_ERR, -EREMOTEIO},
    {IBV_WC_REM_ACCESS_ERR, -EREMOTEIO},
    {IBV_WC_REM_OP_ERR, -EREMOTEIO},
    {IBV_WC_RETRY_EXC_ERR, -ETIMEDOUT},
    {IBV_WC_RNR_RETRY_EXC_ERR, -EAGAIN},
    {IBV_WC_LOC_RDD_VIOL_ERR, -EIO},
    {IBV_WC_REM_INV_RD_REQ_ERR, -EREMOTEIO},
    {IBV_WC_REM_ABORT_ERR, -EREMOTEIO},
    {IBV_WC_INV_EECN_ERR, -EIO},
    {IBV_WC_INV_EEC_STATE_ERR, -EIO},
    {IBV_WC_FATAL_ERR, -EIO},
    {IBV_WC_RESP_TIMEOUT_ERR, -ETIMEDOUT},
    {IBV_WC_GENERAL_ERR, -EIO},
    {IBV_WC_TM_ERR, -EIO},
    {1000, -EIO},
};

static void assert_explained(const struct play_end *end, const struct gpusys_qp_completion *completion)
{
    struct gpusys_error error = {.code = 0};
    assert_int_equal(gpusys_qp_explain(end->qp, completion, &error), completion->status);
    assert_int_equal(error.code, completion->status);
    assert_int_equal(error.domain, GPUSYS_DOMAIN_VERBS);
    assert_int_equal(error.foreign, completion->foreign);
    assert_says(&error, completion->status, "fake0 port 1: request 777 failed: ");
    assert_non_null(strstr(error.message, gpusys_wc_status_text(completion->foreign)));
    assert_non_null(strstr(error.detail, "local\tQPN"));
    assert_non_null(strstr(error.detail, "remote\tQPN"));
    assert_non_null(strstr(error.detail, "127.0.0.2"));
    assert_non_null(strstr(error.detail, "MTU 4096, by GID; our port is up"));
    assert_non_null(strstr(error.detail, "device's code\t0x81"));
    assert_true(error.cause[0] && error.hint[0]);
}

static void every_status_has_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(statuses); i++) {
        struct play_end ends[2] = {{.verbs = NULL}};
        struct gpusys_qp_completion completion;
        play_ends_open(ends, "fake0", "fake1", NULL);
        struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 777, 0, 0, 64);
        fake.on("ibv_post_send", 1, FAKE_IBVERBS_COMPLETE, statuses[i].foreign);
        assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), 1);
        assert_int_equal(play_collect(ends[0].qp, &completion, 1), 1);
        assert_int_equal(completion.id, 777);
        assert_int_equal(completion.foreign, statuses[i].foreign);
        assert_int_equal(completion.status, statuses[i].status);
        assert_int_equal(completion.status, gpusys_wc_status_errno(statuses[i].foreign));
        assert_explained(&ends[0], &completion);
        play_ends_close(ends);
    }
    assert_int_equal(gpusys_wc_status_errno(IBV_WC_SUCCESS), 0);
    assert_string_equal(gpusys_wc_status_text(IBV_WC_SUCCESS), "success");
}

static void success_needs_no_words(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    const struct gpusys_qp_completion completion = {.status = 0};
    struct gpusys_error error = {.code = 17};
    play_ends_open(ends, "fake0", "fake1", NULL);
    assert_int_equal(gpusys_qp_explain(ends[0].qp, &completion, &error), 0);
    assert_int_equal(error.code, 17);
    play_ends_close(ends);
}

static void a_port_that_is_down_is_named(void **state)
{
    (void)state;
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_verbs_event event;
    struct gpusys_error error = {.code = 0};
    play_ends_open(ends, "ib0", "ib1", NULL);
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 1, 0, 0, 64);
    FAKE(fake_ibverbs_event)("ib0", IBV_EVENT_PORT_ERR, 1);
    assert_int_equal(gpusys_verbs_event(ends[0].verbs, &event), 1);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 1), -ENETDOWN);
    assert_int_equal(gpusys_qp_post(ends[0].qp, &op, 0), -ENETDOWN);
    const struct gpusys_qp_completion completion = {.status = -ETIMEDOUT, .foreign = IBV_WC_RETRY_EXC_ERR};
    gpusys_qp_explain(ends[0].qp, &completion, &error);
    assert_non_null(strstr(error.detail, "by LID; our port is down"));
    assert_non_null(strstr(error.detail, "LID 6"));
    FAKE(fake_ibverbs_event)("ib0", IBV_EVENT_PORT_ACTIVE, 1);
    assert_int_equal(gpusys_verbs_event(ends[0].verbs, &event), 1);
    assert_int_equal(play_one(ends[0].qp, &op), 0);
    play_ends_close(ends);
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
        cmocka_unit_test_setup(those_before_a_failure_are_good, clear),
        cmocka_unit_test_setup(wrong_accesses, clear),
        cmocka_unit_test_setup(rights_of_memory, clear),
        cmocka_unit_test_setup(a_split_operation_fails_once, clear),
        cmocka_unit_test_setup(split_operations_leave_nothing_behind, clear),
        cmocka_unit_test_setup(a_completion_with_an_unknown_id, clear),
        cmocka_unit_test_setup(a_completion_that_comes_twice, clear),
        cmocka_unit_test_setup(a_queue_that_breaks, clear),
        cmocka_unit_test_setup(refused_posts_leave_things_as_they_were, clear),
        cmocka_unit_test_setup(half_a_list_is_taken, clear),
        cmocka_unit_test_setup(half_a_list_is_taken_and_nothing_more, clear),
        cmocka_unit_test_setup(half_an_operation_is_taken, clear),
        cmocka_unit_test_setup(half_an_operation_that_cannot_be_stopped, clear),
        cmocka_unit_test_setup(every_status_has_words, clear),
        cmocka_unit_test_setup(success_needs_no_words, clear),
        cmocka_unit_test_setup(a_port_that_is_down_is_named, clear),
    };
    return cmocka_run_group_tests_name("queue pairs: failures", tests, play_begin_all, play_end_all);
}
