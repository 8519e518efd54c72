/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Frames over a stream: gathered from pieces, refused early, and sent as far as the socket takes them. */
#include "wire/channel.h"

#include <errno.h>
#include <gpusys/deadline.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* A channel over one end of a socket pair; the test plays the other end. */
struct pair {
    struct gs_channel channel;
    int other;
};

static void open_pair(struct pair *pair, bool expect_magic)
{
    struct gpusys_stream *stream;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(gpusys_stream_open_fd(&stream, ends[0], "the test"), 0);
    gs_channel_init(&pair->channel, stream, expect_magic);
    pair->other = ends[1];
}

static void close_pair(struct pair *pair)
{
    gs_channel_free(&pair->channel);
    if (pair->other >= 0)
        close(pair->other);
}

static void say(struct pair *pair, const void *bytes, size_t size)
{
    assert_int_equal(send(pair->other, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void end(struct pair *pair)
{
    close(pair->other);
    pair->other = -1;
}

/* Receive without waiting; what came is a note with this serial and body. */
static void expect_note(struct pair *pair, uint64_t serial, const char *note)
{
    struct gs_frame frame;
    const unsigned char *body;
    assert_int_equal(gs_channel_receive(&pair->channel, 0, &frame, &body), 0);
    assert_int_equal(frame.type, GS_NOTE);
    assert_int_equal(frame.serial, serial);
    assert_int_equal(frame.body_bytes, strlen(note));
    assert_memory_equal(body, note, strlen(note));
}

static void expect_error(struct pair *pair, int error)
{
    struct gs_frame frame;
    const unsigned char *body;
    assert_int_equal(gs_channel_receive(&pair->channel, 0, &frame, &body), error);
}

static struct gs_bytes note_bytes(uint64_t serial, const char *note)
{
    struct gs_bytes bytes = {0};
    assert_int_equal(gs_note_encode(&bytes, serial, note, (uint32_t)strlen(note)), 0);
    return bytes;
}

/* ---- in ---- */

static void one_byte_at_a_time(void **state)
{
    struct pair pair;
    struct gs_bytes note = note_bytes(7, "a note");
    (void)state;
    open_pair(&pair, true);
    for (size_t i = 0; i < GS_MAGIC_BYTES; i++) {
        expect_error(&pair, -EAGAIN);
        say(&pair, &GS_MAGIC[i], 1);
    }
    for (size_t i = 0; i < note.tail; i++) {
        expect_error(&pair, -EAGAIN);
        say(&pair, note.data + i, 1);
    }
    expect_note(&pair, 7, "a note");
    expect_error(&pair, -EAGAIN);
    gs_bytes_free(&note);
    close_pair(&pair);
}

static void a_wrong_magic_fails_at_its_first_wrong_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < GS_MAGIC_BYTES; i++) {
        struct pair pair;
        char magic[] = GS_MAGIC;
        magic[i] ^= 1;
        open_pair(&pair, true);
        if (i) {
            say(&pair, magic, i);
            expect_error(&pair, -EAGAIN);
        }
        say(&pair, magic + i, 1); /* and no more */
        expect_error(&pair, -EBADMSG);
        close_pair(&pair);
    }
}

static void a_client_expects_no_magic(void **state)
{
    struct pair pair;
    struct gs_bytes note = note_bytes(1, "");
    (void)state;
    open_pair(&pair, false);
    say(&pair, note.data, note.tail);
    expect_note(&pair, 1, "");
    gs_bytes_free(&note);
    close_pair(&pair);
}

/* [u32 body bytes][u16 type][u16 reserved][u64 serial] */
static void say_head(struct pair *pair, uint32_t body_bytes, uint16_t reserved)
{
    unsigned char head[GS_FRAME_BYTES], *at = head;
    gs_put_u32(&at, body_bytes);
    gs_put_u16(&at, GS_NOTE);
    gs_put_u16(&at, reserved);
    gs_put_u64(&at, 1);
    say(pair, head, sizeof head);
}

static void frames_out_of_bounds(void **state)
{
    struct pair pair;
    (void)state;
    open_pair(&pair, false);
    say_head(&pair, GS_BODY_MAX + 1, 0);
    expect_error(&pair, -EBADMSG);
    close_pair(&pair);
    open_pair(&pair, false);
    say_head(&pair, UINT32_MAX, 0);
    expect_error(&pair, -EBADMSG);
    close_pair(&pair);
    open_pair(&pair, false);
    say_head(&pair, 0, 1);
    expect_error(&pair, -EBADMSG);
    close_pair(&pair);
}

/* The longest body, in pieces as the socket takes them. */
static void the_longest_frame(void **state)
{
    static unsigned char body[GS_BODY_MAX];
    struct pair pair;
    struct gs_frame frame;
    const unsigned char *got;
    size_t sent = 0;
    (void)state;
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (unsigned char)(i * 31 + (i >> 8));
    open_pair(&pair, false);
    say_head(&pair, GS_BODY_MAX, 0);
    while (sent < sizeof body) {
        size_t piece = sizeof body - sent < 30000 ? sizeof body - sent : 30000;
        expect_error(&pair, -EAGAIN);
        say(&pair, body + sent, piece);
        sent += piece;
    }
    assert_int_equal(gs_channel_receive(&pair.channel, 0, &frame, &got), 0);
    assert_int_equal(frame.body_bytes, GS_BODY_MAX);
    assert_memory_equal(got, body, sizeof body);
    close_pair(&pair);
}

static void several_in_one_read(void **state)
{
    struct pair pair;
    struct gs_bytes all = {0};
    (void)state;
    open_pair(&pair, true);
    memcpy(gs_bytes_grow(&all, GS_MAGIC_BYTES), GS_MAGIC, GS_MAGIC_BYTES);
    assert_int_equal(gs_note_encode(&all, 1, "one", 3), 0);
    assert_int_equal(gs_note_encode(&all, 2, "", 0), 0);
    assert_int_equal(gs_note_encode(&all, 3, "three", 5), 0);
    say(&pair, all.data, all.tail - 1); /* the last one lacks a byte */
    assert_false(gs_channel_has_input(&pair.channel));
    expect_note(&pair, 1, "one");
    assert_true(gs_channel_has_input(&pair.channel)); /* which a poll of the descriptor does not show */
    expect_note(&pair, 2, "");
    expect_error(&pair, -EAGAIN);
    say(&pair, "e", 1);
    expect_note(&pair, 3, "three");
    assert_false(gs_channel_has_input(&pair.channel));
    gs_bytes_free(&all);
    close_pair(&pair);
}

/* Closed after each number of bytes: between messages it is a reset, inside one a broken pipe. */
static void the_end_at_every_byte(void **state)
{
    struct gs_bytes all = {0};
    (void)state;
    memcpy(gs_bytes_grow(&all, GS_MAGIC_BYTES), GS_MAGIC, GS_MAGIC_BYTES);
    assert_int_equal(gs_note_encode(&all, 1, "a note", 6), 0);
    size_t one = all.tail;
    for (size_t size = 0; size <= one; size++) {
        struct pair pair;
        open_pair(&pair, true);
        if (size)
            say(&pair, all.data, size);
        end(&pair);
        if (size == one)
            expect_note(&pair, 1, "a note");
        expect_error(&pair, size == 0 || size == GS_MAGIC_BYTES || size == one ? -ECONNRESET : -EPIPE);
        close_pair(&pair);
    }
    gs_bytes_free(&all);
}

static void a_deadline_that_passes(void **state)
{
    struct pair pair;
    struct gs_frame frame;
    const unsigned char *body;
    struct gs_bytes note = note_bytes(5, "kept");
    (void)state;
    open_pair(&pair, false);
    say(&pair, note.data, 18);
    assert_int_equal(gs_channel_receive(&pair.channel, gpusys_deadline_after(1000000), &frame, &body),
                     -ETIMEDOUT);
    say(&pair, note.data + 18, note.tail - 18);
    expect_note(&pair, 5, "kept"); /* nothing was lost */
    gs_bytes_free(&note);
    close_pair(&pair);
}

/* ---- out ---- */

static void output_that_does_not_fit(void **state)
{
    enum { NOTES = 64, NOTE = 4000, SMALL = 4096 };
    static char note[NOTE], got[NOTE + GS_FRAME_BYTES];
    struct pair pair;
    int size = SMALL;
    size_t received = 0, total = (size_t)NOTES * sizeof got;
    unsigned stops = 0;
    (void)state;
    open_pair(&pair, false);
    assert_int_equal(
        setsockopt(gpusys_stream_fd(pair.channel.stream), SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    assert_int_equal(gs_channel_flush(&pair.channel, 0), 0); /* nothing to send is sent */
    for (unsigned i = 0; i < NOTES; i++) {
        memset(note, (int)i, sizeof note);
        assert_int_equal(gs_note_encode(&pair.channel.out, i, note, sizeof note), 0);
    }
    struct gs_bytes expected = {0};
    memcpy(gs_bytes_grow(&expected, total), pair.channel.out.data, total);
    while (received < total) {
        int code = gs_channel_flush(&pair.channel, 0);
        assert_true(code == 0 || code == -EAGAIN);
        assert_int_equal(code == -EAGAIN, gs_channel_has_output(&pair.channel));
        stops += code == -EAGAIN;
        ssize_t count = recv(pair.other, got, sizeof got, 0);
        assert_true(count > 0);
        assert_memory_equal(got, expected.data + received, (size_t)count);
        received += (size_t)count;
    }
    assert_true(stops > 1);
    assert_false(gs_channel_has_output(&pair.channel));
    gs_bytes_free(&expected);
    close_pair(&pair);
}

static void output_to_nobody(void **state)
{
    struct pair pair;
    (void)state;
    open_pair(&pair, false);
    end(&pair);
    assert_int_equal(gs_note_encode(&pair.channel.out, 1, "x", 1), 0);
    assert_int_equal(gs_channel_flush(&pair.channel, 0), -EPIPE);
    close_pair(&pair);
}

static void freeing_half_built(void **state)
{
    struct gs_channel channel = {0};
    (void)state;
    gs_channel_free(&channel);
    gs_channel_free(&channel);
    assert_null(channel.stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_byte_at_a_time),
        cmocka_unit_test(a_wrong_magic_fails_at_its_first_wrong_byte),
        cmocka_unit_test(a_client_expects_no_magic),
        cmocka_unit_test(frames_out_of_bounds),
        cmocka_unit_test(the_longest_frame),
        cmocka_unit_test(several_in_one_read),
        cmocka_unit_test(the_end_at_every_byte),
        cmocka_unit_test(a_deadline_that_passes),
        cmocka_unit_test(output_that_does_not_fit),
        cmocka_unit_test(output_to_nobody),
        cmocka_unit_test(freeing_half_built),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
