/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pages of the region table, from the other end: entries are built from the input, [u16 name length][u8 kind] each, until
 * the page is full; the page then decodes to the same entries, and one that was not taken left it as it was.
 */
#include "fuzz.h"

#include "wire/message.h"

#include <errno.h>
#include <gpusys/peer.h>
#include <string.h>

enum { MOST = 4096 };

static struct gs_bytes out;
static char name[UINT16_MAX];

static struct gs_region_entry entry_at(const uint8_t *data, uint32_t number)
{
    uint16_t length = (uint16_t)((data[0] | data[1] << 8) % GPUSYS_NAME_BYTES);
    return (struct gs_region_entry){.region = number,
                                    .kind = data[2],
                                    .access = (uint8_t)(data[2] & 3),
                                    .length = (uint64_t)length << 40,
                                    .mtime_ns = -(int64_t)length,
                                    .mode = length,
                                    .name = {.at = name, .length = length}};
}

static void check(struct gs_regions *page, const uint8_t *data)
{
    for (uint32_t i = 0; i < page->count; i++) {
        struct gs_region_entry wanted = entry_at(data + 3 * (size_t)i, i), entry;
        REQUIRE(gs_region_entry_next(page, &entry) == 0);
        REQUIRE(entry.region == i && entry.kind == wanted.kind && entry.access == wanted.access);
        REQUIRE(entry.length == wanted.length && entry.mtime_ns == wanted.mtime_ns &&
                entry.mode == wanted.mode);
        REQUIRE(entry.name.length == wanted.name.length &&
                memcmp(entry.name.at, name, entry.name.length) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gs_regions page;
    uint32_t count = 0, wanted = (uint32_t)(size / 3 < MOST ? size / 3 : MOST);
    int code = 0;
    if (!name[0])
        memset(name, 'n', sizeof name);
    gs_bytes_drop(&out, gs_bytes_queued(&out));
    REQUIRE(gs_ready_encode(&out, 1, &(struct gs_ready){.transport = 1}) ==
            0); /* something before the page */
    size_t page_at = gs_bytes_queued(&out);
    REQUIRE(gs_regions_begin(&out, 7, UINT32_MAX, 0) == 0);
    for (; count < wanted; count++) {
        size_t before = gs_bytes_queued(&out);
        struct gs_region_entry entry = entry_at(data + 3 * (size_t)count, count);
        code = gs_regions_add(&out, page_at, &entry);
        REQUIRE(code == 0 || (code == -ENOSPC && gs_bytes_queued(&out) == before));
        if (code)
            break;
    }
    struct gs_frame frame;
    const unsigned char *at = out.data + out.head + page_at;
    REQUIRE(gs_frame_decode(at, &frame) == 0 && frame.type == GS_REGIONS);
    REQUIRE(frame.body_bytes == gs_bytes_queued(&out) - page_at - GS_FRAME_BYTES);
    REQUIRE(gs_regions_decode(at + GS_FRAME_BYTES, frame.body_bytes, &page) == 0);
    REQUIRE(page.count == count && page.total == UINT32_MAX && page.first == 0);
    check(&page, data);
    return 0;
}
