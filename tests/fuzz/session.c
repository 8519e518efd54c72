/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "session.h"

#include "remote/serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gpusys/deadline.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_S = 20, MOST_FDS = 200 };

uint32_t fuzz_peer_flags = GPUSYS_PEER_NO_VERBS;

static struct gpusys_peer *peer;
static void *writable;
static char folder[64];
static struct sockaddr_un address = {.sun_family = AF_UNIX};

/* ---- the peer ---- */

static void write_pattern(const char *path)
{
    FILE *file = fopen(path, "wb");
    REQUIRE(file);
    for (unsigned i = 0; i < FUZZ_FILE_BYTES; i++)
        putc(fuzz_pattern(i), file);
    REQUIRE(fclose(file) == 0);
}

static void remove_folder(void)
{
    static const char *const names[] = {"/file", "/empty", "/tree/folder", "/tree", ""};
    char path[128];
    gpusys_peer_close(peer);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s", folder, names[i]);
        remove(path);
    }
}

static void add_files(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    write_pattern(path);
    REQUIRE(gpusys_peer_add_file(peer, "file", path, 0, 0, NULL) == 0);
    snprintf(path, sizeof path, "%s/empty", folder);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && close(fd) == 0);
    REQUIRE(gpusys_peer_add_file(peer, "empty", path, 0, 0, NULL) == 0);
    snprintf(path, sizeof path, "%s/tree", folder);
    REQUIRE(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/tree/folder", folder);
    REQUIRE(mkdir(path, 0700) == 0);
    REQUIRE(gpusys_peer_add_path(peer, path, 0, NULL, NULL) == 0);
    struct gs_region *last = gs_table_at(&peer->table, FUZZ_FOLDER);
    REQUIRE(last && last->kind == GPUSYS_REGION_DIRECTORY && !gs_table_at(&peer->table, FUZZ_REGIONS));
}

static void start_peer(void)
{
    const char *temporary = getenv("TMPDIR");
    char listen[160];
    void *memory;
    snprintf(folder, sizeof folder, "%s/gpusys-fuzz-XXXXXX",
             temporary && strlen(temporary) < 32 ? temporary : "/tmp");
    REQUIRE(mkdtemp(folder));
    snprintf(listen, sizeof listen, "unix:%s/peer", folder);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/peer", folder);
    struct gpusys_peer_options options = {.size = sizeof options,
                                          .listen = listen,
                                          .flags = fuzz_peer_flags,
                                          .threads = 2,
                                          .max_clients = 8,
                                          .arena_bytes = FUZZ_ARENA_BYTES};
    REQUIRE(gpusys_peer_open(&peer, &options, NULL) == 0);
    atexit(remove_folder);
    for (unsigned i = 0; i < GS_COOKIE_BYTES; i++)
        peer->cookie[i] = (uint8_t)(0x40 + i);
    REQUIRE(gpusys_peer_add_memory(peer, "memory", FUZZ_MEMORY_BYTES, GPUSYS_ACCESS_READ, &memory, NULL) ==
            0);
    for (unsigned i = 0; i < FUZZ_MEMORY_BYTES; i++)
        ((uint8_t *)memory)[i] = fuzz_pattern(i);
    REQUIRE(gpusys_peer_add_memory(peer, "writable", FUZZ_WRITABLE_BYTES,
                                   GPUSYS_ACCESS_READ | GPUSYS_ACCESS_WRITE, &writable, NULL) == 0);
    add_files();
    REQUIRE(gpusys_peer_start(peer, NULL) == 0);
}

unsigned char *fuzz_writable(void)
{
    return writable;
}

/* ---- clients ---- */

void fuzz_client_open(struct fuzz_client *client)
{
    if (!peer)
        start_peer();
    *client = (struct fuzz_client){.serial = 1};
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(client->fd >= 0);
    REQUIRE(connect(client->fd, (struct sockaddr *)&address, sizeof address) == 0);
}

static bool is_idle(void)
{
    return atomic_load(&peer->clients) == 0 && atomic_load(&peer->openings) == 0 &&
           atomic_load(&peer->arenas) == 0 && atomic_load(&peer->arena_bytes) == 0 &&
           atomic_load(&peer->ports.keyed_bytes) == 0;
}

/* Connections are freed a moment after they are counted out: only what stays for good adds up. */
static void check_fds(void)
{
    static unsigned closed;
    unsigned count = 0;
    if (++closed % 1024)
        return;
    DIR *fds = opendir("/proc/self/fd");
    while (fds && readdir(fds))
        count++;
    closedir(fds);
    REQUIRE(count < MOST_FDS);
}

void fuzz_client_close(struct fuzz_client *client)
{
    int64_t limit = gpusys_deadline_after((int64_t)PATIENCE_S * 1000000000);
    close(client->fd);
    gs_bytes_free(&client->out);
    gs_bytes_free(&client->in);
    while (!is_idle()) {
        REQUIRE(gpusys_now_ns() < limit); /* "the peer has not let go of the client" */
        sched_yield();
    }
    check_fds();
}

