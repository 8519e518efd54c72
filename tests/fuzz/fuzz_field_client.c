/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A client of a weight or expert peer over tcp, and a peer that says anything. Input: [u8 which], then what it says.
 * Calls end, and no byte lands beside the buffers.
 */
#include "fuzz.h"

#include <errno.h>
#include <gpusys/field.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { RECORD_BYTES = 16, LANDING_BYTES = 40, GUARD_BYTES = 32 };

static const int64_t patience_ns = 20000000000;

static char folder[] = "/tmp/gpusys-fuzz-XXXXXX", path[64], address[80];
static int listener;

/* What the peer says, to one connection. */
struct script {
    const uint8_t *bytes;
    size_t size;
};

static void remove_all(void)
{
    unlink(path);
    rmdir(folder);
}

static void start(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    memcpy(at.sun_path, path, sizeof path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0 &&
            listen(listener, 16) == 0);
    atexit(remove_all);
}

static void *play(void *argument)
{
    const struct script *script = argument;
    char heard[256];
    int fd = accept(listener, NULL, NULL);
    REQUIRE(fd >= 0);
    if (send(fd, script->bytes, script->size, MSG_NOSIGNAL) < 0) {
        /* the client has had enough */
    }
    shutdown(fd, SHUT_WR);
    while (read(fd, heard, sizeof heard) > 0)
        ;
    close(fd);
    return NULL;
}

static void read_some(struct gpusys_remote *remote)
{
    unsigned char buffer[GUARD_BYTES + LANDING_BYTES + GUARD_BYTES];
    memset(buffer, 0xa5, sizeof buffer);
    for (uint64_t offset = 0; offset < 3; offset++) {
        int code = gpusys_remote_read(remote, (uint32_t)offset & 1, 7 * offset, buffer + GUARD_BYTES,
                                      LANDING_BYTES, patience_ns);
        REQUIRE(code <= 0 && code != -ETIMEDOUT);
    }
    for (size_t i = 0; i < GUARD_BYTES; i++)
        REQUIRE(buffer[i] == 0xa5 && buffer[GUARD_BYTES + LANDING_BYTES + i] == 0xa5);
}

static void visit(bool experts)
{
    static const struct gpusys_field_region regions[] = {{.name = "a", .length = 64},
                                                         {.name = "b", .length = 64}};
    struct gpusys_field_options options = {
        .size = sizeof options, .timeout_ns = patience_ns, .require = GPUSYS_TRANSPORT_TCP};
    struct gpusys_field_talk *talk;
    struct gpusys_remote *remote;
    struct gpusys_error error = {0};
    size_t bytes;
    int code = experts ? gpusys_experts_ask(&talk, address, &options, &error)
                       : gpusys_weights_ask(&talk, address, "m", &options, &error);
    if (!code) {
        REQUIRE(gpusys_field_text(talk, &bytes)[bytes] == 0 && bytes > 0);
        code = gpusys_field_connect(&remote, talk, regions, 2, experts ? RECORD_BYTES : 0, &error);
    }
    REQUIRE(code == 0 || (code < 0 && code != -ETIMEDOUT && error.message[0]));
    if (code)
        return;
    read_some(remote);
    gpusys_remote_close(remote);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    pthread_t thread;
    if (!started)
        start();
    started = true;
    if (size < 1 || size > 65536)
        return 0;
    struct script script = {.bytes = data + 1, .size = size - 1};
    REQUIRE(pthread_create(&thread, NULL, play, &script) == 0);
    visit(data[0] & 1);
    REQUIRE(pthread_join(thread, NULL) == 0);
    return 0;
}
