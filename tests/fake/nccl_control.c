/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: how it is told to misbehave. */
#include "fake/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RULES = 32, ANY = -1, UNKNOWN = -2 };

struct rule {
    int function, rank; /* or ANY */
    int value;
    int64_t at; /* 0: at every call */
    bool onwards;
    _Atomic int64_t calls;
};

struct rules {
    const char *variable;
    int count;
    struct rule rules[MOST_RULES];
};

static struct rules fail = {.variable = "FAKE_NCCL_FAIL"};
static struct rules hang = {.variable = "FAKE_NCCL_HANG"};
static struct rules spin = {.variable = "FAKE_NCCL_SPIN"};
static struct rules stall = {.variable = "FAKE_NCCL_STALL"};
static struct rules stall_init = {.variable = "FAKE_NCCL_STALL_INIT"};
static struct rules async_error = {.variable = "FAKE_NCCL_ASYNC_ERROR"};
static struct rules in_progress = {.variable = "FAKE_NCCL_IN_PROGRESS"};

int fake_version, fake_zero, fake_no_cuda;
static bool any_rules;
static _Atomic int process_rank;
static _Atomic int64_t calls[N_FUNCTIONS];
static _Atomic int aborts;

#define NAME(name, since) #name,
static const char *const names[] = {FAKE_NCCL_FUNCTIONS(NAME)};
#undef NAME

