/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages of gpusys/1 on a verbs rail's connection, and what they share with the others. */
#ifndef GPUSYS_WIRE_MESSAGE_RAIL_H
#define GPUSYS_WIRE_MESSAGE_RAIL_H

#include "wire/message.h"

enum {
    GS_RAIL_BYTES = 64,
    GS_KEYED_BYTES = 24,
    GS_KEY_BYTES = 16,
    GS_KEYS_MAX = (GS_BODY_MAX - GS_KEYED_BYTES) / GS_KEY_BYTES, /* pieces of one region */
};

/* A record's link layer is an enum gpusys_link_layer, or this: InfiniBand where every packet must have a GRH. */
enum { GS_LINK_INFINIBAND_GRH = 3 };

static inline uint8_t gs_record_link_layer(uint32_t link_layer, bool grh_required)
{
    return link_layer == 1 && grh_required ? GS_LINK_INFINIBAND_GRH : (uint8_t)link_layer;
}

static inline uint32_t gs_link_layer_of(const struct gs_rail_record *record)
{
    return record->link_layer == GS_LINK_INFINIBAND_GRH ? 1 : record->link_layer;
}

/* RAIL: the client's end of a rail, and which of the peer's rails in WELCOME it is to lead to. */
struct gs_rail_wish {
    struct gs_rail_record rail;
    uint8_t offer;
};

/* A piece of registered memory. */
struct gs_key_entry {
    uint64_t base;
    uint32_t rkey;
};

/* RAILED: the peer's end, ready to be read from, and memory of no meaning to try that on. */
struct gs_railed {
    struct gs_rail_record rail;
    struct gs_key_entry probe;
    uint32_t probe_bytes;
};

/* KEYED: a region, registered in pieces of piece_bytes each, the last one shorter. */
struct gs_keyed {
    uint32_t region, place; /* place: enum gpusys_region_place, as it is registered */
    uint64_t piece_bytes;
    uint32_t n_keys;
    const unsigned char *keys; /* for gs_keyed_get */
};

/* Encoders: 0 or -ENOMEM. Decoders: -EBADMSG, as all of wire/message.h. */
int gs_rail_encode(struct gs_bytes *out, uint64_t serial, const struct gs_rail_wish *wish);
int gs_rail_decode(const void *body, size_t size, struct gs_rail_wish *ret_wish);
int gs_railed_encode(struct gs_bytes *out, uint64_t serial, const struct gs_railed *railed);
int gs_railed_decode(const void *body, size_t size, struct gs_railed *ret_railed);
int gs_keyed_encode(struct gs_bytes *out, uint64_t serial, const struct gs_keyed *keyed,
                    const struct gs_key_entry *keys);
int gs_keyed_decode(const void *body, size_t size, struct gs_keyed *ret_keyed);
int gs_keyed_get(const struct gs_keyed *keyed, uint32_t index, struct gs_key_entry *ret_key);

/* A count and that many rails, in HELLO and WELCOME. */
void gs_rails_put(unsigned char **at, const struct gs_rail_record *rails, uint8_t n_rails);
int gs_rails_take(struct gs_cursor *cursor, struct gs_rail_record *rails, uint8_t *ret_n_rails);

/* Append a frame with room for its body: where the body goes, or NULL. */
unsigned char *gs_message_begin(struct gs_bytes *out, enum gs_message_type type, uint64_t serial,
                                size_t body_bytes);

#endif
