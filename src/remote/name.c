/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which names a region may have. */
#include "base/text.h"

#include <gpusys/peer.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { COMPONENT_MAX = 255 };

static const char *component_fault(const char *at, size_t length)
{
    if (length == 0)
        return "has an empty component";
    if (length == 1 && at[0] == '.')
        return "has a \".\" component";
    if (length == 2 && at[0] == '.' && at[1] == '.')
        return "has a \"..\" component";
    return length > COMPONENT_MAX ? "has a component above 255 bytes" : NULL;
}

static const char *text_fault(const char *name)
{
    for (size_t at = 0, left = strlen(name), bytes; left; at += bytes, left -= bytes) {
        bytes = gs_text_character(name + at, left);
        if (!bytes)
            return "is not UTF-8";
        if (gs_text_is_control(name + at))
            return "has a control byte";
    }
    return NULL;
}

static const char *name_fault(const char *name)
{
    if (!name || !*name)
        return "is empty";
    if (*name == '/')
        return "is absolute";
    if (strlen(name) >= GPUSYS_NAME_BYTES)
        return "is above 4095 bytes";
    const char *fault = text_fault(name);
    for (const char *at = name; !fault;) {
        size_t length = strcspn(at, "/");
        fault = component_fault(at, length);
        if (at[length] == 0)
            break;
        at += length + 1;
    }
    return fault;
}

/* A name for a message: what is not printable ASCII shows as '?'. */
static void show(const char *name, char shown[64])
{
    size_t i = 0;
    for (; name && name[i] && i < 63; i++)
        shown[i] = name[i] >= 0x20 && name[i] < 0x7f ? name[i] : '?';
    shown[i] = 0;
}

int gpusys_name_check(const char *name, struct gpusys_error *error)
{
    const char *fault = name_fault(name);
    if (!fault)
        return 0;
    char shown[64];
    show(name, shown);
    return gpusys_error_set(error, -EINVAL, "the name \"%s\" %s", shown, fault);
}
