/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stopping cleanly. The first SIGINT or SIGTERM only leaves a mark that commands look at or poll for; the
 * second one ends the process at once, as it would have without us.
 */
#ifndef GPUSYS_CLI_INTERRUPT_H
#define GPUSYS_CLI_INTERRUPT_H

/* Catch from here on. A descriptor that polls readable once a signal has come (do not read or close it), or a
 * negative errno. */
int interrupt_catch(void);

/* The signal that came, or 0. */
int interrupt_caught(void);

#endif
