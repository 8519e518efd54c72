/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* All that nccl.h takes from this file of the CUDA toolkit. */
#define __CUDA_BF16_TYPES_EXIST__
