/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Who is let in, and whom a client believes: cookies, the runtime directory, sockets, and which transport is chosen. */
#include "remote_play.h"

#include <fcntl.h>
#include <gpusys/log.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const int64_t patience = 20000000000;

static struct gpusys_peer *started(const struct gpusys_peer_options *options)
{
    struct gpusys_peer *peer = play_peer(options);
    assert_int_equal(gpusys_peer_add_memory(peer, "memory", 4096, 3, NULL, NULL), 0);
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    return peer;
}

static int try(const char *address, const char *cookie_file, uint32_t require, struct gpusys_error *error)
{
    struct gpusys_remote_options options = {
        .size = sizeof options, .cookie_file = cookie_file, .require = require};
    struct gpusys_remote *remote = NULL;
    *error = (struct gpusys_error){0};
    int result = gpusys_remote_open(&remote, address, &options, error);
    assert_int_equal(!!remote, result == 0);
    gpusys_remote_close(remote);
    return result;
}

static unsigned mode_of(const char *path)
{
    struct stat status;
    return stat(path, &status) < 0 ? 0 : status.st_mode & 0777;
}

/* ---- cookies ---- */

static void test_cookies(void **state)
{
    (void)state;
    struct gpusys_error error;
    uint8_t noise[33];
    struct gpusys_peer *peer = started(NULL);
    const char *address = gpusys_peer_address(peer), *own = play_cookie_path(address);
    char cookie_path[512];
    snprintf(cookie_path, sizeof cookie_path, "%s", own);
    assert_int_equal(mode_of(cookie_path), 0600);
    assert_int_equal(try(address, NULL, 0, &error), 0);
    assert_int_equal(try(address, cookie_path, 0, &error), 0);

    play_noise(noise, sizeof noise, 1);
    play_file(play_path("wrong"), noise, 32);
    assert_int_equal(chmod(play_path("wrong"), 0600), 0);
    play_log_begin();
    assert_int_equal(try(address, play_path("wrong"), 0, &error), -EACCES);
    assert_non_null(strstr(error.message, "cookie"));
    assert_true(strlen(error.hint) > 0);
    assert_true(play_log_comes("refused: the cookie"));
    assert_true(play_log_has("127.0.0.1:"));
    play_log_end();
    assert_int_equal(play_stats(peer).refused_total, 1);

    assert_int_equal(try(address, play_path("missing"), 0, &error), -EACCES);
    assert_non_null(strstr(error.cause, "missing"));
    uint8_t cookie[GS_COOKIE_BYTES];
    play_cookie(address, cookie);
    play_file(play_path("open"), cookie, 32); /* right, but everybody can read it */
    assert_int_equal(try(address, play_path("open"), 0, &error), -EACCES);
    assert_non_null(strstr(error.cause, "alone"));
    play_file(play_path("short"), cookie, 31);
    assert_int_equal(chmod(play_path("short"), 0600), 0);
    assert_int_equal(try(address, play_path("short"), 0, &error), -EACCES);
    assert_non_null(strstr(error.cause, "32 bytes"));
    assert_int_equal(symlink(cookie_path, play_path("link")), 0);
    assert_int_equal(try(address, play_path("link"), 0, &error), -EACCES);
    assert_int_equal(play_stats(peer).clients_total, 2);

    gpusys_peer_close(peer);
    assert_int_equal(mode_of(cookie_path), 0);
}

static void test_cookie_elsewhere(void **state)
{
    (void)state;
    struct gpusys_error error;
    char path[512];
    snprintf(path, sizeof path, "%s", play_path("my-cookie"));
    struct gpusys_peer_options options = {.size = sizeof options, .cookie_file = path};
    struct gpusys_peer *peer = started(&options);
    assert_int_equal(mode_of(path), 0600);
    assert_int_equal(try(gpusys_peer_address(peer), NULL, 0, &error), -EACCES);
    assert_int_equal(try(gpusys_peer_address(peer), path, 0, &error), 0);
    gpusys_peer_close(peer);
    assert_int_equal(mode_of(path), 0);
}

