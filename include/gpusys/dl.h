/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/dl.h: libraries of others, found at run time. A program that uses them starts without them, and says
 * what is missing and where it comes from.
 *
 * The symbols that a module wants are written once, as a list of rows; their types come from prototypes (the
 * vendor's header, or declarations written by hand):
 *
 *     int zeta_init(void);
 *     int zeta_sum(int a, int b);
 *     #define ZETA_SYMBOLS(ROW, table)                                   \
 *         ROW(table, REQUIRED, zeta_init, NULL, NULL)                    \
 *         ROW(table, OPTIONAL, zeta_sum, "ZETA_1.2", "1.2")
 *     GPUSYS_DL_TABLE(zeta_table, ZETA_SYMBOLS);                  // struct zeta_table { ... }
 *     GPUSYS_DL_SYMBOLS(zeta_symbols, zeta_table, ZETA_SYMBOLS);  // the array for the description
 *
 * Different objects may be used by different threads at once.
 */
#ifndef GPUSYS_DL_H
#define GPUSYS_DL_H

#include <gpusys/api.h>
#include <gpusys/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpusys_dl_rank {
    GPUSYS_DL_REQUIRED = 0, /* without it the library is of no use: opening fails */
    GPUSYS_DL_OPTIONAL = 1, /* without it the table holds NULL there */
};

struct gpusys_dl_symbol {
    const char *name;
    const char *version; /* the symbol version to ask for first, or NULL; else the default version serves */
    const char *since;   /* the first version of the library that has it, as a user would write it, or NULL */
    size_t offset;       /* where its pointer goes in the caller's table */
    uint32_t rank;       /* enum gpusys_dl_rank */
};

/* Where a table's structure and its array of symbols come from: see the head of this file. */
#ifdef __cplusplus
#define GPUSYS_DL_MEMBER_(table, rank, symbol, version, since) __typeof__(::symbol) *symbol;
#else
#define GPUSYS_DL_MEMBER_(table, rank, symbol, version, since) __typeof__(symbol) *symbol;
#endif
#define GPUSYS_DL_ROW_(table, rank, symbol, version, since)                                                  \
    {#symbol, version, since, offsetof(struct table, symbol), GPUSYS_DL_##rank},
#define GPUSYS_DL_TABLE(table, LIST)                                                                         \
    struct table {                                                                                           \
        LIST(GPUSYS_DL_MEMBER_, table)                                                                       \
    }
#define GPUSYS_DL_SYMBOLS(array, table, LIST)                                                                \
    static const struct gpusys_dl_symbol array[] = {LIST(GPUSYS_DL_ROW_, table)}

enum {
    /*
     * Closing may unload it. Without this flag the library stays for the life of the process, which is what
     * libraries with threads or thread-local destructors of their own need.
     */
    GPUSYS_DL_MAY_UNLOAD = 1,
    GPUSYS_DL_GLOBAL = 2, /* its symbols serve libraries loaded later (RTLD_GLOBAL) */
};

/* What to look for. Everything it points to must outlive the objects opened with it: make it static. */
struct gpusys_dl_library {
    size_t size;      /* sizeof(struct gpusys_dl_library) */
    const char *name; /* what people call it: "NVML" */
    const char *hint; /* how to get it: "install the package libnvidia-ml1". May be NULL */
    const char
        *path_variable; /* the environment variable that names the one file to use instead. May be NULL */
    const char *const *sonames; /* in order of preference, NULL at the end; names with a slash are paths */
    const struct gpusys_dl_symbol *symbols;
    size_t n_symbols;
    size_t table_bytes; /* the size of the caller's table */
    uint32_t flags;     /* GPUSYS_DL_MAY_UNLOAD, GPUSYS_DL_GLOBAL */
};

struct gpusys_dl;

/*
 * Open a library and fill `table` (untouched on failure). A copy that the process holds already is used, in
 * the order of the sonames; otherwise the first that loads. Where the path variable is set and not empty,
 * that file is used and nothing else (read by secure_getenv). Fails with
 *
 * - -ENOENT: nothing by any of the names; the error has a row for each, and the hint
 * - -ELIBBAD: found, but made for another machine, or damaged
 * - -ELIBACC: found, but it cannot be loaded: something it needs is missing, no permission
 * - -ENOSYS: loaded, but a required symbol is missing
 * - -EINVAL, -E2BIG (the description), -ENOMEM
 */
GPUSYS_API int gpusys_dl_open(struct gpusys_dl **ret_dl, const struct gpusys_dl_library *library, void *table,
                              struct gpusys_error *error);

/* Free it; with GPUSYS_DL_MAY_UNLOAD the table must not be used any more. NULL is fine. */
GPUSYS_API void gpusys_dl_close(struct gpusys_dl *dl);

/* The file that is mapped, symbolic links resolved. Lives as long as `dl`. */
GPUSYS_API const char *gpusys_dl_path(const struct gpusys_dl *dl);

/* Was it in the process before? */
GPUSYS_API bool gpusys_dl_reused(const struct gpusys_dl *dl);

/*
 * The files mapped under this library's name ("libzeta.so" followed by any version), one a line, those that
 * fit wholly into `size` bytes with the NUL. Returns how many there are: more than 1 means trouble, because
 * each copy has state of its own.
 */
GPUSYS_API int gpusys_dl_copies(const struct gpusys_dl *dl, char *text, size_t size);

/*
 * Say that a symbol is missing: -ENOSYS with an error that names the symbol, the file and the version to
 * have; 0 when the library has it.
 */
GPUSYS_API int gpusys_dl_missing(const struct gpusys_dl *dl, const char *symbol, struct gpusys_error *error);

#ifdef __cplusplus
}
#endif

#endif
