/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The smallest program: is the library there, and which one is it?
 *
 *     cc version.c $(pkg-config --cflags --libs gpusys) -o version
 */
#include <gpusys/gpusys.h>

#include <stdio.h>

int main(void)
{
    printf("libgpusys %s (%s)\n", gpusys_version(), gpusys_build_info());
    return 0;
}
