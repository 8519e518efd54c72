/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/helper.h"

#include <gpusys/deadline.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* Held by two, the caller and the thread; the one that lets go last frees it. */
struct gs_helper {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int holders, result;
    bool finished;
    int (*run)(void *context);
    void (*discard)(void *context);
    void *context;
};

static struct gs_helper *helper_new(void)
{
    struct gs_helper *helper = calloc(1, sizeof *helper);
    if (!helper)
        return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&helper->done, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&helper->lock, NULL);
    return helper;
}

static void helper_free(struct gs_helper *helper)
{
    pthread_cond_destroy(&helper->done);
    pthread_mutex_destroy(&helper->lock);
    free(helper);
}

void gs_helper_let_go(struct gs_helper *helper)
{
    pthread_mutex_lock(&helper->lock);
    bool last = --helper->holders == 0;
    pthread_mutex_unlock(&helper->lock);
    if (!last)
        return;
    helper->discard(helper->context);
    helper_free(helper);
}

static void *helper_thread(void *context)
{
    struct gs_helper *helper = context;
    int result = helper->run(helper->context);
    pthread_mutex_lock(&helper->lock);
    helper->result = result;
    helper->finished = true;
    pthread_cond_signal(&helper->done);
    pthread_mutex_unlock(&helper->lock);
    gs_helper_let_go(helper);
    return NULL;
}

/* Detached, and deaf to signals: those are for the program's own threads. */
static int start_detached(struct gs_helper *helper)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setsigmask_np(&attributes, &all);
    int error = pthread_create(&thread, &attributes, helper_thread, helper);
    pthread_attr_destroy(&attributes);
    return -error;
}

int gs_helper_start(struct gs_helper **ret_helper, int (*run)(void *context), void (*discard)(void *context),
                    void *context)
{
    struct gs_helper *helper = helper_new();
    if (!helper)
        return -ENOMEM;
    helper->run = run;
    helper->discard = discard;
    helper->context = context;
    helper->holders = 2;
    int code = start_detached(helper);
    if (code) {
        helper_free(helper);
        return code;
    }
    *ret_helper = helper;
    return 0;
}

int gs_helper_wait(struct gs_helper *helper, int64_t deadline_ns, int *ret_result)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    int error = 0;
    pthread_mutex_lock(&helper->lock);
    while (!helper->finished && !error)
        error = deadline_ns == GPUSYS_NO_DEADLINE
                    ? pthread_cond_wait(&helper->done, &helper->lock)
                    : pthread_cond_timedwait(&helper->done, &helper->lock, &until);
    bool finished = helper->finished;
    int result = helper->result;
    pthread_mutex_unlock(&helper->lock);
    if (!finished)
        return -ETIMEDOUT;
    *ret_result = result;
    return 0;
}
