/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A crew: processes that are ranks of a party, for the tests of it. The test forks them, and they tell it how they fared
 * in memory that all share. The test itself never makes a thread.
 */
#ifndef TESTS_UNIT_PARTY_CREW_H
#define TESTS_UNIT_PARTY_CREW_H

#include "gpu/party.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CREW_MOST = 64, CREW_PATIENCE_S = 60 };

#define CREW_SECOND INT64_C(1000000000)

/* Of processes that are not the test: what is not true ends them. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(99);                                                                                       \
        }                                                                                                    \
    } while (0)

struct crew_result {
    int code;
    struct gpusys_error error;
    struct gs_failure failure;
};

struct crew {
    char folder[64], address[128];
    int port_holder; /* a bound socket, so that nobody else is given the port */
    uint32_t n;
    pid_t pids[CREW_MOST];
    struct crew_result results[CREW_MOST];
    sem_t ready; /* counts those that have come somewhere */
    sem_t go[CREW_MOST];
};

static inline struct crew *crew_new(bool over_tcp)
{
    struct crew *crew = mmap(NULL, sizeof *crew, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(crew != MAP_FAILED);
    strcpy(crew->folder, "/tmp/gpusys-party-XXXXXX");
    assert_non_null(mkdtemp(crew->folder));
    snprintf(crew->address, sizeof crew->address, "unix:%s/party", crew->folder);
    crew->port_holder = -1;
    if (over_tcp) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof at;
        int on = 1;
        crew->port_holder = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(crew->port_holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        assert_int_equal(bind(crew->port_holder, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(getsockname(crew->port_holder, (struct sockaddr *)&at, &length), 0);
        snprintf(crew->address, sizeof crew->address, "127.0.0.1:%u", ntohs(at.sin_port));
    }
    sem_init(&crew->ready, 1, 0);
    for (unsigned i = 0; i < CREW_MOST; i++)
        sem_init(&crew->go[i], 1, 0);
    return crew;
}

static inline void crew_free(struct crew *crew)
{
    if (crew->port_holder >= 0)
        close(crew->port_holder);
    rmdir(crew->folder);
    munmap(crew, sizeof *crew);
}

/* One more process; `play` is its life. Which rank it plays is its own affair. */
static inline void crew_start(struct crew *crew, uint32_t seat,
                              void (*play)(struct crew *crew, uint32_t seat))
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(CREW_PATIENCE_S);
        play(crew, seat);
        exit(0); /* not _exit: leaks are looked for */
    }
    crew->pids[seat] = pid;
    crew->n = seat >= crew->n ? seat + 1 : crew->n;
}

static inline int crew_end(struct crew *crew, uint32_t seat)
{
    int status = -1;
    assert_int_equal(waitpid(crew->pids[seat], &status, 0), crew->pids[seat]);
    return status;
}

/* All of them end well. */
static inline void crew_join(struct crew *crew)
{
    for (uint32_t seat = 0; seat < crew->n; seat++)
        if (crew->pids[seat] > 0)
            assert_int_equal(crew_end(crew, seat), 0);
    crew_free(crew);
}

static inline void crew_wait(sem_t *semaphore)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CREW_PATIENCE_S;
    while (sem_timedwait(semaphore, &until) < 0)
        if (errno != EINTR)
            abort();
}

/* So many processes have come there; and: the others may go on. */
static inline void crew_await(struct crew *crew, uint32_t n)
{
    while (n--)
        crew_wait(&crew->ready);
}

static inline void crew_go(struct crew *crew)
{
    for (uint32_t seat = 0; seat < crew->n; seat++)
        sem_post(&crew->go[seat]);
}

/* In one of the processes: I am there; wait for the word. */
static inline void crew_meet(struct crew *crew, uint32_t seat)
{
    sem_post(&crew->ready);
    crew_wait(&crew->go[seat]);
}

