/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The runtime directory, and the cookies in it that keep other local users out.
 *
 * The directory is the first of these whose parent exists and is ours: $GPUSYS_RUNTIME_DIR itself,
 * $XDG_RUNTIME_DIR/gpusys, /run/user/UID/gpusys, for root /run/gpusys, else /tmp/gpusys-UID. It must belong
 * to this user with mode 0700. Variables are read with secure_getenv.
 */
#ifndef GPUSYS_REMOTE_RUNTIME_H
#define GPUSYS_REMOTE_RUNTIME_H

#include "base/address.h"

#include <gpusys/error.h>
#include <stdint.h>

enum { GS_PATH_BYTES = 512 };

/* The directory, made when it is not there. */
int gs_runtime_directory(char ret_path[GS_PATH_BYTES], struct gpusys_error *error);

/*
 * The file beside the listener at `address`: in the runtime directory "tcp-HOST-PORT.KIND", for a Unix socket
 * "PATH.KIND".
 */
int gs_runtime_path(char ret_path[GS_PATH_BYTES], const struct gs_address *address, const char *kind,
                    struct gpusys_error *error);

/* 32 random bytes into a new 0600 file, replacing an old cookie in one step. -EEXIST: it is no cookie. */
int gs_cookie_write(const char *path, uint8_t ret_cookie[32], struct gpusys_error *error);

/* Remove the file if it still holds this cookie. */
void gs_cookie_remove(const char *path, const uint8_t cookie[32]);

/* Refuses a file that others could have written or read. */
int gs_cookie_read(const char *path, uint8_t ret_cookie[32], struct gpusys_error *error);

int gs_random(void *bytes, size_t size);

/* Compare secrets without telling how much of them agreed. */
bool gs_secret_equal(const uint8_t *a, const uint8_t *b, size_t size);

#endif
