/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Text of others: what may be shown to people, and what is UTF-8 at all. */
#ifndef GPUSYS_BASE_TEXT_H
#define GPUSYS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes of the UTF-8 character at `at`, of which `left` may be looked at; 0 for what is none: overlong, surrogate, too
 * high, cut. */
size_t gs_text_character(const char *at, size_t left);

/* C0, DEL, and the C1 controls (U+0080 … U+009F): some terminals obey those too. */
bool gs_text_is_control(const char *character);

/* Nothing but whole characters that are no controls. */
bool gs_text_is_clean(const char *text, size_t length);

/* What is not becomes '?', byte by byte. */
void gs_text_clean(char *text, size_t length);

#endif
