/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote/loop.h"

#include "base/spin.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 64, TICK_MS = 1000 };

struct gs_loop {
    int epoll, wake;
    pthread_t thread;
    void (*tick)(void *context);
    void *context;
    bool bulk;
    pthread_mutex_t lock; /* for the rest */
    struct gs_task *first, **last;
    bool stopping;
};

static void take_wake(struct gs_loop *loop)
{
    uint64_t count;
    while (read(loop->wake, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

/* Run what is queued. True: nothing was, and the loop is to stop. */
static bool run_tasks(struct gs_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    struct gs_task *task = loop->first;
    bool done = !task && loop->stopping;
    loop->first = NULL;
    loop->last = &loop->first;
    pthread_mutex_unlock(&loop->lock);
    while (task) {
        struct gs_task *next = task->next; /* the task may free itself */
        task->run(task);
        task = next;
    }
    return done;
}

static void *loop_main(void *argument)
{
    struct gs_loop *loop = argument;
    struct gs_spin spin = {0};
    int64_t next_tick = gpusys_deadline_after((int64_t)TICK_MS * 1000000);
    while (!run_tasks(loop)) {
        struct epoll_event events[EVENTS_AT_ONCE];
        int count = gs_spin_wait(&spin, loop->bulk, loop->epoll, events, EVENTS_AT_ONCE, TICK_MS);
        for (int i = 0; i < count; i++) {
            struct gs_source *source = events[i].data.ptr;
            if (source)
                source->ready(source, events[i].events);
            else
                take_wake(loop);
        }
        if (gpusys_now_ns() >= next_tick) {
            loop->tick(loop->context);
            next_tick = gpusys_deadline_after((int64_t)TICK_MS * 1000000);
        }
    }
    return NULL;
}

/* Threads of a library take no signals: those are the application's. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

static void free_loop(struct gs_loop *loop)
{
    if (loop->epoll >= 0)
        close(loop->epoll);
    if (loop->wake >= 0)
        close(loop->wake);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

int gs_loop_start(struct gs_loop **ret_loop, void (*tick)(void *context), void *context)
{
    struct gs_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return -ENOMEM;
    loop->tick = tick;
    loop->context = context;
    loop->last = &loop->first;
    pthread_mutex_init(&loop->lock, NULL);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int error = 0;
    if (loop->epoll < 0 || loop->wake < 0 || epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->wake, &event) < 0)
        error = -errno;
    if (!error)
        error = start_thread(&loop->thread, loop_main, loop);
    if (error)
        free_loop(loop);
    else
        *ret_loop = loop;
    return error;
}

static void wake(struct gs_loop *loop)
{
    uint64_t one = 1;
    while (write(loop->wake, &one, sizeof one) < 0 && errno == EINTR)
        ; /* EAGAIN: the counter is full, so it is awake */
}

void gs_loop_stop(struct gs_loop *loop)
{
    if (!loop)
        return;
    pthread_mutex_lock(&loop->lock);
    loop->stopping = true;
    pthread_mutex_unlock(&loop->lock);
    wake(loop);
    pthread_join(loop->thread, NULL);
    free_loop(loop);
}

void gs_loop_post(struct gs_loop *loop, struct gs_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&loop->lock);
    bool was_empty = !loop->first;
    *loop->last = task;
    loop->last = &task->next;
    if (was_empty) /* under the lock: the loop may be freed once it has run its last task */
        wake(loop);
    pthread_mutex_unlock(&loop->lock);
}

void gs_loop_set_bulk(struct gs_loop *loop, bool bulk)
{
    loop->bulk = bulk;
}

int gs_loop_watch(struct gs_loop *loop, struct gs_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    source->events = events;
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, source->fd, &event) < 0 ? -errno : 0;
}

void gs_loop_change(struct gs_loop *loop, struct gs_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (source->events == events)
        return;
    source->events = events;
    epoll_ctl(loop->epoll, EPOLL_CTL_MOD, source->fd, &event);
}

void gs_loop_forget(struct gs_loop *loop, struct gs_source *source)
{
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
}

/* ---- the pool ---- */

enum { POOL_MAX = 16 };

struct gs_pool {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct gs_job *first, **last;
    bool stopping;
    unsigned n_threads;
    pthread_t threads[POOL_MAX];
};

static struct gs_job *next_job(struct gs_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (!pool->first && !pool->stopping)
        pthread_cond_wait(&pool->more, &pool->lock);
    struct gs_job *job = pool->first;
    if (job && !(pool->first = job->next))
        pool->last = &pool->first;
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *pool_main(void *argument)
{
    struct gs_job *job;
    while ((job = next_job(argument))) {
        job->work(job);
        gs_loop_post(job->loop, &job->done);
    }
    return NULL;
}

int gs_pool_start(struct gs_pool **ret_pool, unsigned threads)
{
    struct gs_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    pool->last = &pool->first;
    int error = 0;
    while (!error && pool->n_threads < threads && pool->n_threads < POOL_MAX) {
        error = start_thread(&pool->threads[pool->n_threads], pool_main, pool);
        pool->n_threads += !error;
    }
    if (error)
        gs_pool_stop(pool);
    else
        *ret_pool = pool;
    return error;
}

void gs_pool_stop(struct gs_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void gs_pool_submit(struct gs_pool *pool, struct gs_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&pool->lock);
    *pool->last = job;
    pool->last = &job->next;
    pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->lock);
}
