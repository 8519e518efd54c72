/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From the text of an address to a listening socket. */
#include "base/address_resolve.h"
#include <gpusys/deadline.h>

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *hint_for(int code, bool is_unix)
{
    switch (-code) {
    case EADDRINUSE:
        return is_unix ? "another server answers there: stop it, or choose another path"
                       : "another program has this port (`ss -ltnp` shows it): stop it, or choose another";
    case EADDRNOTAVAIL: return "this machine has no such address (`ip address` shows those it has)";
    case EACCES: return is_unix ? "may you write to that folder?" : "ports below 1024 need privileges";
    case EEXIST: return "what is there is no socket, so it was left alone: choose another path";
    case ENOENT: return "the folder does not exist: make it, or choose another path";
    default: return "";
    }
}

static int fail(struct gpusys_error *error, int code, const struct gs_address *address)
{
    char text[GS_ADDRESS_TEXT_BYTES];
    gs_address_format(address, text);
    gpusys_error_set_errno(error, code, "%s: cannot listen", text);
    gpusys_error_set_hint(error, "%s", hint_for(code, address->is_unix));
    return code;
}

/* 0 when the socket file is there but nobody stands behind it. */
static int probe_dead(const struct sockaddr_un *at)
{
    struct stat status;
    if (lstat(at->sun_path, &status) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(status.st_mode))
        return -EEXIST;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 ? errno : 0;
    close(fd);
    return error == ECONNREFUSED || error == ENOENT ? 0 : -EADDRINUSE;
}

static int bind_unix(int fd, const struct sockaddr_un *at)
{
    /* The file takes its mode from the socket, so at no moment can another user open it. */
    if (fchmod(fd, 0600) < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)at, sizeof *at) == 0)
        return 0;
    if (errno != EADDRINUSE)
        return -errno;
    int error = probe_dead(at);
    if (error)
        return error;
    if (unlink(at->sun_path) < 0 && errno != ENOENT)
        return -errno;
    return bind(fd, (const struct sockaddr *)at, sizeof *at) < 0 ? -errno : 0;
}

static int listen_unix(const struct gs_address *address)
{
    struct sockaddr_un at;
    gs_address_to_unix(address, &at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = bind_unix(fd, &at);
    if (!error && listen(fd, SOMAXCONN) < 0)
        error = -errno;
    if (!error)
        return fd;
    close(fd);
    return error;
}

static int listen_at(const struct addrinfo *at)
{
    int on = 1, off = 0;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6) /* [::] takes IPv4 too, whatever net.ipv6.bindv6only says */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

int gs_address_listen(const char *text, struct gpusys_error *error)
{
    struct gs_address address;
    struct addrinfo *list;
    int code = gs_address_parse(&address, text, error);
    if (code)
        return code;
    if (address.is_unix) {
        int fd = listen_unix(&address);
        return fd < 0 ? fail(error, fd, &address) : fd;
    }
    code = gs_address_resolve(&list, &address, GPUSYS_NO_DEADLINE, error);
    if (code)
        return code;
    int fd = listen_at(list);
    freeaddrinfo(list);
    return fd < 0 ? fail(error, fd, &address) : fd;
}
