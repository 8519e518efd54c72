/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/finding.h: what a check of the machine found: a verdict, the evidence, and what to do. */
#ifndef GPUSYS_FINDING_H
#define GPUSYS_FINDING_H

#include <gpusys/api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpusys_verdict {
    GPUSYS_VERDICT_OK = 0,         /* it is there and works */
    GPUSYS_VERDICT_MISSING = 1,    /* it is not there, or there is too little of it */
    GPUSYS_VERDICT_BROKEN = 2,     /* it is there and does not work */
    GPUSYS_VERDICT_NOT_NEEDED = 3, /* it is not there, and nothing here would use it */
};

struct gpusys_finding {
    size_t size;           /* in: sizeof(struct gpusys_finding) */
    uint32_t verdict;      /* enum gpusys_verdict */
    uint32_t reserved;     /* 0 */
    char name[32];         /* "shm": a word that does not change between versions */
    char title[64];        /* what is looked at */
    char evidence[256];    /* what was seen, one line */
    char consequence[256]; /* what follows from it; empty when all is well */
    char fix[256];         /* what to do; empty when all is well */
};

#ifdef __cplusplus
}
#endif

#endif
