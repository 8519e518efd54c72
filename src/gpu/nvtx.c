/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "gpu/nvtx_check.h"
#include "gpu/nvtx_tool.h"

#include "base/log.h"
#include "base/options.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Bits of gpusys_nvtx_listening_; the header knows NOT_LOOKED and TOOL. */
enum { NOT_LOOKED = 1, TOOL = 2, CHECKER = 4 };

enum { NAME_BYTES = 256 };

int gpusys_nvtx_listening_ = NOT_LOOKED;

struct gpusys_nvtx_string {
    struct gpusys_nvtx_string *next;
    void *tool; /* NULL: it does not keep strings */
    char text[];
};

struct gpusys_nvtx_domain {
    struct gs_nvtx_domain_id id;
    void *tool;
    struct gpusys_nvtx_string *strings;
};

struct gpusys_nvtx_range {
    void *domain; /* the tool's */
    uint64_t id;
    struct gs_nvtx_open open;
};

static pthread_mutex_t strings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpusys_nvtx_string *default_strings; /* of the default domain, which lives for ever */
static uint64_t last_serial;

/* ---- who listens ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread bool is_looking; /* this thread, and a tool may call us on the way */

static void look(void)
{
    is_looking = true;
    int found = gs_nvtx_check_look() ? CHECKER : 0;
    const char *path = secure_getenv("NVTX_INJECTION64_PATH");
    if (tool_attach())
        found |= TOOL;
    else if (path)
        gs_log(GPUSYS_LOG_DEBUG, "NVTX: no tool came of NVTX_INJECTION64_PATH=%s%s", path,
               gpusys_nvtx_built() ? "" : ": built without NVTX");
    is_looking = false;
    __atomic_store_n(&gpusys_nvtx_listening_, found, __ATOMIC_RELEASE);
}

/* The bits of those who listen. While a tool is being loaded nobody does, for its own calls. */
static inline int listeners(void)
{
    int found = __atomic_load_n(&gpusys_nvtx_listening_, __ATOMIC_ACQUIRE);
    if (__builtin_expect(found != NOT_LOOKED, 1))
        return found;
    if (is_looking)
        return 0;
    pthread_once(&once, look);
    return __atomic_load_n(&gpusys_nvtx_listening_, __ATOMIC_ACQUIRE);
}

bool gpusys_nvtx_built(void)
{
    return GS_HAS_NVTX;
}

bool gpusys_nvtx_enabled(void)
{
    return listeners() != 0;
}

/* ---- marking ---- */

static void *tool_domain(const struct gpusys_nvtx_domain *domain)
{
    return domain ? domain->tool : NULL;
}

static const struct gs_nvtx_domain_id *id_of(const struct gpusys_nvtx_domain *domain)
{
    return domain ? &domain->id : NULL;
}

static const char *text_of(const char *name, const struct gpusys_nvtx_event *event)
{
    if (!name && event)
        name = event->string ? event->string->text : event->name;
    return name ? name : "";
}

static void *registered_of(const struct gpusys_nvtx_event *event)
{
    return event && event->string ? event->string->tool : NULL;
}

void gpusys_nvtx_do_push(struct gpusys_nvtx_domain *domain, const char *name,
                         const struct gpusys_nvtx_event *event, const char *file, int line)
{
    int found = listeners();
    void *in = tool_domain(domain);
    if (found & CHECKER)
        gs_nvtx_check_push(id_of(domain), text_of(name, event), file, line);
    if (!(found & TOOL))
        return;
    if (in || event)
        tool_push(in, text_of(name, event), registered_of(event), event);
    else
        tool_push_name(text_of(name, NULL));
}

/* Whoever has read the flag may not have seen all that was written before it was. */
static inline void see_the_tool(void)
{
    (void)__atomic_load_n(&gpusys_nvtx_listening_, __ATOMIC_ACQUIRE);
}

void gpusys_nvtx_do_push_plain(const char *name)
{
    see_the_tool();
    tool_push_name(name);
}

void gpusys_nvtx_do_pop_plain(void)
{
    see_the_tool();
    tool_pop(NULL);
}