bool fuzz_client_send(struct fuzz_client *client)
{
    while (gs_bytes_queued(&client->out)) {
        ssize_t sent = send(client->fd, client->out.data + client->out.head, gs_bytes_queued(&client->out),
                            MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        gs_bytes_drop(&client->out, (size_t)sent);
    }
    return true;
}

/* More bytes into `in`, until it holds `size`. */
static bool gather(struct fuzz_client *client, size_t size)
{
    while (gs_bytes_queued(&client->in) < size) {
        unsigned char some[4096];
        struct pollfd ready = {.fd = client->fd, .events = POLLIN};
        REQUIRE(poll(&ready, 1, PATIENCE_S * 1000) != 0); /* "the peer neither answers nor closes" */
        ssize_t count = recv(client->fd, some, sizeof some, MSG_DONTWAIT);
        if (count < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (count <= 0)
            return false;
        unsigned char *room = gs_bytes_grow(&client->in, (size_t)count);
        REQUIRE(room);
        memcpy(room, some, (size_t)count);
    }
    return true;
}

const unsigned char *fuzz_client_receive(struct fuzz_client *client, size_t size)
{
    if (!gather(client, size))
        return NULL;
    const unsigned char *at = client->in.data + client->in.head;
    client->in.head += size; /* not dropped, which could move what is given out */
    return at;
}

static void check_message(const struct gs_frame *frame, const unsigned char *body)
{
    union {
        struct gs_welcome welcome;
        struct gs_refused refused;
        struct gs_regions regions;
        struct gs_sums sums;
        struct gs_granted granted;
        struct gs_mapped mapped;
        struct gs_railed railed;
        struct gs_keyed keyed;
        uint8_t proof[GS_NONCE_BYTES];
    } message;
    size_t size = frame->body_bytes;
    switch (frame->type) {
    case GS_WELCOME: REQUIRE(gs_welcome_decode(body, size, &message.welcome) == 0); break;
    case GS_REFUSED: REQUIRE(gs_refused_decode(body, size, &message.refused) == 0); break;
    case GS_REGIONS: REQUIRE(gs_regions_decode(body, size, &message.regions) == 0); break;
    case GS_SUMS: REQUIRE(gs_sums_decode(body, size, &message.sums) == 0); break;
    case GS_GRANTED: REQUIRE(gs_granted_decode(body, size, &message.granted) == 0); break;
    case GS_ATTACHED: REQUIRE(gs_attached_decode(body, size, message.proof) == 0); break;
    case GS_MAPPED: REQUIRE(gs_mapped_decode(body, size, &message.mapped) == 0); break;
    case GS_RAILED: REQUIRE(gs_railed_decode(body, size, &message.railed) == 0); break;
    case GS_KEYED: REQUIRE(gs_keyed_decode(body, size, &message.keyed) == 0); break;
    default:
        REQUIRE(frame->type == GS_GO || frame->type == GS_FREED || frame->type == GS_FENCED ||
                frame->type == GS_NOTED || frame->type == GS_PONG);
        REQUIRE(size == 0);
    }
}

const unsigned char *fuzz_client_message(struct fuzz_client *client, struct gs_frame *ret_frame)
{
    const unsigned char *head = fuzz_client_receive(client, GS_FRAME_BYTES);
    if (!head)
        return NULL;
    REQUIRE(gs_frame_decode(head, ret_frame) == 0);
    const unsigned char *body = fuzz_client_receive(client, ret_frame->body_bytes);
    if (body)
        check_message(ret_frame, body);
    return body;
}

static void put_magic(struct fuzz_client *client)
{
    unsigned char *magic = gs_bytes_grow(&client->out, GS_MAGIC_BYTES);
    REQUIRE(magic);
    memcpy(magic, GS_MAGIC, GS_MAGIC_BYTES);
}

void fuzz_client_hello(struct fuzz_client *client)
{
    struct gs_hello hello = {.version = GS_PROTOCOL_VERSION, .name = gs_text_of("fuzz")};
    struct gs_frame frame;
    memcpy(hello.cookie, peer->cookie, sizeof hello.cookie);
    put_magic(client);
    REQUIRE(gs_hello_encode(&client->out, client->serial, &hello) == 0 && fuzz_client_send(client));
    const unsigned char *body = fuzz_client_message(client, &frame);
    REQUIRE(body && frame.type == GS_WELCOME && frame.serial == client->serial++);
    REQUIRE(gs_welcome_decode(body, frame.body_bytes, &client->welcome) == 0);
    client->welcome.unix_path = (struct gs_text){0}; /* it points into what is gone with the next message */
}

void fuzz_client_attach(struct fuzz_client *rail, const struct fuzz_client *control, uint8_t transport)
{
    struct gs_attach attach = {.transport = transport, .rail = 3, .generation = 1};
    struct gs_frame frame;
    memcpy(attach.session, control->welcome.session, GS_NONCE_BYTES);
    fuzz_client_open(rail);
    put_magic(rail);
    REQUIRE(gs_attach_encode(&rail->out, rail->serial, &attach) == 0 && fuzz_client_send(rail));
    const unsigned char *body = fuzz_client_message(rail, &frame);
    REQUIRE(body && frame.type == GS_ATTACHED && frame.serial == rail->serial++);
    REQUIRE(memcmp(body, control->welcome.proof, GS_NONCE_BYTES) == 0);
}
