/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The names of the field's dialects. */
#include <gpusys/field.h>

#include <errno.h>
#include <string.h>

static const char *const kind_names[] = {"weights", "cache", "experts"};

const char *gpusys_field_kind_name(enum gpusys_field_kind kind)
{
    return kind >= GPUSYS_FIELD_WEIGHTS && kind <= GPUSYS_FIELD_EXPERTS ? kind_names[kind - 1] : "unknown";
}

int gpusys_field_kind_parse(const char *name)
{
    for (int kind = GPUSYS_FIELD_WEIGHTS; kind <= GPUSYS_FIELD_EXPERTS; kind++)
        if (name && strcmp(name, kind_names[kind - 1]) == 0)
            return kind;
    return -EINVAL;
}
