/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A weight and an expert server against a client that says anything. Input: [u8 which], then what it says. The server
 * goes on, lets go of the client, and sends no more than was asked for.
 */
#include "fuzz.h"

#include <gpusys/field.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arpa/inet.h>

enum { FILE_BYTES = 70000, RECORD_BYTES = 700, PATIENCE_MS = 20000 };

static struct gpusys_field *servers[2];
static char folder[] = "/tmp/gpusys-fuzz-XXXXXX", path[64];

static void remove_all(void)
{
    gpusys_field_close(servers[0]);
    gpusys_field_close(servers[1]);
    unlink(path);
    rmdir(folder);
}

static void start(void)
{
    static char bytes[FILE_BYTES];
    const char *paths[] = {path};
    struct gpusys_field_server_options options = {.size = sizeof options, .listen = "127.0.0.1:0"};
    setenv("GPUSYS_LIBIBVERBS", "/nonexistent/libibverbs.so.1", 1);
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *file = fopen(path, "we");
    REQUIRE(file && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fclose(file) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        options.kind = i ? GPUSYS_FIELD_EXPERTS : GPUSYS_FIELD_WEIGHTS;
        REQUIRE(gpusys_field_open(&servers[i], &options, NULL) == 0);
    }
    REQUIRE(gpusys_field_add_model(servers[0], "/m", "{}", 2, paths, 1, NULL) == 0);
    REQUIRE(gpusys_field_set_layers(servers[1], "{}", 2, RECORD_BYTES, paths, 1, NULL) == 0);
    REQUIRE(gpusys_field_start(servers[0], NULL) == 0 && gpusys_field_start(servers[1], NULL) == 0);
    atexit(remove_all);
}

static int connect_to(const struct gpusys_field *server)
{
    struct linger at_once = {.l_onoff = 1};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *colon = strrchr(gpusys_field_address(server), ':');
    at.sin_port = htons((uint16_t)atoi(colon + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); /* ports are not to be kept waiting */
    return fd;
}

/* All that it says, until it closes. */
static size_t hear(int fd)
{
    static char bytes[65536];
    size_t total = 0;
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        REQUIRE(poll(&entry, 1, PATIENCE_MS) == 1);
        ssize_t count = read(fd, bytes, sizeof bytes);
        if (count <= 0)
            return total;
        total += (size_t)count;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    if (!started)
        start();
    started = true;
    if (size < 1 || size > 4096)
        return 0;
    bool experts = data[0] & 1;
    int fd = connect_to(servers[experts]);
    if (send(fd, data + 1, size - 1, MSG_NOSIGNAL) < 0) {
        /* it has had enough already */
    }
    shutdown(fd, SHUT_WR);
    size_t heard = hear(fd);
    close(fd);
    size_t request = experts ? 8 : 16, reply = experts ? RECORD_BYTES : FILE_BYTES;
    REQUIRE(heard <= 6 + (size / request + 1) * (1 + reply));
    return 0;
}
