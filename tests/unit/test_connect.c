/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Addresses connected to and listened at. The resolver is a stand-in, linked by --wrap. */
#include "base/address.h"
#include <gpusys/deadline.h>
#include <gpusys/stream.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/gpusys-address-XXXXXX";

static int64_t seconds(int64_t count)
{
    return gpusys_deadline_after(count * 1000000000);
}

/* The stand-in resolver. */

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER;
static bool gate_is_open;
static int look_ups, answered; /* under gate_lock */

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);

static int two_addresses(const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    int error = __real_getaddrinfo("127.0.0.2", service, hints, list);
    return error ? error : __real_getaddrinfo("127.0.0.1", service, hints, &(*list)->ai_next);
}

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(node, service, hints, list);
    pthread_mutex_lock(&gate_lock);
    look_ups++;
    while (strcmp(node, "stuck.test") == 0 && !gate_is_open)
        pthread_cond_wait(&gate, &gate_lock);
    answered++;
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&gate_lock);
    if (strcmp(node, "nowhere.test") == 0)
        return EAI_NONAME;
    if (strcmp(node, "broken.test") == 0) {
        errno = EMFILE;
        return EAI_SYSTEM;
    }
    if (strcmp(node, "two.test") == 0)
        return two_addresses(service, hints, list);
    return __real_getaddrinfo("127.0.0.1", service, hints, list);
}

static int look_ups_so_far(void)
{
    pthread_mutex_lock(&gate_lock);
    int count = look_ups;
    pthread_mutex_unlock(&gate_lock);
    return count;
}

/* TCP. */

static unsigned port_of(int fd)
{
    char text[GS_ADDRESS_BYTES];
    assert_int_equal(gs_address_of_self(fd, text), 0);
    return (unsigned)strtoul(strrchr(text, ':') + 1, NULL, 10);
}

static int listen_somewhere(const char *address, unsigned *port)
{
    int fd = gs_address_listen(address, NULL);
    assert_true(fd >= 0);
    *port = port_of(fd);
    return fd;
}

static unsigned dead_port(void)
{
    unsigned port;
    close(listen_somewhere(":0", &port));
    return port;
}

static int int_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

