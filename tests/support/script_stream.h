/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A scripted peer for tests of protocols: an in-memory stream that plays a list of steps.
 *
 *     static const struct script_step steps[] = {SCRIPT_EXPECT(hello, 8), SCRIPT_GIVE(reply, 16)};
 *     struct script *script = script_new(steps, 2);
 *     struct gpusys_stream *stream = script_open(script);
 *     ... run the client on `stream` ...
 *     assert_null(script_fault(script));
 *     assert_true(script_done(script));
 *     assert_string_equal(script_trace(script), "w8 r16");
 *     gpusys_stream_close(stream);
 *     script_free(script);
 *
 * Reads take the first step that is not used up. One that asks for bytes (EXPECT, ANY) makes them wait as a
 * real peer would that has not heard enough: -ETIMEDOUT, or -EAGAIN where the deadline is past, or, where
 * there is no deadline, -EDEADLK and a fault. Writes go to the next EXPECT, ANY or WRITE_ step, over steps of
 * reading that the client has not come to; how many bytes went so is counted by script_early_writes.
 */
#ifndef TESTS_SCRIPT_STREAM_H
#define TESTS_SCRIPT_STREAM_H

#include <gpusys/stream.h>
#include <stdbool.h>
#include <stddef.h>

enum script_kind {
    SCRIPT_STEP_EXPECT,
    SCRIPT_STEP_ANY,
    SCRIPT_STEP_GIVE,
    SCRIPT_STEP_DRIP,
    SCRIPT_STEP_AGAIN,
    SCRIPT_STEP_STALL,
    SCRIPT_STEP_END,
    SCRIPT_STEP_FAIL,
    SCRIPT_STEP_WRITE_AGAIN,
    SCRIPT_STEP_WRITE_STALL,
    SCRIPT_STEP_WRITE_FAIL,
};

struct script_step {
    enum script_kind kind;
    const void *bytes; /* borrowed: must outlive the script */
    size_t size;
    int error;
};

#define SCRIPT_STEP(kind_, bytes_, size_, error_)                                                            \
    {                                                                                                        \
        .kind = SCRIPT_STEP_##kind_, .bytes = (bytes_), .size = (size_), .error = (error_)                   \
    }

/* The client must write exactly these bytes; anything of this size; in either case in any pieces. */
#define SCRIPT_EXPECT(bytes, size) SCRIPT_STEP(EXPECT, bytes, size, 0)
#define SCRIPT_ANY(size)           SCRIPT_STEP(ANY, NULL, size, 0)

/* The client reads these bytes: as many per read as it asks for; one per read. */
#define SCRIPT_GIVE(bytes, size) SCRIPT_STEP(GIVE, bytes, size, 0)
#define SCRIPT_DRIP(bytes, size) SCRIPT_STEP(DRIP, bytes, size, 0)

/* One read fails with -EAGAIN, then the script goes on; every read from here on waits in vain. */
#define SCRIPT_AGAIN() SCRIPT_STEP(AGAIN, NULL, 1, 0)
#define SCRIPT_STALL() SCRIPT_STEP(STALL, NULL, 0, 0)

/* From here on every read: is at the end of the stream; fails with this negative errno. */
#define SCRIPT_END()       SCRIPT_STEP(END, NULL, 0, 0)
#define SCRIPT_FAIL(error) SCRIPT_STEP(FAIL, NULL, 0, error)

/* The same for writes that come to this step. */
#define SCRIPT_WRITE_AGAIN()     SCRIPT_STEP(WRITE_AGAIN, NULL, 1, 0)
#define SCRIPT_WRITE_STALL()     SCRIPT_STEP(WRITE_STALL, NULL, 0, 0)
#define SCRIPT_WRITE_FAIL(error) SCRIPT_STEP(WRITE_FAIL, NULL, 0, error)

struct script;

/* The steps are copied. Out of memory ends the test program, here and in script_open. */
struct script *script_new(const struct script_step *steps, size_t n_steps);
void script_free(struct script *script);

/* The client's stream. Close it before the script is freed. */
struct gpusys_stream *script_open(struct script *script);

/* Take at most this many bytes per write call; 0, as at the start: all of them. */
void script_limit_writes(struct script *script, size_t limit);

/* What went wrong first (a byte that differs, bytes nobody expects, a write of none, a wait for ever), or
 * NULL. */
const char *script_fault(const struct script *script);

/* Is every EXPECT, ANY, GIVE, DRIP and AGAIN used up? */
bool script_done(const struct script *script);

/* Did the client close the stream? */
bool script_closed(const struct script *script);

/* Everything that was written, also what faulted. Valid until the next write. */
size_t script_written(const struct script *script, const unsigned char **ret_bytes);

/* Bytes written while the script still held bytes to read before them. */
size_t script_early_writes(const struct script *script);

/* Reads attempted while the script still waited for bytes. */
size_t script_early_reads(const struct script *script);

/* Bytes in the order they passed, neighbours of one direction added up: "w24 r40 w8". */
const char *script_trace(const struct script *script);

#endif
