/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Addresses as text, and what a socket can say about its own ends. */
#include "base/address.h"
#include <gpusys/stream.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un unix_;
};

static int refuse(struct gpusys_error *error, const char *text, const char *why)
{
    gpusys_error_set(error, -EINVAL, "address \"%.200s\": %s", text, why);
    gpusys_error_set_hint(error, "write HOST:PORT, HOST, [V6]:PORT or unix:PATH");
    return -EINVAL;
}

static int parse_port(uint16_t *port, const char *digits, const char *text, struct gpusys_error *error)
{
    uint32_t value = 0;
    size_t length = strspn(digits, "0123456789");
    if (length == 0 || digits[length])
        return refuse(error, text, "the port is not a decimal number");
    for (size_t i = 0; i < length && value <= UINT16_MAX; i++)
        value = value * 10 + (uint32_t)(digits[i] - '0');
    if (value > UINT16_MAX)
        return refuse(error, text, "the port is above 65535");
    *port = (uint16_t)value;
    return 0;
}

static int parse_unix(struct gs_address *address, const char *path, const char *text,
                      struct gpusys_error *error)
{
    size_t length = strlen(path), limit = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (length == 0)
        return refuse(error, text, "the path is empty");
    if (length > limit) {
        gpusys_error_set(error, -ENAMETOOLONG, "address \"%.200s\": the path has %zu bytes, the limit is %zu",
                         text, length, limit);
        gpusys_error_set_hint(error, "use a shorter path, such as one below /run or /tmp");
        return -ENAMETOOLONG;
    }
    *address = (struct gs_address){.is_unix = true};
    memcpy(address->host, path, length);
    return 0;
}

/* Is it an IPv6 address, with or without a scope ("fe80::1%eth0")? */
static bool is_v6(const char *host)
{
    char plain[INET6_ADDRSTRLEN];
    struct in6_addr bytes;
    size_t length = strcspn(host, "%");
    if (length >= sizeof plain || (host[length] && !host[length + 1]))
        return false;
    memcpy(plain, host, length);
    plain[length] = 0;
    return inet_pton(AF_INET6, plain, &bytes) == 1;
}

/* Cut the text into host and port; *port is NULL when there is none. */
static const char *split(const char *text, const char **host, size_t *length, const char **port)
{
    const char *first = strchr(text, ':'), *close = strchr(text, ']');
    *host = text;
    *port = NULL;
    if (text[0] == '[') {
        if (!close || (close[1] && close[1] != ':'))
            return "a bracketed address is [V6] or [V6]:PORT";
        *host = text + 1;
        *length = (size_t)(close - *host);
        *port = close[1] ? close + 2 : NULL;
    } else if (first && !strchr(first + 1, ':')) {
        *length = (size_t)(first - text);
        *port = first + 1;
    } else {
        *length = strlen(text);
    }
    return NULL;
}

static const char *host_fault(const char *text, const char *host, bool has_port)
{
    if ((text[0] == '[' || strchr(host, ':')) && !is_v6(host))
        return "this is no IPv6 address";
    for (const char *at = host; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 127)
            return "a host has no blanks or control characters";
    if (strpbrk(host, "/[]"))
        return "a host has no slash or bracket";
    if (!has_port && !host[strspn(host, "0123456789")])
        return host[0] ? "a number alone is not a host; a port alone is :PORT" : "it is empty";
    return NULL;
}

int gs_address_parse(struct gs_address *ret_address, const char *text, struct gpusys_error *error)
{
    if (!text)
        return gpusys_error_set(error, -EINVAL, "address: none was given");
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(ret_address, text + 5, text, error);
    struct gs_address address = {.port = GPUSYS_DEFAULT_PORT};
    const char *host, *port;
    size_t length = 0;
    const char *fault = split(text, &host, &length, &port);
    if (!fault && length >= sizeof address.host)
        fault = "the host is too long";
    if (fault)
        return refuse(error, text, fault);
    memcpy(address.host, host, length);
    fault = host_fault(text, address.host, port);
    if (fault)
        return refuse(error, text, fault);
    int code = port ? parse_port(&address.port, port, text, error) : 0;
    if (!code)
        *ret_address = address;
    return code;
}

