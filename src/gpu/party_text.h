/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two files of messages share: frames, texts, codes. */
#ifndef GPUSYS_GPU_PARTY_TEXT_H
#define GPUSYS_GPU_PARTY_TEXT_H

#include "gpu/party_message.h"

/* A frame with room for a body: where it starts, NULL when memory is out. */
unsigned char *gs_party_frame_begin(struct gs_bytes *out, enum gs_party_type type, size_t body_bytes);

/* [u16 bytes][bytes]: `size` is that of the field, so that at most size - 1 go. Control bytes go as '?', and a text
 * that holds some is refused. */
size_t gs_party_text_bytes(const char *text, size_t size);
void gs_party_text_put(unsigned char **at, const char *text, size_t size);
int gs_party_text_get(struct gs_cursor *cursor, char *text, size_t size);

/* An errno of 1 … 4095, given back negative. */
int gs_party_code_get(const unsigned char **at, int *ret_code);

#endif
