/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: its state, and what happens around every call. */
#include "ibverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct state fake;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t timer;
static bool timer_runs; /* under the lock, like the next */
static bool timer_stops;

static const char *const function_names[FUNCTIONS] = {
#define FUNCTION_NAME(name) [FN_##name] = #name,
    FAKE_FUNCTIONS(FUNCTION_NAME)
#undef FUNCTION_NAME
};

static void in_child(void)
{
    fake.pid = getpid();
    timer_runs = false;
}

static void init(void)
{
    fake.pid = getpid();
    fake.table = fake_table_open(getenv("FAKE_IBVERBS_DIR"));
    fake_config_read(&fake.original, getenv("FAKE_IBVERBS_CONFIG"));
    fake.config = fake.original;
    fake.waiting = (struct waiting){fake.config.hold, fake.config.delay_us * 1000, fake.config.polls};
    memcpy(fake.rules, fake.config.rules, sizeof fake.rules);
    fake.n_rules = fake.config.n_rules;
    pthread_atfork(NULL, NULL, in_child);
}

__attribute__((destructor)) static void leave(void)
{
    if (!fake.table)
        return;
    fake_stop_timer();
    fake_lock();
    fake_table_leave();
    fake_unlock();
}

void fake_lock(void)
{
    pthread_once(&once, init);
    if (pthread_mutex_lock(&fake.table->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&fake.table->lock); /* whoever died with it was in the midst of a copy */
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&fake.table->lock);
}

uint64_t fake_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- rules ---- */

static bool counts_as_any(enum function function)
{
    switch (function) {
    case FN_ibv_close_device:
    case FN_ibv_dealloc_pd:
    case FN_ibv_dereg_mr:
    case FN_ibv_destroy_comp_channel:
    case FN_ibv_destroy_cq:
    case FN_ibv_destroy_qp:
    case FN_ibv_poll_cq:
    case FN_ibv_get_cq_event:
    case FN_ibv_get_async_event: return false;
    default: return true;
    }
}

/* These work, or may be tried, on a device that is gone. */
static bool works_without_device(enum function function)
{
    return !counts_as_any(function) || function == FN_ibv_post_send || function == FN_ibv_post_recv ||
           function == FN_ibv_req_notify_cq;
}

static void raise_event(enum ibv_event_type type, struct context *context, struct qp *qp, struct cq *cq)
{
    if (type == IBV_EVENT_CQ_ERR && (cq || qp))
        fake_cq_event(cq ? cq : (struct cq *)qp->base.send_cq, type);
    else if (qp && (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
                    type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST))
        fake_qp_event(fake_qp_shared(qp), type);
    else if (context)
        fake_device_event(context->device, type, 1);
}

static void put_stray(struct cq *cq, uint64_t wr_id)
{
    struct ibv_wc wc = {.wr_id = wr_id, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RDMA_READ};
    fake_cq_push(cq, &wc, NULL, 0, true);
}

static int apply(const struct rule *rule, struct context *context, struct qp *qp, struct cq *cq)
{
    switch (rule->action) {
    case FAKE_IBVERBS_FAIL: return (int)rule->value;
    case FAKE_IBVERBS_EVENT: raise_event((enum ibv_event_type)rule->value, context, qp, cq); return 0;
    case FAKE_IBVERBS_COMPLETE:
        fake.next_verdict = (enum ibv_wc_status)rule->value;
        fake.next_verdict_set = true;
        return 0;
    case FAKE_IBVERBS_HOLD: fake.waiting.hold = true; return 0;
    case FAKE_IBVERBS_STRAY:
        if (cq || qp)
            put_stray(cq ? cq : (struct cq *)qp->base.send_cq, rule->value);
        return 0;
    case FAKE_IBVERBS_REMOVE:
        if (context)
            fake_remove_device(context->device);
        return 0;
    case FAKE_IBVERBS_EXIT: _exit((int)rule->value);
    }
    return 0;
}

static int apply_rules(enum function function, struct context *context, struct qp *qp, struct cq *cq)
{
    int error = 0;
    for (unsigned i = 0; i < fake.n_rules;) {
        struct rule rule = fake.rules[i];
        bool is_meant = rule.function == function || (rule.function == FUNCTIONS && counts_as_any(function));
        if (!is_meant || fake.calls[rule.function] != rule.at) {
            i++;
            continue;
        }
        fake.rules[i] = fake.rules[--fake.n_rules];
        int code = apply(&rule, context, qp, cq);
        error = error ? error : code;
    }
    return error;
}

int fake_enter(enum function function, struct ibv_context *context, struct qp *qp, struct cq *cq)
{
    fake_lock();
    fake.calls[function]++;
    if (counts_as_any(function))
        fake.calls[FUNCTIONS]++;
    struct context *own = context ? context_of(context) : NULL;
    int error = fake.n_rules ? apply_rules(function, own, qp, cq) : 0;
    if (!error && own && own->device->is_removed && !works_without_device(function))
        error = EIO;
    return error;
}

int fake_leave(int error)
{
    fake_unlock();
    return error;
}

