/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which names a region may have. */
#include <gpusys/peer.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { COMPONENT_MAX = 255 };

/* The length of the UTF-8 sequence at `at` (which ends in a NUL), or 0 for what is none: overlong, surrogate,
 * too high. */
static int sequence(const unsigned char *at)
{
    static const struct {
        unsigned char low, high, second_low, second_high;
        int length;
    } leads[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    if (at[0] < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        if (at[0] < leads[i].low || at[0] > leads[i].high)
            continue;
        if (at[1] < leads[i].second_low || at[1] > leads[i].second_high)
            return 0;
        for (int k = 2; k < leads[i].length; k++)
            if ((at[k] & 0xc0) != 0x80)
                return 0;
        return leads[i].length;
    }
    return 0;
}

/* C0, DEL, and the C1 controls (U+0080 … U+009F): some terminals obey those too. */
static bool is_control(const unsigned char *at)
{
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

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
    for (const unsigned char *at = (const unsigned char *)name; *at;) {
        int length = sequence(at);
        if (length == 0)
            return "is not UTF-8";
        if (is_control(at))
            return "has a control byte";
        at += length;
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
