/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Amounts with units, from text and to text.
 *
 * Bytes: a suffix K, M, G, T, with or without "i" or "iB", counts in powers of 1024 ("4K", "4Ki", "4KiB");
 * with "B" alone in powers of 1000 ("4kB", "4MB"). "B" or nothing is bytes. Fractions are allowed where the
 * result is whole ("1.5G"). Durations: ns, us, ms, s, m, h; a bare number is seconds.
 */
#ifndef GPUSYS_CLI_QUANTITY_H
#define GPUSYS_CLI_QUANTITY_H

#include <stdint.h>

/* 0 or -EINVAL, -ERANGE. *ret_value is written on success only. */
int quantity_parse_u64(const char *text, uint64_t *ret_value);
int quantity_parse_bytes(const char *text, uint64_t *ret_bytes);
int quantity_parse_duration(const char *text, int64_t *ret_ns);

enum { QUANTITY_BYTES = 32 };

/* "0 B", "512 B", "4.00 KiB", "1.50 GiB". Returns `text`. */
const char *quantity_of_bytes(char text[QUANTITY_BYTES], uint64_t bytes);

/* Decimal, as networks and disks are sold: "0 B/s", "950 kB/s", "12.4 GB/s". */
const char *quantity_of_rate(char text[QUANTITY_BYTES], double bytes_per_second);

/* "3 ns", "2.10 µs", "15.0 ms", "3.90 s", "2 m 05 s", "1 h 02 m". */
const char *quantity_of_duration(char text[QUANTITY_BYTES], int64_t ns);

#endif
