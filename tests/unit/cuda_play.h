/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What tests over the stand-in libcuda share: a hand on it, work that ends when told to, and conditions for children. */
#ifndef CUDA_PLAY_H
#define CUDA_PLAY_H

#include "fake/cuda_api.h"
#include "fake/cuda_control.h"
#include "gpu/cuda.h"

#include <gpusys/deadline.h>
#include <gpusys/log.h>

#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* A function of the stand-in; it is loaded when the first is asked for, if not before. */
#define FAKE(name) ((__typeof__(name) *)play_symbol(#name))

static inline void *play_symbol(const char *name)
{
    void *library = dlopen(getenv("GPUSYS_LIBCUDA"), RTLD_LAZY);
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol) {
        fprintf(stderr, "the stand-in has no %s: is GPUSYS_LIBCUDA set?\n", name);
        abort();
    }
    return symbol;
}

/* Work in a stream that ends when the gate is opened, once for each. */
struct gate {
    sem_t open;
};

static inline void gate_init(struct gate *gate)
{
    assert_int_equal(sem_init(&gate->open, 0, 0), 0);
}

static inline void gate_open(struct gate *gate)
{
    sem_post(&gate->open);
}

static inline void gate_pass(void *context)
{
    struct gate *gate = context;
    while (sem_wait(&gate->open)) {
    }
}

/* NULL: the default stream. Its context is made current for the call. */
static inline void gate_close(struct gate *gate, struct gpusys_cuda *cuda, struct CUstream_st *stream)
{
    assert_int_equal(gpusys_cuda_push(cuda, NULL), 0);
    assert_int_equal(FAKE(cuLaunchHostFunc)(stream, gate_pass, gate), 0);
    gpusys_cuda_pop(cuda);
}

static inline void assert_error(const struct gpusys_error *error, int code, int foreign, const char *message)
{
    if (!strstr(error->message, message))
        fail_msg("\"%s\" is not in \"%s\"", message, error->message);
    assert_int_equal(error->code, code);
    assert_int_equal(error->domain, GPUSYS_DOMAIN_CUDA);
    assert_int_equal(error->foreign, foreign);
}

static inline void assert_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* Nothing of ours is left, and nothing is current on this thread. */
static inline int play_clean(void **state)
{
    (void)state;
    FAKE(fake_cuda_fail)(NULL);
    return FAKE(fake_cuda_live)(FAKE_CUDA_KINDS) == 0 && FAKE(fake_cuda_depth)() == 0 ? 0 : -1;
}

#endif
