/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A hostile member. The first byte: bit 0, it says HELLO first, else what follows is all it says; bit 1, of three ranks,
 * so that the party is never complete. The rest goes to the hub as it is.
 */
#include "party.h"

#include <gpusys/deadline.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int visit(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int64_t limit_ns = gpusys_deadline_after(INT64_C(30000000)); /* behind that it has given up waiting */
    snprintf(at.sun_path, sizeof at.sun_path, "%s", fuzz_party_address() + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    while (connect(fd, (struct sockaddr *)&at, sizeof at) < 0) {
        if (gpusys_now_ns() > limit_ns)
            break;
        sched_yield();
    }
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gs_bytes hello = {0};
    if (size == 0)
        return 0;
    uint32_t n_ranks = data[0] & 2 ? 3 : 2;
    fuzz_party_start(0, n_ranks);
    int fd = visit();
    if (data[0] & 1) {
        fuzz_party_hello(&hello, n_ranks);
        fuzz_party_send(fd, hello.data + hello.head, gs_bytes_queued(&hello));
        gs_bytes_free(&hello);
        if (n_ranks == 2) {
            char head[GS_PARTY_MAGIC_BYTES +
                      GS_PARTY_FRAME_BYTES]; /* of the welcome: what is said before is refused */
            recv(fd, head, sizeof head, MSG_WAITALL);
        }
    }
    fuzz_party_send(fd, data + 1, size - 1);
    fuzz_party_listen(fd, 5);
    close(fd);
    fuzz_party_stop();
    return 0;
}
