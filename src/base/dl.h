/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Between the two files of the loader: finding a library, and what to say when there is none. */
#ifndef GPUSYS_BASE_DL_H
#define GPUSYS_BASE_DL_H

#include <gpusys/dl.h>

/* A handle for dlsym. The errors of gpusys_dl_open, but for -ENOSYS. */
int gs_dl_load(void **ret_handle, bool *ret_reused, const struct gpusys_dl_library *library,
               struct gpusys_error *error);

#endif
