/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every body of gpusys/1: the first byte is the message's type, the rest its body. What decodes encodes to the same. */
#include "fuzz.h"

#include "wire/message.h"

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
    else if ((type == GS_ARENA_FREE || type == GS_CHANGED || type == GS_MAP) &&
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
    default: round_small(type, body, size); break;
    }
    return 0;
}
