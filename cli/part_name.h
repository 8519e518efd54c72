/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a file is called while it arrives: "LEAF.part", and "LEAF.part.journal" beside it. A leaf too long for
 * the suffix gives way to a hidden name made from its hash.
 */
#ifndef GPUSYS_CLI_PART_NAME_H
#define GPUSYS_CLI_PART_NAME_H

enum { PART_NAME_BYTES = 256 };

/* `leaf` is the last component of a name, at most 255 bytes. Both return `name`. */
const char *part_name(char name[PART_NAME_BYTES], const char *leaf);
const char *part_journal_name(char name[PART_NAME_BYTES], const char *leaf);

#endif
