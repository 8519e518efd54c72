/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What every fuzz target shares. A target is one file, fuzz_NAME.c, with one LLVMFuzzerTestOneInput that
 * checks properties with REQUIRE; a folder corpus/NAME of seeds; and one name in meson.build. Built with
 * -Dfuzz=true and clang it is a libFuzzer program, otherwise replay.c runs it over its seeds.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
