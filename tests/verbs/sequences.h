/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One table of legal and illegal sequences of verbs calls, and what runs it over any libibverbs: a row is a little
 * script, its steps apart by semicolons; sequences.c has the rows.
 *
 * Every row starts with a freshly opened device, the queue pairs a and b in RESET (completion queues ca and cb of 64,
 * 16 sends, 16 receives, 4 pieces, 64 bytes inline), the protection domains pd and pd2, and the regions of 64 KiB
 *   here   a's, written by us only           there   b's, all rights         ro   b's, read by the peer only
 *
 *   up [KEY=VALUE]...                      bring a and b to RTS, facing each other; NAME:KEY for one of them alone
 *   init|rtr|rts|reset|err|sqd Q [KEY=VALUE]... [without=ATTRIBUTE] [with=ATTRIBUTE] [= ERRNO]
 *   read|write|send|imm Q LOCAL REMOTE [KEY=VALUE]... [= ERRNO]   len off loff id x key lkey flags (u unsignalled, i inline,
 *                                          s solicited); x posts so many as one chain, ids counting up; pieces
 *   recv Q LOCAL [KEY=VALUE]... [= ERRNO]
 *   wc CQ ID STATUS                        the next completion, waited for
 *   flushes CQ N                           the next N are all "flushed"
 *   none CQ                                no completion comes
 *   successes CQ N                         the next N are all good
 *   fails CQ                               a poll fails
 *   standard                               the rest of the row is left out on Soft-RoCE
 *   state Q STATE | same LOCAL REMOTE N | differ LOCAL REMOTE N
 *   mr NAME PD BYTES RIGHTS [= ERRNO]      RIGHTS of l w r or -; BYTES may be "unmapped" or "readonly"
 *   dereg NAME | pd NAME | dealloc NAME | destroy NAME | close       [= ERRNO]
 *   cq NAME ENTRIES [vector=N] [= ERRNO] | qp NAME CQ [KEY=VALUE]... [= ERRNO]
 *   arm CQ [solicited] | event CQ | quiet | ack CQ N                 of the completion channel
 *   async EVENT                            the next asynchronous event
 *   gid INDEX ERRNO | zerogid INDEX | pkey INDEX ERRNO | port NUMBER ERRNO
 *
 * "rxe=" before an expectation replaces it where the device is Soft-RoCE; the row's last member says why it departs.
 */
#ifndef SEQUENCES_H
#define SEQUENCES_H

#include <stddef.h>

struct sequence {
    const char *name, *steps, *departs;
};

extern const struct sequence sequences[];
extern const size_t n_sequences;

#endif
