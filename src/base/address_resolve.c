/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Name look-up under a deadline: the resolver has none of its own, so it runs on a thread we can walk away
 * from. */
#include "base/address_resolve.h"
#include "base/helper.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct lookup {
    int result, system_error; /* getaddrinfo's code, and errno where that is EAI_SYSTEM */
    struct addrinfo *list;
    char host[GS_HOST_BYTES], port[8];
};

static int ask(struct lookup *lookup, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    int result = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->list);
    lookup->system_error = errno;
    if (result)
        lookup->list = NULL;
    return result;
}

static struct lookup *lookup_new(const struct gs_address *address)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return NULL;
    snprintf(lookup->host, sizeof lookup->host, "%s", address->host[0] ? address->host : "127.0.0.1");
    snprintf(lookup->port, sizeof lookup->port, "%u", (unsigned)address->port);
    return lookup;
}

static void lookup_free(void *context)
{
    struct lookup *lookup = context;
    if (lookup->list)
        freeaddrinfo(lookup->list);
    free(lookup);
}

static int run_lookup(void *context)
{
    struct lookup *lookup = context;
    lookup->result = ask(lookup, 0);
    return 0;
}

static int no_answer(const struct lookup *lookup, struct gpusys_error *error)
{
    int code = lookup->result == EAI_MEMORY                           ? -ENOMEM
               : lookup->result == EAI_SYSTEM && lookup->system_error ? -lookup->system_error
                                                                      : -EHOSTUNREACH;
    gpusys_error_set(error, code, "%s: name look-up failed: %s", lookup->host,
                     lookup->result == EAI_SYSTEM ? strerrordesc_np(-code) : gai_strerror(lookup->result));
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_RESOLVER, lookup->result);
    gpusys_error_set_hint(error,
                          strchr(lookup->host, ':') ? "is the scope the name of an interface here?"
                                                    : "check the spelling and the resolver: getent "
                                                      "hosts %.128s",
                          lookup->host);
    return code;
}

static int too_late(const struct lookup *lookup, int code, struct gpusys_error *error)
{
    gpusys_error_set(error, code,
                     code == -EAGAIN ? "%s: a name has to be looked up, and the deadline was already past"
                                     : "%s: no answer from the name look-up before the deadline",
                     lookup->host);
    gpusys_error_set_hint(error, "allow more time, give the address as numbers, or see to the resolver "
                                 "(/etc/resolv.conf)");
    return code;
}

/* *ret_helper: who has the lookup now, too. */
static int look_up(struct lookup *lookup, int64_t deadline_ns, struct gs_helper **ret_helper,
                   struct gpusys_error *error)
{
    int answered;
    lookup->result = ask(lookup, AI_NUMERICHOST);
    if (lookup->result == EAI_NONAME && !strchr(lookup->host, ':')) {
        if (deadline_ns <= gpusys_now_ns())
            return too_late(lookup, -EAGAIN, error);
        int code = gs_helper_start(ret_helper, run_lookup, lookup_free, lookup);
        if (code)
            return gpusys_error_set_errno(error, code, "%s: no thread for the name look-up", lookup->host);
        code = gs_helper_wait(*ret_helper, deadline_ns, &answered);
        if (code)
            return too_late(lookup, code, error);
    }
    return lookup->result ? no_answer(lookup, error) : 0;
}

int gs_address_resolve(struct addrinfo **ret_list, const struct gs_address *address, int64_t deadline_ns,
                       struct gpusys_error *error)
{
    struct lookup *lookup = lookup_new(address);
    struct gs_helper *helper = NULL;
    if (!lookup)
        return gpusys_error_set_errno(error, -ENOMEM, "%s: name look-up", address->host);
    int code = look_up(lookup, deadline_ns, &helper, error);
    if (!code) {
        *ret_list = lookup->list; /* finished: the thread touches it no more */
        lookup->list = NULL;
    }
    if (helper)
        gs_helper_let_go(helper);
    else
        lookup_free(lookup);
    return code;
}
