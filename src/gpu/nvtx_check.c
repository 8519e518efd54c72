/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The balance checker. One lock guards all of it, and is never held while something is reported: a log callback may
 * wait for a lock of its own whose holder is pushing a range.
 */
#include "gpu/nvtx_check.h"

#include "base/log.h"

#include <fcntl.h>
#include <gpusys/nvtx.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 1024, /* of the ranges of a thread that are kept; deeper ones are only counted */
    DEPTH_FIRST = 16,
    LINE_BYTES = 1024,
    PLACE_BYTES = 192,
};

/* The ranges that a thread has pushed, the oldest first. */
struct stack {
    struct stack *next, **link;
    struct gs_nvtx_open *ranges;
    unsigned n, room;
    uint64_t beyond; /* deeper than what is kept */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key; /* each thread's stack */
static atomic_bool is_on; /* from the first look to the end of the process */
static char *path;        /* NULL: only the log */
static struct stack *stacks;
static struct gs_nvtx_open *started;
static struct gpusys_nvtx_balance seen; /* all but `open` */

/* ---- what is said ---- */

/* The program's own descriptor where the path is that: one of its own for the same file would write over what the other has
 * written. */
static int open_path(void)
{
    return strcmp(path, "/dev/stderr") == 0
               ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
               : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
}

/* Opened for each line: they are few, and a program that closes all its descriptors loses none. */
static void append(const char *line)
{
    char whole[LINE_BYTES + 32];
    int length = snprintf(whole, sizeof whole, "%d: %s", (int)getpid(), line);
    for (int i = 0; i < length; i++) /* names are anybody's: one line, and nothing for the terminal */
        if ((unsigned char)whole[i] < 0x20 || whole[i] == 0x7f)
            whole[i] = '?';
    whole[length++] = '\n';
    int fd = open_path();
    if (fd < 0)
        return;
    if (write(fd, whole, (size_t)length) < 0) {
        /* there is nobody to tell */
    }
    close(fd);
}

/* At the end the log is not told: its callback may be gone. */
static void say(const char *line)
{
    if (is_on)
        gs_log(GPUSYS_LOG_WARN, "%s", line);
    if (path)
        append(line);
}

static void domain_text(char text[64], const struct gs_nvtx_domain_id *domain)
{
    if (domain && domain->serial)
        snprintf(text, 64, "domain \"%s\"", domain->name);
    else
        snprintf(text, 64, "the default domain");
}

static void call_text(char text[PLACE_BYTES], const char *file, int line)
{
    if (file && file[0])
        snprintf(text, PLACE_BYTES, "at %s:%d", file, line);
    else
        snprintf(text, PLACE_BYTES, "by gpusys");
}

/* "decode" (pushed at main.c:12 in the default domain) */
static void range_text(char text[PLACE_BYTES + 128], const struct gs_nvtx_open *range)
{
    char domain[64], call[PLACE_BYTES];
    domain_text(domain, &range->domain);
    call_text(call, range->file, range->line);
    snprintf(text, PLACE_BYTES + 128, "\"%s\" (%s %s in %s)", range->name,
             range->is_started ? "started" : "pushed", call, domain);
}

static void say_of(const struct gs_nvtx_open *range, const char *what)
{
    char text[PLACE_BYTES + 128], line[LINE_BYTES];
    range_text(text, range);
    snprintf(line, sizeof line, "NVTX: %s %s", text, what);
    say(line);
}

static void say_beyond(uint64_t count, const char *what)
{
    char line[LINE_BYTES];
    snprintf(line, sizeof line, "NVTX: %llu more ranges, too deep to be remembered, %s",
             (unsigned long long)count, what);
    if (count)
        say(line);
}

/* ---- a thread's stack ---- */

static void unlink_stack(struct stack *stack)
{
    *stack->link = stack->next;
    if (stack->next)
        stack->next->link = stack->link;
}

static void free_stack(struct stack *stack)
{
    free(stack->ranges);
    free(stack);
}

static void thread_ends(void *argument)
{
    struct stack *stack = argument;
    pthread_mutex_lock(&lock);
    unlink_stack(stack);
    seen.unpopped += stack->n + stack->beyond;
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < stack->n; i++)
        say_of(&stack->ranges[i], "was open when its thread ended");
    say_beyond(stack->beyond, "were open when their thread ended");
    free_stack(stack);
}

/* The calling thread's; NULL: it has none and there is no memory, or nobody looks any more. With the lock held. */
static struct stack *my_stack(void)
{
    struct stack *stack = pthread_getspecific(key);
    if (stack || !is_on || !(stack = calloc(1, sizeof *stack)))
        return stack;
    if (pthread_setspecific(key, stack)) {
        free(stack);
        return NULL;
    }
    stack->link = &stacks;
    stack->next = stacks;
    if (stacks)
        stacks->link = &stack->next;
    stacks = stack;
    return stack;
}

