/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Between the files that bind NCCL. */
#ifndef GPUSYS_GPU_NCCL_H
#define GPUSYS_GPU_NCCL_H

#include <gpusys/nccl.h>

/* The table where one was loaded; NULL otherwise: it does not load. */
const struct gpusys_nccl *gs_nccl_loaded(void);

#endif
