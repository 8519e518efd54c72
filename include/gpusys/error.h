/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/error.h: why a set-up call failed, and what to do about it.
 *
 * The caller owns the struct (usually on its stack) and passes its address, or NULL when only the code
 * matters. A call that succeeds leaves it untouched. There is no thread-local "last error".
 */
#ifndef GPUSYS_ERROR_H
#define GPUSYS_ERROR_H

#include <gpusys/api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whose code `gpusys_error.foreign` is. */
enum gpusys_domain {
    GPUSYS_DOMAIN_NONE = 0,     /* no foreign code: gpusys itself decided */
    GPUSYS_DOMAIN_SYSTEM = 1,   /* errno, positive */
    GPUSYS_DOMAIN_RESOLVER = 2, /* getaddrinfo's EAI_ code */
    GPUSYS_DOMAIN_PEER =
        3, /* a code the other side sent (enum gpusys_refusal, or the ack byte of the handshake) */
    GPUSYS_DOMAIN_LOADER = 4, /* dlopen or dlsym; the foreign code is 0 */
    GPUSYS_DOMAIN_VERBS = 5,  /* enum ibv_wc_status of a failed completion */
    GPUSYS_DOMAIN_CUDA = 6,   /* CUresult of the CUDA driver */
    GPUSYS_DOMAIN_NCCL = 7,   /* ncclResult_t (gpusys/nccl.h) */
};

struct gpusys_error {
    uint32_t domain;   /* enum gpusys_domain */
    int32_t foreign;   /* the code as that domain gave it, 0 when there is none */
    int32_t code;      /* the negative errno that the call returned */
    uint32_t reserved; /* 0 */
    char message[512]; /* what failed: the object's name first, then the cause. One line, no full stop */
    char detail[512];  /* rows of "name<TAB>value", newline between them: both sides' values. May be empty */
    char cause[256];   /* the one cause the evidence allows, or empty */
    char hint[256];    /* what to do next, or empty */
};

/*
 * Start an error: clears `error`, keeps `code` (a negative errno) and the message. Returns `code`, so that a
 * failing function can `return gpusys_error_set(error, -EINVAL, ...)`. `error` may be NULL. Text that does
 * not fit is cut; control characters, here and below, become '?'.
 */
GPUSYS_API int gpusys_error_set(struct gpusys_error *error, int code, const char *format, ...)
    GPUSYS_PRINTF(3, 4);

/* The same for a failed system call: the domain is SYSTEM, and ": " with errno's text is appended. */
GPUSYS_API int gpusys_error_set_errno(struct gpusys_error *error, int code, const char *format, ...)
    GPUSYS_PRINTF(3, 4);

/* Add to an error that was set: whose code it was; a row of values; the cause; what to do. NULL is ignored.
 */
GPUSYS_API void gpusys_error_set_foreign(struct gpusys_error *error, enum gpusys_domain domain, int foreign);
GPUSYS_API void gpusys_error_add_detail(struct gpusys_error *error, const char *name, const char *format, ...)
    GPUSYS_PRINTF(3, 4);
GPUSYS_API void gpusys_error_set_cause(struct gpusys_error *error, const char *format, ...)
    GPUSYS_PRINTF(2, 3);
GPUSYS_API void gpusys_error_set_hint(struct gpusys_error *error, const char *format, ...)
    GPUSYS_PRINTF(2, 3);

/*
 * The error as one paragraph, no newline at the end:
 *     MESSAGE
 *       NAME    VALUE
 *       cause   CAUSE
 *       try     HINT
 * Writes at most `size` bytes with the NUL; returns the length of the whole text, as snprintf does.
 */
GPUSYS_API int gpusys_error_format(const struct gpusys_error *error, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
