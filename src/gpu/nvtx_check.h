/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The balance checker of ranges: who pushed what and where. Names and places are copied, cut to what fits: their owners may be
 * gone when they are reported. Any thread. Built with or without NVTX.
 */
#ifndef GPUSYS_GPU_NVTX_CHECK_H
#define GPUSYS_GPU_NVTX_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* Of a domain what is compared and shown. Serial 0: the default domain. Serials are never used again. */
struct gs_nvtx_domain_id {
    uint64_t serial;
    char name[32];
};

/* A range that is open. */
struct gs_nvtx_open {
    struct gs_nvtx_open *next, **link; /* of those that were started, not pushed */
    bool is_started;                   /* it is in that list */
    struct gs_nvtx_domain_id domain;
    char name[64], file[64]; /* of a longer file name its end */
    int line;
};

/* Is it asked for in the environment? Once, before any other call; if it is not there are no others. */
bool gs_nvtx_check_look(void);

/* `domain` NULL: the default one. `file` NULL: the library itself. */
void gs_nvtx_check_push(const struct gs_nvtx_domain_id *domain, const char *name, const char *file, int line);
void gs_nvtx_check_pop(const struct gs_nvtx_domain_id *domain, const char *file, int line);

/* `open` is the caller's memory, in a list until the end. */
void gs_nvtx_check_start(struct gs_nvtx_open *open, const struct gs_nvtx_domain_id *domain, const char *name,
                         const char *file, int line);
void gs_nvtx_check_end(struct gs_nvtx_open *open);

struct gpusys_nvtx_balance;
/* Count, and report what is open. */
void gs_nvtx_check_report(struct gpusys_nvtx_balance *ret_balance);

#endif