/* Half of the cookie is not enough, and neither half alone is the other. */
static void test_halves(void **state)
{
    (void)state;
    uint8_t cookie[GS_COOKIE_BYTES];
    struct gpusys_peer *peer = started(NULL);
    struct play_raw *raw = play_raw_open(gpusys_peer_address(peer), NULL);
    play_cookie(gpusys_peer_address(peer), cookie);
    assert_memory_equal(raw->welcome.cookie, cookie + 16, 16);
    assert_memory_not_equal(cookie, cookie + 16, 16);
    play_raw_close(raw);
    raw = calloc(1, sizeof *raw);
    raw->fd = play_connect(gpusys_peer_address(peer));
    play_raw_hello(raw->fd, cookie + 16); /* what the peer shows lets nobody in */
    assert_int_equal(play_raw_frame(raw), 0);
    assert_int_equal(raw->frame.type, GS_REFUSED);
    assert_int_equal(play_raw_frame(raw), -ECONNRESET);
    play_raw_close(raw);
    gpusys_peer_close(peer);
}

/* ---- impostors ---- */

static void *impostor(void *argument)
{
    struct play_mock *mock = argument;
    struct gs_welcome welcome = {.version = 1, .slice_max = 4096, .requests_max = 4};
    memset(welcome.cookie, 7, sizeof welcome.cookie);
    play_mock_control(mock, &welcome);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == -ECONNRESET); /* the client says no more */
    return NULL;
}

static void test_impostor(void **state)
{
    (void)state;
    struct play_mock mock;
    struct gpusys_error error;
    pthread_t thread;
    play_mock_open(&mock);
    assert_int_equal(pthread_create(&thread, NULL, impostor, &mock), 0);
    assert_int_equal(try(mock.address, NULL, 0, &error), -EACCES);
    assert_non_null(strstr(error.message, "not the server whose cookie"));
    pthread_join(thread, NULL);
    play_mock_close(&mock);
}

/* Named a cookie file, a client does not settle for a server that shows none. */
static void *shows_none(void *argument)
{
    struct play_mock *mock = argument;
    struct gs_welcome welcome = {.version = 1, .slice_max = 4096, .requests_max = 4};
    play_mock_control(mock, &welcome);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == -ECONNRESET);
    return NULL;
}

static void test_no_proof(void **state)
{
    (void)state;
    struct play_mock mock;
    struct gpusys_error error;
    char path[512];
    pthread_t thread;
    play_mock_open(&mock);
    snprintf(path, sizeof path, "%s", play_cookie_path(mock.address));
    assert_int_equal(pthread_create(&thread, NULL, shows_none, &mock), 0);
    assert_int_equal(try(mock.address, path, 0, &error), -EACCES);
    pthread_join(thread, NULL);
    play_mock_close(&mock);
}

/* A rail that leads to another server than the session's is not used. */
static void *elsewhere(void *argument)
{
    struct play_mock *mock = argument;
    struct gs_welcome welcome = {.version = 1, .slice_max = 4096, .requests_max = 4};
    memcpy(welcome.cookie, mock->cookie + 16, 16);
    memset(welcome.proof, 9, sizeof welcome.proof); /* play_mock_rail shows zeros */
    play_mock_control(mock, &welcome);
    int rail = play_mock_rail(mock, mock->listener, NULL);
    PLAY_CHECK(play_mock_frame(mock, mock->control) == -ECONNRESET);
    close(rail);
    return NULL;
}

static void test_rail_elsewhere(void **state)
{
    (void)state;
    struct play_mock mock;
    struct gpusys_error error;
    pthread_t thread;
    play_mock_open(&mock);
    assert_int_equal(pthread_create(&thread, NULL, elsewhere, &mock), 0);
    assert_int_equal(try(mock.address, NULL, GPUSYS_TRANSPORT_TCP, &error), -EACCES);
    assert_non_null(strstr(error.message, "another server"));
    pthread_join(thread, NULL);
    play_mock_close(&mock);
}