void gpusys_nvtx_do_pushf(struct gpusys_nvtx_domain *domain, const char *file, int line, const char *format,
                          ...)
{
    char name[NAME_BYTES] = "";
    va_list arguments;
    if (!listeners())
        return;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    gpusys_nvtx_do_push(domain, name, NULL, file, line);
}

void gpusys_nvtx_do_pop(struct gpusys_nvtx_domain *domain, const char *file, int line)
{
    int found = listeners();
    if (found & CHECKER)
        gs_nvtx_check_pop(id_of(domain), file, line);
    if (found & TOOL)
        tool_pop(tool_domain(domain));
}

void gpusys_nvtx_do_mark(struct gpusys_nvtx_domain *domain, const char *name,
                         const struct gpusys_nvtx_event *event)
{
    if (listeners() & TOOL)
        tool_mark(tool_domain(domain), text_of(name, event), registered_of(event), event);
}

struct gpusys_nvtx_range *gpusys_nvtx_do_start(struct gpusys_nvtx_domain *domain, const char *name,
                                               const struct gpusys_nvtx_event *event, const char *file,
                                               int line)
{
    int found = listeners();
    struct gpusys_nvtx_range *range = found ? malloc(sizeof *range) : NULL;
    if (!range)
        return NULL;
    range->domain = tool_domain(domain);
    range->open.is_started = false;
    if (found & CHECKER)
        gs_nvtx_check_start(&range->open, id_of(domain), text_of(name, event), file, line);
    if (found & TOOL)
        range->id = tool_start(range->domain, text_of(name, event), registered_of(event), event);
    return range;
}

void gpusys_nvtx_do_end(struct gpusys_nvtx_range *range)
{
    if (range->open.is_started)
        gs_nvtx_check_end(&range->open);
    if (listeners() & TOOL)
        tool_end(range->domain, range->id);
    free(range);
}

/* ---- domains, names ---- */

struct gpusys_nvtx_domain *gpusys_nvtx_domain_open(const char *name)
{
    int found = listeners();
    struct gpusys_nvtx_domain *domain = found && name ? calloc(1, sizeof *domain) : NULL;
    if (!domain)
        return NULL;
    domain->id.serial = __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED);
    snprintf(domain->id.name, sizeof domain->id.name, "%s", name);
    if (found & TOOL)
        domain->tool = tool_domain_open(name);
    return domain;
}

void gpusys_nvtx_domain_close(struct gpusys_nvtx_domain *domain)
{
    if (!domain)
        return;
    if (listeners() & TOOL)
        tool_domain_close(domain->tool);
    while (domain->strings) {
        struct gpusys_nvtx_string *next = domain->strings->next;
        free(domain->strings);
        domain->strings = next;
    }
    free(domain);
}

struct gpusys_nvtx_string *gpusys_nvtx_register(struct gpusys_nvtx_domain *domain, const char *text)
{
    int found = listeners();
    size_t bytes = found && text ? strlen(text) + 1 : 0;
    struct gpusys_nvtx_string *string = bytes ? malloc(sizeof *string + bytes) : NULL;
    if (!string)
        return NULL;
    memcpy(string->text, text, bytes);
    string->tool = found & TOOL ? tool_register(tool_domain(domain), text) : NULL;
    pthread_mutex_lock(&strings_lock);
    struct gpusys_nvtx_string **first = domain ? &domain->strings : &default_strings;
    string->next = *first;
    *first = string;
    pthread_mutex_unlock(&strings_lock);
    return string;
}

void gpusys_nvtx_name_category(struct gpusys_nvtx_domain *domain, uint32_t category, const char *name)
{
    if (name && listeners() & TOOL)
        tool_name_category(tool_domain(domain), category, name);
}

void gpusys_nvtx_name_thread(const char *name)
{
    if (name && listeners() & TOOL)
        tool_name_thread(name);
}

/* ---- the checker ---- */

int gpusys_nvtx_check(struct gpusys_nvtx_balance *ret_balance)
{
    struct gpusys_nvtx_balance balance = {.size = ret_balance->size};
    if (!(listeners() & CHECKER))
        return -ENOENT;
    gs_nvtx_check_report(&balance);
    return gs_info_give(ret_balance, &balance, sizeof balance);
}
