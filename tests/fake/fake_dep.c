/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What fake_needy.c needs. */
__attribute__((visibility("default"))) int fake_dep(void);

int fake_dep(void)
{
    return 5;
}