static bool has_room(struct stack *stack)
{
    if (stack->n < stack->room)
        return true;
    unsigned room = stack->room ? stack->room * 2 : DEPTH_FIRST;
    struct gs_nvtx_open *ranges =
        room <= DEPTH_MAX ? realloc(stack->ranges, room * sizeof *stack->ranges) : NULL;
    if (!ranges)
        return false;
    stack->ranges = ranges;
    stack->room = room;
    return true;
}

static void fill(struct gs_nvtx_open *range, const struct gs_nvtx_domain_id *domain, const char *name,
                 const char *file, int line)
{
    size_t length = file ? strlen(file) : 0, most = sizeof range->file - 1;
    *range = (struct gs_nvtx_open){.line = line};
    if (domain)
        range->domain = *domain;
    snprintf(range->name, sizeof range->name, "%s", name);
    if (file)
        snprintf(range->file, sizeof range->file, "%s", length > most ? file + length - most : file);
}

void gs_nvtx_check_push(const struct gs_nvtx_domain_id *domain, const char *name, const char *file, int line)
{
    pthread_mutex_lock(&lock);
    struct stack *stack = my_stack();
    seen.pushes++;
    if (stack && stack->beyond == 0 && has_room(stack))
        fill(&stack->ranges[stack->n++], domain, name, file, line);
    else if (stack)
        stack->beyond++;
    pthread_mutex_unlock(&lock);
}

/* ---- pops ---- */

struct pop {
    struct gs_nvtx_open range, over; /* what was popped, or might have been; what lay above it */
    bool is_matched, is_crossed;
};

static struct gs_nvtx_open *newest_in(const struct stack *stack, uint64_t serial)
{
    for (unsigned i = stack->n; i-- > 0;)
        if (stack->ranges[i].domain.serial == serial)
            return &stack->ranges[i];
    return NULL;
}

static void take(struct stack *stack, struct gs_nvtx_open *range, struct pop *ret_pop)
{
    struct gs_nvtx_open *top = &stack->ranges[stack->n - 1];
    ret_pop->is_matched = true;
    ret_pop->is_crossed = range != top;
    ret_pop->range = *range;
    ret_pop->over = *top;
    memmove(range, range + 1, (size_t)(top - range) * sizeof *range);
    stack->n--;
}

/* This thread has nothing to pop: was it pushed on another? That one's range stays open, as it does for tools. */
static void look_elsewhere(uint64_t serial, struct pop *ret_pop)
{
    for (const struct stack *stack = stacks; stack && !ret_pop->is_crossed; stack = stack->next) {
        const struct gs_nvtx_open *range = newest_in(stack, serial);
        ret_pop->is_crossed = range;
        if (range)
            ret_pop->range = *range;
    }
}

static void find(uint64_t serial, struct pop *ret_pop)
{
    struct stack *stack = pthread_getspecific(key);
    struct gs_nvtx_open *range = stack && !stack->beyond ? newest_in(stack, serial) : NULL;
    ret_pop->is_matched = (stack && stack->beyond) || !is_on;
    if (range)
        take(stack, range, ret_pop);
    else if (stack && stack->beyond)
        stack->beyond--;
    else if (is_on)
        look_elsewhere(serial, ret_pop);
}

static void say_unmatched(const struct pop *pop, const struct gs_nvtx_domain_id *domain, const char *call)
{
    char line[LINE_BYTES], text[PLACE_BYTES + 128];
    domain_text(text, domain);
    int length = snprintf(line, sizeof line, "NVTX: a pop %s in %s has no push on its thread", call, text);
    if (pop->is_crossed) {
        range_text(text, &pop->range);
        snprintf(line + length, sizeof line - (size_t)length, "; %s is open on another", text);
    }
    say(line);
}

static void say_crossed(const struct pop *pop, const char *call)
{
    char line[LINE_BYTES], text[PLACE_BYTES + 128], over[PLACE_BYTES + 128];
    range_text(text, &pop->range);
    range_text(over, &pop->over);
    snprintf(line, sizeof line, "NVTX: %s was popped %s, but %s is still open and came later", text, call,
             over);
    say(line);
}

