/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A verbs rail at the client: what is particular to it beside the engine's table. */
#ifndef GPUSYS_RAIL_VERBS_RAIL_H
#define GPUSYS_RAIL_VERBS_RAIL_H

#include "rail/rail.h"

#include <gpusys/railset.h>

/*
 * A rail of the field's dialects: connected, with the keys of every region (number 0 first). Takes over `parts`,
 * also when it fails, and copies the keys. `control` is watched for its end and stays the caller's; -1: none.
 */
int gs_verbs_rail_adopt(struct gs_rail **ret_rail, const struct gpusys_rail *parts,
                        const struct gpusys_region_key *keys, uint32_t n_keys, int control,
                        struct gpusys_error *error);

/* The port that a verbs rail uses; NULL for rails of other transports. */
struct gs_verbs_end *gs_verbs_rail_end(const struct gs_rail *rail);

/* The region is gone: an answer about its keys that is still to come is of no use. */
void gs_verbs_rail_forget(struct gs_rail *rail, uint32_t region);

/* What a queue pair says of itself, as a record of gpusys/1; and back. */
void gs_rail_record_of(const struct gpusys_qp *qp, struct gs_rail_record *ret_record);
void gs_rail_end_of(const struct gs_rail_record *record, struct gpusys_qp_end *ret_end);

/* Connected, in numbers, for gpusys_remote_rail. */
int gs_verbs_rail_info(const struct gs_rail *rail, struct gpusys_qp_info *ret_info);

#endif
