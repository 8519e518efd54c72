/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A remote over rails that somebody else set up, without gpusys/1 behind it: its table is given, its control stream
 * (if it has one) says nothing but its end.
 */
#ifndef GPUSYS_REMOTE_ADOPT_H
#define GPUSYS_REMOTE_ADOPT_H

#include "rail/rail.h"

#include <gpusys/field.h>

struct gs_adoption {
    const char *address, *reason;
    enum gpusys_transport transport;
    struct gpusys_stream *control; /* taken over; NULL: a rail has it */
    struct gs_rail **rails;        /* taken over */
    uint32_t n_rails;
    const struct gpusys_field_region *regions; /* copied */
    uint32_t n_regions;
    uint8_t region_kind, access; /* of all of them */
    uint64_t slice_bytes;        /* 0: as the rails like it */
    uint32_t slice_max;          /* 0: GS_SLICE_MAX */
};

/* Everything is taken over, also when it fails. */
int gs_remote_adopt(struct gpusys_remote **ret_remote, const struct gs_adoption *adoption,
                    struct gpusys_error *error);

#endif
