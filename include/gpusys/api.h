/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gpusys/api.h: what every gpusys header shares: the export mark, the version, and the rules of the house.
 *
 * Rules that hold for every call unless its own comment says otherwise:
 *
 *   Results    0 (or a small count) on success, a negative errno on failure. Byte counts are outputs, never
 *              the result.
 *   Errors     set-up calls take a nullable `struct gpusys_error *` last and fill it when they fail. The data
 *              path returns the code alone.
 *   Ownership  open/close for what holds an operating-system resource, new/free for memory. close and free
 *              take NULL.
 *   Outputs    written last: a call that fails leaves them as they were.
 *   Time       `timeout_ns` is relative (-1 waits without limit, 0 does not wait
 *              for the other side), `deadline_ns` is absolute on
 *              CLOCK_MONOTONIC (gpusys/deadline.h).
 *   Options    a struct whose first member is its size in bytes; NULL means the defaults; zero in a field
 *              means that field's default; bytes behind the size this library knows must be zero (-E2BIG).
 *   Threads    different objects are independent; one object belongs to one thread at a time.
 *   Quiet      the library never prints, never exits, never installs a signal handler.
 */
#ifndef GPUSYS_API_H
#define GPUSYS_API_H

#define GPUSYS_VERSION_MAJOR 0
#define GPUSYS_VERSION_MINOR 1
#define GPUSYS_VERSION_PATCH 0

#if defined(__GNUC__)
#define GPUSYS_API             __attribute__((visibility("default")))
#define GPUSYS_PRINTF(fmt, at) __attribute__((format(printf, fmt, at)))
#else
#define GPUSYS_API
#define GPUSYS_PRINTF(fmt, at)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is running, "MAJOR.MINOR.PATCH". Static storage; any thread. */
GPUSYS_API const char *gpusys_version(void);

/* One line of build facts: compiler, architecture, the optional parts that are in. Static storage; any
 * thread. */
GPUSYS_API const char *gpusys_build_info(void);

#ifdef __cplusplus
}
#endif

#endif
