/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A tool that NVTX loads (NVTX_INJECTION64_PATH). What it is told it writes as lines into the file FAKE_NVTX_LOG; without
 * one it only counts (fake_nvtx_count). FAKE_NVTX_MODE, words with commas between:
 *
 *     refuse     it does not want to be a tool
 *     few        it takes nothing but plain pushes and pops: no domains, no strings, no events
 *     call-back  it calls gpusys while it is being loaded
 *     error      pushes and pops return -1, as a well-known profiler's do
 *
 * A line is the call, its domain ("-": the default one), its name in quotes or registered:"name", and what else there is:
 *
 *     push - "prefill"
 *     push mine registered:"step" color=ff00ff00 category=7 u64=42
 *
 * The thread that calls is in front, as a number in order of appearance, from 0.
 */
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
EXPORT uint64_t fake_nvtx_count(void);

enum { THREADS_MAX = 64, LINE_BYTES = 1024, TEXT_BYTES = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t threads[THREADS_MAX];
static unsigned n_threads;
static const char *log_path, *mode = "";
static uint64_t last_range;
static int answer;

struct nvtxDomainRegistration_st {
    char name[64];
};

struct nvtxStringRegistration_st {
    char text[64];
};

static bool has_mode(const char *word)
{
    return strstr(mode, word);
}

/* ---- lines ---- */

static unsigned this_thread(void)
{
    for (unsigned i = 0; i < n_threads; i++)
        if (pthread_equal(threads[i], pthread_self()))
            return i;
    if (n_threads < THREADS_MAX)
        threads[n_threads++] = pthread_self();
    return n_threads - 1;
}

__attribute__((format(printf, 1, 2))) static void record(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    pthread_mutex_lock(&lock);
    int length = snprintf(line, sizeof line, "%u ", this_thread());
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    length = length < LINE_BYTES - 1 ? length : LINE_BYTES - 2;
    line[length++] = '\n';
    int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        abort();
    close(fd);
    pthread_mutex_unlock(&lock);
}

static const char *domain_name(nvtxDomainHandle_t domain)
{
    return domain ? domain->name : "-";
}

static const char *event_text(char text[TEXT_BYTES], const nvtxEventAttributes_t *event)
{
    if (event->version != NVTX_VERSION || event->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE)
        abort();
    int at = event->messageType == NVTX_MESSAGE_TYPE_REGISTERED
                 ? snprintf(text, TEXT_BYTES, "registered:\"%s\"", event->message.registered->text)
             : event->messageType == NVTX_MESSAGE_TYPE_ASCII
                 ? snprintf(text, TEXT_BYTES, "\"%.300s\"", event->message.ascii)
                 : snprintf(text, TEXT_BYTES, "nothing");
    if (event->colorType == NVTX_COLOR_ARGB)
        at += sprintf(text + at, " color=%08x", event->color);
    if (event->category)
        at += sprintf(text + at, " category=%u", event->category);
    if (event->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64)
        sprintf(text + at, " u64=%" PRIu64, event->payload.ullValue);
    else if (event->payloadType == NVTX_PAYLOAD_TYPE_INT64)
        sprintf(text + at, " i64=%" PRId64, event->payload.llValue);
    else if (event->payloadType == NVTX_PAYLOAD_TYPE_DOUBLE)
        sprintf(text + at, " f64=%g", event->payload.dValue);
    return text;
}

/* ---- what NVTX calls ---- */

static int push_name(const char *name)
{
    record("push - \"%s\"", name);
    return answer;
}

static int push_event(const nvtxEventAttributes_t *event)
{
    char text[TEXT_BYTES];
    record("push - %s", event_text(text, event));
    return answer;
}

static int push_in(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    char text[TEXT_BYTES];
    record("push %s %s", domain_name(domain), event_text(text, event));
    return answer;
}

static int pop(void)
{
    record("pop -");
    return answer;
}

static int pop_in(nvtxDomainHandle_t domain)
{
    record("pop %s", domain_name(domain));
    return answer;
}

static void mark_name(const char *name)
{
    record("mark - \"%s\"", name);
}

static void mark_event(const nvtxEventAttributes_t *event)
{
    char text[TEXT_BYTES];
    record("mark - %s", event_text(text, event));
}

static void mark_in(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    char text[TEXT_BYTES];
    record("mark %s %s", domain_name(domain), event_text(text, event));
}

static nvtxRangeId_t new_range(void)
{
    return __atomic_add_fetch(&last_range, 1, __ATOMIC_RELAXED);
}

static nvtxRangeId_t start_name(const char *name)
{
    nvtxRangeId_t id = new_range();
    record("start - \"%s\" id=%" PRIu64, name, id);
    return id;
}

static nvtxRangeId_t start_event(const nvtxEventAttributes_t *event)
{
    char text[TEXT_BYTES];
    nvtxRangeId_t id = new_range();
    record("start - %s id=%" PRIu64, event_text(text, event), id);
    return id;
}

static nvtxRangeId_t start_in(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    char text[TEXT_BYTES];
    nvtxRangeId_t id = new_range();
    record("start %s %s id=%" PRIu64, domain_name(domain), event_text(text, event), id);
    return id;
}

static void end_range(nvtxRangeId_t id)
{
    record("end - id=%" PRIu64, id);
}

static void end_in(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
    record("end %s id=%" PRIu64, domain_name(domain), id);
}

static void category(uint32_t number, const char *name)
{
    record("category - %u \"%s\"", number, name);
}

static void category_in(nvtxDomainHandle_t domain, uint32_t number, const char *name)
{
    record("category %s %u \"%s\"", domain_name(domain), number, name);
}

static void thread(uint32_t number, const char *name)
{
    record("thread %s \"%s\"", number == (uint32_t)gettid() ? "this" : "another", name);
}

static nvtxDomainHandle_t domain_new(const char *name)
{
    struct nvtxDomainRegistration_st *domain = calloc(1, sizeof *domain);
    if (!domain)
        abort();
    snprintf(domain->name, sizeof domain->name, "%s", name);
    record("domain \"%s\"", name);
    return domain;
}

static void domain_free(nvtxDomainHandle_t domain)
{
    record("domain-end %s", domain_name(domain));
    free(domain);
}

/* Lives until the process ends, as a tool's do. */
static nvtxStringHandle_t string_new(nvtxDomainHandle_t domain, const char *text)
{
    static struct nvtxStringRegistration_st strings[1024];
    static unsigned n;
    struct nvtxStringRegistration_st *string =
        &strings[__atomic_fetch_add(&n, 1, __ATOMIC_RELAXED) % (sizeof strings / sizeof *strings)];
    snprintf(string->text, sizeof string->text, "%s", text);
    record("string %s \"%s\"", domain_name(domain), text);
    return string;
}

/* ---- counting ---- */

static uint64_t counted;

EXPORT uint64_t fake_nvtx_count(void)
{
    return __atomic_load_n(&counted, __ATOMIC_RELAXED);
}

/* Calls come from any thread. */
static int count_push(const char *name)
{
    (void)name;
    __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    return answer;
}

static int count_pop(void)
{
    __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    return answer;
}

/* ---- being loaded ---- */

static NvtxFunctionTable table_of(NvtxGetExportTableFunc_t get_table, NvtxCallbackModule module)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(module, &table, &size))
        abort();
    return table;
}

