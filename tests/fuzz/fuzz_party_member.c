/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A hostile hub. The first byte: bit 0, it welcomes the member in good order first, else what follows is all it says.
 * The rest goes to the member as it is.
 */
#include "party.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_there(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", fuzz_party_address() + 5);
    unlink(at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    return fd;
}

static void welcome(int fd)
{
    struct gs_member members[3] = {
        {.host = "a", .address = "x"}, {.host = "b", .address = "y"}, {.host = "c"}};
    struct gs_bytes bytes = {0};
    fuzz_party_magic(&bytes);
    REQUIRE(gs_party_welcome_encode(&bytes, members, 3, 15000) == 0);
    fuzz_party_send(fd, bytes.data + bytes.head, gs_bytes_queued(&bytes));
    gs_bytes_free(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int listener = listen_there();
    fuzz_party_start(1, 3);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    while (poll(&ready, 1, 20000) < 0)
        REQUIRE(errno == EINTR);
    int fd = accept(listener, NULL, NULL);
    REQUIRE(fd >= 0);
    if (data[0] & 1)
        welcome(fd);
    fuzz_party_send(fd, data + 1, size - 1);
    fuzz_party_listen(fd, 5);
    close(fd);
    close(listener); /* it finds nobody when it tries again */
    fuzz_party_stop();
    return 0;
}
