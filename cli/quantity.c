/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "quantity.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int quantity_parse_u64(const char *text, uint64_t *ret_value)
{
    if (text[0] < '0' || text[0] > '9')
        return -EINVAL;
    int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, base);
    if (errno)
        return -ERANGE;
    if (*end)
        return -EINVAL;
    *ret_value = value;
    return 0;
}

/* The digits in front of a unit: whole part, and the fraction in units of 10^-9 (further digits are refused).
 */
struct number {
    uint64_t whole, billionths;
};

static int take_number(const char **at, struct number *ret_number)
{
    struct number number = {0};
    if (**at < '0' || **at > '9')
        return -EINVAL;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(number.whole, 10u, &number.whole) ||
            __builtin_add_overflow(number.whole, (uint64_t)(**at - '0'), &number.whole))
            return -ERANGE;
    if (**at == '.') {
        uint64_t place = 100000000;
        for (++*at; **at >= '0' && **at <= '9'; ++*at, place /= 10) {
            if (!place)
                return -EINVAL;
            number.billionths += (uint64_t)(**at - '0') * place;
        }
    }
    *ret_number = number;
    return 0;
}

/* number × unit, which must come out whole. */
static int scale(struct number number, uint64_t unit, uint64_t *ret_value)
{
    __extension__ unsigned __int128 billionths = (unsigned __int128)number.billionths * unit;
    uint64_t value;
    if (billionths % 1000000000)
        return -EINVAL;
    if (__builtin_mul_overflow(number.whole, unit, &value) ||
        __builtin_add_overflow(value, (uint64_t)(billionths / 1000000000), &value))
        return -ERANGE;
    *ret_value = value;
    return 0;
}

static int unit_of_bytes(const char *suffix, uint64_t *ret_unit)
{
    static const char prefixes[] = "KMGTPE";
    *ret_unit = 1;
    if (!*suffix || strcasecmp(suffix, "B") == 0)
        return 0;
    const char *prefix = strchr(prefixes, toupper((unsigned char)*suffix));
    if (!prefix)
        return -EINVAL;
    const char *tail = suffix + 1;
    uint64_t step = strcmp(tail, "B") == 0 ? 1000 : 1024;
    if (*tail && strcmp(tail, "B") != 0 && strcmp(tail, "i") != 0 && strcmp(tail, "iB") != 0)
        return -EINVAL;
    for (const char *at = prefixes; at <= prefix; ++at)
        *ret_unit *= step;
    return 0;
}

int quantity_parse_bytes(const char *text, uint64_t *ret_bytes)
{
    struct number number;
    uint64_t unit;
    int error = take_number(&text, &number);
    if (!error)
        error = unit_of_bytes(text, &unit);
    return error ? error : scale(number, unit, ret_bytes);
}

static int unit_of_duration(const char *suffix, uint64_t *ret_unit)
{
    static const struct {
        const char *suffix;
        uint64_t ns;
    } units[] = {{"", 1000000000},
                 {"ns", 1},
                 {"us", 1000},
                 {"µs", 1000},
                 {"ms", 1000000},
                 {"s", 1000000000},
                 {"m", 60 * 1000000000ull},
                 {"min", 60 * 1000000000ull},
                 {"h", 3600 * 1000000000ull}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(suffix, units[i].suffix) == 0) {
            *ret_unit = units[i].ns;
            return 0;
        }
    return -EINVAL;
}

int quantity_parse_duration(const char *text, int64_t *ret_ns)
{
    struct number number;
    uint64_t unit, value;
    int error = take_number(&text, &number);
    if (!error)
        error = unit_of_duration(text, &unit);
    if (!error)
        error = scale(number, unit, &value);
    if (!error && value > INT64_MAX)
        error = -ERANGE;
    if (!error)
        *ret_ns = (int64_t)value;
    return error;
}

/* Three digits that matter, so that columns of them compare at a glance. */
static void three_digits(char text[QUANTITY_BYTES], double value, const char *unit)
{
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(text, QUANTITY_BYTES, "%.*f %s", decimals, value, unit);
}

const char *quantity_of_bytes(char text[QUANTITY_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(text, QUANTITY_BYTES, "%" PRIu64 " B", bytes);
        return text;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1023.5 && unit + 1 < sizeof units / sizeof *units; ++unit)
        value /= 1024;
    three_digits(text, value, units[unit]);
    return text;
}

const char *quantity_of_rate(char text[QUANTITY_BYTES], double bytes_per_second)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    size_t unit = 0;
    for (; bytes_per_second >= 999.5 && unit + 1 < sizeof units / sizeof *units; ++unit)
        bytes_per_second /= 1000;
    if (unit == 0)
        snprintf(text, QUANTITY_BYTES, "%.0f B/s", bytes_per_second);
    else
        three_digits(text, bytes_per_second, units[unit]);
    return text;
}

const char *quantity_of_duration(char text[QUANTITY_BYTES], int64_t ns)
{
    if (ns < 1000)
        snprintf(text, QUANTITY_BYTES, "%" PRId64 " ns", ns);
    else if (ns < 999500)
        three_digits(text, (double)ns / 1e3, "µs");
    else if (ns < 999500000)
        three_digits(text, (double)ns / 1e6, "ms");
    else if (ns < 60 * INT64_C(1000000000))
        three_digits(text, (double)ns / 1e9, "s");
    else if (ns < 3600 * INT64_C(1000000000))
        snprintf(text, QUANTITY_BYTES, "%" PRId64 " m %02" PRId64 " s", ns / 60000000000,
                 ns / 1000000000 % 60);
    else
        snprintf(text, QUANTITY_BYTES, "%" PRId64 " h %02" PRId64 " m", ns / 3600000000000,
                 ns / 60000000000 % 60);
    return text;
}
