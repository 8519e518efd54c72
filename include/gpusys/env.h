/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/env.h: look a setting up in the environment over a list of keys, first match wins.
 *
 * `keys` is an array of `n_keys` names, in order. Lookups use secure_getenv, so a set-user-ID program sees
 * nothing. Results point into the environment: valid until it changes. Any thread, while nobody calls setenv.
 */
#ifndef GPUSYS_ENV_H
#define GPUSYS_ENV_H

#include <gpusys/api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first key that is set, even to the empty string; `fallback` (may be NULL) when none is. */
GPUSYS_API const char *gpusys_env_first_set(const char *const *keys, size_t n_keys, const char *fallback);

/* The first key that is set and not empty; `fallback` when none is. */
GPUSYS_API const char *gpusys_env_first_nonempty(const char *const *keys, size_t n_keys,
                                                 const char *fallback);

/*
 * The first key whose whole value is a decimal uint32 (one leading '+' allowed; no blanks, no sign otherwise,
 * no overflow). A value that is not one is skipped and the next key is tried; `fallback` when none is left.
 */
GPUSYS_API uint32_t gpusys_env_first_u32(const char *const *keys, size_t n_keys, uint32_t fallback);

#ifdef __cplusplus
}
#endif

#endif
