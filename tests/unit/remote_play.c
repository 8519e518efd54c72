/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "remote_play.h"

#include "base/address.h"
#include "remote/runtime.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <gpusys/log.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- a place of its own ---- */

static char place[32];

int play_begin(void **state)
{
    (void)state;
    strcpy(place, "/tmp/gpusys-test-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    signal(SIGPIPE, SIG_IGN);
    return setenv("GPUSYS_RUNTIME_DIR", play_path("run"), 1);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

int play_end(void **state)
{
    (void)state;
    return nftw(place, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *play_path(const char *name)
{
    static char paths[16][512];
    static unsigned next;
    char *path = paths[next++ % COUNT_OF(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", place, name);
    return path;
}

void play_file(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    PLAY_CHECK(fd >= 0);
    for (size_t done = 0; done < size;) {
        ssize_t count = write(fd, (const char *)bytes + done, size - done);
        PLAY_CHECK(count > 0);
        done += (size_t)count;
    }
    close(fd);
}

uint64_t play_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t value = *seed ^ (*seed >> 33);
    return value * 0x9e3779b97f4a7c15u >> 17;
}

void play_noise(void *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)play_random(&seed);
}

bool play_until(bool (*is_so)(void *context), void *context)
{
    int64_t end = gpusys_deadline_after(20 * play_second);
    while (!is_so(context)) {
        if (gpusys_now_ns() > end)
            return false;
        usleep(1000);
    }
    return true;
}

/* ---- the log ---- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[256 * 1024];
static size_t log_length;

static void keep_line(void *context, enum gpusys_log_level level, const char *line)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&log_lock);
    if (log_length < sizeof log_text - 2)
        log_length +=
            (size_t)snprintf(log_text + log_length, sizeof log_text - log_length, "%.1000s\n", line);
    if (log_length > sizeof log_text - 1)
        log_length = sizeof log_text - 1;
    pthread_mutex_unlock(&log_lock);
}

void play_log_begin(void)
{
    pthread_mutex_lock(&log_lock);
    log_length = 0;
    log_text[0] = 0;
    pthread_mutex_unlock(&log_lock);
    gpusys_log_set(keep_line, NULL, GPUSYS_LOG_DEBUG);
}

void play_log_end(void)
{
    gpusys_log_set(NULL, NULL, GPUSYS_LOG_ERROR);
}

bool play_log_has(const char *words)
{
    pthread_mutex_lock(&log_lock);
    bool has = strstr(log_text, words);
    pthread_mutex_unlock(&log_lock);
    return has;
}

static bool log_has(void *words)
{
    return play_log_has(words);
}

bool play_log_comes(const char *words)
{
    if (play_until(log_has, (void *)(uintptr_t)words))
        return true;
    print_error("not in the log: \"%s\"; but:\n%s", words, log_text);
    return false;
}

/* ---- peers and remotes ---- */

struct gpusys_peer *play_peer(const struct gpusys_peer_options *options)
{
    struct gpusys_peer_options known = {.size = sizeof known};
    struct gpusys_peer *peer = NULL;
    struct gpusys_error error = {0};
    if (options)
        known = *options;
    if (!known.listen)
        known.listen = "127.0.0.1:0";
    if (gpusys_peer_open(&peer, &known, &error)) {
        fprintf(stderr, "play_peer: %s\n", error.message);
        abort();
    }
    return peer;
}

struct gpusys_remote *play_remote(const char *address, uint32_t transport, uint32_t connections)
{
    struct gpusys_remote_options options = {
        .size = sizeof options, .require = transport, .tcp_connections = connections};
    struct gpusys_remote *remote = NULL;
    struct gpusys_error error = {0};
    if (gpusys_remote_open(&remote, address, &options, &error)) {
        fprintf(stderr, "play_remote: %s\n", error.message);
        abort();
    }
    return remote;
}

struct gpusys_peer_stats play_stats(const struct gpusys_peer *peer)
{
    struct gpusys_peer_stats stats = {.size = sizeof stats};
    PLAY_CHECK(gpusys_peer_stats(peer, &stats) == 0);
    return stats;
}

uint32_t play_find(struct gpusys_remote *remote, const char *name)
{
    uint32_t region = UINT32_MAX;
    assert_int_equal(gpusys_remote_list(remote, 10 * play_second, NULL, NULL), 0);
    assert_int_equal(gpusys_remote_find(remote, name, &region), 0);
    return region;
}

static void child_main(int ready, int life, const struct gpusys_peer_options *options,
                       void (*fill)(struct gpusys_peer *peer))
{
    char byte;
    char address[160] = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct gpusys_peer *peer = play_peer(options);
    fill(peer);
    PLAY_CHECK(gpusys_peer_start(peer, NULL) == 0);
    snprintf(address, sizeof address, "%s", gpusys_peer_address(peer));
    PLAY_CHECK(write(ready, address, sizeof address) == (ssize_t)sizeof address);
    while (read(life, &byte, 1) < 0 && errno == EINTR)
        ;
    gpusys_peer_close(peer);
    _exit(0);
}

void play_child_start(struct play_child *child, const struct gpusys_peer_options *options,
                      void (*fill)(struct gpusys_peer *peer))
{
    int ready[2], life[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(life, O_CLOEXEC), 0);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        close(ready[0]);
        close(life[1]);
        child_main(ready[1], life[0], options, fill);
    }
    close(ready[1]);
    close(life[0]);
    child->pipe = life[1];
    assert_int_equal(play_receive(ready[0], child->address, sizeof child->address), 0);
    close(ready[0]);
}

void play_child_signal(struct play_child *child, int number)
{
    assert_int_equal(kill(child->pid, number), 0);
    if (number == SIGSTOP) { /* it has stopped when the kernel says so */
        int status;
        assert_int_equal(waitpid(child->pid, &status, WUNTRACED), child->pid);
        assert_true(WIFSTOPPED(status));
    }
}

void play_child_stop(struct play_child *child)
{
    if (child->pid <= 0)
        return;
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    close(child->pipe);
    child->pid = 0;
}

/* ---- by hand ---- */

int play_connect(const char *address)
{
    struct gs_address parsed;
    struct timeval patience = {.tv_sec = 20};
    PLAY_CHECK(gs_address_parse(&parsed, address, NULL) == 0);
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_in in;
    } at = {0};
    socklen_t size = sizeof at.in;
    if (parsed.is_unix) {
        at.local.sun_family = AF_UNIX;
        snprintf(at.local.sun_path, sizeof at.local.sun_path, "%s", parsed.host);
        size = sizeof at.local;
    } else {
        at.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(parsed.port)};
        at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PLAY_CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    PLAY_CHECK(connect(fd, &at.any, size) == 0);
    return fd;
}

void play_send(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t count = send(fd, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return; /* the other side has had enough; what it says tells */
        done += (size_t)count;
    }
}

void play_send_bytes(int fd, struct gs_bytes *bytes)
{
    play_send(fd, bytes->data + bytes->head, gs_bytes_queued(bytes));
    gs_bytes_free(bytes);
}

int play_receive(int fd, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t count = read(fd, (char *)bytes + done, size - done);
        if (count == 0)
            return -ECONNRESET;
        if (count < 0 && errno != EINTR)
            return -errno;
        done += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

const char *play_cookie_path(const char *address)
{
    struct gs_address parsed;
    static char path[GS_PATH_BYTES];
    PLAY_CHECK(gs_address_parse(&parsed, address, NULL) == 0);
    PLAY_CHECK(gs_runtime_path(path, &parsed, "cookie", NULL) == 0);
    return path;
}

void play_cookie(const char *address, uint8_t ret_cookie[GS_COOKIE_BYTES])
{
    int fd = open(play_cookie_path(address), O_RDONLY | O_CLOEXEC);
    PLAY_CHECK(fd >= 0 && read(fd, ret_cookie, GS_COOKIE_BYTES) == GS_COOKIE_BYTES);
    close(fd);
}

void play_raw_hello(int fd, const uint8_t cookie[GS_COOKIE_BYTES / 2])
{
    struct gs_bytes out = {0};
    struct gs_hello hello = {.version = GS_PROTOCOL_VERSION, .name = gs_text_of("by hand")};
    memcpy(hello.cookie, cookie, sizeof hello.cookie);
    memcpy(gs_bytes_grow(&out, GS_MAGIC_BYTES), GS_MAGIC, GS_MAGIC_BYTES);
    PLAY_CHECK(gs_hello_encode(&out, 1, &hello) == 0);
    play_send_bytes(fd, &out);
}

static int receive_frame(int fd, struct gs_frame *frame, void *body, size_t room)
{
    unsigned char head[GS_FRAME_BYTES];
    int error = play_receive(fd, head, sizeof head);
    if (error)
        return error;
    PLAY_CHECK(gs_frame_decode(head, frame) == 0 && frame->body_bytes <= room);
    return play_receive(fd, body, frame->body_bytes);
}

int play_raw_frame(struct play_raw *raw)
{
    return receive_frame(raw->fd, &raw->frame, raw->body, sizeof raw->body);
}

struct play_raw *play_raw_open(const char *address, const char *cookie_path)
{
    struct play_raw *raw = calloc(1, sizeof *raw);
    uint8_t cookie[GS_COOKIE_BYTES] = {0};
    PLAY_CHECK(raw);
    if (!cookie_path)
        play_cookie(address, cookie);
    raw->fd = play_connect(address);
    raw->serial = 1;
    play_raw_hello(raw->fd, cookie);
    PLAY_CHECK(play_raw_frame(raw) == 0 && raw->frame.type == GS_WELCOME);
    PLAY_CHECK(gs_welcome_decode(raw->body, raw->frame.body_bytes, &raw->welcome) == 0);
    return raw;
}

void play_raw_close(struct play_raw *raw)
{
    close(raw->fd);
    free(raw);
}

int play_raw_rail(const struct play_raw *raw, const char *address, uint8_t transport, uint8_t rail,
                  uint32_t generation)
{
    struct gs_bytes out = {0};
    struct gs_attach attach = {.transport = transport, .rail = rail, .generation = generation};
    struct gs_frame frame;
    unsigned char body[2048];
    int fd = play_connect(address);
    memcpy(attach.session, raw->welcome.session, GS_NONCE_BYTES);
    memcpy(gs_bytes_grow(&out, GS_MAGIC_BYTES), GS_MAGIC, GS_MAGIC_BYTES);
    PLAY_CHECK(gs_attach_encode(&out, 1, &attach) == 0);
    play_send_bytes(fd, &out);
    if (receive_frame(fd, &frame, body, sizeof body) == 0 && frame.type == GS_ATTACHED)
        return fd;
    close(fd);
    return -EPROTO;
}

/* ---- a peer by hand ---- */

void play_mock_open(struct play_mock *mock)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    socklen_t size = sizeof at;
    static unsigned number;
    *mock = (struct play_mock){.control = -1};
    mock->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(mock->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(mock->listener, 16), 0);
    assert_int_equal(getsockname(mock->listener, (struct sockaddr *)&at, &size), 0);
    snprintf(mock->address, sizeof mock->address, "127.0.0.1:%u", ntohs(at.sin_port));
    snprintf(mock->shm_path, sizeof mock->shm_path, "%s/mock-%u", place, number++);
    memcpy(local.sun_path, mock->shm_path, sizeof local.sun_path - 1);
    mock->shm_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(mock->shm_listener, (struct sockaddr *)&local, sizeof local), 0);
    assert_int_equal(listen(mock->shm_listener, 16), 0);
    play_noise(mock->cookie, sizeof mock->cookie, ntohs(at.sin_port));
    mkdir(getenv("GPUSYS_RUNTIME_DIR"), 0700);
    play_file(play_cookie_path(mock->address), mock->cookie, sizeof mock->cookie);
    assert_int_equal(chmod(play_cookie_path(mock->address), 0600), 0);
}

void play_mock_close(struct play_mock *mock)
{
    unlink(play_cookie_path(mock->address));
    unlink(mock->shm_path);
    close(mock->listener);
    close(mock->shm_listener);
    if (mock->control >= 0)
        close(mock->control);
}

static int accept_one(int listener)
{
    struct timeval patience = {.tv_sec = 20};
    unsigned char magic[GS_MAGIC_BYTES];
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    PLAY_CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    PLAY_CHECK(play_receive(fd, magic, sizeof magic) == 0 && memcmp(magic, GS_MAGIC, sizeof magic) == 0);
    return fd;
}

int play_mock_frame(struct play_mock *mock, int fd)
{
    return receive_frame(fd, &mock->frame, mock->body, sizeof mock->body);
}

void play_mock_control(struct play_mock *mock, const struct gs_welcome *welcome)
{
    struct gs_bytes out = {0};
    struct gs_welcome message = {.version = 1,
                                 .n_regions = 1,
                                 .slice_max = GS_SLICE_MAX,
                                 .requests_max = 64,
                                 .unix_path = gs_text_of(mock->shm_path)};
    memcpy(message.cookie, mock->cookie + GS_COOKIE_BYTES / 2, sizeof message.cookie);
    mock->control = accept_one(mock->listener);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == 0 && mock->frame.type == GS_HELLO);
    PLAY_CHECK(gs_welcome_encode(&out, mock->frame.serial, welcome ? welcome : &message) == 0);
    play_send_bytes(mock->control, &out);
}

