/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What nccl.h takes from the CUDA toolkit, so that it compiles without one. */
#ifndef GPUSYS_STUB_CUDA_RUNTIME_H
#define GPUSYS_STUB_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define CUDART_VERSION 12000
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