static void assert_flags(int fd)
{
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void loopback_is_connected_and_tuned(void **state)
{
    (void)state;
    unsigned port;
    char text[GS_ADDRESS_BYTES], expected[GS_ADDRESS_BYTES], congestion[16] = "";
    socklen_t size = sizeof congestion - 1;
    int server = listen_somewhere(":0", &port);
    snprintf(expected, sizeof expected, "127.0.0.1:%u", port);
    assert_int_equal(gs_address_of_self(server, text), 0);
    assert_string_equal(text, expected);
    assert_flags(server);
    int client = gs_address_connect(expected, seconds(10), NULL);
    assert_true(client >= 0);
    assert_flags(client);
    assert_int_equal(gs_address_of_peer(client, text), 0);
    assert_string_equal(text, expected);
    assert_int_equal(int_option(client, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(getsockopt(client, IPPROTO_TCP, TCP_CONGESTION, congestion, &size), 0);
    assert_string_equal(congestion, "reno");
    assert_true(gs_socket_is_local(client));
    assert_false(gs_socket_is_self(client));
    close(client);
    close(server);
}

static void refused_says_so_and_what_to_do(void **state)
{
    (void)state;
    char text[64], message[128];
    struct gpusys_error error;
    unsigned port = dead_port();
    snprintf(text, sizeof text, "127.0.0.1:%u", port);
    snprintf(message, sizeof message, "127.0.0.1:%u: cannot connect: Connection refused", port);
    assert_int_equal(gs_address_connect(text, seconds(10), &error), -ECONNREFUSED);
    assert_string_equal(error.message, message);
    assert_string_equal(error.hint, "is `gpusys serve` running there, on that port?");
    assert_string_equal(error.detail, "tried\t127.0.0.1: Connection refused");
    assert_int_equal(error.domain, GPUSYS_DOMAIN_SYSTEM);
    assert_int_equal(error.foreign, ECONNREFUSED);
    assert_int_equal(gs_address_connect(text, seconds(10), NULL), -ECONNREFUSED);
    struct gpusys_stream *stream = NULL;
    assert_int_equal(gpusys_stream_connect(&stream, text, seconds(10), NULL), -ECONNREFUSED);
    assert_null(stream);
    assert_int_equal(gs_address_connect("127.0.0.1:0", seconds(10), &error), -EINVAL);
    assert_non_null(strstr(error.message, "port 0"));
}

static void every_address_of_a_name_is_tried(void **state)
{
    (void)state;
    unsigned port;
    char text[64];
    struct gpusys_error error;
    int server = listen_somewhere("127.0.0.1:0", &port);
    snprintf(text, sizeof text, "two.test:%u", port);
    int client = gs_address_connect(text, seconds(10), NULL); /* 127.0.0.2 refuses, 127.0.0.1 answers */
    assert_true(client >= 0);
    close(client);
    close(server);
    assert_int_equal(gs_address_connect(text, seconds(10), &error), -ECONNREFUSED);
    assert_string_equal(error.detail,
                        "tried\t127.0.0.2: Connection refused\ntried\t127.0.0.1: Connection refused");
    assert_int_equal(strncmp(error.message, text, strlen(text)), 0);
}

static int listen_narrowly(const char *host, unsigned *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, host, &at.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 0), 0);
    *port = port_of(fd);
    return fd;
}

static void an_address_that_swallows_packets_leaves_time_for_the_next(void **state)
{
    (void)state;
    unsigned port;
    char text[64], peer[GS_ADDRESS_BYTES], expected[64];
    int fds[16], count = 0, fd;
    int silent = listen_narrowly("127.0.0.2", &port); /* a full queue of a listener drops what comes */
    snprintf(text, sizeof text, "127.0.0.2:%u", port);
    while ((fd = gs_address_connect(text, gpusys_deadline_after(50000000), NULL)) >= 0 && count < 16)
        fds[count++] = fd;
    assert_int_equal(fd, -ETIMEDOUT);
    snprintf(expected, sizeof expected, "127.0.0.1:%u", port);
    int server = gs_address_listen(expected, NULL);
    assert_true(server >= 0);
    snprintf(text, sizeof text, "two.test:%u", port);
    int64_t deadline = seconds(3);
    fd = gs_address_connect(text, deadline, NULL);
    assert_true(fd >= 0);
    assert_true(gpusys_now_ns() < deadline);
    assert_int_equal(gs_address_of_peer(fd, peer), 0);
    assert_string_equal(peer, expected);
    close(fd);
    while (count > 0)
        close(fds[--count]);
    close(server);
    close(silent);
}

static void names_go_to_the_resolver_and_numbers_do_not(void **state)
{
    (void)state;
    struct gpusys_error error;
    int before = look_ups_so_far();
    assert_int_equal(gs_address_connect("nowhere.test", seconds(10), &error), -EHOSTUNREACH);
    assert_int_equal(look_ups_so_far(), before + 1);
    assert_int_equal(error.domain, GPUSYS_DOMAIN_RESOLVER);
    assert_int_equal(error.foreign, EAI_NONAME);
    assert_string_equal(error.message, "nowhere.test: name look-up failed: Name or service not known");
    assert_non_null(strstr(error.hint, "getent hosts nowhere.test"));
    assert_int_equal(gs_address_connect("broken.test", seconds(10), &error), -EMFILE);
    assert_int_equal(error.foreign, EAI_SYSTEM);
    assert_non_null(strstr(error.message, "Too many open files"));
    before = look_ups_so_far();
    assert_int_equal(gs_address_connect("[fe80::1%nosuchlink]:1", seconds(10), &error), -EHOSTUNREACH);
    assert_int_equal(error.domain, GPUSYS_DOMAIN_RESOLVER);
    assert_non_null(strstr(error.hint, "scope"));
    char text[64];
    snprintf(text, sizeof text, "127.0.0.1:%u", dead_port());
    assert_int_equal(gs_address_connect(text, 0, NULL), -ECONNREFUSED); /* even with no time at all */
    assert_int_equal(look_ups_so_far(), before);
}

static void a_stuck_resolver_does_not_hold_the_caller(void **state)
{
    (void)state;
    struct gpusys_error error;
    int before = look_ups_so_far();
    assert_int_equal(gs_address_connect("stuck.test:1", 0, &error), -EAGAIN);
    assert_non_null(strstr(error.message, "already past"));
    assert_int_equal(look_ups_so_far(), before);
    for (int i = 0; i < 3; i++) {
        int64_t deadline = gpusys_deadline_after(20000000);
        assert_int_equal(gs_address_connect("stuck.test:1", deadline, &error), -ETIMEDOUT);
        assert_true(gpusys_now_ns() >= deadline);
        assert_non_null(strstr(error.message, "stuck.test: no answer from the name look-up"));
    }
    pthread_mutex_lock(&gate_lock); /* let the threads left behind finish: they own all they touch */
    gate_is_open = true;
    pthread_cond_broadcast(&gate);
    while (answered < look_ups || look_ups < before + 3)
        pthread_cond_wait(&gate, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static void dual_stack_shows_plain_peers(void **state)
{
    (void)state;
    int probe = gs_address_listen("[::1]:0", NULL);
    if (probe < 0)
        skip(); /* no IPv6 here */
    close(probe);
    unsigned port;
    char text[GS_ADDRESS_BYTES], mine[GS_ADDRESS_BYTES];
    int server = listen_somewhere("[::]:0", &port);
    snprintf(text, sizeof text, "127.0.0.1:%u", port);
    int client = gs_address_connect(text, seconds(10), NULL);
    assert_true(client >= 0);
    int accepted = accept(server, NULL, NULL);
    assert_true(accepted >= 0);
    assert_int_equal(gs_address_of_self(client, mine), 0);
    assert_int_equal(gs_address_of_peer(accepted, text), 0);
    assert_string_equal(text, mine); /* 127.0.0.1, not ::ffff:127.0.0.1 */
    assert_true(gs_socket_is_local(accepted));
    close(accepted);
    close(client);
    snprintf(text, sizeof text, "[::1]:%u", port);
    client = gs_address_connect(text, seconds(10), NULL);
    assert_true(client >= 0);
    assert_int_equal(gs_address_of_peer(client, mine), 0);
    assert_string_equal(mine, text);
    close(client);
    close(server);
}

static void listen_errors_name_the_address(void **state)
{
    (void)state;
    unsigned port;
    char text[64];
    struct gpusys_error error;
    int server = listen_somewhere("127.0.0.1:0", &port);
    snprintf(text, sizeof text, "127.0.0.1:%u", port);
    assert_int_equal(gs_address_listen(text, &error), -EADDRINUSE);
    assert_int_equal(strncmp(error.message, text, strlen(text)), 0);
    assert_non_null(strstr(error.hint, "another program has this port"));
    close(server);
    assert_int_equal(gs_address_listen("192.0.2.1:0", &error), -EADDRNOTAVAIL); /* never an address of ours */
    assert_non_null(strstr(error.hint, "ip address"));
    assert_int_equal(gs_address_listen("nowhere.test:0", &error), -EHOSTUNREACH);
}

/* Unix sockets. */

static const char *unix_address(const char *name)
{
    static char text[128];
    snprintf(text, sizeof text, "unix:%s/%s", folder, name);
    return text;
}

static void unix_socket_is_private_from_the_start(void **state)
{
    (void)state;
    const char *address = unix_address("private");
    struct stat status;
    mode_t before = umask(0);
    int server = gs_address_listen(address, NULL);
    umask(before);
    assert_true(server >= 0);
    assert_flags(server);
    assert_int_equal(stat(address + 5, &status), 0);
    assert_int_equal(status.st_mode, S_IFSOCK | 0600);
    struct gpusys_stream *stream;
    assert_int_equal(gpusys_stream_connect(&stream, address, 0, NULL), 0);
    assert_string_equal(gpusys_stream_name(stream), address);
    char text[GS_ADDRESS_BYTES];
    assert_int_equal(gs_address_of_peer(gpusys_stream_fd(stream), text), 0);
    assert_string_equal(text, address);
    assert_int_equal(gs_address_of_self(server, text), 0);
    assert_string_equal(text, address);
    gpusys_stream_close(stream);
    close(server);
    unlink(address + 5);
}

static void unix_listen_replaces_only_the_dead(void **state)
{
    (void)state;
    const char *address = unix_address("socket");
    struct gpusys_error error;
    int first = gs_address_listen(address, NULL);
    assert_true(first >= 0);
    assert_int_equal(gs_address_listen(address, &error), -EADDRINUSE);
    assert_non_null(strstr(error.message, address));
    assert_non_null(strstr(error.hint, "another server answers"));
    close(first); /* the file stays, as after a crash */
    assert_int_equal(gs_address_connect(address, 0, &error), -ECONNREFUSED);
    assert_non_null(strstr(error.hint, "has ended"));
    int second = gs_address_listen(address, &error);
    assert_true(second >= 0);
    int client = gs_address_connect(address, seconds(10), NULL);
    assert_true(client >= 0);
    close(client);
    close(second);
    unlink(address + 5);
}

static void unix_listen_leaves_other_files_alone(void **state)
{
    (void)state;
    const char *address = unix_address("precious");
    struct gpusys_error error;
    struct stat status;
    int fd = open(address + 5, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0 && write(fd, "x", 1) == 1);
    close(fd);
    assert_int_equal(gs_address_listen(address, &error), -EEXIST);
    assert_non_null(strstr(error.hint, "left alone"));
    assert_int_equal(stat(address + 5, &status), 0);
    assert_int_equal(status.st_size, 1);
    unlink(address + 5);
    assert_int_equal(gs_address_listen(unix_address("none/socket"), &error), -ENOENT);
    assert_non_null(strstr(error.hint, "folder"));
}

static void unix_missing_path_says_so(void **state)
{
    (void)state;
    struct gpusys_error error;
    const char *address = unix_address("missing");
    assert_int_equal(gs_address_connect(address, seconds(10), &error), -ENOENT);
    assert_non_null(strstr(error.message, address));
    assert_non_null(strstr(error.message, "No such file"));
    assert_non_null(strstr(error.hint, "no such socket file"));
}

static void *accept_one(void *context)
{
    int *server = context;
    int fd = accept(*server, NULL, NULL);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void unix_connect_waits_for_a_full_backlog(void **state)
{
    (void)state;
    const char *address = unix_address("full");
    struct gpusys_error error;
    struct gs_address parsed;
    struct sockaddr_un at;
    assert_int_equal(gs_address_parse(&parsed, address, NULL), 0);
    gs_address_to_unix(&parsed, &at);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), fds[64], count = 0, fd;
    assert_int_equal(bind(server, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(server, 0), 0);
    while ((fd = gs_address_connect(address, 0, &error)) >= 0 && count < 64)
        fds[count++] = fd;
    assert_int_equal(fd, -EAGAIN);
    assert_non_null(strstr(error.message, "without waiting"));
    int64_t deadline = gpusys_deadline_after(20000000);
    assert_int_equal(gs_address_connect(address, deadline, &error), -ETIMEDOUT);
    assert_true(gpusys_now_ns() >= deadline);
    assert_non_null(strstr(error.hint, "does not accept"));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, accept_one, &server), 0);
    fd = gs_address_connect(address, seconds(20), &error);
    assert_true(fd >= 0);
    assert_flags(fd);
    pthread_join(thread, NULL);
    close(fd);
    while (count > 0)
        close(fds[--count]);
    close(server);
    unlink(address + 5);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a test left a file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_is_connected_and_tuned),
        cmocka_unit_test(refused_says_so_and_what_to_do),
        cmocka_unit_test(every_address_of_a_name_is_tried),
        cmocka_unit_test(an_address_that_swallows_packets_leaves_time_for_the_next),
        cmocka_unit_test(names_go_to_the_resolver_and_numbers_do_not),
        cmocka_unit_test(a_stuck_resolver_does_not_hold_the_caller),
        cmocka_unit_test(dual_stack_shows_plain_peers),
        cmocka_unit_test(listen_errors_name_the_address),
        cmocka_unit_test(unix_socket_is_private_from_the_start),
        cmocka_unit_test(unix_listen_replaces_only_the_dead),
        cmocka_unit_test(unix_listen_leaves_other_files_alone),
        cmocka_unit_test(unix_missing_path_says_so),
        cmocka_unit_test(unix_connect_waits_for_a_full_backlog),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