void play_mock_ready(struct play_mock *mock)
{
    struct gs_bytes out = {0};
    PLAY_CHECK(play_mock_frame(mock, mock->control) == 0 && mock->frame.type == GS_READY);
    PLAY_CHECK(gs_empty_encode(&out, GS_GO, mock->frame.serial) == 0);
    play_send_bytes(mock->control, &out);
}

int play_mock_rail(struct play_mock *mock, int listener, struct gs_attach *ret_attach)
{
    static const uint8_t proof[GS_NONCE_BYTES];
    struct gs_bytes out = {0};
    struct gs_attach attach;
    int fd = accept_one(listener);
    PLAY_CHECK(play_mock_frame(mock, fd) == 0 && mock->frame.type == GS_ATTACH);
    PLAY_CHECK(gs_attach_decode(mock->body, mock->frame.body_bytes, &attach) == 0);
    PLAY_CHECK(gs_attached_encode(&out, mock->frame.serial, proof) == 0);
    play_send_bytes(fd, &out);
    if (ret_attach)
        *ret_attach = attach;
    return fd;
}

void play_mock_table(struct play_mock *mock, uint32_t access, uint8_t place_of_it, uint64_t length)
{
    struct gs_bytes out = {0};
    struct gs_region_entry entry = {
        .access = (uint8_t)access, .place = place_of_it, .length = length, .name = gs_text_of("region")};
    PLAY_CHECK(play_mock_frame(mock, mock->control) == 0 && mock->frame.type == GS_LIST);
    PLAY_CHECK(gs_regions_begin(&out, mock->frame.serial, 1, 0) == 0);
    PLAY_CHECK(gs_regions_add(&out, 0, &entry) == 0);
    play_send_bytes(mock->control, &out);
}

struct gpusys_remote *play_mock_remote(struct play_mock *mock, uint32_t transport, uint32_t connections)
{
    struct gpusys_remote *remote = play_remote(mock->address, transport, connections);
    uint64_t count;
    assert_int_equal(gpusys_remote_list(remote, 10 * play_second, &count, NULL), 0);
    assert_int_equal(count, 1);
    return remote;
}
