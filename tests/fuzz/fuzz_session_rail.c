/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real peer, and a client with a tcp rail attached. The input are requests, [u8 op][u8 region][u24 offset][u24 length]
 * each; a write's payload is what follows in the input, then zeros. Every reply must be the one that a model of the
 * regions gives, in order. An op from 0x10 on is sent as raw bytes (the rest of the input), and then anything may follow but a hang.
 */
#include "session.h"

#include <gpusys/remote.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_BYTES = 8, MOST_REQUESTS = 64, MOST_PAYLOAD = 1 << 20 };

static uint8_t model[FUZZ_WRITABLE_BYTES];

struct expected {
    struct gs_reply reply;
    uint8_t op;
    uint32_t region;
    uint64_t offset;
};

static uint64_t length_of(uint32_t region)
{
    static const uint64_t lengths[] = {FUZZ_MEMORY_BYTES, FUZZ_WRITABLE_BYTES, FUZZ_FILE_BYTES, 0, 0};
    return region < FUZZ_REGIONS ? lengths[region] : 0;
}

static enum gs_status judge(const struct gs_request *request)
{
    if (request->region >= FUZZ_REGIONS || request->region == FUZZ_FOLDER)
        return GS_STATUS_REGION;
    if (request->op == GPUSYS_OP_WRITE && request->region != FUZZ_WRITABLE)
        return GS_STATUS_ACCESS;
    uint64_t length = length_of(request->region);
    return request->offset <= length && request->length <= length - request->offset ? GS_STATUS_OK
                                                                                    : GS_STATUS_RANGE;
}

static uint32_t get_u24(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
}

static struct gs_request request_at(const uint8_t *data, uint32_t tag)
{
    struct gs_request request = {.op = data[0] & 1,
                                 .region = data[1],
                                 .offset = get_u24(data + 2),
                                 .length = get_u24(data + 5) % MOST_PAYLOAD,
                                 .tag = tag};
    if (data[1] & 0x80) /* far away: sums of offset and length that overflow */
        request.offset = UINT64_MAX - request.offset;
    request.region = data[1] & 0x40 ? 0x80000000 | (data[1] & 0x3f) : data[1] & 0x3fu;
    return request;
}

static void put_request(struct fuzz_client *rail, const struct gs_request *request)
{
    unsigned char *at = gs_bytes_grow(&rail->out, GS_REQUEST_BYTES);
    REQUIRE(at);
    gs_request_put(at, request);
}

/* The payload: from the input as far as it goes. */
static void put_payload(struct fuzz_client *rail, const uint8_t *payload, size_t have, uint32_t length)
{
    unsigned char *at = gs_bytes_grow(&rail->out, length);
    REQUIRE(at);
    size_t count = have < length ? have : length;
    if (count)
        memcpy(at, payload, count);
    memset(at + count, 0, length - count);
}

static void check_payload(const struct expected *expected, const unsigned char *bytes)
{
    for (uint32_t i = 0; i < expected->reply.length; i++) {
        uint64_t at = expected->offset + i;
        REQUIRE(bytes[i] == (expected->region == FUZZ_WRITABLE ? model[at] : fuzz_pattern(at)));
    }
}

static void check_reply(struct fuzz_client *rail, const struct expected *expected)
{
    struct gs_reply reply;
    const unsigned char *head = fuzz_client_receive(rail, GS_REPLY_BYTES);
    REQUIRE(head && gs_reply_get(head, &reply) == 0);
    REQUIRE(reply.status == expected->reply.status && reply.tag == expected->reply.tag);
    REQUIRE(reply.length == expected->reply.length);
    if (expected->op == GPUSYS_OP_WRITE || reply.status != GS_STATUS_OK)
        return;
    const unsigned char *payload = fuzz_client_receive(rail, reply.length);
    REQUIRE(payload);
    check_payload(expected, payload);
}

/* One request, sent and answered before the next when `data` says so; else the replies are looked at later. */
static size_t one_request(struct fuzz_client *rail, const uint8_t *data, size_t size,
                          struct expected *ret_expected)
{
    struct gs_request request = request_at(data, get_u24(data) ^ 0xabcdef);
    enum gs_status status = judge(&request);
    size_t used = RECORD_BYTES;
    *ret_expected = (struct expected){.op = request.op, .region = request.region, .offset = request.offset};
    ret_expected->reply = (struct gs_reply){
        .status = (uint8_t)status, .length = status == GS_STATUS_OK ? request.length : 0, .tag = request.tag};
    put_request(rail, &request);
    if (request.op == GPUSYS_OP_WRITE) {
        size_t have = size - used;
        put_payload(rail, data + used, have, request.length);
        if (status == GS_STATUS_OK && request.length)
            memcpy(model + request.offset, rail->out.data + rail->out.tail - request.length, request.length);
        used += have < request.length ? have : request.length;
    }
    return used;
}

static void run(struct fuzz_client *rail, const uint8_t *data, size_t size)
{
    struct expected expected;
    for (unsigned i = 0; i < MOST_REQUESTS && size >= RECORD_BYTES && data[0] < 0x10; i++) {
        size_t used = one_request(rail, data, size, &expected);
        REQUIRE(fuzz_client_send(rail));
        check_reply(rail, &expected);
        data += used;
        size -= used;
    }
    REQUIRE(memcmp(model, fuzz_writable(), sizeof model) == 0);
    if (size && data[0] >= 0x10) {
        unsigned char *room = gs_bytes_grow(&rail->out, size - 1);
        REQUIRE(room);
        memcpy(room, data + 1, size - 1);
        fuzz_client_send(rail);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_client control, rail;
    fuzz_client_open(&control);
    fuzz_client_hello(&control);
    fuzz_client_attach(&rail, &control, GPUSYS_TRANSPORT_TCP);
    memset(fuzz_writable(), 0, FUZZ_WRITABLE_BYTES);
    memset(model, 0, sizeof model);
    run(&rail, data, size);
    close(rail.fd);
    gs_bytes_free(&rail.out);
    gs_bytes_free(&rail.in);
    fuzz_client_close(&control);
    return 0;
}
