/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in as it was before fake_new, and before it had symbol versions. */
#include "fake.h"

int fake_add(int a, int b)
{
    return a + b;
}

int fake_mode(void)
{
    return 0;
}
