/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two targets that play one side of a party share. */
#ifndef TESTS_FUZZ_PARTY_H
#define TESTS_FUZZ_PARTY_H

#include "fuzz.h"

#include "gpu/party_message.h"

#include <stdbool.h>

/* "unix:PATH" in a folder of its own, made the first time and removed at exit. */
const char *fuzz_party_address(void);
/* Magic, and HELLO of rank 1 of so many. */
void fuzz_party_hello(struct gs_bytes *bytes, uint32_t n_ranks);
void fuzz_party_magic(struct gs_bytes *bytes);

/* The party under test, on a thread of its own: opened, used for everything, closed. */
void fuzz_party_start(uint32_t rank, uint32_t n_ranks);
/* The other side is through: what was opened must have come to its end. */
void fuzz_party_stop(void);

/* All of it, as long as somebody reads; then hear the other side until it closes or says nothing for a moment. */
void fuzz_party_send(int fd, const void *bytes, size_t size);
void fuzz_party_listen(int fd, int milliseconds);

#endif
