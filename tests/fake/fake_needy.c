/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A stand-in that needs a second library. */
#include "fake.h"

int fake_dep(void);

int fake_add(int a, int b)
{
    return a + b + fake_dep() - 5;
}
