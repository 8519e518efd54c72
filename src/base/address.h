/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Addresses of hosts and sockets: text to socket and back. */
#ifndef GPUSYS_BASE_ADDRESS_H
#define GPUSYS_BASE_ADDRESS_H

#include <gpusys/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

enum { GS_ADDRESS_BYTES = 160, GS_HOST_BYTES = 256, GS_ADDRESS_TEXT_BYTES = GS_HOST_BYTES + 16 };

/*
 * "HOST:PORT", "HOST", "[V6]:PORT", "[V6]", "V6", ":PORT" (host empty), or "unix:PATH". An unbracketed text
 * with two or more colons is a bare IPv6 address: never a port cut off its tail.
 */
struct gs_address {
    bool is_unix;
    char host[GS_HOST_BYTES]; /* for unix: the path */
    uint16_t port;            /* GPUSYS_DEFAULT_PORT when the text has none */
};

/* Port 0 passes here: listening, it asks the kernel for a port; connecting refuses it. */
int gs_address_parse(struct gs_address *ret_address, const char *text, struct gpusys_error *error);

/* Back to text, with the port always shown. */
void gs_address_format(const struct gs_address *address, char text[GS_ADDRESS_TEXT_BYTES]);

/* The socket address of one with is_unix set. */
void gs_address_to_unix(const struct gs_address *address, struct sockaddr_un *ret_unix);

/* A connected non-blocking, close-on-exec socket, tuned as gpusys_stream_connect says. The descriptor, or an
 * errno. */
int gs_address_connect(const char *text, int64_t deadline_ns, struct gpusys_error *error);

/*
 * A listening non-blocking, close-on-exec socket. TCP: SO_REUSEADDR, the first address the name gives; an
 * empty host is loopback (127.0.0.1). Unix: a socket file left by a dead server is replaced, one that answers
 * is -EADDRINUSE; mode 0600.
 */
int gs_address_listen(const char *text, struct gpusys_error *error);

/* "127.0.0.1:7471", "[::1]:7471", "unix:/path" ("unix:" when unnamed). -ENOTSOCK and the like otherwise. */
int gs_address_of_peer(int fd, char text[GS_ADDRESS_BYTES]);
int gs_address_of_self(int fd, char text[GS_ADDRESS_BYTES]);

/* Is the local end of this socket a loopback address or a Unix socket? (IPv4-mapped 127/8 counts.) */
bool gs_socket_is_local(int fd);

/* Is this TCP socket connected to itself? Connecting to a free port of one's own machine can end so. */
bool gs_socket_is_self(int fd);

/* TCP_NODELAY on TCP sockets; reno where both ends are loopback or one address. Other descriptors are left
 * alone. */
void gs_socket_tune(int fd);

#endif
