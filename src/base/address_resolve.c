/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Name look-up under a deadline: the resolver has none of its own, so it runs on a thread we can walk away
 * from. */
#include "base/address_resolve.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Held by two, the caller and the thread; the one that lets go last frees it. */
struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int holders;
    bool finished;
    int result, system_error; /* getaddrinfo's code, and errno where that is EAI_SYSTEM */
    struct addrinfo *list;
    char host[GS_HOST_BYTES], port[8];
};

static int ask(struct lookup *lookup, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    int result = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->list);
    lookup->system_error = errno;
    if (result)
        lookup->list = NULL;
    return result;
}

static struct lookup *lookup_new(const struct gs_address *address)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->done, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&lookup->lock, NULL);
    lookup->holders = 1;
    snprintf(lookup->host, sizeof lookup->host, "%s", address->host[0] ? address->host : "127.0.0.1");
    snprintf(lookup->port, sizeof lookup->port, "%u", (unsigned)address->port);
    return lookup;
}

static void lookup_let_go(struct lookup *lookup)
{
    pthread_mutex_lock(&lookup->lock);
    bool last = --lookup->holders == 0;
    pthread_mutex_unlock(&lookup->lock);
    if (!last)
        return;
    if (lookup->list)
        freeaddrinfo(lookup->list);
    pthread_cond_destroy(&lookup->done);
    pthread_mutex_destroy(&lookup->lock);
    free(lookup);
}

static void *lookup_thread(void *context)
{
    struct lookup *lookup = context;
    int result = ask(lookup, 0);
    pthread_mutex_lock(&lookup->lock);
    lookup->result = result;
    lookup->finished = true;
    pthread_cond_signal(&lookup->done);
    pthread_mutex_unlock(&lookup->lock);
    lookup_let_go(lookup);
    return NULL;
}

/* Detached, and deaf to signals: those are for the program's own threads. */
static int lookup_start(struct lookup *lookup)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setsigmask_np(&attributes, &all);
    lookup->holders = 2;
    int error = pthread_create(&thread, &attributes, lookup_thread, lookup);
    pthread_attr_destroy(&attributes);
    if (error)
        lookup->holders = 1;
    return -error;
}

/* 0 when the thread has answered, -ETIMEDOUT when it has not by the deadline. */
static int lookup_wait(struct lookup *lookup, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    int error = 0;
    pthread_mutex_lock(&lookup->lock);
    while (!lookup->finished && !error)
        error = deadline_ns == GPUSYS_NO_DEADLINE
                    ? pthread_cond_wait(&lookup->done, &lookup->lock)
                    : pthread_cond_timedwait(&lookup->done, &lookup->lock, &until);
    bool finished = lookup->finished;
    pthread_mutex_unlock(&lookup->lock);
    return finished ? 0 : -error;
}

static int no_answer(const struct lookup *lookup, struct gpusys_error *error)
{
    int code = lookup->result == EAI_MEMORY                           ? -ENOMEM
               : lookup->result == EAI_SYSTEM && lookup->system_error ? -lookup->system_error
                                                                      : -EHOSTUNREACH;
    gpusys_error_set(error, code, "%s: name look-up failed: %s", lookup->host,
                     lookup->result == EAI_SYSTEM ? strerrordesc_np(-code) : gai_strerror(lookup->result));
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_RESOLVER, lookup->result);
    gpusys_error_set_hint(error,
                          strchr(lookup->host, ':') ? "is the scope the name of an interface here?"
                                                    : "check the spelling and the resolver: getent "
                                                      "hosts %.128s",
                          lookup->host);
    return code;
}

static int too_late(const struct lookup *lookup, int code, struct gpusys_error *error)
{
    gpusys_error_set(error, code,
                     code == -EAGAIN ? "%s: a name has to be looked up, and the deadline was already past"
                                     : "%s: no answer from the name look-up before the deadline",
                     lookup->host);
    gpusys_error_set_hint(error, "allow more time, give the address as numbers, or see to the resolver "
                                 "(/etc/resolv.conf)");
    return code;
}

static int look_up(struct lookup *lookup, int64_t deadline_ns, struct gpusys_error *error)
{
    lookup->result = ask(lookup, AI_NUMERICHOST);
    if (lookup->result == EAI_NONAME && !strchr(lookup->host, ':')) {
        if (deadline_ns <= gpusys_now_ns())
            return too_late(lookup, -EAGAIN, error);
        int code = lookup_start(lookup);
        if (code)
            return gpusys_error_set_errno(error, code, "%s: no thread for the name look-up", lookup->host);
        code = lookup_wait(lookup, deadline_ns);
        if (code)
            return too_late(lookup, code, error);
    }
    return lookup->result ? no_answer(lookup, error) : 0;
}

int gs_address_resolve(struct addrinfo **ret_list, const struct gs_address *address, int64_t deadline_ns,
                       struct gpusys_error *error)
{
    struct lookup *lookup = lookup_new(address);
    if (!lookup)
        return gpusys_error_set_errno(error, -ENOMEM, "%s: name look-up", address->host);
    int code = look_up(lookup, deadline_ns, error);
    if (!code) {
        *ret_list = lookup->list; /* finished: the thread touches it no more */
        lookup->list = NULL;
    }
    lookup_let_go(lookup);
    return code;
}
