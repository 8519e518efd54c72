/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A stand-in for a vendor's library: what its header would declare. */
#ifndef TESTS_FAKE_H
#define TESTS_FAKE_H

#define FAKE_EXPORT __attribute__((visibility("default")))

FAKE_EXPORT int fake_add(int a, int b);
FAKE_EXPORT int fake_mode(void); /* 1 at version FAKE_1, 2 at FAKE_2, the default */
FAKE_EXPORT int fake_new(void);  /* came with FAKE_2 */

#endif
