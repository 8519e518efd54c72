/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Golden transcripts of the rail handshake: the identities of both sides, and the bytes they come out as.
 * With one rail the count is 1 and the second rail is missing.
 */
#ifndef TESTS_GOLDEN_HANDSHAKE_H
#define TESTS_GOLDEN_HANDSHAKE_H

#include <gpusys/wire.h>

/* clang-format off */
static const struct gpusys_qp_params golden_client[2] = {
    {.qpn = 0x11223344, .psn = 0x00AABBCC,
     .gid = {0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f}},
    {.qpn = 0x55667788, .psn = 0x00DDEEFF,
     .gid = {0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x7b, 0x7c, 0x7d, 0x7e, 0x7f}},
};

static const struct gpusys_cache_server_params golden_server[2] = {
    {.qp = {.qpn = 0x04030201, .psn = 0x08070605,
            .gid = {0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27,
                    0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f}},
     .region = {.base = 0x1122334455667788, .rkey = 0x99AABBCC}},
    {.qp = {.qpn = 0x0C0B0A09, .psn = 0x100F0E0D,
            .gid = {0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37,
                    0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f}},
     .region = {.base = 0xDEADBEEF0BADF00D, .rkey = 0x01020304}},
};

#define GOLDEN_CLIENT_0 "\x44\x33\x22\x11" "\xcc\xbb\xaa\x00" "`abcdefghijklmno"
#define GOLDEN_CLIENT_1 "\x88\x77\x66\x55" "\xff\xee\xdd\x00" "pqrstuvwxyz{|}~\x7f"

#define GOLDEN_SERVER_QP_0 "\x01\x02\x03\x04" "\x05\x06\x07\x08" " !\"#$%&'()*+,-./"
#define GOLDEN_SERVER_QP_1 "\x09\x0a\x0b\x0c" "\x0d\x0e\x0f\x10" "0123456789:;<=>?"
#define GOLDEN_REGION_0    "\x88\x77\x66\x55\x44\x33\x22\x11" "\xcc\xbb\xaa\x99"
#define GOLDEN_REGION_1    "\x0d\xf0\xad\x0b\xef\xbe\xad\xde" "\x04\x03\x02\x01"
#define GOLDEN_ONE         "\x01\x00\x00\x00"

/* Of n rails: step 3 of the client, step 2 of a read-only and of a read-write server. */
static const char *const golden_client_rails[] = {
    "", "\x01" GOLDEN_CLIENT_0, "\x02" GOLDEN_CLIENT_0 GOLDEN_CLIENT_1};
static const char *const golden_server_rails_ro[] = {
    "", "\x01" GOLDEN_SERVER_QP_0 GOLDEN_ONE GOLDEN_REGION_0,
    "\x02" GOLDEN_SERVER_QP_0 GOLDEN_ONE GOLDEN_REGION_0 GOLDEN_SERVER_QP_1 GOLDEN_ONE GOLDEN_REGION_1};
static const char *const golden_server_rails_rw[] = {
    "", "\x01" GOLDEN_SERVER_QP_0 GOLDEN_REGION_0,
    "\x02" GOLDEN_SERVER_QP_0 GOLDEN_REGION_0 GOLDEN_SERVER_QP_1 GOLDEN_REGION_1};

enum {
    GOLDEN_CLIENT_BYTES = 24, GOLDEN_CACHE_SERVER_BYTES = 36, GOLDEN_VERBS_SERVER_BYTES = 40,
};
/* clang-format on */

#endif