static inline struct gs_party_options crew_options(const struct crew *crew, uint32_t rank, uint32_t n_ranks)
{
    struct gs_party_options options = {
        .n_ranks = n_ranks,
        .rank = rank,
        .address = crew->address,
        .self = {.pid = (uint32_t)getpid(), .version = 22809},
        .deadline_ns = gpusys_deadline_after(30 * CREW_SECOND),
        .silence_ns = 15 * CREW_SECOND,
    };
    snprintf(options.self.host, sizeof options.self.host, "host%u", rank);
    memset(options.job, 7, sizeof options.job);
    return options;
}

static inline struct gs_party *crew_open(struct crew *crew, const struct gs_party_options *options,
                                         uint32_t seat)
{
    struct gs_party *party = NULL;
    struct crew_result *result = &crew->results[seat];
    result->code = gs_party_open(&party, options, &result->error);
    CHECK((result->code == 0) == (party != NULL));
    return party;
}

/* The usual life's beginning: seat i is rank i of so many, and all come together. */
static inline struct gs_party *crew_enter(struct crew *crew, uint32_t rank, uint32_t n_ranks,
                                          int64_t silence_ns)
{
    struct gs_party_options options = crew_options(crew, rank, n_ranks);
    options.silence_ns = silence_ns;
    struct gs_party *party = crew_open(crew, &options, rank);
    if (!party)
        fprintf(stderr, "rank %u: %s\n", rank, crew->results[rank].error.message);
    CHECK(party);
    return party;
}

/* ---- who is attached ---- */

struct crew_ear {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gs_report report;
    struct gs_failure failure; /* the last */
    unsigned n_failures, n_asked;
};

static inline void crew_ear_report(void *context, struct gs_report *ret_report)
{
    struct crew_ear *ear = context;
    pthread_mutex_lock(&ear->lock);
    ear->n_asked++;
    *ret_report = ear->report;
    pthread_mutex_unlock(&ear->lock);
}

static inline void crew_ear_failed(void *context, const struct gs_failure *failure)
{
    struct crew_ear *ear = context;
    pthread_mutex_lock(&ear->lock);
    ear->failure = *failure;
    ear->n_failures++;
    pthread_cond_broadcast(&ear->changed);
    pthread_mutex_unlock(&ear->lock);
}

static inline void crew_attach(struct gs_party *party, struct crew_ear *ear, uint64_t key,
                               const uint32_t *ranks, uint32_t n)
{
    static const struct gs_party_handlers handlers = {.report = crew_ear_report, .failed = crew_ear_failed};
    pthread_mutex_init(&ear->lock, NULL);
    pthread_cond_init(&ear->changed, NULL);
    ear->n_failures = ear->n_asked = 0;
    CHECK(gs_party_attach(party, key, ranks, n, &handlers, ear) == 0);
}

static inline struct gs_failure crew_hear(struct crew_ear *ear)
{
    pthread_mutex_lock(&ear->lock);
    while (!ear->n_failures)
        pthread_cond_wait(&ear->changed, &ear->lock); /* alarm(2) is the patience */
    struct gs_failure failure = ear->failure;
    pthread_mutex_unlock(&ear->lock);
    return failure;
}

static inline unsigned crew_heard(struct crew_ear *ear)
{
    pthread_mutex_lock(&ear->lock);
    unsigned n = ear->n_failures;
    pthread_mutex_unlock(&ear->lock);
    return n;
}

/* All of them give and get a number. */
static inline int crew_gather(struct gs_party *party, uint64_t tag, const uint32_t *ranks, uint32_t n,
                              int64_t timeout_ns, struct gpusys_error *error)
{
    uint32_t mine = 1000 + gs_party_rank(party), all[CREW_MOST];
    int code = gs_party_gather(party, tag, ranks, n, &mine, sizeof mine, all,
                               gpusys_deadline_after(timeout_ns), error);
    for (uint32_t i = 0; !code && i < n; i++)
        CHECK(all[i] == 1000 + ranks[i]);
    return code;
}

static const uint32_t crew_ranks[CREW_MOST] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

#endif
