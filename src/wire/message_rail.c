/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages of gpusys/1 that set up RDMA: rails, and the keys of regions. */
#include "wire/message_rail.h"

#include <errno.h>
#include <gpusys/remote.h>

static void put_rail(unsigned char **at, const struct gs_rail_record *rail)
{
    gs_put_u8(at, rail->transport);
    gs_put_u8(at, rail->link_layer);
    gs_put_u16(at, rail->lid);
    gs_put_bytes(at, rail->gid, sizeof rail->gid);
    gs_put_u16(at, rail->gid_index);
    gs_put_u16(at, rail->mtu_bytes);
    gs_put_u8(at, rail->reads_out);
    gs_put_u8(at, rail->reads_in);
    gs_put_u16(at, (uint16_t)rail->numa_node);
    gs_put_u32(at, rail->qpn);
    gs_put_u32(at, rail->psn);
    gs_put_u32(at, rail->generation);
    gs_put_bytes(at, rail->device, sizeof rail->device);
}

static int get_rail(const unsigned char **at, struct gs_rail_record *rail)
{
    rail->transport = gs_get_u8(at);
    rail->link_layer = gs_get_u8(at);
    rail->lid = gs_get_u16(at);
    gs_get_bytes(at, rail->gid, sizeof rail->gid);
    rail->gid_index = gs_get_u16(at);
    rail->mtu_bytes = gs_get_u16(at);
    rail->reads_out = gs_get_u8(at);
    rail->reads_in = gs_get_u8(at);
    rail->numa_node = (int16_t)gs_get_u16(at);
    rail->qpn = gs_get_u32(at);
    rail->psn = gs_get_u32(at);
    rail->generation = gs_get_u32(at);
    gs_get_bytes(at, rail->device, sizeof rail->device);
    return rail->device[sizeof rail->device - 1] == 0 ? 0 : -EBADMSG;
}

void gs_rails_put(unsigned char **at, const struct gs_rail_record *rails, uint8_t n_rails)
{
    gs_put_u8(at, n_rails);
    for (unsigned i = 0; i < n_rails; i++)
        put_rail(at, &rails[i]);
}

int gs_rails_take(struct gs_cursor *cursor, struct gs_rail_record *rails, uint8_t *ret_n_rails)
{
    const unsigned char *at = gs_cursor_take(cursor, 1);
    uint8_t n_rails = at ? *at : UINT8_MAX;
    if (n_rails > GS_RAILS_MAX || !(at = gs_cursor_take(cursor, (size_t)n_rails * GS_RAIL_BYTES)))
        return -EBADMSG;
    for (unsigned i = 0; i < n_rails; i++)
        if (get_rail(&at, &rails[i]))
            return -EBADMSG;
    *ret_n_rails = n_rails;
    return 0;
}

/* ---- RAIL and RAILED ---- */

enum { OFFER_BYTES = GS_RAIL_BYTES + 8, ANSWER_BYTES = GS_RAIL_BYTES + 16 };

int gs_rail_encode(struct gs_bytes *out, uint64_t serial, const struct gs_rail_wish *wish)
{
    unsigned char *at = gs_message_begin(out, GS_RAIL, serial, OFFER_BYTES);
    if (!at)
        return -ENOMEM;
    put_rail(&at, &wish->rail);
    gs_put_u8(&at, wish->offer);
    memset(at, 0, 7);
    return 0;
}

/* What a queue pair can be called, and what every transport but RDMA leaves at 0. */
static bool is_verbs_end(const struct gs_rail_record *rail)
{
    return rail->transport == GPUSYS_TRANSPORT_VERBS && rail->link_layer >= 1 &&
           rail->link_layer <= GS_LINK_INFINIBAND_GRH && rail->qpn != 0 && rail->qpn >> 24 == 0 &&
           rail->psn >> 24 == 0 && rail->mtu_bytes >= 256 && rail->reads_out && rail->reads_in;
}

