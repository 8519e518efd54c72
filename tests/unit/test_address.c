/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Addresses as text, and what sockets say of their ends. */
#include "base/address.h"
#include <gpusys/stream.h>

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void good_texts_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        unsigned port;
        const char *again;
    } good[] = {
        {"localhost:80", "localhost", 80, "localhost:80"},
        {"localhost", "localhost", GPUSYS_DEFAULT_PORT, "localhost:7471"},
        {"10.0.0.1:65535", "10.0.0.1", 65535, "10.0.0.1:65535"},
        {"host:0", "host", 0, "host:0"},
        {"host:00080", "host", 80, "host:80"},
        {":7000", "", 7000, ":7000"},
        {"[::1]:7000", "::1", 7000, "[::1]:7000"},
        {"[::1]", "::1", GPUSYS_DEFAULT_PORT, "[::1]:7471"},
        {"::1", "::1", GPUSYS_DEFAULT_PORT, "[::1]:7471"},
        {"::", "::", GPUSYS_DEFAULT_PORT, "[::]:7471"},
        {"fe80::1:7471", "fe80::1:7471", GPUSYS_DEFAULT_PORT, "[fe80::1:7471]:7471"}, /* no port cut off */
        {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", GPUSYS_DEFAULT_PORT, "[1:2:3:4:5:6:7:8]:7471"},
        {"fe80::1%lo", "fe80::1%lo", GPUSYS_DEFAULT_PORT, "[fe80::1%lo]:7471"},
        {"[fe80::1%eth0.5]:1", "fe80::1%eth0.5", 1, "[fe80::1%eth0.5]:1"},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.1", GPUSYS_DEFAULT_PORT, "[::ffff:10.0.0.1]:7471"},
        {"my-host_1.example.:5", "my-host_1.example.", 5, "my-host_1.example.:5"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct gs_address address;
        char text[GS_ADDRESS_TEXT_BYTES];
        assert_int_equal(gs_address_parse(&address, good[i].text, NULL), 0);
        assert_false(address.is_unix);
        assert_string_equal(address.host, good[i].host);
        assert_int_equal(address.port, good[i].port);
        gs_address_format(&address, text);
        assert_string_equal(text, good[i].again);
    }
}

static void bad_texts_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"", "empty"},
        {"host:", "port"},
        {"host:65536", "above 65535"},
        {"host:99999999999999999999", "above 65535"},
        {"host:4294967376", "above 65535"}, /* 80 in 32 bits */
        {"host:80x", "port"},
        {"host:-1", "port"},
        {"host:+1", "port"},
        {"host: 80", "port"},
        {"host:http", "port"},
        {"[::1", "bracketed"},
        {"[::1]7471", "bracketed"},
        {"[::1]:", "port"},
        {"[::1]:x", "port"},
        {"[]", "IPv6"},
        {"[localhost]:80", "IPv6"},
        {"[1.2.3.4]:80", "IPv6"},
        {"a:b:c", "IPv6"},
        {"host:80:90", "IPv6"},
        {":::", "IPv6"},
        {"fe80::1%", "IPv6"},
        {"my host:80", "blanks"},
        {"host\n:80", "blanks"},
        {"host\x7f", "blanks"},
        {"/run/gpusys.sock", "slash"},
        {"http//host", "slash"},
        {"7471", "number alone"},
        {"unix:", "path is empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gs_address address = {.port = 9};
        struct gpusys_error error;
        assert_int_equal(gs_address_parse(&address, bad[i].text, &error), -EINVAL);
        assert_int_equal(error.code, -EINVAL);
        char named[128]; /* control characters do not reach a terminal */
        snprintf(named, sizeof named, "address \"%s\": ", bad[i].text);
        for (char *at = named; *at; at++)
            *at = *at == '\n' || *at == 127 ? '?' : *at;
        assert_int_equal(strncmp(error.message, named, strlen(named)), 0);
        assert_non_null(strstr(error.message, bad[i].reason));
        assert_true(error.hint[0]);
        assert_int_equal(address.port, 9); /* untouched */
    }
    assert_int_equal(gs_address_parse(NULL, NULL, NULL), -EINVAL);
}

static void unix_paths_and_long_hosts_are_bounded(void **state)
{
    (void)state;
    char text[400] = "unix:";
    struct gs_address address;
    struct gpusys_error error;
    memset(text + 5, 'p', 108);
    text[5] = '/';
    assert_int_equal(gs_address_parse(&address, text, &error), -ENAMETOOLONG);
    assert_non_null(strstr(error.message, "108 bytes, the limit is 107"));
    text[5 + 107] = 0;
    assert_int_equal(gs_address_parse(&address, text, &error), 0);
    assert_true(address.is_unix);
    assert_string_equal(address.host, text + 5);
    struct sockaddr_un socket_address;
    gs_address_to_unix(&address, &socket_address);
    assert_string_equal(socket_address.sun_path, text + 5);
    memset(text, 'h', 256);
    text[256] = 0;
    assert_int_equal(gs_address_parse(&address, text, &error), -EINVAL);
    text[255] = 0;
    assert_int_equal(gs_address_parse(&address, text, &error), 0);
    assert_int_equal(strlen(address.host), 255);
}

static void of_peer_wants_a_connected_socket(void **state)
{
    (void)state;
    char text[GS_ADDRESS_BYTES] = "as it was";
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(gs_address_of_peer(ends[0], text), -ENOTSOCK);
    assert_int_equal(gs_address_of_self(ends[0], text), -ENOTSOCK);
    assert_false(gs_socket_is_local(ends[0]));
    gs_socket_tune(ends[0]);
    close(ends[0]);
    close(ends[1]);
    assert_string_equal(text, "as it was");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(gs_address_of_peer(ends[0], text), 0);
    assert_string_equal(text, "unix:");
    assert_true(gs_socket_is_local(ends[0]));
    close(ends[0]);
    close(ends[1]);
}

static void a_socket_that_met_itself_is_told(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ends[2];
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    assert_false(gs_socket_is_self(fd));
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_true(gs_socket_is_self(fd));
    close(fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_false(gs_socket_is_self(ends[0])); /* though neither end has a name */
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_parse),
        cmocka_unit_test(bad_texts_are_refused_with_the_reason),
        cmocka_unit_test(unix_paths_and_long_hosts_are_bounded),
        cmocka_unit_test(of_peer_wants_a_connected_socket),
        cmocka_unit_test(a_socket_that_met_itself_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