/* Rails need a session's name, and the right kind of socket. */
static void test_rails_need_a_session(void **state)
{
    (void)state;
    struct gpusys_peer *peer = started(NULL);
    const char *address = gpusys_peer_address(peer);
    struct play_raw *raw = play_raw_open(address, NULL);
    char unix_address[600];
    snprintf(unix_address, sizeof unix_address, "unix:%.*s", raw->welcome.unix_path.length,
             raw->welcome.unix_path.at);
    assert_true(play_raw_rail(raw, address, GPUSYS_TRANSPORT_SHM, 0, 1) < 0);
    assert_true(play_raw_rail(raw, address, GPUSYS_TRANSPORT_VERBS, 0, 1) < 0);
    assert_true(play_raw_rail(raw, address, 0, 0, 1) < 0);
    assert_true(play_raw_rail(raw, address, GPUSYS_TRANSPORT_TCP, 8, 1) < 0);
    int fd = play_raw_rail(raw, unix_address, GPUSYS_TRANSPORT_SHM, 0, 1);
    assert_true(fd >= 0);
    close(fd);
    raw->welcome.session[3] ^= 1;
    assert_true(play_raw_rail(raw, address, GPUSYS_TRANSPORT_TCP, 1, 1) < 0);
    assert_true(play_raw_rail(raw, unix_address, GPUSYS_TRANSPORT_SHM, 2, 1) < 0);
    assert_int_equal(play_stats(peer).clients, 1);
    play_raw_close(raw);
    gpusys_peer_close(peer);
}

/* ---- where it listens ---- */

static void test_beyond_loopback(void **state)
{
    (void)state;
    struct gpusys_peer *peer = NULL;
    struct gpusys_error error = {0};
    struct gpusys_peer_options options = {.size = sizeof options, .listen = "0.0.0.0:0"};
    assert_int_equal(gpusys_peer_open(&peer, &options, &error), -EACCES);
    assert_null(peer);
    assert_non_null(strstr(error.message, "other hosts"));
    assert_non_null(strstr(error.hint, "--insecure"));
    options.listen = "[::]:0";
    int result = gpusys_peer_open(&peer, &options, &error);
    assert_true(result == -EACCES || result == -EAFNOSUPPORT || result == -EADDRNOTAVAIL);
    options = (struct gpusys_peer_options){
        .size = sizeof options, .listen = "0.0.0.0:0", .flags = GPUSYS_PEER_INSECURE};
    peer = started(&options);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1%s", strrchr(gpusys_peer_address(peer), ':'));
    assert_int_equal(try(address, NULL, GPUSYS_TRANSPORT_TCP, &error), 0); /* no cookie, no question */
    gpusys_peer_close(peer);
}

static void test_peer_options(void **state)
{
    (void)state;
    struct gpusys_peer *peer = NULL;
    struct gpusys_error error = {0};
    struct {
        struct gpusys_peer_options known;
        uint64_t more;
    } big = {.known = {.size = sizeof big, .listen = "127.0.0.1:0"}, .more = 1};
    assert_int_equal(gpusys_peer_open(&peer, &big.known, &error), -E2BIG);
    big.more = 0;
    big.known.flags = 4;
    assert_int_equal(gpusys_peer_open(&peer, &big.known, &error), -EINVAL);
    big.known.flags = 0;
    assert_int_equal(gpusys_peer_open(&peer, &big.known, &error), 0);
    struct gpusys_peer_options same = {.size = sizeof same, .listen = gpusys_peer_address(peer)};
    struct gpusys_peer *second = NULL;
    uint8_t before[GS_COOKIE_BYTES], after[GS_COOKIE_BYTES];
    play_cookie(gpusys_peer_address(peer), before);
    assert_int_equal(gpusys_peer_open(&second, &same, &error), -EADDRINUSE);
    play_cookie(gpusys_peer_address(peer), after); /* and the first one's cookie is what it was */
    assert_memory_equal(before, after, sizeof before);
    gpusys_peer_close(peer);
}

