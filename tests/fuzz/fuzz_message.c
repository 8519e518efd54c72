/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every body of gpusys/1: the first byte is the message's type, the rest its body. What decodes encodes to the same. */
#include "fuzz.h"

#include "wire/message_rail.h"

#include <errno.h>
#include <string.h>

static struct gs_bytes out; /* kept from input to input */

/* What was encoded is one frame around the body that came. */
static void check_same(uint8_t type, const uint8_t *body, size_t size)
{
    struct gs_frame frame;
    REQUIRE(gs_bytes_queued(&out) == GS_FRAME_BYTES + size);
    REQUIRE(gs_frame_decode(out.data + out.head, &frame) == 0);
    REQUIRE(frame.type == type && frame.serial == type && frame.body_bytes == size);
    REQUIRE(size == 0 || memcmp(out.data + out.head + GS_FRAME_BYTES, body, size) == 0);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
}

#define ROUND(kind, type)                                                                                    \
    case type: {                                                                                             \
        struct gs_##kind message;                                                                            \
        int code = gs_##kind##_decode(body, size, &message);                                                 \
        REQUIRE(code == 0 || code == -EBADMSG);                                                              \
        if (code == 0 && gs_##kind##_encode(&out, type, &message) == 0)                                      \
            check_same(type, body, size);                                                                    \
        break;                                                                                               \
    }

static void round_page(const uint8_t *body, size_t size)
{
    struct gs_regions page;
    struct gs_region_entry entry;
    if (gs_regions_decode(body, size, &page))
        return;
    REQUIRE(gs_regions_begin(&out, GS_REGIONS, page.total, page.first) == 0);
    for (uint32_t i = 0; i < page.count; i++) {
        REQUIRE(gs_region_entry_next(&page, &entry) == 0);
        REQUIRE(!memchr(entry.name.at, 0, entry.name.length));
        REQUIRE(gs_regions_add(&out, 0, &entry) == 0);
    }
    REQUIRE(gs_region_entry_next(&page, &entry) == -EBADMSG);
    check_same(GS_REGIONS, body, size);
}

/* What came as an end of RDMA can be one. */
static void check_end(const struct gs_rail_record *rail)
{
    REQUIRE(rail->transport == 3 && rail->qpn > 0 && rail->qpn <= 0xffffff && rail->psn <= 0xffffff);
    REQUIRE(rail->mtu_bytes >= 256 && rail->reads_out && rail->reads_in);
    REQUIRE(memchr(rail->device, 0, sizeof rail->device));
}

static void round_rail(const uint8_t *body, size_t size)
{
    struct gs_rail_wish wish;
    if (gs_rail_decode(body, size, &wish))
        return;
    check_end(&wish.rail);
    REQUIRE(wish.offer < GS_RAILS_MAX && gs_rail_encode(&out, GS_RAIL, &wish) == 0);
    check_same(GS_RAIL, body, size);
}

static void round_railed(const uint8_t *body, size_t size)
{
    struct gs_railed railed;
    if (gs_railed_decode(body, size, &railed))
        return;
    check_end(&railed.rail);
    REQUIRE(railed.probe_bytes && gs_railed_encode(&out, GS_RAILED, &railed) == 0);
    check_same(GS_RAILED, body, size);
}

static void round_keyed(const uint8_t *body, size_t size)
{
    static struct gs_key_entry keys[GS_KEYS_MAX];
    struct gs_keyed keyed;
    if (gs_keyed_decode(body, size, &keyed))
        return;
    REQUIRE(keyed.n_keys && keyed.n_keys <= GS_KEYS_MAX && keyed.piece_bytes && keyed.place <= 2);
    for (uint32_t i = 0; i < keyed.n_keys; i++)
        if (gs_keyed_get(&keyed, i, &keys[i]))
            return;
    REQUIRE(gs_keyed_encode(&out, GS_KEYED, &keyed, keys) == 0);
    check_same(GS_KEYED, body, size);
}

static void round_small(uint8_t type, const uint8_t *body, size_t size)
{
    uint64_t bytes;
    uint32_t region;
    uint8_t proof[GS_NONCE_BYTES];
    if (type == GS_ARENA && gs_arena_decode(body, size, &bytes) == 0)
        REQUIRE(gs_arena_encode(&out, type, bytes) == 0);
    else if (type == GS_ATTACHED && gs_attached_decode(body, size, proof) == 0)
        REQUIRE(gs_attached_encode(&out, type, proof) == 0);
    else if (type == GS_NOTE && size <= GS_BODY_MAX)
        REQUIRE(gs_note_encode(&out, type, body, (uint32_t)size) == 0);
    else if ((type == GS_ARENA_FREE || type == GS_CHANGED || type == GS_MAP || type == GS_KEY) &&
             gs_region_message_decode(body, size, &region) == 0)
        REQUIRE(gs_region_message_encode(&out, type, type, region) == 0);
    else
        return;
    check_same(type, body, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > GS_BODY_MAX)
        return 0;
    uint8_t type = data[0];
    const uint8_t *body = data + 1;
    size--;
    switch (type) {
        ROUND(hello, GS_HELLO)
        ROUND(welcome, GS_WELCOME)
        ROUND(refused, GS_REFUSED)
        ROUND(ready, GS_READY)
        ROUND(list, GS_LIST)
        ROUND(sum, GS_SUM)
        ROUND(sums, GS_SUMS)
        ROUND(granted, GS_GRANTED)
        ROUND(fence, GS_FENCE)
        ROUND(attach, GS_ATTACH)
        ROUND(mapped, GS_MAPPED)
    case GS_REGIONS: round_page(body, size); break;
    case GS_RAIL: round_rail(body, size); break;
    case GS_RAILED: round_railed(body, size); break;
    case GS_KEYED: round_keyed(body, size); break;
    default: round_small(type, body, size); break;
    }
    return 0;
}
