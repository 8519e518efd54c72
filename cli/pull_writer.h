/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread that hashes and writes what has arrived in a slot, while the caller receives the next one. It
 * touches the slot's bytes, the pieces' results, and the part files' descriptors; nothing else of a pull.
 */
#ifndef GPUSYS_CLI_PULL_WRITER_H
#define GPUSYS_CLI_PULL_WRITER_H

#include "pull_ring.h"

struct writer;

/* `hash`: every piece that ends a chunk gets the chunk's checksum. -ENOMEM, -EAGAIN. */
int writer_start(struct writer **ret_writer, bool hash);

/* After what it was given is written. NULL is fine. */
void writer_stop(struct writer *writer);

/* Write this slot. The one before must have been waited for; part files are open. */
void writer_give(struct writer *writer, struct slot *slot);

/* Until the slot is written: each piece's `code` and `hash` are there. At once when there is none. */
void writer_wait(struct writer *writer);

#endif
