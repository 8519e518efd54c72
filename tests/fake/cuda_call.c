/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: its state, and what happens around every call. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct state fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER};

static struct rule rules[RULES]; /* all of these under the lock */
static unsigned n_rules;
static struct {
    char name[48];
    uint64_t calls;
} functions[160];

static _Thread_local bool is_forbidden;

void fake_forbid_calls(void)
{
    is_forbidden = true;
}

uint64_t fake_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void count_call(const char *function)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (!functions[i].name[0])
            strncpy(functions[i].name, function, sizeof functions[i].name - 1);
        if (strcmp(functions[i].name, function) == 0) {
            functions[i].calls++;
            return;
        }
    }
}

static unsigned apply_rules(const char *function)
{
    unsigned result = 0;
    for (unsigned i = 0; i < n_rules; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->function, "*") && strcmp(rule->function, function))
            continue;
        rule->seen++;
        if (!result && rule->seen >= rule->first && rule->seen <= rule->last)
            result = rule->result;
    }
    return result;
}

/* A child has the environment that it had when it began to use us. */
static void read_environment(void)
{
    if (fake.config.pid == getpid() || fake.owner)
        return;
    fake_config_read(&fake.config);
    n_rules = fake_rules_parse(getenv("FAKE_CUDA_FAIL"), rules);
}

unsigned fake_enter_early(const char *function)
{
    pthread_mutex_lock(&fake.lock);
    read_environment();
    count_call(function);
    if (is_forbidden)
        return NOT_PERMITTED;
    return apply_rules(function);
}

unsigned fake_enter(const char *function)
{
    unsigned result = fake_enter_early(function);
    return !result && fake.owner != getpid() ? NOT_INITIALIZED : result;
}

unsigned fake_leave(unsigned result)
{
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- control ---- */

void fake_cuda_fail(const char *text)
{
    pthread_mutex_lock(&fake.lock);
    read_environment();
    n_rules = fake_rules_parse(text, rules);
    pthread_mutex_unlock(&fake.lock);
}

uint64_t fake_cuda_calls(const char *function)
{
    uint64_t calls = 0;
    pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, function) == 0)
            calls = functions[i].calls;
    pthread_mutex_unlock(&fake.lock);
    return calls;
}

static int64_t live(enum fake_cuda_kind kind)
{
    int64_t count = 0;
    for (int i = 0; kind == FAKE_CUDA_CONTEXTS && i < DEVICES; i++)
        count += fake.primaries[i].retained;
    for (const struct CUstream_st *at = fake.streams; kind == FAKE_CUDA_STREAMS && at; at = at->next)
        count += !at->is_default && !at->is_closed;
    for (const struct CUevent_st *at = fake.events; kind == FAKE_CUDA_EVENTS && at; at = at->next)
        count++;
    for (const struct area *at = fake.areas; at; at = at->next)
        count += kind == (at->kind == AREA_REGISTERED ? FAKE_CUDA_REGISTRATIONS : FAKE_CUDA_ALLOCATIONS);
    return count;
}

int64_t fake_cuda_live(enum fake_cuda_kind kind)
{
    int64_t count = 0;
    pthread_mutex_lock(&fake.lock);
    if (kind < FAKE_CUDA_KINDS)
        count = live(kind);
    for (int i = 0; kind == FAKE_CUDA_KINDS && i < FAKE_CUDA_KINDS; i++)
        count += live((enum fake_cuda_kind)i);
    pthread_mutex_unlock(&fake.lock);
    return count;
}
