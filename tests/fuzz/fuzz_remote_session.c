/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real client against a hostile peer that opens properly: [u8 what][u16 n][n bytes of the rail's script], and the rest is
 * the control stream's script behind a valid WELCOME (hostile.h). Bit 0 of `what`: shm, and the bits above it say what
 * the descriptor beside MAPPED is; else tcp.
 */
#include "hostile.h"

#include "wire/message.h"

#include <fcntl.h>
#include <gpusys/remote.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FDS = 6, MOST = 65536 };

static int make_memory(uint64_t bytes, int seals)
{
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static int descriptor(unsigned what)
{
    static int fds[FDS];
    if (!fds[1]) {
        int ends[2];
        REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
        fds[0] = -1;
        fds[1] = make_memory(65536, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        fds[2] = make_memory(65536, F_SEAL_GROW);
        fds[3] = make_memory(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE);
        fds[4] = ends[0];
        fds[5] = make_memory(0, F_SEAL_SHRINK | F_SEAL_SEAL);
    }
    return fds[what % FDS];
}

/* WELCOME as the first record of the script. */
static size_t put_welcome(unsigned char *to)
{
    struct gs_welcome welcome = {.version = 1,
                                 .n_regions = 2,
                                 .arena_bytes = 1 << 20,
                                 .slice_max = GS_SLICE_MAX,
                                 .requests_max = 8,
                                 .unix_path = gs_text_of(hostile_address() + 5)};
    struct gs_bytes out = {0};
    for (unsigned i = 0; i < sizeof welcome.cookie; i++)
        welcome.cookie[i] = (uint8_t)(0x50 + i);
    memcpy(welcome.session, hostile_session, GS_NONCE_BYTES);
    memcpy(welcome.proof, hostile_proof, GS_NONCE_BYTES);
    REQUIRE(gs_welcome_encode(&out, 1, &welcome) == 0);
    size_t size = gs_bytes_queued(&out);
    REQUIRE(size <= UINT8_MAX);
    to[0] = 0xf0;
    to[1] = HOSTILE_WAIT;
    to[2] = (unsigned char)size;
    memcpy(to + HOSTILE_RECORD_BYTES, out.data, size);
    gs_bytes_free(&out);
    return HOSTILE_RECORD_BYTES + size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char control[MOST];
    if (size < 3)
        return 0;
    size_t rail_size = data[1] | (size_t)data[2] << 8, left = size - 3;
    if (rail_size > left)
        rail_size = left;
    size_t control_size = put_welcome(control);
    left -= rail_size;
    if (left > sizeof control - control_size)
        left = sizeof control - control_size;
    memcpy(control + control_size, data + 3 + rail_size, left);
    struct hostile script = {.control = control,
                             .control_size = control_size + left,
                             .rail = data + 3,
                             .rail_size = rail_size,
                             .fd = data[0] & 1 ? descriptor(data[0] >> 1) : -1};
    hostile_start(&script);
    hostile_visit(data[0] & 1 ? GPUSYS_TRANSPORT_SHM : GPUSYS_TRANSPORT_TCP);
    hostile_stop();
    return 0;
}