void gs_address_format(const struct gs_address *address, char text[GS_ADDRESS_TEXT_BYTES])
{
    const char *format = address->is_unix ? "unix:%s" : strchr(address->host, ':') ? "[%s]:%u" : "%s:%u";
    snprintf(text, GS_ADDRESS_TEXT_BYTES, format, address->host, (unsigned)address->port);
}

void gs_address_to_unix(const struct gs_address *address, struct sockaddr_un *ret_unix)
{
    *ret_unix = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_unix->sun_path, address->host, sizeof ret_unix->sun_path - 1);
}

/* ::ffff:1.2.3.4, which a dual-stack socket shows for an IPv4 peer, becomes plain 1.2.3.4. */
static void unmap(union socket_address *address, socklen_t *length)
{
    if (address->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr))
        return;
    struct sockaddr_in plain = {.sin_family = AF_INET, .sin_port = address->v6.sin6_port};
    memcpy(&plain.sin_addr, address->v6.sin6_addr.s6_addr + 12, sizeof plain.sin_addr);
    address->v4 = plain;
    *length = sizeof plain;
}

static int ends_of(int fd, union socket_address *local, union socket_address *peer)
{
    socklen_t local_length = sizeof *local, peer_length = sizeof *peer;
    memset(local, 0, sizeof *local);
    memset(peer, 0, sizeof *peer);
    if (getsockname(fd, &local->any, &local_length) < 0 || getpeername(fd, &peer->any, &peer_length) < 0)
        return -errno;
    unmap(local, &local_length);
    unmap(peer, &peer_length);
    return 0;
}

static int unix_text(const struct sockaddr_un *address, socklen_t length, char *text)
{
    size_t header = offsetof(struct sockaddr_un, sun_path), bytes = length > header ? length - header : 0;
    const char *path = address->sun_path;
    bool abstract = bytes > 0 && path[0] == 0;
    snprintf(text, GS_ADDRESS_BYTES, "unix:%s%.*s", abstract ? "@" : "", (int)(bytes - abstract),
             path + abstract);
    return 0;
}

static int address_text(union socket_address *address, socklen_t length, char *text)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (address->any.sa_family == AF_UNIX)
        return unix_text(&address->unix_, length, text);
    if (address->any.sa_family != AF_INET && address->any.sa_family != AF_INET6)
        return -EAFNOSUPPORT;
    unmap(address, &length);
    if (getnameinfo(&address->any, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return -EAFNOSUPPORT;
    snprintf(text, GS_ADDRESS_BYTES, address->any.sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return 0;
}

int gs_address_of_peer(int fd, char text[GS_ADDRESS_BYTES])
{
    union socket_address address = {0};
    socklen_t length = sizeof address;
    return getpeername(fd, &address.any, &length) < 0 ? -errno : address_text(&address, length, text);
}

int gs_address_of_self(int fd, char text[GS_ADDRESS_BYTES])
{
    union socket_address address = {0};
    socklen_t length = sizeof address;
    return getsockname(fd, &address.any, &length) < 0 ? -errno : address_text(&address, length, text);
}

static bool is_loopback(const union socket_address *address)
{
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

bool gs_socket_is_local(int fd)
{
    union socket_address address = {0};
    socklen_t length = sizeof address;
    if (getsockname(fd, &address.any, &length) < 0)
        return false;
    unmap(&address, &length);
    return address.any.sa_family == AF_UNIX || is_loopback(&address);
}

bool gs_socket_is_self(int fd)
{
    union socket_address local, peer;
    return ends_of(fd, &local, &peer) == 0 && memcmp(&local, &peer, sizeof local) == 0 &&
           local.any.sa_family != AF_UNIX;
}

/* Two ends at one address never leave the machine, whatever the address. */
static bool same_address(const union socket_address *one, const union socket_address *other)
{
    if (one->any.sa_family != other->any.sa_family)
        return false;
    if (one->any.sa_family == AF_INET)
        return one->v4.sin_addr.s_addr == other->v4.sin_addr.s_addr;
    return one->any.sa_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&one->v6.sin6_addr, &other->v6.sin6_addr);
}

void gs_socket_tune(int fd)
{
    union socket_address local, peer;
    int on = 1, idle = 10, interval = 5,
        probes = 3; /* a host that vanished is noticed within half a minute */
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 || ends_of(fd, &local, &peer) < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    if ((is_loopback(&local) && is_loopback(&peer)) || same_address(&local, &peer))
        /* a wish: a kernel without reno keeps its own */
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}