void gs_nvtx_check_pop(const struct gs_nvtx_domain_id *domain, const char *file, int line)
{
    struct pop pop = {.is_matched = false};
    char call[PLACE_BYTES];
    pthread_mutex_lock(&lock);
    find(domain ? domain->serial : 0, &pop);
    seen.crossed += pop.is_crossed;
    seen.unmatched += !pop.is_matched && !pop.is_crossed;
    pthread_mutex_unlock(&lock);
    if (pop.is_matched && !pop.is_crossed)
        return;
    call_text(call, file, line);
    if (pop.is_matched)
        say_crossed(&pop, call);
    else
        say_unmatched(&pop, domain, call);
}

/* ---- ranges that are started ---- */

void gs_nvtx_check_start(struct gs_nvtx_open *open, const struct gs_nvtx_domain_id *domain, const char *name,
                         const char *file, int line)
{
    fill(open, domain, name, file, line);
    pthread_mutex_lock(&lock);
    seen.pushes++;
    open->is_started = true;
    open->link = &started;
    open->next = started;
    if (started)
        started->link = &open->next;
    started = open;
    pthread_mutex_unlock(&lock);
}

void gs_nvtx_check_end(struct gs_nvtx_open *open)
{
    pthread_mutex_lock(&lock);
    *open->link = open->next;
    if (open->next)
        open->next->link = open->link;
    pthread_mutex_unlock(&lock);
}

/* ---- reports ---- */

/* What is open now. */
struct snapshot {
    struct gs_nvtx_open *ranges; /* NULL: none, or no memory for them */
    size_t n;
    uint64_t beyond;
};

static void count(struct snapshot *snapshot)
{
    for (const struct stack *stack = stacks; stack; stack = stack->next) {
        snapshot->n += stack->n;
        snapshot->beyond += stack->beyond;
    }
    for (const struct gs_nvtx_open *range = started; range; range = range->next)
        snapshot->n++;
}

/* With the lock held. */
static struct snapshot snapshot_take(void)
{
    struct snapshot snapshot = {.n = 0};
    size_t at = 0;
    count(&snapshot);
    snapshot.ranges = snapshot.n ? malloc(snapshot.n * sizeof *snapshot.ranges) : NULL;
    if (!snapshot.ranges)
        return snapshot;
    for (const struct stack *stack = stacks; stack; stack = stack->next)
        for (unsigned i = 0; i < stack->n; i++)
            snapshot.ranges[at++] = stack->ranges[i];
    for (const struct gs_nvtx_open *range = started; range; range = range->next)
        snapshot.ranges[at++] = *range;
    return snapshot;
}

static void snapshot_say(struct snapshot *snapshot, const char *what, const char *what_beyond)
{
    for (size_t i = 0; snapshot->ranges && i < snapshot->n; i++)
        say_of(&snapshot->ranges[i], what);
    say_beyond(snapshot->beyond, what_beyond);
    free(snapshot->ranges);
}

void gs_nvtx_check_report(struct gpusys_nvtx_balance *ret_balance)
{
    size_t size = ret_balance->size;
    pthread_mutex_lock(&lock);
    struct snapshot snapshot = snapshot_take();
    *ret_balance = seen;
    pthread_mutex_unlock(&lock);
    ret_balance->size = size;
    ret_balance->open = snapshot.n + snapshot.beyond;
    snapshot_say(&snapshot, "is open", "are open");
}

/* ---- beginning and end ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* The other threads are not there, and their ranges are no concern of this process. */
static void after_fork_in_child(void)
{
    struct stack *mine = pthread_getspecific(key);
    while (stacks) {
        struct stack *stack = stacks;
        stacks = stack->next;
        if (stack != mine)
            free_stack(stack);
    }
    if (mine) {
        mine->next = NULL;
        mine->link = &stacks;
        stacks = mine;
    }
    pthread_mutex_unlock(&lock);
}

bool gs_nvtx_check_look(void)
{
    const char *value = secure_getenv("GPUSYS_NVTX_CHECK");
    bool has_path = value && strchr(value, '/');
    if (!value || (!has_path && strcmp(value, "1") != 0) || pthread_key_create(&key, thread_ends))
        return false;
    path = has_path ? strdup(value) : NULL;
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    is_on = true;
    return true;
}

/*
 * The process ends, or the library is unloaded. Nothing is taken away: other threads may still be at work. A thread
 * that was stopped in our lock must not hold the end up for long.
 */
__attribute__((destructor)) static void at_end(void)
{
    struct timespec until;
    if (!is_on)
        return;
    is_on = false;
    pthread_key_delete(key);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    if (!path || pthread_mutex_timedlock(&lock, &until))
        return;
    struct snapshot snapshot = snapshot_take();
    pthread_mutex_unlock(&lock);
    snapshot_say(&snapshot, "was open when the process ended", "were open when the process ended");
}
