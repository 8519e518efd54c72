/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pieces of the records for those who read them in parts, as the handshake does. */
#ifndef GPUSYS_WIRE_RECORDS_H
#define GPUSYS_WIRE_RECORDS_H

#include <gpusys/wire.h>

enum { GS_VERBS_SERVER_HEAD_BYTES = GPUSYS_VERBS_SERVER_PARAMS_BYTES(0) };

/* The fixed part of a VerbsServerParams, GS_VERBS_SERVER_HEAD_BYTES long. The count is not checked. */
void gs_verbs_server_head_decode(const unsigned char *head, struct gpusys_qp_params *ret_qp,
                                 uint32_t *ret_n_regions);

/*
 * `n` packed entries into `regions`. They may lie in the same memory when they end where `regions` ends:
 * 12-byte entries grow to 16 in place, front to back, and never overtake what is still to be read.
 */
void gs_regions_unpack(struct gpusys_region_key *regions, const unsigned char *bytes, uint32_t n);

#endif
