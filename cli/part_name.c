/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "part_name.h"

#include <gpusys/hash.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char longest_suffix[] = ".part.journal";

static const char *with_suffix(char name[PART_NAME_BYTES], const char *leaf, const char *suffix)
{
    size_t length = strlen(leaf);
    if (length + sizeof longest_suffix <= PART_NAME_BYTES) {
        snprintf(name, PART_NAME_BYTES, "%s%s", leaf, suffix);
        return name;
    }
    uint8_t hash[GPUSYS_HASH_BYTES];
    gpusys_hash(leaf, length, hash);
    int at = snprintf(name, PART_NAME_BYTES, ".gpusys-");
    for (size_t i = 0; i < sizeof hash; i++)
        at += snprintf(name + at, PART_NAME_BYTES - (size_t)at, "%02x", hash[i]);
    snprintf(name + at, PART_NAME_BYTES - (size_t)at, "%s", suffix);
    return name;
}

const char *part_name(char name[PART_NAME_BYTES], const char *leaf)
{
    return with_suffix(name, leaf, ".part");
}

const char *part_journal_name(char name[PART_NAME_BYTES], const char *leaf)
{
    return with_suffix(name, leaf, longest_suffix);
}
