/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The current version of the stand-in. */
#include "fake.h"

int fake_add(int a, int b)
{
    return a + b;
}

FAKE_EXPORT int fake_mode_1(void);
FAKE_EXPORT int fake_mode_2(void);

int fake_mode_1(void)
{
    return 1;
}

int fake_mode_2(void)
{
    return 2;
}

__asm__(".symver fake_mode_1, fake_mode@FAKE_1");
__asm__(".symver fake_mode_2, fake_mode@@FAKE_2");

int fake_new(void)
{
    return 3;
}
