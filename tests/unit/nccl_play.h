/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What tests of the stand-in libnccl share: ranks as processes, which are forked before there is any thread. */
#ifndef TESTS_NCCL_PLAY_H
#define TESTS_NCCL_PLAY_H

#include "fake/nccl_control.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, E4M3, E5M2, TYPES };
enum { SUM, PROD, MAX, MIN, AVG, OPS };
enum { PATIENCE_S = 100 };
static const size_t type_bytes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static void *nccl_library;

/* A function of the stand-in. */
#define NCCL(name) ((__typeof__(name) *)nccl_symbol(#name))

static inline void *nccl_symbol(const char *name)
{
    void *symbol = dlsym(nccl_library, name);
    if (!symbol) {
        fprintf(stderr, "the stand-in has no %s\n", name);
        abort();
    }
    return symbol;
}

/* For ranks, which are no processes of the test's framework. */
#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: rank %d: not so: %s (last error: %s)\n", __FILE__, __LINE__, me,         \
                    #condition, NCCL(ncclGetLastError)(NULL));                                               \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* What the ranks of one run have in common. */
struct common {
    struct fake_nccl_id id;
    atomic_int flags[16];
    atomic_int arrived;
};

static struct common *common;
static struct fake_nccl_id last_id; /* of the last run */
static int me, n_ranks;

static inline void nap(void)
{
    poll(NULL, 0, 1);
}

static inline void await(int flag)
{
    while (!common->flags[flag])
        nap();
}

/* All ranks, without the library. */
static inline void meet(void)
{
    int round = common->arrived++ / n_ranks + 1;
    while (common->arrived < round * n_ranks)
        nap();
}

/* One "NAME=VALUE" for the library to read. */
static inline void told(const char *setting)
{
    if (setting) {
        putenv((char *)(uintptr_t)setting);
        NCCL(fake_nccl_reset)();
    }
}

static inline struct ncclComm *comm_of_all(void)
{
    struct ncclComm *comm = NULL;
    REQUIRE(NCCL(ncclCommInitRank)(&comm, n_ranks, common->id, me) == 0);
    REQUIRE(comm != NULL);
    return comm;
}

/* Leaves a rank in good order. */
static inline void over(struct ncclComm *comm)
{
    REQUIRE(NCCL(ncclCommDestroy)(comm) == 0);
    REQUIRE(NCCL(fake_nccl_live_comms)() == 0);
    REQUIRE(NCCL(fake_nccl_live_operations)() == 0);
}

static inline pid_t start_rank(int rank, void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        /* A crash is one, not a test's failure that the framework goes on from. */
        const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
        for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
            signal(crashes[i], SIG_DFL);
        alarm(PATIENCE_S);
        me = rank;
        body();
        _exit(0);
    }
    return pid;
}

/* Run `body` in so many processes, numbered `me`; every one has to end well, but for those that `killed` names by bit. */
static inline void run_ranks(int n, const char *setting, void (*body)(void), uint64_t killed)
{
    enum { MOST = 64 };
    pid_t pids[MOST];
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(common, MAP_FAILED);
    assert_in_range(n, 1, MOST);
    n_ranks = n;
    assert_int_equal(NCCL(ncclGetUniqueId)(&common->id), 0);
    last_id = common->id;
    told(setting);
    for (int rank = 0; rank < n; rank++) {
        pids[rank] = start_rank(rank, body);
        assert_true(pids[rank] > 0);
    }
    for (int rank = 0; rank < n; rank++) {
        int status;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        if (killed >> rank & 1)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_int_equal(status, 0);
    }
    munmap(common, sizeof *common);
    if (setting) {
        char name[64] = "";
        memcpy(name, setting, (size_t)(strchr(setting, '=') - setting));
        unsetenv(name);
        NCCL(fake_nccl_reset)();
    }
}

/* Is there memory with a name in the file system for that id? */
static inline bool has_name(const struct fake_nccl_id *id)
{
    char path[80] = "/dev/shm/gpusys-nccl-";
    for (size_t i = 0; i < 16; i++)
        snprintf(path + strlen(path), 3, "%02x", (unsigned char)id->bytes[64 + i]);
    return access(path, F_OK) == 0;
}

/* An operation on a thread, for it does not return; then the communicator is aborted, and it does. */
struct stuck {
    pthread_t thread;
    int (*call)(struct ncclComm *comm);
    struct ncclComm *comm;
    int result;
};

static inline void *run_stuck(void *context)
{
    struct stuck *stuck = context;
    stuck->result = stuck->call(stuck->comm);
    return NULL;
}

static inline void begin_stuck(struct stuck *stuck, int (*call)(struct ncclComm *comm), struct ncclComm *comm)
{
    *stuck = (struct stuck){.call = call, .comm = comm};
    REQUIRE(pthread_create(&stuck->thread, NULL, run_stuck, stuck) == 0);
    while (NCCL(fake_nccl_live_operations)() == 0)
        nap();
}

static inline void abort_stuck(struct stuck *stuck)
{
    REQUIRE(NCCL(fake_nccl_live_operations)() > 0);
    REQUIRE(NCCL(ncclCommAbort)(stuck->comm) == 0);
    pthread_join(stuck->thread, NULL);
    REQUIRE(NCCL(fake_nccl_live_operations)() == 0);
    REQUIRE(NCCL(fake_nccl_live_comms)() == 0);
}

/* Before any test: the stand-in, without streams. */
static inline int load_nccl(void **state)
{
    (void)state;
    unsetenv("GPUSYS_LIBCUDA");
    nccl_library = dlopen(getenv("GPUSYS_LIBNCCL"), RTLD_NOW);
    return nccl_library ? 0 : -1;
}

#endif