static int function_of(const char *name)
{
    if (strcmp(name, "*") == 0)
        return ANY;
    for (int i = 0; i < N_FUNCTIONS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return UNKNOWN;
}

/* ---- reading the environment ---- */

static _Noreturn void refuse(const struct rules *rules, const char *text)
{
    fprintf(stderr, "stand-in libnccl: %s: cannot make sense of \"%s\"\n", rules->variable, text);
    abort();
}

static int64_t number_or_refuse(const struct rules *rules, const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (!*text || *end)
        refuse(rules, text);
    return value;
}

/* Cut "@N" or "@N+" off the end. */
static void cut_when(struct rules *rules, struct rule *rule, char *text)
{
    char *when = strchr(text, '@');
    if (!when)
        return;
    *when++ = 0;
    size_t length = strlen(when);
    if (length && when[length - 1] == '+') {
        rule->onwards = true;
        when[length - 1] = 0;
    }
    rule->at = number_or_refuse(rules, when);
}

static struct rule *new_rule(struct rules *rules, const char *text)
{
    if (rules->count == MOST_RULES)
        refuse(rules, text);
    struct rule *rule = &rules->rules[rules->count++];
    *rule = (struct rule){.function = ANY, .rank = ANY};
    return rule;
}

static void take_function(struct rules *rules, struct rule *rule, const char *name)
{
    rule->function = function_of(name);
    if (rule->function == UNKNOWN)
        refuse(rules, name);
}

/* [R:]NAME[=VALUE][@N[+]] */
static void read_rule(struct rules *rules, char *text)
{
    struct rule *rule = new_rule(rules, text);
    cut_when(rules, rule, text);
    char *colon = strchr(text, ':');
    if (colon) {
        *colon = 0;
        rule->rank = (int)number_or_refuse(rules, text);
        text = colon + 1;
    }
    char *equals = strchr(text, '=');
    if (equals) {
        *equals = 0;
        rule->value = (int)number_or_refuse(rules, equals + 1);
    }
    if (rules == &async_error)
        rule->value = (int)number_or_refuse(rules, text);
    else
        take_function(rules, rule, text);
}

/* rank=R,op=NAME[@N[+]] */
static void read_pairs(struct rules *rules, char *text)
{
    struct rule *rule = new_rule(rules, text);
    cut_when(rules, rule, text);
    char *rest, *pair = strtok_r(text, ",", &rest);
    for (; pair; pair = strtok_r(NULL, ",", &rest))
        if (strncmp(pair, "rank=", 5) == 0)
            rule->rank = (int)number_or_refuse(rules, pair + 5);
        else if (strncmp(pair, "op=", 3) == 0)
            take_function(rules, rule, pair + 3);
        else
            refuse(rules, pair);
}

/* R[@N[+]], or * */
static void read_rank(struct rules *rules, char *text)
{
    struct rule *rule = new_rule(rules, text);
    cut_when(rules, rule, text);
    if (strcmp(text, "*") != 0)
        rule->rank = (int)number_or_refuse(rules, text);
}

static void read_rules(struct rules *rules, void (*read)(struct rules *rules, char *text),
                       const char *between)
{
    rules->count = 0;
    const char *value = getenv(rules->variable);
    char *copy = value ? strdup(value) : NULL;
    char *rest, *text = copy ? strtok_r(copy, between, &rest) : NULL;
    for (; text; text = strtok_r(NULL, between, &rest))
        read(rules, text);
    any_rules |= rules->count > 0;
    free(copy);
}

static int environment_number(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value && *value ? atoi(value) : otherwise;
}

void fake_nccl_reset(void)
{
    any_rules = false;
    const char *stalls = getenv(stall.variable);
    bool pairs = stalls && strncmp(stalls, "rank=", 5) == 0;
    read_rules(&fail, read_rule, ",");
    read_rules(&hang, read_rule, ",");
    read_rules(&spin, read_rule, ",");
    read_rules(&stall, pairs ? read_pairs : read_rule, pairs ? ";" : ",");
    read_rules(&stall_init, read_rank, ",");
    read_rules(&async_error, read_rule, ",");
    read_rules(&in_progress, read_rule, ",");
    fake_version = environment_number("FAKE_NCCL_VERSION", fake_default_version);
    fake_zero = environment_number("FAKE_NCCL_ZERO", 0);
    fake_no_cuda = environment_number("FAKE_NCCL_NO_CUDA", 0);
    process_rank = environment_number("FAKE_NCCL_RANK", ANY);
    for (int i = 0; i < N_FUNCTIONS; i++)
        calls[i] = 0;
}

__attribute__((constructor)) static void start(void)
{
    fake_nccl_reset();
}

int64_t fake_nccl_calls(const char *name)
{
    int function = function_of(name);
    return function >= 0 ? calls[function] : -1;
}

void fake_set_process_rank(int rank)
{
    if (!getenv("FAKE_NCCL_RANK"))
        process_rank = rank;
}

/* ---- asking ---- */

/* The rule that says something about this call; every one that it matches counts it. */
static struct rule *find(struct rules *rules, enum function function, int rank)
{
    struct rule *found = NULL;
    for (int i = 0; i < rules->count; i++) {
        struct rule *rule = &rules->rules[i];
        if ((rule->function != ANY && rule->function != (int)function) ||
            (rule->rank != ANY && rule->rank != rank))
            continue;
        int64_t call = ++rule->calls;
        if (!found && (rule->at == 0 || call == rule->at || (rule->onwards && call > rule->at)))
            found = rule;
    }
    return found;
}

int fake_enter_rank(enum function function, int rank)
{
    calls[function]++;
    if (!any_rules)
        return NOTHING;
    if (find(&hang, function, rank))
        for (;;)
            pause();
    if (function == AT_ncclCommAbort)
        atomic_fetch_add(&aborts, 1);
    if (find(&spin, function, rank)) {
        int before = atomic_load(&aborts);
        while (atomic_load(&aborts) == before)
            usleep(1000);
        return fake_say(SYSTEM_ERROR, "%s was aborted", names[function]);
    }
    const struct rule *rule = find(&fail, function, rank);
    if (!rule)
        return NOTHING;
    return fake_say(rule->value, "%s was told to return %d", names[function], rule->value);
}

static int rank_of(const struct ncclComm *comm)
{
    return comm ? comm->world_rank : process_rank;
}

int fake_enter(enum function function, const struct ncclComm *comm)
{
    return fake_enter_rank(function, rank_of(comm));
}

bool fake_stalls(enum function function, const struct ncclComm *comm)
{
    return any_rules && find(&stall, function, rank_of(comm));
}

bool fake_stalls_init(int rank)
{
    return any_rules && find(&stall_init, AT_ncclCommInitRank, rank);
}

int fake_polls_in_progress(enum function function, const struct ncclComm *comm)
{
    const struct rule *rule = any_rules ? find(&in_progress, function, rank_of(comm)) : NULL;
    return rule ? rule->value : 0;
}

int fake_async_error(const struct ncclComm *comm, uint64_t submitted)
{
    if (any_rules)
        for (int i = 0; i < async_error.count; i++) {
            const struct rule *rule = &async_error.rules[i];
            if ((rule->rank == ANY || rule->rank == rank_of(comm)) && submitted >= (uint64_t)rule->at)
                return rule->value;
        }
    return 0;
}
