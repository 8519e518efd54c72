/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/nvtx.h: ranges and marks that profilers show, by NVTX 3. With no tool attached a call costs a test of one
 * flag; names are never looked at, let alone formatted.
 *
 *     gpusys_nvtx_push("prefill");
 *     ...
 *     gpusys_nvtx_pop();
 *
 *     struct gpusys_nvtx_range *step = gpusys_nvtx_start("step");  // may end on another thread
 *     gpusys_nvtx_end(step);
 *
 *     gpusys_nvtx_pushf("layer %d", layer);                        // formatted only when a tool listens
 *
 * A tool is what NVTX_INJECTION64_PATH names, which is how profilers get in; it is looked for at the first call. There
 * is nothing to open, and nothing here can fail: what cannot be shown is not shown.
 *
 * The balance checker. With GPUSYS_NVTX_CHECK=1 in the environment, and no tool needed, every push is remembered
 * with its name and the line of code that made it. A pop without a push, a thread that ends or a report that
 * finds ranges open, a domain popped that was not pushed last: each is logged as a warning (gpusys/log.h). A path instead
 * of 1 (with a slash in it: /dev/stderr) has what was found, and what is open when the process ends, written there.
 *
 * Built without the NVTX headers (gpusys_nvtx_built), the checker is all there is.
 *
 * Threads: any, at once. Pushes and pops belong to their thread, and per thread to their domain.
 */
#ifndef GPUSYS_NVTX_H
#define GPUSYS_NVTX_H

#include <gpusys/api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Was the library built with NVTX? */
GPUSYS_API bool gpusys_nvtx_built(void);

/* Does anybody listen: a tool, or the checker? */
GPUSYS_API bool gpusys_nvtx_enabled(void);

struct gpusys_nvtx_domain; /* NULL: the default domain */
struct gpusys_nvtx_range;  /* one that was started; NULL where nobody listens */
struct gpusys_nvtx_string; /* a registered one, of one domain; NULL where nobody listens */

enum gpusys_nvtx_payload {
    GPUSYS_NVTX_NO_PAYLOAD = 0,
    GPUSYS_NVTX_UINT64 = 1, /* these are NVTX's own numbers */
    GPUSYS_NVTX_INT64 = 2,
    GPUSYS_NVTX_DOUBLE = 3,
};

/* What a range or mark carries beside its name. All zero: nothing. */
struct gpusys_nvtx_event {
    const char *name;                        /* or `string`; copied by the tool */
    const struct gpusys_nvtx_string *string; /* a registered name, of the same domain */
    uint32_t color;                          /* 0xAARRGGBB; 0: the tool's choice */
    uint32_t category;                       /* 0: none */
    uint32_t payload_type;                   /* enum gpusys_nvtx_payload */
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
    } payload;
};

/* ---- marking ---- */

/*
 * A range of this thread, until the matching pop. Ranges of one domain nest. `_event` takes a whole event, `_in` a
 * domain, `f` formats a name (at most 255 bytes) when somebody listens and does not look at its arguments
 * otherwise.
 */
#define gpusys_nvtx_push(name)                gpusys_nvtx_push_(NULL, name, NULL, __FILE__, __LINE__)
#define gpusys_nvtx_push_in(domain, name)     gpusys_nvtx_push_(domain, name, NULL, __FILE__, __LINE__)
#define gpusys_nvtx_push_event(domain, event) gpusys_nvtx_push_(domain, NULL, event, __FILE__, __LINE__)
#define gpusys_nvtx_pushf(...)                                                                               \
    do {                                                                                                     \
        if (gpusys_nvtx_heard_() && gpusys_nvtx_enabled())                                                   \
            gpusys_nvtx_do_pushf(NULL, __FILE__, __LINE__, __VA_ARGS__);                                     \
    } while (0)
#define gpusys_nvtx_pop()          gpusys_nvtx_pop_(NULL, __FILE__, __LINE__)
#define gpusys_nvtx_pop_in(domain) gpusys_nvtx_pop_(domain, __FILE__, __LINE__)

/* A moment. */
#define gpusys_nvtx_mark(name)                gpusys_nvtx_mark_(NULL, name, NULL)
#define gpusys_nvtx_mark_event(domain, event) gpusys_nvtx_mark_(domain, NULL, event)

/* A range from any thread to any thread, that may overlap others. */
#define gpusys_nvtx_start(name)                gpusys_nvtx_start_(NULL, name, NULL, __FILE__, __LINE__)
#define gpusys_nvtx_start_in(domain, name)     gpusys_nvtx_start_(domain, name, NULL, __FILE__, __LINE__)
#define gpusys_nvtx_start_event(domain, event) gpusys_nvtx_start_(domain, NULL, event, __FILE__, __LINE__)

/* End it, once; NULL is fine. */
static inline void gpusys_nvtx_end(struct gpusys_nvtx_range *range);

/* ---- domains, names ----
 *
 * A domain keeps one library's ranges apart from another's. All of these answer NULL, or do nothing, where nobody
 * listens; what takes a domain takes NULL.
 */
