/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/text.h"

#include <gpusys/error.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Values come from peers and users too: none of them may end a line or steer a terminal. */
static void print(char *buffer, size_t size, const char *format, va_list arguments)
{
    vsnprintf(buffer, size, format, arguments);
    gs_text_clean(buffer, strlen(buffer));
}

int gpusys_error_set(struct gpusys_error *error, int code, const char *format, ...)
{
    if (!error)
        return code;
    va_list arguments;
    va_start(arguments, format);
    *error = (struct gpusys_error){.code = code};
    print(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return code;
}

int gpusys_error_set_errno(struct gpusys_error *error, int code, const char *format, ...)
{
    if (!error)
        return code;
    va_list arguments;
    va_start(arguments, format);
    *error = (struct gpusys_error){.domain = GPUSYS_DOMAIN_SYSTEM, .foreign = -code, .code = code};
    print(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    size_t used = strlen(error->message);
    const char *reason = strerrordesc_np(-code);
    snprintf(error->message + used, sizeof error->message - used, ": %s", reason ? reason : "unknown error");
    return code;
}

void gpusys_error_set_foreign(struct gpusys_error *error, enum gpusys_domain domain, int foreign)
{
    if (!error)
        return;
    error->domain = domain;
    error->foreign = foreign;
}

void gpusys_error_add_detail(struct gpusys_error *error, const char *name, const char *format, ...)
{
    if (!error)
        return;
    size_t size = sizeof error->detail, used = strlen(error->detail);
    int row = snprintf(error->detail + used, size - used, "%s%s\t", used ? "\n" : "", name);
    if ((size_t)row >= size - used) {
        error->detail[used] = 0; /* no room for the row's name: leave the row out rather than cut it there */
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    print(error->detail + used + row, size - used - (size_t)row, format, arguments);
    va_end(arguments);
}

void gpusys_error_set_cause(struct gpusys_error *error, const char *format, ...)
{
    if (!error)
        return;
    va_list arguments;
    va_start(arguments, format);
    print(error->cause, sizeof error->cause, format, arguments);
    va_end(arguments);
}

void gpusys_error_set_hint(struct gpusys_error *error, const char *format, ...)
{
    if (!error)
        return;
    va_list arguments;
    va_start(arguments, format);
    print(error->hint, sizeof error->hint, format, arguments);
    va_end(arguments);
}

/* Text that grows inside a fixed buffer and remembers how long it would have been. */
struct text {
    char *buffer;
    size_t size, length;
};

GPUSYS_PRINTF(2, 3)
static void append(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = text->length < text->size ? text->size - text->length : 0;
    int length = vsnprintf(room ? text->buffer + text->length : NULL, room, format, arguments);
    va_end(arguments);
    text->length += length > 0 ? (size_t)length : 0;
}

static void append_details(struct text *text, const char *row)
{
    while (*row) {
        size_t length = strcspn(row, "\n"), name = strcspn(row, "\t\n");
        const char *value = name < length ? row + name + 1 : row + length;
        append(text, "\n  %-7.*s %.*s", (int)name, row, (int)(row + length - value), value);
        row += length + (row[length] == '\n');
    }
}

int gpusys_error_format(const struct gpusys_error *error, char *buffer, size_t size)
{
    struct text text = {.buffer = buffer, .size = size};
    append(&text, "%s", error->message);
    append_details(&text, error->detail);
    if (error->cause[0])
        append(&text, "\n  cause   %s", error->cause);
    if (error->hint[0])
        append(&text, "\n  try     %s", error->hint);
    return (int)text.length;
}