/* ---- the runtime directory ---- */

static void test_runtime_directory(void **state)
{
    (void)state;
    struct gpusys_peer *peer = NULL;
    struct gpusys_error error = {0};
    char old[512], wide[512];
    struct gpusys_peer_options options = {.size = sizeof options, .listen = "127.0.0.1:0"};
    struct gpusys_peer *before = started(NULL);
    snprintf(old, sizeof old, "%s", getenv("GPUSYS_RUNTIME_DIR"));
    snprintf(wide, sizeof wide, "%s", play_path("wide"));
    assert_int_equal(mode_of(old), 0700);
    assert_int_equal(mkdir(wide, 0755), 0);
    setenv("GPUSYS_RUNTIME_DIR", wide, 1);
    assert_int_equal(gpusys_peer_open(&peer, &options, &error), -EACCES);
    assert_non_null(strstr(error.message, "mode 755"));
    assert_non_null(strstr(error.hint, "chmod 700"));
    assert_int_equal(try(gpusys_peer_address(before), NULL, 0, &error), -EACCES);
    assert_non_null(strstr(error.cause, "mode 755"));
    assert_int_equal(chmod(wide, 0700), 0);
    assert_int_equal(gpusys_peer_open(&peer, &options, &error), 0);
    gpusys_peer_close(peer);
    assert_int_equal(symlink(wide, play_path("link-to-wide")), 0);
    setenv("GPUSYS_RUNTIME_DIR", play_path("link-to-wide"), 1);
    assert_int_equal(gpusys_peer_open(&peer, &options, &error), -EACCES);
    setenv("GPUSYS_RUNTIME_DIR", play_path("no/such/parent"), 1);
    assert_int_equal(gpusys_peer_open(&peer, &options, &error), -ENOENT);
    setenv("GPUSYS_RUNTIME_DIR", old, 1);
    gpusys_peer_close(before);
}