#define TAKE(table, id, function) (*(table)[id] = (NvtxFunctionPointer)(void *)(function))

static void take_all(NvtxFunctionTable core, NvtxFunctionTable core2)
{
    TAKE(core, NVTX_CBID_CORE_RangePushEx, push_event);
    TAKE(core, NVTX_CBID_CORE_MarkEx, mark_event);
    TAKE(core, NVTX_CBID_CORE_MarkA, mark_name);
    TAKE(core, NVTX_CBID_CORE_RangeStartEx, start_event);
    TAKE(core, NVTX_CBID_CORE_RangeStartA, start_name);
    TAKE(core, NVTX_CBID_CORE_RangeEnd, end_range);
    TAKE(core, NVTX_CBID_CORE_NameCategoryA, category);
    TAKE(core, NVTX_CBID_CORE_NameOsThreadA, thread);
    TAKE(core2, NVTX_CBID_CORE2_DomainMarkEx, mark_in);
    TAKE(core2, NVTX_CBID_CORE2_DomainRangeStartEx, start_in);
    TAKE(core2, NVTX_CBID_CORE2_DomainRangeEnd, end_in);
    TAKE(core2, NVTX_CBID_CORE2_DomainRangePushEx, push_in);
    TAKE(core2, NVTX_CBID_CORE2_DomainRangePop, pop_in);
    TAKE(core2, NVTX_CBID_CORE2_DomainNameCategoryA, category_in);
    TAKE(core2, NVTX_CBID_CORE2_DomainRegisterStringA, string_new);
    TAKE(core2, NVTX_CBID_CORE2_DomainCreateA, domain_new);
    TAKE(core2, NVTX_CBID_CORE2_DomainDestroy, domain_free);
}

/* The program's gpusys, if it lets us see it: it must neither hang nor tell us of this. */
static void call_back(void)
{
    void (*push)(void *, const char *, const void *, const char *, int) =
        (void (*)(void *, const char *, const void *, const char *, int))(uintptr_t)dlsym(
            RTLD_DEFAULT, "gpusys_nvtx_do_push");
    if (!push)
        abort();
    push(NULL, "while it is being loaded", NULL, __FILE__, __LINE__);
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    NvtxFunctionTable core = table_of(get_table, NVTX_CB_MODULE_CORE);
    log_path = getenv("FAKE_NVTX_LOG");
    mode = getenv("FAKE_NVTX_MODE") ? getenv("FAKE_NVTX_MODE") : "";
    answer = has_mode("error") ? -1 : 0;
    if (has_mode("refuse"))
        return 0;
    TAKE(core, NVTX_CBID_CORE_RangePushA, log_path ? push_name : count_push);
    TAKE(core, NVTX_CBID_CORE_RangePop, log_path ? pop : count_pop);
    if (log_path && !has_mode("few"))
        take_all(core, table_of(get_table, NVTX_CB_MODULE_CORE2));
    if (has_mode("call-back"))
        call_back();
    return 1;
}
