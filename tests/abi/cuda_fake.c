/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The prototypes of the stand-in libcuda against NVIDIA's cuda.h: a difference does not compile. */
#include <cuda.h>

#include "fake/cuda_api.h"

int main(void)
{
    return 0;
}
