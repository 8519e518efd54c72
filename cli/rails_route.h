/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The way from this host to a peer, as the routing table has it. Nothing is sent. */
#ifndef GPUSYS_CLI_RAILS_ROUTE_H
#define GPUSYS_CLI_RAILS_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

struct rails_route {
    uint8_t peer[16];    /* IPv4 mapped into IPv6 */
    char peer_text[320]; /* "node7 (10.0.0.1)" */
    char local_text[48]; /* this host's end */
    char netdev[16];     /* the interface with that address; empty: none */
};

/* `address` is HOST, HOST:PORT, [V6]:PORT or V6. 0, or a negative errno that was reported. */
int rails_find_route(struct rails_route *ret_route, const char *address, int64_t timeout_ns);

/* Has that interface an address in a subnet that the peer is in too? */
bool rails_shares_subnet(const char *netdev, const struct rails_route *route);

#endif
