/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A real peer, and a client whose bytes are the input from the first one on; with an empty input it connects and leaves. */
#include "session.h"

#include <string.h>

/* Do the bytes end between two frames, so that a PING behind them is a message? */
static bool is_whole(const uint8_t *data, size_t size)
{
    size_t at = GS_MAGIC_BYTES;
    struct gs_frame frame;
    if (size < at || memcmp(data, GS_MAGIC, GS_MAGIC_BYTES) != 0)
        return false;
    while (size - at >= GS_FRAME_BYTES && gs_frame_decode(data + at, &frame) == 0) {
        if (size - at - GS_FRAME_BYTES < frame.body_bytes)
            return false;
        at += GS_FRAME_BYTES + frame.body_bytes;
    }
    return at == size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_client client;
    struct gs_frame frame;
    const uint64_t serial = UINT64_MAX;
    fuzz_client_open(&client);
    if (size) {
        unsigned char *room = gs_bytes_grow(&client.out, size);
        REQUIRE(room);
        memcpy(room, data, size);
    }
    bool whole = is_whole(data, size);
    if (whole)
        REQUIRE(gs_empty_encode(&client.out, GS_PING, serial) == 0);
    if (fuzz_client_send(&client) && whole)
        while (fuzz_client_message(&client, &frame) && frame.serial != serial)
            ;
    fuzz_client_close(&client);
    return 0;
}
