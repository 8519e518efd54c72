/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* nccl.h includes this file of the CUDA toolkit, and takes nothing from it. */