int gs_rail_decode(const void *body, size_t size, struct gs_rail_wish *ret_wish)
{
    const unsigned char *at = body;
    static const unsigned char zero[7];
    struct gs_rail_wish wish;
    if (size != OFFER_BYTES || get_rail(&at, &wish.rail) || !is_verbs_end(&wish.rail))
        return -EBADMSG;
    wish.offer = gs_get_u8(&at);
    if (wish.offer >= GS_RAILS_MAX || memcmp(at, zero, sizeof zero) != 0)
        return -EBADMSG;
    *ret_wish = wish;
    return 0;
}

int gs_railed_encode(struct gs_bytes *out, uint64_t serial, const struct gs_railed *railed)
{
    unsigned char *at = gs_message_begin(out, GS_RAILED, serial, ANSWER_BYTES);
    if (!at)
        return -ENOMEM;
    put_rail(&at, &railed->rail);
    gs_put_u64(&at, railed->probe.base);
    gs_put_u32(&at, railed->probe.rkey);
    gs_put_u32(&at, railed->probe_bytes);
    return 0;
}

int gs_railed_decode(const void *body, size_t size, struct gs_railed *ret_railed)
{
    const unsigned char *at = body;
    struct gs_railed railed;
    if (size != ANSWER_BYTES || get_rail(&at, &railed.rail) || !is_verbs_end(&railed.rail))
        return -EBADMSG;
    railed.probe.base = gs_get_u64(&at);
    railed.probe.rkey = gs_get_u32(&at);
    railed.probe_bytes = gs_get_u32(&at);
    if (railed.probe_bytes == 0)
        return -EBADMSG;
    *ret_railed = railed;
    return 0;
}

/* ---- KEYED ---- */

int gs_keyed_encode(struct gs_bytes *out, uint64_t serial, const struct gs_keyed *keyed,
                    const struct gs_key_entry *keys)
{
    unsigned char *at =
        gs_message_begin(out, GS_KEYED, serial, GS_KEYED_BYTES + (size_t)keyed->n_keys * GS_KEY_BYTES);
    if (!at)
        return -ENOMEM;
    gs_put_u32(&at, keyed->region);
    gs_put_u32(&at, keyed->place);
    gs_put_u64(&at, keyed->piece_bytes);
    gs_put_u32(&at, keyed->n_keys);
    gs_put_u32(&at, 0);
    for (uint32_t i = 0; i < keyed->n_keys; i++) {
        gs_put_u64(&at, keys[i].base);
        gs_put_u32(&at, keys[i].rkey);
        gs_put_u32(&at, 0);
    }
    return 0;
}

int gs_keyed_decode(const void *body, size_t size, struct gs_keyed *ret_keyed)
{
    struct gs_cursor cursor = gs_cursor_over(body, size);
    const unsigned char *at = gs_cursor_take(&cursor, GS_KEYED_BYTES);
    if (!at)
        return -EBADMSG;
    struct gs_keyed keyed = {.region = gs_get_u32(&at), .place = gs_get_u32(&at)};
    keyed.piece_bytes = gs_get_u64(&at);
    keyed.n_keys = gs_get_u32(&at);
    uint32_t zero = gs_get_u32(&at);
    if (zero || keyed.place > GPUSYS_PLACE_COPY || keyed.n_keys == 0 || keyed.n_keys > GS_KEYS_MAX ||
        keyed.piece_bytes == 0 || gs_cursor_left(&cursor) != (size_t)keyed.n_keys * GS_KEY_BYTES)
        return -EBADMSG;
    keyed.keys = cursor.at;
    *ret_keyed = keyed;
    return 0;
}

int gs_keyed_get(const struct gs_keyed *keyed, uint32_t index, struct gs_key_entry *ret_key)
{
    const unsigned char *at = keyed->keys + (size_t)index * GS_KEY_BYTES;
    struct gs_key_entry key = {.base = gs_get_u64(&at), .rkey = gs_get_u32(&at)};
    if (gs_get_u32(&at))
        return -EBADMSG;
    *ret_key = key;
    return 0;
}
