/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <gpusys/env.h>

#include <stdbool.h>
#include <stdlib.h>

const char *gpusys_env_first_set(const char *const *keys, size_t n_keys, const char *fallback)
{
    for (size_t i = 0; i < n_keys; i++) {
        const char *value = secure_getenv(keys[i]);
        if (value)
            return value;
    }
    return fallback;
}

const char *gpusys_env_first_nonempty(const char *const *keys, size_t n_keys, const char *fallback)
{
    for (size_t i = 0; i < n_keys; i++) {
        const char *value = secure_getenv(keys[i]);
        if (value && value[0])
            return value;
    }
    return fallback;
}

/* strtoul would take blanks, a minus sign and a prefix. */
static bool parse_u32(const char *text, uint32_t *value)
{
    uint64_t sum = 0;
    text += *text == '+';
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        sum = sum * 10 + (uint64_t)(*text - '0');
        if (sum > UINT32_MAX)
            return false;
    }
    *value = (uint32_t)sum;
    return true;
}

uint32_t gpusys_env_first_u32(const char *const *keys, size_t n_keys, uint32_t fallback)
{
    for (size_t i = 0; i < n_keys; i++) {
        const char *text = secure_getenv(keys[i]);
        uint32_t value;
        if (text && parse_u32(text, &value))
            return value;
    }
    return fallback;
}