GPUSYS_API struct gpusys_nvtx_domain *gpusys_nvtx_domain_open(const char *name);
GPUSYS_API void gpusys_nvtx_domain_close(struct gpusys_nvtx_domain *domain);
/* A name that the tool keeps, so that events need not copy it. Lives as long as its domain. */
GPUSYS_API struct gpusys_nvtx_string *gpusys_nvtx_register(struct gpusys_nvtx_domain *domain,
                                                           const char *text);
/* What a category is called. */
GPUSYS_API void gpusys_nvtx_name_category(struct gpusys_nvtx_domain *domain, uint32_t category,
                                          const char *name);
/* What the calling thread is called. */
GPUSYS_API void gpusys_nvtx_name_thread(const char *name);

/* ---- gpusys' own ranges ---- */

/*
 * Ranges around gpusys' own transfers and collectives, in the domain "gpusys", with the bytes as payload: off until asked
 * for, or on from the beginning with GPUSYS_NVTX_RANGES=1 in the environment. A batch is one range, from its submission to
 * its end. Reads and writes of mapped memory that a remote has made short cuts for before it was asked are not shown.
 */
GPUSYS_API void gpusys_nvtx_own_ranges(bool on);

/* ---- the checker ---- */

struct gpusys_nvtx_balance {
    size_t size;        /* in: sizeof(struct gpusys_nvtx_balance) */
    uint64_t pushes;    /* seen so far, ranges started among them */
    uint64_t open;      /* ranges that are open now, of all threads */
    uint64_t unmatched; /* pops without a push */
    uint64_t crossed;   /* domains popped out of order, ranges pushed on one thread and popped on another */
    uint64_t unpopped;  /* ranges that were open when their thread ended */
};

/*
 * Count, and log every range that is open with its name and line. -ENOENT: the checker is not on.
 */
GPUSYS_API int gpusys_nvtx_check(struct gpusys_nvtx_balance *ret_balance);

/* ---- what the macros are made of ---- */

/* 0: nobody listens; 1: nobody has looked yet whether somebody does; 2: a tool listens, and nobody else. */
extern GPUSYS_API int gpusys_nvtx_listening_;

GPUSYS_API void gpusys_nvtx_do_push(struct gpusys_nvtx_domain *domain, const char *name,
                                    const struct gpusys_nvtx_event *event, const char *file, int line);
GPUSYS_API void gpusys_nvtx_do_pushf(struct gpusys_nvtx_domain *domain, const char *file, int line,
                                     const char *format, ...) GPUSYS_PRINTF(4, 5);
GPUSYS_API void gpusys_nvtx_do_pop(struct gpusys_nvtx_domain *domain, const char *file, int line);
/* The same for a tool alone, a name that is not NULL and the default domain: what must be quick. */
GPUSYS_API void gpusys_nvtx_do_push_plain(const char *name);
GPUSYS_API void gpusys_nvtx_do_pop_plain(void);
GPUSYS_API void gpusys_nvtx_do_mark(struct gpusys_nvtx_domain *domain, const char *name,
                                    const struct gpusys_nvtx_event *event);
GPUSYS_API struct gpusys_nvtx_range *gpusys_nvtx_do_start(struct gpusys_nvtx_domain *domain, const char *name,
                                                          const struct gpusys_nvtx_event *event,
                                                          const char *file, int line);
GPUSYS_API void gpusys_nvtx_do_end(struct gpusys_nvtx_range *range);

static inline int gpusys_nvtx_heard_(void)
{
    return __atomic_load_n(&gpusys_nvtx_listening_, __ATOMIC_RELAXED);
}

static inline void gpusys_nvtx_push_(struct gpusys_nvtx_domain *domain, const char *name,
                                     const struct gpusys_nvtx_event *event, const char *file, int line)
{
    int heard = gpusys_nvtx_heard_();
    if (__builtin_expect(heard == 0, 1))
        return;
    if (heard == 2 && !domain && !event && name)
        gpusys_nvtx_do_push_plain(name);
    else
        gpusys_nvtx_do_push(domain, name, event, file, line);
}

static inline void gpusys_nvtx_pop_(struct gpusys_nvtx_domain *domain, const char *file, int line)
{
    int heard = gpusys_nvtx_heard_();
    if (__builtin_expect(heard == 0, 1))
        return;
    if (heard == 2 && !domain)
        gpusys_nvtx_do_pop_plain();
    else
        gpusys_nvtx_do_pop(domain, file, line);
}

static inline void gpusys_nvtx_mark_(struct gpusys_nvtx_domain *domain, const char *name,
                                     const struct gpusys_nvtx_event *event)
{
    if (__builtin_expect(gpusys_nvtx_heard_() != 0, 0))
        gpusys_nvtx_do_mark(domain, name, event);
}

static inline struct gpusys_nvtx_range *gpusys_nvtx_start_(struct gpusys_nvtx_domain *domain,
                                                           const char *name,
                                                           const struct gpusys_nvtx_event *event,
                                                           const char *file, int line)
{
    if (__builtin_expect(gpusys_nvtx_heard_() == 0, 1))
        return NULL;
    return gpusys_nvtx_do_start(domain, name, event, file, line);
}

static inline void gpusys_nvtx_end(struct gpusys_nvtx_range *range)
{
    if (range)
        gpusys_nvtx_do_end(range);
}

#ifdef __cplusplus
}
#endif

#endif
