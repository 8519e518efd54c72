/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real peer over the stand-in libibverbs, and a client with a verbs rail attached. The input are messages on the rail's
 * connection, [u8 type][u8 length][length bytes] each; type 0xe0 puts one on the control stream, whose type is the first
 * of the bytes; a type from 0xf0 on sends the bytes as they are. Whatever comes, the session is there afterwards, unless
 * the control stream itself broke the rules, and nothing of the keys is left when it ends.
 */
#include "session.h"

#include "wire/message_rail.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ON_CONTROL = 0xe0, RAW = 0xf0, MOST_MESSAGES = 64 };

static char config[] = "/tmp/gpusys-fuzz-verbs-XXXXXX";

static void remove_config(void)
{
    unlink(config);
}

static void use_stand_in(void)
{
    static const char devices[] = "resolve no\n"
                                  "device fake0\nmax_mr_size 16384\nport 1\ngid 0 127.0.0.1 roce2\n"
                                  "device ib0\nport 1\nlink_layer infiniband\nlid 3\ngid 0 fe80::1 ib\n";
    int fd = mkstemp(config);
    REQUIRE(fd >= 0 && write(fd, devices, sizeof devices - 1) == (ssize_t)(sizeof devices - 1));
    close(fd);
    atexit(remove_config);
    setenv("FAKE_IBVERBS_CONFIG", config, 1);
    setenv("GPUSYS_LIBIBVERBS", FAKE_IBVERBS, 1);
    fuzz_peer_flags = 0;
}

static void put_message(struct fuzz_client *client, uint8_t type, const uint8_t *body, size_t length)
{
    unsigned char *at = gs_bytes_grow(&client->out, length + GS_FRAME_BYTES);
    REQUIRE(at);
    gs_put_u32(&at, (uint32_t)length);
    gs_put_u16(&at, type);
    gs_put_u16(&at, 0);
    gs_put_u64(&at, client->serial++);
    gs_put_bytes(&at, body, length);
}

static void put_raw(struct fuzz_client *client, const uint8_t *bytes, size_t length)
{
    unsigned char *at = gs_bytes_grow(&client->out, length);
    REQUIRE(at || length == 0);
    if (length)
        memcpy(at, bytes, length);
}

/* Every answer of the rail, until it has answered all or ended. */
static void hear_rail(struct fuzz_client *rail, uint64_t first, bool whole)
{
    struct gs_frame frame;
    uint64_t answers = 0, asked = rail->serial - first;
    if (!whole)
        shutdown(rail->fd, SHUT_WR); /* or it waits for the rest */
    while ((!whole || answers < asked) && fuzz_client_message(rail, &frame)) {
        REQUIRE(frame.type == GS_RAILED || frame.type == GS_KEYED || frame.type == GS_REFUSED);
        REQUIRE(!whole || (frame.serial >= first && frame.serial < rail->serial));
        answers++;
    }
}

/* The control stream answers a PING, or has refused what it was sent. */
static void hear_control(struct fuzz_client *control)
{
    struct gs_frame frame;
    uint64_t serial = control->serial;
    bool done = false;
    REQUIRE(gs_empty_encode(&control->out, GS_PING, serial) == 0);
    if (!fuzz_client_send(control))
        return;
    while (!done && fuzz_client_message(control, &frame))
        done = frame.type == GS_PONG && frame.serial == serial;
}

static void say_all(struct fuzz_client *control, struct fuzz_client *rail, const uint8_t *data, size_t size,
                    bool *ret_whole)
{
    for (unsigned i = 0; size >= 2 && i < MOST_MESSAGES; i++) {
        uint8_t type = data[0];
        size_t length = data[1] < size - 2 ? data[1] : size - 2;
        if (type >= RAW) {
            put_raw(rail, data + 2, length);
            *ret_whole = false;
        } else if (type != ON_CONTROL) {
            put_message(rail, type, data + 2, length);
        } else if (length) {
            fuzz_client_send(rail); /* what came before it is on its way */
            put_message(control, data[2], data + 3, length - 1);
            fuzz_client_send(control);
        }
        data += 2 + length;
        size -= 2 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_client control, rail;
    static bool is_ready;
    bool whole = true;
    if (!is_ready)
        use_stand_in();
    is_ready = true;
    fuzz_client_open(&control);
    fuzz_client_hello(&control);
    fuzz_client_attach(&rail, &control, 3);
    uint64_t first = rail.serial;
    say_all(&control, &rail, data, size, &whole);
    fuzz_client_send(&rail);
    hear_rail(&rail, first, whole);
    hear_control(&control);
    close(rail.fd);
    gs_bytes_free(&rail.out);
    gs_bytes_free(&rail.in);
    fuzz_client_close(&control);
    return 0;
}
