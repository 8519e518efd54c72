/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "base/text.h"

/* What a character may begin with, and what may follow. */
static const struct lead {
    unsigned char low, high, second_low, second_high, length;
} leads[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
    {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

static const struct lead *find_lead(unsigned char first)
{
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++)
        if (first >= leads[i].low && first <= leads[i].high)
            return &leads[i];
    return NULL;
}

size_t gs_text_character(const char *text, size_t left)
{
    const unsigned char *at = (const unsigned char *)text;
    if (left && at[0] < 0x80)
        return 1;
    const struct lead *lead = left ? find_lead(at[0]) : NULL;
    if (!lead || left < lead->length || at[1] < lead->second_low || at[1] > lead->second_high)
        return 0;
    for (size_t i = 2; i < lead->length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return lead->length;
}

bool gs_text_is_control(const char *character)
{
    const unsigned char *at = (const unsigned char *)character;
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

/* The bytes of the character if it may be shown, else 0. */
static size_t good_bytes(const char *at, size_t left)
{
    size_t bytes = gs_text_character(at, left);
    return bytes && !gs_text_is_control(at) ? bytes : 0;
}

bool gs_text_is_clean(const char *text, size_t length)
{
    for (size_t at = 0, bytes; at < length; at += bytes)
        if (!(bytes = good_bytes(text + at, length - at)))
            return false;
    return true;
}

void gs_text_clean(char *text, size_t length)
{
    for (size_t at = 0, bytes; at < length; at += bytes ? bytes : 1)
        if (!(bytes = good_bytes(text + at, length - at)))
            text[at] = '?';
}
