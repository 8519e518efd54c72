/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Looks at the machine, for gpusys_nccl_preflight: each file has those of one subject, preflight.c the table of all.
 *
 * A look tries the thing itself, then calls gs_found (verdict and evidence) and, unless all is well, gs_so (what
 * follows, what to do).
 */
#ifndef GPUSYS_GPU_PREFLIGHT_H
#define GPUSYS_GPU_PREFLIGHT_H

#include <gpusys/finding.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct gs_look {
    const char *name, *title;
    void (*run)(struct gpusys_finding *finding);
};

/* A subject's looks, one behind the other; preflight.c has them all. */
void gs_look_driver(struct gpusys_finding *finding);
void gs_look_versions(struct gpusys_finding *finding);
void gs_look_gpus(struct gpusys_finding *finding);
void gs_look_library(struct gpusys_finding *finding);
void gs_look_copies(struct gpusys_finding *finding);
void gs_look_environment(struct gpusys_finding *finding);
void gs_look_interface(struct gpusys_finding *finding);
void gs_look_rdma(struct gpusys_finding *finding);
void gs_look_shm(struct gpusys_finding *finding);
void gs_look_memlock(struct gpusys_finding *finding);
void gs_look_files(struct gpusys_finding *finding);
void gs_look_iommu(struct gpusys_finding *finding);
void gs_look_acs(struct gpusys_finding *finding);
void gs_look_fabric(struct gpusys_finding *finding);
void gs_look_gpudirect(struct gpusys_finding *finding);
void gs_look_container(struct gpusys_finding *finding);

/* ---- saying what was found ---- */

void gs_found(struct gpusys_finding *finding, enum gpusys_verdict verdict, const char *format, ...)
    GPUSYS_PRINTF(3, 4);
/* The fix is formatted. */
void gs_so(struct gpusys_finding *finding, const char *consequence, const char *fix, ...) GPUSYS_PRINTF(3, 4);

/* What is amiss where there is a GPU, and does not matter where there is none. */
enum gpusys_verdict gs_amiss(enum gpusys_verdict verdict);

/* Names in a row; what does not fit is counted, and left out with "...". */
struct gs_names {
    char text[200];
    unsigned count;
};
void gs_name_add(struct gs_names *names, const char *separator, const char *format, ...) GPUSYS_PRINTF(3, 4);

/* ---- files of the system ---- */

/* What stands before every path, so that tests can show another machine. */
extern const char *gs_preflight_root;

enum { GS_PATH_BYTES = 512 };

/* A path of the system, behind the root. Returns `path`. */
const char *gs_path(char path[GS_PATH_BYTES], const char *format, ...) GPUSYS_PRINTF(2, 3);
bool gs_exists(const char *format, ...) GPUSYS_PRINTF(1, 2);
/* The first line, without its end. False, and "", when there is none. */
bool gs_read_line(char *line, size_t size, const char *format, ...) GPUSYS_PRINTF(3, 4);
/* How many files are of that pattern (glob(7)). */
unsigned gs_count_files(const char *pattern);

/* ---- what machine it is ---- */

/* PCI devices of NVIDIA that are GPUs, as far as files tell it; their addresses, when `addresses` is not NULL. */
unsigned gs_gpus_on_pci(struct gs_names *addresses);
/* Is there a GPU of NVIDIA, with a driver or without? */
bool gs_has_gpu(void);
/* How many GPUs this process may open: nodes in /dev. */
unsigned gs_gpu_nodes(void);
/* "docker", or NULL when this is no container. */
const char *gs_container(void);
/* The version of the kernel's driver, "580.65.06". False when it is not loaded. */
bool gs_kernel_driver(char version[32]);
/* How many RDMA devices the kernel has. */
unsigned gs_rdma_devices(void);

/* ---- strings.c: constant strings of a library's file ---- */

/* Is `text` a string of its own among the constants of the file? -ENOENT: it is not; other errors: not known. */
int gs_file_has_string(const char *path, const char *text);
/* The rest of the first string that starts with `start` and has `with` in it, cut to fit. -ENOENT: there is none. */
int gs_file_string(const char *path, const char *start, const char *with, char *rest, size_t size);
/* "2.28.9+cuda13.0", as it stands in NCCL's file; "" when it does not. */
void gs_nccl_banner(const char *path, char banner[64]);

/* ---- nccl_env.c: the names that NCCL reads ---- */

enum gs_nccl_name {
    GS_NAME_UNKNOWN = 0,
    GS_NAME_NCCL,   /* NCCL's own, of this version or of others */
    GS_NAME_OTHERS, /* of a plugin, a framework or a build: not NCCL's, and yet no mistake */
};
enum gs_nccl_name gs_nccl_name(const char *name);
/* The name that was meant, without its "NCCL_", or NULL when none is near. */
const char *gs_nccl_name_near(const char *name);

/* ---- nccl_conf.c: where its settings come from ---- */

enum { GS_SETTING_BYTES = 256 };

/* What NCCL will see for this name: the environment's value, else that of the first configuration file that has one.
 * `source` (may be NULL) gets the file's path, "" for the environment. False: not set. */
bool gs_nccl_setting(const char *name, char value[GS_SETTING_BYTES], char source[GS_PATH_BYTES]);
/* Every NCCL_ setting that counts: those of the environment first. `visit` returns false to end it. */
void gs_nccl_settings(bool (*visit)(void *context, const char *name, const char *value, const char *source),
                      void *context);
/* Configuration file number `at` that NCCL would read, whether it is there or not. False behind the last. */
bool gs_nccl_conf_file(unsigned at, char path[GS_PATH_BYTES]);
/* NULL: there is none, or it is no regular file (to open a FIFO is to wait), or one that would fill the memory. */
FILE *gs_nccl_conf_open(const char *path);

#endif