void *fake_leave_with(void *pointer, int error)
{
    fake_unlock();
    if (!pointer)
        errno = error;
    return pointer;
}

/* ---- the thread that exists while something waits for a time ---- */

static bool progress_all(void)
{
    for (struct context *context = fake.contexts; context; context = context->next)
        for (struct qp *qp = context->qps; qp; qp = qp->next)
            fake_qp_progress(qp);
    return !timer_stops;
}

static void *run_timer(void *unused)
{
    bool goes_on = true;
    while (goes_on) {
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        fake_lock();
        goes_on = progress_all();
        fake_unlock();
    }
    return unused;
}

void fake_start_timer(void)
{
    if (!timer_runs) {
        timer_stops = false;
        timer_runs = pthread_create(&timer, NULL, run_timer, NULL) == 0;
    }
}

void fake_stop_timer(void)
{
    fake_lock();
    bool runs = timer_runs;
    pthread_t thread = timer;
    timer_runs = false;
    timer_stops = true;
    fake_unlock();
    if (runs)
        pthread_join(thread, NULL);
}

/* ---- what tests call ---- */

unsigned fake_function_of(const char *name)
{
    for (unsigned i = 0; i < FUNCTIONS; i++)
        if (strcmp(function_names[i], name) == 0)
            return i;
    return strcmp(name, "*") == 0 ? FUNCTIONS : FUNCTIONS + 1;
}

int fake_ibverbs_on(const char *name, unsigned nth, enum fake_ibverbs_action action, uint64_t value)
{
    unsigned function = fake_function_of(name);
    fake_lock();
    bool is_good = function <= FUNCTIONS && nth && fake.n_rules < RULES;
    if (is_good)
        fake.rules[fake.n_rules++] = (struct rule){function, fake.calls[function] + nth, action, value};
    return fake_leave(is_good ? 0 : -1);
}

int64_t fake_ibverbs_calls(const char *name)
{
    unsigned function = fake_function_of(name);
    fake_lock();
    int64_t calls = function <= FUNCTIONS ? (int64_t)fake.calls[function] : -1;
    fake_unlock();
    return calls;
}

int64_t fake_ibverbs_live(enum fake_ibverbs_kind kind)
{
    int64_t sum = 0;
    fake_lock();
    for (unsigned i = 0; i < FAKE_IBVERBS_KINDS; i++)
        if (kind == i || kind == FAKE_IBVERBS_KINDS)
            sum += fake.live[i];
    fake_unlock();
    return sum;
}

void fake_ibverbs_hold(int on)
{
    fake_lock();
    fake.waiting.hold = on;
    fake_unlock();
}

void fake_ibverbs_delay_us(uint64_t us)
{
    fake_lock();
    fake.waiting.delay_ns = us * 1000;
    fake_unlock();
}

void fake_ibverbs_numbers_part(int yes)
{
    fake_lock();
    fake.config.numbers_part = yes;
    fake_unlock();
}

void fake_ibverbs_polls(unsigned polls)
{
    fake_lock();
    fake.waiting.polls = polls;
    fake_unlock();
}

static unsigned release_of(struct qp *qp, unsigned most)
{
    unsigned released = 0;
    for (uint64_t i = qp->executed; i < qp->posted && released < most; i++) {
        struct request *request = &qp->requests[i % qp->cap.max_send_wr];
        released += request->is_held;
        request->is_held = false;
    }
    if (released)
        fake_qp_progress(qp);
    return released;
}

unsigned fake_ibverbs_release(unsigned count)
{
    unsigned most = count ? count : UINT32_MAX, released = 0;
    fake_lock();
    for (struct context *context = fake.contexts; context; context = context->next)
        for (struct qp *qp = context->qps; qp; qp = qp->next)
            released += release_of(qp, most - released);
    fake_unlock();
    return released;
}

unsigned fake_ibverbs_outstanding(void)
{
    uint64_t sum = 0;
    fake_lock();
    for (struct context *context = fake.contexts; context; context = context->next)
        for (struct qp *qp = context->qps; qp; qp = qp->next)
            sum += qp->posted - qp->executed;
    fake_unlock();
    return (unsigned)sum;
}

int fake_ibverbs_stray(const char *name, uint64_t wr_id)
{
    fake_lock();
    struct device *device = fake_device(name);
    for (struct context *context = fake.contexts; device && context; context = context->next)
        for (struct qp *qp = context->device == device ? context->qps : NULL; qp; qp = qp->next)
            put_stray((struct cq *)qp->base.send_cq, wr_id);
    return fake_leave(device ? 0 : -1);
}

void fake_ibverbs_reset(void)
{
    fake_lock();
    fake.n_rules = 0;
    fake.next_verdict_set = false;
    fake.waiting = (struct waiting){fake.original.hold, fake.original.delay_us * 1000, fake.original.polls};
    memset(fake.calls, 0, sizeof fake.calls);
    fake.config = fake.original;
    for (struct context *context = fake.contexts; context; context = context->next)
        for (struct qp *qp = context->qps; qp; qp = qp->next)
            if (qp->attr.port_num)
                fake_qp_set_port(qp);
    fake_unlock();
}