/* Another user of this host. */
static void test_another_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    struct gpusys_peer *peer = play_peer(NULL);
    const char *cookie_path = play_cookie_path(gpusys_peer_address(peer));
    pid_t pid = fork();
    if (pid == 0) { /* before there are threads; the peer's listeners keep the connections waiting */
        struct gpusys_error error;
        PLAY_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        PLAY_CHECK(try(gpusys_peer_address(peer), NULL, 0, &error) == -EACCES);
        PLAY_CHECK(strstr(error.cause, "no cookie"));
        PLAY_CHECK(try(gpusys_peer_address(peer), cookie_path, 0, &error) == -EACCES);
        _exit(0);
    }
    int status;
    assert_int_equal(gpusys_peer_start(peer, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(play_stats(peer).clients_total, 0);
    gpusys_peer_close(peer);
}

/* ---- everything over a Unix socket ---- */

static void test_unix_address(void **state)
{
    (void)state;
    char listen[600], path[512];
    snprintf(path, sizeof path, "%s", play_path("serve.sock"));
    snprintf(listen, sizeof listen, "unix:%s", path);
    struct gpusys_peer_options options = {.size = sizeof options, .listen = listen};
    struct gpusys_peer *peer = started(&options);
    assert_string_equal(gpusys_peer_address(peer), listen);
    assert_int_equal(mode_of(path), 0600);
    for (size_t i = 0; i < COUNT_OF(both_transports); i++) {
        uint64_t value = 77 + i, seen = 0;
        struct gpusys_remote *remote = play_remote(listen, both_transports[i], 2);
        uint32_t region = play_find(remote, "memory");
        assert_int_equal(gpusys_remote_write(remote, region, 8, &value, 8, patience), 0);
        assert_int_equal(gpusys_remote_read(remote, region, 8, &seen, 8, patience), 0);
        assert_int_equal(seen, value);
        gpusys_remote_close(remote);
    }
    gpusys_peer_close(peer);
    assert_int_equal(mode_of(path), 0);
    assert_int_equal(mode_of(play_cookie_path(listen)), 0);
}

static void test_socket_beside(void **state)
{
    (void)state;
    struct gpusys_peer *peer = started(NULL);
    struct play_raw *raw = play_raw_open(gpusys_peer_address(peer), NULL);
    char path[600];
    snprintf(path, sizeof path, "%.*s", raw->welcome.unix_path.length, raw->welcome.unix_path.at);
    assert_int_equal(mode_of(path), 0600);
    play_raw_close(raw);
    gpusys_peer_close(peer);
    assert_int_equal(mode_of(path), 0);
}

/* ---- which transport, and why ---- */

static struct gpusys_remote_info info_of(const char *address, uint32_t require)
{
    struct gpusys_remote_info info = {.size = sizeof info};
    struct gpusys_remote *remote = play_remote(address, require, 0);
    assert_int_equal(gpusys_remote_info(remote, &info), 0);
    gpusys_remote_close(remote);
    return info;
}

static void test_require(void **state)
{
    (void)state;
    struct gpusys_error error;
    struct gpusys_peer *peer = started(NULL);
    const char *address = gpusys_peer_address(peer);
    assert_int_equal(try(address, NULL, GPUSYS_TRANSPORT_VERBS, &error), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "verbs"));
    struct gpusys_remote_info info = info_of(address, GPUSYS_TRANSPORT_ANY);
    assert_int_equal(info.transport, GPUSYS_TRANSPORT_SHM);
    assert_non_null(strstr(info.reason, "same host"));
    info = info_of(address, GPUSYS_TRANSPORT_TCP);
    assert_int_equal(info.transport, GPUSYS_TRANSPORT_TCP);
    assert_non_null(strstr(info.reason, "required"));
    assert_non_null(strstr(info.reason, "reno"));
    struct play_raw *raw = play_raw_open(address, NULL); /* its socket goes: shm is not to be had any more */
    char path[600];
    snprintf(path, sizeof path, "%.*s", raw->welcome.unix_path.length, raw->welcome.unix_path.at);
    play_raw_close(raw);
    assert_int_equal(unlink(path), 0);
    info = info_of(address, GPUSYS_TRANSPORT_ANY);
    assert_int_equal(info.transport, GPUSYS_TRANSPORT_TCP);
    assert_non_null(strstr(info.reason, "no shm"));
    assert_non_null(strstr(info.reason, "No such file"));
    assert_true(try(address, NULL, GPUSYS_TRANSPORT_SHM, &error) < 0);
    assert_non_null(strstr(error.message, "shm was required"));
    assert_non_null(strstr(error.cause, "No such file"));
    gpusys_peer_close(peer);
}

static void test_transport_names(void **state)
{
    (void)state;
    static const char *const names[] = {"any", "shm", "tcp", "verbs"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(gpusys_transport_parse(names[i]), i);
        assert_string_equal(gpusys_transport_name((enum gpusys_transport)i), names[i]);
    }
    assert_int_equal(gpusys_transport_parse("TCP"), -EINVAL);
    assert_int_equal(gpusys_transport_parse(""), -EINVAL);
    assert_int_equal(gpusys_transport_parse(NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_user),      cmocka_unit_test(test_cookies),
        cmocka_unit_test(test_cookie_elsewhere),  cmocka_unit_test(test_halves),
        cmocka_unit_test(test_impostor),          cmocka_unit_test(test_no_proof),
        cmocka_unit_test(test_rail_elsewhere),    cmocka_unit_test(test_rails_need_a_session),
        cmocka_unit_test(test_beyond_loopback),   cmocka_unit_test(test_peer_options),
        cmocka_unit_test(test_runtime_directory), cmocka_unit_test(test_unix_address),
        cmocka_unit_test(test_socket_beside),     cmocka_unit_test(test_require),
        cmocka_unit_test(test_transport_names),
    };
    return cmocka_run_group_tests(tests, play_begin, play_end);
}
