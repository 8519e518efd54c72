/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real peer, and a client that has said a valid HELLO. The input is what comes then: [u8 type][u8 length][length bytes]
 * each becomes a message; a type from 0xf0 on sends the bytes as they are. At the end a PING must be answered, or the
 * client refused.
 */
#include "session.h"

#include <string.h>

/* Append one piece of the input. True: frames are intact. */
static bool append(struct fuzz_client *client, uint8_t type, const uint8_t *body, size_t length)
{
    bool is_raw = type >= 0xf0;
    unsigned char *at = gs_bytes_grow(&client->out, length + (is_raw ? 0 : GS_FRAME_BYTES));
    REQUIRE(at);
    if (!is_raw) {
        gs_put_u32(&at, (uint32_t)length);
        gs_put_u16(&at, type);
        gs_put_u16(&at, 0);
        gs_put_u64(&at, client->serial++);
    }
    gs_put_bytes(&at, body, length);
    return !is_raw;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_client client;
    struct gs_frame frame;
    bool whole = true;
    fuzz_client_open(&client);
    fuzz_client_hello(&client);
    while (size >= 2) {
        size_t length = data[1] < size - 2 ? data[1] : size - 2;
        if (!append(&client, data[0], data + 2, length))
            whole = false;
        data += 2 + length;
        size -= 2 + length;
    }
    uint64_t serial = client.serial;
    bool pinged = false, refused = false;
    REQUIRE(gs_empty_encode(&client.out, GS_PING, serial) == 0);
    if (fuzz_client_send(&client) && whole)
        while (!pinged && fuzz_client_message(&client, &frame)) {
            REQUIRE(frame.serial > 0 && frame.serial <= serial);
            pinged = frame.serial == serial && frame.type == GS_PONG;
            refused = refused || frame.type == GS_REFUSED;
        }
    REQUIRE(!whole || pinged || refused);
    fuzz_client_close(&client);
    return 0;
}
