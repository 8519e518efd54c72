/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What NVTX's headers do for src/gpu/nvtx.c, which alone includes this: their state is one per shared object. Built without
 * them there is never a tool. Domain and string handles of the tool are void pointers here; the default domain's is NULL, and
 * so is that of a tool which knows no domains.
 */
#ifndef GPUSYS_GPU_NVTX_TOOL_H
#define GPUSYS_GPU_NVTX_TOOL_H

#include <gpusys/nvtx.h>

#if GS_HAS_NVTX

#include <nvtx3/nvToolsExt.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert((int)GPUSYS_NVTX_UINT64 == (int)NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 &&
                   (int)GPUSYS_NVTX_INT64 == (int)NVTX_PAYLOAD_TYPE_INT64 &&
                   (int)GPUSYS_NVTX_DOUBLE == (int)NVTX_PAYLOAD_TYPE_DOUBLE,
               "the payloads' numbers are NVTX's");

/* Does the tool take any call of this module? */
static bool takes_any(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module)
{
    NvtxFunctionTable table;
    unsigned int size = 0;
    if (!callbacks->GetModuleFunctionTable(module, &table, &size))
        return false;
    for (unsigned int i = 1; i < size; i++)
        if (table[i] && *table[i])
            return true;
    return false;
}

/*
 * Load the tool, if one is named. NVTX has no question "is there one?", and what a push returns says nothing (there are tools
 * that return an error always). But when it has initialised itself every function that no tool took is NULL: so it is asked
 * for its tables of functions, the way a tool asks. They are empty too when the tool could not be loaded or refused.
 *
 * NVTX reads its variable with getenv: a program with more rights than its user must not get so far.
 */
static inline bool tool_attach(void)
{
    if (getauxval(AT_SECURE))
        return false;
    nvtxInitialize(NULL);
    const NvtxExportTableCallbacks *callbacks =
        NVTX_VERSIONED_IDENTIFIER(nvtxGetExportTable)(NVTX_ETID_CALLBACKS);
    return callbacks &&
           (takes_any(callbacks, NVTX_CB_MODULE_CORE) || takes_any(callbacks, NVTX_CB_MODULE_CORE2));
}

/* `registered`: the tool's handle of the name, or NULL. */
static inline nvtxEventAttributes_t tool_event(const char *name, void *registered,
                                               const struct gpusys_nvtx_event *event)
{
    nvtxEventAttributes_t attributes = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    if (event) {
        attributes.category = event->category;
        attributes.colorType = event->color ? NVTX_COLOR_ARGB : NVTX_COLOR_UNKNOWN;
        attributes.color = event->color;
        if (event->payload_type <= GPUSYS_NVTX_DOUBLE) {
            attributes.payloadType = (int32_t)event->payload_type;
            attributes.payload.ullValue = event->payload.u64; /* whichever it is: 8 bytes */
        }
    }
    attributes.messageType = registered ? NVTX_MESSAGE_TYPE_REGISTERED : NVTX_MESSAGE_TYPE_ASCII;
    if (registered)
        attributes.message.registered = registered;
    else
        attributes.message.ascii = name;
    return attributes;
}

static inline void tool_push_name(const char *name)
{
    nvtxRangePushA(name);
}

static inline void tool_push(void *domain, const char *name, void *registered,
                             const struct gpusys_nvtx_event *event)
{
    nvtxEventAttributes_t attributes = tool_event(name, registered, event);
    if (domain)
        nvtxDomainRangePushEx(domain, &attributes);
    else
        nvtxRangePushEx(&attributes);
}

static inline void tool_pop(void *domain)
{
    if (domain)
        nvtxDomainRangePop(domain);
    else
        nvtxRangePop();
}

static inline void tool_mark(void *domain, const char *name, void *registered,
                             const struct gpusys_nvtx_event *event)
{
    nvtxEventAttributes_t attributes = tool_event(name, registered, event);
    if (domain)
        nvtxDomainMarkEx(domain, &attributes);
    else if (event)
        nvtxMarkEx(&attributes);
    else
        nvtxMarkA(name);
}

static inline uint64_t tool_start(void *domain, const char *name, void *registered,
                                  const struct gpusys_nvtx_event *event)
{
    nvtxEventAttributes_t attributes = tool_event(name, registered, event);
    return domain  ? nvtxDomainRangeStartEx(domain, &attributes)
           : event ? nvtxRangeStartEx(&attributes)
                   : nvtxRangeStartA(name);
}

static inline void tool_end(void *domain, uint64_t id)
{
    if (domain)
        nvtxDomainRangeEnd(domain, id);
    else
        nvtxRangeEnd(id);
}

static inline void *tool_domain_open(const char *name)
{
    return nvtxDomainCreateA(name);
}

static inline void tool_domain_close(void *domain)
{
    if (domain)
        nvtxDomainDestroy(domain);
}

static inline void *tool_register(void *domain, const char *text)
{
    return nvtxDomainRegisterStringA(domain, text);
}

static inline void tool_name_category(void *domain, uint32_t category, const char *name)
{
    if (domain)
        nvtxDomainNameCategoryA(domain, category, name);
    else
        nvtxNameCategoryA(category, name);
}

static inline void tool_name_thread(const char *name)
{
    nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), name);
}

#else

static inline bool tool_attach(void)
{
    return false;
}

/* Never called, but looked at. */
#define UNUSED(a, b, c, d)                          ((void)(a), (void)(b), (void)(c), (void)(d))
#define tool_push_name(name)                        ((void)(name))
#define tool_push(domain, name, registered, event)  UNUSED(domain, name, registered, event)
#define tool_pop(domain)                            ((void)(domain))
#define tool_mark(domain, name, registered, event)  UNUSED(domain, name, registered, event)
#define tool_start(domain, name, registered, event) (UNUSED(domain, name, registered, event), 0)
#define tool_end(domain, id)                        UNUSED(domain, id, 0, 0)
#define tool_domain_open(name)                      ((void)(name), NULL)
#define tool_domain_close(domain)                   ((void)(domain))
#define tool_register(domain, text)                 (UNUSED(domain, text, 0, 0), NULL)
#define tool_name_category(domain, category, name)  UNUSED(domain, category, name, 0)
#define tool_name_thread(name)                      ((void)(name))

#endif

#endif
